//! Preflight (G14): a plan that the model submits before it begins, the checklist that is made of
//! it for a person, and what the person's word on it covers.
//!
//! Pure data and pure questions about it. Who asks whom and when is
//! [`crate::session::decide`]'s; whether a step would be denied is the judge's.

mod approved;
mod checklist;
mod submission;

pub use approved::{ApprovedPreflight, ApprovedPreflightStep};
pub use checklist::{Checklist, ChecklistStep, ChecklistStepEdit, CostEstimate};
pub use submission::{PreflightPlan, PreflightPlanStep, SUBMIT_PLAN_TOOL, submit_plan_tool};

/// Where a run stands with its plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PreflightPhase {
    /// There is none: nobody wanted one, or the model gave none.
    #[default]
    Off,
    /// The model is to submit one before the first step.
    Required,
    /// A person is asked about it.
    AwaitingApproval,
    /// A person approved it.
    Approved(ApprovedPreflight),
}

impl PreflightPhase {
    /// The approved plan, if there is one.
    pub fn approved(&self) -> Option<&ApprovedPreflight> {
        match self {
            Self::Approved(plan) => Some(plan),
            Self::Off | Self::Required | Self::AwaitingApproval => None,
        }
    }

    /// Notes that a call ran on that step's approval.
    pub(crate) fn mark_used(&mut self, position: u32) {
        if let Self::Approved(plan) = self {
            plan.used_positions.insert(position);
        }
    }
}
