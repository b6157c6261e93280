//! The session state machine: a durable conversation of one principal with one agent.
//!
//! ```text
//! decide(&SessionState, Input, &Env) -> Result<Decision, Rejection>
//! evolve(SessionState, &EventRecord) -> SessionState
//! ```
//!
//! Four vocabularies are kept apart: [`Input`] (a command or a reported fact), [`SessionEvent`] (a
//! recorded fact), [`Effect`] (work to perform outside the state machine) and [`Rejection`] (the
//! reason why an input is refused). The session actor commits a decision's events before it
//! performs the effects. The same `evolve` serves live sessions and replay.

pub mod decide;
mod effect;
mod event;
mod event_decoder;
mod evolve;
mod history;
mod input;
mod projection;
mod state;

pub use decide::{Decision, Rejection, Reply, decide};
pub use effect::Effect;
pub use event::{
    CallAuthorization, EventRecord, RunFailureCode, RunStopReason, SessionEvent, Steering,
};
pub use evolve::evolve;
pub use history::{ClosedApprovals, QueueRemoval, QueuedMessageStatus, Submission, Submissions};
pub use input::{
    ApprovalAnswer, Input, ModelAttemptFailure, NewMessage, OnBusy, PlanStepAnswer,
    QueuedMessageChange,
};
pub use projection::{ApprovalRow, ApprovalState, Projection, SessionRow, SessionStatus};
pub use state::{
    ActiveState, CompactionPhase, ConversationSummary, Lifecycle, QueuedMessage, Run,
    SessionMetadata, SessionState, StepPhase,
};
