//! Who is calling, and what they can choose from: what a client asks first.

use super::{Problem, State, guard::Caller};
use actix_web::HttpResponse;
use serde_json::json;

/// `GET /agent/me`
pub(super) async fn read(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    let agents: Vec<_> = state
        .runtime
        .governance()
        .agents
        .values()
        .map(|agent| {
            json!({
                "name": agent.name,
                "description": agent.description,
                "headless": agent.headless,
                "max_steps": agent.max_steps,
            })
        })
        .collect();
    Ok(HttpResponse::Ok().json(json!({
        "user_id": caller.0.user,
        "role": caller.0.role,
        "agents": agents,
        "default_agent": state.default_agent,
        "version": env!("CARGO_PKG_VERSION"),
    })))
}
