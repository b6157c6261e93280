//! The session: a durable conversation, as a state machine.
//!
//! ```text
//! decide(&SessionState, Input, &Env) -> Result<Decision, Rejection>
//! evolve(SessionState, &EventRecord) -> SessionState
//! ```
//!
//! Four vocabularies, kept apart: [`Input`] (asked for, or a fact that came in), [`SessionEvent`]
//! (what has happened), [`Effect`] (what must happen in the world), [`Rejection`] (what will not).
//! The shell commits a decision's events before it performs the effects, and the same `evolve`
//! serves life and replay.

pub mod decide;
mod effect;
mod event;
mod evolve;
mod history;
mod input;
mod projection;
mod state;

pub use decide::{Decision, Rejection, Reply, decide};
pub use effect::Effect;
pub use event::{CallAuthorization, EventRecord, RunFailureCode, SessionEvent, Steering};
pub use evolve::evolve;
pub use history::{ClosedApprovals, Submission, Submissions};
pub use input::{ApprovalAnswer, Input, ModelAttemptFailure, NewMessage, OnBusy, PlanStepAnswer};
pub use projection::{ApprovalRow, ApprovalState, Projection, SessionRow, SessionStatus};
pub use state::{
    ActiveState, CompactionPhase, ConversationSummary, Lifecycle, QueuedMessage, Run,
    SessionMetadata, SessionState, StepPhase,
};
