//! Folding events into state. Total, and the same in life and in replay: an event that makes no
//! sense in a state changes nothing but the head.

mod active;
mod calls;

use super::{
    ConversationSummary, EventRecord, Run, SessionEvent, SessionState, Submission,
    state::SessionMetadata,
};
use crate::{
    approval::{ApprovalOutcome, ClosedApproval, PlanStepDecision, RecordedAnswer},
    call::Call,
    ids::ApprovalId,
    message::{AssistantMessage, CallResult, Message, ProposedCall},
};
use std::sync::Arc;

/// The state after `record`.
pub fn evolve(mut state: SessionState, record: &EventRecord) -> SessionState {
    state.apply_history(record);
    state.active.apply(record);
    state.last_seq = record.seq;
    if let Some(identity) = &mut state.metadata {
        identity.updated_at = record.at;
    }
    state
}

impl SessionState {
    /// What grows with the history: conversation, idempotency keys, closed questions, usage.
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
                    let submission = Submission { digest: *digest, run_id, seq: record.seq };
                    // A queued message is accepted later; what took it is the first of the two.
                    self.submissions.insert_if_absent(message_id.clone(), submission);
                }
                if let E::MessageAccepted { text, .. } = &record.event {
                    let (message_id, text) = (message_id.clone(), text.clone());
                    self.conversation.push(Message::User { message_id, text });
                }
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
            }
            E::ApprovalDecided { approval_id, steps, answer: word, closed } => {
                if *closed {
                    let word = word.as_deref().cloned();
                    self.close_approval(
                        *approval_id,
                        ApprovalOutcome::Decided,
                        steps,
                        word,
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

    /// The step is over: its message and the results of its calls become conversation.
    fn append_step_messages(&mut self, record: &EventRecord) {
        let said = self.active.step_messages_for_run(record.run_id);
        said.into_iter().for_each(|message| self.conversation.push(message));
    }

    /// What was said up to here, for a session that goes on from it: of the step that is going its
    /// complete message, with calls that are still open told as cancelled (S1).
    pub fn conversation_so_far(&self) -> Vec<Message> {
        let before = self.conversation.messages().into_iter().cloned();
        let open = "Cancelled: the session was forked before the call had its result";
        let now = self.active.run.as_ref().map(|run| step_messages(run, open));
        before.chain(now.into_iter().flatten()).collect()
    }

    fn close_approval(
        &mut self,
        approval_id: ApprovalId,
        end: ApprovalOutcome,
        last: &[PlanStepDecision],
        word: Option<RecordedAnswer>,
        record: &EventRecord,
    ) {
        let Some(open) = self.active.open_approval(approval_id) else { return };
        let mut decisions = open.decisions.clone();
        decisions.extend(last.iter().map(|decision| (decision.call_id, decision.clone())));
        let (approval, run_id) = (open.approval.clone(), open.run_id);
        let (escalation, closed_at) = (open.escalation, record.at);
        let closed = ClosedApproval {
            approval,
            run_id,
            outcome: end,
            closed_at,
            decisions,
            answer: word,
            escalation,
        };
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

/// The complete message of the step that is going, and the results of its calls; `open` is what is
/// told of those that have none.
fn step_messages(run: &Run, open: &str) -> Vec<Message> {
    let Some(message) = &run.message else { return Vec::new() };
    let calls: Vec<_> = run.calls.iter().map(to_proposed_call).collect();
    if message.text.is_empty() && calls.is_empty() {
        return Vec::new(); // Providers refuse empty messages.
    }
    let results: Vec<_> = run.calls.iter().map(|call| result_or_placeholder(call, open)).collect();
    let message = AssistantMessage { calls, ..AssistantMessage::clone(message) };
    let mut said = vec![Message::Assistant(Arc::new(message))];
    if !results.is_empty() {
        said.push(Message::ToolResults(results));
    }
    said
}

fn result_or_placeholder(call: &Call, open: &str) -> CallResult {
    let doubt = if call.may_have_taken_effect() { "; it may have taken effect" } else { "" };
    call.result().unwrap_or_else(|| CallResult {
        call_id: call.call_id,
        provider_id: call.provider_id.clone(),
        tool: call.tool.clone(),
        text: format!("{open}{doubt}").into(),
        is_error: true,
    })
}
