//! Roles of principals (X2).

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use utoipa::ToSchema;

/// The role of a principal. Each role includes the rights of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May work with its own sessions.
    User,
    /// May also see and answer the approvals of all users.
    Approver,
    /// May do everything.
    Admin,
}

/// The text is not the name of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid role; expected `user`, `approver` or `admin`")]
pub struct InvalidRole;

impl Role {
    /// Returns the wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = InvalidRole;
    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        let all = [Self::User, Self::Approver, Self::Admin];
        all.into_iter().find(|role| role.name() == text).ok_or(InvalidRole)
    }
}
