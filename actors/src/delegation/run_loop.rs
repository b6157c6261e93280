//! The loop of a delegation, from the task to the result. Its steps run one after another.

use super::{ChildRequest, DelegationDeps, DelegationParams};
use crate::{
    built_in::truncate_outcome,
    event_bus::{BusMessage, Subscribe, SubscriptionHandle},
    limits::{CHILD_CHECK_INTERVAL, LOG_PAGE_EVENTS, STORE_RETRY_DELAY},
    session::CommandError,
    session_registry::DeliverInput,
};
use actix::Recipient;
use greenroom_core::{
    call::{ToolOutcome, ToolOutput, outcome::RetryHint},
    ids::{AgentName, MessageId, Seq, SessionId, UserId},
    limits::TOOL_ERROR_BYTES_MAX,
    policy::Settings,
    session::{EventRecord, Input, Rejection, RunStopReason, SessionEvent},
    text::truncate,
};
use std::{cell::RefCell, rc::Rc, sync::Arc};
use tokio::{
    sync::{Notify, oneshot},
    time::{sleep, timeout},
};

/// The requests not yet sent to the child, and a signal to wake the loop.
#[derive(Default)]
pub(super) struct PendingRequests {
    close: RefCell<Option<UserId>>,
    narrow: RefCell<Option<Arc<Settings>>>,
    wakeup: Notify,
}

impl PendingRequests {
    pub(super) fn wake(&self) {
        self.wakeup.notify_one();
    }

    pub(super) fn request_close(&self, by: UserId) {
        *self.close.borrow_mut() = Some(by);
        self.wake();
    }

    pub(super) fn request_narrow(&self, parent_settings: Arc<Settings>) {
        *self.narrow.borrow_mut() = Some(parent_settings);
        self.wake();
    }
}

pub(super) struct DelegationLoop {
    deps: DelegationDeps,
    params: DelegationParams,
    pending_requests: Rc<PendingRequests>,
    subscription: SubscriptionHandle,
    recipient: Recipient<BusMessage>,
    is_subscribed: bool,
    /// The last of the child's events that was read.
    last_read_seq: Seq,
    child_state: ChildLogState,
}

/// The state of the child according to its log.
#[derive(Default)]
struct ChildLogState {
    /// The child's newest complete message.
    last_message: Option<(MessageId, String)>,
    run_end: Option<RunEnd>,
    closed: bool,
}

/// The end of the child's run.
enum RunEnd {
    Completed { message_id: MessageId, stop_reason: Option<RunStopReason> },
    Failed { error: String },
    Cancelled { by: UserId },
}

/// The loop ends: there is nothing left to do.
struct LoopExit;

impl DelegationLoop {
    pub(super) fn new(
        deps: DelegationDeps,
        params: DelegationParams,
        pending_requests: Rc<PendingRequests>,
        subscription: SubscriptionHandle,
        recipient: Recipient<BusMessage>,
    ) -> Self {
        let (is_subscribed, last_read_seq, child_state) = (false, Seq(0), ChildLogState::default());
        Self {
            deps,
            params,
            pending_requests,
            subscription,
            recipient,
            is_subscribed,
            last_read_seq,
            child_state,
        }
    }

    /// Runs until the child has closed and the parent has its last event. Returns the outcome of
    /// the call if one is needed.
    pub(super) async fn run(mut self) -> Option<ToolOutcome> {
        if let Err(outcome) = self.start_child().await {
            return Some(outcome);
        }
        loop {
            self.send_pending_requests().await;
            self.subscribe().await;
            match self.mirror_page().await {
                Ok(true) => {}
                Ok(false) if self.child_state.closed => return self.outcome(),
                Ok(false) => self.wait_for_wakeup().await,
                Err(LoopExit) => return self.outcome(),
            }
        }
    }

