//! Folds events into the session state.
//!
//! [`evolve`] is total and serves live sessions and replay alike: an event that does not fit the
//! state changes nothing but the head, `last_seq`.

mod active;
mod calls;

use super::{
    ConversationSummary, EventRecord, QueueRemoval, QueuedMessage, Run, SessionEvent, SessionState,
    Submission, state::SessionMetadata,
};
use crate::{
    approval::{ApprovalOutcome, ClosedApproval, PlanStepDecision, RecordedAnswer},
    call::Call,
    ids::ApprovalId,
    message::{AssistantMessage, CallResult, Message, ProposedCall},
};
use std::sync::Arc;

/// Returns the state after `record`.
pub fn evolve(mut state: SessionState, record: &EventRecord) -> SessionState {
    state.apply_history(record);
    state.active.apply(record);
    state.last_seq = record.seq;
    if let Some(metadata) = &mut state.metadata {
        metadata.updated_at = record.at;
    }
    state
}

impl SessionState {
    /// Applies `record` to the parts that grow with the history: conversation, idempotency keys,
    /// closed approvals and usage.
    fn apply_history(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        match &record.event {
            E::SessionCreated { owner, agent, parent, .. } => {
                self.metadata = Some(SessionMetadata {
                    owner: owner.clone(),
                    agent: agent.clone(),
                    parent: parent.clone(),
                    created_at: record.at,
                    updated_at: record.at,
                });
            }
            E::SessionForked { owner, agent, conversation, .. } => {
                self.metadata = Some(SessionMetadata {
                    owner: owner.clone(),
                    agent: agent.clone(),
                    parent: None,
                    created_at: record.at,
                    updated_at: record.at,
                });
                for message in conversation {
                    self.conversation.push(message.clone());
                }
            }
            E::MessageQueued { message_id, digest, .. }
            | E::MessageAccepted { message_id, digest, .. } => {
                if let Some(run_id) = record.run_id {
                    let submission = Submission::new(*digest, run_id, record.seq);
                    // A queued message is accepted later; the first of the two events counts.
                    self.submissions.insert_if_absent(message_id.clone(), submission);
                }
                if let E::MessageAccepted { text, .. } = &record.event {
                    let (message_id, text) = (message_id.clone(), text.clone());
                    self.conversation.push(Message::User { message_id, text });
                }
            }
            E::QueuedMessageChanged { message_id, digest, .. } => {
                self.submissions.update(message_id, |submission| {
                    submission.changed_digest = Some(*digest);
                    // A steering message that was not delivered now waits for a run of its own.
                    submission.run_id = record.run_id.unwrap_or(submission.run_id);
                });
            }
            E::QueuedMessageWithdrawn { message_id, .. } => {
                self.submissions.update(message_id, |submission| {
                    submission.removal = Some(QueueRemoval::Withdrawn);
                    submission.run_id = record.run_id.unwrap_or(submission.run_id);
                });
            }
            E::StepStarted { .. } => self.append_step_messages(record),
            E::ContextCompacted { through, summary, .. } => {
                let summary = summary.clone();
                self.summary =
                    Some(ConversationSummary::new(&self.conversation, *through, summary));
            }
            E::RunCompleted { usage, .. }
            | E::RunFailed { usage, .. }
            | E::RunCancelled { usage, .. } => {
                self.append_step_messages(record);
                self.usage = self.usage.plus(*usage);
                self.record_cancelled_message(record);
            }
            E::ApprovalDecided { approval_id, steps, answer, closed } => {
                if *closed {
                    let answer = answer.as_deref().cloned();
                    self.close_approval(
                        *approval_id,
                        ApprovalOutcome::Decided,
                        steps,
                        answer,
                        record,
                    );
                }
            }
            E::ApprovalExpired { approval_id } => {
                self.close_approval(*approval_id, ApprovalOutcome::Expired, &[], None, record);
            }
            E::ApprovalCancelled { approval_id } => {
                self.close_approval(*approval_id, ApprovalOutcome::Cancelled, &[], None, record);
            }
            E::FeedbackGiven { .. } => self.feedback_count = self.feedback_count.saturating_add(1),
            E::SessionSettingsChanged { .. }
            | E::SessionClosed { .. }
            | E::MessageStarted { .. }
            | E::MessageCompleted { .. }
            | E::MessageDiscarded { .. }
            | E::RunStarted { .. }
            | E::StepCompleted { .. }
            | E::StepRetrying { .. }
            | E::StepModelFallback { .. }
            | E::ContextCompactionFailed { .. }
            | E::ToolCallStarted { .. }
            | E::ToolCallAllowed { .. }
            | E::ToolCallAttemptStarted { .. }
            | E::ToolCallProgress { .. }
            | E::ToolCallRetrying { .. }
            | E::LateResult { .. }
            | E::ToolCallCompleted { .. }
            | E::ToolCallFailed { .. }
            | E::AuthorizationDenied { .. }
            | E::ApprovalRequested { .. }
            | E::ApprovalEscalated { .. }
            | E::PreflightApproved { .. }
            | E::PreflightSkipped { .. }
            | E::BudgetReserved { .. }
            | E::BudgetReached { .. }
            | E::BudgetRaised { .. }
            | E::GrantAdded { .. }
            | E::GrantRevoked { .. }
            | E::ChildEvent { .. }
            | E::ChildGone { .. } => {}
        }
    }

