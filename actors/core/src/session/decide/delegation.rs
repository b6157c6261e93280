//! Child sessions (S8): in a parent, starts children, mirrors their events and closes them; in a
//! child, starts the task and closes the session after it.
//!
//! The event that starts the first attempt of a delegated call records the child's id, and every
//! later attempt uses the same id. The child stays in the parent's state until its end is mirrored,
//! even if its call ended long before, so that a cancellation reaches it whenever the process dies.

use super::{DecisionBuilder, Rejection, Reply};
use crate::{
    authors::Authors,
    budget::{Budget, BudgetScope},
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
    /// Creates the session and starts its task in one commit, so that an existing child is known to
    /// have its task.
    pub(super) fn decide_create_child(&mut self, task: &ChildTask) -> Reply {
        let (owner, agent) = (task.owner.clone(), task.agent.clone());
        self.owner_and_parent = Some((owner.clone(), task.parent.clone()));
        self.emit(SessionEvent::SessionCreated {
            owner,
            agent,
            title: Some(task.title()),
            settings: task.settings.clone(),
            parent: Some(task.parent.clone()),
        });
        self.start_child_task(task)
    }

    /// Checks that the session accepts the message: a child accepts only steering messages.
    pub(super) fn ensure_accepts_messages(&self, is_steering: bool) -> Result<(), Rejection> {
        match &self.owner_and_parent {
            Some((_, parent)) if !(is_steering && self.active.run.is_some()) => {
                Err(Rejection::IsChildSession { parent: parent.session_id })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Narrows the session's settings to `bounds`.
    pub(super) fn decide_narrow_settings(&mut self, bounds: &Settings) -> Reply {
        let Some(owner) = self.owner() else { return Reply::Done };
        if self.active.lifecycle == Lifecycle::Open {
            let settings = self.active.settings.narrowed_to(bounds);
            self.set_settings(settings, self.active.title.clone(), owner);
        }
        Reply::Done
    }

    /// Closes the session if it is a child without a run and without children, regardless of the
    /// result of its task. Its children close first, so that its end is the last event of its whole
    /// subtree. Returns false if the session is not a child.
    pub(super) fn close_if_child(&mut self) -> bool {
        let Some((owner, _)) = self.owner_and_parent.clone() else { return false };
        if self.active.lifecycle == Lifecycle::Open && self.active.children.is_empty() {
            self.close_session(owner);
        }
        true
    }

    /// Returns true if a child session executes the call.
    pub(super) fn is_delegation(&self, call: &Call) -> bool {
        let is_known = self.active.child_for_call(call.call_id).is_some();
        is_known || self.env.rules.tool(&call.tool).is_some_and(|tool| is_delegate(tool))
    }

    /// Returns the number of further children that may run at the same time.
    pub(super) fn free_child_slots(&self) -> usize {
        let run_id = self.active.run.as_ref().map(|run| run.run_id);
        let is_running = |child: &&Child| Some(child.run_id) == run_id && !child.closed;
        let running = self.active.children.iter().filter(is_running).count();
        self.env.rules.children_max.max(1).saturating_sub(running)
    }

    /// Starts an attempt of a delegated call. Returns `None` if the arguments name no agent or
    /// task.
    pub(super) fn start_child(&mut self, call: &Call, run_id: RunId, attempt: u32) -> Option<()> {
        let DelegateArgs { agent, task } =
            DelegateArgs::from_arguments(&call.effective_arguments())?;
        let owner = self.owner()?;
        let known = self.active.child_for_call(call.call_id);
        let after_seq = known.map(|child| child.mirrored_seq).unwrap_or_default();
        let child = known.map(|child| child.session_id);
        let child = child.unwrap_or_else(|| SessionId(self.env.uuid()));
        let parent = Arc::new(self.as_parent(call.call_id, run_id));
        let settings = Arc::new(self.narrowed_settings());
        let run_trace = self.active.run.as_ref().and_then(|run| run.traceparent);
        let attempt_id = AttemptId(self.env.uuid());
        self.emit(SessionEvent::ToolCallAttemptStarted {
            call_id: call.call_id,
            attempt_id,
            attempt,
            child: Some(ChildRef { session_id: child, agent: agent.clone() }),
        });
        let traceparent = TraceContext::for_attempt(run_id, run_trace, attempt_id);
        let authors = self.child_authors(call);
        let prompt = task;
        let task =
            ChildTask { child, agent, prompt, owner, settings, parent, authors, traceparent };
        self.effects.push(Effect::StartChild { attempt_id, task: Arc::new(task), after_seq });
        Some(())
    }

    /// Returns the users who wrote a part of the task of a delegated call. An edit of the call
    /// changes the task (G12).
    fn child_authors(&self, call: &Call) -> Authors {
        let Some(run) = &self.active.run else { return Authors::default() };
        let mut authors = run.authors.clone();
        run.editors(call).iter().for_each(|editor| authors.add(editor));
        authors
    }

    /// Returns this session as the parent of the child that works for that call.
    fn as_parent(&self, call_id: CallId, run_id: RunId) -> Parent {
        let session_id = self.session.session_id;
        let grandparent = self.owner_and_parent.as_ref().map(|(_, parent)| parent);
        let agent = &self.env.rules.agent;
        let workflow = self.active.run.as_ref().and_then(|run| run.workflow.as_ref());
        let workflow_tools =
            || workflow.and_then(|workflow| workflow.tools.as_deref().map(Arc::from));
        let tools = agent.inherited_tools.clone().or_else(workflow_tools);
        Parent {
            session_id,
            run_id,
            call_id,
            root: grandparent.map_or(RootRun { session_id, run_id }, |parent| parent.root),
            depth: grandparent.map_or(0, |parent| parent.depth) + 1,
            bounds: ChildBounds {
                headless: agent.headless,
                tools,
                agents: self.agents().cloned().collect(),
                budgets: self.child_budget_shares(),
            },
        }
    }

    /// Returns the budgets of one child: an equal share of what is left for each unfinished
    /// delegated call of this step, so that their sum never exceeds that amount. User budgets are
    /// left out, because they cover all sessions of the user anyway.
    fn child_budget_shares(&self) -> Vec<Budget> {
        let calls = self.active.run.iter().flat_map(|run| &run.calls);
        let sharing = calls.filter(|call| !call.is_finished() && self.is_delegation(call)).count();
        let mut shares: Vec<Budget> = Vec::new();
        for budget in
            self.effective_budgets().into_iter().filter(|budget| budget.scope != BudgetScope::User)
        {
            let decimals = self.env.rules.units.decimals_of(&budget.measure);
            let limit = self.remaining_of(&budget).equal_share(sharing, decimals);
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

    /// Mirrors the child's events that are new.
    pub(super) fn decide_child_events_received(
        &mut self,
        child: SessionId,
        records: &[EventRecord],
    ) -> Reply {
        let before = self.tool_budgets();
        for record in records {
            let known = self.active.children.iter().find(|known| known.session_id == child);
            let Some(Child { call_id, agent, run_id, mirrored_seq, .. }) = known else { break };
            if record.seq == mirrored_seq.next() {
                let (call_id, agent, run_id) = (*call_id, agent.clone(), *run_id);
                let event = mirror_event(record);
                let event = SessionEvent::ChildEvent { session_id: child, agent, call_id, event };
                self.emit_for_run(run_id, event);
            }
        }
        self.request_raises_for_children(&before);
        self.advance_without_run()
    }

    /// Records that a child does not exist and removes it.
    pub(super) fn decide_child_gone(&mut self, child: SessionId) -> Reply {
        let known = self.active.children.iter().find(|known| known.session_id == child);
        if let Some(Child { session_id, call_id, run_id, .. }) = known {
            let event = SessionEvent::ChildGone { session_id: *session_id, call_id: *call_id };
            self.emit_for_run(*run_id, event);
        }
        self.advance_without_run()
    }

    /// Continues work that waited for the last child to close, if no run is active.
    fn advance_without_run(&mut self) -> Reply {
        if self.active.run.is_none() {
            self.advance();
        }
        Reply::Done
    }

    /// Emits an event of a run that may have ended.
    fn emit_for_run(&mut self, run_id: RunId, event: SessionEvent) {
        let run = self.active.run.as_ref().filter(|run| run.run_id == run_id);
        let step = run.map(|run| run.step).filter(|step| *step > 0);
        self.emit_for(Some(run_id), step, event);
    }

    /// Requests that the child of a call is closed, because its answer is no longer needed.
    pub(super) fn close_child_for_call(&mut self, call_id: CallId, closed_by: &UserId) {
        if let Some(child) = self.active.child_for_call(call_id).filter(|child| !child.closed) {
            let (child, after_seq, by) = (child.session_id, child.mirrored_seq, closed_by.clone());
            self.effects.push(Effect::CloseChild { child, call_id, after_seq, by });
        }
    }

    /// Closes the child of a call on the owner's behalf, if the call has ended.
    pub(super) fn close_child_of_finished_call(&mut self, call_id: CallId) {
        let is_finished = self.call(call_id).is_none_or(Call::is_finished);
        if let Some(owner) = self.owner().filter(|_| is_finished) {
            self.close_child_for_call(call_id, &owner);
        }
    }

    /// Returns the session's principal.
    pub(super) fn owner(&self) -> Option<UserId> {
        let child_owner = self.owner_and_parent.as_ref().map(|(owner, _)| owner);
        let metadata = self.session.metadata.as_ref();
        child_owner.or(metadata.map(|metadata| &metadata.owner)).cloned()
    }

    /// Closes the children of ended calls again after a restart, because the first request may have
    /// been lost.
    pub(super) fn close_orphaned_children(&mut self) {
        let calls: Vec<_> = self.active.children.iter().map(|child| child.call_id).collect();
        calls.into_iter().for_each(|call_id| self.close_child_of_finished_call(call_id));
    }

    /// Narrows the settings of open children after the session's settings changed.
    pub(super) fn narrow_children(&mut self) {
        let settings = Arc::new(self.narrowed_settings());
        let open = self.active.children.iter().filter(|child| !child.closed);
        let narrow = |child: &Child| Effect::NarrowChild {
            child: child.session_id,
            parent_settings: settings.clone(),
        };
        let effects: Vec<_> = open.map(narrow).collect();
        self.effects.extend(effects);
    }
}
