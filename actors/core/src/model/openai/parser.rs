//! Reads what Chat Completions answers: event streams and whole bodies, tolerantly.
//!
//! Unknown fields are skipped; missing and null ones are as good as absent. Only the first choice
//! is read: we ask for no other.

use super::call_tracker::{CallTracker, WireCallPiece, WireFunctionPiece};
use crate::{
    model::{
        completion::Completion,
        delta::{Delta, StopReason},
        failure,
        failure::ModelFailure,
        sse::SseEvent,
        stream_parser::{self, EventDecoder},
    },
    usage::TokenUsage,
};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

/// Parses a streamed answer.
pub type Parser = stream_parser::StreamParser<OpenAiDecoder>;

/// Parses an answer that is one JSON body.
pub fn parse_message(body: &[u8]) -> Result<Completion, ModelFailure> {
    let text = stream_parser::body_text(body);
    let Some(chunk) = stream_parser::parse_json::<Chunk<'_>>(&text)? else {
        return Err(stream_parser::unexpected(&text));
    };
    let (mut reader, mut out) = (OpenAiDecoder::default(), Vec::new());
    reader.fail_on_error(&chunk, &text)?;
    let choice = chunk.choices.unwrap_or_default().into_iter().find(Choice::is_first);
    let Some((message, reason)) =
        choice.and_then(|choice| Some((choice.message?, choice.finish_reason)))
    else {
        return Err(stream_parser::unexpected(&text));
    };
    reader.apply_message(*message, &mut out)?;
    reader.apply_finish_reason(reason.map(|reason| reason.0), &mut out)?;
    push_usage(chunk.usage, &mut out);
    stream_parser::fold(out)
}

/// What is known of the stream so far.
#[derive(Debug, Default)]
pub struct OpenAiDecoder {
    calls: CallTracker,
    is_thinking: bool,
    is_refused: bool,
    /// A `finish_reason` came: only usage may follow.
    is_stopped: bool,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    object: Option<Text<'a>>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u32>,
    // Boxed: large and mostly empty, and a choice is moved a few times.
    delta: Option<Box<PartialMessage>>,
    message: Option<Box<PartialMessage>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
}

/// A piece of a message, or all of it.
#[derive(Deserialize)]
struct PartialMessage {
    /// Text, or with some servers a list of parts.
    content: Option<Value>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<Value>,
    tool_calls: Option<Vec<WireCallPiece>>,
    function_call: Option<WireFunctionPiece>,
}

impl Choice<'_> {
    fn is_first(&self) -> bool {
        self.index.unwrap_or(0) == 0
    }
}

impl EventDecoder for OpenAiDecoder {
    fn decode(&mut self, event: &SseEvent<'_>, out: &mut Vec<Delta>) -> Result<(), ModelFailure> {
        let data: &str = &event.data;
        if data.trim() == stream_parser::DONE {
            out.push(Delta::Finished);
            return Ok(());
        }
        if event.name == "error" {
            stream_parser::parse_json::<serde::de::IgnoredAny>(data)?;
            return Err(failure_in(data));
        }
        let Some(chunk) = stream_parser::parse_json::<Chunk<'_>>(data)? else {
            return Err(stream_parser::unexpected(data));
        };
        self.fail_on_error(&chunk, data)?;
        for choice in chunk.choices.into_iter().flatten().filter(Choice::is_first) {
            if let Some(piece) = choice.delta {
                self.apply_message(*piece, out)?;
            }
            self.apply_finish_reason(choice.finish_reason.map(|reason| reason.0), out)?;
        }
        push_usage(chunk.usage, out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Delta>) {
        // Some servers close after the `finish_reason`, without `[DONE]`: nothing is missing.
        if self.is_stopped {
            out.push(Delta::Finished);
        }
    }
}

impl OpenAiDecoder {
    fn fail_on_error(&self, chunk: &Chunk<'_>, data: &str) -> Result<(), ModelFailure> {
        let is_error = chunk.object.as_ref().is_some_and(|object| object.0 == "error");
        if is_error || chunk.error.is_some() { Err(failure_in(data)) } else { Ok(()) }
    }

    fn apply_message(
        &mut self,
        piece: PartialMessage,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        // Where both names are used, both say the same.
        let thought = filled(piece.reasoning_content).or_else(|| text_of(piece.reasoning?));
        if let Some(text) = thought {
            if !std::mem::replace(&mut self.is_thinking, true) {
                out.push(Delta::ReasoningStarted { index: 0, redacted: None });
            }
            out.push(Delta::Reasoning { index: 0, text });
        }
        out.extend(piece.content.and_then(text_of).map(Delta::Text));
        if let Some(refusal) = filled(piece.refusal) {
            self.is_refused = true;
            out.push(Delta::Text(refusal));
        }
        for call in piece.tool_calls.into_iter().flatten() {
            self.calls.add_piece(call, out)?;
        }
        match piece.function_call {
            Some(function) => self.calls.add_legacy_piece(function, out),
            None => Ok(()),
        }
    }

    fn apply_finish_reason(
        &mut self,
        reason: Option<Cow<'_, str>>,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        let Some(reason) = reason.filter(|reason| !reason.is_empty()) else { return Ok(()) };
        let reason = match &*reason {
            "error" | "insufficient_system_resource" => {
                return Err(ModelFailure::temporary("the model's provider broke off the answer"));
            }
            "length" => StopReason::MaxTokens,
            "content_filter" => StopReason::Refusal,
            _ if self.is_refused => StopReason::Refusal,
            "tool_calls" | "function_call" => StopReason::ToolUse,
            // A forced call ends with `stop`, with some servers every call does.
            _ if !self.calls.is_empty() => StopReason::ToolUse,
            _ => StopReason::EndTurn,
        };
        self.is_stopped = true;
        out.push(Delta::Stopped(reason));
        Ok(())
    }
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// The text of a content: text itself, or the texts among a list of parts.
fn text_of(content: Value) -> Option<String> {
    let text = match content {
        Value::String(text) => text,
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            texts.collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    filled(Some(text))
}

fn push_usage(usage: Option<Value>, out: &mut Vec<Delta>) {
    let Some(usage) = usage else { return };
    let number = |of: &Value, name: &str| of.get(name).and_then(Value::as_u64);
    let details = usage.get("prompt_tokens_details");
    let cached = details
        .and_then(|details| number(details, "cached_tokens"))
        .or_else(|| number(&usage, "prompt_cache_hit_tokens"));
    out.push(Delta::Usage(TokenUsage {
        input_tokens: number(&usage, "prompt_tokens").unwrap_or(0),
        output_tokens: number(&usage, "completion_tokens").unwrap_or(0),
        cached_tokens: cached.unwrap_or(0),
    }));
}

fn failure_in(data: &str) -> ModelFailure {
    failure::from_error_value(&serde_json::from_str(data).unwrap_or_default())
}
