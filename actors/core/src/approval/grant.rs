//! "Approve for this session": a person's word that holds for later calls of a tool (G9).

use crate::{
    ids::{GrantId, UserId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A standing approval. Never for `critical` tools, and never stronger than a denial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Grant {
    /// Its id.
    pub grant_id: GrantId,
    /// The tool.
    pub tool: String,
    /// The connection the tool belonged to: another server's tool of that name is another tool.
    pub server: String,
    /// A CEL expression over `args`, `user` and `session` that must hold; none is any arguments.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Who gave it.
    pub by: UserId,
    /// When.
    pub at: Timestamp,
}

/// What a person wants to hold for the session, beside their answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantRequest {
    /// As [`Grant::condition`].
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}
