//! What people granted for a session (G9): listed and revoked here, given with an approval.

use super::{
    Problem, State, commands, endpoint::Endpoint, guard::Caller, problem_codes::OF_COMMANDS, read,
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
            .named("list_grants", "What people approved for the whole session.")
            .answers::<Grants>("The grants")
            .problems(&["session_not_found"]),
        Endpoint::new(Method::DELETE, all, revoke_all)
            .named("revoke_grants", "Revokes all of them.")
            .answers_nothing(204, "They hold no more")
            .problems(OF_COMMANDS),
        Endpoint::new(Method::DELETE, one, revoke)
            .named("revoke_grant", "Revokes one of them.")
            .answers_nothing(204, "It holds no more")
            .problems(OF_COMMANDS)
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
    let session_id: SessionId = read::path_id(&request, "session_id")?;
    let session = commands::session_for(&state, &caller.0, session_id).await?;
    Ok(HttpResponse::Ok().json(Grants { grants: session.grants }))
}

/// `DELETE /agent/session/{id}/grants`
async fn revoke_all(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    revoke_some(&state, &caller, &request, None).await
}

/// `DELETE /agent/session/{id}/grants/{grant_id}`
async fn revoke(
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
