//! Durable questions to people.

mod edit;
mod grant;
mod plan;

pub use edit::{Edit, restored};
pub use grant::{Grant, GrantWish};
pub use plan::{
    Approval, ApprovalEnd, ApprovalKind, ClosedApproval, OpenApproval, PlanStep, StepDecision,
    Surface,
};
