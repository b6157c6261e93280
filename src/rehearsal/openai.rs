//! The OpenAI Chat Completions wire: requests in, completions, chunks and errors out.
//!
//! Pure. Owns everything that is particular to this protocol, its strictness about requests
//! included; knows nothing of scripts, sockets or the other wire. Called by the server.

use serde_json::{Map, Value, json};

use super::faults::{Frame, by_bytes, by_chars};
use super::prompt::{Call, Prompt, Turn, Wire};
use super::reply::{Reply, Said, Usage};
use super::script::{Pace, Stop};
use super::wire::{Envelope, Problem, joined_text, strings};

/// Decodes a request, refusing what the provider refuses.
pub(super) fn decode(body: &Value) -> Result<Prompt, Problem> {
    let field = |name: &str| body.get(name).filter(|value| !value.is_null());
    let model = field("model")
        .and_then(Value::as_str)
        .ok_or_else(|| Problem::invalid("you must provide a model parameter"))?;
    let messages =
        field("messages").and_then(Value::as_array).ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        let mut problem = Problem::invalid(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got \
             an empty array instead.",
        );
        problem.code = Some("empty_array");
        problem.param = Some("messages");
        return Err(problem);
    }
    let mut tools = strings(field("tools"), "/function/name");
    tools.extend(strings(field("functions"), "/name"));
    if let Some(bad) = tools.iter().position(|tool| !is_name(tool)) {
        return Err(Problem::invalid(format!(
            "Invalid 'tools[{bad}].function.name': string does not match pattern. Expected a \
             string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )));
    }
    let forced_tool = match field("tool_choice") {
        Some(Value::String(choice)) if choice == "required" => Some("any".to_owned()),
        Some(choice) => choice.pointer("/function/name").and_then(Value::as_str).map(str::to_owned),
        None => None,
    };
    let (system, turns) = decode_turns(messages)?;
    Ok(Prompt {
        model: model.to_owned(),
        system,
        turns,
        tools,
        forced_tool,
        max_tokens: field("max_completion_tokens")
            .or_else(|| field("max_tokens"))
            .and_then(Value::as_u64),
        stream: field("stream").and_then(Value::as_bool).unwrap_or(false),
        include_usage: body
            .pointer("/stream_options/include_usage")
            .and_then(Value::as_bool)
            .unwrap_or(false),
    })
}

fn decode_turns(messages: &[Value]) -> Result<(String, Vec<Turn>), Problem> {
    let (mut system, mut turns) = (Vec::new(), Vec::new());
    let mut waiting: Vec<String> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str);
        let text = joined_text(message.get("content"));
        if !matches!(role, Some("tool" | "function")) {
            refuse_unanswered(&waiting)?;
        }
        match role {
            Some("system" | "developer") => system.push(text),
            Some("user") => turns.push(Turn::User(text)),
            Some("assistant") => {
                let calls = decode_calls(message, index)?;
                waiting = calls
                    .iter()
                    .filter(|call| call.id != LEGACY_ID)
                    .map(|call| call.id.clone())
                    .collect();
                turns.push(Turn::Model { text, calls });
            }
            Some("tool") => {
                let id = message
                    .get("tool_call_id")
                    .and_then(Value::as_str)
                    .ok_or_else(|| missing(&format!("messages[{index}].tool_call_id")))?;
                let Some(found) = waiting.iter().position(|known| known == id) else {
                    return Err(Problem::invalid(format!(
                        "Invalid parameter: messages with role 'tool' must be a response to a \
                         preceding message with 'tool_calls' (messages[{index}])."
                    )));
                };
                waiting.remove(found);
                turns.push(result(id, &text));
            }
            Some("function") => turns.push(result(LEGACY_ID, &text)),
            Some(role) => {
                return Err(Problem::invalid(format!(
                    "Invalid value: '{role}'. Supported values are: 'system', 'assistant', \
                     'user', 'function', 'tool', and 'developer'."
                )));
            }
            None => return Err(missing(&format!("messages[{index}].role"))),
        }
    }
    refuse_unanswered(&waiting)?;
    Ok((system.join("\n"), turns))
}

/// The id a `function_call` goes by: that form has none.
const LEGACY_ID: &str = "function_call";

fn decode_calls(message: &Value, index: usize) -> Result<Vec<Call>, Problem> {
    let call = |id: &str, function: &Value| {
        let part = |name: &str| function.get(name).and_then(Value::as_str).unwrap_or_default();
        Call {
            id: id.to_owned(),
            tool: part("name").to_owned(),
            arguments: serde_json::from_str(part("arguments"))
                .unwrap_or_else(|_| Value::String(part("arguments").to_owned())),
        }
    };
    let mut calls = Vec::new();
    if let Some(function) = message.get("function_call").filter(|value| !value.is_null()) {
        calls.push(call(LEGACY_ID, function));
    }
    let listed = message.get("tool_calls").and_then(Value::as_array);
    for entry in listed.map(Vec::as_slice).unwrap_or_default() {
        let id = entry
            .get("id")
            .and_then(Value::as_str)
            .ok_or_else(|| missing(&format!("messages[{index}].tool_calls.id")))?;
        calls.push(call(id, entry.get("function").unwrap_or(&Value::Null)));
    }
    Ok(calls)
}

