//! One client's view of one session: replay from a cursor, then tail (E2 to E4).
//!
//! A `Subscriber` attaches to the bus first and reads the log second, so nothing falls between.
//! What it tells is in order, without gap and without repetition: events by their numbers, text
//! by its bytes. Before a message's completion it tells whatever of the text is missing, so text
//! alone always adds up to the message, whether it was heard live, replayed, or resumed inside.
//!
//! It puts what it has to tell into an [`Outlet`]. When that is full it lets go of the bus and
//! waits for [`Drained`]; when the bus lets go of it, it attaches again. Either way it then
//! catches up from the log. It knows no transport and no dialect.

use crate::{
    event_bus::{BusMessage, EventBus, OpenMessage, Subscribe, SubscriptionHandle, Unsubscribe},
    feed::{CommittedEvent, DeliveryOutcome, FeedItem, FeedKind, Outlet},
    limits::{
        LOG_PAGE_EVENTS, SUBSCRIBER_BACKLOG_MAX, SUBSCRIBER_MAILBOX_MAX, SUBSCRIBER_PAGE_EVENTS_MIN,
    },
    mailbox::Mailbox,
    order::{ActorOrder, ExecuteOrder},
    ports::{Journal, JournalError},
    status_board::StatusEntry,
};
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture,
};
use greenroom_core::{
    cursor::Cursor,
    ids::{AgentName, MessageId, RunId, Seq, SessionId},
    session::{EventRecord, SessionEvent},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The actor.
pub struct Subscriber {
    session_id: SessionId,
    agent: AgentName,
    journal: Arc<dyn Journal>,
    bus: Mailbox<EventBus>,
    outlet: Box<dyn Outlet>,
    subscription: SubscriptionHandle,
    status_entry: StatusEntry,
    phase: Phase,
    seq: Seq,
    open_message: Option<OpenMessageProgress>,
    backlog: VecDeque<BusMessage>,
    overrun: bool,
    /// Events to read from the log at once: more while the client takes them all.
    page_events: usize,
    /// Whether the session was purged.
    is_purged: bool,
    _count_guard: SubscriberCountGuard,
}

/// What it is doing.
enum Phase {
    /// Finding out what is open at the cursor; attaching; reading the log.
    CatchingUp,
    /// Telling what comes.
    Tailing,
    /// The outlet is full.
    Stalled,
}

/// The message that is open for this client.
#[derive(Clone, Debug)]
pub(crate) struct OpenMessageProgress {
    pub(crate) message_id: MessageId,
    run_id: Option<RunId>,
    step: u32,
    /// Bytes of its text that were told.
    bytes_sent: usize,
}

/// What a client wants to be told.
pub(crate) struct SubscriptionRequest {
    pub(crate) session_id: SessionId,
    pub(crate) agent: AgentName,
    pub(crate) cursor: Cursor,
}

/// Counts the subscribers of a session while it lives.
pub(crate) struct SubscriberCountGuard(pub(crate) Arc<AtomicUsize>);

impl SubscriberCountGuard {
    pub(crate) fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for SubscriberCountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The outlet has room again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct OutletDrained;

/// Nobody listens any more.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StopSubscriber;

/// The outlet did not take it all; what was told is remembered.
struct DeliveryError(DeliveryOutcome);

impl Subscriber {
    /// A subscriber that begins at `cursor` when the actor starts.
    pub(crate) fn new(
        what: SubscriptionRequest,
        journal: Arc<dyn Journal>,
        bus: Mailbox<EventBus>,
        outlet: Box<dyn Outlet>,
        watch: StatusEntry,
        counted: SubscriberCountGuard,
    ) -> Self {
        let SubscriptionRequest { session_id, agent, cursor } = what;
        let told = usize::try_from(cursor.offset).unwrap_or(usize::MAX);
        Self {
            session_id,
            agent,
            journal,
            bus,
            outlet,
            subscription: SubscriptionHandle::new(watch.clone()),
            status_entry: watch,
            phase: Phase::CatchingUp,
            seq: cursor.seq,
            // Its id is found out before anything is told.
            open_message: None,
            backlog: VecDeque::new(),
            overrun: false,
            page_events: SUBSCRIBER_PAGE_EVENTS_MIN,
            is_purged: false,
            _count_guard: counted,
        }
        .with_bytes_sent(told)
    }

    fn with_bytes_sent(mut self, told: usize) -> Self {
        if told > 0 {
            let nobody = MessageId::from_uuid(self.session_id.0);
            self.open_message = Some(OpenMessageProgress {
                message_id: nobody,
                run_id: None,
                step: 0,
                bytes_sent: told,
            });
        }
        self
    }

    fn cursor(&self) -> Cursor {
        let told = self.open_message.as_ref().map_or(0, |open| open.bytes_sent);
        Cursor { seq: self.seq, offset: u64::try_from(told).unwrap_or(u64::MAX) }
    }

    /// Learns which message is open at the cursor, then catches up.
    fn load_open_message(&mut self, ctx: &mut Context<Self>) {
        let (journal, session_id, seq) = (self.journal.clone(), self.session_id, self.seq);
        let found = async move { load_open_message_at(journal.as_ref(), session_id, seq).await };
        ctx.wait(found.into_actor(self).map(|found, actor, ctx| match found {
            Ok(found) => {
                let told = actor.open_message.as_ref().map_or(0, |open| open.bytes_sent);
                actor.open_message =
                    found.map(|open| OpenMessageProgress { bytes_sent: told, ..open });
                actor.catch_up(ctx);
            }
            Err(error) => actor.fail_stream(&error.to_string(), ctx),
        }));
    }

    /// Attaches to the bus, then reads the log up to where the bus takes over.
    fn catch_up(&mut self, ctx: &mut Context<Self>) {
        self.enter_phase(Phase::CatchingUp);
        self.backlog.clear();
        self.overrun = false;
        self.unsubscribe();
        self.subscription = SubscriptionHandle::new(self.status_entry.clone());
        let attach = Subscribe {
            session_id: self.session_id,
            handle: self.subscription.clone(),
            recipient: ctx.address().recipient(),
        };
        let bus = self.bus.clone();
        let attached = async move { bus.ask(attach).await };
        ctx.spawn(attached.into_actor(self).map(|open, actor, ctx| match open {
            Some(open) => actor.replay(open, ctx),
            None => actor.fail_stream("the event bus is gone", ctx),
        }));
    }

    fn replay(&mut self, live: Option<OpenMessage>, ctx: &mut Context<Self>) {
        let (journal, session_id, seq) = (self.journal.clone(), self.session_id, self.seq);
        let limit = self.page_events;
        let page = async move { journal.load_events(session_id, seq, limit).await };
        ctx.spawn(page.into_actor(self).map(move |page, actor, ctx| {
            let page = match page {
                Ok(page) => page,
                Err(error) => return actor.fail_stream(&error.to_string(), ctx),
            };
            if page.is_empty() && actor.seq > Seq(0) {
                return actor.tail_unless_purged(live, ctx);
            }
            let more = page.len() == limit;
            for record in page {
                if let Err(interrupted) = actor.send_event(record.into()) {
                    return actor.handle_delivery_error(interrupted, ctx);
                }
            }
            if more {
                actor.page_events = LOG_PAGE_EVENTS.min(limit * 2);
                return actor.replay(live, ctx);
            }
            actor.tail(live, ctx);
        }));
    }

    /// The log has nothing more: because nothing happened, or because the session is gone.
    fn tail_unless_purged(&mut self, live: Option<OpenMessage>, ctx: &mut Context<Self>) {
        let (journal, session_id) = (self.journal.clone(), self.session_id);
        let head = async move { journal.load_head(session_id).await };
        ctx.spawn(head.into_actor(self).map(move |head, actor, ctx| match head {
            Ok(Seq(0)) => actor.close_purged(ctx),
            Ok(_) => actor.tail(live, ctx),
            Err(error) => actor.fail_stream(&error.to_string(), ctx),
        }));
    }

    /// From here on it tells what comes.
    fn tail(&mut self, live: Option<OpenMessage>, ctx: &mut Context<Self>) {
        let told = self.send_open_text(live).and_then(|()| self.send_backlog());
        match told {
            _ if self.is_purged => self.close_purged(ctx),
            Err(interrupted) => self.handle_delivery_error(interrupted, ctx),
            Ok(()) if self.overrun || self.subscription.is_detached() => self.catch_up(ctx),
            Ok(()) => self.enter_phase(Phase::Tailing),
        }
    }

    /// Tells what the bus knows of the open message and the client does not.
    fn send_open_text(&mut self, live: Option<OpenMessage>) -> Result<(), DeliveryError> {
        let (Some(live), Some(open)) = (live, &self.open_message) else { return Ok(()) };
        if live.message_id != open.message_id {
            return Ok(());
        }
        self.send_text_up_to(&live.text)
    }

    fn send_backlog(&mut self) -> Result<(), DeliveryError> {
        // Its room goes with it: a client may stay for hours.
        for live in std::mem::take(&mut self.backlog) {
            self.send_bus_message(live)?;
        }
        Ok(())
    }

    fn send_bus_message(&mut self, live: BusMessage) -> Result<(), DeliveryError> {
        match live {
            BusMessage::Committed { records, .. } => {
                for record in CommittedEvent::iter_commit(&records) {
                    if record.seq > self.seq.next() {
                        // The bus has skipped something: the log has it.
                        self.overrun = true;
                        return Ok(());
                    }
                    if record.seq > self.seq {
                        self.send_event(record)?;
                    }
                }
                Ok(())
            }
            BusMessage::Delta(delta) => {
                let Some(open) = &mut self.open_message else { return Ok(()) };
                let end = delta.offset + delta.text.len();
                if delta.message_id != open.message_id || end <= open.bytes_sent {
                    return Ok(());
                }
                (open.run_id, open.step) = (Some(delta.run_id), delta.step);
                let Some(text) = open.bytes_sent.checked_sub(delta.offset).map(|skip| {
                    if skip == 0 { delta.text.clone() } else { delta.text[skip..].into() }
                }) else {
                    self.overrun = true;
                    return Ok(());
                };
                self.send_text(text)
            }
            BusMessage::Draining => self.send_item(FeedKind::Draining, self.cursor()),
            BusMessage::Purged => {
                self.is_purged = true;
                Ok(())
            }
        }
    }

    /// Tells an event, after what is missing of the text that it completes.
    fn send_event(&mut self, record: CommittedEvent) -> Result<(), DeliveryError> {
        if record.seq <= self.seq {
            return Ok(());
        }
        if let SessionEvent::MessageCompleted { message_id, text, .. } = &record.event
            && let Some(open) = &mut self.open_message
            && open.message_id == *message_id
        {
            (open.run_id, open.step) = (record.run_id, record.step.unwrap_or(open.step));
            self.send_text_up_to(text)?;
        }
        let open = open_message_after(self.open_message.as_ref(), &record);
        let told = open.as_ref().map_or(0, |open| open.bytes_sent);
        let offset = u64::try_from(told).unwrap_or(u64::MAX);
        let seq = record.seq;
        self.send_item(FeedKind::Event(record), Cursor { seq, offset })?;
        (self.seq, self.open_message) = (seq, open);
        Ok(())
    }

    fn send_text_up_to(&mut self, text: &str) -> Result<(), DeliveryError> {
        let Some(open) = &self.open_message else { return Ok(()) };
        // A cursor that was checked is between characters and within the text; one from another
        // life of the message may be neither, and then gets the rest from the next character on.
        let told = text.ceil_char_boundary(open.bytes_sent.min(text.len()));
        match &text[told..] {
            "" => Ok(()),
            rest => self.send_text(rest.into()),
        }
    }

    fn send_text(&mut self, text: Arc<str>) -> Result<(), DeliveryError> {
        let Some(open) = &self.open_message else { return Ok(()) };
        let Some(run_id) = open.run_id else { return Ok(()) };
        let (step, message_id) = (open.step, open.message_id.clone());
        let told = open.bytes_sent + text.len();
        let offset = u64::try_from(told).unwrap_or(u64::MAX);
        let delta = FeedKind::Delta { run_id, step, message_id, text };
        self.send_item(delta, Cursor { seq: self.seq, offset })?;
        if let Some(open) = &mut self.open_message {
            open.bytes_sent = told;
        }
        Ok(())
    }

    fn send_item(&mut self, kind: FeedKind, cursor: Cursor) -> Result<(), DeliveryError> {
        let (session_id, agent) = (self.session_id, self.agent.clone());
        match self.outlet.try_send(&FeedItem { session_id, agent, cursor, kind }) {
            DeliveryOutcome::Accepted => Ok(()),
            refused @ (DeliveryOutcome::Full | DeliveryOutcome::Closed) => {
                Err(DeliveryError(refused))
            }
        }
    }

    fn enter_phase(&mut self, phase: Phase) {
        let (state, waiting_for) = match phase {
            Phase::CatchingUp => ("catching up", Some("the log".to_owned())),
            Phase::Tailing => ("tailing", None),
            Phase::Stalled => ("stalled", Some("the client, to read".to_owned())),
        };
        self.status_entry.set_state(state, waiting_for);
        self.phase = phase;
    }

    fn handle_delivery_error(
        &mut self,
        DeliveryError(offer): DeliveryError,
        ctx: &mut Context<Self>,
    ) {
        self.unsubscribe();
        self.backlog.clear();
        match offer {
            DeliveryOutcome::Accepted | DeliveryOutcome::Full => {
                // What was read and not taken is read again; it may be large.
                self.page_events = SUBSCRIBER_PAGE_EVENTS_MIN;
                self.enter_phase(Phase::Stalled);
            }
            DeliveryOutcome::Closed => ctx.stop(),
        }
    }

    fn fail_stream(&mut self, error: &str, ctx: &mut Context<Self>) {
        // If even this finds no room, the closed stream says it.
        drop(self.send_item(FeedKind::Broken(error.to_owned()), self.cursor()));
        ctx.stop();
    }

    /// The session is gone; so is whoever listens to it.
    fn close_purged(&mut self, ctx: &mut Context<Self>) {
        // If this finds no room, the closed stream and a 404 say it.
        drop(self.send_item(FeedKind::Purged, self.cursor()));
        ctx.stop();
    }

    fn unsubscribe(&self) {
        let (session_id, attachment) = (Some(self.session_id), self.subscription.clone());
        self.bus.send(Unsubscribe { session_id, handle: attachment });
    }
}

impl Actor for Subscriber {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SUBSCRIBER_MAILBOX_MAX);
        self.status_entry.accept_orders(&[ActorOrder::Stop], ctx.address().downgrade().recipient());
        self.load_open_message(ctx);
    }

    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.unsubscribe();
    }
}

