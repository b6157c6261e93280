//! Liveness and readiness checks, without a credential.

use super::{Problem, State, endpoint::Endpoint};
use actix_web::{HttpResponse, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/healthz", healthz)
            .operation("healthz", "Liveness check.")
            .returns::<HealthResponse>("The process responds: `ok`")
            .public(),
        Endpoint::get("/readyz", readyz)
            .operation("readyz", "Readiness check.")
            .returns::<HealthResponse>("The server accepts work: `ready`")
            .problems(&["draining", "unavailable", "corrupt"])
            .public(),
    ]
}

/// The health of the server.
#[derive(Serialize, ToSchema)]
#[schema(as = ServerHealth)]
struct HealthResponse {
    /// `ok` or `ready`.
    status: &'static str,
}

/// `GET /healthz`: succeeds if the process responds.
async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(HealthResponse { status: "ok" })
}

/// `GET /readyz`: fails while the database is unavailable or the server shuts down.
async fn readyz(state: State) -> Result<HttpResponse, Problem> {
    if state.is_draining() {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Problem::new(status, "draining", "the server is shutting down"));
    }
    state.runtime.journal.check_health().await?;
    Ok(HttpResponse::Ok().json(HealthResponse { status: "ready" }))
}
