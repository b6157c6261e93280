//! One administrator's view of all sessions: committed events from now on (A2, W2).
//!
//! No replay and no deltas: whoever wants a session whole subscribes to it. A viewer that does
//! not keep up is told so and cut off, since there is no one log to catch up from.

use crate::{
    event_bus::{AttachToAll, Attachment, Detach, EventBus, Live},
    feed::{CommittedEvent, FeedItem, FeedKind, Offer, Outlet},
    limits::SUBSCRIBER_MAILBOX_MAX,
    mailbox::Mailbox,
    observation::Watch,
    order::{Obey, Order},
};
use actix::{Actor, ActorContext, AsyncContext, Context, Handler};
use greenroom_core::{cursor::Cursor, ids::SessionId};

/// The actor.
pub struct FirehoseSubscriber {
    buses: Vec<Mailbox<EventBus>>,
    outlet: Box<dyn Outlet>,
    attachment: Attachment,
    watch: Watch,
    last: Option<FeedItem>,
}

impl FirehoseSubscriber {
    /// A subscriber to all of `buses` from when the actor starts.
    pub(crate) fn new(
        buses: Vec<Mailbox<EventBus>>,
        outlet: Box<dyn Outlet>,
        watch: Watch,
    ) -> Self {
        Self { buses, outlet, attachment: Attachment::new(watch.clone()), watch, last: None }
    }

    fn offer(&mut self, item: FeedItem, ctx: &mut Context<Self>) {
        match self.outlet.offer(&item) {
            Offer::Taken => self.last = Some(item),
            Offer::Full | Offer::Gone => ctx.stop(),
        }
    }

    fn break_off(&mut self, ctx: &mut Context<Self>) {
        if let Some(last) = self.last.take() {
            let reason = "events came faster than they were read".to_owned();
            self.offer(FeedItem { kind: FeedKind::Broken(reason), ..last }, ctx);
        }
        ctx.stop();
    }
}

impl Actor for FirehoseSubscriber {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SUBSCRIBER_MAILBOX_MAX);
        self.watch.set_state("tailing", None);
        self.watch.obeys(&[Order::Stop], ctx.address().downgrade().recipient());
        for bus in &self.buses {
            let recipient = ctx.address().recipient();
            bus.tell(AttachToAll { attachment: self.attachment.clone(), recipient });
        }
    }

    fn stopped(&mut self, _ctx: &mut Self::Context) {
        for bus in &self.buses {
            bus.tell(Detach { session_id: None, attachment: self.attachment.clone() });
        }
    }
}

impl Handler<Live> for FirehoseSubscriber {
    type Result = ();

    fn handle(&mut self, live: Live, ctx: &mut Self::Context) {
        self.watch.tick();
        match live {
            Live::Committed { session_id, agent, records } => {
                for event in CommittedEvent::all_of(&records) {
                    let cursor = Cursor::after(event.seq);
                    let kind = FeedKind::Event(event);
                    let agent = agent.clone();
                    self.offer(FeedItem { session_id, agent, cursor, kind }, ctx);
                }
            }
            Live::Delta(_) | Live::Purged => {}
            Live::Draining => {
                let nobody = SessionId(uuid::Uuid::nil());
                let last = self.last.clone();
                let Some(agent) = last.map(|last| last.agent) else { return };
                let (cursor, kind) = (Cursor::default(), FeedKind::Draining);
                self.offer(FeedItem { session_id: nobody, agent, cursor, kind }, ctx);
            }
        }
        if self.attachment.is_detached() {
            self.break_off(ctx);
        }
    }
}

impl Handler<crate::subscriber::Drained> for FirehoseSubscriber {
    type Result = ();

    /// There is nothing to catch up from.
    fn handle(&mut self, _: crate::subscriber::Drained, _ctx: &mut Self::Context) {}
}

impl Handler<crate::subscriber::Stop> for FirehoseSubscriber {
    type Result = ();

    fn handle(&mut self, _: crate::subscriber::Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

/// Its client may come again (A2).
impl Handler<Obey> for FirehoseSubscriber {
    type Result = ();

    fn handle(&mut self, _: Obey, ctx: &mut Self::Context) {
        self.watch.tick();
        ctx.stop();
    }
}
