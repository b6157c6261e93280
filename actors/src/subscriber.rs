//! One client's subscription to one session: replay from a cursor, then tail (E2 to E4).
//!
//! A `Subscriber` subscribes to the event bus before it reads the log, so no event is lost in
//! between. It delivers items in order, without gaps and without repetition: events by their
//! numbers, text by byte offset. Before a message's completion it delivers the missing rest of the
//! text, so the deltas always add up to the message, no matter if they were streamed, replayed or
//! resumed in the middle.
//!
//! Items are handed to an [`Outlet`]. When the outlet is full, the subscriber unsubscribes and
//! waits for [`OutletDrained`]; when the bus detaches the subscriber, it subscribes again. In both
//! cases it then catches up from the log. It knows no transport and no dialect.

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

/// The subscriber actor.
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
    /// Number of events to read from the log in one query. Grows while the client accepts them.
    page_events: usize,
    /// True once the session was purged.
    is_purged: bool,
    _count_guard: SubscriberCountGuard,
}

/// The phase of a subscriber.
enum Phase {
    /// Loading the open message, subscribing to the bus, or reading the log.
    CatchingUp,
    /// Delivering live items.
    Tailing,
    /// Waiting for the outlet to drain.
    Stalled,
}

/// The message that is open at the client's cursor, with the delivered part of its text.
#[derive(Clone, Debug)]
pub(crate) struct OpenMessageProgress {
    pub(crate) message_id: MessageId,
    run_id: Option<RunId>,
    step: u32,
    /// Number of bytes of the text that were delivered.
    bytes_sent: usize,
}

/// The session and the cursor a client subscribes from.
pub(crate) struct SubscriptionRequest {
    pub(crate) session_id: SessionId,
    pub(crate) agent: AgentName,
    pub(crate) cursor: Cursor,
}

/// Counts a subscriber of a session until the guard is dropped.
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

/// Reports that the outlet has room again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct OutletDrained;

/// Stops the subscriber because its client has disconnected.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StopSubscriber;

/// The outlet did not accept an item. The progress up to that item is kept.
struct DeliveryError(DeliveryOutcome);

impl Subscriber {
    /// Creates a subscriber that starts at the request's cursor when the actor starts.
    pub(crate) fn new(
        request: SubscriptionRequest,
        journal: Arc<dyn Journal>,
        bus: Mailbox<EventBus>,
        outlet: Box<dyn Outlet>,
        status_entry: StatusEntry,
        count_guard: SubscriberCountGuard,
    ) -> Self {
        let SubscriptionRequest { session_id, agent, cursor } = request;
        let bytes_sent = usize::try_from(cursor.offset).unwrap_or(usize::MAX);
        Self {
            session_id,
            agent,
            journal,
            bus,
            outlet,
            subscription: SubscriptionHandle::new(status_entry.clone()),
            status_entry,
            phase: Phase::CatchingUp,
            seq: cursor.seq,
            // Set to the stored message before anything is delivered.
            open_message: None,
            backlog: VecDeque::new(),
            overrun: false,
            page_events: SUBSCRIBER_PAGE_EVENTS_MIN,
            is_purged: false,
            _count_guard: count_guard,
        }
        .with_bytes_sent(bytes_sent)
    }

    fn with_bytes_sent(mut self, bytes_sent: usize) -> Self {
        if bytes_sent > 0 {
            let placeholder = MessageId::from_uuid(self.session_id.0);
            self.open_message = Some(OpenMessageProgress {
                message_id: placeholder,
                run_id: None,
                step: 0,
                bytes_sent,
            });
        }
        self
    }

    fn cursor(&self) -> Cursor {
        let bytes_sent =
            self.open_message.as_ref().map_or(0, |open_message| open_message.bytes_sent);
        Cursor { seq: self.seq, offset: u64::try_from(bytes_sent).unwrap_or(u64::MAX) }
    }

    /// Loads the message that is open at the cursor, then catches up.
    fn load_open_message(&mut self, ctx: &mut Context<Self>) {
        let (journal, session_id, seq) = (self.journal.clone(), self.session_id, self.seq);
        let open_message =
            async move { load_open_message_at(journal.as_ref(), session_id, seq).await };
        ctx.wait(open_message.into_actor(self).map(
            |open_message, actor, ctx| match open_message {
                Ok(open_message) => {
                    let bytes_sent = actor
                        .open_message
                        .as_ref()
                        .map_or(0, |open_message| open_message.bytes_sent);
                    actor.open_message = open_message
                        .map(|open_message| OpenMessageProgress { bytes_sent, ..open_message });
                    actor.catch_up(ctx);
                }
                Err(error) => actor.fail_stream(&error.to_string(), ctx),
            },
        ));
    }

