//! The Anthropic Messages wire: requests in, messages, events and errors out.
//!
//! Pure. Owns everything that is particular to this protocol, its strictness about requests
//! included; knows nothing of scripts, sockets or the other wire. Called by the server.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::faults::{Frame, by_bytes, by_chars};
use super::prompt::{Call, Prompt, Turn, Wire};
use super::reply::{Reply, Said, Usage};
use super::script::{Pace, Stop};
use super::wire::{Envelope, Problem, joined_text, strings};

/// Decodes a request, refusing what the provider refuses.
pub(super) fn decode(body: &Value) -> Result<Prompt, Problem> {
    let field = |name: &str| body.get(name).filter(|value| !value.is_null());
    let model = field("model").and_then(Value::as_str).ok_or_else(|| required("model"))?;
    let max_tokens =
        field("max_tokens").and_then(Value::as_u64).ok_or_else(|| required("max_tokens"))?;
    let messages =
        field("messages").and_then(Value::as_array).ok_or_else(|| required("messages"))?;
    if max_tokens == 0 {
        return Err(Problem::invalid("max_tokens: Input should be greater than or equal to 1"));
    }
    if messages.is_empty() {
        return Err(Problem::invalid("messages: at least one message is required"));
    }
    let tools = strings(field("tools"), "/name");
    for (index, tool) in tools.iter().enumerate() {
        if !is_name(tool, 128) {
            return Err(Problem::invalid(format!(
                "tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            )));
        }
    }
    let choice = |name: &str| body.pointer(&format!("/tool_choice/{name}")).and_then(Value::as_str);
    let forced_tool = match choice("type") {
        Some("tool") => choice("name").map(str::to_owned),
        Some("any") => Some("any".to_owned()),
        Some(_) | None => None,
    };
    check_thinking(body, max_tokens, forced_tool.is_some())?;
    Ok(Prompt {
        model: model.to_owned(),
        system: joined_text(field("system")),
        turns: decode_turns(messages)?,
        tools,
        forced_tool,
        max_tokens: Some(max_tokens),
        stream: field("stream").and_then(Value::as_bool).unwrap_or(false),
        include_usage: true,
    })
}

fn check_thinking(body: &Value, max_tokens: u64, forced: bool) -> Result<(), Problem> {
    if body.pointer("/thinking/type").and_then(Value::as_str) != Some("enabled") {
        return Ok(());
    }
    if forced {
        return Err(Problem::invalid(
            "Thinking may not be enabled when tool_choice forces tool use.",
        ));
    }
    let budget = body.pointer("/thinking/budget_tokens").and_then(Value::as_u64).unwrap_or(0);
    if budget < 1024 {
        return Err(Problem::invalid(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ));
    }
    if budget >= max_tokens {
        return Err(Problem::invalid("`max_tokens` must be greater than `thinking.budget_tokens`"));
    }
    Ok(())
}

fn decode_turns(messages: &[Value]) -> Result<Vec<Turn>, Problem> {
    let mut turns = Vec::new();
    let (mut waiting, mut asked_at) = (Vec::<String>::new(), 0);
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages.{index}");
        match message.get("role").and_then(Value::as_str) {
            Some("user") => decode_user(message, &at, &mut waiting, &mut turns)?,
            Some("assistant") => {
                refuse_unanswered(&waiting, asked_at)?;
                asked_at = index;
                let (text, calls) = decode_model(message, &at)?;
                waiting = calls.iter().map(|call: &Call| call.id.clone()).collect();
                turns.push(Turn::Model { text, calls });
            }
            Some(role) => {
                return Err(Problem::invalid(format!(
                    "messages: Unexpected role \"{role}\". Allowed roles are \"user\" or \
                     \"assistant\"."
                )));
            }
            None => return Err(required(&format!("{at}.role"))),
        }
    }
    refuse_unanswered(&waiting, asked_at)?;
    Ok(turns)
}

fn refuse_unanswered(waiting: &[String], asked_at: usize) -> Result<(), Problem> {
    if waiting.is_empty() {
        return Ok(());
    }
    Err(Problem::invalid(format!(
        "messages.{asked_at}: `tool_use` ids were found without `tool_result` blocks immediately after: \
         {}. Each `tool_use` block must have a corresponding `tool_result` block in the next \
         message.",
        waiting.join(", ")
    )))
}

fn decode_user(
    message: &Value,
    at: &str,
    waiting: &mut Vec<String>,
    turns: &mut Vec<Turn>,
) -> Result<(), Problem> {
    let content = message.get("content").ok_or_else(|| required(&format!("{at}.content")))?;
    let Some(blocks) = content.as_array() else {
        if content.as_str().is_none_or(str::is_empty) {
            return Err(Problem::invalid(format!(
                "{at}: user messages must have non-empty content"
            )));
        }
        turns.push(Turn::User(joined_text(Some(content))));
        return Ok(());
    };
    let mut spoken: Vec<&str> = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        match block.get("type").and_then(Value::as_str) {
            Some("tool_result") => {
                let id = block.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
                let Some(found) = waiting.iter().position(|known| known == id) else {
                    return Err(Problem::invalid(format!(
                        "{at}.content.{index}: unexpected `tool_use_id` found in `tool_result` \
                         blocks: {id}. Each `tool_result` block must have a corresponding \
                         `tool_use` block in the previous message."
                    )));
                };
                waiting.remove(found);
                turns.push(Turn::Result {
                    call_id: id.to_owned(),
                    text: joined_text(block.get("content")),
                    error: block.get("is_error").and_then(Value::as_bool).unwrap_or(false),
                });
            }
            Some("text") => spoken.push(text_of(block, at)?),
            Some(_) => {}
            None => return Err(required(&format!("{at}.content.{index}.type"))),
        }
    }
    if !spoken.is_empty() {
        turns.push(Turn::User(spoken.join("\n")));
    }
    Ok(())
}

fn decode_model(message: &Value, at: &str) -> Result<(String, Vec<Call>), Problem> {
    let content = message.get("content").ok_or_else(|| required(&format!("{at}.content")))?;
    let Some(blocks) = content.as_array() else {
        return Ok((joined_text(Some(content)), Vec::new()));
    };
    let (mut text, mut calls) = (String::new(), Vec::<Call>::new());
    for (index, block) in blocks.iter().enumerate() {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => text.push_str(text_of(block, at)?),
            Some("tool_use") => {
                let part = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
                let input = block.get("input").cloned().unwrap_or_default();
                if !input.is_object() {
                    return Err(Problem::invalid(format!(
                        "{at}.content.{index}.tool_use.input: Input should be a valid dictionary"
                    )));
                }
                if !is_name(part("id"), usize::MAX) {
                    return Err(Problem::invalid(format!(
                        "{at}.content.{index}.tool_use.id: String should match pattern \
                         '^[a-zA-Z0-9_-]+$'"
                    )));
                }
                if calls.iter().any(|call| call.id == part("id")) {
                    return Err(Problem::invalid(format!("{at}: `tool_use` ids must be unique")));
                }
                calls.push(Call {
                    id: part("id").to_owned(),
                    tool: part("name").to_owned(),
                    arguments: input,
                });
            }
            Some("thinking") => {
                let part = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
                if part("signature") != signature(part("thinking")) {
                    return Err(Problem::invalid(format!(
                        "{at}.content.{index}: Invalid `signature` in `thinking` block"
                    )));
                }
            }
            Some(_) => {}
            None => return Err(required(&format!("{at}.content.{index}.type"))),
        }
    }
    Ok((text, calls))
}

