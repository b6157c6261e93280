//! The phases of a tool call.
//!
//! ```text
//! proposed ─┬─ verdict: deny ────────────────────────────────┐
//!           ├─ verdict: ask ── AwaitingApproval ─┬─ rejected ─┤
//!           └─ verdict: allow ── Allowed ◄───────┘ approved   │
//!                                   │ attempt started         ▼
//!                                   ▼                      Finished
//!                   BackingOff ◄─ Running ───────────────────▲
//!                        └──────────▲ attempt started
//! ```
//!
//! A call also awaits an approval when it is allowed but its cost exceeds a budget (G6), and when
//! its outcome is unknown (D3). The kind of the approval distinguishes the cases.

use crate::{
    approval::ArgumentEdit,
    ids::{ApprovalId, AttemptId, CallId, GrantId, UserId},
    json::Digest,
    message::{Arguments, CallResult},
    policy::{Approver, Cost, Risk},
    time::{Day, Timestamp},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, sync::Arc};
use utoipa::ToSchema;

/// A call of the current step.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The id.
    pub call_id: CallId,
    /// The model provider's id of the call.
    pub provider_id: String,
    /// The tool, as the model named it.
    pub tool: String,
    /// The connection of the tool, if the tool exists.
    pub server: Option<Arc<str>>,
    /// The arguments that the model proposed.
    pub arguments: Arc<Arguments>,
    /// The digest of the effective arguments, to which an authorization is bound.
    pub digest: Digest,
    /// The tool's risk when the call was proposed, or when its approval was last requested.
    pub risk: Risk,
    /// True if the call may run in parallel with others (S3).
    pub parallel: bool,
    /// True if an attempt may safely be repeated (R1).
    pub repeatable: bool,
    /// The approver's edit of the arguments.
    pub edit: Option<Arc<ArgumentEdit>>,
    /// The users who edited the arguments, including edits that still need another approval (G12).
    pub editors: BTreeSet<UserId>,
    /// The human who approved this call; `None` if the authorization is not an approval of this
    /// call.
    pub approver: Option<Approver>,
    /// The number of attempts that were started.
    pub attempts: u32,
    /// True if an attempt may have taken effect and its outcome is unknown (D3).
    pub maybe_ran: bool,
    /// The source of the call's authorization.
    pub authorized_by: AuthorizationSource,
    /// The cost reserved for the call (G6).
    pub reservation: Option<Reservation>,
    /// The current phase.
    pub phase: CallPhase,
}

/// Cost reserved for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// The amount.
    pub cost: Cost,
    /// The day to which the amount is charged.
    pub day: Day,
}

/// The source of a call's authorization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizationSource {
    /// The policy, as long as its verdict is allow.
    #[default]
    Policy,
    /// A human's approval of this call or of a step of a preflight plan.
    Human,
    /// A session grant, as long as it is valid (G9).
    Grant(GrantId),
}

/// The phase of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallPhase {
    /// Not authorized yet. Occurs only within one decision.
    Proposed,
    /// Waits for an approval.
    AwaitingApproval {
        /// The approval.
        approval_id: ApprovalId,
    },
    /// Authorized; waits for its attempt to start.
    Allowed,
    /// An attempt is in progress.
    Running {
        /// The fencing token of the attempt.
        attempt_id: AttemptId,
        /// The number of the attempt, starting at 1.
        attempt: u32,
        /// The number of earlier attempts that failed for a reason other than a restart of
        /// Greenroom.
        failures: u32,
    },
    /// The last attempt failed; the next one starts at `until`.
    BackingOff {
        /// The start of the next attempt.
        until: Timestamp,
        /// The number of attempts so far.
        attempts: u32,
        /// The number of failed attempts, without those that a restart of Greenroom ended.
        failures: u32,
    },
    /// The call has its result.
    Finished(CallOutcome),
}

/// The result of a finished call, as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallOutcome {
    /// The text.
    pub text: Arc<str>,
    /// True if the text reports a failure.
    pub is_error: bool,
}

/// The reason why a call failed, on the wire (E1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallFailureReason {
    /// The tool returned an error.
    Error,
    /// The arguments are not JSON, or violate the schema.
    InvalidArguments,
    /// The tool does not exist.
    UnknownTool,
    /// The tool is not reachable.
    Unavailable,
    /// No result arrived in time, also not after retries.
    Timeout,
    /// The tool's process or connection ended, also after retries.
    Crashed,
    /// A human rejected the call.
    Rejected,
    /// The approval expired.
    Expired,
    /// The run was cancelled.
    Cancelled,
    /// The call may or may not have taken effect.
    OutcomeUnknown,
    /// The model or the provider's content filter refused the message that proposed the call.
    Refused,
    /// The message of the call has more calls than allowed.
    LimitExceeded,
}

impl CallFailureReason {
    /// Returns the wire name.
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
            Self::Refused => "refused",
            Self::LimitExceeded => "limit_exceeded",
        }
    }

    /// Returns true if the effect of the last attempt is unknown.
    pub fn leaves_effect_unknown(self) -> bool {
        matches!(self, Self::Timeout | Self::Crashed | Self::OutcomeUnknown)
    }
}

impl Call {
    /// Returns true if the call has its result.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, CallPhase::Finished(_))
    }

    /// Returns true if an attempt was started and the call has no result yet.
    pub fn is_in_progress(&self) -> bool {
        matches!(self.phase, CallPhase::Running { .. } | CallPhase::BackingOff { .. })
    }

    /// Returns true if the call may have changed something without a known outcome. Meaningful only
    /// for a call without a result.
    pub fn may_have_taken_effect(&self) -> bool {
        let may_have_run = self.maybe_ran || matches!(self.phase, CallPhase::Running { .. });
        may_have_run && self.risk > Risk::ReadOnly
    }

    /// Returns the arguments to pass: the approver's edit, or else the model's proposal.
    pub fn effective_arguments(&self) -> Arc<Arguments> {
        match &self.edit {
            Some(edit) => Arc::new(Arguments::Json(edit.arguments.clone())),
            None => self.arguments.clone(),
        }
    }

    /// Returns the result text, preceded by the edit, so that the model knows which arguments ran.
    fn text_for_model(&self, outcome: &CallOutcome) -> Arc<str> {
        let Some(edit) = &self.edit else { return outcome.text.clone() };
        let reason = edit.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let arguments = crate::json::to_canonical_json(&edit.arguments);
        format!("[A person changed the arguments to {arguments}{reason}]\n{}", outcome.text).into()
    }

    /// Returns the result of a finished call.
    pub fn result(&self) -> Option<CallResult> {
        let CallPhase::Finished(outcome) = &self.phase else { return None };
        Some(CallResult {
            call_id: self.call_id,
            provider_id: self.provider_id.clone(),
            tool: self.tool.clone(),
            text: self.text_for_model(outcome),
            is_error: outcome.is_error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e1_call_failure_reason_name_equals_wire_name() {
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
            R::Refused,
            R::LimitExceeded,
        ] {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
        }
    }
}
