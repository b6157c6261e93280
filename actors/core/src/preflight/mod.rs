//! Preflight (G14): the plan that a model submits before its first step, the checklist built from
//! it for an approver, and the calls that an approved plan covers.
//!
//! Contains types and pure functions only. [`crate::session::decide`] requests approvals, and
//! [`crate::policy`] evaluates the steps.

mod approved;
mod checklist;
mod submission;

pub use approved::{ApprovedPreflight, ApprovedPreflightStep};
pub use checklist::{Checklist, ChecklistStep, ChecklistStepEdit, CostEstimate};
pub use submission::{PreflightPlan, PreflightPlanStep, SUBMIT_PLAN_TOOL, submit_plan_tool};

/// The state of a run's plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PreflightPhase {
    /// No plan: none was requested, or the model submitted no valid plan.
    #[default]
    Off,
    /// The model must submit a plan before the first step.
    Required,
    /// The plan waits for approval.
    AwaitingApproval,
    /// The plan was approved.
    Approved(ApprovedPreflight),
}

impl PreflightPhase {
    /// Returns the approved plan, if there is one.
    pub fn approved(&self) -> Option<&ApprovedPreflight> {
        match self {
            Self::Approved(plan) => Some(plan),
            Self::Off | Self::Required | Self::AwaitingApproval => None,
        }
    }

    /// Marks the step at `position` as used by a call.
    pub(crate) fn mark_used(&mut self, position: u32) {
        if let Self::Approved(plan) = self {
            plan.used_positions.insert(position);
        }
    }
}
