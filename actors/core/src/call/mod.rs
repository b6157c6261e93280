//! The state machine of a tool call: its phases, the outcomes of its attempts, and the retry rules.
//!
//! Contains types and pure functions only. [`crate::session`] applies them.

pub mod outcome;
pub mod phase;
pub mod retry;

pub use outcome::{ToolOutcome, ToolOutput};
pub use phase::{
    AuthorizationSource, Call, CallFailureReason, CallOutcome, CallPhase, Reservation,
};
pub use retry::RetryPolicy;
