//! Grants: "Approve for this session", an approval that covers later calls of a tool (G9).

use crate::{
    ids::{GrantId, UserId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An approval that covers later calls of a tool in the session. Never covers a `critical` call,
/// and never overrides a denial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// The id.
    pub grant_id: GrantId,
    /// The tool.
    pub tool: String,
    /// The connection of the tool. A tool of the same name on another server is not covered.
    pub server: String,
    /// A CEL expression over `args`, `user` and `session` that must hold; `None` covers any
    /// arguments.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The user who gave the grant.
    pub by: UserId,
    /// The time of the grant.
    pub at: Timestamp,
}

/// A request for a grant, submitted with an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantRequest {
    /// The condition of the grant; see [`Grant::condition`].
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}
