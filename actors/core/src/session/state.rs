//! A session's state: what its events add up to.

use super::{ClosedApprovals, EventRecord, Submissions, evolve};
use crate::{
    approval::{ClosedApproval, Grant, OpenApproval},
    budget::{BudgetRaise, ToolCosts},
    call::{Call, CallPhase},
    context::{READ_SKILL_TOOL, StartedWorkflow},
    delegation::{Child, ChildUsage, Parent},
    ids::{AgentName, ApprovalId, AttemptId, CallId, MessageId, RunId, Seq, SessionId, UserId},
    json::Digest,
    message::{AssistantMessage, MessageHistory},
    policy::Settings,
    preflight::PreflightPhase,
    time::Timestamp,
    trace_context::TraceContext,
    usage::ModelUsage,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// A session. What grows with its history is beside [`Active`], which stays small: a decision
/// works on a copy of `Active` alone. What is beside it costs the same to clone and to add to
/// however long the session is.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionState {
    /// Its id.
    pub session_id: SessionId,
    /// The last event's number.
    pub last_seq: Seq,
    /// Whose it is and what it is; `None` before the first event.
    pub metadata: Option<SessionMetadata>,
    /// What was said.
    pub conversation: MessageHistory,
    /// What stands for its older part in what models are told (C4).
    pub summary: Option<ConversationSummary>,
    /// The messages that were taken, by the client's id (S5).
    pub submissions: Submissions,
    /// Questions that no longer wait: the newest [`crate::limits::CLOSED_APPROVALS_KEPT`].
    pub closed_approvals: ClosedApprovals,
    /// Tokens of all runs that have ended, and their cost.
    pub usage: ModelUsage,
    /// How often people gave feedback.
    pub feedback_count: u32,
    /// What is going on.
    pub active: ActiveState,
}

/// What stands for the older part of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationSummary {
    /// So many messages from its beginning.
    pub through: u64,
    /// The tokens of those messages, as estimated.
    pub tokens: u64,
    /// The summary of them.
    pub summary: Arc<str>,
}

impl ConversationSummary {
    pub(crate) fn new(conversation: &MessageHistory, through: u64, summary: Arc<str>) -> Self {
        let messages = usize::try_from(through).unwrap_or(usize::MAX);
        Self { through, tokens: conversation.estimated_tokens_of_first(messages), summary }
    }

    /// How many messages it stands for.
    pub(crate) fn message_count(&self) -> usize {
        usize::try_from(self.through).unwrap_or(usize::MAX)
    }
}

/// Where a run stands with summarising (C4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionPhase {
    /// It may be done before the next step.
    #[default]
    Idle,
    /// A model attempt that is under way is for it.
    Running {
        /// So many messages from the conversation's beginning.
        through: u64,
    },
    /// It was done before the step that is next.
    Done,
    /// It failed, and is not tried again in this run.
    Failed,
}

/// Whose a session is and what it is.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionMetadata {
    /// Its principal.
    pub owner: UserId,
    /// Its agent profile.
    pub agent: AgentName,
    /// The session that started it, if one did (S8).
    pub parent: Option<Arc<Parent>>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its last event happened.
    pub updated_at: Timestamp,
}

/// What is going on in a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActiveState {
    /// Whether it takes messages.
    pub lifecycle: Lifecycle,
    /// For people.
    pub title: Option<String>,
    /// What it allows.
    pub settings: Arc<Settings>,
    /// What the run's workflow leaves of it, where that is less (C3).
    pub workflow_settings: Option<Arc<Settings>>,
    /// Messages that wait, oldest first.
    pub queue: VecDeque<QueuedMessage>,
    /// The run that is going.
    pub run: Option<Run>,
    /// The questions that wait.
    pub approvals: Vec<OpenApproval>,
    /// What people granted for the session, oldest first.
    pub grants: Vec<Grant>,
    /// What tools have cost (G6).
    pub tool_costs: ToolCosts,
    /// The budgets that people raised.
    pub budget_raises: Vec<BudgetRaise>,
    /// The sessions that work for it, those that were told to stop included (S8).
    pub children: Vec<Child>,
    /// What all of its children have spent.
    pub child_usage: ChildUsage,
}

/// Whether a session takes messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    /// It does not exist yet.
    #[default]
    NotCreated,
    /// It does.
    Open,
    /// It is read-only.
    Closed,
}

/// A message that waits for its run.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedMessage {
    /// The client's id.
    pub message_id: MessageId,
    /// The run to be.
    pub run_id: RunId,
    /// The text.
    pub text: Arc<str>,
    /// Digest of the request.
    pub digest: Digest,
    /// Whether its run begins with a plan.
    pub preflight: bool,
    /// The workflow that its run is started with.
    pub workflow: Option<Arc<StartedWorkflow>>,
    /// The span of a trace in which it was sent.
    pub traceparent: Option<TraceContext>,
}

