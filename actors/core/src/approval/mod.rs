//! Approvals: durable requests for a human decision, with their subjects, deadlines and answers.
//!
//! Contains types and pure functions only. [`crate::session`] decides when an approval is requested
//! and what an answer leads to.

mod answer;
mod argument_edit;
mod deadline;
mod elicitation;
mod grant;
mod plan;
mod request;
mod role;

pub use answer::{RecordedAnswer, Resolution, Surface};
pub use argument_edit::{ArgumentEdit, RedactionPlaceholderError, validate_no_placeholders};
pub use deadline::{ApprovalDeadlines, DeadlineAction, DeadlineRule};
pub use elicitation::{Elicitation, ElicitationAnswer, ElicitationMode, ToolElicitation};
pub use grant::{Grant, GrantRequest};
pub use plan::{PlanStep, PlanStepDecision};
pub use request::{
    Approval, ApprovalKind, ApprovalOutcome, ApprovalSubject, BudgetRaiseRequest, ClosedApproval,
    Escalation, OpenApproval, UnknownOutcome,
};
pub use role::{InvalidRole, Role};
