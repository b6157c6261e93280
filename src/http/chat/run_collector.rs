//! Collects the events of one run for the response of `POST /agent/chat`.

use super::super::{
    AppState, Problem,
    commands::SubmittedMessage,
    stream_filter::{FilterMatch, StreamFilter},
};
use crate::dialect::{CallArguments, agent};
use greenroom_actors::{
    feed::{DeliveryOutcome, FeedItem, FeedKind, Outlet},
    subscriber::StopSubscriber,
};
use greenroom_core::{
    approval::Approval,
    call::CallFailureReason,
    cursor::Cursor,
    ids::{CallId, MessageId},
    session::{
        ApprovalState, EventRecord, QueuedMessageStatus, RunFailureCode, RunStopReason,
        SessionEvent, SessionRow,
    },
    usage::ModelUsage,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{borrow::Cow, cell::RefCell, rc::Rc, sync::Arc};
use tokio::sync::Notify;
use utoipa::ToSchema;

/// The collected result of a run.
#[derive(Debug, Default)]
pub(super) struct CollectedRun {
    /// The latest complete message of the model.
    pub(super) response: String,
    /// The last step of the run so far.
    pub(super) last_step: u32,
    /// The end or the pause of the run.
    pub(super) ending: Option<RunEnding>,
    /// The tool calls, in the order in which they were proposed.
    pub(super) calls: Vec<ToolCallResult>,
    /// Set if the message was changed or withdrawn while it was queued.
    pub(super) queued_status: Option<QueuedMessageStatus>,
    /// True if the subscriber has stopped.
    is_detached: bool,
}

/// The end of a run, or its pause.
#[derive(Clone, Debug)]
pub(super) enum RunEnding {
    /// Completed with a final answer.
    Completed {
        /// The model usage of the run.
        usage: ModelUsage,
        /// The way in which the final message ended.
        stop_reason: Option<RunStopReason>,
    },
    /// Cancelled.
    Cancelled,
    /// Failed.
    Failed {
        /// The kind of failure.
        code: RunFailureCode,
        /// The error message.
        error: String,
    },
    /// Waits for an answer to this approval.
    Paused(Arc<Approval>),
}

/// A tool call with its result, if it has ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolResult)]
pub(super) struct ToolCallResult {
    /// The call.
    call_id: CallId,
    /// Name of the tool.
    tool: String,
    /// The arguments; empty if the model wrote no JSON object.
    #[schema(value_type = Object)]
    input: Map<String, Value>,
    /// The model's text in place of a JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_text: Option<String>,
    /// The step that proposed it.
    iteration: Option<u32>,
    /// The output: structured if the tool returned structured content, otherwise text.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    /// The error, if the call failed or was blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The reason why the call did not run: `authorization` (denied by policy) or `approval`
    /// (rejected or expired).
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_by: Option<&'static str>,
}

struct CallFailure {
    error: String,
    blocked_by: Option<&'static str>,
}

/// Follows the run of the message until it ends or waits for an answer to an approval.
pub(super) async fn collect(
    state: &AppState,
    session: &SessionRow,
    cursor: Cursor,
    submitted: &SubmittedMessage,
) -> Result<CollectedRun, Problem> {
    let shared = Rc::<CollectorState>::default();
    let filter = StreamFilter::Run { run_id: submitted.run_id, until_pause: false };
    let message_id = submitted.message_id.clone();
    let outlet = Box::new(RunCollector { shared: shared.clone(), filter, message_id });
    let (session_id, agent) = (session.session_id, session.agent.clone());
    let subscriber = state.runtime.subscribe(session_id, agent, cursor, outlet);
    let _stop = StopOnDrop(subscriber.recipient());
    loop {
        shared.changed.notified().await;
        let (ending, is_detached) = {
            let collected = shared.collected.borrow();
            (collected.ending.clone(), collected.is_detached)
        };
        let done = match ending {
            // A replayed approval may already be closed.
            Some(RunEnding::Paused(approval)) => {
                let row = state.runtime.journal.load_approval(approval.approval_id).await?;
                row.is_some_and(|row| row.state == ApprovalState::Pending)
            }
            Some(RunEnding::Completed { .. } | RunEnding::Cancelled | RunEnding::Failed { .. }) => {
                true
            }
            None => false,
        };
        if done || is_detached {
            return Ok(shared.collected.take());
        }
    }
}

struct StopOnDrop(actix::Recipient<StopSubscriber>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // If the mailbox is full, the subscriber stops at its next delivery instead: the outlet
        // then reports that it is closed.
        drop(self.0.try_send(StopSubscriber));
    }
}

