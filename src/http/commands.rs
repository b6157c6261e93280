//! What clients ask of sessions, whatever the surface: REST and WebSockets both come through
//! here, so that a limit or a right holds on either.

use super::{AppState, Problem, read};
use crate::{
    audit::{Action, Actor, Entry, Outcome},
    auth::Principal,
};
use actix_web::http::StatusCode;
use greenroom_actors::session::CommandError;
use greenroom_core::{
    approval::{GrantWish, StepDecision, Surface},
    ids::{AgentName, ApprovalId, CallId, MessageId, RunId, Seq, SessionId, UserId},
    json::Digest,
    limits::{REASON_BYTES_MAX, TITLE_CHARS_MAX},
    policy::{Autonomy, SettingsPatch, narrowed},
    session::{
        ApprovalAnswer, ApprovalRow, ApprovalState, Input, OnBusy, Rejection, Reply, SessionRow,
        SessionStatus, StepAnswer,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The session, if it exists and the principal may know that.
pub(super) async fn session_for(
    state: &AppState,
    principal: &Principal,
    session_id: SessionId,
) -> Result<SessionRow, Problem> {
    let row = state.runtime.journal.session(session_id).await?;
    row.filter(|row| principal.may_see(row)).ok_or_else(Problem::session_not_found)
}

/// The question, if it exists and the principal may know that.
pub(super) async fn approval_for(
    state: &AppState,
    principal: &Principal,
    approval_id: ApprovalId,
) -> Result<ApprovalRow, Problem> {
    let row = state.runtime.journal.approval(approval_id).await?;
    row.filter(|row| principal.may_decide(row)).ok_or_else(Problem::approval_not_found)
}

/// Whom the request is for: the named user, if the principal may act for them, else themselves.
pub(super) fn acting_for(principal: &Principal, user: Option<UserId>) -> Result<UserId, Problem> {
    let user = user.unwrap_or_else(|| principal.user.clone());
    if principal.may_act_for(&user) {
        return Ok(user);
    }
    Err(Problem::forbidden("only administrators may act for another user"))
}

/// `POST /agent/session`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CreateSession {
    #[serde(default)]
    pub(super) agent: Option<AgentName>,
    #[serde(default)]
    pub(super) autonomy_level: Option<Autonomy>,
    #[serde(default, alias = "character_id", deserialize_with = "read::user_id")]
    pub(super) user_id: Option<UserId>,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) preflight: bool,
    #[serde(default)]
    pub(super) settings: Option<SettingsPatch>,
}

/// Creates a session (S1) within what its user allows (G4).
pub(super) async fn create(
    state: &AppState,
    principal: &Principal,
    wish: CreateSession,
) -> Result<SessionRow, Problem> {
    create_as(state, principal, wish, SessionId(state.runtime.new_id())).await
}

/// The same, with an id that is fresh.
pub(super) async fn create_as(
    state: &AppState,
    principal: &Principal,
    wish: CreateSession,
    session_id: SessionId,
) -> Result<SessionRow, Problem> {
    if wish.preflight {
        return Err(Problem::not_supported("preflight", "preflight"));
    }
    let owner = acting_for(principal, wish.user_id)?;
    let agent = wish.agent.unwrap_or_else(|| state.default_agent.clone());
    if !state.runtime.governance().agents.contains_key(&agent) {
        let detail = format!("there is no agent `{agent}`");
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Err(Problem::new(status, "unknown_agent", detail).with("field", "agent"));
    }
    let title = wish.title.map(checked_title).transpose()?;
    let mut patch = wish.settings.unwrap_or_default();
    if let Some(level) = wish.autonomy_level {
        if patch.autonomy_level.is_some_and(|other| other != level) {
            let detail = "autonomy_level and settings.autonomy_level differ";
            return Err(Problem::invalid("autonomy_level", detail));
        }
        patch.autonomy_level = Some(level);
    }
    let _unchanged = state.settings_lock.read().await;
    let settings = narrowed(&state.user_settings(&owner).await?, &patch)?;
    let open = state.runtime.journal.session_counts(&owner).await?.open;
    let limit = state.limits.open_sessions_max;
    if open >= limit {
        let detail = format!("the user has {open} open sessions; close some");
        return Err(Problem::too_many("too_many_sessions", detail, limit));
    }
    let input = Input::CreateSession { owner, agent, title, settings };
    state.runtime.command(session_id, input).await?;
    let row = state.runtime.journal.session(session_id).await?;
    row.ok_or_else(Problem::session_not_found)
}

