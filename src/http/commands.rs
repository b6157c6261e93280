//! What clients ask of sessions, whatever the surface: REST and WebSockets both come through
//! here, so that a limit or a right holds on either.

use super::{
    AppState, Problem, extract,
    workflows::{self, WorkflowRequest},
};
use crate::auth::Principal;
use actix_web::http::StatusCode;
use greenroom_actors::limits::LOG_PAGE_EVENTS;
use greenroom_core::{
    ids::{AgentName, ApprovalId, MessageId, RunId, Seq, SessionId, UserId},
    json::Digest,
    limits::TITLE_CHARS_MAX,
    policy::{Autonomy, SettingsPatch, session_settings},
    session::{
        ApprovalRow, Input, NewMessage, OnBusy, Reply, SessionRow, SessionState, SessionStatus,
        evolve,
    },
    trace_context::TraceContext,
};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

/// The session, if it exists and the principal may know that.
pub(super) async fn load_visible_session(
    state: &AppState,
    principal: &Principal,
    session_id: SessionId,
) -> Result<SessionRow, Problem> {
    let row = state.runtime.journal.load_session(session_id).await?;
    row.filter(|row| principal.can_see(row)).ok_or_else(Problem::session_not_found)
}

/// The question, if it exists and the principal may know that.
pub(super) async fn load_visible_approval(
    state: &AppState,
    principal: &Principal,
    approval_id: ApprovalId,
) -> Result<ApprovalRow, Problem> {
    let row = state.runtime.journal.load_approval(approval_id).await?;
    row.filter(|row| principal.can_answer(row)).ok_or_else(Problem::approval_not_found)
}

/// Whom the request is for: the named user, if the principal may act for them, else themselves.
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

/// A session to be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateSessionRequest {
    /// By default the server's default agent.
    #[serde(default)]
    pub(super) agent: Option<AgentName>,
    #[serde(default)]
    pub(super) autonomy_level: Option<Autonomy>,
    /// Whose it shall be, for administrators; `character_id` says the same, and a number will do.
    #[serde(default, alias = "character_id", deserialize_with = "extract::deserialize_user_id")]
    pub(super) user_id: Option<UserId>,
    #[serde(default)]
    #[schema(max_length = 200)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) preflight: Option<bool>,
    #[serde(default)]
    pub(super) settings: Option<SettingsPatch>,
}

/// Creates a session (S1) within what its user allows (G4).
pub(super) async fn create_session(
    state: &AppState,
    principal: &Principal,
    wish: CreateSessionRequest,
) -> Result<SessionRow, Problem> {
    create_session_with_id(state, principal, wish, SessionId(state.runtime.new_id())).await
}

/// The same, with an id that is fresh.
pub(super) async fn create_session_with_id(
    state: &AppState,
    principal: &Principal,
    wish: CreateSessionRequest,
    session_id: SessionId,
) -> Result<SessionRow, Problem> {
    let owner = resolve_acting_user(principal, wish.user_id)?;
    let agent = wish.agent.unwrap_or_else(|| state.default_agent.clone());
    state.find_agent(&agent)?;
    let title = wish.title.map(validate_title).transpose()?;
    let mut patch = wish.settings.unwrap_or_default();
    if let Some(level) = wish.autonomy_level {
        if patch.autonomy_level.is_some_and(|other| other != level) {
            let detail = "autonomy_level and settings.autonomy_level differ";
            return Err(Problem::invalid("autonomy_level", detail));
        }
        patch.autonomy_level = Some(level);
    }
    if let Some(preflight) = wish.preflight {
        if patch.preflight.is_some_and(|other| other != preflight) {
            let detail = "preflight and settings.preflight differ";
            return Err(Problem::invalid("preflight", detail));
        }
        patch.preflight = Some(preflight);
    }
    let _unchanged = state.settings_lock.read().await;
    let settings = session_settings(&state.load_user_settings(&owner).await?, &patch)?;
    check_open_session_limit(state, &owner).await?;
    let input = Input::CreateSession { owner, agent, title, settings };
    state.runtime.execute(session_id, input).await?;
    let row = state.runtime.journal.load_session(session_id).await?;
    row.ok_or_else(Problem::session_not_found)
}

/// A session that goes on from what was said in `source` up to `at_seq`, or up to now (S1). What
/// waits there goes on waiting there.
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
        return Err(Problem::invalid("at_seq", format!("at_seq must be 1 to {head}")));
    }
    let past = replay(state, source.session_id, at_seq).await?;
    let _unchanged = state.settings_lock.read().await;
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
    };
    state.runtime.execute(session_id, input).await?;
    let row = state.runtime.journal.load_session(session_id).await?;
    row.ok_or_else(Problem::session_not_found)
}

