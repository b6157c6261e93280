//! Distributes committed events and live deltas to subscribers.
//!
//! Each arbiter has one `EventBus` for its sessions. Sessions publish committed events, model
//! streams publish deltas, subscribers subscribe. The bus keeps the open message of each session,
//! so that a late subscriber can start inside it at any offset. It stores nothing else: a
//! subscriber that falls behind is detached and catches up from the log. If a flush interval is
//! configured, text and the events of calls wait in a `batch` until its end.

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

/// A message to the subscribers.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub enum BusMessage {
    /// The events of one commit.
    Committed {
        /// The session.
        session_id: SessionId,
        /// The session's agent profile.
        agent: AgentName,
        /// The events, in order.
        records: Arc<[EventRecord]>,
    },
    /// More text of the open message.
    Delta(Arc<TextDelta>),
    /// The server is shutting down.
    Draining,
    /// The session was purged.
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
    /// The byte offset of the text within the message.
    pub offset: usize,
    /// The text.
    pub text: Arc<str>,
}

/// A message that is being streamed, with the text received so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenMessage {
    /// The message's id.
    pub message_id: MessageId,
    /// The text so far.
    pub text: Arc<str>,
}

/// Identifies a subscription, and shows the subscriber when the bus has detached it.
#[derive(Clone)]
pub struct SubscriptionHandle {
    id: u64,
    detached: Arc<AtomicBool>,
    status_entry: StatusEntry,
}

impl SubscriptionHandle {
    /// Creates a handle for the subscriber that `status_entry` belongs to. It is not subscribed
    /// yet.
    pub fn new(status_entry: StatusEntry) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Relaxed), detached: Arc::default(), status_entry }
    }

    /// True if the bus has detached the subscriber because its mailbox was full.
    pub fn is_detached(&self) -> bool {
        self.detached.load(Relaxed)
    }
}

/// The event bus actor.
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
    open_message: Option<(MessageId, String)>,
    batch: Batch,
    /// True while a flush timer is running.
    flush_scheduled: bool,
}

struct Subscription {
    handle: SubscriptionHandle,
    recipient: Recipient<BusMessage>,
}

impl Subscription {
    /// Sends a message; returns false if the subscriber must be removed. A subscriber whose mailbox
    /// is full is detached and gets this last message beyond its capacity. It notices the
    /// detachment when it reads it.
    fn try_send(&self, message: &BusMessage) -> bool {
        self.handle.status_entry.record_sent();
        match self.recipient.try_send(message.clone()) {
            Ok(()) => return true,
            Err(SendError::Full(message)) => {
                self.handle.detached.store(true, Relaxed);
                send_over_capacity(&self.recipient, message);
            }
            Err(SendError::Closed(_)) => self.handle.status_entry.undo_sent(),
        }
        false
    }
}

impl SessionChannel {
    fn send(&mut self, message: &BusMessage) {
        self.subscriptions.retain(|subscription| subscription.try_send(message));
    }

    fn track_open_message(&mut self, event: &SessionEvent) {
        if let SessionEvent::MessageStarted { message_id } = event {
            self.open_message = Some((message_id.clone(), String::new()));
        } else if let SessionEvent::MessageCompleted { .. }
        | SessionEvent::MessageDiscarded { .. } = event
        {
            self.open_message = None;
        }
    }

    fn is_unused(&self) -> bool {
        self.subscriptions.is_empty() && self.open_message.is_none()
    }

    fn flush(&mut self) {
        for message in self.batch.drain() {
            self.send(&message);
        }
    }
}

impl EventBus {
    /// Creates a bus without subscribers. Text and the events of calls are held back for up to
    /// `flush_interval` (E5); zero sends them immediately.
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

