//! The inputs of a session: commands and reported facts.

use crate::{
    approval::{ApprovalSubject, Elicitation, GrantRequest, Resolution, Role, Surface},
    authors::Authors,
    budget::SpendingEntry,
    call::ToolOutcome,
    context::StartedWorkflow,
    delegation::ChildTask,
    feedback::Feedback,
    ids::{
        AgentName, ApprovalId, AttemptId, CallId, GrantId, MessageId, RunId, Seq, SessionId, UserId,
    },
    json::Digest,
    message::Message,
    model::{completion::Completion, failure::ModelFailure},
    policy::{Settings, SettingsPatch},
    session::EventRecord,
    trace_context::TraceContext,
    usage::TokenUsage,
};
use serde_json::Value;
use std::sync::Arc;

/// One input of [`decide`](super::decide). A command may be rejected. A fact may be stale, but
/// never wrong.
#[derive(Clone, Debug)]
pub enum Input {
    /// Create the session.
    CreateSession {
        /// The session's principal.
        owner: UserId,
        /// The session's agent profile.
        agent: AgentName,
        /// The title shown to users.
        title: Option<String>,
        /// The session's settings, already narrowed to the user's settings.
        settings: Settings,
    },
    /// Create the session as a fork that continues another session's conversation (S1).
    ForkSession {
        /// The session that is forked.
        from: SessionId,
        /// The last event of `from` that the fork includes.
        at_seq: Seq,
        /// The fork's principal.
        owner: UserId,
        /// The fork's agent profile.
        agent: AgentName,
        /// The title shown to users.
        title: Option<String>,
        /// The fork's settings.
        settings: Settings,
        /// The conversation so far, from
        /// [`SessionState::conversation_so_far`](super::SessionState::conversation_so_far).
        conversation: Vec<Message>,
        /// The spending of the forked session, from
        /// [`SessionState::session_spending`](super::SessionState::session_spending).
        spent: Vec<SpendingEntry>,
    },
    /// Create the session as a child of another session and start its task (S8).
    CreateChild {
        /// The child's task.
        task: Arc<ChildTask>,
    },
    /// Narrow the session's settings to its parent's settings, which have changed (S8).
    NarrowSettings {
        /// The parent's settings.
        parent_settings: Arc<Settings>,
    },
    /// Change the session's settings or title.
    ChangeSettings {
        /// The changes; already validated against the user's settings.
        patch: SettingsPatch,
        /// The new title; `None` keeps the title, `Some(None)` removes it.
        title: Option<Option<String>>,
        /// The user who makes the change.
        by: UserId,
    },
    /// Close the session and cancel its active run.
    CloseSession {
        /// The user who closes the session.
        by: UserId,
        /// The text that the stopped model stream had produced.
        partial: Option<Completion>,
    },
    /// Submit a message.
    SubmitMessage {
        /// The message.
        message: NewMessage,
        /// The action if a run is active.
        on_busy: OnBusy,
    },
    /// Cancel the active run and start this message's run at once, before queued messages (S4).
    Interrupt {
        /// The message.
        message: NewMessage,
        /// The user who interrupts.
        by: UserId,
        /// The text that the stopped model stream had produced.
        partial: Option<Completion>,
    },
    /// Replace the text of a queued message (S10).
    ChangeQueuedMessage {
        /// The client's id for the message.
        message_id: MessageId,
        /// The new content.
        change: QueuedMessageChange,
        /// The user who changes the message.
        by: UserId,
    },
    /// Withdraw a queued message (S10).
    WithdrawQueuedMessage {
        /// The client's id for the message.
        message_id: MessageId,
        /// The user who withdraws the message.
        by: UserId,
    },
    /// Cancel a run (S6).
    CancelRun {
        /// The run to cancel, active or queued; `None` for the active run.
        run_id: Option<RunId>,
        /// The user who cancels.
        by: UserId,
        /// The text that the stopped model stream had produced.
        partial: Option<Completion>,
    },
    /// Answer an approval (G8, G11).
    AnswerApproval {
        /// The approval's id.
        approval_id: ApprovalId,
        /// The answer.
        answer: ApprovalAnswer,
        /// The request to grant later calls of the approved tools (G9).
        for_session: Option<GrantRequest>,
        /// The user who answers.
        by: UserId,
        /// The user's role.
        role: Role,
        /// The surface through which the user answers.
        surface: Surface,
    },
    /// Revoke grants of the session (G9).
    RevokeGrants {
        /// The grant to revoke; `None` revokes all grants.
        grant_id: Option<GrantId>,
        /// The user who revokes.
        by: UserId,
    },
    /// Record a user's feedback on an answer or a call (C5).
    GiveFeedback {
        /// The rating and its target.
        feedback: Feedback,
        /// The run of the rated message or call.
        run_id: Option<RunId>,
        /// The user who gives the feedback.
        by: UserId,
    },
    /// A model attempt ended.
    ModelFinished {
        /// The attempt's id.
        attempt_id: AttemptId,
        /// The completion or the failure.
        result: Result<Completion, ModelAttemptFailure>,
    },
    /// A tool attempt ended.
    ToolFinished {
        /// The call's id.
        call_id: CallId,
        /// The attempt's id.
        attempt_id: AttemptId,
        /// The outcome of the attempt.
        outcome: ToolOutcome,
    },
    /// A running tool reported progress (T5).
    ToolProgressed {
        /// The call's id.
        call_id: CallId,
        /// The attempt's id.
        attempt_id: AttemptId,
        /// The amount done.
        progress: f64,
        /// The total amount, if the tool reported it.
        total: Option<f64>,
        /// The tool's progress text.
        message: Option<String>,
    },
    /// A running tool requested an elicitation (T1).
    ElicitationRequested {
        /// The call's id.
        call_id: CallId,
        /// The attempt's id.
        attempt_id: AttemptId,
        /// The number of the elicitation within the attempt, from 1.
        elicitation_number: u32,
        /// The elicitation.
        elicitation: Elicitation,
    },
    /// A running tool withdrew an elicitation.
    ElicitationWithdrawn {
        /// The attempt's id.
        attempt_id: AttemptId,
        /// The number of the elicitation within the attempt, from 1.
        elicitation_number: u32,
    },
    /// Events of a child, in order and without gaps; some may already be mirrored (S8).
    ChildEventsReceived {
        /// The child's session id.
        child: SessionId,
        /// The child's events.
        records: Arc<[EventRecord]>,
    },
    /// The child session does not exist and will not: its log was purged or was never created.
    ChildGone {
        /// The child's session id.
        child: SessionId,
    },
    /// No other call with that key runs, so that this call may run if it is still due (T8).
    ExclusiveLockGranted {
        /// The call's id.
        call_id: CallId,
        /// The key of the lock.
        key: String,
    },
    /// Time has passed: handle overdue approvals and backoffs.
    Wake,
    /// The state was rebuilt from the log; attempts that were in progress no longer run (D2, D3).
    Rehydrated {
        /// The user's settings, if the session allows more than they do. They can change without an
        /// event of the session when the defaults of users without stored settings change (G4).
        user_settings: Option<Arc<Settings>>,
    },
}

