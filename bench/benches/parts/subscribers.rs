//! Subscribers of one session, on a bus of their own.

use crate::samples::{message_id, record};
use actix::{Actor, Addr, Context, Handler};
use greenroom::startup::SystemClock;
use greenroom_actors::{
    event_bus::{Attach, Attachment, EventBus, Heard, Live, Publish},
    ports::NoMeter,
    status_board::Board,
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

/// A subscriber that counts.
struct CountingSubscriber(Rc<Cell<usize>>);

impl Actor for CountingSubscriber {
    type Context = Context<Self>;
}

impl Handler<Live> for CountingSubscriber {
    type Result = ();

    fn handle(&mut self, live: Live, _: &mut Self::Context) {
        black_box(live);
        self.0.set(self.0.get() + 1);
    }
}

/// So many subscribers that follow a message, which is open.
pub(crate) struct SubscriberGroup {
    bus: Addr<EventBus>,
    delivered: Rc<Cell<usize>>,
    subscribers: usize,
}

impl SubscriberGroup {
    /// Starts them where an actor system runs.
    pub(crate) async fn start(subscribers: usize) -> Self {
        let told = Rc::<Cell<usize>>::default();
        let board = Board::new(Arc::new(SystemClock));
        let watch = board.watch("/bus", "EventBus");
        let bus = EventBus::new(watch, Arc::new(NoMeter), Duration::ZERO).start();
        for _ in 0..subscribers {
            let recipient = CountingSubscriber(told.clone()).start().recipient();
            let attachment = Attachment::new(board.watch("/subscriber", "Subscriber"));
            let attach = Attach { session_id: SESSION, attachment, recipient };
            bus.send(attach).await.expect("it lives");
        }
        let started = SessionEvent::MessageStarted { message_id: message_id() };
        let agent = AgentName::parse("trader").expect("a name");
        let records = [record(1, started)].into();
        let publish = Publish { session_id: SESSION, agent, records, published_at: Instant::now() };
        bus.send(publish).await.expect("it lives");
        let audience = Self { bus, delivered: told, subscribers };
        // What they were told before is not of the first piece of text.
        audience.wait_until_idle().await;
        audience
    }

    /// Waits until nobody has anything left to do.
    async fn wait_until_idle(&self) {
        let mut before = usize::MAX;
        while before != self.delivered.get() {
            before = self.delivered.get();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Tells a piece of text to all of them.
    pub(crate) async fn publish_delta(&self, heard: Heard) {
        let until = self.delivered.get() + self.subscribers;
        self.bus.try_send(heard).expect("there is room");
        while self.delivered.get() < until {
            tokio::task::yield_now().await;
        }
    }
}

/// A piece of text, as a model's stream tells it.
pub(crate) fn sample_delta() -> Heard {
    Heard {
        session_id: SESSION,
        run_id: RunId(Uuid::from_u128(2)),
        step: 1,
        message_id: message_id(),
        text: "twelve chars".to_owned(),
    }
}