/// A title within its limit.
pub(super) fn checked_title(title: String) -> Result<String, Problem> {
    if title.chars().count() <= TITLE_CHARS_MAX {
        return Ok(title);
    }
    Err(Problem::invalid("title", format!("may have at most {TITLE_CHARS_MAX} characters")))
}

/// A message for a session, as every surface takes it.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) message: String,
    #[serde(default)]
    pub(super) message_id: Option<MessageId>,
    #[serde(default)]
    pub(super) on_busy: Option<String>,
    #[serde(default)]
    pub(super) preflight: bool,
    #[serde(default)]
    pub(super) workflow: Option<Value>,
}

/// A message that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submitted {
    pub(super) run_id: RunId,
    pub(super) seq: Seq,
    pub(super) repeated: bool,
}

/// What becomes of a message while a run is going (S4).
pub(super) enum WhenBusy {
    /// The session decides by this.
    Wait(OnBusy),
    /// The run is cancelled for it.
    Interrupt,
}

impl Message {
    /// Errs if the message can't be taken, whatever the session does.
    pub(super) fn check(&self, state: &AppState) -> Result<WhenBusy, Problem> {
        if self.preflight {
            return Err(Problem::not_supported("preflight", "preflight"));
        }
        if self.workflow.as_ref().is_some_and(|workflow| !workflow.is_null()) {
            return Err(Problem::not_supported("workflow", "workflow"));
        }
        let max = state.limits.message_bytes_max;
        if self.message.len() > max {
            return Err(Problem::too_large("message_too_large", "a message", max));
        }
        if self.message.trim().is_empty() {
            return Err(Problem::invalid("message", "message must not be empty"));
        }
        match self.on_busy.as_deref() {
            None | Some("queue") => Ok(WhenBusy::Wait(OnBusy::Queue)),
            Some("steer") => Ok(WhenBusy::Wait(OnBusy::Steer)),
            Some("reject") => Ok(WhenBusy::Wait(OnBusy::Reject)),
            Some("interrupt") => Ok(WhenBusy::Interrupt),
            Some(_) => {
                let known = "`queue`, `steer`, `interrupt` or `reject`";
                Err(Problem::invalid("on_busy", format!("on_busy must be {known}")))
            }
        }
    }
}

/// Submits a message (S4, S5).
pub(super) async fn submit(
    state: &AppState,
    principal: &Principal,
    session: &SessionRow,
    message: Message,
) -> Result<Submitted, Problem> {
    let when_busy = message.check(state)?;
    if session.status == SessionStatus::Idle {
        let running = state.runtime.journal.session_counts(&session.owner).await?.running;
        let limit = state.limits.running_runs_max;
        if running >= limit {
            let detail = format!("the user has {running} runs going; wait for one to end");
            return Err(Problem::too_many("too_many_runs", detail, limit).retry_after(1));
        }
    }
    let fresh = || MessageId::from_uuid(state.runtime.new_id());
    // What decides the run, and nothing else: a repetition may come from another surface.
    let digest = Digest::of(&json!({"message": message.message}));
    let message_id = message.message_id.unwrap_or_else(fresh);
    let text = message.message.into();
    let input = match when_busy {
        WhenBusy::Wait(on_busy) => Input::SubmitMessage { message_id, text, digest, on_busy },
        WhenBusy::Interrupt => {
            let by = principal.user.clone();
            Input::Interrupt { message_id, text, digest, by, partial: None }
        }
    };
    match state.runtime.command(session.session_id, input).await? {
        Reply::Submitted { run_id, seq, repeated } => Ok(Submitted { run_id, seq, repeated }),
        Reply::Steered { run_id, seq, .. } => Ok(Submitted { run_id, seq, repeated: false }),
        other @ (Reply::Done | Reply::Decided { .. } | Reply::Cancelled { .. }) => {
            Err(unexpected(&other))
        }
    }
}

/// Cancels the session's run, or the named one (S6).
pub(super) async fn cancel(
    state: &AppState,
    principal: &Principal,
    session: &SessionRow,
    run_id: Option<RunId>,
) -> Result<RunId, Problem> {
    let input = Input::Cancel { run_id, by: principal.user.clone(), partial: None };
    match state.runtime.command(session.session_id, input).await? {
        Reply::Cancelled { run_id } => Ok(run_id),
        other @ (Reply::Done
        | Reply::Decided { .. }
        | Reply::Submitted { .. }
        | Reply::Steered { .. }) => Err(unexpected(&other)),
    }
}

fn unexpected(reply: &Reply) -> Problem {
    tracing::error!(?reply, "a session answered something else than it was asked");
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Problem::new(status, "internal", "the session answered something unexpected")
}

