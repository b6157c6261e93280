//! `GET /agent/tools`: the current tools with risk and source of the risk, their servers with status,
//! and the skills (T2).

use super::{Problem, State, access_control::Caller, endpoint::Endpoint};
use crate::{redaction::Redactor, skill::InvalidFile};
use actix_web::HttpResponse;
use greenroom_actors::tool_servers::ServerStatus;
use greenroom_core::{
    context::Skill,
    ids::ToolName,
    policy::{Risk, RiskSource, Tool},
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/tools", list)
            .operation("list_tools", "Lists tools with their risk, tool servers, and skills.")
            .returns::<ToolList>("The current tools, servers and skills"),
    ]
}

/// The tools, tool servers and skills.
#[derive(Serialize, ToSchema)]
struct ToolList {
    tools: Vec<ToolView>,
    #[schema(value_type = Vec<ServerStatus>)]
    servers: Value,
    skills: Vec<Skill>,
    /// Skills that could not be loaded. Only for administrators, since paths are in the errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    broken_skills: Option<Vec<InvalidFile>>,
}

/// A tool.
#[derive(Serialize, ToSchema)]
#[schema(as = Tool)]
struct ToolView {
    name: ToolName,
    /// The server that provides the tool.
    server: String,
    description: String,
    /// JSON Schema of the arguments.
    input_schema: Value,
    risk: Risk,
    risk_source: RiskSource,
    /// True if calls may run in parallel with other calls.
    parallel: bool,
    /// True if a call may safely be repeated.
    repeatable: bool,
    /// True if the tool can be called now.
    available: bool,
    /// The reason why the tool is unavailable.
    unavailable_because: Option<String>,
}

impl ToolView {
    /// Creates the view. Descriptions and errors of servers may quote a configured secret, so they
    /// are redacted (E7).
    fn from_tool(tool: &Tool, redactor: &Redactor) -> Self {
        let redact = |text: &str| redactor.redact_text(text).into_owned();
        Self {
            name: tool.name.clone(),
            server: tool.server.to_string(),
            description: redact(&tool.description),
            input_schema: tool.input_schema.clone(),
            risk: tool.risk,
            risk_source: tool.risk_source.clone(),
            parallel: tool.parallel,
            repeatable: tool.repeatable,
            available: tool.unavailable_reason.is_none(),
            unavailable_because: tool.unavailable_reason.as_deref().map(redact),
        }
    }
}

/// `GET /agent/tools`
async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(ToolList {
        tools: state
            .runtime
            .tools
            .tool_registry()
            .iter()
            .map(|tool| ToolView::from_tool(tool, &state.redactor))
            .collect(),
        servers: state.redactor.redact_value(json!(state.runtime.tools.server_statuses())),
        skills: state.skills.skills(),
        broken_skills: caller.0.is_admin().then(|| state.skills.invalid_files()),
    }))
}
