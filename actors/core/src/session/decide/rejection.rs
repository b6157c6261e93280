//! The reasons why an input is rejected.

use crate::{
    approval::{PlanStepDecision, RecordedAnswer, Role},
    ids::{ApprovalId, CallId, GrantId, MessageId, RunId, SessionId},
    scrub::REDACTED,
};

/// The reason why an input is rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The session does not exist.
    #[error("session not found")]
    UnknownSession,
    /// The session already exists.
    #[error("the session already exists")]
    SessionExists,
    /// The session is read-only.
    #[error("the session is closed and read-only")]
    SessionClosed,
    /// A run is active, and the message must not be queued (S4).
    #[error("run {run_id} is active")]
    Busy {
        /// The active run.
        run_id: RunId,
    },
    /// The session is a child and accepts no messages except steering (S8).
    #[error(
        "the session is a child of session {parent}; it accepts only messages that steer its run"
    )]
    IsChildSession {
        /// The parent session.
        parent: SessionId,
    },
    /// A change would widen a child's settings, which may only be narrowed (S8).
    #[error("{problem}")]
    ChildSettingsWidened {
        /// The setting that would be wider.
        problem: String,
    },
    /// The queue is full.
    #[error("the queue is full; the limit is {limit}")]
    QueueFull {
        /// The maximum number of queued messages.
        limit: usize,
    },
    /// The message id was already used with a different body (S5).
    #[error("`message_id` {message_id} was already used with a different body")]
    MessageIdReused {
        /// The id.
        message_id: MessageId,
    },
    /// No message was submitted with that id (S10).
    #[error("message not found: {message_id}")]
    UnknownMessage {
        /// The id.
        message_id: MessageId,
    },
    /// The message was delivered to the model and can't be changed or withdrawn (S10).
    #[error("message {message_id} was already delivered to the model")]
    MessageStarted {
        /// The message's id.
        message_id: MessageId,
    },
    /// The message was withdrawn and can't be changed (S10).
    #[error("message {message_id} was withdrawn")]
    MessageWithdrawn {
        /// The message's id.
        message_id: MessageId,
    },
    /// The run of the queued message was cancelled, so that the message can't be changed or
    /// withdrawn (S10).
    #[error("message {message_id} was cancelled before its run started")]
    MessageCancelled {
        /// The message's id.
        message_id: MessageId,
    },
    /// The changed text contains a redaction placeholder that the queued message does not (E7).
    #[error(
        "`message`: contains `{REDACTED}`, but the queued message does not; enter the value itself"
    )]
    RedactedMessage,
    /// No run is active that could be cancelled.
    #[error("no run is active")]
    NoActiveRun,
    /// The named run is neither active nor queued.
    #[error("run {run_id} is neither active nor queued")]
    RunNotActive {
        /// The run.
        run_id: RunId,
    },
    /// The approval does not exist.
    #[error("approval not found: {approval_id}")]
    UnknownApproval {
        /// The approval's id.
        approval_id: ApprovalId,
    },
    /// The approval was already decided with a different answer or `for_session` (G11).
    #[error(
        "the approval was already decided; a repeated answer must equal the first one, including \
         `for_session`"
    )]
    AlreadyDecided {
        /// The first decisions on the steps of a plan.
        decisions: Vec<PlanStepDecision>,
        /// The first answer to an approval without steps.
        answer: Option<Box<RecordedAnswer>>,
    },
    /// The answer does not fit the approval's kind.
    #[error("unsupported answer; this approval accepts {allowed}")]
    UnsupportedAnswer {
        /// The answers that fit.
        allowed: &'static str,
    },
    /// The answer can't be applied; the approval stays open.
    #[error("invalid answer: {problem}")]
    InvalidAnswer {
        /// The reason.
        problem: String,
    },
    /// The deadline has passed, and only a higher role may answer (G10).
    #[error("the deadline has passed; answering now requires the role `{role}` or higher")]
    RoleRequired {
        /// The lowest role that may answer.
        role: Role,
    },
    /// The approval's last deadline has passed (G10).
    #[error("the approval has expired: its deadline has passed")]
    ApprovalExpired,
    /// The approval was cancelled: its run ended, or the requesting tool attempt no longer waits.
    #[error("the approval was cancelled: its run or tool attempt no longer waits for it")]
    ApprovalCancelled,
    /// The answer names a call that is not an undecided step of the plan.
    #[error("the plan has no undecided step for call {call_id}")]
    UnknownStep {
        /// The call's id.
        call_id: CallId,
    },
    /// The edited arguments can't be used (G8); the plan stays open.
    #[error("invalid edited arguments for call {call_id}: {problem}")]
    InvalidEdit {
        /// The call's id.
        call_id: CallId,
        /// The problem with the arguments.
        problem: String,
    },
    /// The request to grant later calls can't be met (G9).
    #[error("invalid `for_session`: {problem}")]
    InvalidGrant {
        /// The reason.
        problem: String,
    },
    /// The session has the maximum number of feedback entries.
    #[error("feedback limit reached: {limit} entries per session")]
    FeedbackLimitReached {
        /// The maximum number of entries.
        limit: u32,
    },
    /// The grant does not exist.
    #[error("grant not found: {grant_id}")]
    UnknownGrant {
        /// The grant's id.
        grant_id: GrantId,
    },
    /// The answer decides no step, or decides a step twice.
    #[error("the answer must decide at least one step, and no step twice")]
    AmbiguousAnswer,
}