    /// Creates the child with its task, unless the child exists.
    async fn start_child(&self) -> Result<(), ToolOutcome> {
        let DelegationParams { child, after_seq, request, .. } = &self.params;
        let ChildRequest::RunTask { task, .. } = request else { return Ok(()) };
        if *after_seq == Seq(0) {
            let create = Input::CreateChild { task: task.clone() };
            match self.execute(*child, create).await {
                Ok(()) => return Ok(()),
                Err(PermanentCommandError::Rejected(Rejection::SessionExists)) => {}
                Err(error) => return Err(non_retryable_failure(&error.to_string())),
            }
        }
        // The parent's settings may have been tightened since the child was created.
        self.pending_requests.narrow.borrow_mut().get_or_insert(task.settings.clone());
        Ok(())
    }

    /// Sends the pending requests to the child. A request stays pending if the child is parked.
    async fn send_pending_requests(&self) {
        let child = self.params.child;
        let parent_settings = self.pending_requests.narrow.take();
        if let Some(parent_settings) = parent_settings
            && let Err(PermanentCommandError::Parked(_)) = self
                .execute(child, Input::NarrowSettings { parent_settings: parent_settings.clone() })
                .await
        {
            self.pending_requests.narrow.borrow_mut().get_or_insert(parent_settings);
        }
        let by = self.pending_requests.close.borrow().clone();
        if let Some(by) = by {
            let close = Input::CloseSession { by, partial: None };
            if !matches!(self.execute(child, close).await, Err(PermanentCommandError::Parked(_))) {
                self.pending_requests.close.take();
            }
        }
    }

    /// Subscribes to the child's events, unless the subscription is still active.
    async fn subscribe(&mut self) {
        if self.is_subscribed && !self.subscription.is_detached() {
            return;
        }
        let (handle, recipient) = (self.subscription.clone(), self.recipient.clone());
        let request = Subscribe { session_id: self.params.child, handle, recipient };
        self.is_subscribed = self.deps.bus.request(request).await.is_some();
    }

    /// Reads the next page of the child's log and sends new events to the parent. Returns false if
    /// there is no further event.
    async fn mirror_page(&mut self) -> Result<bool, LoopExit> {
        let (child, after_seq) = (self.params.child, self.params.after_seq);
        let page = loop {
            match self.deps.journal.load_events(child, self.last_read_seq, LOG_PAGE_EVENTS).await {
                Ok(page) => break page,
                Err(error) => {
                    tracing::warn!(%child, %error, "failed to read a child's log; retrying");
                    sleep(STORE_RETRY_DELAY).await;
                }
            }
        };
        let Some(last) = page.last().map(|record| record.seq) else {
            return self.check_child_exists().await;
        };
        page.iter().for_each(|record| self.child_state.apply_event(record));
        let new: Vec<_> = page.into_iter().filter(|record| record.seq > after_seq).collect();
        if !new.is_empty() {
            self.send_to_parent(Input::ChildEventsReceived { child, records: new.into() }).await?;
        }
        self.last_read_seq = last;
        Ok(true)
    }

    /// Handles an empty page: reports to the parent if the child's log was purged or never existed.
    async fn check_child_exists(&self) -> Result<bool, LoopExit> {
        let child = self.params.child;
        match self.deps.journal.load_head(child).await {
            Ok(Seq(0)) => {
                self.send_to_parent(Input::ChildGone { child }).await?;
                Err(LoopExit)
            }
            Ok(_) | Err(_) => Ok(false),
        }
    }

    /// Sends an input to the parent. If it fails, the loop ends: the parent is rebuilt from its log
    /// and starts a new delegation.
    async fn send_to_parent(&self, input: Input) -> Result<(), LoopExit> {
        self.execute(self.deps.parent, input).await.map_err(|_| LoopExit)
    }

    /// Waits for a signal, at most until the next check of the subscription.
    async fn wait_for_wakeup(&self) {
        // The loop continues after both a signal and a timeout.
        drop(timeout(CHILD_CHECK_INTERVAL, self.pending_requests.wakeup.notified()).await);
    }

