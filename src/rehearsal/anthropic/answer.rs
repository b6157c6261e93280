//! Answers of the Anthropic Messages wire: messages, events and errors.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::rehearsal::faults::{Frame, by_bytes, by_chars};
use crate::rehearsal::prompt::Wire;
use crate::rehearsal::reply::{Reply, Said, Usage};
use crate::rehearsal::script::{Pace, Stop};
use crate::rehearsal::wire::{Envelope, Problem};

/// The signature of a thinking block: checked when the block is sent back.
pub(super) fn signature(thinking: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"rehearsal thinking\0");
    hash.update(thinking);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The whole message as JSON (`stream: false`).
pub(in crate::rehearsal) fn message(reply: &Reply, envelope: &Envelope) -> Value {
    let content: Vec<Value> = reply
        .parts
        .iter()
        .enumerate()
        .map(|(index, part)| match part {
            Said::Text(text) | Said::Refusal(text) => json!({"type": "text", "text": text}),
            Said::Thinking(text) => {
                json!({"type": "thinking", "thinking": text, "signature": signature(text)})
            }
            Said::ToolCall { id, name, arguments } => json!({
                "type": "tool_use",
                "id": envelope.call_id(Wire::Anthropic, id.as_deref(), index),
                "name": name,
                // Cut-off JSON cannot be an object: it shows as what it is.
                "input": serde_json::from_str::<Value>(arguments)
                    .unwrap_or_else(|_| Value::String(arguments.clone())),
            }),
        })
        .collect();
    let mut message = head(envelope, reply.usage, reply.usage.output);
    message["content"] = Value::Array(content);
    message["stop_reason"] = json!(stop_reason(reply.stop));
    message
}

/// The stream's events (`stream: true`).
pub(in crate::rehearsal) fn frames(reply: &Reply, envelope: &Envelope, pace: &Pace) -> Vec<Frame> {
    let mut out = Encoder { frames: Vec::new(), ping_every: pace.ping_every, deltas: 0 };
    let start = head(envelope, reply.usage, 1);
    out.event("message_start", json!({"message": start}));
    for (index, part) in reply.parts.iter().enumerate() {
        let block = match part {
            Said::Text(_) | Said::Refusal(_) => json!({"type": "text", "text": ""}),
            Said::Thinking(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Said::ToolCall { id, name, .. } => json!({
                "type": "tool_use",
                "id": envelope.call_id(Wire::Anthropic, id.as_deref(), index),
                "name": name,
                "input": {},
            }),
        };
        out.event("content_block_start", json!({"index": index, "content_block": block}));
        if index == 0 {
            out.event("ping", json!({}));
        }
        match part {
            Said::Text(text) | Said::Refusal(text) => {
                for piece in by_chars(text, pace.chunk_chars) {
                    out.delta(index, json!({"type": "text_delta", "text": piece}), piece);
                }
            }
            Said::Thinking(text) => {
                for piece in by_chars(text, pace.chunk_chars) {
                    out.delta(index, json!({"type": "thinking_delta", "thinking": piece}), piece);
                }
                let signed = json!({"type": "signature_delta", "signature": signature(text)});
                out.delta(index, signed, "");
            }
            Said::ToolCall { arguments, .. } => {
                out.delta(index, json!({"type": "input_json_delta", "partial_json": ""}), "");
                for piece in by_bytes(arguments, pace.fragment) {
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

/// An error inside a stream.
pub(in crate::rehearsal) fn error_frame(problem: &Problem, request_id: &str) -> Frame {
    Frame::plain(format!("event: error\ndata: {}\n\n", error_body(problem, request_id)))
}

/// The body of an error answer.
pub(in crate::rehearsal) fn error_body(problem: &Problem, request_id: &str) -> Value {
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

/// The provider's usual words for a status.
pub(in crate::rehearsal) fn usual_message(status: u16) -> &'static str {
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

fn head(envelope: &Envelope, used: Usage, output: u64) -> Value {
    json!({
        "id": format!("msg_{}", envelope.id),
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(used, output),
    })
}

/// `input_tokens` leaves out what was cached, unlike the other wire.
fn usage(used: Usage, output: u64) -> Value {
    json!({
        "input_tokens": used.input - used.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached,
        "output_tokens": output,
    })
}

fn stop_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::EndTurn => "end_turn",
        Stop::ToolUse => "tool_use",
        Stop::MaxTokens => "max_tokens",
        Stop::Sequence => "stop_sequence",
        Stop::Refusal => "refusal",
    }
}

struct Encoder {
    frames: Vec<Frame>,
    ping_every: Option<usize>,
    deltas: usize,
}

impl Encoder {
    /// An event's data repeats its name as `type`.
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
        self.frames.push(Frame { text, content });
    }
}
