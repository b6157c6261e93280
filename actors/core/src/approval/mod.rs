//! Durable questions to people: what is asked, who may answer until when, and what they said.

mod deadline;
mod edit;
mod elicitation;
mod grant;
mod plan;
mod question;
mod role;
mod word;

pub use deadline::{ApprovalRules, Overdue, Timing};
pub use edit::{Edit, Replacement, refuse_replacements};
pub use elicitation::{Elicitation, ElicitationAnswer, ElicitationQuestion, Wanted};
pub use grant::{Grant, GrantWish};
pub use plan::{PlanStep, StepDecision};
pub use question::{
    Approval, ApprovalEnd, ApprovalKind, BudgetQuestion, ClosedApproval, Escalation, OpenApproval,
    Question, UnknownOutcome,
};
pub use role::{Role, UnknownRole};
pub use word::{Resolution, Surface, Word};
