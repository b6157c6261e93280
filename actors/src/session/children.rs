//! Child sessions (S8): one [`Delegation`] actor for each child session that is not closed.

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
        task: Arc<ChildTask>,
        after_seq: Seq,
        rules: &Rules,
        ctx: &mut Context<Self>,
    ) {
        let (child, call_id) = (task.child, task.parent.call_id);
        let limit = rules.tool(DELEGATE_TOOL).map(|tool| tool.result_bytes_max);
        let result_bytes_max = limit.unwrap_or(TOOL_RESULT_BYTES_DEFAULT);
        let session = self.own_mailbox(ctx);
        let request = ChildRequest::RunTask { attempt_id, task, result_bytes_max, session };
        self.start_delegation(DelegationParams { child, call_id, after_seq, request });
    }

    pub(super) fn narrow_child(&mut self, child: SessionId, parent_settings: Arc<Settings>) {
        if let Some(delegation) = self.delegations.get(&child) {
            delegation.send(delegation::NarrowChild { parent_settings });
        }
    }

    pub(super) fn close_child(
        &mut self,
        child: SessionId,
        call_id: CallId,
        after_seq: Seq,
        by: UserId,
    ) {
        match self.delegations.get(&child).filter(|delegation| delegation.is_open()) {
            Some(delegation) => delegation.send(delegation::CloseChild { by }),
            None => {
                let request = ChildRequest::Close { by };
                self.start_delegation(DelegationParams { child, call_id, after_seq, request });
            }
        }
    }

    /// Detaches from the child sessions because this actor stops. The children continue.
    pub(super) fn detach_children(&mut self) {
        for (_, delegation) in self.delegations.drain() {
            delegation.send(delegation::DetachChild);
        }
    }

    fn start_delegation(&mut self, params: DelegationParams) {
        let (parent, child) = (self.state.session_id, params.child);
        let path = format!("/sessions/{parent}/calls/{}", params.call_id);
        let status_entry = self.deps.status_board.register(path, "Delegation");
        let deps = delegation::DelegationDeps {
            parent,
            journal: self.deps.journal.clone(),
            registry: self.registry.clone(),
            bus: shard_of(child, &self.deps.shards).bus.clone(),
        };
        let delegation = Delegation::new(deps, params, status_entry.clone()).start();
        let replaced = self.delegations.insert(child, Mailbox::new(delegation, status_entry));
        replaced.into_iter().for_each(|delegation| delegation.send(delegation::DetachChild));
    }
}
