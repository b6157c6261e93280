//! Whether the server lives and can work: for whoever runs it, without a credential.

use super::{Problem, State, endpoint::Endpoint};
use actix_web::{HttpResponse, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/healthz", healthz)
            .named("healthz", "Whether the process answers.")
            .answers::<Status>("It does: `ok`")
            .open(),
        Endpoint::get("/readyz", readyz)
            .named("readyz", "Whether it can take work.")
            .answers::<Status>("It can: `ready`")
            .problems(&["draining", "unavailable", "corrupt"])
            .open(),
    ]
}

/// How the server is.
#[derive(Serialize, ToSchema)]
#[schema(as = ServerHealth)]
struct Status {
    /// `ok` or `ready`.
    status: &'static str,
}

/// `GET /healthz`: the process answers.
async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(Status { status: "ok" })
}

/// `GET /readyz`: it can take work; not while the database is away or the server shuts down.
async fn readyz(state: State) -> Result<HttpResponse, Problem> {
    if state.is_draining() {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Problem::new(status, "draining", "the server is shutting down"));
    }
    state.runtime.journal.check().await?;
    Ok(HttpResponse::Ok().json(Status { status: "ready" }))
}
