//! Whether the server lives and can work: for whoever runs it, without a credential.

use super::{Problem, State};
use actix_web::{HttpResponse, http::StatusCode};
use serde_json::json;

/// `GET /healthz`: the process answers.
pub(super) async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(json!({"status": "ok"}))
}

/// `GET /readyz`: it can take work; not while the database is away or the server shuts down.
pub(super) async fn readyz(state: State) -> Result<HttpResponse, Problem> {
    if state.is_draining() {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Problem::new(status, "draining", "the server is shutting down"));
    }
    state.runtime.journal.check().await?;
    Ok(HttpResponse::Ok().json(json!({"status": "ready"})))
}
