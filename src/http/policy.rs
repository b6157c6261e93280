//! The policy as people can look at it, and the judge asked without a call (G3, G7).

use super::{
    AppState, Problem, State,
    guard::Caller,
    read::{self, Json},
};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_core::{
    agent::AgentProfile,
    ids::AgentName,
    policy::{
        Autonomy, JudgeContext, Matrix, Risk, Settings, Tool, Verdict, judge as judge_call,
        judge_any,
    },
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
struct PolicyQuery {
    agent: Option<String>,
}

/// `GET /agent/policy`: the table, and what the caller would get from each tool at every level, and
/// why. What depends on arguments is left out: that is for [`judge`].
pub(super) async fn read(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let name = read::query::<PolicyQuery>(&request)?.agent;
    let agent = agent(&state, name.map(|name| AgentName::parse(&name)).transpose()?)?;
    let settings = state.user_settings(&caller.0.user).await?;
    let matrix = state.runtime.governance().matrix.clone();
    let judge = Judge { agent: &agent, matrix: &matrix, user: caller.0.user.as_str() };
    let tools: Vec<_> = state
        .runtime
        .tools
        .book()
        .iter()
        .filter(|tool| agent.may_use(tool.name.as_str()))
        .map(|tool| {
            let levels = Autonomy::ALL.map(|level| {
                let settings = Settings { autonomy_level: level, ..settings.clone() };
                view(judge_any(tool, &judge.context(&settings)))
            });
            json!({"name": tool.name, "levels": levels})
        })
        .collect();
    Ok(HttpResponse::Ok().json(json!({
        "agent": agent.name,
        "autonomy_level": settings.autonomy_level,
        "levels": Autonomy::ALL.map(Autonomy::name),
        "risks": Risk::ALL,
        "matrix": Autonomy::ALL.map(|level| Risk::ALL.map(|risk| matrix.cell(level, risk))),
        "tools": tools,
    })))
}

#[derive(Deserialize)]
pub(super) struct Question {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    agent: Option<AgentName>,
    autonomy_level: Option<Autonomy>,
}

/// `POST /agent/judge`: what would happen with that call of the caller's. It runs nothing and
/// records nothing; what was spent is not looked at.
pub(super) async fn judge(
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
        let answer = json!({"verdict": "invalid", "why": problem});
        return Ok(HttpResponse::Ok().json(answer));
    }
    let level = question.autonomy_level.unwrap_or(user.autonomy_level);
    let settings = Settings { autonomy_level: level, ..user };
    let matrix = state.runtime.governance().matrix.clone();
    let judge = Judge { agent: &agent, matrix: &matrix, user: caller.0.user.as_str() };
    let verdict = judge_call(tool, &arguments, &judge.context(&settings));
    Ok(HttpResponse::Ok().json(state.redactor.scrubbed(view(verdict))))
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
    let name = name.unwrap_or_else(|| state.default_agent.clone());
    let unknown = || Problem::invalid("agent", "there is no agent of that name");
    state.runtime.governance().agents.get(&name).cloned().ok_or_else(unknown)
}

fn view(verdict: Verdict) -> Value {
    match verdict {
        Verdict::Allow { why, cost } => json!({"verdict": "allow", "why": why, "cost": cost}),
        Verdict::Ask { why, cost, .. } | Verdict::OverBudget { why, cost } => {
            json!({"verdict": "ask", "why": why, "cost": cost})
        }
        Verdict::Deny(denial) => json!({
            "verdict": "deny", "why": denial.reason, "required_level": denial.required_level,
        }),
    }
}
