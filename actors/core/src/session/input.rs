//! What a session is asked, and what it is told.

use crate::{
    approval::{ApprovalSubject, Elicitation, GrantRequest, Resolution, Role, Surface},
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

/// One input. Those in the imperative may be rejected; facts may be stale, never wrong.
#[derive(Clone, Debug)]
pub enum Input {
    /// Begin to exist.
    CreateSession {
        /// Whose it is.
        owner: UserId,
        /// Its agent.
        agent: AgentName,
        /// For people.
        title: Option<String>,
        /// What it allows; already narrowed from the user's.
        settings: Settings,
    },
    /// Begin to exist, with what was said in another session (S1).
    ForkSession {
        /// That session.
        from: SessionId,
        /// The last of its events that is counted in.
        at_seq: Seq,
        /// Whose it is.
        owner: UserId,
        /// Its agent.
        agent: AgentName,
        /// For people.
        title: Option<String>,
        /// What it allows.
        settings: Settings,
        /// What was said, see [`SessionState::conversation_so_far`](super::SessionState).
        conversation: Vec<Message>,
    },
    /// Begin to exist as another session's child, and do what it wants (S8).
    CreateChild {
        /// What that is.
        task: Arc<ChildTask>,
    },
    /// Allow no more than this: a child's parent does not, any more (S8).
    NarrowSettings {
        /// What the parent allows.
        parent_settings: Arc<Settings>,
    },
    /// Change what it allows, or its title.
    ChangeSettings {
        /// What shall change; nothing that the user does not allow.
        patch: SettingsPatch,
        /// The title as it shall be, if it shall change.
        title: Option<Option<String>>,
        /// Who asks.
        by: UserId,
    },
    /// Become read-only; what runs is cancelled.
    CloseSession {
        /// Who asks.
        by: UserId,
        /// What the stopped model stream had said.
        partial: Option<Completion>,
    },
    /// Answer this message.
    SubmitMessage {
        /// The message.
        message: NewMessage,
        /// What to do when a run is going.
        on_busy: OnBusy,
    },
    /// Cancel the run that is going and answer this message at once, before those that wait (S4).
    Interrupt {
        /// The message.
        message: NewMessage,
        /// Who asks.
        by: UserId,
        /// What the stopped model stream had said.
        partial: Option<Completion>,
    },
    /// Stop the run (S6).
    CancelRun {
        /// Only if it is this one.
        run_id: Option<RunId>,
        /// Who asks.
        by: UserId,
        /// What the stopped model stream had said.
        partial: Option<Completion>,
    },
    /// Take a person's answer (G8, G11).
    AnswerApproval {
        /// The question.
        approval_id: ApprovalId,
        /// The answer.
        answer: ApprovalAnswer,
        /// What shall hold for later calls of the tools it approves (G9).
        for_session: Option<GrantRequest>,
        /// Who answers.
        by: UserId,
        /// What they may do.
        role: Role,
        /// Through what.
        surface: Surface,
    },
    /// Take back what a person granted for the session (G9).
    RevokeGrants {
        /// Only this one.
        grant_id: Option<GrantId>,
        /// Who asks.
        by: UserId,
    },
    /// Keep what a person thinks of an answer, or of a call (C5).
    GiveFeedback {
        /// What, of what.
        feedback: Feedback,
        /// The run it was said or made in.
        run_id: Option<RunId>,
        /// Who says so.
        by: UserId,
    },
    /// A model attempt ended.
    ModelFinished {
        /// Which.
        attempt_id: AttemptId,
        /// How.
        result: Result<Completion, ModelAttemptFailure>,
    },
    /// A tool attempt ended.
    ToolFinished {
        /// The call.
        call_id: CallId,
        /// Which attempt.
        attempt_id: AttemptId,
        /// How.
        outcome: ToolOutcome,
    },
    /// A tool tells how far it is.
    ToolProgressed {
        /// The call.
        call_id: CallId,
        /// Which attempt.
        attempt_id: AttemptId,
        /// How much is done.
        progress: f64,
        /// Of how much.
        total: Option<f64>,
        /// In words.
        message: Option<String>,
    },
    /// A running tool asks a person for something (T1).
    ElicitationRequested {
        /// The call.
        call_id: CallId,
        /// Which attempt.
        attempt_id: AttemptId,
        /// Which of its questions, from 1.
        elicitation_number: u32,
        /// What it asks.
        elicitation: Elicitation,
    },
    /// A running tool no longer wants to know what it asked.
    ElicitationWithdrawn {
        /// Which attempt.
        attempt_id: AttemptId,
        /// Which of its questions.
        elicitation_number: u32,
    },
    /// These are events of a child, in order and without gaps; some may be known (S8).
    ChildEventsReceived {
        /// The child.
        child: SessionId,
        /// Its events.
        records: Arc<[EventRecord]>,
    },
    /// There is no such child, and there will be none: its log is gone, or never began.
    ChildGone {
        /// The child.
        child: SessionId,
    },
    /// No other call with that key runs: this one may, if it still wants to (T8).
    ExclusiveLockGranted {
        /// The call.
        call_id: CallId,
        /// The key that was asked for.
        key: String,
    },
    /// Time has passed: do what is due.
    Wake,
    /// The state was rebuilt from the log; nothing that ran before runs any more (D2, D3).
    Rehydrated {
        /// What the session's user allows, where the session allows more: what users who never said
        /// otherwise allow may have become less (G4).
        user_settings: Option<Arc<Settings>>,
    },
}

/// A message, as it is submitted.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The client's id for it; the idempotency key (S5).
    pub message_id: MessageId,
    /// The text, not empty and within limits.
    pub text: Arc<str>,
    /// Digest of the request's body.
    pub digest: Digest,
    /// Whether its run begins with a plan (G14); what the session says, where this does not.
    pub preflight: Option<bool>,
    /// The workflow that its run is started with (C3).
    pub workflow: Option<Arc<StartedWorkflow>>,
    /// The span of a trace in which it was sent (A4).
    pub traceparent: Option<TraceContext>,
}

