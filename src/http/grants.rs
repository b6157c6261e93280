//! What people granted for a session (G9): listed and revoked here, given with an approval.

use super::{Problem, State, commands, guard::Caller, read};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_core::{
    ids::{GrantId, SessionId},
    session::Input,
};
use serde_json::json;

/// `GET /agent/session/{id}/grants`
pub(super) async fn list(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let session_id: SessionId = read::path_id(&request, "session_id")?;
    let session = commands::session_for(&state, &caller.0, session_id).await?;
    Ok(HttpResponse::Ok().json(json!({ "grants": session.grants })))
}

/// `DELETE /agent/session/{id}/grants`
pub(super) async fn revoke_all(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    revoke_some(&state, &caller, &request, None).await
}

/// `DELETE /agent/session/{id}/grants/{grant_id}`
pub(super) async fn revoke(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let grant_id: GrantId = read::path_id(&request, "grant_id")?;
    revoke_some(&state, &caller, &request, Some(grant_id)).await
}

async fn revoke_some(
    state: &State,
    caller: &Caller,
    request: &HttpRequest,
    grant_id: Option<GrantId>,
) -> Result<HttpResponse, Problem> {
    let session_id: SessionId = read::path_id(request, "session_id")?;
    let session = commands::session_for(state, &caller.0, session_id).await?;
    let by = caller.0.user.clone();
    let input = Input::RevokeGrants { grant_id, by };
    state.runtime.command(session.session_id, input).await?;
    Ok(HttpResponse::NoContent().finish())
}
