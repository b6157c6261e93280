//! The course of a delegation, from the task to the answer: one line of steps, each of which waits
//! for what it needs.

use super::{Assignment, Surroundings, Wanted};
use crate::{
    built_in::bounded,
    event_bus::{Attach, Attachment, Live},
    limits::{CHILD_CHECK_INTERVAL, LOG_PAGE_EVENTS, STORE_RETRY_DELAY},
    session::CommandError,
    session_registry::Deliver,
};
use actix::Recipient;
use greenroom_core::{
    call::{ToolOutcome, ToolOutput, outcome::RepeatHint},
    ids::{AgentName, MessageId, Seq, SessionId, UserId},
    limits::TOOL_ERROR_BYTES_MAX,
    policy::Settings,
    session::{EventRecord, Input, Rejection, SessionEvent},
    text::cut,
};
use std::{cell::RefCell, rc::Rc, sync::Arc};
use tokio::{
    sync::{Notify, oneshot},
    time::{sleep, timeout},
};

/// What is wanted of the child while it works, and whether there is something to look at.
#[derive(Default)]
pub(super) struct Wishes {
    close: RefCell<Option<UserId>>,
    narrow: RefCell<Option<Arc<Settings>>>,
    news: Notify,
}

impl Wishes {
    pub(super) fn look(&self) {
        self.news.notify_one();
    }

    pub(super) fn close(&self, by: UserId) {
        *self.close.borrow_mut() = Some(by);
        self.look();
    }

    pub(super) fn narrow(&self, within: Arc<Settings>) {
        *self.narrow.borrow_mut() = Some(within);
        self.look();
    }
}

pub(super) struct Course {
    around: Surroundings,
    assignment: Assignment,
    wishes: Rc<Wishes>,
    attachment: Attachment,
    recipient: Recipient<Live>,
    is_attached: bool,
    /// The last of the child's events that was read.
    read: Seq,
    known: Known,
}

/// What is known of the child by its log.
#[derive(Default)]
struct Known {
    /// Its newest complete message.
    said: Option<(MessageId, String)>,
    ending: Option<Ending>,
    closed: bool,
}

/// How its run ended.
enum Ending {
    Completed { message_id: MessageId },
    Failed { error: String },
    Cancelled { by: UserId },
}

/// There is nothing to do any more.
struct Over;

impl Course {
    pub(super) fn new(
        around: Surroundings,
        assignment: Assignment,
        wishes: Rc<Wishes>,
        attachment: Attachment,
        recipient: Recipient<Live>,
    ) -> Self {
        let (is_attached, read, known) = (false, Seq(0), Known::default());
        Self { around, assignment, wishes, attachment, recipient, is_attached, read, known }
    }

    /// Ends when the child has closed and the parent has its last event; with what becomes of the
    /// call, where that is wanted.
    pub(super) async fn run(mut self) -> Option<ToolOutcome> {
        if let Err(outcome) = self.begin().await {
            return Some(outcome);
        }
        loop {
            self.convey().await;
            self.attach().await;
            match self.tell_page().await {
                Ok(true) => {}
                Ok(false) if self.known.closed => return self.outcome(),
                Ok(false) => self.rest().await,
                Err(Over) => return self.outcome(),
            }
        }
    }

    /// Gives the child its task, unless it has it.
    async fn begin(&self) -> Result<(), ToolOutcome> {
        let Assignment { child, after, end, .. } = &self.assignment;
        let Wanted::Answer { errand, .. } = end else { return Ok(()) };
        if *after == Seq(0) {
            let create = Input::CreateChild { errand: errand.clone() };
            match self.command(*child, create).await {
                Ok(()) => return Ok(()),
                Err(Refused::Rejected(Rejection::SessionExists)) => {}
                Err(refused) => return Err(final_failure(&refused.to_string())),
            }
        }
        // What its parent allows may have become less since.
        self.wishes.narrow.borrow_mut().get_or_insert(errand.settings.clone());
        Ok(())
    }

    /// Tells the child what is wanted of it; what it can't take now is tried again.
    async fn convey(&self) {
        let child = self.assignment.child;
        let within = self.wishes.narrow.take();
        if let Some(within) = within
            && let Err(Refused::Parked(_)) =
                self.command(child, Input::Narrow { within: within.clone() }).await
        {
            self.wishes.narrow.borrow_mut().get_or_insert(within);
        }
        let by = self.wishes.close.borrow().clone();
        if let Some(by) = by {
            let close = Input::Close { by, partial: None };
            if !matches!(self.command(child, close).await, Err(Refused::Parked(_))) {
                self.wishes.close.take();
            }
        }
    }

