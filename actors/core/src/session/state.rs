//! The state of a session: the result of folding its events with [`evolve`].

use super::{ClosedApprovals, EventRecord, RunStopReason, Submissions, evolve};
use crate::{
    amount::Amount,
    approval::{ClosedApproval, Grant, OpenApproval},
    authors::Authors,
    budget::{BudgetMeasure, BudgetRaise, SpendingEntry, ToolCosts},
    call::{Call, CallPhase},
    context::{READ_SKILL_TOOL, StartedWorkflow},
    delegation::{Child, ChildUsage, Parent},
    ids::{AgentName, ApprovalId, AttemptId, CallId, MessageId, RunId, Seq, SessionId, UserId},
    json::Digest,
    message::{AssistantMessage, MessageHistory},
    model::delta::StopReason,
    policy::Settings,
    preflight::PreflightPhase,
    time::{Day, Timestamp},
    trace_context::TraceContext,
    usage::ModelUsage,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// A session's state. Data that grows with the session's history is kept beside [`ActiveState`],
/// which stays small, because a decision copies `ActiveState` only. The other fields can be cloned
/// and extended at a cost that does not depend on the session's length (D9).
#[derive(Clone, Debug, PartialEq)]
pub struct SessionState {
    /// The session's id.
    pub session_id: SessionId,
    /// The sequence number of the last event.
    pub last_seq: Seq,
    /// Owner, agent and parent; `None` before the first event.
    pub metadata: Option<SessionMetadata>,
    /// The messages of all finished steps, and user messages.
    pub conversation: MessageHistory,
    /// The summary that replaces the older part of the conversation in model requests (C4).
    pub summary: Option<ConversationSummary>,
    /// The submitted messages, by the client's id (S5).
    pub submissions: Submissions,
    /// Approvals that no longer wait: the newest [`crate::limits::CLOSED_APPROVALS_MAX`].
    pub closed_approvals: ClosedApprovals,
    /// Tokens of all ended runs, and their cost.
    pub usage: ModelUsage,
    /// The number of feedback entries that users gave.
    pub feedback_count: u32,
    /// The session's current work and settings.
    pub active: ActiveState,
}

/// A summary that replaces the older part of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationSummary {
    /// The number of messages, from the conversation's start, that the summary replaces.
    pub through: u64,
    /// The estimated tokens of those messages.
    pub tokens: u64,
    /// The text of the summary.
    pub summary: Arc<str>,
}

impl ConversationSummary {
    pub(crate) fn new(conversation: &MessageHistory, through: u64, summary: Arc<str>) -> Self {
        let messages = usize::try_from(through).unwrap_or(usize::MAX);
        Self { through, tokens: conversation.estimated_tokens_of_first(messages), summary }
    }

    /// Returns the number of messages that the summary replaces.
    pub(crate) fn message_count(&self) -> usize {
        usize::try_from(self.through).unwrap_or(usize::MAX)
    }
}

/// The state of compaction within a run (C4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionPhase {
    /// The conversation may be compacted before the next step.
    #[default]
    Idle,
    /// The model attempt in progress produces a summary.
    Running {
        /// The number of messages, from the conversation's start, to summarise.
        through: u64,
    },
    /// The conversation was compacted before the step that is next.
    Done,
    /// Compaction failed and is not tried again in this run.
    Failed,
}

/// The fixed properties of a session and its timestamps.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionMetadata {
    /// The session's principal.
    pub owner: UserId,
    /// The session's agent profile.
    pub agent: AgentName,
    /// The parent session, if the session is a child (S8).
    pub parent: Option<Arc<Parent>>,
    /// The time of the first event.
    pub created_at: Timestamp,
    /// The time of the last event.
    pub updated_at: Timestamp,
}

