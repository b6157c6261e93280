//! What people think of an answer, or of a call (C5). It changes nothing of the session; it is there
//! to be counted and exported.

use crate::ids::{CallId, MessageId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What somebody thinks, and of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum Feedback {
    /// Of a message of the model.
    Message {
        /// Which.
        message_id: MessageId,
        /// How good it is.
        rating: MessageRating,
        /// In words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
    /// Of a tool call.
    Call {
        /// Which.
        call_id: CallId,
        /// Whether it was right to make it.
        verdict: CallRating,
        /// In words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
}

impl Feedback {
    /// What was said in words.
    pub fn comment(&self) -> Option<&str> {
        let (Self::Message { comment, .. } | Self::Call { comment, .. }) = self;
        comment.as_deref()
    }
}

/// From 1, useless, to 5, just right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "u8", into = "u8")]
#[schema(value_type = u8, minimum = 1, maximum = 5)]
pub struct MessageRating(u8);

/// It is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rating is a whole number from 1 to 5")]
pub struct InvalidRating;

impl TryFrom<u8> for MessageRating {
    type Error = InvalidRating;
    fn try_from(stars: u8) -> Result<Self, InvalidRating> {
        if (1..=5).contains(&stars) { Ok(Self(stars)) } else { Err(InvalidRating) }
    }
}

impl From<MessageRating> for u8 {
    fn from(MessageRating(stars): MessageRating) -> Self {
        stars
    }
}

/// What a person says of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = FeedbackVerdict)]
pub enum CallRating {
    /// It was right.
    Good,
    /// It did no harm and was not needed.
    Unnecessary,
    /// It should not have been made, or not so.
    Wrong,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c5_ratings_are_one_to_five() {
        for (stars, is_one) in [(0, false), (1, true), (5, true), (6, false)] {
            assert_eq!(
                serde_json::from_value::<MessageRating>(json!(stars)).is_ok(),
                is_one,
                "{stars}"
            );
        }
        let stored = json!({"about": "message", "message_id": "m", "rating": 4});
        let read: Feedback = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!((read.comment(), serde_json::to_value(&read).unwrap()), (None, stored));
    }
}