fn text_of<'b>(block: &'b Value, at: &str) -> Result<&'b str, Problem> {
    match block.get("text").and_then(Value::as_str) {
        Some("") => Err(Problem::invalid(format!("{at}: text content blocks must be non-empty"))),
        Some(text) => Ok(text),
        None => Err(required(&format!("{at}.content.text"))),
    }
}

fn required(field: &str) -> Problem {
    Problem::invalid(format!("{field}: Field required"))
}

/// Names and ids of this wire: letters, digits, `_` and `-`.
fn is_name(text: &str, max: usize) -> bool {
    !text.is_empty()
        && text.len() <= max
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The signature of a thinking block: checked when the block is sent back.
pub(super) fn signature(thinking: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"rehearsal thinking\0");
    hash.update(thinking);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The whole message as JSON (`stream: false`).
pub(super) fn message(reply: &Reply, envelope: &Envelope) -> Value {
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
pub(super) fn frames(reply: &Reply, envelope: &Envelope, pace: &Pace) -> Vec<Frame> {
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
pub(super) fn error_frame(problem: &Problem, request_id: &str) -> Frame {
    Frame::plain(format!("event: error\ndata: {}\n\n", error_body(problem, request_id)))
}

/// The body of an error answer.
pub(super) fn error_body(problem: &Problem, request_id: &str) -> Value {
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
pub(super) fn usual_message(status: u16) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(messages: Value) -> Value {
        json!({"model": "m", "max_tokens": 100, "messages": messages})
    }

    #[test]
    fn results_and_words_of_one_message_keep_their_order() {
        let prompt = decode(&request(json!([
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "calling"},
                {"type": "tool_use", "id": "1", "name": "a", "input": {"x": 1}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "is_error": true, "content": "bad"},
                {"type": "text", "text": "and hurry"},
            ]},
        ])))
        .unwrap();
        let call = Call { id: "1".into(), tool: "a".into(), arguments: json!({"x": 1}) };
        let expected = vec![
            Turn::User("first".into()),
            Turn::Model { text: "calling".into(), calls: vec![call] },
            Turn::Result { call_id: "1".into(), text: "bad".into(), error: true },
            Turn::User("and hurry".into()),
        ];
        assert_eq!(prompt.turns, expected);
        assert_eq!((prompt.last_user(), prompt.step()), ("and hurry", 0));
    }

    #[test]
    fn what_the_provider_refuses_is_refused() {
        let hi = json!({"role": "user", "content": "hi"});
        let uses = |ids: &[&str], input: Value| {
            let blocks: Vec<Value> = ids
                .iter()
                .map(|id| json!({"type": "tool_use", "id": id, "name": "a", "input": input}))
                .collect();
            json!({"role": "assistant", "content": blocks})
        };
        let stray = json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "9", "content": "x"}]});
        let empty = json!({"role": "user", "content": [{"type": "text", "text": ""}]});
        let cases = [
            (json!([]), "messages: at least one message"),
            (json!([{"role": "system", "content": "x"}]), "messages: Unexpected role \"system\""),
            (json!([hi, uses(&["1"], json!({}))]), "messages.1: `tool_use` ids were found"),
            (json!([hi, uses(&["1"], json!({})), hi]), "messages.1: `tool_use` ids were found"),
            (json!([hi, uses(&["1", "1"], json!({}))]), "messages.1: `tool_use` ids must be"),
            (json!([hi, uses(&["a.b"], json!({}))]), "messages.1.content.0.tool_use.id"),
            (json!([hi, uses(&["1"], json!("{"))]), "messages.1.content.0.tool_use.input"),
            (json!([hi, stray]), "messages.1.content.0: unexpected `tool_use_id`"),
            (json!([empty]), "messages.0: text content blocks must be non-empty"),
        ];
        for (messages, message) in cases {
            let problem = decode(&request(messages.clone())).unwrap_err();
            assert!(problem.message.starts_with(message), "{messages}: {}", problem.message);
        }
    }

    #[test]
    fn thinking_is_checked_against_the_rest_of_the_request() {
        let thinking = json!({"type": "enabled", "budget_tokens": 2000});
        let mut body = request(json!([{"role": "user", "content": "hi"}]));
        body["thinking"] = thinking;
        assert!(decode(&body).unwrap_err().message.starts_with("`max_tokens` must be greater"));
        body["max_tokens"] = json!(4096);
        assert!(decode(&body).is_ok());
        body["tool_choice"] = json!({"type": "tool", "name": "a"});
        assert!(decode(&body).unwrap_err().message.starts_with("Thinking may not be enabled"));
    }
}
