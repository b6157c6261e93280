//! The index of pending approvals with their sessions and deadlines (G10, G11).
//!
//! A pending approval holds neither a task nor a timer of its own: it is a stored row and an entry
//! in this index, whose only timer is set to the earliest deadline. Sessions report approvals that
//! were requested, answered or closed. At a deadline the desk wakes the session, which may have
//! been passivated. Observers are notified that something has changed and read the change from the
//! store.

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

/// The approval desk actor.
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
    /// Creates an empty desk. It notifies `changes` of every change to an approval.
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
        if let Some(timer) = self.deadline_timer.take() {
            ctx.cancel_future(timer);
        }
        let count = self.pending.len();
        let waiting_for = match count {
            0 => None,
            1 => Some("1 pending approval".to_owned()),
            _ => Some(format!("{count} pending approvals")),
        };
        self.status_entry.set_state(if count > 0 { "waiting" } else { "idle" }, waiting_for);
        if let Some((deadline, _)) = self.deadlines.first() {
            let delay = deadline.saturating_duration_since(self.clock.now());
            self.deadline_timer = Some(ctx.run_later(delay, Self::wake_due_sessions));
        }
    }

    /// Wakes the sessions whose approvals have reached their deadline. An approval stays tracked
    /// until its session reports that it is closed, so an unsuccessful wake-up is repeated.
    fn wake_due_sessions(&mut self, ctx: &mut Context<Self>) {
        self.deadline_timer = None;
        let now = self.clock.now();
        let due: Vec<_> =
            self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now).copied().collect();
        for (deadline, approval_id) in due {
            let Some((session_id, tracked_deadline)) = self.pending.get_mut(&approval_id) else {
                continue;
            };
            let retry_at = now.saturating_add(DEADLINE_RETRY_DELAY);
            *tracked_deadline = Some(retry_at);
            self.deadlines.remove(&(deadline, approval_id));
            self.deadlines.insert((retry_at, approval_id));
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

/// Gives the desk the session registry, once at start.
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

/// Reports that an approval is pending.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TrackApproval {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The session that requests the approval.
    pub session_id: SessionId,
    /// The time at which the approval expires.
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

/// Reports that some steps of an approval are answered while others are pending.
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

/// Reports that an approval is closed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct UntrackApproval {
    /// The approval.
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

/// Returns the number of pending approvals.
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
