//! Fan-out of committed events and live deltas.
//!
//! There is one `EventBus` on each arbiter, for the sessions that live there. Sessions publish
//! what they have committed, model streams what they hear; subscribers attach. The bus keeps the
//! one open message of each session, so that a late subscriber starts inside it at any offset. It
//! stores nothing else, and a subscriber that does not keep up is detached: the log has it all.
//! Where a flush interval is configured, text and progress wait for its end in a [`batch`].

mod batch;
mod courtesy;

use crate::{limits::HUB_MAILBOX_MAX, mailbox::send_last, observation::Watch, ports::Meter};
use actix::{
    Actor, AsyncContext as _, Context, Handler, Message, MessageResult, Recipient,
    prelude::SendError,
};
use batch::Batch;
use courtesy::Courtesy;
use greenroom_core::{
    ids::{AgentName, MessageId, RunId, SessionId},
    session::{EventRecord, SessionEvent},
};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What attached subscribers are sent.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub enum Live {
    /// One commit.
    Committed {
        /// The session.
        session_id: SessionId,
        /// Its agent profile.
        agent: AgentName,
        /// The events, in order.
        records: Arc<[EventRecord]>,
    },
    /// More text of the open message.
    Delta(Arc<LiveDelta>),
    /// The server is shutting down.
    Draining,
    /// The session is gone.
    Purged,
}

/// More text of an open message.
#[derive(Debug)]
pub struct LiveDelta {
    /// The run.
    pub run_id: RunId,
    /// The step.
    pub step: u32,
    /// The open message.
    pub message_id: MessageId,
    /// Where in the message's text the piece begins, in bytes.
    pub offset: usize,
    /// The piece.
    pub text: Arc<str>,
}

/// A message that is being streamed, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenMessage {
    /// Its id.
    pub message_id: MessageId,
    /// The text so far.
    pub text: Arc<str>,
}

/// A subscriber's hold on the bus: names it, and tells it when it was detached.
#[derive(Clone)]
pub struct Attachment {
    id: u64,
    detached: Arc<AtomicBool>,
    watch: Watch,
}

impl Attachment {
    /// A new one for the subscriber that `watch` shows, attached nowhere yet.
    pub fn new(watch: Watch) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Relaxed), detached: Arc::default(), watch }
    }

    /// Whether the bus has let go of the subscriber because its mailbox was full.
    pub fn is_detached(&self) -> bool {
        self.detached.load(Relaxed)
    }
}

/// The actor.
pub struct EventBus {
    watch: Watch,
    meter: Arc<dyn Meter>,
    flush: Duration,
    channels: HashMap<SessionId, Channel>,
    everything: Vec<Subscription>,
    courtesy: Courtesy,
}

#[derive(Default)]
struct Channel {
    subscriptions: Vec<Subscription>,
    open: Option<(MessageId, String)>,
    batch: Batch,
    /// The end of an interval is on its way.
    flushes: bool,
}

struct Subscription {
    attachment: Attachment,
    recipient: Recipient<Live>,
}

impl Subscription {
    /// Whether the subscriber stays. One that does not is sent this beyond what its mailbox takes: it
    /// finds out once it has read that far.
    fn offer(&self, live: &Live) -> bool {
        self.attachment.watch.sent();
        match self.recipient.try_send(live.clone()) {
            Ok(()) => return true,
            Err(SendError::Full(live)) => {
                self.attachment.detached.store(true, Relaxed);
                send_last(&self.recipient, live);
            }
            Err(SendError::Closed(_)) => self.attachment.watch.unsent(),
        }
        false
    }
}

impl Channel {
    fn send(&mut self, live: &Live) {
        self.subscriptions.retain(|subscription| subscription.offer(live));
    }

    fn follow(&mut self, event: &SessionEvent) {
        if let SessionEvent::MessageStarted { message_id } = event {
            self.open = Some((message_id.clone(), String::new()));
        } else if let SessionEvent::MessageCompleted { .. }
        | SessionEvent::MessageDiscarded { .. } = event
        {
            self.open = None;
        }
    }

    fn is_unused(&self) -> bool {
        self.subscriptions.is_empty() && self.open.is_none()
    }

    fn let_go(&mut self) {
        for live in self.batch.take() {
            self.send(&live);
        }
    }
}

