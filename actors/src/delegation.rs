//! A task in another session's hands (S8): carries it there, tells the parent what happens, and in
//! the end the answer.
//!
//! Started by [`crate::session::Session`] on its own arbiter, one for each child that is not closed.
//! What it tells is read from the child's log, from where the parent has got to; the bus only says
//! that there is more. It is the parent that counts, so being told twice changes nothing. It knows
//! neither policy nor what a child decides.

mod run_loop;

use crate::{
    event_bus::{BusMessage, EventBus, SubscriptionHandle, Unsubscribe},
    mailbox::Mailbox,
    ports::Journal,
    session::{Fact, Session},
    session_registry::SessionRegistry,
    status_board::StatusEntry,
};
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, WrapFuture,
};
use greenroom_core::{
    call::ToolOutcome,
    delegation::ChildTask,
    ids::{AttemptId, CallId, Seq, SessionId, UserId},
    policy::Settings,
    session::Input,
};
use run_loop::{DelegationLoop, PendingRequests};
use std::{rc::Rc, sync::Arc};

/// Whom a delegation talks to.
#[derive(Clone)]
pub struct DelegationDeps {
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
pub struct DelegationParams {
    /// The child.
    pub child: SessionId,
    /// The call that it works for.
    pub call_id: CallId,
    /// The last of the child's events that the parent has.
    pub after_seq: Seq,
    /// Whether it is to work, or to close.
    pub request: ChildRequest,
}

/// What is wanted of a child.
pub enum ChildRequest {
    /// Its answer, which ends an attempt of the call.
    RunTask {
        /// The attempt.
        attempt_id: AttemptId,
        /// What the child is to do.
        task: Arc<ChildTask>,
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
    deps: DelegationDeps,
    params: Option<DelegationParams>,
    child: SessionId,
    pending_requests: Rc<PendingRequests>,
    subscription: SubscriptionHandle,
    /// Who waits for the answer.
    pending_outcome: Option<PendingOutcome>,
    status_entry: StatusEntry,
}

struct PendingOutcome {
    session: Mailbox<Session>,
    call_id: CallId,
    attempt_id: AttemptId,
}

impl Delegation {
    /// One that begins when the actor starts.
    pub fn new(
        deps: DelegationDeps,
        assignment: DelegationParams,
        status_entry: StatusEntry,
    ) -> Self {
        let (child, pending_requests) = (assignment.child, Rc::<PendingRequests>::default());
        let pending_outcome = match &assignment.request {
            ChildRequest::RunTask { attempt_id, session, .. } => Some(PendingOutcome {
                session: session.clone(),
                call_id: assignment.call_id,
                attempt_id: *attempt_id,
            }),
            ChildRequest::Close { by } => {
                pending_requests.request_close(by.clone());
                None
            }
        };
        let subscription = SubscriptionHandle::new(status_entry.clone());
        let params = Some(assignment);
        Self { deps, params, child, pending_requests, subscription, pending_outcome, status_entry }
    }

    fn report_outcome(&mut self, outcome: ToolOutcome) {
        if let Some(PendingOutcome { session, call_id, attempt_id }) = self.pending_outcome.take() {
            session.send(Fact(Input::ToolFinished { call_id, attempt_id, outcome }));
        }
    }
}

impl Actor for Delegation {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(assignment) = self.params.take() else { return };
        self.status_entry.set_state("waiting", Some(format!("session {}", self.child)));
        let (around, wishes) = (self.deps.clone(), self.pending_requests.clone());
        let recipient = ctx.address().recipient();
        let course =
            DelegationLoop::new(around, assignment, wishes, self.subscription.clone(), recipient);
        ctx.spawn(course.run().into_actor(self).map(|outcome, actor, ctx| {
            if let Some(outcome) = outcome {
                actor.report_outcome(outcome);
            }
            ctx.stop();
        }));
    }

    /// Also runs when a handler panicked: the session must hear of every end.
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        let (session_id, attachment) = (Some(self.child), self.subscription.clone());
        self.deps.bus.send(Unsubscribe { session_id, handle: attachment });
        let error = "what waited for the other session failed inside the server".to_owned();
        self.report_outcome(ToolOutcome::Crashed { error });
    }
}

/// There is more in the log, or nothing is there any more. Text as it comes is the child's.
impl Handler<BusMessage> for Delegation {
    type Result = ();

    fn handle(&mut self, live: BusMessage, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        match live {
            BusMessage::Committed { .. } | BusMessage::Purged => self.pending_requests.wake(),
            BusMessage::Delta(_) | BusMessage::Draining => {}
        }
    }
}

/// Nobody wants the answer any more: the child is to close, and its end is to be told.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CloseChild {
    /// For whom.
    pub by: UserId,
}

impl Handler<CloseChild> for Delegation {
    type Result = ();

    fn handle(&mut self, CloseChild { by }: CloseChild, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        self.pending_outcome = None;
        self.status_entry.set_state("closing", Some(format!("session {}", self.child)));
        self.pending_requests.request_close(by);
    }
}

/// The child may do no more than this from now on.
#[derive(Message)]
#[rtype(result = "()")]
pub struct NarrowChild {
    /// What the parent allows.
    pub parent_settings: Arc<Settings>,
}

impl Handler<NarrowChild> for Delegation {
    type Result = ();

    fn handle(
        &mut self,
        NarrowChild { parent_settings: within }: NarrowChild,
        _ctx: &mut Self::Context,
    ) {
        self.status_entry.record_handled();
        self.pending_requests.request_narrow(within);
    }
}

/// The parent's actor ends. The child goes on; whoever comes next takes up where this one was.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DetachChild;

impl Handler<DetachChild> for Delegation {
    type Result = ();

    fn handle(&mut self, _: DetachChild, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        self.pending_outcome = None;
        ctx.stop();
    }
}