/// The part of a session's state that decisions read and change: settings, queue, active run, open
/// approvals, grants, budgets and children.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActiveState {
    /// The session's life cycle state, which determines if the session accepts messages.
    pub lifecycle: Lifecycle,
    /// The title shown to users.
    pub title: Option<String>,
    /// The session's settings.
    pub settings: Arc<Settings>,
    /// The settings narrowed by the run's workflow, if the workflow narrows them (C3).
    pub workflow_settings: Option<Arc<Settings>>,
    /// Queued messages, oldest first.
    pub queue: VecDeque<QueuedMessage>,
    /// The authors of the message that was accepted last, for the run that it starts.
    pub accepted_authors: Authors,
    /// The active run.
    pub run: Option<Run>,
    /// The open approvals.
    pub approvals: Vec<OpenApproval>,
    /// The session's grants, oldest first (G9).
    pub grants: Vec<Grant>,
    /// The costs of tool calls (G6).
    pub tool_costs: ToolCosts,
    /// The spending of the session that this session was forked from (G17).
    pub spent_before_fork: Arc<[SpendingEntry]>,
    /// The raised budgets.
    pub budget_raises: Vec<BudgetRaise>,
    /// The session's children, including those whose cancellation was requested (S8).
    pub children: Vec<Child>,
    /// The usage of all children.
    pub child_usage: ChildUsage,
}

/// The life cycle state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    /// The session does not exist yet.
    #[default]
    NotCreated,
    /// The session exists and accepts messages.
    Open,
    /// The session is read-only.
    Closed,
}

/// A message that waits for its run to start.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedMessage {
    /// The client's id for the message.
    pub message_id: MessageId,
    /// The id of the run that will answer the message.
    pub run_id: RunId,
    /// The message's text.
    pub text: Arc<str>,
    /// Digest of the request (S5).
    pub digest: Digest,
    /// True if the message's run starts with a preflight (G14).
    pub preflight: bool,
    /// The workflow that the message's run is started with (C3).
    pub workflow: Option<Arc<StartedWorkflow>>,
    /// The trace span in which the message was sent (A4).
    pub traceparent: Option<TraceContext>,
    /// The users who wrote a part of the message (G12).
    pub authors: Authors,
}

/// The active run of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The run's id.
    pub run_id: RunId,
    /// The user's message that started the run.
    pub message_id: MessageId,
    /// The number of the current step, from 1; 0 before the first.
    pub step: u32,
    /// The phase of the current step.
    pub phase: StepPhase,
    /// The complete message of the current step without its calls, kept until the step ends.
    pub message: Option<Arc<AssistantMessage>>,
    /// The calls of the current step, in the proposed order.
    pub calls: Vec<Call>,
    /// Messages to deliver with the input of the next step, oldest first (S4).
    pub steering: Vec<QueuedMessage>,
    /// The model that the run uses, by its name in configuration: the first one, or one that the
    /// run fell back to (M4). `None` before the first attempt.
    pub model: Option<Arc<str>>,
    /// The id of the model's last complete message.
    pub last_message_id: Option<MessageId>,
    /// The reason why the model stopped in that message.
    pub stop_reason: StopReason,
    /// The run's tokens so far, and their cost.
    pub usage: ModelUsage,
    /// The costs of the run's tool calls, by unit.
    pub tool_costs: BTreeMap<Arc<str>, Amount>,
    /// The usage of the run's children.
    pub child_usage: ChildUsage,
    /// The state of the run's preflight (G14).
    pub preflight: PreflightPhase,
    /// The workflow that the run was started with (C3).
    pub workflow: Option<Arc<StartedWorkflow>>,
    /// The trace span in which the run was requested (A4).
    pub traceparent: Option<TraceContext>,
    /// The users who wrote a part of the run's messages, including delivered steering messages
    /// (G12).
    pub authors: Authors,
    /// The state of compaction.
    pub compaction: CompactionPhase,
    /// The time at which the run started.
    pub started_at: Timestamp,
}