impl EventBus {
    /// A bus without subscribers. Text and the progress of tools are held back for up to `flush`
    /// (E5); zero is not at all.
    pub fn new(watch: Watch, meter: Arc<dyn Meter>, flush: Duration) -> Self {
        Self {
            watch,
            meter,
            flush,
            channels: HashMap::new(),
            everything: Vec::new(),
            courtesy: Courtesy::default(),
        }
    }

    /// Sends it to the session's subscribers, now or with what comes within the interval.
    fn send(&mut self, session_id: SessionId, live: &Live, ctx: &mut Context<Self>) {
        let Some(channel) = self.channels.get_mut(&session_id) else { return };
        if self.flush.is_zero() || channel.subscriptions.is_empty() {
            return channel.send(live);
        }
        for live in channel.batch.push(live.clone()) {
            channel.send(&live);
        }
        if !channel.batch.is_empty() && !std::mem::replace(&mut channel.flushes, true) {
            ctx.run_later(self.flush, move |bus, _| {
                let Some(channel) = bus.channels.get_mut(&session_id) else { return };
                channel.flushes = false;
                channel.let_go();
            });
        }
    }
}

impl Actor for EventBus {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(HUB_MAILBOX_MAX);
        self.watch.set_state("running", None);
    }
}

/// A session has committed events.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Publish {
    /// The session.
    pub session_id: SessionId,
    /// Its agent profile.
    pub agent: AgentName,
    /// The events, in order.
    pub records: Arc<[EventRecord]>,
    /// When they were published.
    pub at: Instant,
}

impl Handler<Publish> for EventBus {
    type Result = ();

    fn handle(&mut self, message: Publish, ctx: &mut Self::Context) {
        let Publish { session_id, agent, records, at } = message;
        self.meter.published(at.elapsed());
        let channel = self.channels.entry(session_id).or_default();
        for record in records.iter() {
            channel.follow(&record.event);
        }
        let live = Live::Committed { session_id, agent, records };
        self.send(session_id, &live, ctx);
        if self.channels.get(&session_id).is_some_and(Channel::is_unused) {
            self.channels.remove(&session_id);
        }
        self.everything.retain(|subscription| subscription.offer(&live));
        self.watch.tick();
    }
}

/// A model stream has heard more text.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Heard {
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// The step.
    pub step: u32,
    /// The open message.
    pub message_id: MessageId,
    /// The piece.
    pub text: String,
}

impl Handler<Heard> for EventBus {
    type Result = ();

    fn handle(&mut self, heard: Heard, ctx: &mut Self::Context) {
        self.watch.tick();
        let Heard { session_id, run_id, step, message_id, text } = heard;
        let Some(channel) = self.channels.get_mut(&session_id) else { return };
        let Some((_, known)) = channel.open.as_mut().filter(|open| open.0 == message_id) else {
            return; // A superseded attempt is still talking.
        };
        let offset = known.len();
        known.push_str(&text);
        if !channel.subscriptions.is_empty() {
            let bytes = text.len();
            let text = text.into();
            let delta = LiveDelta { run_id, step, message_id, offset, text };
            self.send(session_id, &Live::Delta(Arc::new(delta)), ctx);
            // What waits for the end of an interval is written by nobody yet.
            if self.flush.is_zero() {
                self.courtesy.told(bytes);
            }
        }
    }
}

/// Attaches a subscriber; answers with the message that is open.
#[derive(Message)]
#[rtype(result = "Option<OpenMessage>")]
pub struct Attach {
    /// The session.
    pub session_id: SessionId,
    /// The subscriber's hold.
    pub attachment: Attachment,
    /// Where to send.
    pub recipient: Recipient<Live>,
}

impl Handler<Attach> for EventBus {
    type Result = MessageResult<Attach>;

    fn handle(&mut self, message: Attach, _ctx: &mut Self::Context) -> Self::Result {
        self.watch.tick();
        let Attach { session_id, attachment, recipient } = message;
        let channel = self.channels.entry(session_id).or_default();
        channel.subscriptions.push(Subscription { attachment, recipient });
        MessageResult(open_message(channel))
    }
}

/// The message that is open in a session.
#[derive(Message)]
#[rtype(result = "Option<OpenMessage>")]
pub struct Peek(pub SessionId);

impl Handler<Peek> for EventBus {
    type Result = MessageResult<Peek>;