fn refuse_unanswered(waiting: &[String]) -> Result<(), Problem> {
    if waiting.is_empty() {
        return Ok(());
    }
    let mut problem = Problem::invalid(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to \
         each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        waiting.join(", ")
    ));
    problem.param = Some("messages");
    Err(problem)
}

/// This wire has no error flag: clients say it in the text, most often as `Error: …`. What
/// remains is the text as it would be on the other wire.
fn result(call_id: &str, text: &str) -> Turn {
    let start: String = text.chars().take(16).filter(|c| !c.is_whitespace()).collect();
    let start = start.to_lowercase();
    let error = start.starts_with("error") || start.starts_with("{\"error\"");
    let text = if start.starts_with("error:") {
        text.split_once(':').map_or(text, |(_, rest)| rest.trim_start())
    } else {
        text
    };
    Turn::Result { call_id: call_id.to_owned(), text: text.to_owned(), error }
}

fn missing(field: &str) -> Problem {
    let mut problem = Problem::invalid(format!("Missing required parameter: '{field}'."));
    problem.code = Some("missing_required_parameter");
    problem
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The whole completion as JSON (`stream: false`).
pub(super) fn completion(reply: &Reply, envelope: &Envelope, pace: &Pace) -> Value {
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
pub(super) fn frames(
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
pub(super) fn error_frame(problem: &Problem) -> Frame {
    Frame::plain(format!("data: {}\n\n", error_body(problem)))
}

/// The body of an error answer.
pub(super) fn error_body(problem: &Problem) -> Value {
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
pub(super) fn status(status: u16) -> u16 {
    if status == 529 { 503 } else { status }
}

/// The provider's usual words for a status.
pub(super) fn usual_message(status: u16) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_by_their_text_alone() {
        let cases = [
            ("Error: no such item", "no such item", true),
            ("ERROR : x", "x", true),
            ("error", "error", true),
            ("{ \"error\": {\"code\": 1}}", "{ \"error\": {\"code\": 1}}", true),
            ("{\"errors\": 0}", "{\"errors\": 0}", false),
            ("fine", "fine", false),
        ];
        for (sent, text, error) in cases {
            let expected = Turn::Result { call_id: "c".into(), text: text.into(), error };
            assert_eq!(result("c", sent), expected, "{sent}");
        }
    }

    #[test]
    fn a_request_becomes_a_prompt() {
        let body = json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true},
            "max_completion_tokens": 9,
            "tools": [{"type": "function", "function": {"name": "a"}}],
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "1", "type": "function",
                     "function": {"name": "a", "arguments": "{\"x\":1}"}},
                    {"id": "2", "type": "function", "function": {"name": "a", "arguments": "{"}},
                ]},
                {"role": "tool", "tool_call_id": "2", "content": "Error: cut off"},
                {"role": "tool", "tool_call_id": "1", "content": "{\"y\":2}"},
            ],
        });
        let prompt = decode(&body).unwrap();
        assert_eq!(prompt.system, "be brief");
        assert_eq!((prompt.last_user(), prompt.step()), ("hi", 1));
        assert_eq!((prompt.stream, prompt.include_usage, prompt.max_tokens), (true, true, Some(9)));
        let seen: Vec<_> = prompt
            .last_outcomes()
            .into_iter()
            .map(|outcome| (outcome.arguments, outcome.result, outcome.error))
            .collect();
        let expected =
            [(json!("{"), json!("cut off"), true), (json!({"x": 1}), json!({"y": 2}), false)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_the_provider_refuses_is_refused() {
        let user = json!({"role": "user", "content": "hi"});
        let call = json!({"role": "assistant", "tool_calls": [{"id": "1", "type": "function",
            "function": {"name": "a", "arguments": "{}"}}]});
        let stray = json!({"role": "tool", "tool_call_id": "9", "content": "x"});
        let cases = [
            (json!({"messages": [user]}), "you must provide a model parameter"),
            (json!({"model": "m"}), "Missing required parameter: 'messages'."),
            (json!({"model": "m", "messages": []}), "Invalid 'messages': empty array."),
            (json!({"model": "m", "messages": [user, call, user]}), "An assistant message with"),
            (json!({"model": "m", "messages": [user, call]}), "An assistant message with"),
            (json!({"model": "m", "messages": [user, stray]}), "Invalid parameter: messages with"),
            (json!({"model": "m", "messages": [{"role": "robot"}]}), "Invalid value: 'robot'."),
            (
                json!({"model": "m", "messages": [user],
                    "tools": [{"function": {"name": "no.dots"}}]}),
                "Invalid 'tools[0].function.name'",
            ),
        ];
        for (body, message) in cases {
            let problem = decode(&body).unwrap_err();
            assert!(problem.message.starts_with(message), "{body}: {}", problem.message);
        }
    }
}