    /// Records that a queued message was cancelled, if `record` ended a run that had not started.
    fn record_cancelled_message(&mut self, record: &EventRecord) {
        let is_ended = |queued: &&QueuedMessage| Some(queued.run_id) == record.run_id;
        if let Some(queued) = self.active.queue.iter().find(is_ended) {
            self.submissions.update(&queued.message_id, |submission| {
                submission.removal = Some(QueueRemoval::Cancelled);
            });
        }
    }

    /// Appends the message of the step that ended, and the results of its calls, to the
    /// conversation.
    fn append_step_messages(&mut self, record: &EventRecord) {
        let messages = self.active.step_messages_for_run(record.run_id);
        messages.into_iter().for_each(|message| self.conversation.push(message));
    }

    /// Returns the conversation so far, for a fork (S1). Of the step in progress it contains the
    /// complete message; open calls have a cancelled result.
    pub fn conversation_so_far(&self) -> Vec<Message> {
        let past = self.conversation.messages().into_iter().cloned();
        let open_text = "Cancelled: the session was forked before the call had its result";
        let current = self.active.run.as_ref().map(|run| step_messages(run, open_text));
        past.chain(current.into_iter().flatten()).collect()
    }

    fn close_approval(
        &mut self,
        approval_id: ApprovalId,
        outcome: ApprovalOutcome,
        last_decisions: &[PlanStepDecision],
        answer: Option<RecordedAnswer>,
        record: &EventRecord,
    ) {
        let Some(open) = self.active.open_approval(approval_id) else { return };
        let mut decisions = open.decisions.clone();
        decisions
            .extend(last_decisions.iter().map(|decision| (decision.call_id, decision.clone())));
        let (approval, run_id) = (open.approval.clone(), open.run_id);
        let (escalation, closed_at) = (open.escalation, record.at);
        let closed =
            ClosedApproval { approval, run_id, outcome, closed_at, decisions, answer, escalation };
        self.closed_approvals.insert(record.seq, closed);
    }
}

fn to_proposed_call(call: &Call) -> ProposedCall {
    ProposedCall {
        call_id: call.call_id,
        provider_id: call.provider_id.clone(),
        tool: call.tool.clone(),
        arguments: crate::message::Arguments::clone(&call.arguments),
    }
}

/// Returns the complete message of the run's current step and the results of its calls. A call
/// without a result gets an error result that starts with `open_text`.
fn step_messages(run: &Run, open_text: &str) -> Vec<Message> {
    let Some(message) = &run.message else { return Vec::new() };
    let calls: Vec<_> = run.calls.iter().map(to_proposed_call).collect();
    if message.text.is_empty() && calls.is_empty() {
        return Vec::new(); // Providers reject empty messages.
    }
    let results: Vec<_> =
        run.calls.iter().map(|call| result_or_placeholder(call, open_text)).collect();
    let message = AssistantMessage { calls, ..AssistantMessage::clone(message) };
    let mut messages = vec![Message::Assistant(Arc::new(message))];
    if !results.is_empty() {
        messages.push(Message::ToolResults(results));
    }
    messages
}

fn result_or_placeholder(call: &Call, open_text: &str) -> CallResult {
    let caveat = if call.may_have_taken_effect() { "; it may have taken effect" } else { "" };
    call.result().unwrap_or_else(|| CallResult {
        call_id: call.call_id,
        provider_id: call.provider_id.clone(),
        tool: call.tool.clone(),
        text: format!("{open_text}{caveat}").into(),
        is_error: true,
    })
}
