//! Subscribers of one session on their own event bus.

use crate::samples::{message_id, record};
use actix::{Actor, Addr, Context, Handler};
use greenroom::startup::SystemClock;
use greenroom_actors::{
    event_bus::{BusMessage, EventBus, Publish, PublishDelta, Subscribe, SubscriptionHandle},
    ports::NoopMeter,
    status_board::StatusBoard,
};
use greenroom_core::{
    ids::{AgentName, RunId, SessionId},
    session::SessionEvent,
};
use std::{
    cell::Cell,
    hint::black_box,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};
use uuid::Uuid;

const SESSION: SessionId = SessionId(Uuid::from_u128(1));

/// A subscriber that counts the messages it receives.
struct CountingSubscriber(Rc<Cell<usize>>);

impl Actor for CountingSubscriber {
    type Context = Context<Self>;
}

impl Handler<BusMessage> for CountingSubscriber {
    type Result = ();

    fn handle(&mut self, message: BusMessage, _: &mut Self::Context) {
        black_box(message);
        self.0.set(self.0.get() + 1);
    }
}

/// A number of subscribers of a session with an open message.
pub(crate) struct SubscriberGroup {
    bus: Addr<EventBus>,
    delivered: Rc<Cell<usize>>,
    subscribers: usize,
}

impl SubscriberGroup {
    /// Starts the bus and the subscribers in the current actor system.
    pub(crate) async fn start(subscribers: usize) -> Self {
        let delivered = Rc::<Cell<usize>>::default();
        let board = StatusBoard::new(Arc::new(SystemClock));
        let status_entry = board.register("/bus", "EventBus");
        let bus = EventBus::new(status_entry, Arc::new(NoopMeter), Duration::ZERO).start();
        for _ in 0..subscribers {
            let recipient = CountingSubscriber(delivered.clone()).start().recipient();
            let handle = SubscriptionHandle::new(board.register("/subscriber", "Subscriber"));
            let subscribe = Subscribe { session_id: SESSION, handle, recipient };
            bus.send(subscribe).await.expect("the bus is running");
        }
        let started = SessionEvent::MessageStarted { message_id: message_id() };
        let agent = AgentName::parse("trader").expect("a valid name");
        let records = [record(1, started)].into();
        let publish = Publish { session_id: SESSION, agent, records, published_at: Instant::now() };
        bus.send(publish).await.expect("the bus is running");
        let group = Self { bus, delivered, subscribers };
        // The deliveries of the start must not count as deliveries of the first delta.
        group.wait_until_idle().await;
        group
    }

    /// Waits until no more messages are delivered.
    async fn wait_until_idle(&self) {
        let mut before = usize::MAX;
        while before != self.delivered.get() {
            before = self.delivered.get();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Publishes a delta and waits until every subscriber has received it.
    pub(crate) async fn publish_delta(&self, delta: PublishDelta) {
        let until = self.delivered.get() + self.subscribers;
        self.bus.try_send(delta).expect("the mailbox has room");
        while self.delivered.get() < until {
            tokio::task::yield_now().await;
        }
    }
}

/// Returns a delta as a model's stream publishes it.
pub(crate) fn sample_delta() -> PublishDelta {
    PublishDelta {
        session_id: SESSION,
        run_id: RunId(Uuid::from_u128(2)),
        step: 1,
        message_id: message_id(),
        text: "twelve chars".to_owned(),
    }
}
