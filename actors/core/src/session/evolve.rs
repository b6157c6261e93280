//! Folding events into state. Total, and the same in life and in replay: an event that makes no
//! sense in a state changes nothing but the head.

use super::{
    Active, Allowance, Compacted, Compaction, EventRecord, Lifecycle, QueuedMessage, Run,
    SessionEvent, SessionState, StepPhase, Submission, state::Identity,
};
use crate::{
    approval::{
        ApprovalEnd, ApprovalKind, ClosedApproval, Edit, Escalation, OpenApproval, StepDecision,
        Word,
    },
    budget::{Raise, Scope},
    call::{Call, CallEnd, CallPhase, FailReason, Reservation},
    delegation::{Child, Delegated},
    ids::{ApprovalId, CallId, RunId, SessionId},
    json::Digest,
    limits,
    message::{AssistantMessage, CallResult, Message, ProposedCall},
    policy::{Cost, Settings},
    preflight::{ApprovedPlan, Preflight},
    time::Day,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The state after `record`.
pub fn evolve(mut state: SessionState, record: &EventRecord) -> SessionState {
    state.remember(record);
    state.active.apply(record);
    state.head = record.seq;
    if let Some(identity) = &mut state.identity {
        identity.updated_at = record.at;
    }
    state
}

impl SessionState {
    /// What grows with the history: conversation, idempotency keys, closed questions, usage.
    fn remember(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        match &record.event {
            E::SessionCreated { owner, agent, parent, .. } => {
                self.identity = Some(Identity {
                    owner: owner.clone(),
                    agent: agent.clone(),
                    parent: parent.clone(),
                    created_at: record.at,
                    updated_at: record.at,
                });
            }
            E::SessionForked { owner, agent, conversation, .. } => {
                self.identity = Some(Identity {
                    owner: owner.clone(),
                    agent: agent.clone(),
                    parent: None,
                    created_at: record.at,
                    updated_at: record.at,
                });
                for message in conversation {
                    self.conversation.push(message.clone());
                }
            }
            E::MessageQueued { message_id, digest, .. }
            | E::MessageAccepted { message_id, digest, .. } => {
                if let Some(run_id) = record.run_id {
                    let submission = Submission { digest: *digest, run_id, seq: record.seq };
                    // A queued message is accepted later; what took it is the first of the two.
                    self.submissions.take(message_id.clone(), submission);
                }
                if let E::MessageAccepted { text, .. } = &record.event {
                    let (message_id, text) = (message_id.clone(), text.clone());
                    self.conversation.push(Message::User { message_id, text });
                }
            }
            E::StepStarted { .. } => self.seal_step(record),
            E::ContextCompacted { through, summary, .. } => {
                let (through, summary) = (*through, summary.clone());
                self.compacted = Some(Compacted { through, summary });
            }
            E::RunCompleted { usage, .. }
            | E::RunFailed { usage, .. }
            | E::RunCancelled { usage, .. } => {
                self.seal_step(record);
                self.usage = self.usage.plus(*usage);
            }
            E::ApprovalDecided { approval_id, steps, word, closed } => {
                if *closed {
                    let word = word.as_deref().cloned();
                    self.close_approval(*approval_id, ApprovalEnd::Decided, steps, word, record);
                }
            }
            E::ApprovalExpired { approval_id } => {
                self.close_approval(*approval_id, ApprovalEnd::Expired, &[], None, record);
            }
            E::ApprovalCancelled { approval_id } => {
                self.close_approval(*approval_id, ApprovalEnd::Cancelled, &[], None, record);
            }
            E::FeedbackGiven { .. } => self.feedback = self.feedback.saturating_add(1),
            E::SessionSettingsChanged { .. }
            | E::SessionClosed { .. }
            | E::MessageStarted { .. }
            | E::MessageCompleted { .. }
            | E::MessageDiscarded { .. }
            | E::RunStarted { .. }
            | E::StepCompleted { .. }
            | E::StepRetrying { .. }
            | E::StepModelFallback { .. }
            | E::ContextCompactionFailed { .. }
            | E::ToolCallStarted { .. }
            | E::ToolCallAllowed { .. }
            | E::ToolCallAttemptStarted { .. }
            | E::ToolCallProgress { .. }
            | E::ToolCallRetrying { .. }
            | E::LateResult { .. }
            | E::ToolCallCompleted { .. }
            | E::ToolCallFailed { .. }
            | E::AuthorizationDenied { .. }
            | E::ApprovalRequested { .. }
            | E::ApprovalEscalated { .. }
            | E::PreflightApproved { .. }
            | E::PreflightSkipped { .. }
            | E::BudgetReserved { .. }
            | E::BudgetReached { .. }
            | E::BudgetRaised { .. }
            | E::GrantAdded { .. }
            | E::GrantRevoked { .. }
            | E::ChildEvent { .. }
            | E::ChildGone { .. } => {}
        }
    }

    /// The step is over: its message and the results of its calls become conversation.
    fn seal_step(&mut self, record: &EventRecord) {
        let said = self.active.said_in_step_of(record.run_id);
        said.into_iter().for_each(|message| self.conversation.push(message));
    }

    /// What was said up to here, for a session that goes on from it: of the step that is going its
    /// complete message, with calls that are still open told as cancelled (S1).
    pub fn conversation_so_far(&self) -> Vec<Message> {
        let before = self.conversation.messages().into_iter().cloned();
        let open = "Cancelled: the session was forked before the call had its result";
        let now = self.active.run.as_ref().map(|run| said_in_step(run, open));
        before.chain(now.into_iter().flatten()).collect()
    }

    fn close_approval(
        &mut self,
        approval_id: ApprovalId,
        end: ApprovalEnd,
        last: &[StepDecision],
        word: Option<Word>,
        record: &EventRecord,
    ) {
        let Some(open) = self.active.open_approval(approval_id) else { return };
        let mut decisions = open.decisions.clone();
        decisions.extend(last.iter().map(|decision| (decision.call_id, decision.clone())));
        let (approval, run_id) = (open.approval.clone(), open.run_id);
        let (escalation, closed_at) = (open.escalation, record.at);
        self.closed_approvals.push_back(ClosedApproval {
            approval,
            run_id,
            end,
            closed_at,
            decisions,
            word,
            escalation,
        });
        if self.closed_approvals.len() > limits::CLOSED_APPROVALS_KEPT {
            self.closed_approvals.pop_front();
        }
    }
}

fn proposed(call: &Call) -> ProposedCall {
    ProposedCall {
        call_id: call.call_id,
        provider_id: call.provider_id.clone(),
        tool: call.tool.clone(),
        arguments: crate::message::Arguments::clone(&call.arguments),
    }
}

/// The complete message of the step that is going, and the results of its calls; `open` is what is
/// told of those that have none.
fn said_in_step(run: &Run, open: &str) -> Vec<Message> {
    let Some(message) = &run.message else { return Vec::new() };
    let calls: Vec<_> = run.calls.iter().map(proposed).collect();
    if message.text.is_empty() && calls.is_empty() {
        return Vec::new(); // Providers refuse empty messages.
    }
    let results: Vec<_> = run.calls.iter().map(|call| result_or(call, open)).collect();
    let message = AssistantMessage { calls, ..AssistantMessage::clone(message) };
    let mut said = vec![Message::Assistant(Arc::new(message))];
    if !results.is_empty() {
        said.push(Message::ToolResults(results));
    }
    said
}

fn result_or(call: &Call, open: &str) -> CallResult {
    call.result().unwrap_or_else(|| CallResult {
        call_id: call.call_id,
        provider_id: call.provider_id.clone(),
        tool: call.tool.clone(),
        text: open.into(),
        is_error: true,
    })
}

impl Active {
    /// What is going on after `record`. A decision applies its own events to a copy with this.
    pub(super) fn apply(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        match &record.event {
            E::SessionCreated { title, settings, .. }
            | E::SessionForked { title, settings, .. } => {
                self.lifecycle = Lifecycle::Open;
                self.title.clone_from(title);
                self.settings = settings.clone();
            }
            E::SessionSettingsChanged { settings, title, .. } => {
                self.settings = settings.clone();
                self.title.clone_from(title);
                self.narrow();
            }
            E::SessionClosed { .. } => self.lifecycle = Lifecycle::Closed,
            E::MessageQueued {
                message_id,
                text,
                digest,
                steers,
                preflight,
                workflow,
                traceparent,
            } => {
                let own_run_id = steers.map(|steering| steering.own_run_id);
                let Some(run_id) = own_run_id.or(record.run_id) else { return };
                let (message_id, text, digest) = (message_id.clone(), text.clone(), *digest);
                let (preflight, workflow) = (*preflight, workflow.clone());
                let message = QueuedMessage {
                    message_id,
                    run_id,
                    text,
                    digest,
                    preflight,
                    workflow,
                    traceparent: *traceparent,
                };
                match self.run.as_mut().filter(|_| own_run_id.is_some()) {
                    Some(run) => run.steering.push(message),
                    None => self.queue.push_back(message),
                }
            }
            E::MessageAccepted { message_id, .. } => {
                let waits = |queued: &QueuedMessage| queued.message_id != *message_id;
                self.queue.retain(waits);
                self.run.iter_mut().for_each(|run| run.steering.retain(waits));
            }
            E::RunStarted { .. } => {
                self.start_run(record);
                self.narrow();
            }
            E::RunCompleted { .. } | E::RunFailed { .. } | E::RunCancelled { .. } => {
                self.queue.retain(|queued| Some(queued.run_id) != record.run_id);
                let ended = self.run.take_if(|run| Some(run.run_id) == record.run_id);
                if ended.is_some() {
                    self.narrowed = None;
                    self.raises.retain(|raise| raise.budget.scope != Scope::Run);
                }
                // What was to steer it and came too late is next.
                for message in ended.into_iter().flat_map(|run| run.steering).rev() {
                    self.queue.push_front(message);
                }
                self.forget_children();
            }
            E::ApprovalRequested { approval } => {
                let Some(run_id) = record.run_id else { return };
                let approval_id = approval.approval_id;
                for call_id in approval.question.calls() {
                    self.set_phase(call_id, CallPhase::AwaitingApproval { approval_id });
                }
                if approval.kind() == ApprovalKind::Preflight {
                    self.set_preflight(Preflight::Asked);
                }
                let (approval, decisions) = (approval.clone(), BTreeMap::new());
                let open = OpenApproval { approval, run_id, decisions, escalation: None };
                self.approvals.push(open);
            }
            E::ApprovalDecided { approval_id, steps, closed, word: _ } => {
                let of = |open: &OpenApproval| open.approval.approval_id == *approval_id;
                if *closed {
                    self.approvals.retain(|open| !of(open));
                } else if let Some(open) = self.approvals.iter_mut().find(|open| of(open)) {
                    let steps = steps.iter().map(|step| (step.call_id, step.clone()));
                    open.decisions.extend(steps);
                }
            }
            E::ApprovalExpired { approval_id } | E::ApprovalCancelled { approval_id } => {
                self.approvals.retain(|open| open.approval.approval_id != *approval_id);
            }
            E::ApprovalEscalated { approval_id, to, deadline } => {
                let (to, at, deadline) = (*to, record.at, *deadline);
                let of = |open: &&mut OpenApproval| open.approval.approval_id == *approval_id;
                if let Some(open) = self.approvals.iter_mut().find(of) {
                    open.escalation = Some(Escalation { to, at, deadline });
                }
            }
            E::BudgetRaised { budget, .. } => {
                self.raises.retain(|raise| !raise.budget.is_of(budget));
                self.raises.push(Raise { budget: budget.clone(), at: record.at });
            }
            E::PreflightApproved { approval_id, by, reason, steps } => {
                let (approval_id, by, used) = (*approval_id, by.clone(), BTreeSet::new());
                let (reason, steps) = (reason.clone(), steps.clone());
                let plan = ApprovedPlan { approval_id, by, reason, steps, used };
                self.set_preflight(Preflight::Approved(plan));
            }
            E::PreflightSkipped { .. } => self.set_preflight(Preflight::Off),
            E::GrantAdded { grant } => self.grants.push(grant.clone()),
            E::GrantRevoked { grant_id, .. } => {
                self.grants.retain(|grant| grant.grant_id != *grant_id);
            }
            E::MessageStarted { .. }
            | E::MessageCompleted { .. }
            | E::MessageDiscarded { .. }
            | E::StepStarted { .. }
            | E::StepCompleted { .. }
            | E::StepRetrying { .. }
            | E::StepModelFallback { .. }
            | E::ContextCompacted { .. }
            | E::ContextCompactionFailed { .. } => self.apply_to_step(record),
            E::ToolCallStarted { .. }
            | E::ToolCallAllowed { .. }
            | E::ToolCallAttemptStarted { .. }
            | E::ToolCallRetrying { .. }
            | E::ToolCallCompleted { .. }
            | E::ToolCallFailed { .. }
            | E::AuthorizationDenied { .. }
            | E::BudgetReserved { .. } => self.apply_to_call(record),
            E::ChildEvent { session_id, event, .. } => self.follow_child(*session_id, event),
            E::ChildGone { session_id, .. } => {
                let gone = self.children.iter_mut().find(|child| child.session_id == *session_id);
                gone.into_iter().for_each(|child| child.closed = true);
                self.forget_children();
            }
            E::ToolCallProgress { .. }
            | E::LateResult { .. }
            | E::BudgetReached { .. }
            | E::FeedbackGiven { .. } => {}
        }
    }

    /// What the step that is going adds to the conversation when it is over, if it is of that run.
    pub(super) fn said_in_step_of(&self, run_id: Option<RunId>) -> Vec<Message> {
        let run = self.run.as_ref().filter(|run| Some(run.run_id) == run_id);
        run.map(|run| said_in_step(run, "no result was recorded")).unwrap_or_default()
    }

    /// What is allowed now: what the session allows, and less where the run's workflow says so.
    pub fn settings_in_force(&self) -> &Settings {
        self.narrowed.as_deref().unwrap_or(&self.settings)
    }

    /// Takes from the settings what the run's workflow does not want (C3).
    fn narrow(&mut self) {
        let run = self.run.as_ref();
        let most = run.and_then(|run| run.workflow.as_ref()?.autonomy);
        self.narrowed = most
            .filter(|most| *most < self.settings.autonomy_level)
            .map(|most| Box::new(Settings { autonomy_level: most, ..self.settings.clone() }));
    }

    /// The question of that id, if it waits.
    pub fn open_approval(&self, approval_id: ApprovalId) -> Option<&OpenApproval> {
        self.approvals.iter().find(|open| open.approval.approval_id == approval_id)
    }

    fn start_run(&mut self, record: &EventRecord) {
        let SessionEvent::RunStarted { message_id, preflight, workflow, traceparent } =
            &record.event
        else {
            return;
        };
        let Some(run_id) = record.run_id else { return };
        self.run = Some(Run {
            run_id,
            message_id: message_id.clone(),
            step: 0,
            phase: StepPhase::Between,
            message: None,
            calls: Vec::new(),
            steering: Vec::new(),
            model: None,
            answer: None,
            usage: crate::usage::Spending::default(),
            costs: BTreeMap::new(),
            delegated: Delegated::default(),
            preflight: if *preflight { Preflight::Wanted } else { Preflight::Off },
            workflow: workflow.clone(),
            traceparent: *traceparent,
            compaction: Compaction::Idle,
            started_at: record.at,
        });
    }

    fn set_preflight(&mut self, preflight: Preflight) {
        if let Some(run) = &mut self.run {
            run.preflight = preflight;
        }
    }

    fn apply_to_step(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        let Some(run) = &mut self.run else { return };
        if let E::StepStarted { attempt_id, attempt, model, compacting, .. } = &record.event {
            // A message that nobody saw anything of stays open over a retry.
            let (message_id, failures) = match &run.phase {
                StepPhase::BackingOff { message_id, failures, .. } => {
                    (message_id.clone(), *failures)
                }
                StepPhase::Between | StepPhase::Streaming { .. } | StepPhase::Calling => (None, 0),
            };
            run.step = record.step.unwrap_or(run.step);
            run.message = None;
            run.calls.clear();
            run.compaction = match (compacting, run.compaction) {
                (Some(through), _) => Compaction::Going { through: *through },
                (None, Compaction::GivenUp) => Compaction::GivenUp,
                (None, Compaction::Idle | Compaction::Going { .. } | Compaction::Done) => {
                    Compaction::Idle
                }
            };
            if run.model.as_deref() != Some(model.as_str()) {
                run.model = Some(model.as_str().into());
            }
            let (attempt_id, attempt) = (*attempt_id, *attempt);
            run.phase = StepPhase::Streaming { attempt_id, attempt, failures, message_id };
        } else if let E::StepRetrying { attempt, failures, until, usage, .. } = &record.event {
            run.usage = run.usage.plus(*usage);
            let message_id = run.open_message().cloned();
            let (until, attempts, failures) = (*until, *attempt, *failures);
            run.phase = StepPhase::BackingOff { until, attempts, failures, message_id };
        } else if let E::StepModelFallback { attempt, to, usage, .. } = &record.event {
            run.usage = run.usage.plus(*usage);
            run.model = Some(to.as_str().into());
            // The next one starts at once, and with a clean record.
            let message_id = run.open_message().cloned();
            let (until, attempts, failures) = (record.at, *attempt, 0);
            run.phase = StepPhase::BackingOff { until, attempts, failures, message_id };
        } else if let E::ContextCompacted { usage, .. } = &record.event {
            run.usage = run.usage.plus(*usage);
            (run.phase, run.compaction) = (StepPhase::Between, Compaction::Done);
        } else if let E::ContextCompactionFailed { usage, .. } = &record.event {
            run.usage = run.usage.plus(*usage);
            (run.phase, run.compaction) = (StepPhase::Between, Compaction::GivenUp);
        } else if let E::StepCompleted { usage, .. } = &record.event {
            run.usage = run.usage.plus(*usage);
            if run.is_planning() {
                run.phase = StepPhase::Between;
            }
        } else if let E::MessageStarted { message_id } = &record.event {
            run.set_open_message(Some(message_id.clone()));
        } else if let E::MessageDiscarded { .. } = &record.event {
            run.set_open_message(None);
        } else if let E::MessageCompleted { message_id, text, reasoning, .. } = &record.event {
            let (text, reasoning) = (text.clone(), reasoning.clone());
            let message = AssistantMessage { text, reasoning, calls: Vec::new() };
            run.message = Some(Arc::new(message));
            run.answer = Some(message_id.clone());
            run.phase = StepPhase::Calling;
        }
    }

    fn apply_to_call(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        match &record.event {
            E::ToolCallStarted {
                call_id,
                provider_id,
                tool,
                arguments,
                digest,
                risk,
                parallel,
                repeatable,
            } => {
                let Some(run) = &mut self.run else { return };
                run.calls.push(Call {
                    call_id: *call_id,
                    provider_id: provider_id.clone(),
                    tool: tool.clone(),
                    arguments: arguments.clone(),
                    digest: *digest,
                    risk: *risk,
                    parallel: *parallel,
                    repeatable: *repeatable,
                    edit: None,
                    attempts: 0,
                    reserved: None,
                    phase: CallPhase::Proposed,
                });
            }
            E::ToolCallAllowed { call_id, digest, by, edit } => {
                if let (Allowance::Preflight { step, .. }, Some(run)) = (by, &mut self.run) {
                    run.preflight.use_step(*step);
                }
                if let Some(edit) = edit {
                    self.edit_call(*call_id, *digest, edit);
                }
                self.set_phase(*call_id, CallPhase::Allowed);
            }
            E::ToolCallAttemptStarted { call_id, attempt_id, attempt, child } => {
                if let (Some(assigned), Some(run)) = (child, &self.run)
                    && self.child_of(*call_id).is_none()
                {
                    self.children.push(Child::new(assigned, *call_id, run.run_id));
                }
                let (attempt_id, attempt) = (*attempt_id, *attempt);
                let failures = self.failures(*call_id);
                if let Some(call) = self.call_mut(*call_id) {
                    call.attempts = attempt;
                }
                self.set_phase(*call_id, CallPhase::Running { attempt_id, attempt, failures });
            }
            E::ToolCallRetrying { call_id, attempt, failures, until, .. } => {
                let (until, attempts, failures) = (*until, *attempt, *failures);
                self.set_phase(*call_id, CallPhase::BackingOff { until, attempts, failures });
            }
            E::ToolCallCompleted { call_id, output, .. } => {
                let end = CallEnd { text: output.text.as_str().into(), is_error: false };
                self.set_phase(*call_id, CallPhase::Finished(end));
            }
            E::BudgetReserved { call_id, tool, cost } => {
                self.reserve(*call_id, tool, cost, record.at.day());
                self.set_phase(*call_id, CallPhase::Allowed);
            }
            E::ToolCallFailed { call_id, reason, error, .. } => {
                self.release(*call_id, *reason);
                let end = CallEnd { text: error_for_model(*reason, error), is_error: true };
                self.set_phase(*call_id, CallPhase::Finished(end));
            }
            E::AuthorizationDenied { call_id, reason, .. } => {
                self.release(*call_id, FailReason::Rejected);
                let end = CallEnd { text: format!("Denied: {reason}").into(), is_error: true };
                self.set_phase(*call_id, CallPhase::Finished(end));
            }
            E::GrantAdded { .. }
            | E::GrantRevoked { .. }
            | E::ChildEvent { .. }
            | E::ChildGone { .. }
            | E::SessionCreated { .. }
            | E::SessionForked { .. }
            | E::SessionSettingsChanged { .. }
            | E::SessionClosed { .. }
            | E::MessageQueued { .. }
            | E::MessageAccepted { .. }
            | E::MessageStarted { .. }
            | E::MessageCompleted { .. }
            | E::MessageDiscarded { .. }
            | E::RunStarted { .. }
            | E::RunCompleted { .. }
            | E::RunFailed { .. }
            | E::RunCancelled { .. }
            | E::StepStarted { .. }
            | E::StepCompleted { .. }
            | E::StepRetrying { .. }
            | E::FeedbackGiven { .. }
            | E::StepModelFallback { .. }
            | E::ContextCompacted { .. }
            | E::ContextCompactionFailed { .. }
            | E::ToolCallProgress { .. }
            | E::LateResult { .. }
            | E::ApprovalRequested { .. }
            | E::ApprovalDecided { .. }
            | E::ApprovalExpired { .. }
            | E::ApprovalCancelled { .. }
            | E::ApprovalEscalated { .. }
            | E::PreflightApproved { .. }
            | E::PreflightSkipped { .. }
            | E::BudgetReached { .. }
            | E::BudgetRaised { .. } => {
                debug_assert!(false, "changes no phase of a call: {record:?}");
            }
        }
    }

    /// Sets aside what the call costs; once, whatever comes.
    fn reserve(&mut self, call_id: CallId, tool: &str, cost: &Cost, day: Day) {
        let Some(call) = self.call_mut(call_id).filter(|call| call.reserved.is_none()) else {
            return;
        };
        call.reserved = Some(Reservation { cost: cost.clone(), day });
        self.costs.add(&cost.unit, day, tool, cost.amount);
        if let Some(run) = &mut self.run {
            *run.costs.entry(cost.unit.as_str().into()).or_default() += cost.amount;
        }
    }

    /// Takes back what was set aside for a call that definitely failed.
    fn release(&mut self, call_id: CallId, reason: FailReason) {
        let Some(call) = self.call_mut(call_id).filter(|call| !call.is_finished()) else { return };
        if !reason.is_definite(call.attempts) {
            return;
        }
        let Some(Reservation { cost, day }) = call.reserved.take() else { return };
        let tool = call.tool.clone();
        self.costs.add(&cost.unit, day, &tool, -cost.amount);
        if let Some(run) = &mut self.run {
            *run.costs.entry(cost.unit.as_str().into()).or_default() -= cost.amount;
        }
    }

    fn call_mut(&mut self, call_id: CallId) -> Option<&mut Call> {
        let mut calls = self.run.iter_mut().flat_map(|run| &mut run.calls);
        calls.find(|call| call.call_id == call_id)
    }

    fn failures(&self, call_id: CallId) -> u32 {
        let mut calls = self.run.iter().flat_map(|run| &run.calls);
        match calls.find(|call| call.call_id == call_id).map(|call| &call.phase) {
            Some(CallPhase::BackingOff { failures, .. }) => *failures,
            _not_after_a_failure => 0,
        }
    }

    fn edit_call(&mut self, call_id: CallId, digest: Digest, edit: &Edit) {
        if let Some(call) = self.call_mut(call_id) {
            call.digest = digest;
            call.edit = Some(Arc::new(edit.clone()));
        }
    }

    /// A call that has its result keeps it, whatever comes.
    fn set_phase(&mut self, call_id: CallId, phase: CallPhase) {
        let calls = self.run.iter_mut().flat_map(|run| &mut run.calls);
        for call in calls.filter(|call| call.call_id == call_id && !call.is_finished()) {
            call.phase = phase.clone();
        }
        if let CallPhase::Finished(_) = phase {
            self.forget_children();
        }
    }

    /// The child that works for that call.
    pub fn child_of(&self, call_id: CallId) -> Option<&Child> {
        self.children.iter().find(|child| child.call_id == call_id)
    }

    /// Something happened in a child.
    fn follow_child(&mut self, session_id: SessionId, event: &EventRecord) {
        let child = self.children.iter_mut().find(|child| child.session_id == session_id);
        let Some(child) = child else { return };
        let (run_id, draw) = (child.run_id, child.follow(event));
        self.delegated.add(&draw);
        if let Some(run) = self.run.as_mut().filter(|run| run.run_id == run_id) {
            run.delegated.add(&draw);
        }
        self.forget_children();
    }

    /// A child is remembered until both it and its call have ended: then nothing more comes of it.
    fn forget_children(&mut self) {
        let calls = self.run.iter().flat_map(|run| &run.calls);
        let open: BTreeSet<_> =
            calls.filter(|call| !call.is_finished()).map(|call| call.call_id).collect();
        self.children.retain(|child| !child.closed || open.contains(&child.call_id));
    }
}

fn error_for_model(reason: FailReason, error: &str) -> Arc<str> {
    let said = match reason {
        FailReason::Error => "The tool failed",
        FailReason::InvalidArguments => "Invalid arguments",
        FailReason::UnknownTool => "Unknown tool",
        FailReason::Unavailable => "The tool is unavailable",
        FailReason::Timeout => "The tool did not answer in time",
        FailReason::Crashed => "The tool crashed",
        FailReason::Rejected => "Rejected",
        FailReason::Expired => "Expired",
        FailReason::Cancelled => "Cancelled",
        FailReason::OutcomeUnknown => "Outcome unknown",
    };
    format!("{said}: {error}").into()
}

impl Run {
    /// The message that is open, whether streaming or waiting for another attempt.
    pub fn open_message(&self) -> Option<&crate::ids::MessageId> {
        match &self.phase {
            StepPhase::Streaming { message_id, .. } | StepPhase::BackingOff { message_id, .. } => {
                message_id.as_ref()
            }
            StepPhase::Between | StepPhase::Calling => None,
        }
    }

    fn set_open_message(&mut self, open: Option<crate::ids::MessageId>) {
        match &mut self.phase {
            StepPhase::Streaming { message_id, .. } | StepPhase::BackingOff { message_id, .. } => {
                *message_id = open;
            }
            StepPhase::Between | StepPhase::Calling => {}
        }
    }
}
