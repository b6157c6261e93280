//! Resolves the session and the message of a request from the id that the client chose (S5).
//!
//! A random id is stored and known to its user for a day. Any other id is known on its connection,
//! and together with `sessionId` in that session.

use super::super::{
    AppState, Problem,
    commands::{self, CreateSessionRequest, MessageRequest},
};
use crate::{
    auth::Principal,
    dialect::gateway::{
        ChatSend,
        request_id::{is_random, message_id_with_digest},
    },
};
use actix_web::http::StatusCode;
use greenroom_actors::{limits::REQUEST_ID_LIFETIME, ports::RequestRow};
use greenroom_core::{
    Timestamp,
    delegation::RootRun,
    ids::{AgentName, MessageId, RunId, SessionId},
    json::Digest,
    policy::Autonomy,
    session::SessionRow,
};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use tokio::sync::Mutex;

/// Maximum requests of a connection that are known by ids that are not random.
const KNOWN_REQUESTS_MAX: usize = 1_024;

/// A request that the connection has submitted.
#[derive(Clone, Debug)]
pub(super) struct KnownRequest {
    pub(super) session_id: SessionId,
    pub(super) run_id: RunId,
    pub(super) message_id: MessageId,
    /// The digest of the request's content.
    pub(super) digest: Digest,
}

impl KnownRequest {
    /// Returns the run with its session.
    pub(super) fn run(&self) -> RootRun {
        RootRun { session_id: self.session_id, run_id: self.run_id }
    }
}

/// The newest requests of a connection, by the ids that the client chose.
#[derive(Default)]
pub(super) struct KnownRequests {
    requests: HashMap<MessageId, KnownRequest>,
    /// The ids in the order of their first use.
    order: VecDeque<MessageId>,
}

impl KnownRequests {
    pub(super) fn get(&self, id: &MessageId) -> Option<&KnownRequest> {
        self.requests.get(id)
    }

    /// Returns the sessions of the requests.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        let mut sessions: Vec<_> = self.requests.values().map(|known| known.session_id).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions
    }

    /// Adds or replaces a request, and removes the oldest one beyond the limit.
    pub(super) fn insert(&mut self, id: MessageId, request: KnownRequest) {
        if self.requests.insert(id.clone(), request).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > KNOWN_REQUESTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.requests.remove(&oldest);
        }
    }
}

/// The session of a request, and the ids that its message can have.
pub(super) struct RequestTarget {
    pub(super) session: SessionRow,
    pub(super) message_id: MessageId,
    /// The message's id if another message of the session has `message_id`.
    pub(super) alternative_id: Option<MessageId>,
}

/// Returns the digest of a request's content. A repeated request may add the `sessionId` that the
/// client has learned, and a cursor.
pub(super) fn request_digest(
    message: &MessageRequest,
    agent: Option<&AgentName>,
    autonomy_level: Option<Autonomy>,
) -> Digest {
    if agent.is_none() && autonomy_level.is_none() {
        return message.digest();
    }
    Digest::hash_canonical_text(&json!({
        "message": message.digest(), "agent": agent, "autonomy_level": autonomy_level,
    }))
}

/// Returns the session and the message of a request. Creates the session of a new request that names
/// none.
pub(super) async fn resolve_target(
    state: &AppState,
    principal: &Principal,
    send: &ChatSend,
    message: &MessageRequest,
    digest: Digest,
    known: Option<KnownRequest>,
) -> Result<RequestTarget, Problem> {
    if let Some(known) = known {
        check_repetition(send, digest, known.digest, known.session_id)?;
        let session = commands::load_visible_session(state, principal, known.session_id).await?;
        return Ok(RequestTarget { session, message_id: known.message_id, alternative_id: None });
    }
    let message_id = send.id.clone();
    if is_random(&send.id) {
        let session = resolve_random(state, principal, send, message, digest).await?;
        return Ok(RequestTarget { session, message_id, alternative_id: None });
    }
    let Some(session_id) = send.session_id else {
        let session_id = SessionId(state.runtime.new_id());
        let session = create_session(state, principal, send, message, session_id).await?;
        return Ok(RequestTarget { session, message_id, alternative_id: None });
    };
    let session = load_named_session(state, principal, send, session_id).await?;
    let alternative_id = Some(message_id_with_digest(&send.id, digest));
    Ok(RequestTarget { session, message_id, alternative_id })
}

