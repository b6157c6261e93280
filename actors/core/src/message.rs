//! The conversation as the session keeps it: what a provider needs to be told, in no provider's
//! words. [`crate::model`] turns it into wire requests.

use crate::{
    context::token_estimate,
    ids::{CallId, MessageId},
    persistent_list::PersistentList,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// What a person wrote.
    User {
        /// The client's id for it.
        message_id: MessageId,
        /// The text, not empty.
        text: Arc<str>,
    },
    /// What the model said; its calls follow the text.
    Assistant(Arc<AssistantMessage>),
    /// The results of the calls of the assistant message before it: one for each call, in its
    /// order.
    ToolResults(Vec<CallResult>),
}

/// A complete message of the model, or as much of it as there was when it was stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// The text; may be empty when there are calls.
    pub text: String,
    /// Thinking blocks, which some providers demand back unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasoning: Vec<Reasoning>,
    /// The tool calls it proposes, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ProposedCall>,
}

/// A thinking block. Kept and sent back as the provider requires; never judged, never executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Reasoning {
    /// Readable thinking, with the provider's signature over it where there is one.
    Thinking {
        /// The text.
        text: String,
        /// What proves to the provider that the text is its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Thinking that the provider shows only encrypted.
    Redacted {
        /// The provider's opaque bytes, as its text.
        payload: String,
    },
}

/// A tool call as the model proposes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProposedCall {
    /// Ours; fresh for each call.
    pub call_id: CallId,
    /// The provider's id, sent back with the result (`toolu_…`, `call_…`). May repeat or be empty
    /// with lax providers.
    pub provider_id: String,
    /// The name the model used. It may name nothing that exists.
    pub tool: String,
    /// What the model wants to pass.
    pub arguments: Arguments,
}

/// The arguments of a proposed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arguments {
    /// A JSON value (usually an object; the schema decides).
    Json(Value),
    /// Not JSON: cut off or broken. Never guessed at.
    Malformed {
        /// The text as it came, cut to 2 KiB.
        raw: String,
        /// What is wrong with it, for the model.
        error: String,
    },
}

impl Arguments {
    /// The value, or an empty object for malformed ones: what providers accept back.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Malformed { .. } => Value::Object(serde_json::Map::new()),
        }
    }
}

/// What the model reads as a call's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallResult {
    /// The call it answers.
    pub call_id: CallId,
    /// The provider's id of the call.
    pub provider_id: String,
    /// The tool's name as the model used it.
    pub tool: String,
    /// The text the model reads.
    pub text: Arc<str>,
    /// Whether it tells of a failure.
    pub is_error: bool,
}

/// A conversation, oldest first. Cloning it and adding to it cost the same however long it is, and
/// so does looking at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MessageHistory {
    messages: PersistentList<Message>,
    tokens: u64,
}

impl MessageHistory {
    /// Adds `message` as the newest.
    pub fn push(&mut self, message: Message) {
        self.tokens += token_estimate::estimate_message_tokens(&message);
        self.messages.push(message);
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The newest message.
    pub fn last(&self) -> Option<&Message> {
        self.messages.newest_first().next()
    }

    /// All messages, oldest first.
    pub fn messages(&self) -> Vec<&Message> {
        self.messages.oldest_first()
    }

    /// The messages but for the first `skipped`, newest first.
    pub fn newest_first_from(&self, skipped: usize) -> impl Iterator<Item = &Message> {
        self.messages.newest_first().take(self.len().saturating_sub(skipped))
    }

    /// The same, oldest first.
    pub fn messages_from(&self, skipped: usize) -> Vec<&Message> {
        let mut messages: Vec<_> = self.newest_first_from(skipped).collect();
        messages.reverse();
        messages
    }

    /// The tokens of all messages, as estimated.
    pub fn estimated_tokens(&self) -> u64 {
        self.tokens
    }

    /// The tokens of the first `count` messages.
    pub fn estimated_tokens_of_first(&self, count: usize) -> u64 {
        self.tokens
            - self
                .newest_first_from(count)
                .map(token_estimate::estimate_message_tokens)
                .sum::<u64>()
    }
}
