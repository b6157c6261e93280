//! The caller's identity and the available agents, which a client requests first.

use super::{Problem, State, access_control::Caller, endpoint::Endpoint};
use actix_web::HttpResponse;
use greenroom_core::{
    approval::Role,
    ids::{AgentName, UserId},
};
use serde::Serialize;
use utoipa::ToSchema;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/me", read)
            .operation("me", "Returns the caller and the available agents.")
            .returns::<CurrentUserView>("The caller and the agents"),
    ]
}

/// The authenticated caller and the available agents.
#[derive(Serialize, ToSchema)]
struct CurrentUserView {
    user_id: UserId,
    role: Role,
    /// The available agents.
    agents: Vec<Agent>,
    /// The agent of a session whose request names no agent.
    default_agent: AgentName,
    /// The server's version.
    version: &'static str,
}

/// An agent that a session can select.
#[derive(Serialize, ToSchema)]
struct Agent {
    name: AgentName,
    description: String,
    /// True if no human is available to answer approvals: a call that needs approval is then denied.
    headless: bool,
    /// Maximum model calls of one run.
    max_steps: u32,
}

/// `GET /agent/me`
async fn read(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    let governance = state.runtime.governance();
    let agents = governance.agents.values().map(|agent| Agent {
        name: agent.name.clone(),
        description: agent.description.clone(),
        headless: agent.headless,
        max_steps: agent.max_steps,
    });
    Ok(HttpResponse::Ok().json(CurrentUserView {
        user_id: caller.0.user,
        role: caller.0.role,
        agents: agents.collect(),
        default_agent: state.default_agent.clone(),
        version: env!("CARGO_PKG_VERSION"),
    }))
}
