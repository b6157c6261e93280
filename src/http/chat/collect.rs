//! Following one run without showing it: what `POST /agent/chat` answers with.

use super::super::{
    AppState, Problem,
    follow::{Follow, Scope},
};
use crate::dialect::agent;
use greenroom_actors::{
    feed::{FeedItem, FeedKind, Offer, Outlet},
    subscriber::Stop,
};
use greenroom_core::{
    approval::Approval,
    call::FailReason,
    cursor::Cursor,
    ids::{CallId, RunId},
    session::{ApprovalState, EventRecord, RunFailure, SessionEvent, SessionRow},
    usage::Spending,
};
use serde::Serialize;
use serde_json::Value;
use std::{cell::RefCell, rc::Rc, sync::Arc};
use tokio::sync::Notify;
use utoipa::ToSchema;

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// The newest complete message.
    pub(super) response: String,
    /// The step the run reached.
    pub(super) iterations: u32,
    /// How it ended, or why it stopped being followed.
    pub(super) ending: Option<Ending>,
    /// Each call, in the order they were proposed.
    pub(super) calls: Vec<Called>,
    /// The subscriber is gone.
    gone: bool,
}

/// How a run ended, or that it waits.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    /// With a final answer.
    Completed(Spending),
    /// By a person.
    Cancelled,
    /// Without an answer.
    Failed {
        /// What kind of failure.
        code: RunFailure,
        /// In words.
        error: String,
    },
    /// Not yet: a person is asked.
    Paused(Arc<Approval>),
}

/// A call with its result, if it has one yet.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolResult)]
pub(super) struct Called {
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

struct Refused {
    error: String,
    blocked_by: Option<&'static str>,
}

/// Follows the run until it ends, or waits for a person.
pub(super) async fn collect(
    state: &AppState,
    session: &SessionRow,
    cursor: Cursor,
    run_id: RunId,
) -> Result<Collected, Problem> {
    let shared = Rc::<Shared>::default();
    let follow = Follow::Run { run_id, until_pause: false };
    let outlet = Box::new(Collector { shared: shared.clone(), follow });
    let (session_id, agent) = (session.session_id, session.agent.clone());
    let subscriber = state.runtime.subscribe(session_id, agent, cursor, outlet);
    let _stop = StopOnDrop(subscriber.recipient());
    loop {
        shared.changed.notified().await;
        let (ending, gone) = {
            let collected = shared.collected.borrow();
            (collected.ending.clone(), collected.gone)
        };
        let done = match ending {
            // What is replayed may have been answered long ago.
            Some(Ending::Paused(approval)) => {
                let row = state.runtime.journal.approval(approval.approval_id).await?;
                row.is_some_and(|row| row.state == ApprovalState::Pending)
            }
            Some(Ending::Completed(_) | Ending::Cancelled | Ending::Failed { .. }) => true,
            None => false,
        };
        if done || gone {
            return Ok(shared.collected.take());
        }
    }
}

struct StopOnDrop(actix::Recipient<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // A full mailbox does not take this; but then its next offer finds nobody.
        drop(self.0.try_send(Stop));
    }
}

#[derive(Default)]
struct Shared {
    collected: RefCell<Collected>,
    changed: Notify,
}

struct Collector {
    shared: Rc<Shared>,
    follow: Follow,
}

impl Outlet for Collector {
    fn offer(&mut self, item: &FeedItem) -> Offer {
        // The handler holds the other one; without it the client is gone.
        if Rc::strong_count(&self.shared) == 1 {
            return Offer::Gone;
        }
        if self.follow.scope(item) == Scope::Outside {
            return Offer::Taken;
        }
        match &item.kind {
            FeedKind::Event(record) => {
                if self.shared.collected.borrow_mut().learn(record) {
                    self.shared.changed.notify_one();
                }
                Offer::Taken
            }
            FeedKind::Delta { .. } => Offer::Taken,
            FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => Offer::Gone,
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.shared.collected.borrow_mut().gone = true;
        self.shared.changed.notify_one();
    }
}

impl Collected {
    /// Takes an event in; true if the run ended or pauses.
    fn learn(&mut self, record: &EventRecord) -> bool {
        if let Some(step) = record.step {
            self.iterations = self.iterations.max(step);
        }
        if let Some((call_id, result)) = end_of_call(&record.event) {
            if let Some(call) = self.calls.iter_mut().find(|call| call.call_id == call_id) {
                match result {
                    Ok(result) => call.result = Some(result),
                    Err(Refused { error, blocked_by }) => {
                        (call.error, call.blocked_by) = (Some(error), blocked_by);
                    }
                }
            }
            return false;
        }
        if let SessionEvent::ToolCallStarted { call_id, tool, arguments, .. } = &record.event {
            self.calls.push(Called {
                call_id: *call_id,
                tool: tool.clone(),
                input: agent::arguments(arguments).into(),
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

fn ending(event: &SessionEvent) -> Option<Ending> {
    if let SessionEvent::RunCompleted { usage, .. } = event {
        return Some(Ending::Completed(*usage));
    }
    if let SessionEvent::RunFailed { code, error, .. } = event {
        return Some(Ending::Failed { code: *code, error: error.clone() });
    }
    if let SessionEvent::ApprovalRequested { approval } = event.innermost() {
        return Some(Ending::Paused(approval.clone()));
    }
    matches!(event, SessionEvent::RunCancelled { .. }).then_some(Ending::Cancelled)
}

/// The call that the event ends, and with what.
fn end_of_call(event: &SessionEvent) -> Option<(CallId, Result<Value, Refused>)> {
    if let SessionEvent::ToolCallCompleted { call_id, output, .. } = event {
        return Some((*call_id, Ok(agent::result(output).into())));
    }
    if let SessionEvent::AuthorizationDenied { call_id, reason, .. } = event {
        let blocked_by = Some("authorization");
        return Some((*call_id, Err(Refused { error: reason.clone(), blocked_by })));
    }
    let SessionEvent::ToolCallFailed { call_id, reason, error, .. } = event else { return None };
    let asked = matches!(reason, FailReason::Rejected | FailReason::Expired);
    let blocked_by = asked.then_some("approval");
    Some((*call_id, Err(Refused { error: error.clone(), blocked_by })))
}
