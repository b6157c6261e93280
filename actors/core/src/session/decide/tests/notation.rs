//! Formats decisions as text: one line for each event, effect and reply, with short labels for ids in
//! the order in which they appear (`r1` a run, `c1` a call, `a1` an attempt, `p1` an approval, `M1` a
//! message of the model).

use crate::{
    approval::{Approval, PlanStepDecision},
    delegation::ChildTask,
    ids::MessageId,
    session::{
        CallAuthorization, Decision, Effect, EventRecord, QueuedMessageStatus, Rejection, Reply,
        RunStopReason, SessionEvent,
    },
    time::Timestamp,
};
use std::{cell::RefCell, collections::BTreeMap};
use uuid::Uuid;

#[derive(Default)]
pub(super) struct IdLabels {
    assigned: RefCell<BTreeMap<Uuid, String>>,
}

impl IdLabels {
    /// Returns the id with that label.
    pub(super) fn id(&self, label: &str) -> Uuid {
        let assigned = self.assigned.borrow();
        let entry = assigned.iter().find(|(_, assigned)| *assigned == label);
        *entry.unwrap_or_else(|| panic!("no {label} among {assigned:?}")).0
    }

    fn label(&self, kind: char, id: Uuid) -> String {
        let mut assigned = self.assigned.borrow_mut();
        let count = assigned.values().filter(|label| label.starts_with(kind)).count();
        assigned.entry(id).or_insert_with(|| format!("{kind}{}", count + 1)).clone()
    }

    fn message(&self, id: &MessageId) -> String {
        // Ids from Greenroom are UUIDs; the tests use other texts.
        Uuid::try_parse(id.as_str()).map_or(id.to_string(), |id| self.label('M', id))
    }

    pub(super) fn decision(&self, decision: &Decision, now: Timestamp) -> Vec<String> {
        let events = decision.events.iter().map(|record| self.event(record, now));
        let effects = decision.effects.iter().map(|effect| self.effect(effect));
        let reply = std::iter::once_with(|| self.reply(&decision.reply));
        events.chain(effects).chain(reply).filter(|line| !line.is_empty()).collect()
    }

    fn event(&self, record: &EventRecord, now: Timestamp) -> String {
        let place = match (record.run_id, record.step) {
            (Some(run_id), Some(step)) => format!(" @{}.{step}", self.label('r', run_id.0)),
            (Some(run_id), None) => format!(" @{}", self.label('r', run_id.0)),
            (None, Some(_)) => panic!("a step without a run: {record:?}"),
            (None, None) => String::new(),
        };
        assert_eq!(record.at, now, "events carry the time of their decision");
        format!("{}{place}", self.format_event(&record.event, now))
    }

