//! Following one run without showing it: what `POST /agent/chat` answers with.

use super::super::{
    AppState, Problem,
    stream_filter::{FilterMatch, StreamFilter},
};
use crate::dialect::agent;
use greenroom_actors::{
    feed::{DeliveryOutcome, FeedItem, FeedKind, Outlet},
    subscriber::StopSubscriber,
};
use greenroom_core::{
    approval::Approval,
    call::CallFailureReason,
    cursor::Cursor,
    ids::{CallId, RunId},
    session::{ApprovalState, EventRecord, RunFailureCode, SessionEvent, SessionRow},
    usage::ModelUsage,
};
use serde::Serialize;
use serde_json::Value;
use std::{cell::RefCell, rc::Rc, sync::Arc};
use tokio::sync::Notify;
use utoipa::ToSchema;

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct CollectedRun {
    /// The newest complete message.
    pub(super) response: String,
    /// The step the run reached.
    pub(super) last_step: u32,
    /// How it ended, or why it stopped being followed.
    pub(super) ending: Option<RunEnding>,
    /// Each call, in the order they were proposed.
    pub(super) calls: Vec<ToolCallResult>,
    /// The subscriber is gone.
    is_detached: bool,
}

/// How a run ended, or that it waits.
#[derive(Clone, Debug)]
pub(super) enum RunEnding {
    /// With a final answer.
    Completed(ModelUsage),
    /// By a person.
    Cancelled,
    /// Without an answer.
    Failed {
        /// What kind of failure.
        code: RunFailureCode,
        /// In words.
        error: String,
    },
    /// Not yet: a person is asked.
    Paused(Arc<Approval>),
}

/// A call with its result, if it has one yet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolResult)]
pub(super) struct ToolCallResult {
    call_id: CallId,
    tool: String,
    input: Value,
    /// The step that proposed it.
    iteration: Option<u32>,
    /// What it gave back: structured where it can be, else text.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    /// Why it gave nothing back.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// `authorization` or `approval`, if it was not let run.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_by: Option<&'static str>,
}

struct CallFailure {
    error: String,
    blocked_by: Option<&'static str>,
}

/// Follows the run until it ends, or waits for a person.
pub(super) async fn collect(
    state: &AppState,
    session: &SessionRow,
    cursor: Cursor,
    run_id: RunId,
) -> Result<CollectedRun, Problem> {
    let shared = Rc::<CollectorState>::default();
    let follow = StreamFilter::Run { run_id, until_pause: false };
    let outlet = Box::new(RunCollector { shared: shared.clone(), filter: follow });
    let (session_id, agent) = (session.session_id, session.agent.clone());
    let subscriber = state.runtime.subscribe(session_id, agent, cursor, outlet);
    let _stop = StopOnDrop(subscriber.recipient());
    loop {
        shared.changed.notified().await;
        let (ending, gone) = {
            let collected = shared.collected.borrow();
            (collected.ending.clone(), collected.is_detached)
        };
        let done = match ending {
            // What is replayed may have been answered long ago.
            Some(RunEnding::Paused(approval)) => {
                let row = state.runtime.journal.load_approval(approval.approval_id).await?;
                row.is_some_and(|row| row.state == ApprovalState::Pending)
            }
            Some(RunEnding::Completed(_) | RunEnding::Cancelled | RunEnding::Failed { .. }) => true,
            None => false,
        };
        if done || gone {
            return Ok(shared.collected.take());
        }
    }
}

struct StopOnDrop(actix::Recipient<StopSubscriber>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // A full mailbox does not take this; but then its next offer finds nobody.
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
}

impl Outlet for RunCollector {
    fn try_send(&mut self, item: &FeedItem) -> DeliveryOutcome {
        // The handler holds the other one; without it the client is gone.
        if Rc::strong_count(&self.shared) == 1 {
            return DeliveryOutcome::Closed;
        }
        if self.filter.classify(item) == FilterMatch::Excluded {
            return DeliveryOutcome::Accepted;
        }
        match &item.kind {
            FeedKind::Event(record) => {
                if self.shared.collected.borrow_mut().apply_event(record) {
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
    /// Takes an event in; true if the run ended or pauses.
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
            self.calls.push(ToolCallResult {
                call_id: *call_id,
                tool: tool.clone(),
                input: agent::call_arguments(arguments).into(),
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

fn ending(event: &SessionEvent) -> Option<RunEnding> {
    if let SessionEvent::RunCompleted { usage, .. } = event {
        return Some(RunEnding::Completed(*usage));
    }
    if let SessionEvent::RunFailed { code, error, .. } = event {
        return Some(RunEnding::Failed { code: *code, error: error.clone() });
    }
    if let SessionEvent::ApprovalRequested { approval } = event.source_event() {
        return Some(RunEnding::Paused(approval.clone()));
    }
    matches!(event, SessionEvent::RunCancelled { .. }).then_some(RunEnding::Cancelled)
}

/// The call that the event ends, and with what.
fn call_result(event: &SessionEvent) -> Option<(CallId, Result<Value, CallFailure>)> {
    if let SessionEvent::ToolCallCompleted { call_id, output, .. } = event {
        return Some((*call_id, Ok(agent::tool_result(output).into())));
    }
    if let SessionEvent::AuthorizationDenied { call_id, reason, .. } = event {
        let blocked_by = Some("authorization");
        return Some((*call_id, Err(CallFailure { error: reason.clone(), blocked_by })));
    }
    let SessionEvent::ToolCallFailed { call_id, reason, error, .. } = event else { return None };
    let asked = matches!(reason, CallFailureReason::Rejected | CallFailureReason::Expired);
    let blocked_by = asked.then_some("approval");
    Some((*call_id, Err(CallFailure { error: error.clone(), blocked_by })))
}
