//! Cancels the run of a request, with the rights of `POST /agent/session/{id}/cancel` (S6).

use super::{
    super::{AppState, Problem, commands},
    requests, targets,
};
use crate::auth::Principal;
use greenroom_core::{
    delegation::RootRun,
    ids::{MessageId, SessionId},
};

/// Cancels the run of the request `id`, or without an id the active run of the session. `known` is the
/// run of the request if the connection has submitted it.
pub(super) async fn cancel_request(
    state: &AppState,
    principal: &Principal,
    id: Option<MessageId>,
    session_id: Option<SessionId>,
    known: Option<RootRun>,
) -> Result<(), Problem> {
    let known = known.filter(|known| session_id.is_none_or(|id| id == known.session_id));
    if let Some(RootRun { session_id, run_id }) = known {
        let session = commands::load_visible_session(state, principal, session_id).await?;
        return commands::cancel_run(state, principal, &session, Some(run_id)).await.map(drop);
    }
    let session_id = match (session_id, &id) {
        (Some(session_id), _) => session_id,
        (None, Some(id)) => {
            let stored = targets::find_request(state, principal, id).await?;
            stored.ok_or_else(|| unknown_request(id))?.session_id
        }
        (None, None) => {
            return Err(Problem::invalid("id", "requires `id`, of a request, or `sessionId`"));
        }
    };
    let session = commands::load_visible_session(state, principal, session_id).await?;
    let run_id = match id {
        Some(id) => {
            let run_id = requests::find_run_of_request(state, session_id, &id).await?;
            Some(run_id.ok_or_else(|| unknown_request(&id))?)
        }
        None => None,
    };
    commands::cancel_run(state, principal, &session, run_id).await.map(drop)
}

fn unknown_request(id: &MessageId) -> Problem {
    let detail = format!(
        "`id`: no request `{id}` is known here; an id that is not random needs the `sessionId` on \
         another connection"
    );
    Problem::invalid("id", detail)
}
