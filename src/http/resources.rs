//! `GET /agent/resources`: what tool servers have to be read (T1). An agent reads them with the tool
//! `read_resource`, as far as its profile lets it.

use super::{Problem, State, access_control::Caller, endpoint::Endpoint};
use actix_web::HttpResponse;
use greenroom_actors::ports::ServerResource;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/resources", list)
            .operation("list_resources", "Resources of tool servers, and templates of more.")
            .description("Administrators see all, others what some agent may read.")
            .returns::<ResourceList>("What the servers list now"),
    ]
}

/// What tool servers have to be read.
#[derive(Serialize, ToSchema)]
struct ResourceList {
    #[schema(value_type = Vec<ServerResource>)]
    resources: Value,
}

/// `GET /agent/resources`
async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    let mut resources = state.runtime.tools.list_resources().await;
    let agents = &state.runtime.governance().agents;
    resources.retain(|it| {
        caller.0.is_admin()
            || agents.values().any(|agent| agent.can_read_resource(&it.server, &it.uri))
    });
    let resources = state.redactor.redact_value(json!(resources));
    Ok(HttpResponse::Ok().json(ResourceList { resources }))
}
