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
    event_bus::{Attach, Attachment, Detach, EventBus, Live, OpenMessage},
    feed::{CommittedEvent, FeedItem, FeedKind, Offer, Outlet},
    limits::{
        LOG_PAGE_EVENTS, SUBSCRIBER_BACKLOG_MAX, SUBSCRIBER_MAILBOX_MAX, SUBSCRIBER_PAGE_EVENTS_MIN,
    },
    mailbox::Mailbox,
    observation::Watch,
    order::{Obey, Order},
    ports::{Journal, JournalError},
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
    attachment: Attachment,
    watch: Watch,
    phase: Phase,
    seq: Seq,
    open: Option<Open>,
    backlog: VecDeque<Live>,
    overrun: bool,
    /// Events to read from the log at once: more while the client takes them all.
    page_events: usize,
    /// Whether the session was purged.
    is_gone: bool,
    _counted: Counted,
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
pub(crate) struct Open {
    pub(crate) message_id: MessageId,
    run_id: Option<RunId>,
    step: u32,
    /// Bytes of its text that were told.
    told: usize,
}

/// What a client wants to be told.
pub(crate) struct Subscription {
    pub(crate) session_id: SessionId,
    pub(crate) agent: AgentName,
    pub(crate) cursor: Cursor,
}

/// Counts the subscribers of a session while it lives.
pub(crate) struct Counted(pub(crate) Arc<AtomicUsize>);

impl Counted {
    pub(crate) fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The outlet has room again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drained;

/// Nobody listens any more.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Stop;

/// The outlet did not take it all; what was told is remembered.
struct Interrupted(Offer);

impl Subscriber {
    /// A subscriber that begins at `cursor` when the actor starts.
    pub(crate) fn new(
        what: Subscription,
        journal: Arc<dyn Journal>,
        bus: Mailbox<EventBus>,
        outlet: Box<dyn Outlet>,
        watch: Watch,
        counted: Counted,
    ) -> Self {
        let Subscription { session_id, agent, cursor } = what;
        let told = usize::try_from(cursor.offset).unwrap_or(usize::MAX);
        Self {
            session_id,
            agent,
            journal,
            bus,
            outlet,
            attachment: Attachment::new(watch.clone()),
            watch,
            phase: Phase::CatchingUp,
            seq: cursor.seq,
            // Its id is found out before anything is told.
            open: None,
            backlog: VecDeque::new(),
            overrun: false,
            page_events: SUBSCRIBER_PAGE_EVENTS_MIN,
            is_gone: false,
            _counted: counted,
        }
        .with_told(told)
    }

    fn with_told(mut self, told: usize) -> Self {
        if told > 0 {
            let nobody = MessageId::from_uuid(self.session_id.0);
            self.open = Some(Open { message_id: nobody, run_id: None, step: 0, told });
        }
        self
    }

    fn cursor(&self) -> Cursor {
        let told = self.open.as_ref().map_or(0, |open| open.told);
        Cursor { seq: self.seq, offset: u64::try_from(told).unwrap_or(u64::MAX) }
    }

    /// Learns which message is open at the cursor, then catches up.
    fn orient(&mut self, ctx: &mut Context<Self>) {
        let (journal, session_id, seq) = (self.journal.clone(), self.session_id, self.seq);
        let found = async move { open_at(journal.as_ref(), session_id, seq).await };
        ctx.wait(found.into_actor(self).map(|found, actor, ctx| match found {
            Ok(found) => {
                let told = actor.open.as_ref().map_or(0, |open| open.told);
                actor.open = found.map(|open| Open { told, ..open });
                actor.catch_up(ctx);
            }
            Err(error) => actor.break_off(&error.to_string(), ctx),
        }));
    }

    /// Attaches to the bus, then reads the log up to where the bus takes over.
    fn catch_up(&mut self, ctx: &mut Context<Self>) {
        self.enter(Phase::CatchingUp);
        self.backlog.clear();
        self.overrun = false;
        self.detach();
        self.attachment = Attachment::new(self.watch.clone());
        let attach = Attach {
            session_id: self.session_id,
            attachment: self.attachment.clone(),
            recipient: ctx.address().recipient(),
        };
        let bus = self.bus.clone();
        let attached = async move { bus.ask(attach).await };
        ctx.spawn(attached.into_actor(self).map(|open, actor, ctx| match open {
            Some(open) => actor.replay(open, ctx),
            None => actor.break_off("the event bus is gone", ctx),
        }));
    }