/// A person's answer as every surface takes it (G8, G11).
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    pub(super) decision: Option<String>,
    #[serde(default)]
    pub(super) steps: Option<Vec<StepWord>>,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) for_session: Option<ForSession>,
    #[serde(default)]
    pub(super) value: Option<Value>,
}

/// What shall hold for the session (G9).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForSession {
    /// A CEL expression that later calls must satisfy.
    #[serde(default, rename = "where")]
    condition: Option<String>,
}

/// A person's word on one step.
#[derive(Debug, Deserialize)]
pub(super) struct StepWord {
    call_id: CallId,
    #[serde(default)]
    decision: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(default)]
    reason: Option<String>,
}

impl Answer {
    /// Approve, or reject, all that is undecided.
    pub(super) fn whole(approve: bool, reason: Option<String>) -> Self {
        let decision = Some(if approve { "approve" } else { "reject" }.to_owned());
        Self { decision, steps: None, reason, for_session: None, value: None }
    }

    /// In the session's words. With steps, those alone are decided; one that says nothing takes
    /// the decision and reason of the whole.
    fn parse(self) -> Result<ApprovalAnswer, Problem> {
        if self.value.as_ref().is_some_and(|given| !given.is_null()) {
            return Err(Problem::not_supported("value", "value"));
        }
        let reason = self.reason.map(|reason| checked_reason("reason", reason)).transpose()?;
        let whole = self.decision.as_deref();
        let whole = whole.map(|word| approves("decision", word)).transpose()?;
        let Some(steps) = self.steps else {
            let missing = || Problem::invalid("decision", "say `decision`, or `steps`");
            return Ok(ApprovalAnswer::Whole { approved: whole.ok_or_else(missing)?, reason });
        };
        let mut answers = Vec::with_capacity(steps.len());
        for (index, step) in steps.into_iter().enumerate() {
            let field = |name: &str| format!("steps[{index}].{name}");
            let own = step.decision.as_deref();
            let own = own.map(|word| approves(&field("decision"), word)).transpose()?;
            let missing =
                || Problem::invalid(&field("decision"), "say `approve` or `reject` for each step");
            let approved = own.or(whole).ok_or_else(missing)?;
            let said = step.reason.clone();
            let said = said.map(|reason| checked_reason(&field("reason"), reason));
            let reason = said.transpose()?.or_else(|| reason.clone());
            let StepWord { call_id, arguments, .. } = step;
            answers.push(StepAnswer { call_id, approved, reason, arguments });
        }
        Ok(ApprovalAnswer::Steps(answers))
    }
}

fn approves(field: &str, word: &str) -> Result<bool, Problem> {
    match word {
        "approve" => Ok(true),
        "reject" => Ok(false),
        later @ ("retry" | "done" | "failed" | "raise" | "stop" | "answer") => {
            Err(Problem::not_supported(field, format_args!("the decision `{later}`")))
        }
        _ => Err(Problem::invalid(field, "a decision is `approve` or `reject`")),
    }
}

