//! A person's word on a question that has no steps, and where words come from.

use crate::{ids::UserId, preflight::ChecklistStepEdit, time::Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What a person says to a question as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "decision", content = "value", rename_all = "snake_case")]
pub enum Resolution {
    /// To an unknown outcome: run the call once more.
    Retry,
    /// To an unknown outcome: the call took effect, and this is its result.
    Done(Value),
    /// To an unknown outcome: the call did not take effect.
    Failed,
    /// To a budget: its limit shall be this.
    Raise(f64),
    /// To a budget: the run ends.
    Stop,
    /// To a preflight: the plan may be carried out, with these changes (G14).
    Approve(Vec<ChecklistStepEdit>),
    /// To a preflight: the run ends. To a running tool: nobody tells it.
    Reject,
    /// To a running tool: this is what it asked for (T1).
    Answer(Value),
}

impl Resolution {
    /// The word on the wire.
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

/// A [`Resolution`], with who said it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordedAnswer {
    /// What was said.
    #[serde(flatten)]
    pub resolution: Resolution,
    /// The person's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who.
    pub by: UserId,
    /// Through what.
    pub surface: Surface,
    /// When.
    pub at: Timestamp,
}

/// Where an answer came from (G11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// The HTTP resources.
    Rest,
    /// A WebSocket.
    Websocket,
    /// The command line.
    Cli,
    /// The dashboard.
    Dashboard,
}