impl Handler<BusMessage> for Subscriber {
    type Result = ();

    fn handle(&mut self, live: BusMessage, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        match self.phase {
            Phase::Stalled => {}
            Phase::CatchingUp if self.backlog.len() < SUBSCRIBER_BACKLOG_MAX => {
                self.backlog.push_back(live);
            }
            Phase::CatchingUp => self.overrun = true,
            Phase::Tailing => match self.send_bus_message(live) {
                _ if self.is_purged => self.close_purged(ctx),
                Err(interrupted) => self.handle_delivery_error(interrupted, ctx),
                Ok(()) if self.overrun || self.subscription.is_detached() => self.catch_up(ctx),
                Ok(()) => {}
            },
        }
    }
}

impl Handler<OutletDrained> for Subscriber {
    type Result = ();

    fn handle(&mut self, _: OutletDrained, ctx: &mut Self::Context) {
        if matches!(self.phase, Phase::Stalled) {
            self.catch_up(ctx);
        }
    }
}

/// Its client may come again, where it left off (A2).
impl Handler<ExecuteOrder> for Subscriber {
    type Result = ();

    fn handle(&mut self, _: ExecuteOrder, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        ctx.stop();
    }
}

impl Handler<StopSubscriber> for Subscriber {
    type Result = ();

