//! One small machine per tool call: its phases, what each attempt's end leads to, and when it is
//! tried again.

pub mod outcome;
pub mod phase;
pub mod retry;

pub use outcome::{ToolOutcome, ToolOutput};
pub use phase::{
    AuthorizationSource, Call, CallFailureReason, CallOutcome, CallPhase, Reservation,
};
pub use retry::RetryPolicy;
