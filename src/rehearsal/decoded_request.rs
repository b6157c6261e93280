//! A decoded request, independent of the wire format.
//!
//! Owns the neutral form of the chat history and the values that rules evaluate: the last user
//! message, the steps since, the tool results. Does not know the JSON of either provider;
//! `anthropic` and `openai` decode into it.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// One of the two provider APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderProtocol {
    /// `POST /v1/messages`.
    Anthropic,
    /// `POST /v1/chat/completions`.
    OpenAi,
}

/// A decoded request.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct DecodedRequest {
    /// The requested model.
    pub model: String,
    /// The system prompt, joined.
    pub system: String,
    /// The chat history, in order.
    pub messages: Vec<ChatMessage>,
    /// The names of the offered tools.
    pub tools: Vec<String>,
    /// The tool that `tool_choice` forces.
    pub forced_tool: Option<String>,
    /// Maximum number of output tokens.
    pub max_tokens: Option<u64>,
    /// True if the response is streamed as SSE.
    pub stream: bool,
    /// OpenAI's `stream_options.include_usage`.
    pub include_usage: bool,
}

/// One message of the chat history.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ChatMessage {
    /// A message of the user.
    User(String),
    /// A message of the model, with its tool calls.
    Assistant {
        /// The text.
        text: String,
        /// The tool calls.
        calls: Vec<AssistantToolCall>,
    },
    /// A tool's result.
    ToolResult {
        /// The id of the call.
        call_id: String,
        /// The text.
        text: String,
        /// True if the result is an error.
        error: bool,
    },
}

/// A tool call in a message of the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AssistantToolCall {
    /// The id in the wire format.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The arguments as the client sent them back.
    pub arguments: Value,
}

/// A tool result with its call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AnsweredCall {
    /// The name of the tool; empty if the call is not in the chat history.
    pub tool: String,
    /// The arguments of the call.
    pub arguments: Value,
    /// The result: parsed if its text is JSON, else the text.
    pub result: Value,
    /// The text of the result.
    pub text: String,
    /// True if the result is an error.
    pub error: bool,
    /// The number of model messages between the last user message and the call's message.
    pub step: usize,
}

impl DecodedRequest {
    /// Returns the last message of the user.
    pub(super) fn last_user(&self) -> &str {
        match self.run_start().and_then(|index| self.messages.get(index)) {
            Some(ChatMessage::User(text)) => text,
            Some(ChatMessage::Assistant { .. } | ChatMessage::ToolResult { .. }) | None => "",
        }
    }

    /// Returns the number of model messages since the last user message.
    pub(super) fn step(&self) -> usize {
        self.run_messages()
            .filter(|message| matches!(message, ChatMessage::Assistant { .. }))
            .count()
    }

    /// Returns the tool results since the last user message, in order.
    pub(super) fn answered_calls(&self) -> Vec<AnsweredCall> {
        let mut calls: Vec<(usize, &AssistantToolCall)> = Vec::new();
        let mut answered = Vec::new();
        let mut step = 0;
        for message in self.run_messages() {
            match message {
                ChatMessage::User(_) => {}
                ChatMessage::Assistant { calls: new, .. } => {
                    calls.extend(new.iter().map(|call| (step, call)));
                    step += 1;
                }
                ChatMessage::ToolResult { call_id, text, error } => {
                    let call = calls.iter().rev().find(|(_, call)| call.id == *call_id);
                    answered.push(AnsweredCall {
                        tool: call.map(|(_, c)| c.tool.clone()).unwrap_or_default(),
                        arguments: call.map(|(_, c)| c.arguments.clone()).unwrap_or_default(),
                        result: serde_json::from_str(text)
                            .unwrap_or_else(|_| Value::String(text.clone())),
                        text: text.clone(),
                        error: *error,
                        step: call.map_or(0, |(step, _)| *step),
                    });
                }
            }
        }
        answered
    }

    /// Returns the tool results of the last model message.
    pub(super) fn last_answered_calls(&self) -> Vec<AnsweredCall> {
        let Some(last) = self.step().checked_sub(1) else { return Vec::new() };
        self.answered_calls().into_iter().filter(|outcome| outcome.step == last).collect()
    }

    /// Returns the number of characters of the request's messages and system prompt.
    pub(super) fn length(&self) -> usize {
        let message_chars: usize = self
            .messages
            .iter()
            .map(|message| match message {
                ChatMessage::User(text) | ChatMessage::ToolResult { text, .. } => {
                    text.chars().count()
                }
                ChatMessage::Assistant { text, calls } => {
                    text.chars().count()
                        + calls
                            .iter()
                            .map(|c| c.tool.len() + c.arguments.to_string().len())
                            .sum::<usize>()
                }
            })
            .sum();
        message_chars + self.system.chars().count()
    }

    /// Returns a digest of the chat history. It is the same for a repeated request.
    pub(super) fn history_digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(format!("{:?}", (&self.system, &self.messages)));
        hash.finalize().into()
    }

    fn run_start(&self) -> Option<usize> {
        self.messages.iter().rposition(|message| matches!(message, ChatMessage::User(_)))
    }

    fn run_messages(&self) -> impl Iterator<Item = &ChatMessage> {
        self.messages.iter().skip(self.run_start().map_or(0, |index| index + 1))
    }
}
