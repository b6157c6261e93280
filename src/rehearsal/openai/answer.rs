//! Answers of the OpenAI Chat Completions wire: completions, chunks and errors.

use serde_json::{Map, Value, json};

use crate::rehearsal::faults::{Frame, by_bytes, by_chars};
use crate::rehearsal::prompt::Wire;
use crate::rehearsal::reply::{Reply, Said, Usage};
use crate::rehearsal::script::{Pace, Stop};
use crate::rehearsal::wire::{Envelope, Problem};

/// The whole completion as JSON (`stream: false`).
pub(in crate::rehearsal) fn completion(reply: &Reply, envelope: &Envelope, pace: &Pace) -> Value {
    let mut message = Map::new();
    let said = |pick: fn(&Said) -> Option<&str>| {
        let pieces: Vec<&str> = reply.parts.iter().filter_map(pick).collect();
        if pieces.is_empty() { Value::Null } else { Value::String(pieces.concat()) }
    };
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), said(text));
    message.insert("refusal".to_owned(), said(refusal));
    let thought = said(thinking);
    if !thought.is_null() {
        message.insert("reasoning_content".to_owned(), thought);
    }
    let calls = calls(reply, envelope);
    if pace.legacy_function_call {
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
        "id": format!("chatcmpl-{}", envelope.id),
        "object": "chat.completion",
        "created": envelope.created,
        "model": envelope.model,
        "choices": [{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": finish_reason(reply, pace),
        }],
        "usage": usage(reply.usage),
        "service_tier": "default",
        "system_fingerprint": FINGERPRINT,
    })
}

const FINGERPRINT: &str = "fp_rehearsal";

/// The stream's chunks, the closing `[DONE]` included (`stream: true`).
pub(in crate::rehearsal) fn frames(
    reply: &Reply,
    envelope: &Envelope,
    pace: &Pace,
    include_usage: bool,
) -> Vec<Frame> {
    let mut out = Encoder { frames: Vec::new(), envelope, include_usage, pace, deltas: 0 };
    let calls = calls(reply, envelope);
    let speaks = reply.parts.iter().any(|part| matches!(part, Said::Text(_)));
    let content = if speaks { json!("") } else { Value::Null };
    out.delta(json!({"role": "assistant", "content": content, "refusal": null}), "");
    for part in &reply.parts {
        let (key, text) = match part {
            Said::Text(text) => ("content", text),
            Said::Thinking(text) => ("reasoning_content", text),
            Said::Refusal(text) => ("refusal", text),
            Said::ToolCall { .. } => continue,
        };
        for piece in by_chars(text, pace.chunk_chars) {
            out.delta(json!({key: piece}), piece);
        }
    }
    if pace.legacy_function_call {
        if let Some(call) = calls.first() {
            out.delta(json!({"function_call": call.function("")}), "");
            for piece in by_bytes(call.arguments, pace.fragment) {
                out.delta(json!({"function_call": {"arguments": piece}}), piece);
            }
        }
    } else if pace.interleave {
        out.interleaved(&calls);
    } else {
        for (index, call) in calls.iter().enumerate() {
            out.open(index, call);
            for piece in by_bytes(call.arguments, pace.fragment) {
                out.fragment(index, piece);
            }
        }
    }
    out.choice(json!({}), json!(finish_reason(reply, pace)), 0);
    if include_usage {
        let mut last = out.chunk(json!([]));
        last["usage"] = usage(reply.usage);
        out.frames.push(Frame::plain(format!("data: {last}\n\n")));
    }
    out.frames.push(Frame::plain("data: [DONE]\n\n".to_owned()));
    out.frames
}

/// An error inside a stream.
pub(in crate::rehearsal) fn error_frame(problem: &Problem) -> Frame {
    Frame::plain(format!("data: {}\n\n", error_body(problem)))
}

/// The body of an error answer.
pub(in crate::rehearsal) fn error_body(problem: &Problem) -> Value {
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

/// The status this wire uses: it has no 529.
pub(in crate::rehearsal) fn status(status: u16) -> u16 {
    if status == 529 { 503 } else { status }
}

/// The provider's usual words for a status.
pub(in crate::rehearsal) fn usual_message(status: u16) -> &'static str {
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

/// A call with the id it gets on this wire.
struct Called<'r> {
    id: String,
    name: &'r str,
    arguments: &'r str,
}

impl Called<'_> {
    fn function(&self, arguments: &str) -> Value {
        json!({"name": self.name, "arguments": arguments})
    }
}

fn calls<'r>(reply: &'r Reply, envelope: &Envelope) -> Vec<Called<'r>> {
    let listed = reply.parts.iter().enumerate().filter_map(|(index, part)| match part {
        Said::ToolCall { id, name, arguments } => Some(Called {
            id: envelope.call_id(Wire::OpenAi, id.as_deref(), index),
            name,
            arguments,
        }),
        Said::Text(_) | Said::Thinking(_) | Said::Refusal(_) => None,
    });
    listed.collect()
}

fn text(part: &Said) -> Option<&str> {
    if let Said::Text(text) = part { Some(text) } else { None }
}

fn refusal(part: &Said) -> Option<&str> {
    if let Said::Refusal(text) = part { Some(text) } else { None }
}

fn thinking(part: &Said) -> Option<&str> {
    if let Said::Thinking(text) = part { Some(text) } else { None }
}

fn finish_reason(reply: &Reply, pace: &Pace) -> &'static str {
    match reply.stop {
        Stop::EndTurn | Stop::Sequence => "stop",
        Stop::ToolUse if pace.legacy_function_call => "function_call",
        Stop::ToolUse => "tool_calls",
        Stop::MaxTokens => "length",
        // A refusal with words ends as usual; one without is the content filter's.
        Stop::Refusal if reply.parts.iter().any(|part| refusal(part).is_some()) => "stop",
        Stop::Refusal => "content_filter",
    }
}

fn usage(used: Usage) -> Value {
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

struct Encoder<'e> {
    frames: Vec<Frame>,
    envelope: &'e Envelope,
    pace: &'e Pace,
    include_usage: bool,
    deltas: usize,
}

impl Encoder<'_> {
    /// All calls open first, then their fragments take turns.
    fn interleaved(&mut self, calls: &[Called]) {
        for (index, call) in calls.iter().enumerate() {
            self.open(index, call);
        }
        let mut queues: Vec<_> = calls
            .iter()
            .map(|call| by_bytes(call.arguments, self.pace.fragment).into_iter())
            .collect();
        let mut more = true;
        while more {
            more = false;
            for (index, queue) in queues.iter_mut().enumerate() {
                if let Some(piece) = queue.next() {
                    self.fragment(index, piece);
                    more = true;
                }
            }
        }
    }

    fn open(&mut self, index: usize, call: &Called) {
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
        if self.pace.ping_every.is_some_and(|every| self.deltas.is_multiple_of(every)) {
            self.frames.push(Frame::plain(": ping\n\n".to_owned()));
        }
    }

    fn choice(&mut self, delta: Value, finish: Value, content: usize) {
        let chunk = self.chunk(json!([
            {"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}
        ]));
        self.frames.push(Frame { text: format!("data: {chunk}\n\n"), content });
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", self.envelope.id),
            "object": "chat.completion.chunk",
            "created": self.envelope.created,
            "model": self.envelope.model,
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
