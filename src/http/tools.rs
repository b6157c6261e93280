//! `GET /agent/tools`: the tools there are now, each with its risk and why, and the servers they
//! come from, each with why it is not there (T2).

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

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/tools", list)
            .operation("list_tools", "Tools, each with its risk and why; tool servers; and skills.")
            .returns::<ToolList>("What there is now"),
    ]
}

/// What an agent can work with.
#[derive(Serialize, ToSchema)]
struct ToolList {
    tools: Vec<ToolView>,
    #[schema(value_type = Vec<ServerStatus>)]
    servers: Value,
    skills: Vec<Skill>,
    /// For administrators: paths are the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    broken_skills: Option<Vec<InvalidFile>>,
}

/// A tool.
#[derive(Serialize, ToSchema)]
#[schema(as = Tool)]
struct ToolView {
    name: ToolName,
    /// The server it lives on.
    server: String,
    description: String,
    /// JSON Schema of the arguments.
    input_schema: Value,
    risk: Risk,
    risk_source: RiskSource,
    /// Whether its calls may run beside others.
    parallel: bool,
    /// Whether it may safely run twice.
    repeatable: bool,
    /// Whether it can be called now.
    available: bool,
    /// Why it can't.
    unavailable_because: Option<String>,
}

impl ToolView {
    /// The words of servers are theirs, and may quote a secret of the configuration (E7).
    fn from_tool(tool: &Tool, redactor: &Redactor) -> Self {
        let told = |text: &str| redactor.redact_text(text).into_owned();
        Self {
            name: tool.name.clone(),
            server: tool.server.to_string(),
            description: told(&tool.description),
            input_schema: tool.input_schema.clone(),
            risk: tool.risk,
            risk_source: tool.risk_source.clone(),
            parallel: tool.parallel,
            repeatable: tool.repeatable,
            available: tool.unavailable_reason.is_none(),
            unavailable_because: tool.unavailable_reason.as_deref().map(told),
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
