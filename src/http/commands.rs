//! Commands to sessions. REST and WebSockets both use this module, so that limits and rights are
//! the same on every surface.

use super::{
    AppState, Problem, extract,
    workflows::{self, WorkflowRequest},
};
use crate::auth::Principal;
use actix_web::http::StatusCode;
use greenroom_actors::limits::LOG_PAGE_EVENTS;
use greenroom_core::{
    authors::Authors,
    ids::{AgentName, ApprovalId, MessageId, RunId, Seq, SessionId, UserId},
    json::Digest,
    limits::TITLE_CHARS_MAX,
    policy::{Autonomy, SettingsPatch, session_settings},
    session::{
        ApprovalRow, Input, NewMessage, OnBusy, QueuedMessageStatus, Reply, SessionRow,
        SessionState, SessionStatus, evolve,
    },
    trace_context::TraceContext,
};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

/// Loads the session; a session that the principal may not see counts as not found.
pub(super) async fn load_visible_session(
    state: &AppState,
    principal: &Principal,
    session_id: SessionId,
) -> Result<SessionRow, Problem> {
    let row = state.runtime.journal.load_session(session_id).await?;
    row.filter(|row| principal.can_see(row)).ok_or_else(Problem::session_not_found)
}

/// Loads the approval; an approval that the principal may not answer counts as not found.
pub(super) async fn load_visible_approval(
    state: &AppState,
    principal: &Principal,
    approval_id: ApprovalId,
) -> Result<ApprovalRow, Problem> {
    let row = state.runtime.journal.load_approval(approval_id).await?;
    row.filter(|row| principal.can_answer(row)).ok_or_else(Problem::approval_not_found)
}

/// Returns the user for whom the request acts: `user` if the principal may act for that user, by
/// default the principal itself.
pub(super) fn resolve_acting_user(
    principal: &Principal,
    user: Option<UserId>,
) -> Result<UserId, Problem> {
    let user = user.unwrap_or_else(|| principal.user.clone());
    if principal.can_act_for(&user) {
        return Ok(user);
    }
    Err(Problem::forbidden("only administrators may act for another user"))
}

/// The settings of a new session.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateSessionRequest {
    /// The agent; by default the server's default agent.
    #[serde(default)]
    pub(super) agent: Option<AgentName>,
    /// The autonomy level. Same as `settings.autonomy_level`.
    #[serde(default)]
    pub(super) autonomy_level: Option<Autonomy>,
    /// The owner of the session; only administrators may name another user. May be a number.
    /// `character_id` is an alias.
    #[serde(default, alias = "character_id", deserialize_with = "extract::deserialize_user_id")]
    pub(super) user_id: Option<UserId>,
    /// The title.
    #[serde(default)]
    #[schema(max_length = 200)]
    pub(super) title: Option<String>,
    /// True if runs start with a preflight by default. Same as `settings.preflight`.
    #[serde(default)]
    pub(super) preflight: Option<bool>,
    /// Settings that narrow those of the user.
    #[serde(default)]
    pub(super) settings: Option<SettingsPatch>,
}

/// Creates a session (S1) within the settings of its user (G4).
pub(super) async fn create_session(
    state: &AppState,
    principal: &Principal,
    request: CreateSessionRequest,
) -> Result<SessionRow, Problem> {
    create_session_with_id(state, principal, request, SessionId(state.runtime.new_id())).await
}

/// Creates a session under an unused id.
pub(super) async fn create_session_with_id(
    state: &AppState,
    principal: &Principal,
    request: CreateSessionRequest,
    session_id: SessionId,
) -> Result<SessionRow, Problem> {
    let owner = resolve_acting_user(principal, request.user_id)?;
    let agent = request.agent.unwrap_or_else(|| state.default_agent.clone());
    state.find_agent(&agent)?;
    let title = request.title.map(validate_title).transpose()?;
    let mut patch = request.settings.unwrap_or_default();
    if let Some(level) = request.autonomy_level {
        if patch.autonomy_level.is_some() {
            return Err(Problem::given_twice("autonomy_level", "settings.autonomy_level"));
        }
        patch.autonomy_level = Some(level);
    }
    if let Some(preflight) = request.preflight {
        if patch.preflight.is_some() {
            return Err(Problem::given_twice("preflight", "settings.preflight"));
        }
        patch.preflight = Some(preflight);
    }
    let _guard = state.settings_lock.read().await;
    let ceiling = state.ceiling(principal, Some(&agent), &owner);
    let settings = session_settings(&state.load_user_settings(&owner).await?, &patch, &ceiling)?;
    check_open_session_limit(state, &owner).await?;
    let input = Input::CreateSession { owner, agent, title, settings };
    state.runtime.execute(session_id, input).await?;
    let row = state.runtime.journal.load_session(session_id).await?;
    row.ok_or_else(Problem::session_not_found)
}

