//! Whether the server lives and can work: for whoever runs it, without a credential.

use super::{Problem, State, endpoint::Endpoint};
use actix_web::{HttpResponse, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/healthz", healthz)
            .operation("healthz", "Whether the process answers.")
            .returns::<HealthResponse>("It does: `ok`")
            .public(),
        Endpoint::get("/readyz", readyz)
            .operation("readyz", "Whether it can take work.")
            .returns::<HealthResponse>("It can: `ready`")
            .problems(&["draining", "unavailable", "corrupt"])
            .public(),
    ]
}

/// How the server is.
#[derive(Serialize, ToSchema)]
#[schema(as = ServerHealth)]
struct HealthResponse {
    /// `ok` or `ready`.
    status: &'static str,
}

/// `GET /healthz`: the process answers.
async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(HealthResponse { status: "ok" })
}

/// `GET /readyz`: it can take work; not while the database is away or the server shuts down.
async fn readyz(state: State) -> Result<HttpResponse, Problem> {
    if state.is_draining() {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Problem::new(status, "draining", "the server is shutting down"));
    }
    state.runtime.journal.check_health().await?;
    Ok(HttpResponse::Ok().json(HealthResponse { status: "ready" }))
}