/// A submitted message.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The client's id for the message; the idempotency key (S5).
    pub message_id: MessageId,
    /// The message's text, not empty and within the size limit.
    pub text: Arc<str>,
    /// Digest of the request's body.
    pub digest: Digest,
    /// True if the message's run starts with a preflight (G14); `None` for the session's setting.
    pub preflight: Option<bool>,
    /// The workflow that the message's run is started with (C3).
    pub workflow: Option<Arc<StartedWorkflow>>,
    /// The trace span in which the message was sent (A4).
    pub traceparent: Option<TraceContext>,
    /// The users who wrote the message (G12).
    pub authors: Authors,
}

impl NewMessage {
    /// Creates a message of one author without options.
    pub fn new(author: UserId, message_id: MessageId, text: Arc<str>, digest: Digest) -> Self {
        let (preflight, workflow, traceparent) = (None, None, None);
        let authors = author.into();
        Self { message_id, text, digest, preflight, workflow, traceparent, authors }
    }
}

/// The new content of a queued message (S10). The message keeps its id, its place in the queue and
/// its workflow.
#[derive(Clone, Debug)]
pub struct QueuedMessageChange {
    /// The new text, not empty and within the size limit.
    pub text: Arc<str>,
    /// Digest of the request's body.
    pub digest: Digest,
    /// True if the message's run starts with a preflight (G14); `None` keeps the message's option.
    pub preflight: Option<bool>,
}

