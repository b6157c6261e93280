//! The events of a session's log (E1).
//!
//! Event names are in the past tense and the set is closed. Events stay readable forever: a change
//! to a variant or field must not make old logs unparsable (D7).

use crate::{
    amount::Amount,
    approval::{Approval, ArgumentEdit, Grant, PlanStepDecision, RecordedAnswer, Role},
    authors::Authors,
    budget::{Budget, SpendingEntry},
    call::{AuthorizationSource, CallFailureReason, ToolOutput},
    context::StartedWorkflow,
    delegation::{ChildRef, Parent},
    feedback::Feedback,
    ids::{
        AgentName, ApprovalId, AttemptId, CallId, GrantId, MessageId, RunId, Seq, SessionId, UserId,
    },
    json::{Digest, float},
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

/// A committed event with its envelope. The log supplies the session's id and agent; a record does
/// not repeat them. `event_decoder` decodes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventRecord {
    /// The event's sequence number in the session.
    pub seq: Seq,
    /// The time of the decision that produced the event.
    pub at: Timestamp,
    /// The run that the event belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The step of that run, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The event itself.
    #[serde(flatten)]
    pub event: SessionEvent,
}

/// A fact in a session's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum SessionEvent {
    /// The session was created. Always the first event.
    SessionCreated {
        /// The session's principal.
        owner: UserId,
        /// The session's agent profile.
        agent: AgentName,
        /// The title shown to users.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The session's settings.
        settings: Arc<Settings>,
        /// The parent session, if the session is a child (S8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Arc<Parent>>,
    },
    /// The session was created as a fork that continues another session's conversation (S1). Always
    /// the first event.
    SessionForked {
        /// The session that was forked.
        from: SessionId,
        /// The last event of `from` that the fork includes.
        at_seq: Seq,
        /// The fork's principal.
        owner: UserId,
        /// The fork's agent profile.
        agent: AgentName,
        /// The title shown to users.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The fork's settings.
        settings: Arc<Settings>,
        /// The conversation up to `at_seq`; every call in it has a result.
        conversation: Vec<Message>,
        /// The amounts that the forked session had spent; they count against the fork's session
        /// budgets (G17).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        spent: Vec<SpendingEntry>,
    },
    /// The settings or the title changed.
    SessionSettingsChanged {
        /// The new settings.
        settings: Arc<Settings>,
        /// The new title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The user who made the change.
        by: UserId,
    },
    /// The session was closed and is read-only from here on.
    SessionClosed {
        /// The user who closed the session.
        by: UserId,
    },

    /// A user's message was queued behind the active run.
    MessageQueued {
        /// The client's id for the message.
        message_id: MessageId,
        /// The message's text.
        text: Arc<str>,
        /// Digest of the request, for idempotency (S5).
        digest: Digest,
        /// Set for a message that steers the active run (S4).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steers: Option<Steering>,
        /// True if the message's run starts with a preflight (G14).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        preflight: bool,
        /// The workflow that the message's run is started with (C3).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<Arc<StartedWorkflow>>,
        /// The trace span in which the message was sent (A4).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<TraceContext>,
        /// The users who wrote the message; unknown in logs that did not record them (G12).
        #[serde(default, skip_serializing_if = "Authors::is_unknown")]
        authors: Authors,
    },
    /// A user's message became part of the conversation.
    MessageAccepted {
        /// The client's id for the message.
        message_id: MessageId,
        /// The message's text.
        text: Arc<str>,
        /// Digest of the request, for idempotency (S5).
        digest: Digest,
        /// The users who wrote a part of the message, including changes while it was
        /// queued; unknown in logs that did not record them (G12).
        #[serde(default, skip_serializing_if = "Authors::is_unknown")]
        authors: Authors,
    },
    /// The text of a queued message was replaced before the message was delivered (S10). Belongs
    /// to the message's own run; for a message that steers the active run, to that run.
    QueuedMessageChanged {
        /// The client's id for the message.
        message_id: MessageId,
        /// The message's new text.
        text: Arc<str>,
        /// Digest of the change's body, for idempotency (S5).
        digest: Digest,
        /// True if the message's run starts with a preflight (G14).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        preflight: bool,
        /// The user who changed the message.
        by: UserId,
    },
    /// A queued message was withdrawn before it was delivered (S10). If the message waited for a
    /// run of its own, `RunCancelled` of that run follows in the same commit.
    QueuedMessageWithdrawn {
        /// The client's id for the message.
        message_id: MessageId,
        /// The user who withdrew the message.
        by: UserId,
    },
    /// The model's message was opened; deltas follow.
    MessageStarted {
        /// The message's id.
        message_id: MessageId,
    },
    /// The model's message is complete. Its calls follow in the same commit.
    MessageCompleted {
        /// The message's id.
        message_id: MessageId,
        /// The complete text.
        text: String,
        /// Reasoning blocks, which are sent back to the provider.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reasoning: Vec<Reasoning>,
        /// The reason why the model stopped.
        stop_reason: StopReason,
        /// True if a cancellation cut the message off.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stopped: bool,
    },
    /// The open message was discarded. Clients must discard the text that was streamed of it.
    MessageDiscarded {
        /// The message's id.
        message_id: MessageId,
        /// The reason for the discard.
        reason: String,
    },

    /// A run started.
    RunStarted {
        /// The user's message that started the run.
        message_id: MessageId,
        /// True if the model submits a plan first (G14).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        preflight: bool,
        /// The workflow that the run is started with (C3).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workflow: Option<Arc<StartedWorkflow>>,
        /// The session's new title, if the session had none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The trace span in which the run was requested (A4).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<TraceContext>,
    },
    /// A run completed with a final answer.
    RunCompleted {
        /// The final message.
        message_id: MessageId,
        /// Tokens of all steps of the run, including failed attempts, and their cost.
        usage: ModelUsage,
        /// The way in which the final message ended; `None` in logs of versions that did not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<RunStopReason>,
    },
    /// A run failed; the session stays usable.
    RunFailed {
        /// The kind of failure.
        code: RunFailureCode,
        /// The error text shown to users.
        error: String,
        /// Tokens of all steps of the run, including failed attempts, and their cost.
        usage: ModelUsage,
    },
    /// A run, or a queued message before its run started, was cancelled.
    RunCancelled {
        /// The user who cancelled.
        by: UserId,
        /// The message that was cut off, if one was open and had text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_id: Option<MessageId>,
        /// Tokens of all steps of the run, including failed attempts, and their cost.
        usage: ModelUsage,
    },

    /// An attempt of a model call started.
    StepStarted {
        /// The attempt's id, its fencing token.
        attempt_id: AttemptId,
        /// The attempt's number, from 1.
        attempt: u32,
        /// The model's name in configuration.
        model: String,
        /// True for the model call that requests a preflight plan. That call precedes the first
        /// step and is not counted as a step (G14).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        planning: bool,
        /// Set for the model call that requests a summary: the number of messages, from the
        /// conversation's start, to summarise. That call runs between steps and is not counted as
        /// a step (C4).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compacting: Option<u64>,
    },
    /// A model call completed.
    StepCompleted {
        /// The call's tokens and their cost.
        usage: ModelUsage,
        /// The reason why the model stopped.
        stop_reason: StopReason,
    },
    /// An attempt of a model call failed, and another attempt follows.
    StepRetrying {
        /// The number of the attempt that ended.
        attempt: u32,
        /// The number of failed attempts so far, excluding attempts that a server restart ended.
        failures: u32,
        /// The delay until the next attempt, in milliseconds.
        delay_ms: u64,
        /// The time at which the next attempt starts.
        until: Timestamp,
        /// The reason for the failure.
        reason: String,
        /// Tokens of the attempt, as far as the provider reported them, and their cost.
        #[serde(default)]
        usage: ModelUsage,
    },

    /// A model is exhausted, and the run continues with the next model of its profile (M4).
    StepModelFallback {
        /// The number of the attempt that ended.
        attempt: u32,
        /// The model that this run gives up.
        from: String,
        /// The model that this run uses from here on.
        to: String,
        /// The reason for the fallback.
        reason: String,
        /// Tokens of the attempt, as far as the provider reported them, and their cost.
        #[serde(default)]
        usage: ModelUsage,
    },

    /// A summary replaces the older part of the conversation in later model requests (C4). The log
    /// keeps the replaced messages.
    ContextCompacted {
        /// The number of messages, from the conversation's start, that the summary replaces.
        through: u64,
        /// The text of the summary.
        summary: Arc<str>,
        /// Tokens used to produce the summary, and their cost.
        usage: ModelUsage,
    },
    /// Compaction failed; the run continues with the part of the conversation that fits.
    ContextCompactionFailed {
        /// The reason shown to users.
        reason: String,
        /// Tokens used by the failed attempt, as far as the provider reported them, and their cost.
        usage: ModelUsage,
    },

    /// The model proposed a tool call.
    ToolCallStarted {
        /// The call's id.
        call_id: CallId,
        /// The provider's id for the call.
        provider_id: String,
        /// The tool's name as the model gave it.
        tool: String,
        /// The connection that the tool belongs to, if the tool exists. A tool with the same name
        /// on another server is a different tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<Arc<str>>,
        /// The proposed arguments.
        arguments: Arc<Arguments>,
        /// Digest of the canonical arguments.
        digest: Digest,
        /// The tool's risk.
        risk: Risk,
        /// True if the call may run in parallel with other calls.
        parallel: bool,
        /// True if an attempt may safely be repeated.
        repeatable: bool,
    },
    /// The call was allowed to run with the arguments of `digest`.
    ToolCallAllowed {
        /// The call's id.
        call_id: CallId,
        /// Digest of the allowed arguments.
        digest: Digest,
        /// The policy, human decision or grant that allowed the call.
        by: CallAuthorization,
        /// The edit of a human; `digest` is then the digest of the edited arguments (G8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edit: Option<ArgumentEdit>,
    },
    /// An attempt of the call started.
    ToolCallAttemptStarted {
        /// The call's id.
        call_id: CallId,
        /// The attempt's id, its fencing token.
        attempt_id: AttemptId,
        /// The attempt's number, from 1.
        attempt: u32,
        /// The child session that executes the call, the same for every attempt (S8).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<ChildRef>,
    },
    /// A running tool reported progress (T5).
    ToolCallProgress {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        tool: String,
        /// The amount done.
        #[serde(deserialize_with = "float::deserialize")]
        progress: f64,
        /// The total amount, if the tool reported it.
        #[serde(
            default,
            deserialize_with = "float::deserialize_option",
            skip_serializing_if = "Option::is_none"
        )]
        total: Option<f64>,
        /// The tool's progress text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// An attempt of the call failed, and another attempt follows (R2).
    ToolCallRetrying {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        tool: String,
        /// The number of the attempt that ended.
        attempt: u32,
        /// The number of failed attempts so far, excluding attempts that a server restart ended.
        failures: u32,
        /// The delay until the next attempt, in milliseconds.
        delay_ms: u64,
        /// The time at which the next attempt starts.
        until: Timestamp,
        /// The reason for the failure.
        reason: String,
        /// True if the failed attempt may have taken effect.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        maybe_ran: bool,
    },
    /// A result arrived after its attempt was given up; the result changes nothing (R1).
    LateResult {
        /// The call's id.
        call_id: CallId,
        /// The attempt that was given up.
        attempt_id: AttemptId,
        /// A short form of the result.
        summary: String,
    },
    /// The call completed with a result.
    ToolCallCompleted {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        tool: String,
        /// The result.
        output: ToolOutput,
    },
    /// The call failed.
    ToolCallFailed {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        tool: String,
        /// The kind of failure.
        reason: CallFailureReason,
        /// The error text for the model and for users.
        error: String,
        /// True if all permitted retries failed (R3).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retries_exhausted: bool,
        /// The number of attempts that were started (R3); 0 in logs of versions that did not record
        /// it.
        #[serde(default, skip_serializing_if = "is_zero")]
        attempts: u32,
        /// True if this attempt or an earlier one may have taken effect. The call's reservation is
        /// then kept (G6).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        maybe_ran: bool,
    },
    /// The policy denied the call (G7).
    AuthorizationDenied {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        tool: String,
        /// The reason for users and for the model.
        reason: String,
        /// The lowest autonomy level at which the call would not be denied.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        required_level: Option<Autonomy>,
    },

    /// An approval was requested.
    ApprovalRequested {
        /// The approval.
        approval: Arc<Approval>,
    },
    /// A human answered an approval, completely or in part.
    ApprovalDecided {
        /// The approval's id.
        approval_id: ApprovalId,
        /// The steps of a plan that this answer decides.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<PlanStepDecision>,
        /// The answer to an approval that has no steps.
        #[serde(default, rename = "answer", skip_serializing_if = "Option::is_none")]
        answer: Option<Box<RecordedAnswer>>,
        /// True if the approval is now completely decided.
        closed: bool,
    },
    /// The deadline passed, and the approval was escalated to another role (G10).
    ApprovalEscalated {
        /// The approval's id.
        approval_id: ApprovalId,
        /// The lowest role that may answer now.
        to: Role,
        /// The deadline of that role; `None` for no deadline.
        deadline: Option<Timestamp>,
    },
    /// The approval's last deadline passed (G10).
    ApprovalExpired {
        /// The approval's id.
        approval_id: ApprovalId,
    },
    /// The approval was cancelled: its run ended, or the requesting tool attempt no longer waits.
    ApprovalCancelled {
        /// The approval's id.
        approval_id: ApprovalId,
    },

    /// A human approved the preflight plan; calls that its steps cover run without another approval
    /// (G14).
    PreflightApproved {
        /// The approval's id.
        approval_id: ApprovalId,
        /// The user who approved the plan.
        by: UserId,
        /// The user's reason, for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The approved and skipped steps, in order.
        steps: Arc<[ApprovedPreflightStep]>,
    },
    /// There is no preflight plan to approve; normal approval rules apply.
    PreflightSkipped {
        /// The reason shown to users.
        warning: String,
    },

    /// The cost of an allowed call was reserved (G6). The reservation is released when the call
    /// definitely failed.
    BudgetReserved {
        /// The call's id.
        call_id: CallId,
        /// The tool's name.
        tool: String,
        /// The reserved cost.
        cost: Cost,
    },
    /// A budget has no room for the next step or call (G6).
    BudgetReached {
        /// The budget with its effective limit.
        budget: Budget,
        /// The amount spent or reserved.
        spent: Amount,
        /// The amount needed next; 0 if it is not known in advance.
        needed: Amount,
    },
    /// A human raised a budget, for this session and the budget's period.
    BudgetRaised {
        /// The approval's id.
        approval_id: ApprovalId,
        /// The budget with its new limit.
        budget: Budget,
        /// The user who raised the budget.
        by: UserId,
    },

    /// An event of a child session or of one of its descendants (S8).
    ChildEvent {
        /// The child's session id.
        session_id: SessionId,
        /// The child's agent profile.
        agent: AgentName,
        /// The call that the child works for.
        call_id: CallId,
        /// The child's event with its sequence number in the child, without message text. An event
        /// of a grandchild is wrapped in the child's own event of this type.
        event: Arc<EventRecord>,
    },
    /// The child session does not exist and will not: its log was purged or was never created.
    ChildGone {
        /// The child's session id.
        session_id: SessionId,
        /// The call that the child was to work for.
        call_id: CallId,
    },

    /// A user gave feedback on an answer or a call (C5).
    FeedbackGiven {
        /// The rating and its target.
        #[serde(flatten)]
        feedback: Feedback,
        /// The user who gave the feedback.
        by: UserId,
    },

    /// An approval was extended to later calls (G9).
    GrantAdded {
        /// The new grant.
        grant: Grant,
    },
    /// A grant was revoked.
    GrantRevoked {
        /// The grant's id.
        grant_id: GrantId,
        /// The user who revoked the grant.
        by: UserId,
    },
}

