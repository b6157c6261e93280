//! A subscriber to the events of all sessions that are committed from now on, for administrators
//! (A2, W2).
//!
//! It neither replays the log nor delivers deltas; a client that needs a complete session
//! subscribes to that session. A subscriber that falls behind is closed with an error, because
//! there is no single log to catch up from.

use crate::{
    event_bus::{BusMessage, EventBus, SubscribeAll, SubscriptionHandle, Unsubscribe},
    feed::{CommittedEvent, DeliveryOutcome, FeedItem, FeedKind, Outlet},
    limits::SUBSCRIBER_MAILBOX_MAX,
    mailbox::Mailbox,
    order::{ActorOrder, ExecuteOrder},
    status_board::StatusEntry,
};
use actix::{Actor, ActorContext, AsyncContext, Context, Handler};
use greenroom_core::{cursor::Cursor, ids::SessionId};

/// The actor that serves one such stream.
pub struct FirehoseSubscriber {
    buses: Vec<Mailbox<EventBus>>,
    outlet: Box<dyn Outlet>,
    subscription: SubscriptionHandle,
    status_entry: StatusEntry,
    last_item: Option<FeedItem>,
}

impl FirehoseSubscriber {
    /// Creates a subscriber to all of `buses`. It subscribes when the actor starts.
    pub(crate) fn new(
        buses: Vec<Mailbox<EventBus>>,
        outlet: Box<dyn Outlet>,
        status_entry: StatusEntry,
    ) -> Self {
        Self {
            buses,
            outlet,
            subscription: SubscriptionHandle::new(status_entry.clone()),
            status_entry,
            last_item: None,
        }
    }

    fn send_item(&mut self, item: FeedItem, ctx: &mut Context<Self>) {
        match self.outlet.try_send(&item) {
            DeliveryOutcome::Accepted => self.last_item = Some(item),
            DeliveryOutcome::Full | DeliveryOutcome::Closed => ctx.stop(),
        }
    }

    fn fail_stream(&mut self, ctx: &mut Context<Self>) {
        if let Some(last_item) = self.last_item.take() {
            let reason = "events arrived faster than the client read them".to_owned();
            self.send_item(FeedItem { kind: FeedKind::Broken(reason), ..last_item }, ctx);
        }
        ctx.stop();
    }
}

impl Actor for FirehoseSubscriber {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SUBSCRIBER_MAILBOX_MAX);
        self.status_entry.set_state("tailing", None);
        self.status_entry.accept_orders(&[ActorOrder::Stop], ctx.address().downgrade().recipient());
        for bus in &self.buses {
            let recipient = ctx.address().recipient();
            bus.send(SubscribeAll { handle: self.subscription.clone(), recipient });
        }
    }

    fn stopped(&mut self, _ctx: &mut Self::Context) {
        for bus in &self.buses {
            bus.send(Unsubscribe { session_id: None, handle: self.subscription.clone() });
        }
    }
}

impl Handler<BusMessage> for FirehoseSubscriber {
    type Result = ();

    fn handle(&mut self, message: BusMessage, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        match message {
            BusMessage::Committed { session_id, agent, records } => {
                for event in CommittedEvent::iter_commit(&records) {
                    let cursor = Cursor::after_seq(event.seq);
                    let kind = FeedKind::Event(event);
                    let agent = agent.clone();
                    self.send_item(FeedItem { session_id, agent, cursor, kind }, ctx);
                }
            }
            BusMessage::Delta(_) | BusMessage::Purged => {}
            BusMessage::Draining => {
                let nil_session = SessionId(uuid::Uuid::nil());
                let last_item = self.last_item.clone();
                let Some(agent) = last_item.map(|last_item| last_item.agent) else { return };
                let (cursor, kind) = (Cursor::default(), FeedKind::Draining);
                self.send_item(FeedItem { session_id: nil_session, agent, cursor, kind }, ctx);
            }
        }
        if self.subscription.is_detached() {
            self.fail_stream(ctx);
        }
    }
}

impl Handler<crate::subscriber::OutletDrained> for FirehoseSubscriber {
    type Result = ();

    /// Does nothing: there is no log to catch up from.
    fn handle(&mut self, _: crate::subscriber::OutletDrained, _ctx: &mut Self::Context) {}
}

impl Handler<crate::subscriber::StopSubscriber> for FirehoseSubscriber {
    type Result = ();

    fn handle(&mut self, _: crate::subscriber::StopSubscriber, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

/// Closes the stream on an administrator's order. The client may reconnect (A2).
impl Handler<ExecuteOrder> for FirehoseSubscriber {
    type Result = ();

    fn handle(&mut self, _: ExecuteOrder, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        ctx.stop();
    }
}
