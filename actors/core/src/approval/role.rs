//! What somebody may do (X2).

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use utoipa::ToSchema;

/// What somebody may do; each role may also do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Work with sessions of their own.
    User,
    /// Also see and answer everybody's approvals.
    Approver,
    /// Everything.
    Admin,
}

/// A word that is no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a role is `user`, `approver` or `admin`")]
pub struct InvalidRole;

impl Role {
    /// The word for it.
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
