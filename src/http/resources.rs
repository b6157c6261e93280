//! `GET /agent/resources`: the resources of tool servers (T1). An agent reads them with the tool
//! `read_resource`, as far as its profile allows.

use super::{Problem, State, access_control::Caller, endpoint::Endpoint};
use actix_web::HttpResponse;
use greenroom_actors::ports::ServerResource;
use greenroom_core::agent::AgentProfile;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/resources", list)
            .operation("list_resources", "Lists resources and resource templates of tool servers.")
            .description(
                "Administrators see all resources, other users those that at least one agent may \
                 read.",
            )
            .returns::<ResourceList>("The resources that the servers list now"),
    ]
}

/// The resources of tool servers.
#[derive(Serialize, ToSchema)]
struct ResourceList {
    #[schema(value_type = Vec<ServerResource>)]
    resources: Value,
}

/// `GET /agent/resources`
async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    let mut resources = state.runtime.tools.list_resources().await;
    let agents = &state.runtime.governance().agents;
    resources.retain(|resource| {
        let can_read =
            |agent: &AgentProfile| agent.can_read_resource(&resource.server, &resource.uri);
        caller.0.is_admin() || agents.values().any(|agent| can_read(agent))
    });
    let resources = state.redactor.redact_value(json!(resources));
    Ok(HttpResponse::Ok().json(ResourceList { resources }))
}