/// The phase of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepPhase {
    /// No step is in progress. Occurs only within one decision, while a budget or preflight
    /// approval is open, and while the server drains.
    BetweenSteps,
    /// A model attempt is in progress.
    Streaming {
        /// The attempt's id, its fencing token.
        attempt_id: AttemptId,
        /// The attempt's number, from 1.
        attempt: u32,
        /// The number of failed attempts, excluding attempts that a server restart ended.
        failures: u32,
        /// The id of the open message.
        message_id: Option<MessageId>,
    },
    /// A model attempt failed, and the next one is scheduled.
    BackingOff {
        /// The time at which the next attempt starts.
        until: Timestamp,
        /// The number of attempts so far.
        attempts: u32,
        /// The number of failed attempts, excluding attempts that a server restart ended.
        failures: u32,
        /// The id of the message, if it is still open because none of it was streamed.
        message_id: Option<MessageId>,
    },
    /// The message is complete, and its calls are being executed.
    RunningCalls,
}

impl Run {
    /// Returns the number of messages that the current model attempt is to summarise, or `None` if
    /// the attempt is not for a summary.
    pub fn compacting_through(&self) -> Option<u64> {
        match self.compaction {
            CompactionPhase::Running { through } => Some(through),
            CompactionPhase::Idle | CompactionPhase::Done | CompactionPhase::Failed => None,
        }
    }

    /// Returns how the run ends if the current step's message is its last one.
    pub fn final_stop_reason(&self) -> RunStopReason {
        let has_text = |message: &Arc<AssistantMessage>| !message.text.trim().is_empty();
        let is_empty = self.calls.is_empty() && !self.message.as_ref().is_some_and(has_text);
        RunStopReason::from_message(self.stop_reason, is_empty)
    }

    /// Returns true if the run's workflow permits the tool. Reading skills is always permitted.
    pub fn can_use_tool(&self, tool: &str) -> bool {
        let is_permitted = |workflow: &Arc<StartedWorkflow>| workflow.can_use_tool(tool);
        tool == READ_SKILL_TOOL || self.workflow.as_ref().is_none_or(is_permitted)
    }

    /// Returns the users who determined the arguments of a call: those who edited the call, and the
    /// approver who edited the run's preflight plan, which the model follows (G12).
    pub fn editors(&self, call: &Call) -> BTreeSet<UserId> {
        let plan = self.preflight.approved().filter(|plan| plan.is_edited());
        call.editors.iter().chain(plan.map(|plan| &plan.by)).cloned().collect()
    }

    /// Returns true while the run still needs a preflight plan. A model attempt in progress is then
    /// for that plan.
    pub fn is_planning(&self) -> bool {
        self.step == 0 && self.preflight == PreflightPhase::Required
    }
}

impl SessionState {
    /// Creates the state of a session before its first event.
    pub fn new(session_id: SessionId) -> Self {
        Self {
            session_id,
            last_seq: Seq(0),
            metadata: None,
            conversation: MessageHistory::default(),
            summary: None,
            submissions: Submissions::default(),
            closed_approvals: ClosedApprovals::default(),
            usage: ModelUsage::default(),
            feedback_count: 0,
            active: ActiveState::default(),
        }
    }

