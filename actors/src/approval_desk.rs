//! The index of questions that wait: whose they are, and when their time is up (G10, G11).
//!
//! A question holds no task and no timer of its own: it is a stored row, and a line in this
//! index, whose one timer is set to the earliest deadline. Sessions tell what was asked, answered and
//! closed; at a deadline the desk wakes the session, which may have left memory long ago. Whoever
//! looks on is told that something is different, and reads what from the store.

use crate::{
    limits::{DESK_RETRY_DELAY, HUB_MAILBOX_MAX},
    mailbox::Mailbox,
    observation::Watch,
    ports::Clock,
    session_registry::{Deliver, SessionRegistry},
};
use actix::{Actor, AsyncContext, Context, Handler, Message, MessageResult, SpawnHandle};
use greenroom_core::{
    Timestamp,
    ids::{ApprovalId, SessionId},
    session::Input,
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};
use tokio::sync::watch;

/// The actor.
pub struct ApprovalDesk {
    clock: Arc<dyn Clock>,
    registry: Option<Mailbox<SessionRegistry>>,
    waiting: HashMap<ApprovalId, (SessionId, Option<Timestamp>)>,
    deadlines: BTreeSet<(Timestamp, ApprovalId)>,
    alarm: Option<SpawnHandle>,
    changes: watch::Sender<()>,
    watch: Watch,
}

impl ApprovalDesk {
    /// An empty desk, which says on `changes` whenever a question is not as it was.
    pub fn new(clock: Arc<dyn Clock>, changes: watch::Sender<()>, watch: Watch) -> Self {
        Self {
            clock,
            registry: None,
            waiting: HashMap::new(),
            deadlines: BTreeSet::new(),
            alarm: None,
            changes,
            watch,
        }
    }

    fn forget(&mut self, approval_id: ApprovalId) {
        if let Some((_, Some(deadline))) = self.waiting.remove(&approval_id) {
            self.deadlines.remove(&(deadline, approval_id));
        }
    }

    fn settle(&mut self, ctx: &mut Context<Self>) {
        if let Some(alarm) = self.alarm.take() {
            ctx.cancel_future(alarm);
        }
        let count = self.waiting.len();
        let waiting_for = match count {
            0 => None,
            1 => Some("people, to answer 1 approval".to_owned()),
            _ => Some(format!("people, to answer {count} approvals")),
        };
        self.watch.set_state(if count > 0 { "waiting" } else { "idle" }, waiting_for);
        if let Some((deadline, _)) = self.deadlines.first() {
            let delay = deadline.until_from(self.clock.now());
            self.alarm = Some(ctx.run_later(delay, Self::ring));
        }
    }

    /// Wakes the sessions whose questions' time is up. A question stays until its session says
    /// that it is closed, so a wake-up that came to nothing is repeated.
    fn ring(&mut self, ctx: &mut Context<Self>) {
        self.alarm = None;
        let now = self.clock.now();
        let due: Vec<_> = self.deadlines.iter().take_while(|(at, _)| *at <= now).copied().collect();
        for (deadline, approval_id) in due {
            let Some((session_id, at)) = self.waiting.get_mut(&approval_id) else { continue };
            let again = now.after(DESK_RETRY_DELAY);
            *at = Some(again);
            self.deadlines.remove(&(deadline, approval_id));
            self.deadlines.insert((again, approval_id));
            if let Some(registry) = &self.registry {
                let session_id = *session_id;
                registry.tell(Deliver { session_id, input: Input::Wake, reply: None });
            }
        }
        self.settle(ctx);
    }
}

impl Actor for ApprovalDesk {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(HUB_MAILBOX_MAX);
        self.settle(ctx);
    }
}

/// Who wakes sessions; told once, at start.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Introduce(pub Mailbox<SessionRegistry>);

impl Handler<Introduce> for ApprovalDesk {
    type Result = ();

    fn handle(&mut self, Introduce(registry): Introduce, _ctx: &mut Self::Context) {
        self.watch.tick();
        self.registry = Some(registry);
    }
}

/// A question waits.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Track {
    /// The question.
    pub approval_id: ApprovalId,
    /// The session that asks.
    pub session_id: SessionId,
    /// When its time is up.
    pub deadline: Option<Timestamp>,
}

impl Handler<Track> for ApprovalDesk {
    type Result = ();

    fn handle(&mut self, track: Track, ctx: &mut Self::Context) {
        self.watch.tick();
        let Track { approval_id, session_id, deadline } = track;
        self.forget(approval_id);
        self.waiting.insert(approval_id, (session_id, deadline));
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, approval_id));
        }
        self.settle(ctx);
        self.changes.send_replace(());
    }
}

/// Some steps of a question are decided; it waits for the others.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DecidedInPart;

impl Handler<DecidedInPart> for ApprovalDesk {
    type Result = ();

    fn handle(&mut self, _: DecidedInPart, _ctx: &mut Self::Context) {
        self.watch.tick();
        self.changes.send_replace(());
    }
}

/// A question no longer waits.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Forget {
    /// The question.
    pub approval_id: ApprovalId,
}

impl Handler<Forget> for ApprovalDesk {
    type Result = ();

    fn handle(&mut self, Forget { approval_id }: Forget, ctx: &mut Self::Context) {
        self.watch.tick();
        self.forget(approval_id);
        self.settle(ctx);
        self.changes.send_replace(());
    }
}

/// How many questions wait.
#[derive(Message)]
#[rtype(result = "usize")]
pub struct CountWaiting;

impl Handler<CountWaiting> for ApprovalDesk {
    type Result = MessageResult<CountWaiting>;

    fn handle(&mut self, _: CountWaiting, _ctx: &mut Self::Context) -> Self::Result {
        self.watch.tick();
        MessageResult(self.waiting.len())
    }
}
