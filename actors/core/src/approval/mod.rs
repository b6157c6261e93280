//! Durable questions to people.

mod plan;

pub use plan::{
    Approval, ApprovalEnd, ApprovalKind, ClosedApproval, OpenApproval, PlanStep, StepDecision,
    Surface,
};