/// Delivery of a message that steers the active run (S4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// The id of the message's own run, which starts if the active run ends without another step.
    pub own_run_id: RunId,
    /// True if an approval is open, so that the model reads the message after the decision.
    pub after_decision: bool,
}

/// The policy, human decision or grant that allows a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CallAuthorization {
    /// The policy allows the call.
    Policy {
        /// The policy's reason.
        why: String,
    },
    /// A human approved the call.
    Approval {
        /// The approval's id.
        approval_id: ApprovalId,
        /// The user who approved.
        by: UserId,
        /// The user's role at that time; `None` in logs that did not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
    },
    /// A session grant covers the call.
    Grant {
        /// The grant's id.
        grant_id: GrantId,
    },
    /// A step of the run's approved preflight plan covers the call (G14).
    Preflight {
        /// The id of the preflight approval.
        approval_id: ApprovalId,
        /// The step's position in the plan, from 1.
        step: u32,
        /// The user who approved the plan.
        by: UserId,
    },
}

impl CallAuthorization {
    /// Returns true if both this authorization and `source` refer to the same grant.
    pub fn is_by_same_grant(&self, source: AuthorizationSource) -> bool {
        matches!(self, Self::Grant { grant_id } if source == AuthorizationSource::Grant(*grant_id))
    }
}