    /// Subscribes to the bus, then reads the log up to the first live item.
    fn catch_up(&mut self, ctx: &mut Context<Self>) {
        self.enter_phase(Phase::CatchingUp);
        self.backlog.clear();
        self.overrun = false;
        self.unsubscribe();
        self.subscription = SubscriptionHandle::new(self.status_entry.clone());
        let request = Subscribe {
            session_id: self.session_id,
            handle: self.subscription.clone(),
            recipient: ctx.address().recipient(),
        };
        let bus = self.bus.clone();
        let reply = async move { bus.request(request).await };
        ctx.spawn(reply.into_actor(self).map(|open_message, actor, ctx| match open_message {
            Some(open_message) => actor.replay(open_message, ctx),
            None => actor.fail_stream("the event bus has stopped", ctx),
        }));
    }

    fn replay(&mut self, live_message: Option<OpenMessage>, ctx: &mut Context<Self>) {
        let (journal, session_id, seq) = (self.journal.clone(), self.session_id, self.seq);
        let limit = self.page_events;
        let page = async move { journal.load_events(session_id, seq, limit).await };
        ctx.spawn(page.into_actor(self).map(move |page, actor, ctx| {
            let page = match page {
                Ok(page) => page,
                Err(error) => return actor.fail_stream(&error.to_string(), ctx),
            };
            if page.is_empty() && actor.seq > Seq(0) {
                return actor.tail_unless_purged(live_message, ctx);
            }
            let has_more = page.len() == limit;
            for record in page {
                if let Err(error) = actor.send_event(record.into()) {
                    return actor.handle_delivery_error(error, ctx);
                }
            }
            if has_more {
                actor.page_events = LOG_PAGE_EVENTS.min(limit * 2);
                return actor.replay(live_message, ctx);
            }
            actor.tail(live_message, ctx);
        }));
    }

    /// Handles an empty page: tails, or closes the stream if the session was purged.
    fn tail_unless_purged(&mut self, live_message: Option<OpenMessage>, ctx: &mut Context<Self>) {
        let (journal, session_id) = (self.journal.clone(), self.session_id);
        let head = async move { journal.load_head(session_id).await };
        ctx.spawn(head.into_actor(self).map(move |head, actor, ctx| match head {
            Ok(Seq(0)) => actor.close_purged(ctx),
            Ok(_) => actor.tail(live_message, ctx),
            Err(error) => actor.fail_stream(&error.to_string(), ctx),
        }));
    }

    /// Starts to deliver live items.
    fn tail(&mut self, live_message: Option<OpenMessage>, ctx: &mut Context<Self>) {
        let result = self.send_open_text(live_message).and_then(|()| self.send_backlog());
        match result {
            _ if self.is_purged => self.close_purged(ctx),
            Err(error) => self.handle_delivery_error(error, ctx),
            Ok(()) if self.overrun || self.subscription.is_detached() => self.catch_up(ctx),
            Ok(()) => self.enter_phase(Phase::Tailing),
        }
    }

    /// Delivers the text of the open message that the bus has and the client lacks.
    fn send_open_text(&mut self, live_message: Option<OpenMessage>) -> Result<(), DeliveryError> {
        let (Some(live_message), Some(open_message)) = (live_message, &self.open_message) else {
            return Ok(());
        };
        if live_message.message_id != open_message.message_id {
            return Ok(());
        }
        self.send_text_up_to(&live_message.text)
    }

    fn send_backlog(&mut self) -> Result<(), DeliveryError> {
        // `take` also frees the buffer's memory; a client may stay connected for hours.
        for message in std::mem::take(&mut self.backlog) {
            self.send_bus_message(message)?;
        }
        Ok(())
    }