    fn format_event(&self, event: &SessionEvent, now: Timestamp) -> String {
        use SessionEvent as E;
        match event {
            E::SessionCreated { .. }
            | E::SessionForked { .. }
            | E::SessionSettingsChanged { .. }
            | E::SessionClosed { .. }
            | E::MessageQueued { .. }
            | E::MessageAccepted { .. }
            | E::QueuedMessageChanged { .. }
            | E::QueuedMessageWithdrawn { .. }
            | E::MessageStarted { .. }
            | E::MessageCompleted { .. }
            | E::MessageDiscarded { .. }
            | E::RunStarted { .. }
            | E::RunCompleted { .. }
            | E::RunFailed { .. }
            | E::RunCancelled { .. }
            | E::StepStarted { .. }
            | E::StepCompleted { .. }
            | E::StepRetrying { .. }
            | E::FeedbackGiven { .. }
            | E::StepModelFallback { .. }
            | E::ContextCompacted { .. }
            | E::ContextCompactionFailed { .. } => self.format_session_event(event, now),
            E::ToolCallStarted { .. }
            | E::ToolCallAllowed { .. }
            | E::ToolCallAttemptStarted { .. }
            | E::ToolCallProgress { .. }
            | E::ToolCallRetrying { .. }
            | E::LateResult { .. }
            | E::ToolCallCompleted { .. }
            | E::ToolCallFailed { .. }
            | E::AuthorizationDenied { .. }
            | E::ApprovalRequested { .. }
            | E::ApprovalDecided { .. }
            | E::ApprovalExpired { .. }
            | E::ApprovalCancelled { .. }
            | E::ApprovalEscalated { .. }
            | E::BudgetReserved { .. }
            | E::BudgetReached { .. }
            | E::BudgetRaised { .. }
            | E::PreflightApproved { .. }
            | E::PreflightSkipped { .. }
            | E::ChildEvent { .. }
            | E::ChildGone { .. }
            | E::GrantAdded { .. }
            | E::GrantRevoked { .. } => self.format_call_event(event, now),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "`format_event` names every event")]
    fn format_session_event(&self, event: &SessionEvent, now: Timestamp) -> String {
        use SessionEvent as E;
        match event {
            E::SessionCreated { owner, agent, .. } => format!("session_created {owner} {agent}"),
            E::SessionForked { at_seq, owner, agent, conversation, .. } => {
                let count = conversation.len();
                format!("session_forked at {at_seq} with {count} messages {owner} {agent}")
            }
            E::SessionSettingsChanged { settings, title, by } => {
                let title = title.as_deref().unwrap_or("-");
                let level = settings.autonomy_level.level();
                format!("session_settings_changed L{level} {title} by {by}")
            }
            E::SessionClosed { by } => format!("session_closed by {by}"),
            E::FeedbackGiven { feedback, by } => format!("feedback_given {feedback:?} by {by}"),
            E::MessageQueued { message_id, .. } => format!("message_queued {message_id}"),
            E::MessageAccepted { message_id, .. } => format!("message_accepted {message_id}"),
            E::QueuedMessageChanged { message_id, text, digest: _, preflight, by } => {
                let preflight = if *preflight { " preflight" } else { "" };
                format!("queued_message_changed {message_id} '{text}'{preflight} by {by}")
            }
            E::QueuedMessageWithdrawn { message_id, by } => {
                format!("queued_message_withdrawn {message_id} by {by}")
            }
            E::MessageStarted { message_id } => {
                format!("message_started {}", self.message(message_id))
            }
            E::MessageCompleted { message_id, text, stopped, .. } => {
                let stopped = if *stopped { " stopped" } else { "" };
                format!("message_completed {} '{text}'{stopped}", self.message(message_id))
            }
            E::MessageDiscarded { message_id, reason } => {
                format!("message_discarded {} ({reason})", self.message(message_id))
            }
            E::RunStarted { message_id, preflight, workflow, title: _, traceparent: _ } => {
                let workflow =
                    workflow.as_ref().map(|workflow| format!(" workflow {}", workflow.name));
                let workflow = workflow.unwrap_or_default();
                let preflight = if *preflight { " preflight" } else { "" };
                format!("run_started {message_id}{preflight}{workflow}")
            }
            E::RunCompleted { message_id, usage, stop_reason } => {
                let stop_reason = match stop_reason {
                    Some(RunStopReason::End) => String::new(),
                    Some(reason) => format!(" {}", reason.name()),
                    None => " unrecorded".to_owned(),
                };
                let message = self.message(message_id);
                format!("run_completed {message} {}{stop_reason}", usage.tokens.input_tokens)
            }
            E::RunFailed { code, error, .. } => format!("run_failed {code:?} ({error})"),
            E::RunCancelled { by, message_id, .. } => {
                let message = message_id.as_ref().map(|id| format!(" {}", self.message(id)));
                format!("run_cancelled by {by}{}", message.unwrap_or_default())
            }
            E::StepStarted { attempt_id, attempt, model, planning, compacting } => {
                let planning = if *planning { " planning" } else { "" };
                let compacting = compacting.map(|through| format!(" compacting {through}"));
                let compacting = compacting.unwrap_or_default();
                let attempt_id = self.label('a', attempt_id.0);
                format!("step_started {attempt_id} #{attempt} {model}{planning}{compacting}")
            }
            E::StepCompleted { usage, stop_reason } => {
                format!("step_completed {stop_reason:?} {}", usage.tokens.input_tokens)
            }
            E::ContextCompacted { through, summary, .. } => {
                format!("context_compacted {through} '{summary}'")
            }
            E::ContextCompactionFailed { reason, .. } => {
                format!("context_compaction_failed ({reason})")
            }
            E::StepModelFallback { attempt, from, to, reason, .. } => {
                format!("step_model_fallback #{attempt} {from} to {to} ({reason})")
            }
            E::StepRetrying { attempt, failures, delay_ms, until, reason, usage: _ } => {
                assert_eq!(until.0 - now.0, i64::try_from(*delay_ms).unwrap());
                format!("step_retrying #{attempt} failures {failures} ({reason})")
            }
            other => panic!("not a session event: {other:?}"),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "`format_event` names every event")]
    fn format_call_event(&self, event: &SessionEvent, now: Timestamp) -> String {
        use SessionEvent as E;
        match event {
            E::ToolCallStarted { call_id, tool, risk, .. } => {
                format!("tool_call_started {} {tool} {risk}", self.label('c', call_id.0))
            }
            E::ToolCallAllowed { call_id, by, edit, .. } => {
                let edited = edit.as_ref().map(|edit| format!(" as {}", edit.arguments));
                let edited = edited.unwrap_or_default();
                let by = match by {
                    CallAuthorization::Policy { .. } => "policy".to_owned(),
                    CallAuthorization::Approval { approval_id, by, role: _ } => {
                        format!("{by} {}", self.label('p', approval_id.0))
                    }
                    CallAuthorization::Grant { grant_id } => self.label('g', grant_id.0),
                    CallAuthorization::Preflight { approval_id, step, by } => {
                        format!("{by} {} step {step}", self.label('p', approval_id.0))
                    }
                };
                format!("tool_call_allowed {} by {by}{edited}", self.label('c', call_id.0))
            }
            E::ToolCallAttemptStarted { call_id, attempt_id, attempt, child } => {
                let (call, attempt_id) =
                    (self.label('c', call_id.0), self.label('a', attempt_id.0));
                let child = child.as_ref().map(|child| {
                    format!(" by {} {}", child.agent, self.label('s', child.session_id.0))
                });
                let child = child.unwrap_or_default();
                format!("tool_call_attempt_started {call} {attempt_id} #{attempt}{child}")
            }
            E::ChildEvent { session_id, call_id, event, .. } => {
                let (child, call) = (self.label('s', session_id.0), self.label('c', call_id.0));
                let inner = self.format_event(&event.event, event.at);
                format!("child_event {child} {call} {} [{inner}]", event.seq)
            }
            E::ChildGone { session_id, call_id } => {
                let (child, call) = (self.label('s', session_id.0), self.label('c', call_id.0));
                format!("child_gone {child} {call}")
            }
            E::ToolCallProgress { call_id, progress, total, message, .. } => {
                let call = self.label('c', call_id.0);
                let message = message.as_deref().unwrap_or("-");
                format!("tool_call_progress {call} {progress} of {total:?} '{message}'")
            }
            E::ToolCallRetrying { call_id, attempt, failures, delay_ms, until, reason, .. } => {
                assert_eq!(until.0 - now.0, i64::try_from(*delay_ms).unwrap());
                let call = self.label('c', call_id.0);
                format!("tool_call_retrying {call} #{attempt} failures {failures} ({reason})")
            }
            E::LateResult { call_id, attempt_id, summary } => {
                let (call, attempt_id) =
                    (self.label('c', call_id.0), self.label('a', attempt_id.0));
                format!("late_result {call} {attempt_id} ({summary})")
            }
            E::ToolCallCompleted { call_id, output, .. } => {
                format!("tool_call_completed {} '{}'", self.label('c', call_id.0), output.text)
            }
            E::ToolCallFailed { call_id, reason, error, retries_exhausted, attempts, .. } => {
                let exhausted = match retries_exhausted {
                    true => format!(" exhausted after {attempts} attempts"),
                    false => String::new(),
                };
                let call = self.label('c', call_id.0);
                format!("tool_call_failed {call} {reason:?}{exhausted} ({error})")
            }
            E::AuthorizationDenied { call_id, required_level, .. } => {
                let level = required_level.map_or("-", |level| level.name());
                format!("authorization_denied {} requires {level}", self.label('c', call_id.0))
            }
            E::ApprovalRequested { approval } => self.approval(approval, now),
            E::ApprovalDecided { approval_id, steps, answer, closed } => {
                let closed = if *closed { " closed" } else { "" };
                let steps = steps.iter().map(|step| self.step(step)).collect::<String>();
                let answer = answer.as_ref();
                let answer = answer
                    .map(|answer| format!(" {} by {}", answer.resolution.name(), answer.by))
                    .unwrap_or_default();
                let approval = self.label('p', approval_id.0);
                format!("approval_decided {approval}{steps}{answer}{closed}")
            }
            E::ApprovalEscalated { approval_id, to, deadline } => {
                let deadline = deadline.map(|end| (end.0 - now.0) / 1000);
                let approval = self.label('p', approval_id.0);
                format!("approval_escalated {approval} to {to} within {deadline:?}")
            }
            E::BudgetReserved { call_id, cost, .. } => {
                format!("budget_reserved {} {cost}", self.label('c', call_id.0))
            }
            E::BudgetReached { budget, spent, needed } => {
                format!("budget_reached ({budget}) spent {spent} needs {needed}")
            }
            E::BudgetRaised { approval_id, budget, by } => {
                format!("budget_raised {} ({budget}) by {by}", self.label('p', approval_id.0))
            }
            E::PreflightApproved { approval_id, by, steps, .. } => {
                let steps = steps.iter().map(|step| {
                    let mark = match (step.skipped, step.edited) {
                        (true, _) => "-",
                        (false, true) => "~",
                        (false, false) => "+",
                    };
                    format!(" {mark}{}", step.position)
                });
                let steps: String = steps.collect();
                format!("preflight_approved {}{steps} by {by}", self.label('p', approval_id.0))
            }
            E::PreflightSkipped { warning } => format!("preflight_skipped ({warning})"),
            E::ApprovalExpired { approval_id } => {
                format!("approval_expired {}", self.label('p', approval_id.0))
            }
            E::ApprovalCancelled { approval_id } => {
                format!("approval_cancelled {}", self.label('p', approval_id.0))
            }
            E::GrantAdded { grant } => {
                let condition = grant.condition.as_ref();
                let condition = condition.map(|text| format!(" where {text}")).unwrap_or_default();
                format!(
                    "grant_added {} {}{condition}",
                    self.label('g', grant.grant_id.0),
                    grant.tool
                )
            }
            E::GrantRevoked { grant_id, by } => {
                format!("grant_revoked {} by {by}", self.label('g', grant_id.0))
            }
            other => panic!("not a call event: {other:?}"),
        }
    }