/// The run that is going.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its id.
    pub run_id: RunId,
    /// The user's message it answers.
    pub message_id: MessageId,
    /// The step it is at, from 1; 0 before the first.
    pub step: u32,
    /// Where that step stands.
    pub phase: StepPhase,
    /// The complete message of that step, its calls aside, until the step is over.
    pub message: Option<Arc<AssistantMessage>>,
    /// The calls of that step, in proposed order.
    pub calls: Vec<Call>,
    /// Messages to be told with the next step's input, oldest first (S4).
    pub steering: Vec<QueuedMessage>,
    /// The model that is asked, by its name in configuration: the one it began with, or one that it
    /// fell back to (M4).
    pub model: Option<Arc<str>>,
    /// The model's last complete message.
    pub last_message_id: Option<MessageId>,
    /// Tokens so far, and their cost.
    pub usage: ModelUsage,
    /// What its tools have cost, by unit.
    pub tool_costs: BTreeMap<Arc<str>, f64>,
    /// What its children have spent.
    pub child_usage: ChildUsage,
    /// Where it stands with its plan (G14).
    pub preflight: PreflightPhase,
    /// The workflow that it was started with (C3).
    pub workflow: Option<Arc<StartedWorkflow>>,
    /// The span of a trace in which it was asked for (A4).
    pub traceparent: Option<TraceContext>,
    /// Where it stands with summarising.
    pub compaction: CompactionPhase,
    /// When it began.
    pub started_at: Timestamp,
}

/// Where a step stands.
#[derive(Clone, Debug, PartialEq)]
pub enum StepPhase {
    /// Before its first step: only within one decision, or while people are asked about a budget
    /// or the plan.
    BetweenSteps,
    /// A model attempt is under way.
    Streaming {
        /// Its fence.
        attempt_id: AttemptId,
        /// 1 is the first.
        attempt: u32,
        /// Attempts that failed by themselves, not by a restart of ours.
        failures: u32,
        /// The open message.
        message_id: Option<MessageId>,
    },
    /// A model attempt failed; the next starts then.
    BackingOff {
        /// When.
        until: Timestamp,
        /// How many attempts there were.
        attempts: u32,
        /// How many of them failed by themselves.
        failures: u32,
        /// The message, if it is still open because nothing of it was streamed.
        message_id: Option<MessageId>,
    },
    /// The message is complete, and its calls have their turn.
    RunningCalls,
}

impl Run {
    /// How many messages a model attempt that is under way is to summarise, if it is for that.
    pub fn compacting_through(&self) -> Option<u64> {
        match self.compaction {
            CompactionPhase::Running { through } => Some(through),
            CompactionPhase::Idle | CompactionPhase::Done | CompactionPhase::Failed => None,
        }
    }

    /// Whether its workflow lets it use the tool of that name. Skills may always be read.
    pub fn can_use_tool(&self, tool: &str) -> bool {
        let by_workflow = |workflow: &Arc<StartedWorkflow>| workflow.can_use_tool(tool);
        tool == READ_SKILL_TOOL || self.workflow.as_ref().is_none_or(by_workflow)
    }

    /// Whether it is still to have a plan: a model attempt that is under way then is for that.
    pub fn is_planning(&self) -> bool {
        self.step == 0 && self.preflight == PreflightPhase::Required
    }
}

impl SessionState {
    /// A session before its first event.
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

    /// The state that `records` add up to.
    pub fn replay<'a>(
        session_id: SessionId,
        records: impl IntoIterator<Item = &'a EventRecord>,
    ) -> Self {
        records.into_iter().fold(Self::new(session_id), evolve)
    }

    /// Whether nothing is going on and nothing waits for a turn.
    pub fn is_idle(&self) -> bool {
        let ActiveState { run, queue, children, .. } = &self.active;
        run.is_none() && queue.is_empty() && children.is_empty()
    }

    /// Whether all that goes on is a person thinking: nothing is lost by leaving memory (D6).
    pub fn is_waiting_for_approval(&self) -> bool {
        let Some(run) = &self.active.run else { return false };
        let mut serial_is_taken = false;
        let waits = |call: &Call| {
            let is_held_back = !call.parallel && serial_is_taken;
            serial_is_taken |= !call.parallel && !call.is_finished();
            match call.phase {
                CallPhase::AwaitingApproval { .. } | CallPhase::Finished(_) => true,
                // By an earlier call that waits for a person; others wait for their turn (T8).
                CallPhase::Allowed => is_held_back,
                CallPhase::Proposed | CallPhase::Running { .. } | CallPhase::BackingOff { .. } => {
                    false
                }
            }
        };
        matches!(run.phase, StepPhase::BetweenSteps | StepPhase::RunningCalls)
            && self.active.children.is_empty()
            && !self.active.approvals.is_empty()
            && run.calls.iter().all(waits)
    }

    /// Tokens of all runs up to now, and their cost.
    pub fn total_usage(&self) -> ModelUsage {
        let going = self.active.run.as_ref().map(|run| run.usage);
        self.usage.plus(going.unwrap_or_default())
    }

    /// When [`super::Input::Wake`] is next due for a backoff. Approval deadlines are the desk's.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.next_wake_excluding(|_| false)
    }

    /// The same, leaving out calls that wait for their turn (T8): time does not bring it.
    pub fn next_wake_excluding(&self, awaits_turn: impl Fn(CallId) -> bool) -> Option<Timestamp> {
        let run = self.active.run.as_ref()?;
        let step = match run.phase {
            StepPhase::BackingOff { until, .. } => Some(until),
            StepPhase::BetweenSteps | StepPhase::Streaming { .. } | StepPhase::RunningCalls => None,
        };
        let timed = run.calls.iter().filter(|call| !awaits_turn(call.call_id));
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

    /// The closed question of that id, if it is remembered.
    pub fn closed_approval(&self, approval_id: ApprovalId) -> Option<&ClosedApproval> {
        let mut closed = self.closed_approvals.closed_after(Seq(0));
        closed.find(|closed| closed.approval.approval_id == approval_id)
    }
}
