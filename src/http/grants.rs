//! The grants of a session (G9): list and revoke. Grants are added by answers to approvals.

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

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let list_path = "/agent/session/{session_id}/grants";
    let item_path = "/agent/session/{session_id}/grants/{grant_id}";
    vec![
        Endpoint::get(list_path, list)
            .operation("list_grants", "Lists the session's grants.")
            .returns::<Grants>("The grants")
            .problems(&["session_not_found"]),
        Endpoint::new(Method::DELETE, list_path, revoke_all)
            .operation("revoke_grants", "Revokes all grants of the session.")
            .returns_empty(204, "All grants are revoked")
            .problems(COMMAND_PROBLEMS),
        Endpoint::new(Method::DELETE, item_path, revoke)
            .operation("revoke_grant", "Revokes a grant.")
            .returns_empty(204, "The grant is revoked")
            .problems(COMMAND_PROBLEMS)
            .problems(&["grant_not_found"]),
    ]
}

/// The grants of a session.
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
    let input = Input::RevokeGrants { grant_id, by: caller.0.user.clone() };
    state.runtime.execute(session.session_id, input).await?;
    Ok(HttpResponse::NoContent().finish())
}
