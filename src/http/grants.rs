//! What people granted for a session (G9): listed and revoked here, given with an approval.

use super::{
    Problem, State, access_control::Caller, commands, endpoint::Endpoint, extract,
    problem_codes::COMMAND_PROBLEMS,
};
use actix_web::{HttpRequest, HttpResponse, http::Method};
use greenroom_core::{
    approval::Grant,
    ids::{GrantId, SessionId},
    session::Input,
};
use serde::Serialize;
use utoipa::ToSchema;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let all = "/agent/session/{session_id}/grants";
    let one = "/agent/session/{session_id}/grants/{grant_id}";
    vec![
        Endpoint::get(all, list)
            .operation("list_grants", "What people approved for the whole session.")
            .returns::<Grants>("The grants")
            .problems(&["session_not_found"]),
        Endpoint::new(Method::DELETE, all, revoke_all)
            .operation("revoke_grants", "Revokes all of them.")
            .returns_empty(204, "They hold no more")
            .problems(COMMAND_PROBLEMS),
        Endpoint::new(Method::DELETE, one, revoke)
            .operation("revoke_grant", "Revokes one of them.")
            .returns_empty(204, "It holds no more")
            .problems(COMMAND_PROBLEMS)
            .problems(&["grant_not_found"]),
    ]
}

/// What holds for a session.
#[derive(Serialize, ToSchema)]
struct Grants {
    grants: Vec<Grant>,
}

/// `GET /agent/session/{id}/grants`
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let session_id: SessionId = extract::path_id(&request, "session_id")?;
    let session = commands::load_visible_session(&state, &caller.0, session_id).await?;
    Ok(HttpResponse::Ok().json(Grants { grants: session.grants }))
}

/// `DELETE /agent/session/{id}/grants`
async fn revoke_all(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    revoke_grants(&state, &caller, &request, None).await
}

/// `DELETE /agent/session/{id}/grants/{grant_id}`
async fn revoke(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let grant_id: GrantId = extract::path_id(&request, "grant_id")?;
    revoke_grants(&state, &caller, &request, Some(grant_id)).await
}

async fn revoke_grants(
    state: &State,
    caller: &Caller,
    request: &HttpRequest,
    grant_id: Option<GrantId>,
) -> Result<HttpResponse, Problem> {
    let session_id: SessionId = extract::path_id(request, "session_id")?;
    let session = commands::load_visible_session(state, &caller.0, session_id).await?;
    let by = caller.0.user.clone();
    let input = Input::RevokeGrants { grant_id, by };
    state.runtime.execute(session.session_id, input).await?;
    Ok(HttpResponse::NoContent().finish())
}
