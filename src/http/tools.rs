//! `GET /agent/tools`: the tools there are now, each with its risk and why, and the servers they
//! come from, each with why it is not there (T2).

use super::{Problem, State, guard::Caller};
use actix_web::HttpResponse;
use serde_json::json;

/// `GET /agent/tools`
pub(super) async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    let book = state.runtime.tools.book();
    let tools: Vec<_> = book
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "server": tool.server,
                "description": tool.description,
                "input_schema": tool.input_schema,
                "risk": tool.risk,
                "risk_source": tool.risk_source,
                "parallel": tool.parallel,
                "repeatable": tool.repeatable,
                "available": tool.unavailable.is_none(),
                "unavailable_because": tool.unavailable,
            })
        })
        .collect();
    let servers = state.redactor.scrubbed(json!(state.runtime.tools.servers()));
    let mut body = json!({"tools": tools, "servers": servers, "skills": state.skills.skills()});
    // Paths are the operator's.
    if caller.0.is_admin() {
        body["broken_skills"] = json!(state.skills.broken());
    }
    Ok(HttpResponse::Ok().json(body))
}