/// The handling of a message that arrives while a run is active (S4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    /// Queue the message for a run of its own.
    #[default]
    Queue,
    /// Reject the message.
    Reject,
    /// Deliver the message to the model with the input of the next step.
    Steer,
}

/// A human's answer to an approval.
#[derive(Clone, Debug, PartialEq)]
pub enum ApprovalAnswer {
    /// One decision: for every undecided step of a plan, or for a preflight or elicitation as a
    /// whole.
    Overall {
        /// True to approve.
        approved: bool,
        /// The reason, for the model.
        reason: Option<String>,
    },
    /// Decisions on individual steps of a plan.
    Steps(Vec<PlanStepAnswer>),
    /// An answer to an approval without steps.
    Resolve {
        /// The answer.
        resolution: Resolution,
        /// The reason for the answer.
        reason: Option<String>,
    },
}

impl ApprovalAnswer {
    /// True if the answer decides this call, if it is a step of the plan.
    pub fn decides(&self, call_id: CallId) -> bool {
        match self {
            Self::Steps(answers) => answers.iter().any(|answer| answer.call_id == call_id),
            Self::Overall { .. } | Self::Resolve { .. } => true,
        }
    }

    /// Converts an overall approval or rejection to the form that `subject` expects: an approval or
    /// rejection of a preflight, or an answer to an elicitation.
    #[must_use]
    pub fn normalized_for(self, subject: &ApprovalSubject) -> Self {
        match subject {
            ApprovalSubject::Preflight(_) => {}
            ApprovalSubject::Elicitation(_) => return self.normalized_for_elicitation(),
            ApprovalSubject::Plan { .. }
            | ApprovalSubject::Budget(_)
            | ApprovalSubject::UnknownOutcome(_) => {
                return self;
            }
        }
        match self {
            Self::Overall { approved: true, reason } => {
                Self::Resolve { resolution: Resolution::Approve(Vec::new()), reason }
            }
            Self::Overall { approved: false, reason } => {
                Self::Resolve { resolution: Resolution::Reject, reason }
            }
            answer @ (Self::Steps(_) | Self::Resolve { .. }) => answer,
        }
    }

    /// Converts an approval to an empty answer, which confirms an elicitation in URL mode.
    fn normalized_for_elicitation(self) -> Self {
        match self {
            Self::Overall { approved: true, reason } => {
                Self::Resolve { resolution: Resolution::Answer(Value::Null), reason }
            }
            Self::Overall { approved: false, reason } => {
                Self::Resolve { resolution: Resolution::Reject, reason }
            }
            answer @ (Self::Steps(_) | Self::Resolve { .. }) => answer,
        }
    }
}

/// A human's answer to one step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanStepAnswer {
    /// The call's id.
    pub call_id: CallId,
    /// True if the call may run.
    pub approved: bool,
    /// The reason, for the model.
    pub reason: Option<String>,
    /// The edited arguments, if the human edited them (G8).
    pub arguments: Option<Value>,
}

/// A failed model attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAttemptFailure {
    /// The failure.
    pub failure: ModelFailure,
    /// True if a part of the message was sent to clients.
    pub streamed: bool,
    /// Tokens of the attempt; an estimate if the provider did not report all of them.
    pub usage: TokenUsage,
}
