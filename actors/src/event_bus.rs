//! Fan-out of committed events and live deltas.
//!
//! There is one `EventBus` on each arbiter, for the sessions that live there. Sessions publish
//! what they have committed, model streams what they hear; subscribers attach. The bus keeps the
//! one open message of each session, so that a late subscriber starts inside it at any offset. It
//! stores nothing else, and a subscriber that does not keep up is detached: the log has it all.
//! Where a flush interval is configured, text and progress wait for its end in a [`batch`].

mod batch;
mod yield_policy;

use crate::{
    limits::SHARED_ACTOR_MAILBOX_MAX, mailbox::send_over_capacity, ports::Meter,
    status_board::StatusEntry,
};
use actix::{
    Actor, AsyncContext as _, Context, Handler, Message, MessageResult, Recipient,
    prelude::SendError,
};
use batch::Batch;
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
use yield_policy::YieldPolicy;

/// What attached subscribers are sent.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub enum BusMessage {
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
    Delta(Arc<TextDelta>),
    /// The server is shutting down.
    Draining,
    /// The session is gone.
    Purged,
}

/// More text of an open message.
#[derive(Debug)]
pub struct TextDelta {
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
pub struct SubscriptionHandle {
    id: u64,
    detached: Arc<AtomicBool>,
    status_entry: StatusEntry,
}

impl SubscriptionHandle {
    /// A new one for the subscriber that `watch` shows, attached nowhere yet.
    pub fn new(status_entry: StatusEntry) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Relaxed), detached: Arc::default(), status_entry }
    }

    /// Whether the bus has let go of the subscriber because its mailbox was full.
    pub fn is_detached(&self) -> bool {
        self.detached.load(Relaxed)
    }
}

/// The actor.
pub struct EventBus {
    status_entry: StatusEntry,
    meter: Arc<dyn Meter>,
    flush_interval: Duration,
    channels: HashMap<SessionId, SessionChannel>,
    firehose_subscriptions: Vec<Subscription>,
    yield_policy: YieldPolicy,
}

#[derive(Default)]
struct SessionChannel {
    subscriptions: Vec<Subscription>,
    open: Option<(MessageId, String)>,
    batch: Batch,
    /// The end of an interval is on its way.
    flushes: bool,
}

struct Subscription {
    handle: SubscriptionHandle,
    recipient: Recipient<BusMessage>,
}

impl Subscription {
    /// Whether the subscriber stays. One that does not is sent this beyond what its mailbox takes: it
    /// finds out once it has read that far.
    fn try_send(&self, live: &BusMessage) -> bool {
        self.handle.status_entry.record_sent();
        match self.recipient.try_send(live.clone()) {
            Ok(()) => return true,
            Err(SendError::Full(live)) => {
                self.handle.detached.store(true, Relaxed);
                send_over_capacity(&self.recipient, live);
            }
            Err(SendError::Closed(_)) => self.handle.status_entry.undo_sent(),
        }
        false
    }
}

impl SessionChannel {
    fn send(&mut self, live: &BusMessage) {
        self.subscriptions.retain(|subscription| subscription.try_send(live));
    }

    fn track_open_message(&mut self, event: &SessionEvent) {
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

    fn flush(&mut self) {
        for live in self.batch.drain() {
            self.send(&live);
        }
    }
}

impl EventBus {
    /// A bus without subscribers. Text and the progress of tools are held back for up to `flush`
    /// (E5); zero is not at all.
    pub fn new(status_entry: StatusEntry, meter: Arc<dyn Meter>, flush_interval: Duration) -> Self {
        Self {
            status_entry,
            meter,
            flush_interval,
            channels: HashMap::new(),
            firehose_subscriptions: Vec::new(),
            yield_policy: YieldPolicy::default(),
        }
    }

    /// Sends it to the session's subscribers, now or with what comes within the interval.
    fn send(&mut self, session_id: SessionId, live: &BusMessage, ctx: &mut Context<Self>) {
        let Some(channel) = self.channels.get_mut(&session_id) else { return };
        if self.flush_interval.is_zero() || channel.subscriptions.is_empty() {
            return channel.send(live);
        }
        for live in channel.batch.push(live.clone()) {
            channel.send(&live);
        }
        if !channel.batch.is_empty() && !std::mem::replace(&mut channel.flushes, true) {
            ctx.run_later(self.flush_interval, move |bus, _| {
                let Some(channel) = bus.channels.get_mut(&session_id) else { return };
                channel.flushes = false;
                channel.flush();
            });
        }
    }
}

impl Actor for EventBus {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SHARED_ACTOR_MAILBOX_MAX);
        self.status_entry.set_state("running", None);
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
        self.meter.record_publish_lag(at.elapsed());
        let channel = self.channels.entry(session_id).or_default();
        for record in records.iter() {
            channel.track_open_message(&record.event);
        }
        let live = BusMessage::Committed { session_id, agent, records };
        self.send(session_id, &live, ctx);
        if self.channels.get(&session_id).is_some_and(SessionChannel::is_unused) {
            self.channels.remove(&session_id);
        }
        self.firehose_subscriptions.retain(|subscription| subscription.try_send(&live));
        self.status_entry.record_handled();
    }
}

/// A model stream has heard more text.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PublishDelta {
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

impl Handler<PublishDelta> for EventBus {
    type Result = ();