    fn handle(&mut self, Peek(session_id): Peek, _ctx: &mut Self::Context) -> Self::Result {
        self.watch.tick();
        MessageResult(self.channels.get(&session_id).and_then(open_message))
    }
}

fn open_message(channel: &Channel) -> Option<OpenMessage> {
    let (message_id, text) = channel.open.as_ref()?;
    Some(OpenMessage { message_id: message_id.clone(), text: text.as_str().into() })
}

/// Attaches a subscriber to the committed events of all sessions.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AttachToAll {
    /// The subscriber's hold.
    pub attachment: Attachment,
    /// Where to send.
    pub recipient: Recipient<Live>,
}

impl Handler<AttachToAll> for EventBus {
    type Result = ();

    fn handle(&mut self, message: AttachToAll, _ctx: &mut Self::Context) {
        self.watch.tick();
        let AttachToAll { attachment, recipient } = message;
        self.everything.push(Subscription { attachment, recipient });
    }
}

/// Lets a subscriber go.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Detach {
    /// The session; `None` for a subscriber of all sessions.
    pub session_id: Option<SessionId>,
    /// The subscriber's hold.
    pub attachment: Attachment,
}

impl Handler<Detach> for EventBus {
    type Result = ();

    fn handle(&mut self, message: Detach, _ctx: &mut Self::Context) {
        self.watch.tick();
        let others =
            |subscription: &Subscription| subscription.attachment.id != message.attachment.id;
        let Some(session_id) = message.session_id else {
            self.everything.retain(others);
            return;
        };
        let Some(channel) = self.channels.get_mut(&session_id) else { return };
        channel.subscriptions.retain(others);
        if channel.subscriptions.is_empty() {
            channel.batch = Batch::default();
        }
        if channel.is_unused() {
            self.channels.remove(&session_id);
        }
    }
}

/// Tells the subscribers of a session that it is gone (S1).
#[derive(Message)]
#[rtype(result = "()")]
pub struct AnnouncePurged(pub SessionId);

impl Handler<AnnouncePurged> for EventBus {
    type Result = ();

    fn handle(&mut self, AnnouncePurged(session_id): AnnouncePurged, _ctx: &mut Self::Context) {
        self.watch.tick();
        let Some(mut channel) = self.channels.remove(&session_id) else { return };
        channel.let_go();
        channel.send(&Live::Purged);
    }
}

/// Tells every subscriber that the server is shutting down (D8).
#[derive(Message)]
#[rtype(result = "()")]
pub struct AnnounceDraining;

impl Handler<AnnounceDraining> for EventBus {
    type Result = ();

    fn handle(&mut self, _: AnnounceDraining, _ctx: &mut Self::Context) {
        self.watch.tick();
        for channel in self.channels.values_mut() {
            channel.let_go();
            channel.send(&Live::Draining);
        }
        self.everything.retain(|subscription| subscription.offer(&Live::Draining));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{observation::Board, testing::ManualClock};

    struct Listener {
        attachment: Attachment,
        /// Whether it was attached when it heard each.
        heard: Vec<bool>,
    }

    impl Actor for Listener {
        type Context = Context<Self>;
    }

    impl Handler<Live> for Listener {
        type Result = ();

        fn handle(&mut self, _: Live, _: &mut Self::Context) {
            self.heard.push(!self.attachment.is_detached());
        }
    }

    #[derive(Message)]
    #[rtype(result = "Vec<bool>")]
    struct WhatWasHeard;

    impl Handler<WhatWasHeard> for Listener {
        type Result = Vec<bool>;

        fn handle(&mut self, _: WhatWasHeard, _: &mut Self::Context) -> Vec<bool> {
            self.heard.clone()
        }
    }

    #[actix_rt::test]
    async fn e4_who_is_let_go_is_sent_one_more_and_finds_out() {
        let board = Board::new(Arc::new(ManualClock::standing()));
        let watch = board.watch("/listener", "Listener");
        let attachment = Attachment::new(watch.clone());
        let heard = Vec::new();
        let address = Listener { attachment: attachment.clone(), heard }.start();
        let subscription = Subscription { attachment, recipient: address.clone().recipient() };
        // It lives on this thread and reads nothing yet.
        let taken = (0..).take_while(|_| subscription.offer(&Live::Draining)).count();
        let heard = address.send(WhatWasHeard).await.unwrap();
        assert_eq!(heard, vec![false; taken + 1], "also what its mailbox had no room for");
    }
}
