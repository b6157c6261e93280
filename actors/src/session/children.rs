//! The sessions that work for this one (S8): for each that is not closed a [`Delegation`] sees to it.

use super::Session;
use crate::{
    delegation::{self, Assignment, Delegation, Wanted},
    mailbox::Mailbox,
    session_registry::home_of,
};
use actix::{Actor, Context};
use greenroom_core::{
    Rules,
    delegation::{DELEGATE, Errand},
    ids::{AttemptId, CallId, Seq, SessionId, UserId},
    limits::TOOL_RESULT_BYTES_DEFAULT,
    policy::Settings,
};
use std::sync::Arc;

impl Session {
    pub(super) fn start_child(
        &mut self,
        attempt_id: AttemptId,
        errand: Arc<Errand>,
        after: Seq,
        rules: &Rules,
        ctx: &mut Context<Self>,
    ) {
        let (child, call_id) = (errand.child, errand.parent.call_id);
        let limit = rules.tool(DELEGATE).map(|tool| tool.result_bytes_max);
        let result_bytes_max = limit.unwrap_or(TOOL_RESULT_BYTES_DEFAULT);
        let session = self.myself(ctx);
        let end = Wanted::Answer { attempt_id, errand, result_bytes_max, session };
        self.see_to(Assignment { child, call_id, after, end });
    }

    pub(super) fn narrow_child(&mut self, child: SessionId, within: Arc<Settings>) {
        if let Some(delegation) = self.children.get(&child) {
            delegation.tell(delegation::Narrow { within });
        }
    }

    pub(super) fn close_child(
        &mut self,
        child: SessionId,
        call_id: CallId,
        after: Seq,
        by: UserId,
    ) {
        match self.children.get(&child).filter(|delegation| delegation.is_open()) {
            Some(delegation) => delegation.tell(delegation::Close { by }),
            None => {
                let end = Wanted::Close { by };
                self.see_to(Assignment { child, call_id, after, end });
            }
        }
    }

    /// This actor ends; the children go on.
    pub(super) fn leave_children(&mut self) {
        for (_, delegation) in self.children.drain() {
            delegation.tell(delegation::Leave);
        }
    }

    fn see_to(&mut self, assignment: Assignment) {
        let (parent, child) = (self.state.session_id, assignment.child);
        let path = format!("/sessions/{parent}/calls/{}", assignment.call_id);
        let watch = self.around.board.watch(path, "Delegation");
        let around = delegation::Surroundings {
            parent,
            journal: self.around.journal.clone(),
            registry: self.registry.clone(),
            bus: home_of(child, &self.around.homes).bus.clone(),
        };
        let delegation = Delegation::new(around, assignment, watch.clone()).start();
        let before = self.children.insert(child, Mailbox::new(delegation, watch));
        before.into_iter().for_each(|delegation| delegation.tell(delegation::Leave));
    }
}
