//! Tasks for other agents (S8): starting children, mirroring what happens in them, and telling them
//! to stop; and, in a child, beginning with its task and ending with it.
//!
//! A child's id is recorded with the attempt that starts it, and every later attempt of the call has
//! the same one. It stays in the state until its end is mirrored, also where its call has ended long
//! before: so a cancel reaches it, whenever the process dies.

use super::{DecisionBuilder, Rejection, Reply};
use crate::{
    budget::{Budget, BudgetScope, rounded_down},
    call::Call,
    delegation::{
        Child, ChildBounds, ChildRef, ChildTask, DelegateArgs, Parent, RootRun, is_delegate,
        mirror_event,
    },
    ids::{AttemptId, CallId, RunId, SessionId, UserId},
    policy::{BudgetPeriod, Settings},
    session::{Effect, EventRecord, Lifecycle, SessionEvent},
    trace_context::TraceContext,
};
use std::sync::Arc;

impl DecisionBuilder<'_> {
    /// Begins to exist, and begins with its task, as one: so whoever finds the child there knows that
    /// it has its task.
    pub(super) fn decide_create_child(&mut self, errand: &ChildTask) -> Reply {
        let (owner, agent) = (errand.owner.clone(), errand.agent.clone());
        self.owner_and_parent = Some((owner.clone(), errand.parent.clone()));
        self.emit(SessionEvent::SessionCreated {
            owner,
            agent,
            title: Some(errand.title()),
            settings: errand.settings.clone(),
            parent: Some(errand.parent.clone()),
        });
        self.start_child_task(errand)
    }

    /// The tasks that a session has are its parent's: people may only steer.
    pub(super) fn ensure_accepts_messages(&self, steers: bool) -> Result<(), Rejection> {
        match &self.owner_and_parent {
            Some((_, parent)) if !(steers && self.active.run.is_some()) => {
                Err(Rejection::IsChildSession { parent: parent.session_id })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Allows no more than `within`.
    pub(super) fn decide_narrow_settings(&mut self, within: &Settings) -> Reply {
        let Some(owner) = self.owner() else { return Reply::Done };
        if self.active.lifecycle == Lifecycle::Open {
            let settings = self.active.settings.narrowed_to(within);
            self.set_settings(settings, self.active.title.clone(), owner);
        }
        Reply::Done
    }

    /// A child has done its task, however that ended: it closes, after those that work for it. So its
    /// end is the last that is heard of it and of all below it. False for a session of people's.
    pub(super) fn close_if_child(&mut self) -> bool {
        let Some((owner, _)) = self.owner_and_parent.clone() else { return false };
        if self.active.lifecycle == Lifecycle::Open && self.active.children.is_empty() {
            self.close_session(owner);
        }
        true
    }

    /// Whether a session is to do what the call says.
    pub(super) fn is_delegation(&self, call: &Call) -> bool {
        let is_known = self.active.child_for_call(call.call_id).is_some();
        is_known || self.env.rules.tool(&call.tool).is_some_and(|tool| is_delegate(tool))
    }

    /// How many more children may work at once.
    pub(super) fn free_child_slots(&self) -> usize {
        let run_id = self.active.run.as_ref().map(|run| run.run_id);
        let of_run = |child: &&Child| Some(child.run_id) == run_id && !child.closed;
        let taken = self.active.children.iter().filter(of_run).count();
        self.env.rules.children_max.max(1).saturating_sub(taken)
    }

    /// Starts an attempt of a call that another session is to do; `None` if nobody can tell what.
    pub(super) fn start_child(&mut self, call: &Call, run_id: RunId, attempt: u32) -> Option<()> {
        let DelegateArgs { agent, task } =
            DelegateArgs::from_arguments(&call.effective_arguments())?;
        let owner = self.owner()?;
        let known = self.active.child_for_call(call.call_id);
        let after = known.map(|child| child.mirrored_seq).unwrap_or_default();
        let child = known.map(|child| child.session_id);
        let child = child.unwrap_or_else(|| SessionId(self.env.uuid()));
        let parent = Arc::new(self.as_parent(call.call_id, run_id));
        let settings = self.active.effective_settings().clone();
        let above = self.active.run.as_ref().and_then(|run| run.traceparent);
        let attempt_id = AttemptId(self.env.uuid());
        self.emit(SessionEvent::ToolCallAttemptStarted {
            call_id: call.call_id,
            attempt_id,
            attempt,
            child: Some(ChildRef { session_id: child, agent: agent.clone() }),
        });
        let traceparent = TraceContext::for_attempt(run_id, above, attempt_id);
        let errand = ChildTask { child, agent, prompt: task, owner, settings, parent, traceparent };
        let errand = Arc::new(errand);
        self.effects.push(Effect::StartChild { attempt_id, task: errand, after_seq: after });
        Some(())
    }

    /// This session as the parent of one that works for that call.
    fn as_parent(&self, call_id: CallId, run_id: RunId) -> Parent {
        let session_id = self.session.session_id;
        let above = self.owner_and_parent.as_ref().map(|(_, parent)| parent);
        let agent = &self.env.rules.agent;
        let workflow = self.active.run.as_ref().and_then(|run| run.workflow.as_ref());
        let of_workflow = || workflow.and_then(|it| it.tools.as_deref().map(Arc::from));
        let tools = agent.inherited_tools.clone().or_else(of_workflow);
        Parent {
            session_id,
            run_id,
            call_id,
            root: above.map_or(RootRun { session_id, run_id }, |parent| parent.root),
            depth: above.map_or(0, |parent| parent.depth) + 1,
            bounds: ChildBounds {
                headless: agent.headless,
                tools,
                budgets: self.child_budget_shares(),
            },
        }
    }

    /// What each of the children that are to work in this step may spend of what is left: together
    /// never more than that. What the user may spend is counted for all of their sessions anyway.
    fn child_budget_shares(&self) -> Vec<Budget> {
        let calls = self.active.run.iter().flat_map(|run| &run.calls);
        let sharing = calls.filter(|call| !call.is_finished() && self.is_delegation(call)).count();
        let mut shares: Vec<Budget> = Vec::new();
        for budget in
            self.effective_budgets().into_iter().filter(|budget| budget.scope != BudgetScope::User)
        {
            // A sum that is no number leaves nothing.
            let left = (budget.limit - self.total_spent(&budget)).max(0.0);
            let limit = equal_share(left, sharing.max(1));
            match shares.iter_mut().find(|share| share.measure == budget.measure) {
                Some(share) => share.limit = share.limit.min(limit),
                None => {
                    let (scope, period) = (BudgetScope::Parent, BudgetPeriod::Total);
                    shares.push(Budget { scope, period, limit, ..budget });
                }
            }
        }
        shares
    }

    /// Mirrors what is new.
    pub(super) fn decide_child_events_received(
        &mut self,
        child: SessionId,
        records: &[EventRecord],
    ) -> Reply {
        let before = self.tool_budgets();
        for record in records {
            let known = self.active.children.iter().find(|known| known.session_id == child);
            let Some(known) = known else { break };
            if record.seq == known.mirrored_seq.next() {
                let (call_id, agent, run_id) = (known.call_id, known.agent.clone(), known.run_id);
                let event = mirror_event(record);
                let told = SessionEvent::ChildEvent { session_id: child, agent, call_id, event };
                self.emit_for_run(run_id, told);
            }
        }
        self.request_raises_for_children(&before);
        self.advance_without_run()
    }

    /// Nothing more comes of it.
    pub(super) fn decide_child_gone(&mut self, child: SessionId) -> Reply {
        let known = self.active.children.iter().find(|known| known.session_id == child);
        if let Some(Child { session_id, call_id, run_id, .. }) = known {
            let gone = SessionEvent::ChildGone { session_id: *session_id, call_id: *call_id };
            self.emit_for_run(*run_id, gone);
        }
        self.advance_without_run()
    }

    /// What waited for the last of them to close goes on.
    fn advance_without_run(&mut self) -> Reply {
        if self.active.run.is_none() {
            self.advance();
        }
        Reply::Done
    }

    /// Records an event of a run that may be over.
    fn emit_for_run(&mut self, run_id: RunId, event: SessionEvent) {
        let run = self.active.run.as_ref().filter(|run| run.run_id == run_id);
        let step = run.map(|run| run.step).filter(|step| *step > 0);
        self.emit_for(Some(run_id), step, event);
    }

    /// Nobody wants what the call's child is doing.
    pub(super) fn close_child_for_call(&mut self, call_id: CallId, by: &UserId) {
        if let Some(child) = self.active.child_for_call(call_id).filter(|child| !child.closed) {
            let (child, after, by) = (child.session_id, child.mirrored_seq, by.clone());
            self.effects.push(Effect::CloseChild { child, call_id, after_seq: after, by });
        }
    }

    /// The same of a call that ended by itself.
    pub(super) fn close_child_of_finished_call(&mut self, call_id: CallId) {
        let is_finished = self.call(call_id).is_none_or(Call::is_finished);
        if let Some(owner) = self.owner().filter(|_| is_finished) {
            self.close_child_for_call(call_id, &owner);
        }
    }

    /// Whose session it is.
    pub(super) fn owner(&self) -> Option<UserId> {
        let told = self.owner_and_parent.as_ref().map(|(owner, _)| owner);
        told.or(self.session.metadata.as_ref().map(|identity| &identity.owner)).cloned()
    }

    /// After a restart: the children that were told to stop may not have heard it.
    pub(super) fn close_orphaned_children(&mut self) {
        let calls: Vec<_> = self.active.children.iter().map(|child| child.call_id).collect();
        calls.into_iter().for_each(|call_id| self.close_child_of_finished_call(call_id));
    }

    /// What the session allows has changed; its children may not go on with more.
    pub(super) fn narrow_children(&mut self) {
        let within = self.active.effective_settings().clone();
        let open = self.active.children.iter().filter(|child| !child.closed);
        let narrow = |child: &Child| Effect::NarrowChild {
            child: child.session_id,
            parent_settings: within.clone(),
        };
        let effects: Vec<_> = open.map(narrow).collect();
        self.effects.extend(effects);
    }
}

/// One of so many equal parts: an amount that people can read. All together are no more than the whole.
fn equal_share(whole: f64, parts: usize) -> f64 {
    if parts == 1 { whole } else { rounded_down(whole / parts as f64) }
}