    /// Sends a message to the session's subscribers, immediately or at the end of the flush
    /// interval.
    fn send(&mut self, session_id: SessionId, message: &BusMessage, ctx: &mut Context<Self>) {
        let Some(channel) = self.channels.get_mut(&session_id) else { return };
        if self.flush_interval.is_zero() || channel.subscriptions.is_empty() {
            return channel.send(message);
        }
        for message in channel.batch.push(message.clone()) {
            channel.send(&message);
        }
        if !channel.batch.is_empty() && !std::mem::replace(&mut channel.flush_scheduled, true) {
            ctx.run_later(self.flush_interval, move |bus, _| {
                let Some(channel) = bus.channels.get_mut(&session_id) else { return };
                channel.flush_scheduled = false;
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

/// Reports that a session has committed events.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Publish {
    /// The session.
    pub session_id: SessionId,
    /// The session's agent profile.
    pub agent: AgentName,
    /// The events, in order.
    pub records: Arc<[EventRecord]>,
    /// When the message was sent to the bus.
    pub published_at: Instant,
}

impl Handler<Publish> for EventBus {
    type Result = ();

    fn handle(&mut self, message: Publish, ctx: &mut Self::Context) {
        let Publish { session_id, agent, records, published_at } = message;
        self.meter.record_publish_lag(published_at.elapsed());
        let channel = self.channels.entry(session_id).or_default();
        for record in records.iter() {
            channel.track_open_message(&record.event);
        }
        let message = BusMessage::Committed { session_id, agent, records };
        self.send(session_id, &message, ctx);
        if self.channels.get(&session_id).is_some_and(SessionChannel::is_unused) {
            self.channels.remove(&session_id);
        }
        self.firehose_subscriptions.retain(|subscription| subscription.try_send(&message));
        self.status_entry.record_handled();
    }
}

/// Reports more text of a model stream.
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
    /// The text.
    pub text: String,
}

impl Handler<PublishDelta> for EventBus {
    type Result = ();

    fn handle(&mut self, delta: PublishDelta, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let PublishDelta { session_id, run_id, step, message_id, text } = delta;
        let Some(channel) = self.channels.get_mut(&session_id) else { return };
        let Some((_, text_so_far)) =
            channel.open_message.as_mut().filter(|open| open.0 == message_id)
        else {
            return; // Text of a superseded attempt.
        };
        let offset = text_so_far.len();
        text_so_far.push_str(&text);
        if !channel.subscriptions.is_empty() {
            let bytes = text.len();
            let text = text.into();
            let delta = TextDelta { run_id, step, message_id, offset, text };
            self.send(session_id, &BusMessage::Delta(Arc::new(delta)), ctx);
            // Batched text is not written to a client yet.
            if self.flush_interval.is_zero() {
                self.yield_policy.on_delta_sent(bytes);
            }
        }
    }
}

/// Adds a subscriber. Returns the message that is open.
#[derive(Message)]
#[rtype(result = "Option<OpenMessage>")]
pub struct Subscribe {
    /// The session.
    pub session_id: SessionId,
    /// The subscriber's handle.
    pub handle: SubscriptionHandle,
    /// The address of the subscriber.
    pub recipient: Recipient<BusMessage>,
}

impl Handler<Subscribe> for EventBus {
    type Result = MessageResult<Subscribe>;

    fn handle(&mut self, message: Subscribe, _ctx: &mut Self::Context) -> Self::Result {
        self.status_entry.record_handled();
        let Subscribe { session_id, handle, recipient } = message;
        let channel = self.channels.entry(session_id).or_default();
        channel.subscriptions.push(Subscription { handle, recipient });
        MessageResult(get_open_message(channel))
    }
}

/// Returns the message that is open in a session.
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
        MessageResult(self.channels.get(&session_id).and_then(get_open_message))
    }
}

fn get_open_message(channel: &SessionChannel) -> Option<OpenMessage> {
    let (message_id, text) = channel.open_message.as_ref()?;
    Some(OpenMessage { message_id: message_id.clone(), text: text.as_str().into() })
}

/// Adds a subscriber to the committed events of all sessions.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SubscribeAll {
    /// The subscriber's handle.
    pub handle: SubscriptionHandle,
    /// The address of the subscriber.
    pub recipient: Recipient<BusMessage>,
}

impl Handler<SubscribeAll> for EventBus {
    type Result = ();

    fn handle(&mut self, message: SubscribeAll, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let SubscribeAll { handle, recipient } = message;
        self.firehose_subscriptions.push(Subscription { handle, recipient });
    }
}

/// Removes a subscriber.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Unsubscribe {
    /// The session; `None` for a subscriber of all sessions.
    pub session_id: Option<SessionId>,
    /// The subscriber's handle.
    pub handle: SubscriptionHandle,
}

impl Handler<Unsubscribe> for EventBus {
    type Result = ();

    fn handle(&mut self, message: Unsubscribe, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let is_other = |subscription: &Subscription| subscription.handle.id != message.handle.id;
        let Some(session_id) = message.session_id else {
            self.firehose_subscriptions.retain(is_other);
            return;
        };
        let Some(channel) = self.channels.get_mut(&session_id) else { return };
        channel.subscriptions.retain(is_other);
        if channel.subscriptions.is_empty() {
            channel.batch = Batch::default();
        }
        if channel.is_unused() {
            self.channels.remove(&session_id);
        }
    }
}

/// Notifies the subscribers of a session that it was purged (S1).
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

/// Notifies every subscriber that the server is shutting down (D8).
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
        handle: SubscriptionHandle,
        /// For each message received: true if the subscriber was still subscribed.
        received: Vec<bool>,
    }

    impl Actor for RecordingSubscriber {
        type Context = Context<Self>;
    }

    impl Handler<BusMessage> for RecordingSubscriber {
        type Result = ();

        fn handle(&mut self, _: BusMessage, _: &mut Self::Context) {
            self.received.push(!self.handle.is_detached());
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
        let status_entry = board.register("/listener", "Listener");
        let handle = SubscriptionHandle::new(status_entry.clone());
        let received = Vec::new();
        let address = RecordingSubscriber { handle: handle.clone(), received }.start();
        let subscription = Subscription { handle, recipient: address.clone().recipient() };
        // The subscriber runs on this thread and has read nothing yet.
        let accepted = (0..).take_while(|_| subscription.try_send(&BusMessage::Draining)).count();
        let received = address.send(GetReceived).await.unwrap();
        assert_eq!(received, vec![false; accepted + 1], "including one message over capacity");
    }
}