    fn replay(&mut self, live: Option<OpenMessage>, ctx: &mut Context<Self>) {
        let (journal, session_id, seq) = (self.journal.clone(), self.session_id, self.seq);
        let limit = self.page_events;
        let page = async move { journal.read(session_id, seq, limit).await };
        ctx.spawn(page.into_actor(self).map(move |page, actor, ctx| {
            let page = match page {
                Ok(page) => page,
                Err(error) => return actor.break_off(&error.to_string(), ctx),
            };
            if page.is_empty() && actor.seq > Seq(0) {
                return actor.catch_up_at_the_head(live, ctx);
            }
            let more = page.len() == limit;
            for record in page {
                if let Err(interrupted) = actor.tell_event(record.into()) {
                    return actor.interrupted(interrupted, ctx);
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
    fn catch_up_at_the_head(&mut self, live: Option<OpenMessage>, ctx: &mut Context<Self>) {
        let (journal, session_id) = (self.journal.clone(), self.session_id);
        let head = async move { journal.head(session_id).await };
        ctx.spawn(head.into_actor(self).map(move |head, actor, ctx| match head {
            Ok(Seq(0)) => actor.leave(ctx),
            Ok(_) => actor.tail(live, ctx),
            Err(error) => actor.break_off(&error.to_string(), ctx),
        }));
    }

    /// From here on it tells what comes.
    fn tail(&mut self, live: Option<OpenMessage>, ctx: &mut Context<Self>) {
        let told = self.tell_open_text(live).and_then(|()| self.tell_backlog());
        match told {
            _ if self.is_gone => self.leave(ctx),
            Err(interrupted) => self.interrupted(interrupted, ctx),
            Ok(()) if self.overrun || self.attachment.is_detached() => self.catch_up(ctx),
            Ok(()) => self.enter(Phase::Tailing),
        }
    }

    /// Tells what the bus knows of the open message and the client does not.
    fn tell_open_text(&mut self, live: Option<OpenMessage>) -> Result<(), Interrupted> {
        let (Some(live), Some(open)) = (live, &self.open) else { return Ok(()) };
        if live.message_id != open.message_id {
            return Ok(());
        }
        self.tell_text_up_to(&live.text)
    }

    fn tell_backlog(&mut self) -> Result<(), Interrupted> {
        // Its room goes with it: a client may stay for hours.
        for live in std::mem::take(&mut self.backlog) {
            self.tell_live(live)?;
        }
        Ok(())
    }

    fn tell_live(&mut self, live: Live) -> Result<(), Interrupted> {
        match live {
            Live::Committed { records, .. } => {
                for record in CommittedEvent::all_of(&records) {
                    if record.seq > self.seq.next() {
                        // The bus has skipped something: the log has it.
                        self.overrun = true;
                        return Ok(());
                    }
                    if record.seq > self.seq {
                        self.tell_event(record)?;
                    }
                }
                Ok(())
            }
            Live::Delta(delta) => {
                let Some(open) = &mut self.open else { return Ok(()) };
                let end = delta.offset + delta.text.len();
                if delta.message_id != open.message_id || end <= open.told {
                    return Ok(());
                }
                (open.run_id, open.step) = (Some(delta.run_id), delta.step);
                let Some(text) = open.told.checked_sub(delta.offset).map(|skip| {
                    if skip == 0 { delta.text.clone() } else { delta.text[skip..].into() }
                }) else {
                    self.overrun = true;
                    return Ok(());
                };
                self.tell_text(text)
            }
            Live::Draining => self.offer(FeedKind::Draining, self.cursor()),
            Live::Purged => {
                self.is_gone = true;
                Ok(())
            }
        }
    }

    /// Tells an event, after what is missing of the text that it completes.
    fn tell_event(&mut self, record: CommittedEvent) -> Result<(), Interrupted> {
        if record.seq <= self.seq {
            return Ok(());
        }
        if let SessionEvent::MessageCompleted { message_id, text, .. } = &record.event
            && let Some(open) = &mut self.open
            && open.message_id == *message_id
        {
            (open.run_id, open.step) = (record.run_id, record.step.unwrap_or(open.step));
            self.tell_text_up_to(text)?;
        }
        let open = open_after(self.open.as_ref(), &record);
        let told = open.as_ref().map_or(0, |open| open.told);
        let offset = u64::try_from(told).unwrap_or(u64::MAX);
        let seq = record.seq;
        self.offer(FeedKind::Event(record), Cursor { seq, offset })?;
        (self.seq, self.open) = (seq, open);
        Ok(())
    }

    fn tell_text_up_to(&mut self, text: &str) -> Result<(), Interrupted> {
        let Some(open) = &self.open else { return Ok(()) };
        // A cursor that was checked is between characters and within the text; one from another
        // life of the message may be neither, and then gets the rest from the next character on.
        let told = text.ceil_char_boundary(open.told.min(text.len()));
        match &text[told..] {
            "" => Ok(()),
            rest => self.tell_text(rest.into()),
        }
    }

    fn tell_text(&mut self, text: Arc<str>) -> Result<(), Interrupted> {
        let Some(open) = &self.open else { return Ok(()) };
        let Some(run_id) = open.run_id else { return Ok(()) };
        let (step, message_id) = (open.step, open.message_id.clone());
        let told = open.told + text.len();
        let offset = u64::try_from(told).unwrap_or(u64::MAX);
        let delta = FeedKind::Delta { run_id, step, message_id, text };
        self.offer(delta, Cursor { seq: self.seq, offset })?;
        if let Some(open) = &mut self.open {
            open.told = told;
        }
        Ok(())
    }

    fn offer(&mut self, kind: FeedKind, cursor: Cursor) -> Result<(), Interrupted> {
        let (session_id, agent) = (self.session_id, self.agent.clone());
        match self.outlet.offer(&FeedItem { session_id, agent, cursor, kind }) {
            Offer::Taken => Ok(()),
            refused @ (Offer::Full | Offer::Gone) => Err(Interrupted(refused)),
        }
    }

    fn enter(&mut self, phase: Phase) {
        let (state, waiting_for) = match phase {
            Phase::CatchingUp => ("catching up", Some("the log".to_owned())),
            Phase::Tailing => ("tailing", None),
            Phase::Stalled => ("stalled", Some("the client, to read".to_owned())),
        };
        self.watch.set_state(state, waiting_for);
        self.phase = phase;
    }

    fn interrupted(&mut self, Interrupted(offer): Interrupted, ctx: &mut Context<Self>) {
        self.detach();
        self.backlog.clear();
        match offer {
            Offer::Taken | Offer::Full => {
                // What was read and not taken is read again; it may be large.
                self.page_events = SUBSCRIBER_PAGE_EVENTS_MIN;
                self.enter(Phase::Stalled);
            }
            Offer::Gone => ctx.stop(),
        }
    }

    fn break_off(&mut self, error: &str, ctx: &mut Context<Self>) {
        // If even this finds no room, the closed stream says it.
        drop(self.offer(FeedKind::Broken(error.to_owned()), self.cursor()));
        ctx.stop();
    }

    /// The session is gone; so is whoever listens to it.
    fn leave(&mut self, ctx: &mut Context<Self>) {
        // If this finds no room, the closed stream and a 404 say it.
        drop(self.offer(FeedKind::Purged, self.cursor()));
        ctx.stop();
    }

    fn detach(&self) {
        let (session_id, attachment) = (Some(self.session_id), self.attachment.clone());
        self.bus.tell(Detach { session_id, attachment });
    }
}

impl Actor for Subscriber {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SUBSCRIBER_MAILBOX_MAX);
        self.watch.obeys(&[Order::Stop], ctx.address().downgrade().recipient());
        self.orient(ctx);
    }

    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.detach();
    }
}

impl Handler<Live> for Subscriber {
    type Result = ();

    fn handle(&mut self, live: Live, ctx: &mut Self::Context) {
        self.watch.tick();
        match self.phase {
            Phase::Stalled => {}
            Phase::CatchingUp if self.backlog.len() < SUBSCRIBER_BACKLOG_MAX => {
                self.backlog.push_back(live);
            }
            Phase::CatchingUp => self.overrun = true,
            Phase::Tailing => match self.tell_live(live) {
                _ if self.is_gone => self.leave(ctx),
                Err(interrupted) => self.interrupted(interrupted, ctx),
                Ok(()) if self.overrun || self.attachment.is_detached() => self.catch_up(ctx),
                Ok(()) => {}
            },
        }
    }
}

impl Handler<Drained> for Subscriber {
    type Result = ();

    fn handle(&mut self, _: Drained, ctx: &mut Self::Context) {
        if matches!(self.phase, Phase::Stalled) {
            self.catch_up(ctx);
        }
    }
}

/// Its client may come again, where it left off (A2).
impl Handler<Obey> for Subscriber {
    type Result = ();

    fn handle(&mut self, _: Obey, ctx: &mut Self::Context) {
        self.watch.tick();
        ctx.stop();
    }
}

impl Handler<Stop> for Subscriber {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

/// The message that is open after `record`.
fn open_after(open: Option<&Open>, record: &EventRecord) -> Option<Open> {
    if let SessionEvent::MessageStarted { message_id } = &record.event {
        let (message_id, run_id) = (message_id.clone(), record.run_id);
        return Some(Open { message_id, run_id, step: record.step.unwrap_or(0), told: 0 });
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
pub(crate) async fn open_at(
    journal: &dyn Journal,
    session_id: SessionId,
    seq: Seq,
) -> Result<Option<Open>, JournalError> {
    let mut end = seq.0;
    let mut limit = SUBSCRIBER_PAGE_EVENTS_MIN;
    while end > 0 {
        let count = limit.min(usize::try_from(end).unwrap_or(limit));
        let start = end.saturating_sub(u64::try_from(count).unwrap_or(end));
        let page = journal.read(session_id, Seq(start), count).await?;
        for record in page.iter().rev() {
            if let SessionEvent::MessageStarted { .. } = &record.event {
                return Ok(open_after(None, record));
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
