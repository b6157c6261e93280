//! Applies events to [`ActiveState`]: the queue, the run, its current step and its approvals.

use super::step_messages;
use crate::{
    approval::{ApprovalKind, Escalation, OpenApproval},
    budget::{BudgetRaise, BudgetScope},
    call::CallPhase,
    delegation::ChildUsage,
    ids::{ApprovalId, MessageId, RunId},
    message::{AssistantMessage, Message},
    model::delta::StopReason,
    policy::Settings,
    preflight::{ApprovedPreflight, PreflightPhase},
    session::{
        ActiveState, CompactionPhase, EventRecord, Lifecycle, QueuedMessage, Run, SessionEvent,
        StepPhase,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

impl ActiveState {
    /// Applies `record`. A decision applies its own events to a copy of the state with this method.
    pub(in crate::session) fn apply(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        match &record.event {
            E::SessionCreated { title, settings, .. } => {
                self.lifecycle = Lifecycle::Open;
                self.title.clone_from(title);
                self.settings = settings.clone();
            }
            E::SessionForked { title, settings, spent, .. } => {
                self.lifecycle = Lifecycle::Open;
                self.title.clone_from(title);
                self.settings = settings.clone();
                self.spent_before_fork = spent.as_slice().into();
            }
            E::SessionSettingsChanged { settings, title, .. } => {
                self.settings = settings.clone();
                self.title.clone_from(title);
                self.apply_workflow_limits();
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
                authors,
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
                    authors: authors.clone(),
                };
                match self.run.as_mut().filter(|_| own_run_id.is_some()) {
                    Some(run) => run.steering.push(message),
                    None => self.queue.push_back(message),
                }
            }
            E::MessageAccepted { message_id, authors, .. } => {
                self.remove_waiting_message(message_id);
                // Without an active run, the message starts one.
                match &mut self.run {
                    Some(run) => run.authors.add_all(authors),
                    None => self.accepted_authors = authors.clone(),
                }
            }
            E::QueuedMessageChanged { message_id, text, digest, preflight, by } => {
                if let Some(queued) = self.waiting_message_mut(message_id) {
                    (queued.text, queued.digest) = (text.clone(), *digest);
                    queued.preflight = *preflight;
                    queued.authors.add(by);
                }
            }
            E::QueuedMessageWithdrawn { message_id, .. } => self.remove_waiting_message(message_id),
            E::RunStarted { title, .. } => {
                if title.is_some() {
                    self.title.clone_from(title);
                }
                self.apply_run_started(record);
                self.apply_workflow_limits();
            }
            E::RunCompleted { .. } | E::RunFailed { .. } | E::RunCancelled { .. } => {
                self.queue.retain(|queued| Some(queued.run_id) != record.run_id);
                let ended = self.run.take_if(|run| Some(run.run_id) == record.run_id);
                if ended.is_some() {
                    self.workflow_settings = None;
                    self.budget_raises.retain(|raise| raise.budget.scope != BudgetScope::Run);
                }
                // Steering messages that were not delivered run next.
                for message in ended.into_iter().flat_map(|run| run.steering).rev() {
                    self.queue.push_front(message);
                }
                self.remove_finished_children();
            }
            E::ApprovalRequested { approval } => {
                let Some(run_id) = record.run_id else { return };
                let approval_id = approval.approval_id;
                self.apply_approval_requested(&approval.subject);
                for call_id in approval.subject.blocked_calls() {
                    self.set_phase(call_id, CallPhase::AwaitingApproval { approval_id });
                }
                if approval.kind() == ApprovalKind::Preflight {
                    self.set_preflight(PreflightPhase::AwaitingApproval);
                }
                let (approval, decisions) = (approval.clone(), BTreeMap::new());
                let open = OpenApproval { approval, run_id, decisions, escalation: None };
                self.approvals.push(open);
            }
            E::ApprovalDecided { approval_id, steps, closed, answer } => {
                self.record_editors(steps);
                if let Some(open) = self.open_approval(*approval_id) {
                    let approval = open.approval.clone();
                    let resolution = answer.as_ref().map(|answer| &answer.resolution);
                    self.apply_approval_answer(&approval.subject, resolution);
                }
                let is_answered = |open: &OpenApproval| open.approval.approval_id == *approval_id;
                if *closed {
                    self.approvals.retain(|open| !is_answered(open));
                } else if let Some(open) = self.approvals.iter_mut().find(|open| is_answered(open))
                {
                    let steps = steps.iter().map(|step| (step.call_id, step.clone()));
                    open.decisions.extend(steps);
                }
            }
            E::ApprovalExpired { approval_id } | E::ApprovalCancelled { approval_id } => {
                self.approvals.retain(|open| open.approval.approval_id != *approval_id);
            }
            E::ApprovalEscalated { approval_id, to, deadline } => {
                let (to, at, deadline) = (*to, record.at, *deadline);
                let is_escalated =
                    |open: &&mut OpenApproval| open.approval.approval_id == *approval_id;
                if let Some(open) = self.approvals.iter_mut().find(is_escalated) {
                    open.escalation = Some(Escalation { to, at, deadline });
                }
            }
            E::BudgetRaised { budget, .. } => {
                self.budget_raises.retain(|raise| !raise.budget.is_same_budget(budget));
                self.budget_raises.push(BudgetRaise { budget: budget.clone(), at: record.at });
            }
            E::PreflightApproved { approval_id, by, reason, steps } => {
                let (approval_id, by, used) = (*approval_id, by.clone(), BTreeSet::new());
                let (reason, steps) = (reason.clone(), steps.clone());
                let plan =
                    ApprovedPreflight { approval_id, by, reason, steps, used_positions: used };
                self.set_preflight(PreflightPhase::Approved(plan));
            }
            E::PreflightSkipped { .. } => self.set_preflight(PreflightPhase::Off),
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
            | E::ContextCompactionFailed { .. } => self.apply_step_event(record),
            E::ToolCallStarted { .. }
            | E::ToolCallAllowed { .. }
            | E::ToolCallAttemptStarted { .. }
            | E::ToolCallRetrying { .. }
            | E::ToolCallCompleted { .. }
            | E::ToolCallFailed { .. }
            | E::AuthorizationDenied { .. }
            | E::BudgetReserved { .. } => self.apply_call_event(record),
            E::ChildEvent { session_id, event, .. } => self.apply_child_event(*session_id, event),
            E::ChildGone { session_id, .. } => {
                let child = self.children.iter_mut().find(|child| child.session_id == *session_id);
                child.into_iter().for_each(|child| child.closed = true);
                self.remove_finished_children();
            }
            E::ToolCallProgress { .. }
            | E::LateResult { .. }
            | E::BudgetReached { .. }
            | E::FeedbackGiven { .. } => {}
        }
    }

    /// Returns the messages that the current step adds to the conversation when it ends, if the
    /// step belongs to that run.
    pub(in crate::session) fn step_messages_for_run(&self, run_id: Option<RunId>) -> Vec<Message> {
        let run = self.run.as_ref().filter(|run| Some(run.run_id) == run_id);
        run.map(|run| step_messages(run, "no result was recorded")).unwrap_or_default()
    }

    /// Returns the settings in force: the session's settings, narrowed by the run's workflow.
    pub fn effective_settings(&self) -> &Arc<Settings> {
        self.workflow_settings.as_ref().unwrap_or(&self.settings)
    }

    /// Narrows the autonomy level to the limit of the run's workflow, if it is lower (C3).
    fn apply_workflow_limits(&mut self) {
        let run = self.run.as_ref();
        let level_max = run.and_then(|run| run.workflow.as_ref()?.autonomy);
        self.workflow_settings = level_max
            .filter(|level| *level < self.settings.autonomy_level)
            .map(|level| Arc::new(Settings { autonomy_level: level, ..(*self.settings).clone() }));
    }

    /// Returns the message with that id, if it steers the active run or waits in the queue.
    fn waiting_message_mut(&mut self, message_id: &MessageId) -> Option<&mut QueuedMessage> {
        let steering = self.run.iter_mut().flat_map(|run| &mut run.steering);
        steering.chain(&mut self.queue).find(|queued| queued.message_id == *message_id)
    }

    fn remove_waiting_message(&mut self, message_id: &MessageId) {
        let is_other = |queued: &QueuedMessage| queued.message_id != *message_id;
        self.queue.retain(is_other);
        self.run.iter_mut().for_each(|run| run.steering.retain(is_other));
    }

    /// Returns the open approval with that id.
    pub fn open_approval(&self, approval_id: ApprovalId) -> Option<&OpenApproval> {
        self.approvals.iter().find(|open| open.approval.approval_id == approval_id)
    }

    fn apply_run_started(&mut self, record: &EventRecord) {
        let SessionEvent::RunStarted { message_id, preflight, workflow, traceparent, title: _ } =
            &record.event
        else {
            return;
        };
        let Some(run_id) = record.run_id else { return };
        let authors = std::mem::take(&mut self.accepted_authors);
        self.run = Some(Run {
            run_id,
            message_id: message_id.clone(),
            step: 0,
            phase: StepPhase::BetweenSteps,
            message: None,
            calls: Vec::new(),
            steering: Vec::new(),
            model: None,
            last_message_id: None,
            stop_reason: StopReason::default(),
            usage: crate::usage::ModelUsage::default(),
            tool_costs: BTreeMap::new(),
            child_usage: ChildUsage::default(),
            preflight: if *preflight { PreflightPhase::Required } else { PreflightPhase::Off },
            workflow: workflow.clone(),
            traceparent: *traceparent,
            authors,
            compaction: CompactionPhase::Idle,
            started_at: record.at,
        });
    }

    fn set_preflight(&mut self, preflight: PreflightPhase) {
        if let Some(run) = &mut self.run {
            run.preflight = preflight;
        }
    }

    fn apply_step_event(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        let Some(run) = &mut self.run else { return };
        if let E::StepStarted { attempt_id, attempt, model, compacting, .. } = &record.event {
            // A message of which nothing was streamed stays open over a retry.
            let (message_id, failures) = match &run.phase {
                StepPhase::BackingOff { message_id, failures, .. } => {
                    (message_id.clone(), *failures)
                }
                StepPhase::BetweenSteps | StepPhase::Streaming { .. } | StepPhase::RunningCalls => {
                    (None, 0)
                }
            };
            run.step = record.step.unwrap_or(run.step);
            run.message = None;
            run.calls.clear();
            run.compaction = match (compacting, run.compaction) {
                (Some(through), _) => CompactionPhase::Running { through: *through },
                (None, CompactionPhase::Failed) => CompactionPhase::Failed,
                (
                    None,
                    CompactionPhase::Idle | CompactionPhase::Running { .. } | CompactionPhase::Done,
                ) => CompactionPhase::Idle,
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
            // The next model starts at once, without counted failures.
            let message_id = run.open_message().cloned();
            let (until, attempts, failures) = (record.at, *attempt, 0);
            run.phase = StepPhase::BackingOff { until, attempts, failures, message_id };
        } else if let E::ContextCompacted { usage, .. } = &record.event {
            run.usage = run.usage.plus(*usage);
            (run.phase, run.compaction) = (StepPhase::BetweenSteps, CompactionPhase::Done);
        } else if let E::ContextCompactionFailed { usage, .. } = &record.event {
            run.usage = run.usage.plus(*usage);
            (run.phase, run.compaction) = (StepPhase::BetweenSteps, CompactionPhase::Failed);
        } else if let E::StepCompleted { usage, .. } = &record.event {
            run.usage = run.usage.plus(*usage);
            if run.is_planning() {
                run.phase = StepPhase::BetweenSteps;
            }
        } else if let E::MessageStarted { message_id } = &record.event {
            run.set_open_message(Some(message_id.clone()));
        } else if let E::MessageDiscarded { .. } = &record.event {
            run.set_open_message(None);
        } else if let E::MessageCompleted { message_id, text, reasoning, stop_reason, .. } =
            &record.event
        {
            let (text, reasoning) = (text.clone(), reasoning.clone());
            let message = AssistantMessage { text, reasoning, calls: Vec::new() };
            run.message = Some(Arc::new(message));
            run.last_message_id = Some(message_id.clone());
            run.stop_reason = *stop_reason;
            run.phase = StepPhase::RunningCalls;
        }
    }
}

impl Run {
    /// Returns the open message, which is streaming or waits for another attempt.
    pub fn open_message(&self) -> Option<&crate::ids::MessageId> {
        match &self.phase {
            StepPhase::Streaming { message_id, .. } | StepPhase::BackingOff { message_id, .. } => {
                message_id.as_ref()
            }
            StepPhase::BetweenSteps | StepPhase::RunningCalls => None,
        }
    }

    fn set_open_message(&mut self, open_message: Option<crate::ids::MessageId>) {
        match &mut self.phase {
            StepPhase::Streaming { message_id, .. } | StepPhase::BackingOff { message_id, .. } => {
                *message_id = open_message;
            }
            StepPhase::BetweenSteps | StepPhase::RunningCalls => {}
        }
    }
}
