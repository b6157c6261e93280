//! Encodes responses of the OpenAI Chat Completions wire format: completions, chunks and errors.

use serde_json::{Map, Value, json};

use crate::rehearsal::decoded_request::ProviderProtocol;
use crate::rehearsal::faults::{SseFrame, split_by_bytes, split_by_chars};
use crate::rehearsal::reply::{Reply, ReplyPart, TokenCounts};
use crate::rehearsal::script::{StopReason, StreamPacing};
use crate::rehearsal::wire::{ProviderError, ResponseMeta};

/// Encodes the complete completion as JSON (`stream: false`).
pub(in crate::rehearsal) fn encode_completion(
    reply: &Reply,
    meta: &ResponseMeta,
    pacing: &StreamPacing,
) -> Value {
    let mut message = Map::new();
    let join = |select: fn(&ReplyPart) -> Option<&str>| {
        let pieces: Vec<&str> = reply.parts.iter().filter_map(select).collect();
        if pieces.is_empty() { Value::Null } else { Value::String(pieces.concat()) }
    };
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), join(text));
    message.insert("refusal".to_owned(), join(refusal));
    let reasoning = join(thinking);
    if !reasoning.is_null() {
        message.insert("reasoning_content".to_owned(), reasoning);
    }
    let calls = calls_with_ids(reply, meta);
    if pacing.legacy_function_call {
        if let Some(call) = calls.first() {
            message.insert("function_call".to_owned(), call.function(call.arguments));
        }
    } else if !calls.is_empty() {
        let calls = calls.iter().map(|call| {
            let function = call.function(call.arguments);
            json!({"id": call.id, "type": "function", "function": function})
        });
        message.insert("tool_calls".to_owned(), calls.collect());
    }
    json!({
        "id": format!("chatcmpl-{}", meta.id),
        "object": "chat.completion",
        "created": meta.created,
        "model": meta.model,
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason(reply, pacing),
        }],
        "usage": usage(reply.usage),
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    })
}

const FINGERPRINT: &str = "fp_rehearsal";

/// Encodes the chunks of the stream, including the closing `[DONE]` (`stream: true`).
pub(in crate::rehearsal) fn encode_stream(
    reply: &Reply,
    meta: &ResponseMeta,
    pacing: &StreamPacing,
    include_usage: bool,
) -> Vec<SseFrame> {
    let mut out =
        OpenAiStreamEncoder { frames: Vec::new(), meta, include_usage, pacing, deltas: 0 };
    let calls = calls_with_ids(reply, meta);
    let has_text = reply.parts.iter().any(|part| matches!(part, ReplyPart::Text(_)));
    let content = if has_text { json!("") } else { Value::Null };
    out.delta(json!({"role": "assistant", "content": content, "refusal": null}), "");
    for part in &reply.parts {
        let (key, text) = match part {
            ReplyPart::Text(text) => ("content", text),
            ReplyPart::Thinking(text) => ("reasoning_content", text),
            ReplyPart::Refusal(text) => ("refusal", text),
            ReplyPart::ToolCall { .. } => continue,
        };
        for piece in split_by_chars(text, pacing.chunk_chars) {
            out.delta(json!({key: piece}), piece);
        }
    }
    if pacing.legacy_function_call {
        if let Some(call) = calls.first() {
            out.delta(json!({"function_call": call.function("")}), "");
            for piece in split_by_bytes(call.arguments, pacing.fragment) {
                out.delta(json!({"function_call": {"arguments": piece}}), piece);
            }
        }
    } else if pacing.interleave {
        out.interleaved(&calls);
    } else {
        for (index, call) in calls.iter().enumerate() {
            out.open(index, call);
            for piece in split_by_bytes(call.arguments, pacing.fragment) {
                out.fragment(index, piece);
            }
        }
    }
    out.choice(json!({}), json!(finish_reason(reply, pacing)), 0);
    if include_usage {
        let mut last = out.chunk(json!([]));
        last["usage"] = usage(reply.usage);
        out.frames.push(SseFrame::plain(format!("data: {last}\n\n")));
    }
    out.frames.push(SseFrame::plain("data: [DONE]\n\n".to_owned()));
    out.frames
}

/// Encodes an error as a chunk of the stream.
pub(in crate::rehearsal) fn encode_error_frame(problem: &ProviderError) -> SseFrame {
    SseFrame::plain(format!("data: {}\n\n", encode_error(problem)))
}

/// Encodes the body of an error response.
pub(in crate::rehearsal) fn encode_error(problem: &ProviderError) -> Value {
    let (kind, code) = match problem.status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        404 => ("invalid_request_error", Some("not_found")),
        429 => ("requests", Some("rate_limit_exceeded")),
        500.. => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    json!({"error": {
        "message": problem.message,
        "type": kind,
        "param": problem.param,
        "code": problem.code.or(code),
    }})
}

