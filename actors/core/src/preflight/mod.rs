//! Preflight (G14): a plan that the model submits before it begins, the checklist that is made of
//! it for a person, and what the person's word on it covers.
//!
//! Pure data and pure questions about it. Who asks whom and when is
//! [`crate::session::decide`]'s; whether a step would be denied is the judge's.

mod approved;
mod checklist;
mod plan;

pub use approved::{ApprovedPlan, ApprovedStep};
pub use checklist::{Checklist, ChecklistStep, EstimatedCost, StepEdit};
pub use plan::{SUBMIT_PLAN, SubmittedPlan, SubmittedStep, tool};

/// Where a run stands with its plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Preflight {
    /// There is none: nobody wanted one, or the model gave none.
    #[default]
    Off,
    /// The model is to submit one before the first step.
    Wanted,
    /// A person is asked about it.
    Asked,
    /// A person approved it.
    Approved(ApprovedPlan),
}

impl Preflight {
    /// The approved plan, if there is one.
    pub fn approved(&self) -> Option<&ApprovedPlan> {
        match self {
            Self::Approved(plan) => Some(plan),
            Self::Off | Self::Wanted | Self::Asked => None,
        }
    }

    /// Notes that a call ran on that step's approval.
    pub(crate) fn use_step(&mut self, position: u32) {
        if let Self::Approved(plan) = self {
            plan.used.insert(position);
        }
    }
}
