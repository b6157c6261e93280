//! The policy table and the policy's verdicts, without executing calls (G3, G7).

use super::{
    AppState, Problem, State,
    access_control::Caller,
    endpoint::Endpoint,
    extract::{self, Json},
};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::governance::Governance;
use greenroom_core::{
    agent::AgentProfile,
    ids::{AgentName, ToolName},
    policy::{
        Autonomy, CeilingLimit, Cost, EffectiveCeiling, JudgeContext, MatrixCell, Risk, Settings,
        Tool, Verdict, judge_call, judge_tool,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/policy", read)
            .operation(
                "policy",
                "Returns the policy table and the verdicts on each tool for the caller.",
            )
            .description("Verdicts that depend on arguments are left out; use `POST /agent/judge`.")
            .query::<PolicyQuery>()
            .returns::<PolicyView>("The policy")
            .problems(&["invalid_id", "unknown_agent"]),
        Endpoint::post("/agent/judge", judge)
            .operation("judge", "Returns the policy's verdict on a call of the caller.")
            .description(
                "The call is not executed and nothing is recorded. Spent budgets are not taken \
                 into account.",
            )
            .body::<JudgeRequest>()
            .returns::<VerdictView>("The verdict")
            .problems(&["unknown_agent", "settings_widened"]),
    ]
}

/// The policy as it applies to the tools of one agent.
#[derive(Serialize, ToSchema)]
#[schema(as = Policy)]
struct PolicyView {
    agent: AgentName,
    /// The caller's autonomy level, narrowed to the ceilings.
    autonomy_level: Autonomy,
    /// The names of the autonomy levels, lowest first.
    levels: Vec<&'static str>,
    /// The risk levels, lowest first.
    risks: Vec<Risk>,
    /// The policy table: one row per autonomy level, one cell per risk level.
    matrix: Vec<Vec<MatrixCell>>,
    /// The limits of the ceilings that apply to the caller with this agent.
    ceilings: Vec<CeilingLimit>,
    /// The verdicts on each tool of the agent.
    tools: Vec<ToolAtLevels>,
}

/// The verdicts on a tool.
#[derive(Serialize, ToSchema)]
struct ToolAtLevels {
    name: ToolName,
    /// The verdict at each autonomy level, lowest first.
    levels: Vec<VerdictView>,
}

/// The policy's verdict on a call.
#[derive(Serialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum VerdictView {
    /// The call runs.
    Allow {
        /// The reason of the verdict.
        why: String,
        /// The cost of the call, if known.
        cost: Option<Cost>,
    },
    /// The call needs approval.
    Ask {
        /// The reason of the verdict.
        why: String,
        /// The cost of the call, if known.
        cost: Option<Cost>,
    },
    /// The call is denied.
    Deny {
        /// The reason of the verdict.
        why: String,
        /// The lowest autonomy level at which the call would not be denied, if there is one.
        required_level: Option<Autonomy>,
    },
    /// The arguments do not match the tool's schema.
    Invalid {
        /// The validation error.
        why: String,
    },
}

#[derive(Deserialize, IntoParams)]
pub(super) struct PolicyQuery {
    /// The agent; by default the server's default agent.
    #[param(value_type = Option<AgentName>)]
    agent: Option<String>,
}

/// `GET /agent/policy`: the policy table, and the verdict on each tool for the caller at every
/// autonomy level. Verdicts that depend on arguments are left out; [`judge`] returns them.
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let name = extract::parse_query::<PolicyQuery>(&request)?.agent;
    let agent = resolve_agent(&state, extract::parse_optional_id("agent", name.as_deref())?)?;
    let settings = state.load_user_settings(&caller.0.user).await?;
    let ceiling = state.ceiling(&caller.0, Some(&agent.name), &caller.0.user);
    let inputs = JudgeInputs {
        agent: &agent,
        ceiling: &ceiling,
        governance: state.runtime.governance(),
        user: caller.0.user.as_str(),
    };
    let tools = state
        .runtime
        .tools
        .tool_registry()
        .iter()
        .filter(|tool| agent.can_use_tool(tool.name.as_str()))
        .map(|tool| {
            let levels = Autonomy::ALL.map(|level| {
                let settings = Settings { autonomy_level: level, ..settings.clone() };
                VerdictView::from(judge_tool(tool, &inputs.context(&settings)))
            });
            ToolAtLevels { name: tool.name.clone(), levels: levels.into() }
        })
        .collect();
    let row = |level| Risk::ALL.map(|risk| inputs.governance.matrix.cell(level, risk)).into();
    Ok(HttpResponse::Ok().json(PolicyView {
        agent: agent.name.clone(),
        autonomy_level: ceiling.narrow(&settings).autonomy_level,
        levels: Autonomy::ALL.map(Autonomy::name).into(),
        risks: Risk::ALL.into(),
        matrix: Autonomy::ALL.map(row).into(),
        ceilings: ceiling.limits(),
        tools,
    }))
}