    fn approval(&self, approval: &Approval, now: Timestamp) -> String {
        let calls = approval.subject.blocked_calls();
        let calls = calls.iter().map(|call_id| format!(" {}", self.label('c', call_id.0)));
        let deadline = approval.deadline.map(|end| (end.0 - now.0) / 1000);
        format!(
            "approval_requested {} ({}){} {} within {deadline:?}",
            self.label('p', approval.approval_id.0),
            approval.purpose,
            calls.collect::<String>(),
            approval.max_risk_level,
        )
    }

    fn step(&self, step: &PlanStepDecision) -> String {
        let mark = if step.approved { "+" } else { "-" };
        format!(" {mark}{} by {}", self.label('c', step.call_id.0), step.by)
    }

    fn effect(&self, effect: &Effect) -> String {
        match effect {
            Effect::StartModel { run_id, step, attempt_id, message_id, .. } => {
                let (run, attempt) = (self.label('r', run_id.0), self.label('a', attempt_id.0));
                let message = message_id.as_ref().map(|message_id| self.message(message_id));
                let message = message.unwrap_or("-".to_owned());
                format!("> start_model {attempt} {message} @{run}.{step}")
            }
            Effect::StopModel { attempt_id } => {
                format!("> stop_model {}", self.label('a', attempt_id.0))
            }
            Effect::StartTool { call_id, attempt_id, tool, .. } => {
                let (call, attempt) = (self.label('c', call_id.0), self.label('a', attempt_id.0));
                format!("> start_tool {call} {attempt} {tool}")
            }
            Effect::AcquireExclusiveLock { call_id, key } => {
                format!("> acquire_lock {} '{key}'", self.label('c', call_id.0))
            }
            Effect::AnswerElicitation { attempt_id, elicitation_number: number, answer } => {
                let attempt = self.label('a', attempt_id.0);
                format!("> answer_elicitation {attempt} #{number} {answer:?}")
            }
            Effect::StartChild { attempt_id, task, after_seq } => {
                let attempt = self.label('a', attempt_id.0);
                let child = self.label('s', task.child.0);
                let call = self.label('c', task.parent.call_id.0);
                let ChildTask { agent, prompt, .. } = &**task;
                format!(
                    "> start_child {child} {call} {attempt} {agent} '{prompt}' after {after_seq}"
                )
            }
            Effect::NarrowChild { child, parent_settings } => {
                let level = parent_settings.autonomy_level.level();
                format!("> narrow_child {} L{level}", self.label('s', child.0))
            }
            Effect::CloseChild { child, call_id, after_seq, by } => {
                let (child, call) = (self.label('s', child.0), self.label('c', call_id.0));
                format!("> close_child {child} {call} after {after_seq} by {by}")
            }
            Effect::StopTool { call_id, attempt_id } => {
                let (call, attempt) = (self.label('c', call_id.0), self.label('a', attempt_id.0));
                format!("> stop_tool {call} {attempt}")
            }
        }
    }