/// Creates a session that continues the conversation of `source` up to `at_seq`, by default up to
/// its head (S1). Open calls, approvals and queued messages stay in `source`.
pub(super) async fn fork_session(
    state: &AppState,
    principal: &Principal,
    source: &SessionRow,
    at_seq: Option<Seq>,
    title: Option<String>,
) -> Result<SessionRow, Problem> {
    let title = title.map(validate_title).transpose()?.or_else(|| source.title.clone());
    let head = state.runtime.journal.load_head(source.session_id).await?;
    let at_seq = at_seq.unwrap_or(head);
    if at_seq == Seq(0) || at_seq > head {
        return Err(Problem::invalid("at_seq", format!("`at_seq` must be between 1 and {head}")));
    }
    let past = replay(state, source.session_id, at_seq).await?;
    // Spending after `at_seq` counts as well.
    let source_head = replay(state, source.session_id, head).await?;
    let spent = source_head.session_spending(state.runtime.clock.now().day());
    let _guard = state.settings_lock.read().await;
    let owner = source.owner.clone();
    resolve_acting_user(principal, Some(owner.clone()))?;
    let settings = past.active.settings.narrowed_to(&state.load_user_settings(&owner).await?);
    check_open_session_limit(state, &owner).await?;
    let session_id = SessionId(state.runtime.new_id());
    let input = Input::ForkSession {
        from: source.session_id,
        at_seq,
        owner,
        agent: source.agent.clone(),
        title,
        settings,
        conversation: past.conversation_so_far(),
        spent,
    };
    state.runtime.execute(session_id, input).await?;
    let row = state.runtime.journal.load_session(session_id).await?;
    row.ok_or_else(Problem::session_not_found)
}

/// Returns the state of the session after event `at_seq`.
pub(super) async fn replay(
    state: &AppState,
    session_id: SessionId,
    at_seq: Seq,
) -> Result<SessionState, Problem> {
    let mut past = SessionState::new(session_id);
    while past.last_seq < at_seq {
        let page =
            state.runtime.journal.load_events(session_id, past.last_seq, LOG_PAGE_EVENTS).await?;
        let records = page.iter().take_while(|record| record.seq <= at_seq);
        let before = past.last_seq;
        past = records.fold(past, evolve);
        if past.last_seq == before {
            return Err(Problem::session_not_found()); // Purged during the replay.
        }
    }
    Ok(past)
}

async fn check_open_session_limit(state: &AppState, owner: &UserId) -> Result<(), Problem> {
    let open = state.runtime.journal.count_sessions(owner).await?.open;
    let limit = state.limits.open_sessions_max;
    if open < limit {
        return Ok(());
    }
    let detail = format!("the user has {open} open sessions; the limit is {limit}");
    Err(Problem::too_many("too_many_sessions", detail, limit))
}

pub(super) async fn check_running_run_limit(
    state: &AppState,
    owner: &UserId,
) -> Result<(), Problem> {
    let running = state.runtime.journal.count_sessions(owner).await?.running;
    let limit = state.limits.running_runs_max;
    if running < limit {
        return Ok(());
    }
    let detail = format!("the user has {running} active runs; the limit is {limit}");
    Err(Problem::too_many("too_many_runs", detail, limit).retry_after(1))
}