    /// Sees to it that the bus tells when there is more.
    async fn attach(&mut self) {
        if self.is_attached && !self.attachment.is_detached() {
            return;
        }
        let (attachment, recipient) = (self.attachment.clone(), self.recipient.clone());
        let attach = Attach { session_id: self.assignment.child, attachment, recipient };
        self.is_attached = self.around.bus.ask(attach).await.is_some();
    }

    /// Reads on in the child's log, and tells the parent what it does not know; false where there is
    /// nothing new.
    async fn tell_page(&mut self) -> Result<bool, Over> {
        let (child, after) = (self.assignment.child, self.assignment.after);
        let page = loop {
            match self.around.journal.read(child, self.read, LOG_PAGE_EVENTS).await {
                Ok(page) => break page,
                Err(error) => {
                    tracing::warn!(%child, %error, "a child's log can't be read; trying again");
                    sleep(STORE_RETRY_DELAY).await;
                }
            }
        };
        let Some(last) = page.last().map(|record| record.seq) else {
            return self.nothing_new().await;
        };
        page.iter().for_each(|record| self.known.learn(record));
        let new: Vec<_> = page.into_iter().filter(|record| record.seq > after).collect();
        if !new.is_empty() {
            self.tell_parent(Input::ChildAdvanced { child, records: new.into() }).await?;
        }
        self.read = last;
        Ok(true)
    }

    /// Nothing has happened; or the log is gone, or never began.
    async fn nothing_new(&self) -> Result<bool, Over> {
        let child = self.assignment.child;
        match self.around.journal.head(child).await {
            Ok(Seq(0)) => {
                self.tell_parent(Input::ChildGone { child }).await?;
                Err(Over)
            }
            Ok(_) | Err(_) => Ok(false),
        }
    }

    /// A parent that can't be told comes back from its log, and sees to the child anew.
    async fn tell_parent(&self, input: Input) -> Result<(), Over> {
        self.command(self.around.parent, input).await.map_err(|_| Over)
    }

    /// Waits until there is more, or until it is time to make sure that somebody would tell.
    async fn rest(&self) {
        // Whether it was told or not, it looks.
        drop(timeout(CHILD_CHECK_INTERVAL, self.wishes.news.notified()).await);
    }

    /// What becomes of the call.
    fn outcome(self) -> Option<ToolOutcome> {
        let Wanted::Answer { errand, result_bytes_max, .. } = &self.assignment.end else {
            return None;
        };
        Some(bounded(self.known.outcome(&errand.agent), *result_bytes_max))
    }

    /// Has a session take the input. What passes by itself is waited for.
    async fn command(&self, session_id: SessionId, input: Input) -> Result<(), Refused> {
        loop {
            let (reply, answer) = oneshot::channel();
            let (input, reply) = (input.clone(), Some(reply));
            self.around.registry.tell(Deliver { session_id, input, reply });
            match answer.await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(CommandError::Rejected(rejection))) => {
                    return Err(Refused::Rejected(rejection));
                }
                Ok(Err(CommandError::Parked { error })) => return Err(Refused::Parked(error)),
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
fn final_failure(error: &str) -> ToolOutcome {
    let error = cut(error, TOOL_ERROR_BYTES_MAX).to_owned();
    ToolOutcome::Failed { error, hint: RepeatHint::Final }
}

/// Why a session did not take something, and will not.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Rejected(Rejection),
    #[error("the session is parked: {0}")]
    Parked(String),
}

impl Known {
    fn learn(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::MessageCompleted { message_id, text, .. } = &record.event {
            self.said = Some((message_id.clone(), text.clone()));
        } else if let E::RunCompleted { message_id, .. } = &record.event {
            self.ending = Some(Ending::Completed { message_id: message_id.clone() });
        } else if let E::RunFailed { error, .. } = &record.event {
            self.ending = Some(Ending::Failed { error: error.clone() });
        } else if let E::RunCancelled { by, .. } = &record.event {
            // Of what waited behind its run nothing was to come.
            self.ending.get_or_insert(Ending::Cancelled { by: by.clone() });
        } else if let E::SessionClosed { .. } = &record.event {
            self.closed = true;
        }
    }

    fn outcome(self, agent: &AgentName) -> ToolOutcome {
        match self.ending {
            Some(Ending::Completed { message_id }) => {
                let said = self.said.filter(|(id, _)| *id == message_id);
                let text = said.map(|(_, text)| text).unwrap_or_default();
                ToolOutcome::Completed(ToolOutput { text, ..ToolOutput::default() })
            }
            Some(Ending::Failed { error }) => final_failure(&format!("{agent} failed: {error}")),
            Some(Ending::Cancelled { by }) => {
                final_failure(&format!("{by} cancelled the work of {agent}"))
            }
            None => final_failure(&format!("the session of {agent} is gone, and so is its work")),
        }
    }
}
