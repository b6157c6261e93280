//! The phases of a tool call.
//!
//! ```text
//! proposed ─┬─ judged: deny ───────────────────────────────┐
//!           ├─ judged: ask ── AwaitingApproval ─┬─ refused ─┤
//!           └─ judged: allow ── Allowed ◄───────┘ approved  │
//!                                  │ attempt started        ▼
//!                                  ▼                     Finished
//!                  BackingOff ◄─ Running ──────────────────▲
//!                       └──────────▲ attempt started
//! ```
//!
//! A call also awaits an approval when it is allowed but a budget has no room for it (G6), and when
//! its outcome is unknown (D3); what is asked says which.

use crate::{
    approval::ArgumentEdit,
    ids::{ApprovalId, AttemptId, CallId, GrantId},
    json::Digest,
    message::{Arguments, CallResult},
    policy::{Cost, Risk},
    time::{Day, Timestamp},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// One call of the current step.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its id.
    pub call_id: CallId,
    /// The provider's id for it.
    pub provider_id: String,
    /// The tool, as the model named it.
    pub tool: String,
    /// The connection that the tool belongs to, if there was such a tool.
    pub server: Option<Arc<str>>,
    /// What the model wants to pass.
    pub arguments: Arc<Arguments>,
    /// Digest of what is to be passed: what an allowance is bound to.
    pub digest: Digest,
    /// The tool's risk when it was proposed, or when people were last asked about it.
    pub risk: Risk,
    /// Whether it may run beside others (S3).
    pub parallel: bool,
    /// Whether an attempt may safely be repeated (R1).
    pub repeatable: bool,
    /// What a person changed of it.
    pub edit: Option<Arc<ArgumentEdit>>,
    /// Attempts that were started.
    pub attempts: u32,
    /// Whether one of them may have taken effect, and nobody knows (D3).
    pub maybe_ran: bool,
    /// Whose word lets it run.
    pub authorized_by: AuthorizationSource,
    /// What is set aside for it (G6).
    pub reservation: Option<Reservation>,
    /// Where it stands.
    pub phase: CallPhase,
}

/// What is set aside for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// How much.
    pub cost: Cost,
    /// The day it counts for.
    pub day: Day,
}

/// Whose word lets a call run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizationSource {
    /// The policy's, as long as it says so.
    #[default]
    Policy,
    /// A person's, on this call or on a step of their plan.
    Person,
    /// A person's for the session, as long as it holds (G9).
    Grant(GrantId),
}

/// Where a call stands.
#[derive(Clone, Debug, PartialEq)]
pub enum CallPhase {
    /// Not judged yet; only within one decision.
    Proposed,
    /// A person is asked.
    AwaitingApproval {
        /// The question.
        approval_id: ApprovalId,
    },
    /// It may run, and waits for its turn.
    Allowed,
    /// An attempt is under way.
    Running {
        /// Its fence.
        attempt_id: AttemptId,
        /// 1 is the first.
        attempt: u32,
        /// Attempts before it that failed by themselves, not by a restart of ours.
        failures: u32,
    },
    /// The last attempt failed; the next starts then.
    BackingOff {
        /// When.
        until: Timestamp,
        /// How many attempts there were.
        attempts: u32,
        /// How many of them failed by themselves.
        failures: u32,
    },
    /// It has its result.
    Finished(CallOutcome),
}

/// What the model reads of a finished call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallOutcome {
    /// The text.
    pub text: Arc<str>,
    /// Whether it tells of a failure.
    pub is_error: bool,
}

/// Why a call failed, on the wire (E1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallFailureReason {
    /// The tool said so.
    Error,
    /// The arguments are not JSON, or violate the schema.
    InvalidArguments,
    /// There is no such tool.
    UnknownTool,
    /// The tool can't be reached.
    Unavailable,
    /// No answer in time, and repeating did not help.
    Timeout,
    /// It died, and repeating did not help.
    Crashed,
    /// A person refused it.
    Rejected,
    /// Nobody answered in time.
    Expired,
    /// The run was cancelled.
    Cancelled,
    /// It may or may not have taken effect.
    OutcomeUnknown,
}

impl CallFailureReason {
    /// Its name, as events have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::InvalidArguments => "invalid_arguments",
            Self::UnknownTool => "unknown_tool",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Crashed => "crashed",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }

    /// Whether it leaves open what the last attempt did.
    pub fn leaves_effect_unknown(self) -> bool {
        matches!(self, Self::Timeout | Self::Crashed | Self::OutcomeUnknown)
    }
}

impl Call {
    /// Whether it has its result.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, CallPhase::Finished(_))
    }

    /// Whether it has begun and has no result yet.
    pub fn is_in_progress(&self) -> bool {
        matches!(self.phase, CallPhase::Running { .. } | CallPhase::BackingOff { .. })
    }

    /// Whether it may have changed something, and nobody knows: a call that has no result yet.
    pub fn may_have_taken_effect(&self) -> bool {
        let is_open = self.maybe_ran || matches!(self.phase, CallPhase::Running { .. });
        is_open && self.risk > Risk::ReadOnly
    }

    /// What is to be passed: what the model wants, or what a person made of it.
    pub fn effective_arguments(&self) -> Arc<Arguments> {
        match &self.edit {
            Some(edit) => Arc::new(Arguments::Json(edit.arguments.clone())),
            None => self.arguments.clone(),
        }
    }

    /// The model must know when not what it asked for was done.
    fn text_for_model(&self, end: &CallOutcome) -> Arc<str> {
        let Some(edit) = &self.edit else { return end.text.clone() };
        let because = edit.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let arguments = crate::json::to_canonical_json(&edit.arguments);
        format!("[A person changed the arguments to {arguments}{because}]\n{}", end.text).into()
    }

    /// Its result, once finished.
    pub fn result(&self) -> Option<CallResult> {
        let CallPhase::Finished(end) = &self.phase else { return None };
        Some(CallResult {
            call_id: self.call_id,
            provider_id: self.provider_id.clone(),
            tool: self.tool.clone(),
            text: self.text_for_model(end),
            is_error: end.is_error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_a_failure_has_one_name() {
        use CallFailureReason as R;
        for reason in [
            R::Error,
            R::InvalidArguments,
            R::UnknownTool,
            R::Unavailable,
            R::Timeout,
            R::Crashed,
            R::Rejected,
            R::Expired,
            R::Cancelled,
            R::OutcomeUnknown,
        ] {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }
}