/// Maps a status to one of this wire format, which has no 529.
pub(in crate::rehearsal) fn status(status: u16) -> u16 {
    if status == 529 { 503 } else { status }
}

/// Returns the provider's default message of a status.
pub(in crate::rehearsal) fn default_message(status: u16) -> &'static str {
    match status {
        401 => "Incorrect API key provided.",
        403 => "You do not have access to this resource.",
        404 => "The model does not exist or you do not have access to it.",
        408 | 504 => "Request timed out.",
        413 => "The request is too large.",
        429 => "Rate limit reached for requests. Please try again later.",
        503 | 529 => "The server is overloaded or not ready yet.",
        500.. => "The server had an error while processing your request.",
        _ => "Invalid request.",
    }
}

/// A call with its id in this wire format.
struct CallWithId<'r> {
    id: String,
    name: &'r str,
    arguments: &'r str,
}

impl CallWithId<'_> {
    fn function(&self, arguments: &str) -> Value {
        json!({"name": self.name, "arguments": arguments})
    }
}

fn calls_with_ids<'r>(reply: &'r Reply, meta: &ResponseMeta) -> Vec<CallWithId<'r>> {
    let listed = reply.parts.iter().enumerate().filter_map(|(index, part)| match part {
        ReplyPart::ToolCall { id, name, arguments } => Some(CallWithId {
            id: meta.call_id(ProviderProtocol::OpenAi, id.as_deref(), index),
            name,
            arguments,
        }),
        ReplyPart::Text(_) | ReplyPart::Thinking(_) | ReplyPart::Refusal(_) => None,
    });
    listed.collect()
}

fn text(part: &ReplyPart) -> Option<&str> {
    if let ReplyPart::Text(text) = part { Some(text) } else { None }
}

fn refusal(part: &ReplyPart) -> Option<&str> {
    if let ReplyPart::Refusal(text) = part { Some(text) } else { None }
}

fn thinking(part: &ReplyPart) -> Option<&str> {
    if let ReplyPart::Thinking(text) = part { Some(text) } else { None }
}

fn finish_reason(reply: &Reply, pacing: &StreamPacing) -> &'static str {
    match reply.stop {
        StopReason::EndTurn | StopReason::Sequence => "stop",
        StopReason::ToolUse if pacing.legacy_function_call => "function_call",
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
        // A refusal with text ends normally; one without is reported as a content filter.
        StopReason::Refusal if reply.parts.iter().any(|part| refusal(part).is_some()) => "stop",
        StopReason::Refusal | StopReason::ContentFilter => "content_filter",
    }
}

fn usage(used: TokenCounts) -> Value {
    json!({
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    })
}

struct OpenAiStreamEncoder<'e> {
    frames: Vec<SseFrame>,
    meta: &'e ResponseMeta,
    pacing: &'e StreamPacing,
    include_usage: bool,
    deltas: usize,
}

impl OpenAiStreamEncoder<'_> {
    /// Opens all calls first, then sends their fragments alternately.
    fn interleaved(&mut self, calls: &[CallWithId]) {
        for (index, call) in calls.iter().enumerate() {
            self.open(index, call);
        }
        let mut queues: Vec<_> = calls
            .iter()
            .map(|call| split_by_bytes(call.arguments, self.pacing.fragment).into_iter())
            .collect();
        let mut has_more = true;
        while has_more {
            has_more = false;
            for (index, queue) in queues.iter_mut().enumerate() {
                if let Some(piece) = queue.next() {
                    self.fragment(index, piece);
                    has_more = true;
                }
            }
        }
    }

    fn open(&mut self, index: usize, call: &CallWithId) {
        let function = call.function("");
        let opened =
            json!({"index": index, "id": call.id, "type": "function", "function": function});
        self.delta(json!({"tool_calls": [opened]}), "");
    }

    fn fragment(&mut self, index: usize, piece: &str) {
        let fragment = json!({"index": index, "function": {"arguments": piece}});
        self.delta(json!({"tool_calls": [fragment]}), piece);
    }

    fn delta(&mut self, delta: Value, piece: &str) {
        self.choice(delta, Value::Null, piece.chars().count());
        self.deltas += 1;
        if self.pacing.ping_every.is_some_and(|every| self.deltas.is_multiple_of(every)) {
            self.frames.push(SseFrame::plain(": ping\n\n".to_owned()));
        }
    }

    fn choice(&mut self, delta: Value, finish: Value, content: usize) {
        let chunk = self.chunk(json!([
            {"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}
        ]));
        self.frames.push(SseFrame { text: format!("data: {chunk}\n\n"), content });
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", self.meta.id),
            "object": "chat.completion.chunk",
            "created": self.meta.created,
            "model": self.meta.model,
            "service_tier": "default",
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}
