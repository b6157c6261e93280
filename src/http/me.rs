//! Who is calling, and what they can choose from: what a client asks first.

use super::{Problem, State, access_control::Caller, endpoint::Endpoint};
use actix_web::HttpResponse;
use greenroom_core::{
    approval::Role,
    ids::{AgentName, UserId},
};
use serde::Serialize;
use utoipa::ToSchema;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/me", read)
            .operation("me", "Who is calling, and the agents there are.")
            .returns::<Me>("The caller"),
    ]
}

/// Who is calling.
#[derive(Serialize, ToSchema)]
struct Me {
    user_id: UserId,
    role: Role,
    agents: Vec<Agent>,
    /// The agent of a session that names none.
    default_agent: AgentName,
    /// The server's.
    version: &'static str,
}

/// An agent to choose.
#[derive(Serialize, ToSchema)]
struct Agent {
    name: AgentName,
    description: String,
    /// Whether there is nobody to ask: then what needs a person is denied.
    headless: bool,
    /// Model calls of one run.
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
    Ok(HttpResponse::Ok().json(Me {
        user_id: caller.0.user,
        role: caller.0.role,
        agents: agents.collect(),
        default_agent: state.default_agent.clone(),
        version: env!("CARGO_PKG_VERSION"),
    }))
}