    fn reply(&self, reply: &Reply) -> String {
        let repeated_suffix = |repeated| if repeated { " repeated" } else { "" };
        match reply {
            // `Reply::Done` is not shown.
            Reply::Done => String::new(),
            Reply::Submitted { run_id, seq } => {
                format!("= submitted {} seq {seq}", self.label('r', run_id.0))
            }
            Reply::Repeated { run_id, seq, queued_status } => {
                let run = self.label('r', run_id.0);
                let status = match queued_status {
                    None => "",
                    Some(QueuedMessageStatus::Changed) => " changed",
                    Some(QueuedMessageStatus::Withdrawn) => " withdrawn",
                    Some(QueuedMessageStatus::Cancelled) => " cancelled",
                };
                format!("= submitted {run} seq {seq} repeated{status}")
            }
            Reply::QueueUpdated { run_id, repeated } => {
                let run = self.label('r', run_id.0);
                format!("= queue updated {run}{}", repeated_suffix(*repeated))
            }
            Reply::Steered { run_id, seq, after_decision } => {
                let suffix = if *after_decision { " after the decision" } else { "" };
                format!("= steers {} seq {seq}{suffix}", self.label('r', run_id.0))
            }
            Reply::Answered { closed, repeated } => {
                let closed = if *closed { " closed" } else { "" };
                format!("= decided{closed}{}", repeated_suffix(*repeated))
            }
            Reply::Cancelled { run_id } => format!("= cancelled {}", self.label('r', run_id.0)),
        }
    }

