//! User feedback on messages and calls (C5). Feedback does not affect the session; it is recorded
//! for statistics and exports.

use crate::ids::{CallId, MessageId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Feedback on one message or call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum Feedback {
    /// On a message of the model.
    Message {
        /// The message.
        message_id: MessageId,
        /// The rating.
        rating: MessageRating,
        /// A comment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
    /// On a tool call.
    Call {
        /// The call.
        call_id: CallId,
        /// The rating.
        verdict: CallRating,
        /// A comment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
}

impl Feedback {
    /// Returns the comment.
    pub fn comment(&self) -> Option<&str> {
        let (Self::Message { comment, .. } | Self::Call { comment, .. }) = self;
        comment.as_deref()
    }
}

/// A rating from 1 (worst) to 5 (best).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "u8", into = "u8")]
#[schema(value_type = u8, minimum = 1, maximum = 5)]
pub struct MessageRating(u8);

/// The number is not a valid rating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rating must be an integer from 1 to 5")]
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

/// The rating of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = FeedbackVerdict)]
pub enum CallRating {
    /// The call was right.
    Good,
    /// The call was harmless but unnecessary.
    Unnecessary,
    /// The call should not have been made, or not with these arguments.
    Wrong,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c5_rating_must_be_one_to_five() {
        for (stars, is_valid) in [(0, false), (1, true), (5, true), (6, false)] {
            assert_eq!(
                serde_json::from_value::<MessageRating>(json!(stars)).is_ok(),
                is_valid,
                "{stars}"
            );
        }
        let stored = json!({"about": "message", "message_id": "m", "rating": 4});
        let feedback: Feedback = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!((feedback.comment(), serde_json::to_value(&feedback).unwrap()), (None, stored));
    }
}
