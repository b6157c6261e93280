//! The course of a delegation, from the task to the answer: one line of steps, each of which waits
//! for what it needs.

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
    session::{EventRecord, Input, Rejection, SessionEvent},
    text::truncate,
};
use std::{cell::RefCell, rc::Rc, sync::Arc};
use tokio::{
    sync::{Notify, oneshot},
    time::{sleep, timeout},
};

/// What is wanted of the child while it works, and whether there is something to look at.
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

    pub(super) fn request_narrow(&self, within: Arc<Settings>) {
        *self.narrow.borrow_mut() = Some(within);
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

/// What is known of the child by its log.
#[derive(Default)]
struct ChildLogState {
    /// Its newest complete message.
    last_message: Option<(MessageId, String)>,
    run_end: Option<RunEnd>,
    closed: bool,
}

/// How its run ended.
enum RunEnd {
    Completed { message_id: MessageId },
    Failed { error: String },
    Cancelled { by: UserId },
}

/// There is nothing to do any more.
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

    /// Ends when the child has closed and the parent has its last event; with what becomes of the
    /// call, where that is wanted.
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

    /// Gives the child its task, unless it has it.
    async fn start_child(&self) -> Result<(), ToolOutcome> {
        let DelegationParams { child, after_seq: after, request: end, .. } = &self.params;
        let ChildRequest::RunTask { task: errand, .. } = end else { return Ok(()) };
        if *after == Seq(0) {
            let create = Input::CreateChild { task: errand.clone() };
            match self.execute(*child, create).await {
                Ok(()) => return Ok(()),
                Err(PermanentCommandError::Rejected(Rejection::SessionExists)) => {}
                Err(refused) => return Err(non_retryable_failure(&refused.to_string())),
            }
        }
        // What its parent allows may have become less since.
        self.pending_requests.narrow.borrow_mut().get_or_insert(errand.settings.clone());
        Ok(())
    }

    /// Tells the child what is wanted of it; what it can't take now is tried again.
    async fn send_pending_requests(&self) {
        let child = self.params.child;
        let within = self.pending_requests.narrow.take();
        if let Some(within) = within
            && let Err(PermanentCommandError::Parked(_)) =
                self.execute(child, Input::NarrowSettings { parent_settings: within.clone() }).await
        {
            self.pending_requests.narrow.borrow_mut().get_or_insert(within);
        }
        let by = self.pending_requests.close.borrow().clone();
        if let Some(by) = by {
            let close = Input::CloseSession { by, partial: None };
            if !matches!(self.execute(child, close).await, Err(PermanentCommandError::Parked(_))) {
                self.pending_requests.close.take();
            }
        }
    }

    /// Sees to it that the bus tells when there is more.
    async fn subscribe(&mut self) {
        if self.is_subscribed && !self.subscription.is_detached() {
            return;
        }
        let (attachment, recipient) = (self.subscription.clone(), self.recipient.clone());
        let attach = Subscribe { session_id: self.params.child, handle: attachment, recipient };
        self.is_subscribed = self.deps.bus.ask(attach).await.is_some();
    }

    /// Reads on in the child's log, and tells the parent what it does not know; false where there is
    /// nothing new.
    async fn mirror_page(&mut self) -> Result<bool, LoopExit> {
        let (child, after) = (self.params.child, self.params.after_seq);
        let page = loop {
            match self.deps.journal.load_events(child, self.last_read_seq, LOG_PAGE_EVENTS).await {
                Ok(page) => break page,
                Err(error) => {
                    tracing::warn!(%child, %error, "a child's log can't be read; trying again");
                    sleep(STORE_RETRY_DELAY).await;
                }
            }
        };
        let Some(last) = page.last().map(|record| record.seq) else {
            return self.check_child_exists().await;
        };
        page.iter().for_each(|record| self.child_state.apply_event(record));
        let new: Vec<_> = page.into_iter().filter(|record| record.seq > after).collect();
        if !new.is_empty() {
            self.send_to_parent(Input::ChildEventsReceived { child, records: new.into() }).await?;
        }
        self.last_read_seq = last;
        Ok(true)
    }

    /// Nothing has happened; or the log is gone, or never began.
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

    /// A parent that can't be told comes back from its log, and sees to the child anew.
    async fn send_to_parent(&self, input: Input) -> Result<(), LoopExit> {
        self.execute(self.deps.parent, input).await.map_err(|_| LoopExit)
    }

    /// Waits until there is more, or until it is time to make sure that somebody would tell.
    async fn wait_for_wakeup(&self) {
        // Whether it was told or not, it looks.
        drop(timeout(CHILD_CHECK_INTERVAL, self.pending_requests.wakeup.notified()).await);
    }

    /// What becomes of the call.
    fn outcome(self) -> Option<ToolOutcome> {
        let ChildRequest::RunTask { task: errand, result_bytes_max, .. } = &self.params.request
        else {
            return None;
        };
        Some(truncate_outcome(self.child_state.outcome(&errand.agent), *result_bytes_max))
    }

    /// Has a session take the input. What passes by itself is waited for.
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

/// A failure that stays one: another attempt finds the same child.
fn non_retryable_failure(error: &str) -> ToolOutcome {
    let error = truncate(error, TOOL_ERROR_BYTES_MAX).to_owned();
    ToolOutcome::Failed { error, hint: RetryHint::Permanent }
}

/// Why a session did not take something, and will not.
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
        } else if let E::RunCompleted { message_id, .. } = &record.event {
            self.run_end = Some(RunEnd::Completed { message_id: message_id.clone() });
        } else if let E::RunFailed { error, .. } = &record.event {
            self.run_end = Some(RunEnd::Failed { error: error.clone() });
        } else if let E::RunCancelled { by, .. } = &record.event {
            // Of what waited behind its run nothing was to come.
            self.run_end.get_or_insert(RunEnd::Cancelled { by: by.clone() });
        } else if let E::SessionClosed { .. } = &record.event {
            self.closed = true;
        }
    }

    fn outcome(self, agent: &AgentName) -> ToolOutcome {
        match self.run_end {
            Some(RunEnd::Completed { message_id }) => {
                let said = self.last_message.filter(|(id, _)| *id == message_id);
                let text = said.map(|(_, text)| text).unwrap_or_default();
                ToolOutcome::Completed(ToolOutput { text, ..ToolOutput::default() })
            }
            Some(RunEnd::Failed { error }) => {
                non_retryable_failure(&format!("{agent} failed: {error}"))
            }
            Some(RunEnd::Cancelled { by }) => {
                non_retryable_failure(&format!("{by} cancelled the work of {agent}"))
            }
            None => non_retryable_failure(&format!(
                "the session of {agent} is gone, and so is its work"
            )),
        }
    }
}
