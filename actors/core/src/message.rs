//! The conversation of a session, in a form that is independent of providers. [`crate::model`]
//! encodes it as requests in a provider's wire format.

use crate::{
    context::token_estimate,
    ids::{CallId, MessageId},
    persistent_list::PersistentList,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{borrow::Cow, sync::Arc};

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A user message.
    User {
        /// The client's id of the message.
        message_id: MessageId,
        /// The text, not empty.
        text: Arc<str>,
    },
    /// A message of the model; its calls follow the text.
    Assistant(Arc<AssistantMessage>),
    /// The results of the calls of the preceding assistant message: one per call, in the order of
    /// the calls.
    ToolResults(Vec<CallResult>),
}

/// A message of the model: complete, or the part that was received before it was stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// The text; may be empty if there are calls.
    pub text: String,
    /// Thinking blocks. Some providers require them to be sent back unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasoning: Vec<Reasoning>,
    /// The proposed tool calls, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ProposedCall>,
}

/// A thinking block. Stored and sent back as the provider requires; never evaluated or executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reasoning {
    /// Readable thinking, with the provider's signature if there is one.
    Thinking {
        /// The text.
        text: String,
        /// Proof for the provider that it produced the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Thinking that the provider returns only in encrypted form.
    Redacted {
        /// The provider's opaque data, encoded as text.
        payload: String,
    },
}

/// A tool call as the model proposes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProposedCall {
    /// Greenroom's id, unique for each call.
    pub call_id: CallId,
    /// The provider's id, sent back with the result (`toolu_…`, `call_…`). Some servers repeat it or
    /// leave it empty.
    pub provider_id: String,
    /// The tool name that the model used. A tool of that name may not exist.
    pub tool: String,
    /// The arguments that the model proposes.
    pub arguments: Arguments,
}

/// The arguments of a proposed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arguments {
    /// A JSON object. Logs of earlier versions may contain other values.
    Json(Value),
    /// Not a JSON object: truncated, malformed, or another value. Never completed by guessing.
    Malformed {
        /// The text as received, truncated to
        /// [`crate::limits::MALFORMED_ARGUMENTS_BYTES_MAX`].
        raw: String,
        /// Description of the problem, for the model.
        error: String,
    },
}

impl Arguments {
    /// Returns the value, or an empty object if it is malformed.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Malformed { .. } => Value::Object(Map::new()),
        }
    }

    /// Returns the object; `None` if the model wrote something else.
    pub fn as_object(&self) -> Option<&Map<String, Value>> {
        match self {
            Self::Json(value) => value.as_object(),
            Self::Malformed { .. } => None,
        }
    }

    /// Returns what the model wrote instead of a JSON object; `None` if it wrote an object.
    pub fn unparsed_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Json(Value::Object(_)) => None,
            Self::Json(value) => Some(Cow::Owned(value.to_string())),
            Self::Malformed { raw, .. } => Some(Cow::Borrowed(raw)),
        }
    }
}

/// The result of a call, as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResult {
    /// Id of the call.
    pub call_id: CallId,
    /// The provider's id of the call.
    pub provider_id: String,
    /// The tool name that the model used.
    pub tool: String,
    /// The text that the model reads.
    pub text: Arc<str>,
    /// True if the call failed.
    pub is_error: bool,
}

/// A conversation, oldest message first. Cloning it, adding to it and reading its end take constant
/// time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessageHistory {
    messages: PersistentList<Message>,
    tokens: u64,
}

impl MessageHistory {
    /// Adds `message` as the newest message.
    pub fn push(&mut self, message: Message) {
        self.tokens += token_estimate::estimate_message_tokens(&message);
        self.messages.push(message);
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// True if there are no messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the newest message.
    pub fn last(&self) -> Option<&Message> {
        self.messages.newest_first().next()
    }

    /// Returns all messages, oldest first.
    pub fn messages(&self) -> Vec<&Message> {
        self.messages.oldest_first()
    }

    /// Iterates over the messages without the first `skip_count`, newest first.
    pub fn newest_first_from(&self, skip_count: usize) -> impl Iterator<Item = &Message> {
        self.messages.newest_first().take(self.len().saturating_sub(skip_count))
    }

    /// Returns the messages without the first `skip_count`, oldest first.
    pub fn messages_from(&self, skip_count: usize) -> Vec<&Message> {
        let mut messages: Vec<_> = self.newest_first_from(skip_count).collect();
        messages.reverse();
        messages
    }

    /// Returns the estimated tokens of all messages.
    pub fn estimated_tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the estimated tokens of the first `count` messages.
    pub fn estimated_tokens_of_first(&self, count: usize) -> u64 {
        self.tokens
            - self
                .newest_first_from(count)
                .map(token_estimate::estimate_message_tokens)
                .sum::<u64>()
    }
}