    fn handle(&mut self, _: StopSubscriber, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

/// The message that is open after `record`.
fn open_message_after(
    open: Option<&OpenMessageProgress>,
    record: &EventRecord,
) -> Option<OpenMessageProgress> {
    if let SessionEvent::MessageStarted { message_id } = &record.event {
        let (message_id, run_id) = (message_id.clone(), record.run_id);
        return Some(OpenMessageProgress {
            message_id,
            run_id,
            step: record.step.unwrap_or(0),
            bytes_sent: 0,
        });
    }
    let ends = matches!(
        record.event,
        SessionEvent::MessageCompleted { .. } | SessionEvent::MessageDiscarded { .. }
    );
    open.filter(|_| !ends).cloned()
}

/// The message that is open right after event `seq`.
///
/// Reads backwards: a message's start is near, since little else happens while one is open. So a
/// small page comes first.
pub(crate) async fn load_open_message_at(
    journal: &dyn Journal,
    session_id: SessionId,
    seq: Seq,
) -> Result<Option<OpenMessageProgress>, JournalError> {
    let mut end = seq.0;
    let mut limit = SUBSCRIBER_PAGE_EVENTS_MIN;
    while end > 0 {
        let count = limit.min(usize::try_from(end).unwrap_or(limit));
        let start = end.saturating_sub(u64::try_from(count).unwrap_or(end));
        let page = journal.load_events(session_id, Seq(start), count).await?;
        for record in page.iter().rev() {
            if let SessionEvent::MessageStarted { .. } = &record.event {
                return Ok(open_message_after(None, record));
            } else if let SessionEvent::MessageCompleted { .. }
            | SessionEvent::MessageDiscarded { .. } = &record.event
            {
                return Ok(None);
            }
        }
        (end, limit) = (start, LOG_PAGE_EVENTS);
    }
    Ok(None)
}