impl NewMessage {
    /// A message that asks for nothing in particular.
    pub fn new(message_id: MessageId, text: Arc<str>, digest: Digest) -> Self {
        Self { message_id, text, digest, preflight: None, workflow: None, traceparent: None }
    }
}

/// What to do with a message while a run is going (S4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    /// Wait for its turn.
    #[default]
    Queue,
    /// Refuse it.
    Reject,
    /// Tell it the model with the next step's input.
    Steer,
}

/// A person's answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum ApprovalAnswer {
    /// To a plan: the same for every step that is not decided yet. To a preflight: as it is.
    Overall {
        /// Whether they may run.
        approved: bool,
        /// For the model.
        reason: Option<String>,
    },
    /// The steps of a plan one by one.
    Steps(Vec<PlanStepAnswer>),
    /// To a question that has no steps.
    Resolve {
        /// What they say.
        resolution: Resolution,
        /// Why.
        reason: Option<String>,
    },
}

impl ApprovalAnswer {
    /// In the words of `question`: a preflight is approved or rejected as one; a tool that asks is
    /// answered or not.
    #[must_use]
    pub fn normalized_for(self, question: &ApprovalSubject) -> Self {
        match question {
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

    /// To approve is to say that what was asked is done, which is all there is to say of a page.
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

/// A person's answer to one step.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanStepAnswer {
    /// The call.
    pub call_id: CallId,
    /// Whether it may run.
    pub approved: bool,
    /// For the model.
    pub reason: Option<String>,
    /// The arguments to pass instead, where the person changed them (G8).
    pub arguments: Option<Value>,
}

/// A failed model attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAttemptFailure {
    /// What went wrong.
    pub failure: ModelFailure,
    /// Whether any of the message had reached clients.
    pub streamed: bool,
    /// Tokens, as far as the provider had told.
    pub usage: TokenUsage,
}