    /// Returns the outcome of the call.
    fn outcome(self) -> Option<ToolOutcome> {
        let ChildRequest::RunTask { task, result_bytes_max, .. } = &self.params.request else {
            return None;
        };
        Some(truncate_outcome(self.child_state.outcome(&task.agent), *result_bytes_max))
    }

    /// Sends an input to a session. Retries after temporary errors.
    async fn execute(
        &self,
        session_id: SessionId,
        input: Input,
    ) -> Result<(), PermanentCommandError> {
        loop {
            let (reply, answer) = oneshot::channel();
            let (input, reply) = (input.clone(), Some(reply));
            self.deps.registry.send(DeliverInput { session_id, input, reply });
            match answer.await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(CommandError::Rejected(rejection))) => {
                    return Err(PermanentCommandError::Rejected(rejection));
                }
                Ok(Err(CommandError::Parked { error })) => {
                    return Err(PermanentCommandError::Parked(error));
                }
                Ok(Err(
                    CommandError::MailboxFull
                    | CommandError::Unavailable(_)
                    | CommandError::Draining,
                ))
                | Err(_) => sleep(STORE_RETRY_DELAY).await,
            }
        }
    }
}

/// Returns a permanent failure: another attempt would find the same child.
fn non_retryable_failure(error: &str) -> ToolOutcome {
    let error = truncate(error, TOOL_ERROR_BYTES_MAX).to_owned();
    ToolOutcome::Failed { error, hint: RetryHint::Permanent }
}

/// Returns what the parent's model must know about an answer that is not complete.
fn describe_incomplete_answer(stop_reason: RunStopReason) -> Option<&'static str> {
    match stop_reason {
        RunStopReason::End => None,
        RunStopReason::Length => Some("the answer was truncated at a length limit"),
        RunStopReason::Refusal => Some("the model refused"),
        RunStopReason::ContentFilter => Some("the provider's content filter cut off the answer"),
        RunStopReason::Empty => Some("the model returned no text"),
    }
}

/// The reason why a session permanently rejects an input.
#[derive(Debug, thiserror::Error)]
enum PermanentCommandError {
    #[error(transparent)]
    Rejected(Rejection),
    #[error("the session is parked: {0}")]
    Parked(String),
}

impl ChildLogState {
    fn apply_event(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::MessageCompleted { message_id, text, .. } = &record.event {
            self.last_message = Some((message_id.clone(), text.clone()));
        } else if let E::RunCompleted { message_id, stop_reason, .. } = &record.event {
            let (message_id, stop_reason) = (message_id.clone(), *stop_reason);
            self.run_end = Some(RunEnd::Completed { message_id, stop_reason });
        } else if let E::RunFailed { error, .. } = &record.event {
            self.run_end = Some(RunEnd::Failed { error: error.clone() });
        } else if let E::RunCancelled { by, .. } = &record.event {
            // The run ended before; this event cancels a message that was queued behind it.
            self.run_end.get_or_insert(RunEnd::Cancelled { by: by.clone() });
        } else if let E::SessionClosed { .. } = &record.event {
            self.closed = true;
        }
    }

    fn outcome(self, agent: &AgentName) -> ToolOutcome {
        match self.run_end {
            Some(RunEnd::Completed { message_id, stop_reason }) => {
                let message = self.last_message.filter(|(id, _)| *id == message_id);
                let mut text = message.map(|(_, text)| text).unwrap_or_default();
                if let Some(problem) = stop_reason.and_then(describe_incomplete_answer) {
                    text = format!("[{agent}: {problem}]\n{text}").trim_end().to_owned();
                }
                ToolOutcome::Completed(ToolOutput { text, ..ToolOutput::default() })
            }
            Some(RunEnd::Failed { error }) => {
                non_retryable_failure(&format!("{agent} failed: {error}"))
            }
            Some(RunEnd::Cancelled { by }) => {
                non_retryable_failure(&format!("{by} cancelled the task of {agent}"))
            }
            None => non_retryable_failure(&format!(
                "the session of {agent} ended before its task was finished"
            )),
        }
    }
}