/// Validates the first message of a session before the session is created for it.
pub(super) async fn check_first_message(
    state: &AppState,
    principal: &Principal,
    user_id: Option<&UserId>,
    message: &MessageRequest,
) -> Result<(), Problem> {
    message.validate_first(state).await?;
    if message.message_id.is_some() {
        // A repetition would create another session and run there (S5).
        let detail = "`message_id` requires `session_id`: a repeated message is recognized only \
                      within its session";
        return Err(Problem::invalid("message_id", detail));
    }
    check_running_run_limit(state, &resolve_acting_user(principal, user_id.cloned())?).await
}

/// Returns the title if it is within its limit.
pub(super) fn validate_title(title: String) -> Result<String, Problem> {
    let chars = title.chars().count();
    if chars <= TITLE_CHARS_MAX {
        return Ok(title);
    }
    Err(Problem::too_long("title", chars, TITLE_CHARS_MAX, "characters"))
}

/// A message to a session, as every surface accepts it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageRequest {
    /// May be empty if `workflow` is present.
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) message_id: Option<MessageId>,
    #[serde(default)]
    pub(super) on_busy: Option<String>,
    #[serde(default)]
    pub(super) preflight: Option<bool>,
    #[serde(default)]
    pub(super) workflow: Option<WorkflowRequest>,
    /// The trace context of the request, from its header (A4).
    #[serde(skip)]
    pub(super) traceparent: Option<TraceContext>,
}

/// A message that a session accepted.
#[derive(Clone, Debug)]
pub(super) struct SubmittedMessage {
    pub(super) message_id: MessageId,
    pub(super) run_id: RunId,
    pub(super) seq: Seq,
    pub(super) repeated: bool,
    /// Set if the message was changed or removed while it was queued (S10).
    pub(super) queued_status: Option<QueuedMessageStatus>,
}

/// The handling of a message that arrives while a run is active (S4).
pub(super) enum BusyAction {
    /// The session queues, steers or rejects it.
    Submit(OnBusy),
    /// The session cancels the active run and then runs the message.
    Interrupt,
}

impl MessageRequest {
    /// Validates a first message, including its workflow, before a session is created for it.
    pub(super) async fn validate_first(&self, state: &AppState) -> Result<(), Problem> {
        self.validate(state)?;
        match &self.workflow {
            Some(request) => workflows::check_workflow(state, request).await,
            None => Ok(()),
        }
    }

    /// Returns the text of the user's message: the given one, or else the command of the workflow.
    fn text(&self) -> String {
        match &self.workflow {
            Some(request) if self.message.trim().is_empty() => request.to_command(),
            Some(_) | None => self.message.clone(),
        }
    }

    /// Returns the digest that identifies a repetition of the message.
    pub(super) fn digest(&self) -> Digest {
        message_digest(&self.text(), self.preflight, self.workflow.as_ref())
    }

    /// Returns an error if the text of a message, in `field`, exceeds the limit.
    pub(super) fn validate_text(state: &AppState, field: &str, text: &str) -> Result<(), Problem> {
        let max = state.limits.message_bytes_max;
        if text.len() <= max {
            return Ok(());
        }
        let detail = format!("`{field}`: {} bytes; the limit is {max}", text.len());
        Err(Problem::too_large("message_too_large", detail, max))
    }

    /// Validates the message independently of the session's state.
    pub(super) fn validate(&self, state: &AppState) -> Result<BusyAction, Problem> {
        Self::validate_text(state, "message", &self.message)?;
        if self.message.trim().is_empty() && self.workflow.is_none() {
            return Err(Problem::invalid("message", "`message` must not be empty"));
        }
        match self.on_busy.as_deref() {
            None | Some("queue") => Ok(BusyAction::Submit(OnBusy::Queue)),
            Some("steer") => Ok(BusyAction::Submit(OnBusy::Steer)),
            Some("reject") => Ok(BusyAction::Submit(OnBusy::Reject)),
            Some("interrupt") => Ok(BusyAction::Interrupt),
            Some(_) => {
                let values = "`queue`, `steer`, `interrupt` or `reject`";
                Err(Problem::invalid("on_busy", format!("`on_busy` must be {values}")))
            }
        }
    }
}