/// The reason why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunFailureCode {
    /// No final answer within the allowed steps (S2).
    MaxIterations,
    /// The model's provider refused the request.
    ModelError,
    /// The model's provider could not be reached, after retries.
    ModelUnavailable,
    /// A budget was reached and not raised (G6).
    BudgetReached,
    /// An approval that the run depended on expired (G10).
    ApprovalExpired,
}

/// The way in which the final message of a completed run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStopReason {
    /// The message is complete.
    End,
    /// The message was truncated at a length limit.
    Length,
    /// The model refused.
    Refusal,
    /// The provider's content filter cut the message off.
    ContentFilter,
    /// The message has neither text nor calls.
    Empty,
}

impl RunStopReason {
    /// Returns how a run ends with a message that stopped for `reason`.
    pub fn from_message(reason: StopReason, is_empty: bool) -> Self {
        match reason {
            StopReason::MaxTokens | StopReason::TextLimit => Self::Length,
            StopReason::Refusal => Self::Refusal,
            StopReason::ContentFilter => Self::ContentFilter,
            StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence if is_empty => {
                Self::Empty
            }
            StopReason::EndTurn | StopReason::ToolUse | StopReason::StopSequence => Self::End,
        }
    }

    /// Returns the wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Length => "length",
            Self::Refusal => "refusal",
            Self::ContentFilter => "content_filter",
            Self::Empty => "empty",
        }
    }
}

impl SessionEvent {
    /// Returns true if the event is the last one of its run, apart from mirrored events of child
    /// sessions.
    pub fn ends_run(&self) -> bool {
        matches!(
            self,
            Self::RunCompleted { .. } | Self::RunFailed { .. } | Self::RunCancelled { .. }
        )
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}
