//! A task in another session's hands (S8): carries it there, tells the parent what happens, and in
//! the end the answer.
//!
//! Started by [`crate::session::Session`] on its own arbiter, one for each child that is not closed.
//! What it tells is read from the child's log, from where the parent has got to; the bus only says
//! that there is more. It is the parent that counts, so being told twice changes nothing. It knows
//! neither policy nor what a child decides.

mod course;

use crate::{
    event_bus::{Attachment, Detach, EventBus, Live},
    mailbox::Mailbox,
    observation::Watch,
    ports::Journal,
    session::{Fact, Session},
    session_registry::SessionRegistry,
};
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture,
};
use course::{Course, Wishes};
use greenroom_core::{
    call::ToolOutcome,
    delegation::Errand,
    ids::{AttemptId, CallId, Seq, SessionId, UserId},
    policy::Settings,
    session::Input,
};
use std::{rc::Rc, sync::Arc};

/// Whom a delegation talks to.
#[derive(Clone)]
pub struct Surroundings {
    /// The parent.
    pub parent: SessionId,
    /// The log.
    pub journal: Arc<dyn Journal>,
    /// Who finds sessions.
    pub registry: Mailbox<SessionRegistry>,
    /// The child's bus.
    pub bus: Mailbox<EventBus>,
}

/// What is to be seen to.
pub struct Assignment {
    /// The child.
    pub child: SessionId,
    /// The call that it works for.
    pub call_id: CallId,
    /// The last of the child's events that the parent has.
    pub after: Seq,
    /// Whether it is to work, or to close.
    pub end: Wanted,
}

/// What is wanted of a child.
pub enum Wanted {
    /// Its answer, which ends an attempt of the call.
    Answer {
        /// The attempt.
        attempt_id: AttemptId,
        /// What the child is to do.
        errand: Arc<Errand>,
        /// Bytes of the answer that are kept.
        result_bytes_max: usize,
        /// Who is told of the end.
        session: Mailbox<Session>,
    },
    /// That it closes.
    Close {
        /// For whom.
        by: UserId,
    },
}

/// The actor.
pub struct Delegation {
    around: Surroundings,
    assignment: Option<Assignment>,
    child: SessionId,
    wishes: Rc<Wishes>,
    attachment: Attachment,
    /// Who waits for the answer.
    awaits: Option<Awaits>,
    watch: Watch,
}

struct Awaits {
    session: Mailbox<Session>,
    call_id: CallId,
    attempt_id: AttemptId,
}

impl Delegation {
    /// One that begins when the actor starts.
    pub fn new(around: Surroundings, assignment: Assignment, watch: Watch) -> Self {
        let (child, wishes) = (assignment.child, Rc::<Wishes>::default());
        let awaits = match &assignment.end {
            Wanted::Answer { attempt_id, session, .. } => Some(Awaits {
                session: session.clone(),
                call_id: assignment.call_id,
                attempt_id: *attempt_id,
            }),
            Wanted::Close { by } => {
                wishes.close(by.clone());
                None
            }
        };
        let attachment = Attachment::new(watch.clone());
        let assignment = Some(assignment);
        Self { around, assignment, child, wishes, attachment, awaits, watch }
    }

    fn conclude(&mut self, outcome: ToolOutcome) {
        if let Some(Awaits { session, call_id, attempt_id }) = self.awaits.take() {
            session.tell(Fact(Input::ToolFinished { call_id, attempt_id, outcome }));
        }
    }
}

impl Actor for Delegation {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(assignment) = self.assignment.take() else { return };
        self.watch.set_state("waiting", Some(format!("session {}", self.child)));
        let (around, wishes) = (self.around.clone(), self.wishes.clone());
        let recipient = ctx.address().recipient();
        let course = Course::new(around, assignment, wishes, self.attachment.clone(), recipient);
        ctx.spawn(course.run().into_actor(self).map(|outcome, actor, ctx| {
            if let Some(outcome) = outcome {
                actor.conclude(outcome);
            }
            ctx.stop();
        }));
    }

    /// Also runs when a handler panicked: the session must hear of every end.
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        let (session_id, attachment) = (Some(self.child), self.attachment.clone());
        self.around.bus.tell(Detach { session_id, attachment });
        let error = "what waited for the other session failed inside the server".to_owned();
        self.conclude(ToolOutcome::Crashed { error });
    }
}

/// There is more in the log, or nothing is there any more. Text as it comes is the child's.
impl Handler<Live> for Delegation {
    type Result = ();

    fn handle(&mut self, live: Live, _ctx: &mut Self::Context) {
        self.watch.tick();
        match live {
            Live::Committed { .. } | Live::Purged => self.wishes.look(),
            Live::Delta(_) | Live::Draining => {}
        }
    }
}

/// Nobody wants the answer any more: the child is to close, and its end is to be told.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Close {
    /// For whom.
    pub by: UserId,
}

impl Handler<Close> for Delegation {
    type Result = ();

    fn handle(&mut self, Close { by }: Close, _ctx: &mut Self::Context) {
        self.watch.tick();
        self.awaits = None;
        self.watch.set_state("closing", Some(format!("session {}", self.child)));
        self.wishes.close(by);
    }
}

/// The child may do no more than this from now on.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Narrow {
    /// What the parent allows.
    pub within: Arc<Settings>,
}

impl Handler<Narrow> for Delegation {
    type Result = ();

    fn handle(&mut self, Narrow { within }: Narrow, _ctx: &mut Self::Context) {
        self.watch.tick();
        self.wishes.narrow(within);
    }
}

/// The parent's actor ends. The child goes on; whoever comes next takes up where this one was.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Leave;

impl Handler<Leave> for Delegation {
    type Result = ();

    fn handle(&mut self, _: Leave, ctx: &mut Self::Context) {
        self.watch.tick();
        self.awaits = None;
        ctx.stop();
    }
}