    fn send_bus_message(&mut self, message: BusMessage) -> Result<(), DeliveryError> {
        match message {
            BusMessage::Committed { records, .. } => {
                for record in CommittedEvent::iter_commit(&records) {
                    if record.seq > self.seq.next() {
                        // The bus skipped an event: catch up from the log.
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
                let Some(open_message) = &mut self.open_message else { return Ok(()) };
                let end = delta.offset + delta.text.len();
                if delta.message_id != open_message.message_id || end <= open_message.bytes_sent {
                    return Ok(());
                }
                (open_message.run_id, open_message.step) = (Some(delta.run_id), delta.step);
                let Some(text) = open_message.bytes_sent.checked_sub(delta.offset).map(|skip| {
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

    /// Delivers an event, after the missing rest of the text that it completes.
    fn send_event(&mut self, record: CommittedEvent) -> Result<(), DeliveryError> {
        if record.seq <= self.seq {
            return Ok(());
        }
        if let SessionEvent::MessageCompleted { message_id, text, .. } = &record.event
            && let Some(open_message) = &mut self.open_message
            && open_message.message_id == *message_id
        {
            (open_message.run_id, open_message.step) =
                (record.run_id, record.step.unwrap_or(open_message.step));
            self.send_text_up_to(text)?;
        }
        let open_message = open_message_after(self.open_message.as_ref(), &record);
        let bytes_sent = open_message.as_ref().map_or(0, |open_message| open_message.bytes_sent);
        let offset = u64::try_from(bytes_sent).unwrap_or(u64::MAX);
        let seq = record.seq;
        self.send_item(FeedKind::Event(record), Cursor { seq, offset })?;
        (self.seq, self.open_message) = (seq, open_message);
        Ok(())
    }

    fn send_text_up_to(&mut self, text: &str) -> Result<(), DeliveryError> {
        let Some(open_message) = &self.open_message else { return Ok(()) };
        // A validated cursor lies within the text and between characters. The cursor of a
        // superseded attempt may not; it then continues at the next character.
        let bytes_sent = text.ceil_char_boundary(open_message.bytes_sent.min(text.len()));
        match &text[bytes_sent..] {
            "" => Ok(()),
            rest => self.send_text(rest.into()),
        }
    }

    fn send_text(&mut self, text: Arc<str>) -> Result<(), DeliveryError> {
        let Some(open_message) = &self.open_message else { return Ok(()) };
        let Some(run_id) = open_message.run_id else { return Ok(()) };
        let (step, message_id) = (open_message.step, open_message.message_id.clone());
        let bytes_sent = open_message.bytes_sent + text.len();
        let offset = u64::try_from(bytes_sent).unwrap_or(u64::MAX);
        let delta = FeedKind::Delta { run_id, step, message_id, text };
        self.send_item(delta, Cursor { seq: self.seq, offset })?;
        if let Some(open_message) = &mut self.open_message {
            open_message.bytes_sent = bytes_sent;
        }
        Ok(())
    }

    fn send_item(&mut self, kind: FeedKind, cursor: Cursor) -> Result<(), DeliveryError> {
        let (session_id, agent) = (self.session_id, self.agent.clone());
        match self.outlet.try_send(&FeedItem { session_id, agent, cursor, kind }) {
            DeliveryOutcome::Accepted => Ok(()),
            outcome @ (DeliveryOutcome::Full | DeliveryOutcome::Closed) => {
                Err(DeliveryError(outcome))
            }
        }
    }

    fn enter_phase(&mut self, phase: Phase) {
        let (state, waiting_for) = match phase {
            Phase::CatchingUp => ("catching up", Some("the log".to_owned())),
            Phase::Tailing => ("tailing", None),
            Phase::Stalled => ("stalled", Some("the client to read".to_owned())),
        };
        self.status_entry.set_state(state, waiting_for);
        self.phase = phase;
    }

    fn handle_delivery_error(
        &mut self,
        DeliveryError(outcome): DeliveryError,
        ctx: &mut Context<Self>,
    ) {
        self.unsubscribe();
        self.backlog.clear();
        match outcome {
            DeliveryOutcome::Accepted | DeliveryOutcome::Full => {
                // Events that were read and not accepted are read again and may be large.
                self.page_events = SUBSCRIBER_PAGE_EVENTS_MIN;
                self.enter_phase(Phase::Stalled);
            }
            DeliveryOutcome::Closed => ctx.stop(),
        }
    }

    fn fail_stream(&mut self, error: &str, ctx: &mut Context<Self>) {
        // If the outlet is full, the closed stream alone signals the failure.
        drop(self.send_item(FeedKind::Broken(error.to_owned()), self.cursor()));
        ctx.stop();
    }

    /// Ends the stream of a purged session.
    fn close_purged(&mut self, ctx: &mut Context<Self>) {
        // If the outlet is full, the closed stream and a later 404 signal the purge.
        drop(self.send_item(FeedKind::Purged, self.cursor()));
        ctx.stop();
    }

    fn unsubscribe(&self) {
        let (session_id, handle) = (Some(self.session_id), self.subscription.clone());
        self.bus.send(Unsubscribe { session_id, handle });
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

    fn handle(&mut self, message: BusMessage, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        match self.phase {
            Phase::Stalled => {}
            Phase::CatchingUp if self.backlog.len() < SUBSCRIBER_BACKLOG_MAX => {
                self.backlog.push_back(message);
            }
            Phase::CatchingUp => self.overrun = true,
            Phase::Tailing => match self.send_bus_message(message) {
                _ if self.is_purged => self.close_purged(ctx),
                Err(error) => self.handle_delivery_error(error, ctx),
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

/// Closes the stream on an administrator's order. The client may reconnect with its cursor (A2).
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

/// Returns the message that is open after `record`.
fn open_message_after(
    open_message: Option<&OpenMessageProgress>,
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
    let is_end = matches!(
        record.event,
        SessionEvent::MessageCompleted { .. } | SessionEvent::MessageDiscarded { .. }
    );
    open_message.filter(|_| !is_end).cloned()
}

/// Loads the message that is open right after event `seq`.
///
/// Reads backwards. A message's start is near, since few other events occur while one is open, so
/// the first page is small.
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