/// Returns the session of a request with a random id. The request is stored before its session is
/// created and before its message is submitted, so that a repetition finds it whenever the process
/// ends.
async fn resolve_random(
    state: &AppState,
    principal: &Principal,
    send: &ChatSend,
    message: &MessageRequest,
    digest: Digest,
) -> Result<SessionRow, Problem> {
    // Requests that might have the same id are handled one at a time.
    static LOCKS: [Mutex<()>; 16] = [const { Mutex::const_new(()) }; 16];
    let key = Digest::hash_canonical_text(&json!([principal.user, send.id]));
    let _guard = LOCKS[usize::from(key.as_bytes()[0]) % LOCKS.len()].lock().await;
    let stored = find_request(state, principal, &send.id).await?;
    if let Some(stored) = stored {
        check_repetition(send, digest, stored.digest, stored.session_id)?;
        let session = state.runtime.journal.load_session(stored.session_id).await?;
        return match session {
            Some(_) => commands::load_visible_session(state, principal, stored.session_id).await,
            // The process ended, or a limit was reached, before the session was created.
            None => create_session(state, principal, send, message, stored.session_id).await,
        };
    }
    let row = |session_id| RequestRow {
        user: principal.user.clone(),
        request_id: send.id.clone(),
        session_id,
        digest,
        at: state.runtime.clock.now(),
    };
    let valid_since = valid_since(state);
    if let Some(session_id) = send.session_id {
        let session = load_named_session(state, principal, send, session_id).await?;
        state.runtime.journal.store_request(&row(session_id), valid_since).await?;
        return Ok(session);
    }
    check_new_session(state, principal, send, message).await?;
    let session_id = SessionId(state.runtime.new_id());
    state.runtime.journal.store_request(&row(session_id), valid_since).await?;
    create_session(state, principal, send, message, session_id).await
}

/// Returns the stored request of the principal with a random id, if it is still known.
pub(super) async fn find_request(
    state: &AppState,
    principal: &Principal,
    id: &MessageId,
) -> Result<Option<RequestRow>, Problem> {
    if !is_random(id) {
        return Ok(None);
    }
    let journal = &state.runtime.journal;
    Ok(journal.find_request(&principal.user, id, valid_since(state)).await?)
}

/// Returns the time since which stored requests are known.
fn valid_since(state: &AppState) -> Timestamp {
    let now = state.runtime.clock.now();
    let lifetime = i64::try_from(REQUEST_ID_LIFETIME.as_millis()).unwrap_or(i64::MAX);
    Timestamp(now.0.saturating_sub(lifetime))
}

/// Checks that a request repeats the first one with its id.
fn check_repetition(
    send: &ChatSend,
    digest: Digest,
    first_digest: Digest,
    first_session: SessionId,
) -> Result<(), Problem> {
    let other_session = send.session_id.is_some_and(|session_id| session_id != first_session);
    if digest == first_digest && !other_session {
        return Ok(());
    }
    let difference = if other_session { "another `sessionId`" } else { "other content" };
    Err(reused_id(&send.id, difference))
}

/// 422: the id belongs to another request.
pub(super) fn reused_id(id: &MessageId, difference: &str) -> Problem {
    let detail = format!("`id`: `{id}` was used before with {difference}; use a new id");
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "message_id_reused", detail)
        .with_member("field", "id")
}

/// Loads the session that a new request names.
async fn load_named_session(
    state: &AppState,
    principal: &Principal,
    send: &ChatSend,
    session_id: SessionId,
) -> Result<SessionRow, Problem> {
    for (field, is_present) in
        [("agent", send.agent.is_some()), ("autonomyLevel", send.autonomy_level.is_some())]
    {
        if is_present {
            let detail = format!("`{field}`: allowed only for a new session, without `sessionId`");
            return Err(Problem::invalid(field, detail));
        }
    }
    commands::load_visible_session(state, principal, session_id).await
}

/// Checks what can be checked before a session is created.
async fn check_new_session(
    state: &AppState,
    principal: &Principal,
    send: &ChatSend,
    message: &MessageRequest,
) -> Result<(), Problem> {
    message.validate_first(state).await?;
    if send.after.is_some() {
        let detail =
            "`after`: a new session has no position; the request with this id is not known";
        return Err(
            Problem::new(StatusCode::CONFLICT, "cursor_ahead", detail).with_member("head", 0)
        );
    }
    if let Some(agent) = &send.agent {
        state.find_agent(agent)?;
    }
    commands::check_running_run_limit(state, &principal.user).await
}

async fn create_session(
    state: &AppState,
    principal: &Principal,
    send: &ChatSend,
    message: &MessageRequest,
    session_id: SessionId,
) -> Result<SessionRow, Problem> {
    check_new_session(state, principal, send, message).await?;
    let request = CreateSessionRequest {
        agent: send.agent.clone(),
        autonomy_level: send.autonomy_level,
        ..CreateSessionRequest::default()
    };
    commands::create_session_with_id(state, principal, request, session_id)
        .await
        .map_err(|problem| problem.with_renamed_field("autonomy_level", "autonomyLevel"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn s5_oldest_known_request_is_removed_beyond_the_limit() {
        let mut known = KnownRequests::default();
        let id = |n: usize| MessageId::parse(&n.to_string()).unwrap();
        let request = |n: usize| KnownRequest {
            session_id: SessionId(Uuid::from_u128(n as u128 % 2)),
            run_id: RunId(Uuid::nil()),
            message_id: id(n),
            digest: Digest::hash_bytes(&[]),
        };
        for n in 0..=KNOWN_REQUESTS_MAX {
            known.insert(id(n), request(n));
            known.insert(id(n), request(n));
        }
        assert!(known.get(&id(0)).is_none());
        assert!(known.get(&id(1)).is_some() && known.get(&id(KNOWN_REQUESTS_MAX)).is_some());
        assert_eq!(known.sessions(), [0, 1].map(|n| SessionId(Uuid::from_u128(n))));
        assert_eq!(known.order.len(), known.requests.len());
    }
}