    /// Returns the state that results from `records`.
    pub fn replay<'a>(
        session_id: SessionId,
        records: impl IntoIterator<Item = &'a EventRecord>,
    ) -> Self {
        records.into_iter().fold(Self::new(session_id), evolve)
    }

    /// Returns true if no run, queued message or child exists.
    pub fn is_idle(&self) -> bool {
        let ActiveState { run, queue, children, .. } = &self.active;
        run.is_none() && queue.is_empty() && children.is_empty()
    }

    /// Returns true if the session waits for human decisions only, so that it can be passivated
    /// without losing work (D6).
    pub fn is_waiting_for_approval(&self) -> bool {
        let Some(run) = &self.active.run else { return false };
        let mut serial_taken = false;
        let is_waiting = |call: &Call| {
            let is_held_back = !call.parallel && serial_taken;
            serial_taken |= !call.parallel && !call.is_finished();
            match call.phase {
                CallPhase::AwaitingApproval { .. } | CallPhase::Finished(_) => true,
                // An earlier call that waits for approval holds this call back. Other allowed calls
                // wait for an exclusive lock (T8).
                CallPhase::Allowed => is_held_back,
                CallPhase::Proposed | CallPhase::Running { .. } | CallPhase::BackingOff { .. } => {
                    false
                }
            }
        };
        matches!(run.phase, StepPhase::BetweenSteps | StepPhase::RunningCalls)
            && self.active.children.is_empty()
            && !self.active.approvals.is_empty()
            && run.calls.iter().all(is_waiting)
    }

    /// Returns the tokens of all runs so far, including the active one, and their cost.
    pub fn total_usage(&self) -> ModelUsage {
        let run_usage = self.active.run.as_ref().map(|run| run.usage);
        self.usage.plus(run_usage.unwrap_or_default())
    }

    /// Returns the amounts that count against the budgets of this session, by measure and day: those of
    /// the session, of its children, and of the session that it was forked from. The usage of models
    /// is charged to `today`.
    pub fn session_spending(&self, today: Day) -> Vec<SpendingEntry> {
        let ActiveState { tool_costs, child_usage, spent_before_fork, .. } = &self.active;
        let nothing = ToolCosts::default();
        let mut entries = tool_costs.changes_since(&nothing);
        entries.extend(child_usage.costs.changes_since(&nothing));
        let usage = self.total_usage().plus(child_usage.usage);
        let mut add = |measure, amount| entries.push(SpendingEntry { measure, day: today, amount });
        add(BudgetMeasure::Tokens, Amount::from_whole(usage.tokens.total()));
        add(BudgetMeasure::Usd, usage.counted_cost_usd().unwrap_or_default());
        let mut totals: BTreeMap<(BudgetMeasure, Day), Amount> = BTreeMap::new();
        for SpendingEntry { measure, day, amount } in entries.iter().chain(spent_before_fork.iter())
        {
            *totals.entry((measure.clone(), *day)).or_default() += *amount;
        }
        let totals = totals.into_iter().filter(|(_, amount)| *amount != Amount::ZERO);
        totals.map(|((measure, day), amount)| SpendingEntry { measure, day, amount }).collect()
    }

    /// Returns the time at which [`super::Input::Wake`] is next due for a backoff. The approval
    /// desk handles approval deadlines.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.next_wake_excluding(|_| false)
    }

    /// Returns the same as [`next_wake`](Self::next_wake), ignoring calls that wait for an
    /// exclusive lock (T8): their start depends on the lock, not on time.
    pub fn next_wake_excluding(&self, awaits_lock: impl Fn(CallId) -> bool) -> Option<Timestamp> {
        let run = self.active.run.as_ref()?;
        let step = match run.phase {
            StepPhase::BackingOff { until, .. } => Some(until),
            StepPhase::BetweenSteps | StepPhase::Streaming { .. } | StepPhase::RunningCalls => None,
        };
        let timed = run.calls.iter().filter(|call| !awaits_lock(call.call_id));
        let calls = timed.filter_map(|call| match call.phase {
            CallPhase::BackingOff { until, .. } => Some(until),
            CallPhase::Proposed
            | CallPhase::AwaitingApproval { .. }
            | CallPhase::Allowed
            | CallPhase::Running { .. }
            | CallPhase::Finished(_) => None,
        });
        calls.chain(step).min()
    }

    /// Returns the closed approval with that id, if it is among the retained ones.
    pub fn closed_approval(&self, approval_id: ApprovalId) -> Option<&ClosedApproval> {
        let mut closed = self.closed_approvals.closed_after(Seq(0));
        closed.find(|closed| closed.approval.approval_id == approval_id)
    }
}
