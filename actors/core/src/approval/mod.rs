//! Durable questions to people: what is asked, who may answer until when, and what they said.

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
