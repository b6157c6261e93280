//! What a request says, whichever wire it came on.
//!
//! Owns the neutral form of a conversation and what rules look at: the last user message, the
//! steps since, the tool results. Knows no JSON of either provider: `anthropic` and `openai`
//! decode into it.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// One of the two provider protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderProtocol {
    /// `POST /v1/messages`.
    Anthropic,
    /// `POST /v1/chat/completions`.
    OpenAi,
}

/// A request, decoded.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct DecodedRequest {
    /// The model asked for.
    pub model: String,
    /// System prompt, joined.
    pub system: String,
    /// The conversation, in order.
    pub messages: Vec<ChatMessage>,
    /// Names of the tools offered.
    pub tools: Vec<String>,
    /// The tool that `tool_choice` forces.
    pub forced_tool: Option<String>,
    /// Most output tokens.
    pub max_tokens: Option<u64>,
    /// Answer as SSE.
    pub stream: bool,
    /// OpenAI's `stream_options.include_usage`.
    pub include_usage: bool,
}

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ChatMessage {
    /// The person spoke.
    User(String),
    /// The model spoke, perhaps calling tools.
    Assistant {
        /// Its text.
        text: String,
        /// Its calls.
        calls: Vec<AssistantToolCall>,
    },
    /// A tool's result.
    ToolResult {
        /// Which call it answers.
        call_id: String,
        /// Its text.
        text: String,
        /// Whether it is an error.
        error: bool,
    },
}

/// A tool call of an earlier model turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AssistantToolCall {
    /// Its id on the wire.
    pub id: String,
    /// Tool name.
    pub tool: String,
    /// Arguments as sent back to us.
    pub arguments: Value,
}

/// A tool result together with the call it answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AnsweredCall {
    /// Tool name; empty if the call is not in the conversation.
    pub tool: String,
    /// Arguments of the call.
    pub arguments: Value,
    /// The result: parsed if its text is JSON, else the text.
    pub result: Value,
    /// The result's text.
    pub text: String,
    /// Whether it is an error.
    pub error: bool,
    /// Model turns since the last user message when it was called, from 0.
    pub step: usize,
}

impl DecodedRequest {
    /// The last message of the person.
    pub(super) fn last_user(&self) -> &str {
        match self.run_start().and_then(|at| self.messages.get(at)) {
            Some(ChatMessage::User(text)) => text,
            Some(ChatMessage::Assistant { .. } | ChatMessage::ToolResult { .. }) | None => "",
        }
    }

    /// How many times the model has spoken since the last user message.
    pub(super) fn step(&self) -> usize {
        self.run_messages().filter(|turn| matches!(turn, ChatMessage::Assistant { .. })).count()
    }

    /// Tool results since the last user message, in order.
    pub(super) fn answered_calls(&self) -> Vec<AnsweredCall> {
        let mut calls: Vec<(usize, &AssistantToolCall)> = Vec::new();
        let mut outcomes = Vec::new();
        let mut step = 0;
        for turn in self.run_messages() {
            match turn {
                ChatMessage::User(_) => {}
                ChatMessage::Assistant { calls: new, .. } => {
                    calls.extend(new.iter().map(|call| (step, call)));
                    step += 1;
                }
                ChatMessage::ToolResult { call_id, text, error } => {
                    let call = calls.iter().rev().find(|(_, call)| call.id == *call_id);
                    outcomes.push(AnsweredCall {
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
        outcomes
    }

    /// The results of the last model turn only.
    pub(super) fn last_answered_calls(&self) -> Vec<AnsweredCall> {
        let Some(last) = self.step().checked_sub(1) else { return Vec::new() };
        self.answered_calls().into_iter().filter(|outcome| outcome.step == last).collect()
    }

    /// Characters of everything the model would read.
    pub(super) fn length(&self) -> usize {
        let turns: usize = self
            .messages
            .iter()
            .map(|turn| match turn {
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
        turns + self.system.chars().count()
    }

    /// A digest of the conversation: the same for a repeated request.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(format!("{:?}", (&self.system, &self.messages)));
        hash.finalize().into()
    }

    fn run_start(&self) -> Option<usize> {
        self.messages.iter().rposition(|turn| matches!(turn, ChatMessage::User(_)))
    }

    fn run_messages(&self) -> impl Iterator<Item = &ChatMessage> {
        self.messages.iter().skip(self.run_start().map_or(0, |at| at + 1))
    }
}
