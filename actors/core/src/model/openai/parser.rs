//! Parses responses of Chat Completions: event streams and complete bodies.
//!
//! Tolerant: unknown fields are ignored; a null field is treated as absent. Only the first choice is
//! parsed, because requests ask for one choice.

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

/// Parses a streamed response.
pub type Parser = stream_parser::StreamParser<OpenAiDecoder>;

/// Parses a response that is one JSON body.
pub fn parse_message(body: &[u8]) -> Result<Completion, ModelFailure> {
    let text = stream_parser::decode_body(body);
    let Some(chunk) = stream_parser::parse_json::<Chunk<'_>>(&text)? else {
        return Err(stream_parser::unexpected_shape(&text));
    };
    let (mut decoder, mut out) = (OpenAiDecoder::default(), Vec::new());
    decoder.fail_on_error(&chunk, &text)?;
    let choice = chunk.choices.unwrap_or_default().into_iter().find(Choice::is_first);
    let Some((message, reason)) =
        choice.and_then(|choice| Some((choice.message?, choice.finish_reason)))
    else {
        return Err(stream_parser::unexpected_shape(&text));
    };
    decoder.apply_message(*message, &mut out)?;
    decoder.apply_finish_reason(reason.map(|reason| reason.0), &mut out)?;
    push_usage(chunk.usage, &mut out);
    stream_parser::fold_deltas(out)
}

/// State of a stream between events.
#[derive(Debug, Default)]
pub struct OpenAiDecoder {
    calls: CallTracker,
    is_thinking: bool,
    is_refused: bool,
    /// True after a `finish_reason`; only usage may follow.
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
    // Boxed: large, mostly empty, and moved several times.
    delta: Option<Box<PartialMessage>>,
    message: Option<Box<PartialMessage>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
}

/// A piece of a message, or a complete message.
#[derive(Deserialize)]
struct PartialMessage {
    /// A text; some servers send a list of parts.
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
            return Err(parse_failure(data));
        }
        let Some(chunk) = stream_parser::parse_json::<Chunk<'_>>(data)? else {
            return Err(stream_parser::unexpected_shape(data));
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
        // Some servers close the stream after `finish_reason` without `[DONE]`; it is complete.
        if self.is_stopped {
            out.push(Delta::Finished);
        }
    }
}

impl OpenAiDecoder {
    fn fail_on_error(&self, chunk: &Chunk<'_>, data: &str) -> Result<(), ModelFailure> {
        let is_error = chunk.object.as_ref().is_some_and(|object| object.0 == "error");
        if is_error || chunk.error.is_some() { Err(parse_failure(data)) } else { Ok(()) }
    }

    fn apply_message(
        &mut self,
        piece: PartialMessage,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        // If a server sends both fields, they have the same content.
        let reasoning =
            non_empty(piece.reasoning_content).or_else(|| content_text(piece.reasoning?));
        if let Some(text) = reasoning {
            if !std::mem::replace(&mut self.is_thinking, true) {
                out.push(Delta::ReasoningStarted { index: 0, redacted: None });
            }
            out.push(Delta::Reasoning { index: 0, text });
        }
        out.extend(piece.content.and_then(content_text).map(Delta::Text));
        if let Some(refusal) = non_empty(piece.refusal) {
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
                return Err(ModelFailure::temporary("the model provider aborted the response"));
            }
            "length" => StopReason::MaxTokens,
            "content_filter" => StopReason::ContentFilter,
            _ if self.is_refused => StopReason::Refusal,
            "tool_calls" | "function_call" => StopReason::ToolUse,
            // Some servers end every message with calls with `stop`; others only a forced call.
            _ if !self.calls.is_empty() => StopReason::ToolUse,
            _ => StopReason::EndTurn,
        };
        self.is_stopped = true;
        out.push(Delta::Stopped(reason));
        Ok(())
    }
}

fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Returns the text of `content`: a string, or the texts in a list of parts.
fn content_text(content: Value) -> Option<String> {
    let text = match content {
        Value::String(text) => text,
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            texts.collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    non_empty(Some(text))
}

fn push_usage(usage: Option<Value>, out: &mut Vec<Delta>) {
    let Some(usage) = usage else { return };
    let number = |object: &Value, name: &str| object.get(name).and_then(Value::as_u64);
    let details = usage.get("prompt_tokens_details");
    let cached = details
        .and_then(|details| number(details, "cached_tokens"))
        .or_else(|| number(&usage, "prompt_cache_hit_tokens"));
    out.push(Delta::Usage(TokenUsage {
        input_tokens: number(&usage, "prompt_tokens").unwrap_or(0),
        output_tokens: number(&usage, "completion_tokens").unwrap_or(0),
        cached_tokens: cached.unwrap_or(0),
        estimated: false,
    }));
}

fn parse_failure(data: &str) -> ModelFailure {
    failure::from_error_value(&serde_json::from_str(data).unwrap_or_default())
}