/// The session as it was after that event.
async fn replay(
    state: &AppState,
    session_id: SessionId,
    at_seq: Seq,
) -> Result<SessionState, Problem> {
    let mut past = SessionState::new(session_id);
    while past.last_seq < at_seq {
        let page =
            state.runtime.journal.load_events(session_id, past.last_seq, LOG_PAGE_EVENTS).await?;
        let counted = page.iter().take_while(|record| record.seq <= at_seq);
        let before = past.last_seq;
        past = counted.fold(past, evolve);
        if past.last_seq == before {
            return Err(Problem::session_not_found()); // It was purged meanwhile.
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
    let detail = format!("the user has {open} open sessions; close some");
    Err(Problem::too_many("too_many_sessions", detail, limit))
}

async fn check_running_run_limit(state: &AppState, owner: &UserId) -> Result<(), Problem> {
    let running = state.runtime.journal.count_sessions(owner).await?.running;
    let limit = state.limits.running_runs_max;
    if running < limit {
        return Ok(());
    }
    let detail = format!("the user has {running} runs going; wait for one to end");
    Err(Problem::too_many("too_many_runs", detail, limit).retry_after(1))
}

/// Errs before a session is made for a message that may not begin one.
pub(super) async fn check_first_message(
    state: &AppState,
    principal: &Principal,
    user_id: Option<&UserId>,
    message: &MessageRequest,
) -> Result<(), Problem> {
    message.validate_first(state).await?;
    if message.message_id.is_some() {
        // Sent again, it would go to another new session and run there (S5).
        let detail = "a message is known again in its session; make that first, and name it";
        return Err(Problem::invalid("message_id", detail));
    }
    check_running_run_limit(state, &resolve_acting_user(principal, user_id.cloned())?).await
}

/// A title within its limit.
pub(super) fn validate_title(title: String) -> Result<String, Problem> {
    if title.chars().count() <= TITLE_CHARS_MAX {
        return Ok(title);
    }
    Err(Problem::invalid("title", format!("title may have at most {TITLE_CHARS_MAX} characters")))
}

/// A message for a session, as every surface takes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageRequest {
    /// May be absent where a workflow says what is to be done.
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
    /// The span of a trace that the request came in (A4); a header's.
    #[serde(skip)]
    pub(super) traceparent: Option<TraceContext>,
}

/// A message that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubmittedMessage {
    pub(super) run_id: RunId,
    pub(super) seq: Seq,
    pub(super) repeated: bool,
}

/// What becomes of a message while a run is going (S4).
pub(super) enum BusyAction {
    /// The session decides by this.
    Submit(OnBusy),
    /// The run is cancelled for it.
    Interrupt,
}

impl MessageRequest {
    /// Errs before a session is made for a message that can't be taken.
    pub(super) async fn validate_first(&self, state: &AppState) -> Result<(), Problem> {
        self.validate(state)?;
        match &self.workflow {
            Some(wish) => workflows::check_workflow(state, wish).await,
            None => Ok(()),
        }
    }

    /// Errs if the message can't be taken, whatever the session does.
    pub(super) fn validate(&self, state: &AppState) -> Result<BusyAction, Problem> {
        let max = state.limits.message_bytes_max;
        if self.message.len() > max {
            return Err(Problem::too_large("message_too_large", "a message", max));
        }
        if self.message.trim().is_empty() && self.workflow.is_none() {
            return Err(Problem::invalid("message", "message must not be empty"));
        }
        match self.on_busy.as_deref() {
            None | Some("queue") => Ok(BusyAction::Submit(OnBusy::Queue)),
            Some("steer") => Ok(BusyAction::Submit(OnBusy::Steer)),
            Some("reject") => Ok(BusyAction::Submit(OnBusy::Reject)),
            Some("interrupt") => Ok(BusyAction::Interrupt),
            Some(_) => {
                let known = "`queue`, `steer`, `interrupt` or `reject`";
                Err(Problem::invalid("on_busy", format!("on_busy must be {known}")))
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
    let when_busy = message.validate(state)?;
    if session.status == SessionStatus::Idle {
        check_running_run_limit(state, &session.owner).await?;
    }
    let fresh = || MessageId::from_uuid(state.runtime.new_id());
    let MessageRequest { message, message_id, preflight, workflow, traceparent, .. } = message;
    let text = match &workflow {
        Some(wish) if message.trim().is_empty() => wish.to_command(),
        Some(_) | None => message,
    };
    let digest = message_digest(&text, preflight, workflow.as_ref());
    let workflow = workflows::start_requested_workflow(state, &session.agent, workflow).await?;
    let message_id = message_id.unwrap_or_else(fresh);
    let text = text.into();
    let message = NewMessage { message_id, text, digest, preflight, workflow, traceparent };
    let input = match when_busy {
        BusyAction::Submit(on_busy) => Input::SubmitMessage { message, on_busy },
        BusyAction::Interrupt => {
            Input::Interrupt { message, by: principal.user.clone(), partial: None }
        }
    };
    match state.runtime.execute(session.session_id, input).await? {
        Reply::Submitted { run_id, seq, repeated } => {
            Ok(SubmittedMessage { run_id, seq, repeated })
        }
        Reply::Steered { run_id, seq, .. } => Ok(SubmittedMessage { run_id, seq, repeated: false }),
        other @ (Reply::Done | Reply::Answered { .. } | Reply::Cancelled { .. }) => {
            Err(unexpected_reply(&other))
        }
    }
}

/// The digest of what decides the run, and nothing else: a repetition may come from another surface.
/// A text that is the workflow's command says the workflow, too.
fn message_digest(
    text: &str,
    preflight: Option<bool>,
    workflow: Option<&WorkflowRequest>,
) -> Digest {
    let mut body = json!({ "message": text });
    if let Some(preflight) = preflight {
        body["preflight"] = json!(preflight);
    }
    if let Some(wish) = workflow.filter(|wish| wish.to_command() != text) {
        body["workflow"] = json!(wish);
    }
    Digest::hash_json(&body)
}

/// Cancels the session's run, or the named one (S6).
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
        | Reply::Steered { .. }) => Err(unexpected_reply(&other)),
    }
}

pub(super) fn unexpected_reply(reply: &Reply) -> Problem {
    tracing::error!(?reply, "a session answered something else than it was asked");
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Problem::new(status, "internal", "the session answered something unexpected")
}
