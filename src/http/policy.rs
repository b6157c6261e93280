//! The policy as people can look at it, and the judge asked without a call (G3, G7).

use super::{
    AppState, Problem, State,
    access_control::Caller,
    endpoint::Endpoint,
    extract::{self, Json},
};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_core::{
    agent::AgentProfile,
    ids::{AgentName, ToolName},
    policy::{
        Autonomy, Cost, JudgeContext, Matrix, MatrixCell, Risk, Settings, Tool, Verdict,
        judge_call, judge_tool,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/policy", read)
            .operation(
                "policy",
                "The policy's table, and what the caller would get from each tool.",
            )
            .description("What depends on arguments is left out; for that there is the judge.")
            .query::<PolicyQuery>()
            .returns::<PolicyView>("The policy")
            .problems(&["invalid_id", "unknown_agent"]),
        Endpoint::post("/agent/judge", judge)
            .operation("judge", "What would happen with a call of the caller's.")
            .description("It runs nothing and records nothing; what was spent is not looked at.")
            .body::<JudgeRequest>()
            .returns::<VerdictView>("The judge's word")
            .problems(&["unknown_agent"]),
    ]
}

/// The policy, as one agent's tools meet it.
#[derive(Serialize, ToSchema)]
#[schema(as = Policy)]
struct PolicyView {
    agent: AgentName,
    /// The caller's.
    autonomy_level: Autonomy,
    /// The names of the levels, the lowest first.
    levels: Vec<&'static str>,
    /// The risks, the lowest first.
    risks: Vec<Risk>,
    /// A row for each level, with a cell for each risk.
    matrix: Vec<Vec<MatrixCell>>,
    tools: Vec<ToolAtLevels>,
}

/// What a tool would get.
#[derive(Serialize, ToSchema)]
struct ToolAtLevels {
    name: ToolName,
    /// At each level, the lowest first.
    levels: Vec<VerdictView>,
}

/// The judge's word on a call.
#[derive(Serialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum VerdictView {
    /// It runs.
    Allow {
        /// Why, for people.
        why: String,
        /// What it costs, if that is known.
        cost: Option<Cost>,
    },
    /// A person is asked.
    Ask {
        /// Why, for people.
        why: String,
        /// What it costs, if that is known.
        cost: Option<Cost>,
    },
    /// It does not run.
    Deny {
        /// Why, for people.
        why: String,
        /// The least level at which it would not be denied, if there is one.
        required_level: Option<Autonomy>,
    },
    /// Its arguments are not what the tool takes.
    Invalid {
        /// What is wrong with them.
        why: String,
    },
}

#[derive(Deserialize, IntoParams)]
struct PolicyQuery {
    /// By default the server's default agent.
    #[param(value_type = Option<AgentName>)]
    agent: Option<String>,
}

/// `GET /agent/policy`: the table, and what the caller would get from each tool at every level, and
/// why. What depends on arguments is left out: that is for [`judge`].
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let name = extract::parse_query::<PolicyQuery>(&request)?.agent;
    let agent = resolve_agent(&state, extract::parse_optional_id("agent", name.as_deref())?)?;
    let settings = state.load_user_settings(&caller.0.user).await?;
    let matrix = state.runtime.governance().matrix.clone();
    let judge = JudgeInputs { agent: &agent, matrix: &matrix, user: caller.0.user.as_str() };
    let tools = state
        .runtime
        .tools
        .tool_registry()
        .iter()
        .filter(|tool| agent.can_use_tool(tool.name.as_str()))
        .map(|tool| {
            let levels = Autonomy::ALL.map(|level| {
                let settings = Settings { autonomy_level: level, ..settings.clone() };
                VerdictView::from(judge_tool(tool, &judge.context(&settings)))
            });
            ToolAtLevels { name: tool.name.clone(), levels: levels.into() }
        })
        .collect();
    let row = |level| Risk::ALL.map(|risk| matrix.cell(level, risk)).into();
    Ok(HttpResponse::Ok().json(PolicyView {
        agent: agent.name.clone(),
        autonomy_level: settings.autonomy_level,
        levels: Autonomy::ALL.map(Autonomy::name).into(),
        risks: Risk::ALL.into(),
        matrix: Autonomy::ALL.map(row).into(),
        tools,
    }))
}

/// A call to be judged.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = JudgeQuestion)]
struct JudgeRequest {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    /// By default the server's default agent.
    agent: Option<AgentName>,
    /// By default the caller's.
    autonomy_level: Option<Autonomy>,
}

/// `POST /agent/judge`: what would happen with that call of the caller's. It runs nothing and
/// records nothing; what was spent is not looked at.
async fn judge(
    state: State,
    caller: Caller,
    Json(question): Json<JudgeRequest>,
) -> Result<HttpResponse, Problem> {
    let agent = resolve_agent(&state, question.agent)?;
    let user = state.load_user_settings(&caller.0.user).await?;
    let book = state.runtime.tools.tool_registry();
    let unknown = || Problem::invalid("tool", "the agent has no tool of that name");
    let tool = book.get(&question.tool).filter(|tool| agent.can_use_tool(tool.name.as_str()));
    let tool: &Tool = tool.ok_or_else(unknown)?;
    let arguments = Value::Object(question.arguments);
    if let Err(problem) = tool.validate(&arguments) {
        return Ok(HttpResponse::Ok().json(VerdictView::Invalid { why: problem }));
    }
    let level = question.autonomy_level.unwrap_or(user.autonomy_level);
    let settings = Settings { autonomy_level: level, ..user };
    let matrix = state.runtime.governance().matrix.clone();
    let judge = JudgeInputs { agent: &agent, matrix: &matrix, user: caller.0.user.as_str() };
    let verdict = judge_call(tool, &arguments, &judge.context(&settings));
    Ok(HttpResponse::Ok().json(state.redactor.redact(&VerdictView::from(verdict))))
}

/// Who judges.
struct JudgeInputs<'a> {
    agent: &'a AgentProfile,
    matrix: &'a Matrix,
    user: &'a str,
}

impl JudgeInputs<'_> {
    fn context<'b>(&'b self, settings: &'b Settings) -> JudgeContext<'b> {
        JudgeContext {
            settings,
            matrix: self.matrix,
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