    pub(super) fn rejection(&self, rejection: &Rejection) -> String {
        match rejection {
            Rejection::Busy { run_id } => format!("! busy {}", self.label('r', run_id.0)),
            Rejection::RunNotActive { run_id } => {
                format!("! run not active {}", self.label('r', run_id.0))
            }
            Rejection::UnknownStep { call_id } => {
                format!("! unknown step {}", self.label('c', call_id.0))
            }
            Rejection::AlreadyDecided { decisions, answer } => {
                let steps = decisions.iter().map(|step| self.step(step)).collect::<String>();
                let answer = answer.as_ref();
                let answer = answer
                    .map(|answer| format!(" {} by {}", answer.resolution.name(), answer.by))
                    .unwrap_or_default();
                format!("! already decided{steps}{answer}")
            }
            Rejection::IsChildSession { .. } => "! is a child session".to_owned(),
            Rejection::UnknownApproval { .. } => "! unknown approval".to_owned(),
            Rejection::UnknownGrant { .. } => "! unknown grant".to_owned(),
            Rejection::InvalidEdit { call_id, problem } => {
                format!("! invalid edit of {}: {problem}", self.label('c', call_id.0))
            }
            Rejection::UnknownSession
            | Rejection::SessionExists
            | Rejection::SessionClosed
            | Rejection::QueueFull { .. }
            | Rejection::ChildSettingsWidened { .. }
            | Rejection::FeedbackLimitReached { .. }
            | Rejection::MessageIdReused { .. }
            | Rejection::UnknownMessage { .. }
            | Rejection::MessageStarted { .. }
            | Rejection::MessageWithdrawn { .. }
            | Rejection::MessageCancelled { .. }
            | Rejection::RedactedMessage
            | Rejection::NoActiveRun
            | Rejection::ApprovalExpired
            | Rejection::ApprovalCancelled
            | Rejection::InvalidGrant { .. }
            | Rejection::UnsupportedAnswer { .. }
            | Rejection::InvalidAnswer { .. }
            | Rejection::RoleRequired { .. }
            | Rejection::CeilingExceeded(_)
            | Rejection::ApproverRequired { .. }
            | Rejection::FourEyes { .. }
            | Rejection::AmbiguousAnswer => format!("! {rejection}"),
        }
    }
}

#[track_caller]
pub(super) fn assert_same(actual: &[String], expected: &str) {
    let expected: Vec<_> =
        expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert!(
        actual == expected,
        "actual:\n{}\n\nexpected:\n{}",
        actual.join("\n"),
        expected.join("\n")
    );
}