#[derive(Default)]
struct CollectorState {
    collected: RefCell<CollectedRun>,
    changed: Notify,
}

struct RunCollector {
    shared: Rc<CollectorState>,
    filter: StreamFilter,
    message_id: MessageId,
}

impl Outlet for RunCollector {
    fn try_send(&mut self, item: &FeedItem) -> DeliveryOutcome {
        // The handler holds the other reference; without it, the client has disconnected.
        if Rc::strong_count(&self.shared) == 1 {
            return DeliveryOutcome::Closed;
        }
        if self.filter.classify(item) == FilterMatch::Excluded {
            return DeliveryOutcome::Accepted;
        }
        match &item.kind {
            FeedKind::Event(record) => {
                let mut collected = self.shared.collected.borrow_mut();
                let queued_status = queued_status(&record.event, &self.message_id);
                collected.queued_status = queued_status.or(collected.queued_status);
                if collected.apply_event(record) {
                    self.shared.changed.notify_one();
                }
                DeliveryOutcome::Accepted
            }
            FeedKind::Delta { .. } => DeliveryOutcome::Accepted,
            FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => DeliveryOutcome::Closed,
        }
    }
}

impl Drop for RunCollector {
    fn drop(&mut self) {
        self.shared.collected.borrow_mut().is_detached = true;
        self.shared.changed.notify_one();
    }
}

impl CollectedRun {
    /// Applies an event. Returns true if the run ended or paused.
    fn apply_event(&mut self, record: &EventRecord) -> bool {
        if let Some(step) = record.step {
            self.last_step = self.last_step.max(step);
        }
        if let Some((call_id, result)) = call_result(&record.event) {
            if let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id) {
                match result {
                    Ok(result) => call.result = Some(result),
                    Err(CallFailure { error, blocked_by }) => {
                        (call.error, call.blocked_by) = (Some(error), blocked_by);
                    }
                }
            }
            return false;
        }
        if let SessionEvent::ToolCallStarted { call_id, tool, arguments, .. } = &record.event {
            let CallArguments { object, text } = CallArguments::from(&**arguments);
            self.calls.push(ToolCallResult {
                call_id: *call_id,
                tool: tool.clone(),
                input: object.into_owned(),
                arguments_text: text.map(Cow::into_owned),
                iteration: record.step,
                result: None,
                error: None,
                blocked_by: None,
            });
        }
        if let SessionEvent::MessageCompleted { text, .. } = &record.event {
            self.response.clone_from(text);
        }
        let ending = ending(&record.event);
        let ends = ending.is_some();
        if ends {
            self.ending = ending;
        }
        ends
    }
}

/// Returns the status that the event gives to the queued message with that id.
fn queued_status(event: &SessionEvent, message_id: &MessageId) -> Option<QueuedMessageStatus> {
    if let SessionEvent::QueuedMessageChanged { message_id: id, .. } = event {
        return (id == message_id).then_some(QueuedMessageStatus::Changed);
    }
    let SessionEvent::QueuedMessageWithdrawn { message_id: id, .. } = event else { return None };
    (id == message_id).then_some(QueuedMessageStatus::Withdrawn)
}

fn ending(event: &SessionEvent) -> Option<RunEnding> {
    if let SessionEvent::RunCompleted { usage, stop_reason, .. } = event {
        return Some(RunEnding::Completed { usage: *usage, stop_reason: *stop_reason });
    }
    if let SessionEvent::RunFailed { code, error, .. } = event {
        return Some(RunEnding::Failed { code: *code, error: error.clone() });
    }
    if let SessionEvent::ApprovalRequested { approval } = event.source_event() {
        return Some(RunEnding::Paused(approval.clone()));
    }
    matches!(event, SessionEvent::RunCancelled { .. }).then_some(RunEnding::Cancelled)
}

/// Returns the call that the event ends, with its result.
fn call_result(event: &SessionEvent) -> Option<(CallId, Result<Value, CallFailure>)> {
    if let SessionEvent::ToolCallCompleted { call_id, output, .. } = event {
        return Some((*call_id, Ok(agent::tool_result(output).into())));
    }
    if let SessionEvent::AuthorizationDenied { call_id, reason, .. } = event {
        let blocked_by = Some("authorization");
        return Some((*call_id, Err(CallFailure { error: reason.clone(), blocked_by })));
    }
    let SessionEvent::ToolCallFailed { call_id, reason, error, .. } = event else { return None };
    let needed_approval =
        matches!(reason, CallFailureReason::Rejected | CallFailureReason::Expired);
    let blocked_by = needed_approval.then_some("approval");
    Some((*call_id, Err(CallFailure { error: error.clone(), blocked_by })))
}
