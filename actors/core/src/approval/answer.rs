//! The answer of a human to an approval without steps, and the surfaces through which answers
//! arrive.

use crate::{amount::Amount, ids::UserId, preflight::ChecklistStepEdit, time::Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An answer to an approval as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "decision", content = "value", rename_all = "snake_case")]
pub enum Resolution {
    /// Answers an unknown outcome: run the call once more.
    Retry,
    /// Answers an unknown outcome: the call took effect, and this is its result.
    Done(Value),
    /// Answers an unknown outcome: the call did not take effect.
    Failed,
    /// Answers a budget approval: the new limit of the budget.
    Raise(Amount),
    /// Answers a budget approval: the run ends.
    Stop,
    /// Answers a preflight: the plan may be carried out, with these changes (G14).
    Approve(Vec<ChecklistStepEdit>),
    /// Answers a preflight: the run ends. Answers an elicitation: the user declines.
    Reject,
    /// Answers an elicitation: the value that the running tool requested (T1).
    Answer(Value),
}

impl Resolution {
    /// Returns the wire name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Done(_) => "done",
            Self::Failed => "failed",
            Self::Raise(_) => "raise",
            Self::Stop => "stop",
            Self::Approve(_) => "approve",
            Self::Reject => "reject",
            Self::Answer(_) => "answer",
        }
    }
}

/// A [`Resolution`] with its author, surface and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordedAnswer {
    /// The answer.
    #[serde(flatten)]
    pub resolution: Resolution,
    /// The approver's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The user who answered.
    pub by: UserId,
    /// The surface through which the answer arrived.
    pub surface: Surface,
    /// The time of the answer.
    pub at: Timestamp,
}

/// The interface through which an answer arrived (G11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// The HTTP API.
    Rest,
    /// A WebSocket.
    Websocket,
    /// The command line.
    Cli,
    /// The dashboard.
    Dashboard,
}