    fn handle(&mut self, heard: PublishDelta, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let PublishDelta { session_id, run_id, step, message_id, text } = heard;
        let Some(channel) = self.channels.get_mut(&session_id) else { return };
        let Some((_, known)) = channel.open.as_mut().filter(|open| open.0 == message_id) else {
            return; // A superseded attempt is still talking.
        };
        let offset = known.len();
        known.push_str(&text);
        if !channel.subscriptions.is_empty() {
            let bytes = text.len();
            let text = text.into();
            let delta = TextDelta { run_id, step, message_id, offset, text };
            self.send(session_id, &BusMessage::Delta(Arc::new(delta)), ctx);
            // What waits for the end of an interval is written by nobody yet.
            if self.flush_interval.is_zero() {
                self.yield_policy.on_delta_sent(bytes);
            }
        }
    }
}

/// Attaches a subscriber; answers with the message that is open.
#[derive(Message)]
#[rtype(result = "Option<OpenMessage>")]
pub struct Subscribe {
    /// The session.
    pub session_id: SessionId,
    /// The subscriber's hold.
    pub handle: SubscriptionHandle,
    /// Where to send.
    pub recipient: Recipient<BusMessage>,
}

impl Handler<Subscribe> for EventBus {
    type Result = MessageResult<Subscribe>;

    fn handle(&mut self, message: Subscribe, _ctx: &mut Self::Context) -> Self::Result {
        self.status_entry.record_handled();
        let Subscribe { session_id, handle: attachment, recipient } = message;
        let channel = self.channels.entry(session_id).or_default();
        channel.subscriptions.push(Subscription { handle: attachment, recipient });
        MessageResult(open_message(channel))
    }
}

/// The message that is open in a session.
#[derive(Message)]
#[rtype(result = "Option<OpenMessage>")]
pub struct GetOpenMessage(pub SessionId);

impl Handler<GetOpenMessage> for EventBus {
    type Result = MessageResult<GetOpenMessage>;

    fn handle(
        &mut self,
        GetOpenMessage(session_id): GetOpenMessage,
        _ctx: &mut Self::Context,
    ) -> Self::Result {
        self.status_entry.record_handled();
        MessageResult(self.channels.get(&session_id).and_then(open_message))
    }
}

fn open_message(channel: &SessionChannel) -> Option<OpenMessage> {
    let (message_id, text) = channel.open.as_ref()?;
    Some(OpenMessage { message_id: message_id.clone(), text: text.as_str().into() })
}

/// Attaches a subscriber to the committed events of all sessions.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SubscribeAll {
    /// The subscriber's hold.
    pub handle: SubscriptionHandle,
    /// Where to send.
    pub recipient: Recipient<BusMessage>,
}

impl Handler<SubscribeAll> for EventBus {
    type Result = ();

    fn handle(&mut self, message: SubscribeAll, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let SubscribeAll { handle: attachment, recipient } = message;
        self.firehose_subscriptions.push(Subscription { handle: attachment, recipient });
    }
}

/// Lets a subscriber go.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Unsubscribe {
    /// The session; `None` for a subscriber of all sessions.
    pub session_id: Option<SessionId>,
    /// The subscriber's hold.
    pub handle: SubscriptionHandle,
}

impl Handler<Unsubscribe> for EventBus {
    type Result = ();

    fn handle(&mut self, message: Unsubscribe, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let others = |subscription: &Subscription| subscription.handle.id != message.handle.id;
        let Some(session_id) = message.session_id else {
            self.firehose_subscriptions.retain(others);
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
pub struct NotifyPurged(pub SessionId);

impl Handler<NotifyPurged> for EventBus {
    type Result = ();

    fn handle(&mut self, NotifyPurged(session_id): NotifyPurged, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let Some(mut channel) = self.channels.remove(&session_id) else { return };
        channel.flush();
        channel.send(&BusMessage::Purged);
    }
}

/// Tells every subscriber that the server is shutting down (D8).
#[derive(Message)]
#[rtype(result = "()")]
pub struct NotifyDraining;

impl Handler<NotifyDraining> for EventBus {
    type Result = ();

    fn handle(&mut self, _: NotifyDraining, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        for channel in self.channels.values_mut() {
            channel.flush();
            channel.send(&BusMessage::Draining);
        }
        self.firehose_subscriptions
            .retain(|subscription| subscription.try_send(&BusMessage::Draining));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{status_board::StatusBoard, testing::ManualClock};

    struct RecordingSubscriber {
        attachment: SubscriptionHandle,
        /// Whether it was attached when it heard each.
        received: Vec<bool>,
    }

    impl Actor for RecordingSubscriber {
        type Context = Context<Self>;
    }

    impl Handler<BusMessage> for RecordingSubscriber {
        type Result = ();

        fn handle(&mut self, _: BusMessage, _: &mut Self::Context) {
            self.received.push(!self.attachment.is_detached());
        }
    }

    #[derive(Message)]
    #[rtype(result = "Vec<bool>")]
    struct GetReceived;

    impl Handler<GetReceived> for RecordingSubscriber {
        type Result = Vec<bool>;

        fn handle(&mut self, _: GetReceived, _: &mut Self::Context) -> Vec<bool> {
            self.received.clone()
        }
    }

    #[actix_rt::test]
    async fn e4_detached_subscriber_receives_one_marker_then_catches_up() {
        let board = StatusBoard::new(Arc::new(ManualClock::paused()));
        let watch = board.register("/listener", "Listener");
        let attachment = SubscriptionHandle::new(watch.clone());
        let received = Vec::new();
        let address = RecordingSubscriber { attachment: attachment.clone(), received }.start();
        let subscription =
            Subscription { handle: attachment, recipient: address.clone().recipient() };
        // It lives on this thread and reads nothing yet.
        let taken = (0..).take_while(|_| subscription.try_send(&BusMessage::Draining)).count();
        let heard = address.send(GetReceived).await.unwrap();
        assert_eq!(heard, vec![false; taken + 1], "also what its mailbox had no room for");
    }
}