fn checked_reason(field: &str, reason: String) -> Result<String, Problem> {
    if reason.len() <= REASON_BYTES_MAX {
        return Ok(reason);
    }
    Err(Problem::invalid(field, format!("may have at most {REASON_BYTES_MAX} bytes")))
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decided {
    pub(super) closed: bool,
    pub(super) repeated: bool,
}

/// Takes a person's answer. The audit log has it with the session's event; what the event does not
/// know, by which credential and that it was refused here, is noted beside it.
pub(super) async fn decide(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    answer: Answer,
    surface: Surface,
) -> Result<Decided, Problem> {
    let mut answer = answer;
    let for_session = answer.for_session.take();
    let for_session = for_session.map(|wish| GrantWish { condition: wish.condition });
    let answer = answer.parse()?;
    if let Err(refusal) = state.critical.check(principal, row, &answer) {
        let outcome = Outcome::Refused;
        note_answer(state, principal, row, surface, outcome, Some(refusal.to_string())).await;
        return Err(refusal.into());
    }
    let decided = take_answer(state, principal, row, (answer, for_session), surface).await?;
    if !decided.repeated {
        note_answer(state, principal, row, surface, Outcome::Accepted, None).await;
    }
    Ok(decided)
}

async fn note_answer(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    surface: Surface,
    outcome: Outcome,
    reason: Option<String>,
) {
    let actor = Some(Actor::calling(principal, surface));
    let now = state.runtime.clock.now();
    let entry = Entry {
        session_id: Some(row.session_id),
        run_id: Some(row.run_id),
        approval_id: Some(row.approval.approval_id),
        reason,
        ..Entry::new(now, Action::ApprovalAnswered, outcome, actor)
    };
    // What was answered stands, and who answered is in the log with it.
    if let Err(error) = state.note(entry).await {
        tracing::error!(%error, "the audit log lacks by which credential somebody answered");
    }
}

async fn take_answer(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    (answer, for_session): (ApprovalAnswer, Option<GrantWish>),
    surface: Surface,
) -> Result<Decided, Problem> {
    let by = principal.user.clone();
    let approval_id = row.approval.approval_id;
    let input = Input::DecideApproval {
        approval_id,
        answer: answer.clone(),
        for_session,
        by: by.clone(),
        surface,
    };
    match state.runtime.command(row.session_id, input).await {
        Ok(Reply::Decided { closed, repeated }) => Ok(Decided { closed, repeated }),
        Ok(
            other @ (Reply::Done
            | Reply::Submitted { .. }
            | Reply::Steered { .. }
            | Reply::Cancelled { .. }),
        ) => Err(unexpected(&other)),
        // A session remembers the newest closed questions; the store has them all.
        Err(CommandError::Rejected(Rejection::UnknownApproval { .. })) => {
            Ok(answered_long_ago(row, &answer, &by)?)
        }
        Err(error) => Err(error.into()),
    }
}

fn answered_long_ago(
    row: &ApprovalRow,
    answer: &ApprovalAnswer,
    by: &UserId,
) -> Result<Decided, Rejection> {
    let approval_id = row.approval.approval_id;
    match row.state {
        ApprovalState::Pending => return Err(Rejection::UnknownApproval { approval_id }),
        ApprovalState::Expired => return Err(Rejection::ApprovalExpired),
        ApprovalState::Cancelled => return Err(Rejection::ApprovalCancelled),
        ApprovalState::Decided => {}
    }
    let same = |first: &StepDecision, approved| first.approved == approved && first.by == *by;
    let repeated = match answer {
        ApprovalAnswer::Whole { approved, .. } => {
            let plain = |first: &StepDecision| first.edited.is_none();
            row.decisions.iter().all(|first| same(first, *approved) && plain(first))
        }
        ApprovalAnswer::Steps(steps) => steps.iter().all(|step| {
            let mut firsts = row.decisions.iter().filter(|first| first.call_id == step.call_id);
            let same_arguments = |first: &StepDecision| match &step.arguments {
                Some(arguments) => first.digest == Digest::of(arguments),
                None => first.edited.is_none(),
            };
            firsts.any(|first| same(first, step.approved) && same_arguments(first))
        }),
    };
    if repeated {
        return Ok(Decided { closed: true, repeated });
    }
    Err(Rejection::AlreadyDecided { first: row.decisions.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: Value) -> Result<ApprovalAnswer, Problem> {
        read::parse_value::<Answer>(text).and_then(Answer::parse)
    }

    const CALL: &str = "0198c0de-0000-7000-8000-000000000001";

    #[test]
    fn g8_an_answer_is_for_the_whole_or_for_steps() {
        let call_id = CALL.parse().unwrap();
        let reason = Some("why".to_owned());
        assert_eq!(
            parse(json!({"decision": "reject", "reason": "why"})),
            Ok(ApprovalAnswer::Whole { approved: false, reason: reason.clone() })
        );
        let step = |approved| {
            let reason = reason.clone();
            ApprovalAnswer::Steps(vec![StepAnswer { call_id, approved, reason, arguments: None }])
        };
        let own = json!({"steps": [{"call_id": CALL, "decision": "approve", "reason": "why"}]});
        assert_eq!(parse(own), Ok(step(true)));
        let inherited =
            json!({"decision": "reject", "reason": "why", "steps": [{"call_id": CALL}]});
        assert_eq!(parse(inherited), Ok(step(false)));
    }

    #[test]
    fn g8_an_answer_that_says_nothing_clear_is_refused() {
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        for (answer, code, field) in [
            (json!({}), "invalid_request", "decision"),
            (json!({"decision": "maybe"}), "invalid_request", "decision"),
            (json!({"decision": "retry"}), "not_supported", "decision"),
            (json!({"decision": "approve", "value": 1}), "not_supported", "value"),
            (json!({"decision": "approve", "reason": long}), "invalid_request", "reason"),
            (json!({"steps": [{"call_id": CALL}]}), "invalid_request", "steps[0].decision"),
            (json!({"steps": [{"call_id": "x"}]}), "invalid_request", "steps[0].call_id"),
        ] {
            let problem = parse(answer.clone()).unwrap_err();
            let found = problem.extra["field"].as_str().unwrap();
            assert_eq!((problem.code, found), (code, field), "{answer}");
        }
    }
}