/// A call to be evaluated by the policy.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = JudgeQuestion)]
pub(super) struct JudgeRequest {
    /// Name of the tool.
    tool: String,
    /// The arguments of the call.
    #[serde(default)]
    arguments: Map<String, Value>,
    /// The agent; by default the server's default agent.
    agent: Option<AgentName>,
    /// The autonomy level; by default the caller's.
    autonomy_level: Option<Autonomy>,
}

/// `POST /agent/judge`: returns the verdict on a call of the caller. Executes and records nothing;
/// spent budgets are not taken into account.
async fn judge(
    state: State,
    caller: Caller,
    Json(body): Json<JudgeRequest>,
) -> Result<HttpResponse, Problem> {
    let agent = resolve_agent(&state, body.agent)?;
    let user = state.load_user_settings(&caller.0.user).await?;
    let ceiling = state.ceiling(&caller.0, Some(&agent.name), &caller.0.user);
    if let Some(level) = body.autonomy_level {
        ceiling.validate_level(level)?;
    }
    let registry = state.runtime.tools.tool_registry();
    let unknown = || Problem::invalid("tool", "`tool`: the agent has no tool of this name");
    let tool = registry.get(&body.tool).filter(|tool| agent.can_use_tool(tool.name.as_str()));
    let tool: &Tool = tool.ok_or_else(unknown)?;
    let arguments = Value::Object(body.arguments);
    if let Err(problem) = tool.validate(&arguments) {
        return Ok(HttpResponse::Ok().json(VerdictView::Invalid { why: problem }));
    }
    let level = body.autonomy_level.unwrap_or(user.autonomy_level);
    let settings = Settings { autonomy_level: level, ..user };
    let inputs = JudgeInputs {
        agent: &agent,
        ceiling: &ceiling,
        governance: state.runtime.governance(),
        user: caller.0.user.as_str(),
    };
    let verdict = judge_call(tool, &arguments, &inputs.context(&settings));
    Ok(HttpResponse::Ok().json(state.redactor.redact(&VerdictView::from(verdict))))
}

/// The inputs of a verdict that do not depend on the call.
struct JudgeInputs<'a> {
    agent: &'a AgentProfile,
    ceiling: &'a EffectiveCeiling,
    governance: &'a Governance,
    user: &'a str,
}

impl JudgeInputs<'_> {
    fn context<'b>(&'b self, settings: &'b Settings) -> JudgeContext<'b> {
        JudgeContext {
            settings,
            ceiling: self.ceiling,
            matrix: &self.governance.matrix,
            critical: self.governance.critical,
            headless: self.agent.headless,
            user: self.user,
            session: "",
            agent: self.agent.name.as_str(),
            remaining_budget: None,
        }
    }
}

fn resolve_agent(state: &AppState, name: Option<AgentName>) -> Result<Arc<AgentProfile>, Problem> {
    state.find_agent(name.as_ref().unwrap_or(&state.default_agent))
}

impl From<Verdict> for VerdictView {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Allow { reason: why, cost } => Self::Allow { why, cost },
            Verdict::Ask { reason: why, cost, .. } | Verdict::OverBudget { reason: why, cost } => {
                Self::Ask { why, cost }
            }
            Verdict::Deny(denial) => {
                Self::Deny { why: denial.reason, required_level: denial.required_level }
            }
        }
    }
}
