//! What has happened: the events of a session's log (E1). Past tense, closed, and readable for
//! ever: a variant or field is never changed in a way that old logs do not parse.

use crate::{
    approval::{Approval, ArgumentEdit, Grant, PlanStepDecision, RecordedAnswer, Role},
    budget::Budget,
    call::{AuthorizationSource, CallFailureReason, ToolOutput},
    context::StartedWorkflow,
    delegation::{ChildRef, Parent},
    feedback::Feedback,
    ids::{
        AgentName, ApprovalId, AttemptId, CallId, GrantId, MessageId, RunId, Seq, SessionId, UserId,
    },
    json::Digest,
    message::{Arguments, Message, Reasoning},
    model::delta::StopReason,
    policy::{Autonomy, Cost, Risk, Settings},
    preflight::ApprovedPreflightStep,
    time::Timestamp,
    trace_context::TraceContext,
    usage::ModelUsage,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// A committed event with its envelope. The session's id and agent are the log's, not repeated in
/// each record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Its number.
    pub seq: Seq,
    /// When it was decided.
    pub at: Timestamp,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The step of that run, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// What happened.
    #[serde(flatten)]
    pub event: SessionEvent,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum SessionEvent {
    /// The session exists. Always the first event.
    SessionCreated {
        /// Whose it is.
        owner: UserId,
        /// Its agent profile.
        agent: AgentName,
        /// For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// What it allows.
        settings: Arc<Settings>,
        /// The session that started it, if one did (S8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Arc<Parent>>,
    },
    /// The session exists, and goes on from a conversation in another one (S1). Always the first
    /// event.
    SessionForked {
        /// That session.
        from: SessionId,
        /// The last of its events that is counted in.
        at_seq: Seq,
        /// Whose it is.
        owner: UserId,
        /// Its agent profile.
        agent: AgentName,
        /// For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// What it allows.
        settings: Arc<Settings>,
        /// What was said up to there; each call has a result.
        conversation: Vec<Message>,
    },
    /// Its settings or title are these now.
    SessionSettingsChanged {
        /// What it allows.
        settings: Arc<Settings>,
        /// For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Who changed them.
        by: UserId,
    },
    /// It is read-only from here on.
    SessionClosed {
        /// Who closed it.
        by: UserId,
    },

    /// A user's message waits behind the run that is going.
    MessageQueued {
        /// The client's id.
        message_id: MessageId,
        /// The text.
        text: Arc<str>,
        /// Digest of the request, for idempotency (S5).
        digest: Digest,
        /// Set for a message that steers the run that is going (S4).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steers: Option<Steering>,
        /// Whether its run begins with a plan (G14).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        preflight: bool,
        /// The workflow that its run is started with (C3).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<Arc<StartedWorkflow>>,
        /// The span of a trace in which it was sent (A4).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<TraceContext>,
    },
    /// A user's message is part of the conversation, and its run begins.
    MessageAccepted {
        /// The client's id.
        message_id: MessageId,
        /// The text.
        text: Arc<str>,
        /// Digest of the request, for idempotency (S5).
        digest: Digest,
    },
    /// The model's message is open: deltas follow.
    MessageStarted {
        /// Its id.
        message_id: MessageId,
    },
    /// The model's message is complete. Its calls follow in the same commit.
    MessageCompleted {
        /// Its id.
        message_id: MessageId,
        /// The whole text.
        text: String,
        /// Thinking blocks, to be sent back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasoning: Vec<Reasoning>,
        /// Why it ended.
        stop_reason: StopReason,
        /// Whether it was cut off by a cancel.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stopped: bool,
    },
    /// The open message is void; what was streamed of it does not count.
    MessageDiscarded {
        /// Its id.
        message_id: MessageId,
        /// Why.
        reason: String,
    },

    /// A run began.
    RunStarted {
        /// The user's message it answers.
        message_id: MessageId,
        /// Whether the model submits a plan first (G14).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        preflight: bool,
        /// The workflow that it is started with (C3).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<Arc<StartedWorkflow>>,
        /// What the session is called from now on, where it had no title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The span of a trace in which it was asked for (A4).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<TraceContext>,
    },
    /// A run has its final answer.
    RunCompleted {
        /// The final message.
        message_id: MessageId,
        /// Tokens of all its steps, failed attempts included, and their cost.
        usage: ModelUsage,
    },
    /// A run failed; the session stays usable.
    RunFailed {
        /// What kind of failure.
        code: RunFailureCode,
        /// For people.
        error: String,
        /// Tokens of all its steps, failed attempts included, and their cost.
        usage: ModelUsage,
    },
    /// A run, or a queued message's run to be, was cancelled.
    RunCancelled {
        /// Who cancelled.
        by: UserId,
        /// The message that was stopped, if one was open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<MessageId>,
        /// Tokens of all its steps, failed attempts included, and their cost.
        usage: ModelUsage,
    },

    /// An attempt of a model call begins.
    StepStarted {
        /// Its fence.
        attempt_id: AttemptId,
        /// 1 is the first.
        attempt: u32,
        /// The model, by its name in configuration.
        model: String,
        /// Whether it is the call for a plan, which comes before the first step and is none of them
        /// (G14).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        planning: bool,
        /// Set where it is the call for a summary of so many messages from the conversation's
        /// beginning, which comes between steps and is none of them (C4).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compacting: Option<u64>,
    },
    /// The model call is done.
    StepCompleted {
        /// Its tokens and their cost.
        usage: ModelUsage,
        /// Why the model stopped.
        stop_reason: StopReason,
    },
    /// A model call failed and is tried again.
    StepRetrying {
        /// The attempt that ended.
        attempt: u32,
        /// How many attempts failed by themselves so far; those a restart of ours ended are not
        /// counted against the limit.
        failures: u32,
        /// How long until the next, in milliseconds.
        delay_ms: u64,
        /// When the next starts.
        until: Timestamp,
        /// Why it failed.
        reason: String,
        /// Tokens of the attempt, as far as they were told, and their cost.
        #[serde(default)]
        usage: ModelUsage,
    },

    /// A model is exhausted, and the run goes on with the next of its profile (M4).
    StepModelFallback {
        /// The attempt that ended.
        attempt: u32,
        /// The model that is given up for this run.
        from: String,
        /// The model that is asked from now on.
        to: String,
        /// Why.
        reason: String,
        /// Tokens of the attempt, as far as they were told, and their cost.
        #[serde(default)]
        usage: ModelUsage,
    },

    /// A summary stands for the older part of the conversation in what models are told from now on
    /// (C4). The log keeps what it stands for.
    ContextCompacted {
        /// So many messages from the conversation's beginning.
        through: u64,
        /// The summary.
        summary: Arc<str>,
        /// What making it cost.
        usage: ModelUsage,
    },
    /// There is no summary; the run goes on with what has room.
    ContextCompactionFailed {
        /// Why, for people.
        reason: String,
        /// What trying cost, as far as it was told.
        usage: ModelUsage,
    },

    /// The model proposed a call.
    ToolCallStarted {
        /// The call.
        call_id: CallId,
        /// The provider's id for it.
        provider_id: String,
        /// The tool, as the model named it.
        tool: String,
        /// The connection that the tool belongs to, if there is such a tool: another server's of
        /// that name is another tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<Arc<str>>,
        /// What is to be passed.
        arguments: Arc<Arguments>,
        /// Digest of the canonical arguments.
        digest: Digest,
        /// The tool's risk.
        risk: Risk,
        /// Whether it may run beside others.
        parallel: bool,
        /// Whether an attempt may safely be repeated.
        repeatable: bool,
    },
    /// The call may run with these arguments.
    ToolCallAllowed {
        /// The call.
        call_id: CallId,
        /// Digest of the arguments it may run with.
        digest: Digest,
        /// Who or what allowed it.
        by: CallAuthorization,
        /// What a person changed; the digest is that of the arguments as changed (G8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edit: Option<ArgumentEdit>,
    },
    /// An attempt of the call begins.
    ToolCallAttemptStarted {
        /// The call.
        call_id: CallId,
        /// Its fence.
        attempt_id: AttemptId,
        /// 1 is the first.
        attempt: u32,
        /// The session that works on it, the same for every attempt (S8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<ChildRef>,
    },
    /// The tool tells how far it is (T5).
    ToolCallProgress {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// How much is done.
        progress: f64,
        /// Of how much.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<f64>,
        /// In words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// An attempt failed and another follows (R2).
    ToolCallRetrying {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// The attempt that ended.
        attempt: u32,
        /// How many attempts failed by themselves so far; those a restart of ours ended are not
        /// counted against the limit.
        failures: u32,
        /// How long until the next, in milliseconds.
        delay_ms: u64,
        /// When the next starts.
        until: Timestamp,
        /// Why it failed.
        reason: String,
        /// Whether it may have taken effect all the same.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        maybe_ran: bool,
    },
    /// A result came after its attempt was given up; it changes nothing (R1).
    LateResult {
        /// The call.
        call_id: CallId,
        /// The attempt that was given up.
        attempt_id: AttemptId,
        /// What came, in short.
        summary: String,
    },
    /// The call has its result.
    ToolCallCompleted {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// The result.
        output: ToolOutput,
    },
    /// The call failed.
    ToolCallFailed {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// What kind of failure.
        reason: CallFailureReason,
        /// What the model and people read.
        error: String,
        /// Whether retries were made and did not help (R3).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retries_exhausted: bool,
        /// Whether it, or an attempt before, may have taken effect: then what was set aside for it
        /// is kept (G6).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        maybe_ran: bool,
    },
    /// The policy does not let the call run (G7).
    AuthorizationDenied {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// For people and for the model.
        reason: String,
        /// The least level at which it would not be denied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        required_level: Option<Autonomy>,
    },

    /// A person is asked.
    ApprovalRequested {
        /// The question.
        approval: Arc<Approval>,
    },
    /// A person answered, wholly or in part.
    ApprovalDecided {
        /// The question.
        approval_id: ApprovalId,
        /// The steps of a plan that are decided now.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<PlanStepDecision>,
        /// The word on a question that has no steps.
        #[serde(default, rename = "answer", skip_serializing_if = "Option::is_none")]
        answer: Option<Box<RecordedAnswer>>,
        /// Whether all of it is decided now.
        closed: bool,
    },
    /// Nobody answered in time, and the question went to people of another role (G10).
    ApprovalEscalated {
        /// The question.
        approval_id: ApprovalId,
        /// The least role that may answer now.
        to: Role,
        /// When their time is up; `None` means never.
        deadline: Option<Timestamp>,
    },
    /// Nobody answered in time (G10).
    ApprovalExpired {
        /// The question.
        approval_id: ApprovalId,
    },
    /// The question is moot: its run was cancelled, or the tool that asked no longer waits.
    ApprovalCancelled {
        /// The question.
        approval_id: ApprovalId,
    },

    /// A person approved the plan: calls that its steps cover run without asking again (G14).
    PreflightApproved {
        /// The question they answered.
        approval_id: ApprovalId,
        /// Who.
        by: UserId,
        /// What they said, for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The steps as they were approved or skipped, in order.
        steps: Arc<[ApprovedPreflightStep]>,
    },
    /// There is no plan to look at; people are asked about calls as usual.
    PreflightSkipped {
        /// Why, for people.
        warning: String,
    },

    /// What an allowed call costs is set aside (G6). It is released when the call definitely failed.
    BudgetReserved {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// What it costs.
        cost: Cost,
    },
    /// A budget has no room for what comes next (G6).
    BudgetReached {
        /// Which, with its limit in force.
        budget: Budget,
        /// What is spent or reserved of it.
        spent: f64,
        /// What comes next needs so much; 0 where that is not known before.
        needed: f64,
    },
    /// A person raised a budget, for this session and the budget's period.
    BudgetRaised {
        /// The question they answered.
        approval_id: ApprovalId,
        /// The budget, with the limit as it is now.
        budget: Budget,
        /// Who.
        by: UserId,
    },

    /// Something happened in a child, or in a child of its own (S8).
    ChildEvent {
        /// The child.
        session_id: SessionId,
        /// Its agent profile.
        agent: AgentName,
        /// The call that it works for.
        call_id: CallId,
        /// The event with its number there, without what was said. A child's child is told of by
        /// the child's own event of this kind.
        event: Arc<EventRecord>,
    },
    /// There is no such child, and there will be none: its log is gone, or never began.
    ChildGone {
        /// The child.
        session_id: SessionId,
        /// The call that it was to work for.
        call_id: CallId,
    },

    /// A person said what they think of an answer, or of a call (C5).
    FeedbackGiven {
        /// What, of what.
        #[serde(flatten)]
        feedback: Feedback,
        /// Who.
        by: UserId,
    },

    /// A person's approval holds for later calls, too (G9).
    GrantAdded {
        /// What holds.
        grant: Grant,
    },
    /// It no longer does.
    GrantRevoked {
        /// What held.
        grant_id: GrantId,
        /// Who revoked it.
        by: UserId,
    },
}

/// How a message reaches the run that it steers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// The run of its own that it gets if the run ends without another step.
    pub own_run_id: RunId,
    /// Whether a plan waits: the model reads it after the decision.
    pub after_decision: bool,
}

/// Who or what let a call run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CallAuthorization {
    /// The policy.
    Policy {
        /// Why.
        why: String,
    },
    /// A person.
    Approval {
        /// The question they answered.
        approval_id: ApprovalId,
        /// Who.
        by: UserId,
    },
    /// A person, for the whole session.
    Grant {
        /// What they granted.
        grant_id: GrantId,
    },
    /// A person, before the run began: they approved this step of its plan (G14).
    Preflight {
        /// The question they answered.
        approval_id: ApprovalId,
        /// The step's place in the plan, from 1.
        step: u32,
        /// Who.
        by: UserId,
    },
}

impl CallAuthorization {
    /// Whether it is that grant's, which lets the call run already.
    pub fn is_by_same_grant(&self, let_by: AuthorizationSource) -> bool {
        matches!(self, Self::Grant { grant_id } if let_by == AuthorizationSource::Grant(*grant_id))
    }
}

/// Why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunFailureCode {
    /// No final answer within the allowed steps (S2).
    MaxIterations,
    /// The model's provider refused the request.
    ModelError,
    /// The model's provider could not be reached, after retries.
    ModelUnavailable,
    /// A budget was reached, and nobody raised it (G6).
    BudgetReached,
    /// Nobody answered in time what the run could not go on without (G10).
    ApprovalExpired,
}
