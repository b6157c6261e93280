//! The names of things: one type per kind of entity, so that no two can be confused.
//!
//! Ids are UUIDs (version 7 layout, so that they sort by creation) made from [`crate::Env`], or
//! short texts chosen by people. The core never invents randomness for them.

use serde::{Deserialize, Deserializer, Serialize};
use std::{fmt, str::FromStr, sync::Arc};
use utoipa::ToSchema;
use uuid::Uuid;

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
        )]
        #[serde(transparent)]
        #[schema(value_type = String, format = "uuid")]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::try_parse(text).map(Self).map_err(|_| InvalidId::NotUuid)
            }
        }
    )+};
}

uuid_id! {
    /// A session.
    SessionId,
    /// A run: from one user message to the final answer.
    RunId,
    /// One tool call proposed by a step.
    CallId,
    /// One try of a step or call; fences off late results.
    AttemptId,
    /// A durable question to a person.
    ApprovalId,
    /// A person's word that holds for a session.
    GrantId,
}

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident = $noun:literal),+ $(,)?) => {$(
        $(#[$doc])*
        ///
        /// 1 to 128 characters, none of them a control character.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, ToSchema)]
        #[serde(transparent)]
        #[schema(value_type = String, min_length = 1, max_length = 128)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and wraps it.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                check_text(text).map(|()| Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text)
                    .map_err(|error| serde::de::Error::custom(format_args!("{} {error}", $noun)))
            }
        }
    )+};
}

text_id! {
    /// A message: chosen by the client for a user's message, made by us for the model's.
    MessageId = "a message's id",
    /// A user, as the authentication names them.
    UserId = "a user's id",
    /// An agent profile of the configuration.
    AgentName = "an agent's name",
    /// A tool as the model and the catalog name it.
    ToolName = "a tool's name",
}

impl MessageId {
    /// An id of ours, for a message of the model.
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid.to_string().into())
    }
}

/// Why a text is not an id. Who read it says what it stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// Not a UUID.
    #[error("must be a UUID")]
    NotUuid,
    /// Empty, too long, or with control characters.
    #[error("must have 1 to {max} characters and no control characters", max = crate::limits::TEXT_ID_CHARS_MAX)]
    BadText,
}

fn check_text(text: &str) -> Result<(), InvalidId> {
    let length = text.chars().count();
    let fits = (1..=crate::limits::TEXT_ID_CHARS_MAX).contains(&length);
    if fits && !text.chars().any(char::is_control) { Ok(()) } else { Err(InvalidId::BadText) }
}

/// The number of an event in its session: 1, 2, 3 … without gaps. 0 means "before the first".
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The number after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
