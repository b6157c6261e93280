//! The policy as people can look at it, and the judge asked without a call (G3, G7).

use super::{
    AppState, Problem, State,
    endpoint::Endpoint,
    guard::Caller,
    read::{self, Json},
};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_core::{
    agent::AgentProfile,
    ids::{AgentName, ToolName},
    policy::{
        Autonomy, Cell, Cost, JudgeContext, Matrix, Risk, Settings, Tool, Verdict,
        judge as judge_call, judge_any,
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
            .named("policy", "The policy's table, and what the caller would get from each tool.")
            .explained("What depends on arguments is left out; for that there is the judge.")
            .query::<PolicyQuery>()
            .answers::<PolicyView>("The policy")
            .problems(&["invalid_id", "unknown_agent"]),
        Endpoint::post("/agent/judge", judge)
            .named("judge", "What would happen with a call of the caller's.")
            .explained("It runs nothing and records nothing; what was spent is not looked at.")
            .body::<Question>()
            .answers::<Ruling>("The judge's word")
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
    matrix: Vec<Vec<Cell>>,
    tools: Vec<ToolAtLevels>,
}

/// What a tool would get.
#[derive(Serialize, ToSchema)]
struct ToolAtLevels {
    name: ToolName,
    /// At each level, the lowest first.
    levels: Vec<Ruling>,
}

/// The judge's word on a call.
#[derive(Serialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum Ruling {
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
    let name = read::query::<PolicyQuery>(&request)?.agent;
    let agent = agent(&state, read::id("agent", name.as_deref())?)?;
    let settings = state.user_settings(&caller.0.user).await?;
    let matrix = state.runtime.governance().matrix.clone();
    let judge = Judge { agent: &agent, matrix: &matrix, user: caller.0.user.as_str() };
    let tools = state
        .runtime
        .tools
        .book()
        .iter()
        .filter(|tool| agent.may_use(tool.name.as_str()))
        .map(|tool| {
            let levels = Autonomy::ALL.map(|level| {
                let settings = Settings { autonomy_level: level, ..settings.clone() };
                Ruling::from(judge_any(tool, &judge.context(&settings)))
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
struct Question {
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
    Json(question): Json<Question>,
) -> Result<HttpResponse, Problem> {
    let agent = agent(&state, question.agent)?;
    let user = state.user_settings(&caller.0.user).await?;
    let book = state.runtime.tools.book();
    let unknown = || Problem::invalid("tool", "the agent has no tool of that name");
    let tool = book.get(&question.tool).filter(|tool| agent.may_use(tool.name.as_str()));
    let tool: &Tool = tool.ok_or_else(unknown)?;
    let arguments = Value::Object(question.arguments);
    if let Err(problem) = tool.validate(&arguments) {
        return Ok(HttpResponse::Ok().json(Ruling::Invalid { why: problem }));
    }
    let level = question.autonomy_level.unwrap_or(user.autonomy_level);
    let settings = Settings { autonomy_level: level, ..user };
    let matrix = state.runtime.governance().matrix.clone();
    let judge = Judge { agent: &agent, matrix: &matrix, user: caller.0.user.as_str() };
    let verdict = judge_call(tool, &arguments, &judge.context(&settings));
    Ok(HttpResponse::Ok().json(state.redactor.shown(&Ruling::from(verdict))))
}

/// Who judges.
struct Judge<'a> {
    agent: &'a AgentProfile,
    matrix: &'a Matrix,
    user: &'a str,
}

impl Judge<'_> {
    fn context<'b>(&'b self, settings: &'b Settings) -> JudgeContext<'b> {
        JudgeContext {
            settings,
            matrix: self.matrix,
            headless: self.agent.headless,
            user: self.user,
            session: "",
            agent: self.agent.name.as_str(),
            remaining: None,
        }
    }
}

fn agent(state: &AppState, name: Option<AgentName>) -> Result<Arc<AgentProfile>, Problem> {
    state.agent(name.as_ref().unwrap_or(&state.default_agent))
}

impl From<Verdict> for Ruling {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Allow { why, cost } => Self::Allow { why, cost },
            Verdict::Ask { why, cost, .. } | Verdict::OverBudget { why, cost } => {
                Self::Ask { why, cost }
            }
            Verdict::Deny(denial) => {
                Self::Deny { why: denial.reason, required_level: denial.required_level }
            }
        }
    }
}