/// Submits a message (S4, S5).
pub(super) async fn submit_message(
    state: &AppState,
    principal: &Principal,
    session: &SessionRow,
    message: MessageRequest,
) -> Result<SubmittedMessage, Problem> {
    let busy_action = message.validate(state)?;
    if session.status == SessionStatus::Idle {
        check_running_run_limit(state, &session.owner).await?;
    }
    let new_id = || MessageId::from_uuid(state.runtime.new_id());
    let (text, digest) = (message.text(), message.digest());
    let MessageRequest { message_id, preflight, workflow, traceparent, .. } = message;
    let workflow = workflows::start_requested_workflow(state, &session.agent, workflow).await?;
    let message_id = message_id.unwrap_or_else(new_id);
    let (id, text) = (message_id.clone(), text.into());
    let authors = Authors::with_role(principal.user.clone(), principal.role);
    let message =
        NewMessage { message_id: id, text, digest, preflight, workflow, traceparent, authors };
    let input = match busy_action {
        BusyAction::Submit(on_busy) => Input::SubmitMessage { message, on_busy },
        BusyAction::Interrupt => {
            Input::Interrupt { message, by: principal.user.clone(), partial: None }
        }
    };
    match state.runtime.execute(session.session_id, input).await? {
        Reply::Submitted { run_id, seq } | Reply::Steered { run_id, seq, .. } => {
            let queued_status = None;
            Ok(SubmittedMessage { message_id, run_id, seq, repeated: false, queued_status })
        }
        Reply::Repeated { run_id, seq, queued_status } => {
            Ok(SubmittedMessage { message_id, run_id, seq, repeated: true, queued_status })
        }
        other @ (Reply::Done
        | Reply::QueueUpdated { .. }
        | Reply::Answered { .. }
        | Reply::Cancelled { .. }) => Err(unexpected_reply(&other)),
    }
}

/// Returns the digest that identifies a repetition. It covers only what determines the run, so that
/// a repetition may arrive on another surface. A workflow whose command is the text is not added:
/// the text already determines it. Numbers keep their notation, and the digest of a text
/// is the same in every version.
pub(super) fn message_digest(
    text: &str,
    preflight: Option<bool>,
    workflow: Option<&WorkflowRequest>,
) -> Digest {
    let mut body = json!({ "message": text });
    if let Some(preflight) = preflight {
        body["preflight"] = json!(preflight);
    }
    if let Some(request) = workflow.filter(|request| request.to_command() != text) {
        body["workflow"] = json!(request);
    }
    Digest::hash_canonical_text(&body)
}

/// Cancels the active run of the session, or the run `run_id` (S6).
pub(super) async fn cancel_run(
    state: &AppState,
    principal: &Principal,
    session: &SessionRow,
    run_id: Option<RunId>,
) -> Result<RunId, Problem> {
    let input = Input::CancelRun { run_id, by: principal.user.clone(), partial: None };
    match state.runtime.execute(session.session_id, input).await? {
        Reply::Cancelled { run_id } => Ok(run_id),
        other @ (Reply::Done
        | Reply::Answered { .. }
        | Reply::Submitted { .. }
        | Reply::Repeated { .. }
        | Reply::QueueUpdated { .. }
        | Reply::Steered { .. }) => Err(unexpected_reply(&other)),
    }
}

pub(super) fn unexpected_reply(reply: &Reply) -> Problem {
    tracing::error!(?reply, "unexpected reply from a session");
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Problem::new(status, "internal", "unexpected reply from the session")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digests that version 0.1 stored: a repetition after an upgrade must match them.
    #[test]
    fn s5_digest_of_message_is_the_same_in_every_version() {
        let hashed = |text: &str| Digest::hash_bytes(text.as_bytes());
        assert_eq!(message_digest("buy", None, None), hashed(r#"{"message":"buy"}"#));
        let workflow: WorkflowRequest =
            serde_json::from_value(json!({"name": "w", "inputs": {"n": 5, "x": 0.5}})).unwrap();
        let text = r#"{"message":"buy","preflight":true,"workflow":{"inputs":{"n":5,"x":0.5},"name":"w"}}"#;
        assert_eq!(message_digest("buy", Some(true), Some(&workflow)), hashed(text));
    }
}
