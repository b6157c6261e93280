//! Delegates a task to a child session (S8): creates the child, mirrors its events to the parent's
//! log, and reports the result.
//!
//! [`crate::session::Session`] starts one delegation for each child that is not closed, on its own
//! arbiter. Events are read from the child's log, starting after the last one that the parent has;
//! the event bus only signals that there are more. The parent ignores events it already has, so a
//! repeated delivery changes nothing. The actor knows neither the policy nor the child's decisions.

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

/// Ports and actors that a delegation uses.
#[derive(Clone)]
pub struct DelegationDeps {
    /// The parent session.
    pub parent: SessionId,
    /// The event log.
    pub journal: Arc<dyn Journal>,
    /// The session registry.
    pub registry: Mailbox<SessionRegistry>,
    /// The event bus of the child's shard.
    pub bus: Mailbox<EventBus>,
}

/// The parameters of a delegation.
pub struct DelegationParams {
    /// The child session.
    pub child: SessionId,
    /// The call that the child works for.
    pub call_id: CallId,
    /// The last of the child's events that the parent's log has.
    pub after_seq: Seq,
    /// The request to the child: run a task, or close.
    pub request: ChildRequest,
}

/// A request sent to a child session.
pub enum ChildRequest {
    /// Run a task and return its result, which ends an attempt of the call.
    RunTask {
        /// The attempt of the call.
        attempt_id: AttemptId,
        /// The task.
        task: Arc<ChildTask>,
        /// Maximum bytes of the result to keep.
        result_bytes_max: usize,
        /// The receiver of the outcome.
        session: Mailbox<Session>,
    },
    /// Close the child.
    Close {
        /// The user on whose behalf the child is closed.
        by: UserId,
    },
}

/// The actor of one delegation.
pub struct Delegation {
    deps: DelegationDeps,
    params: Option<DelegationParams>,
    child: SessionId,
    pending_requests: Rc<PendingRequests>,
    subscription: SubscriptionHandle,
    /// The attempt that waits for the outcome.
    pending_outcome: Option<PendingOutcome>,
    status_entry: StatusEntry,
}

struct PendingOutcome {
    session: Mailbox<Session>,
    call_id: CallId,
    attempt_id: AttemptId,
}

impl Delegation {
    /// Creates a delegation that starts when the actor starts.
    pub fn new(deps: DelegationDeps, params: DelegationParams, status_entry: StatusEntry) -> Self {
        let (child, pending_requests) = (params.child, Rc::<PendingRequests>::default());
        let pending_outcome = match &params.request {
            ChildRequest::RunTask { attempt_id, session, .. } => Some(PendingOutcome {
                session: session.clone(),
                call_id: params.call_id,
                attempt_id: *attempt_id,
            }),
            ChildRequest::Close { by } => {
                pending_requests.request_close(by.clone());
                None
            }
        };
        let subscription = SubscriptionHandle::new(status_entry.clone());
        let params = Some(params);
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
        let Some(params) = self.params.take() else { return };
        self.status_entry.set_state("waiting", Some(format!("session {}", self.child)));
        let (deps, pending_requests) = (self.deps.clone(), self.pending_requests.clone());
        let recipient = ctx.address().recipient();
        let run_loop = DelegationLoop::new(
            deps,
            params,
            pending_requests,
            self.subscription.clone(),
            recipient,
        );
        ctx.spawn(run_loop.run().into_actor(self).map(|outcome, actor, ctx| {
            if let Some(outcome) = outcome {
                actor.report_outcome(outcome);
            }
            ctx.stop();
        }));
    }

    /// Also runs when a handler panicked: the session must receive an outcome of every attempt.
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        let (session_id, handle) = (Some(self.child), self.subscription.clone());
        self.deps.bus.send(Unsubscribe { session_id, handle });
        let error = "the delegation was stopped inside the server".to_owned();
        self.report_outcome(ToolOutcome::Crashed { error });
    }
}

/// Wakes the loop when the child's log has changed or was purged. Deltas are not mirrored.
impl Handler<BusMessage> for Delegation {
    type Result = ();

    fn handle(&mut self, message: BusMessage, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        match message {
            BusMessage::Committed { .. } | BusMessage::Purged => self.pending_requests.wake(),
            BusMessage::Delta(_) | BusMessage::Draining => {}
        }
    }
}

/// Closes the child and mirrors its last events. Its result is no longer needed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CloseChild {
    /// The user on whose behalf the child is closed.
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

/// Restricts the child's settings to those of the parent.
#[derive(Message)]
#[rtype(result = "()")]
pub struct NarrowChild {
    /// The parent's settings.
    pub parent_settings: Arc<Settings>,
}

impl Handler<NarrowChild> for Delegation {
    type Result = ();

    fn handle(&mut self, NarrowChild { parent_settings }: NarrowChild, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        self.pending_requests.request_narrow(parent_settings);
    }
}

/// Stops the delegation because the parent's actor stops. The child continues; a later delegation
/// resumes after the last mirrored event.
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
