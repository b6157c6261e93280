//! The index of questions that wait: whose they are, and when their time is up (G10, G11).
//!
//! A question holds no task and no timer of its own: it is a stored row, and a line in this
//! index, whose one timer is set to the earliest deadline. Sessions tell what was asked, answered and
//! closed; at a deadline the desk wakes the session, which may have left memory long ago. Whoever
//! looks on is told that something is different, and reads what from the store.

use crate::{
    limits::{DEADLINE_RETRY_DELAY, SHARED_ACTOR_MAILBOX_MAX},
    mailbox::Mailbox,
    ports::Clock,
    session_registry::{DeliverInput, SessionRegistry},
    status_board::StatusEntry,
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
    pending: HashMap<ApprovalId, (SessionId, Option<Timestamp>)>,
    deadlines: BTreeSet<(Timestamp, ApprovalId)>,
    deadline_timer: Option<SpawnHandle>,
    changes: watch::Sender<()>,
    status_entry: StatusEntry,
}

impl ApprovalDesk {
    /// An empty desk, which says on `changes` whenever a question is not as it was.
    pub fn new(
        clock: Arc<dyn Clock>,
        changes: watch::Sender<()>,
        status_entry: StatusEntry,
    ) -> Self {
        Self {
            clock,
            registry: None,
            pending: HashMap::new(),
            deadlines: BTreeSet::new(),
            deadline_timer: None,
            changes,
            status_entry,
        }
    }

    fn untrack(&mut self, approval_id: ApprovalId) {
        if let Some((_, Some(deadline))) = self.pending.remove(&approval_id) {
            self.deadlines.remove(&(deadline, approval_id));
        }
    }

    fn reschedule(&mut self, ctx: &mut Context<Self>) {
        if let Some(alarm) = self.deadline_timer.take() {
            ctx.cancel_future(alarm);
        }
        let count = self.pending.len();
        let waiting_for = match count {
            0 => None,
            1 => Some("people, to answer 1 approval".to_owned()),
            _ => Some(format!("people, to answer {count} approvals")),
        };
        self.status_entry.set_state(if count > 0 { "waiting" } else { "idle" }, waiting_for);
        if let Some((deadline, _)) = self.deadlines.first() {
            let delay = deadline.saturating_duration_since(self.clock.now());
            self.deadline_timer = Some(ctx.run_later(delay, Self::wake_due_sessions));
        }
    }

    /// Wakes the sessions whose questions' time is up. A question stays until its session says
    /// that it is closed, so a wake-up that came to nothing is repeated.
    fn wake_due_sessions(&mut self, ctx: &mut Context<Self>) {
        self.deadline_timer = None;
        let now = self.clock.now();
        let due: Vec<_> = self.deadlines.iter().take_while(|(at, _)| *at <= now).copied().collect();
        for (deadline, approval_id) in due {
            let Some((session_id, at)) = self.pending.get_mut(&approval_id) else { continue };
            let again = now.saturating_add(DEADLINE_RETRY_DELAY);
            *at = Some(again);
            self.deadlines.remove(&(deadline, approval_id));
            self.deadlines.insert((again, approval_id));
            if let Some(registry) = &self.registry {
                let session_id = *session_id;
                registry.send(DeliverInput { session_id, input: Input::Wake, reply: None });
            }
        }
        self.reschedule(ctx);
    }
}

impl Actor for ApprovalDesk {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SHARED_ACTOR_MAILBOX_MAX);
        self.reschedule(ctx);
    }
}

/// Who wakes sessions; told once, at start.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SetRegistry(pub Mailbox<SessionRegistry>);

impl Handler<SetRegistry> for ApprovalDesk {
    type Result = ();

    fn handle(&mut self, SetRegistry(registry): SetRegistry, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        self.registry = Some(registry);
    }
}

/// A question waits.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TrackApproval {
    /// The question.
    pub approval_id: ApprovalId,
    /// The session that asks.
    pub session_id: SessionId,
    /// When its time is up.
    pub deadline: Option<Timestamp>,
}

impl Handler<TrackApproval> for ApprovalDesk {
    type Result = ();

    fn handle(&mut self, track: TrackApproval, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let TrackApproval { approval_id, session_id, deadline } = track;
        self.untrack(approval_id);
        self.pending.insert(approval_id, (session_id, deadline));
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, approval_id));
        }
        self.reschedule(ctx);
        self.changes.send_replace(());
    }
}

/// Some steps of a question are decided; it waits for the others.
#[derive(Message)]
#[rtype(result = "()")]
pub struct NotifyPartialAnswer;

impl Handler<NotifyPartialAnswer> for ApprovalDesk {
    type Result = ();

    fn handle(&mut self, _: NotifyPartialAnswer, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        self.changes.send_replace(());
    }
}

/// A question no longer waits.
#[derive(Message)]
#[rtype(result = "()")]
pub struct UntrackApproval {
    /// The question.
    pub approval_id: ApprovalId,
}

impl Handler<UntrackApproval> for ApprovalDesk {
    type Result = ();

    fn handle(
        &mut self,
        UntrackApproval { approval_id }: UntrackApproval,
        ctx: &mut Self::Context,
    ) {
        self.status_entry.record_handled();
        self.untrack(approval_id);
        self.reschedule(ctx);
        self.changes.send_replace(());
    }
}

/// How many questions wait.
#[derive(Message)]
#[rtype(result = "usize")]
pub struct CountPendingApprovals;

impl Handler<CountPendingApprovals> for ApprovalDesk {
    type Result = MessageResult<CountPendingApprovals>;

    fn handle(&mut self, _: CountPendingApprovals, _ctx: &mut Self::Context) -> Self::Result {
        self.status_entry.record_handled();
        MessageResult(self.pending.len())
    }
}
