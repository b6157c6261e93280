//! The sessions that work for this one (S8): for each that is not closed a [`Delegation`] sees to it.

use super::Session;
use crate::{
    delegation::{self, ChildRequest, Delegation, DelegationParams},
    mailbox::Mailbox,
    session_registry::shard_of,
};
use actix::{Actor, Context};
use greenroom_core::{
    Rules,
    delegation::{ChildTask, DELEGATE_TOOL},
    ids::{AttemptId, CallId, Seq, SessionId, UserId},
    limits::TOOL_RESULT_BYTES_DEFAULT,
    policy::Settings,
};
use std::sync::Arc;

impl Session {
    pub(super) fn start_child(
        &mut self,
        attempt_id: AttemptId,
        errand: Arc<ChildTask>,
        after: Seq,
        rules: &Rules,
        ctx: &mut Context<Self>,
    ) {
        let (child, call_id) = (errand.child, errand.parent.call_id);
        let limit = rules.tool(DELEGATE_TOOL).map(|tool| tool.result_bytes_max);
        let result_bytes_max = limit.unwrap_or(TOOL_RESULT_BYTES_DEFAULT);
        let session = self.own_mailbox(ctx);
        let end = ChildRequest::RunTask { attempt_id, task: errand, result_bytes_max, session };
        self.start_delegation(DelegationParams { child, call_id, after_seq: after, request: end });
    }

    pub(super) fn narrow_child(&mut self, child: SessionId, within: Arc<Settings>) {
        if let Some(delegation) = self.delegations.get(&child) {
            delegation.send(delegation::NarrowChild { parent_settings: within });
        }
    }

    pub(super) fn close_child(
        &mut self,
        child: SessionId,
        call_id: CallId,
        after: Seq,
        by: UserId,
    ) {
        match self.delegations.get(&child).filter(|delegation| delegation.is_open()) {
            Some(delegation) => delegation.send(delegation::CloseChild { by }),
            None => {
                let end = ChildRequest::Close { by };
                self.start_delegation(DelegationParams {
                    child,
                    call_id,
                    after_seq: after,
                    request: end,
                });
            }
        }
    }

    /// This actor ends; the children go on.
    pub(super) fn detach_children(&mut self) {
        for (_, delegation) in self.delegations.drain() {
            delegation.send(delegation::DetachChild);
        }
    }

    fn start_delegation(&mut self, assignment: DelegationParams) {
        let (parent, child) = (self.state.session_id, assignment.child);
        let path = format!("/sessions/{parent}/calls/{}", assignment.call_id);
        let watch = self.deps.status_board.register(path, "Delegation");
        let around = delegation::DelegationDeps {
            parent,
            journal: self.deps.journal.clone(),
            registry: self.registry.clone(),
            bus: shard_of(child, &self.deps.shards).bus.clone(),
        };
        let delegation = Delegation::new(around, assignment, watch.clone()).start();
        let before = self.delegations.insert(child, Mailbox::new(delegation, watch));
        before.into_iter().for_each(|delegation| delegation.send(delegation::DetachChild));
    }
}
