//! Encodes responses of the Anthropic Messages wire format: messages, events and errors.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::rehearsal::decoded_request::ProviderProtocol;
use crate::rehearsal::faults::{SseFrame, split_by_bytes, split_by_chars};
use crate::rehearsal::reply::{Reply, ReplyPart, TokenCounts};
use crate::rehearsal::script::{StopReason, StreamPacing};
use crate::rehearsal::wire::{ProviderError, ResponseMeta};

/// Returns the signature of a thinking block, which is checked when a client sends the block back.
pub(super) fn signature(thinking: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"rehearsal thinking\0");
    hash.update(thinking);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes the complete message as JSON (`stream: false`).
pub(in crate::rehearsal) fn encode_message(reply: &Reply, meta: &ResponseMeta) -> Value {
    let content: Vec<Value> = reply
        .parts
        .iter()
        .enumerate()
        .map(|(index, part)| match part {
            ReplyPart::Text(text) | ReplyPart::Refusal(text) => {
                json!({"type": "text", "text": text})
            }
            ReplyPart::Thinking(text) => {
                json!({"type": "thinking", "thinking": text, "signature": signature(text)})
            }
            ReplyPart::ToolCall { id, name, arguments } => json!({
                "type": "tool_use",
                "id": meta.call_id(ProviderProtocol::Anthropic, id.as_deref(), index),
                "name": name,
                // Truncated JSON is encoded as a string, because it cannot be an object.
                "input": serde_json::from_str::<Value>(arguments)
                    .unwrap_or_else(|_| Value::String(arguments.clone())),
            }),
        })
        .collect();
    let mut message = head(meta, reply.usage, reply.usage.output);
    message["content"] = Value::Array(content);
    message["stop_reason"] = json!(stop_reason(reply.stop));
    message
}

/// Encodes the events of the stream (`stream: true`).
pub(in crate::rehearsal) fn encode_stream(
    reply: &Reply,
    meta: &ResponseMeta,
    pacing: &StreamPacing,
) -> Vec<SseFrame> {
    let mut out =
        AnthropicStreamEncoder { frames: Vec::new(), ping_every: pacing.ping_every, deltas: 0 };
    let start = head(meta, reply.usage, 1);
    out.event("message_start", json!({"message": start}));
    for (index, part) in reply.parts.iter().enumerate() {
        let block = match part {
            ReplyPart::Text(_) | ReplyPart::Refusal(_) => json!({"type": "text", "text": ""}),
            ReplyPart::Thinking(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
            ReplyPart::ToolCall { id, name, .. } => json!({
                "type": "tool_use",
                "id": meta.call_id(ProviderProtocol::Anthropic, id.as_deref(), index),
                "name": name,
                "input": {},
            }),
        };
        out.event("content_block_start", json!({"index": index, "content_block": block}));
        if index == 0 {
            out.event("ping", json!({}));
        }
        match part {
            ReplyPart::Text(text) | ReplyPart::Refusal(text) => {
                for piece in split_by_chars(text, pacing.chunk_chars) {
                    out.delta(index, json!({"type": "text_delta", "text": piece}), piece);
                }
            }
            ReplyPart::Thinking(text) => {
                for piece in split_by_chars(text, pacing.chunk_chars) {
                    out.delta(index, json!({"type": "thinking_delta", "thinking": piece}), piece);
                }
                let signed = json!({"type": "signature_delta", "signature": signature(text)});
                out.delta(index, signed, "");
            }
            ReplyPart::ToolCall { arguments, .. } => {
                out.delta(index, json!({"type": "input_json_delta", "partial_json": ""}), "");
                for piece in split_by_bytes(arguments, pacing.fragment) {
                    let delta = json!({"type": "input_json_delta", "partial_json": piece});
                    out.delta(index, delta, piece);
                }
            }
        }
        out.event("content_block_stop", json!({"index": index}));
    }
    let delta = json!({"stop_reason": stop_reason(reply.stop), "stop_sequence": null});
    let usage = usage(reply.usage, reply.usage.output);
    out.event("message_delta", json!({"delta": delta, "usage": usage}));
    out.event("message_stop", json!({}));
    out.frames
}

/// Encodes an error as an event of the stream.
pub(in crate::rehearsal) fn encode_error_frame(
    problem: &ProviderError,
    request_id: &str,
) -> SseFrame {
    SseFrame::plain(format!("event: error\ndata: {}\n\n", encode_error(problem, request_id)))
}

/// Encodes the body of an error response.
pub(in crate::rehearsal) fn encode_error(problem: &ProviderError, request_id: &str) -> Value {
    let kind = match problem.status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({
        "type": "error",
        "error": {"type": kind, "message": problem.message},
        "request_id": request_id,
    })
}

/// Returns the provider's default message of a status.
pub(in crate::rehearsal) fn default_message(status: u16) -> &'static str {
    match status {
        401 => "invalid x-api-key",
        403 => "Your API key does not have permission to use the specified resource.",
        404 => "Not found",
        408 | 504 => "Request timed out",
        413 => "Request exceeds the maximum size",
        429 => "This request would exceed your organization's rate limit. Please try again later.",
        529 => "Overloaded",
        500.. => "Internal server error",
        _ => "Invalid request",
    }
}

fn head(meta: &ResponseMeta, used: TokenCounts, output: u64) -> Value {
    json!({
        "id": format!("msg_{}", meta.id),
        "type": "message",
        "role": "assistant",
        "model": meta.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(used, output),
    })
}

/// Encodes token counts. Unlike in the other wire format, `input_tokens` excludes cached tokens.
fn usage(used: TokenCounts, output: u64) -> Value {
    json!({
        "input_tokens": used.input - used.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached,
        "output_tokens": output,
    })
}

fn stop_reason(stop: StopReason) -> &'static str {
    match stop {
        StopReason::EndTurn => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
        StopReason::Sequence => "stop_sequence",
        StopReason::Refusal | StopReason::ContentFilter => "refusal",
    }
}

struct AnthropicStreamEncoder {
    frames: Vec<SseFrame>,
    ping_every: Option<usize>,
    deltas: usize,
}

impl AnthropicStreamEncoder {
    /// Appends an event. Its data repeats the name as `type`.
    fn event(&mut self, name: &str, fields: Value) {
        self.push(name, fields, 0);
    }

    fn delta(&mut self, index: usize, delta: Value, piece: &str) {
        self.push(
            "content_block_delta",
            json!({"index": index, "delta": delta}),
            piece.chars().count(),
        );
        self.deltas += 1;
        if self.ping_every.is_some_and(|every| self.deltas.is_multiple_of(every)) {
            self.event("ping", json!({}));
        }
    }

    fn push(&mut self, name: &str, fields: Value, content: usize) {
        let mut data = Map::new();
        data.insert("type".to_owned(), json!(name));
        if let Value::Object(fields) = fields {
            data.extend(fields);
        }
        let text = format!("event: {name}\ndata: {}\n\n", Value::Object(data));
        self.frames.push(SseFrame { text, content });
    }
}
