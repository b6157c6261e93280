//! Decodes and validates requests of the OpenAI Chat Completions wire format.

use serde_json::Value;

use crate::rehearsal::decoded_request::{AssistantToolCall, ChatMessage, DecodedRequest};
use crate::rehearsal::wire::{ProviderError, collect_strings, join_text};

/// Decodes a request. Rejects requests that the provider rejects.
pub(in crate::rehearsal) fn decode(body: &Value) -> Result<DecodedRequest, ProviderError> {
    let field = |name: &str| body.get(name).filter(|value| !value.is_null());
    let model = field("model")
        .and_then(Value::as_str)
        .ok_or_else(|| ProviderError::invalid("you must provide a model parameter"))?;
    let messages =
        field("messages").and_then(Value::as_array).ok_or_else(|| missing_parameter("messages"))?;
    if messages.is_empty() {
        let mut problem = ProviderError::invalid(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got \
             an empty array instead.",
        );
        problem.code = Some("empty_array");
        problem.param = Some("messages");
        return Err(problem);
    }
    let mut tools = collect_strings(field("tools"), "/function/name");
    tools.extend(collect_strings(field("functions"), "/name"));
    if let Some(index) = tools.iter().position(|tool| !is_name(tool)) {
        return Err(ProviderError::invalid(format!(
            "Invalid 'tools[{index}].function.name': string does not match pattern. Expected a \
             string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        )));
    }
    let forced_tool = match field("tool_choice") {
        Some(Value::String(choice)) if choice == "required" => Some("any".to_owned()),
        Some(choice) => choice.pointer("/function/name").and_then(Value::as_str).map(str::to_owned),
        None => None,
    };
    let (system, chat_messages) = decode_messages(messages)?;
    Ok(DecodedRequest {
        model: model.to_owned(),
        system,
        messages: chat_messages,
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

fn decode_messages(messages: &[Value]) -> Result<(String, Vec<ChatMessage>), ProviderError> {
    let (mut system, mut chat_messages) = (Vec::new(), Vec::new());
    let mut unanswered: Vec<String> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str);
        let text = join_text(message.get("content"));
        if !matches!(role, Some("tool" | "function")) {
            validate_tool_results(&unanswered)?;
        }
        match role {
            Some("system" | "developer") => system.push(text),
            Some("user") => chat_messages.push(ChatMessage::User(text)),
            Some("assistant") => {
                let calls = decode_calls(message, index)?;
                unanswered = calls
                    .iter()
                    .filter(|call| call.id != LEGACY_ID)
                    .map(|call| call.id.clone())
                    .collect();
                chat_messages.push(ChatMessage::Assistant { text, calls });
            }
            Some("tool") => {
                let id = message
                    .get("tool_call_id")
                    .and_then(Value::as_str)
                    .ok_or_else(|| missing_parameter(&format!("messages[{index}].tool_call_id")))?;
                let Some(position) = unanswered.iter().position(|known| known == id) else {
                    return Err(ProviderError::invalid(format!(
                        "Invalid parameter: messages with role 'tool' must be a response to a \
                         preceding message with 'tool_calls' (messages[{index}])."
                    )));
                };
                unanswered.remove(position);
                chat_messages.push(decode_tool_result(id, &text));
            }
            Some("function") => chat_messages.push(decode_tool_result(LEGACY_ID, &text)),
            Some(role) => {
                return Err(ProviderError::invalid(format!(
                    "Invalid value: '{role}'. Supported values are: 'system', 'assistant', \
                     'user', 'function', 'tool', and 'developer'."
                )));
            }
            None => return Err(missing_parameter(&format!("messages[{index}].role"))),
        }
    }
    validate_tool_results(&unanswered)?;
    Ok((system.join("\n"), chat_messages))
}

/// The id of a `function_call`, which has none of its own.
const LEGACY_ID: &str = "function_call";

fn decode_calls(message: &Value, index: usize) -> Result<Vec<AssistantToolCall>, ProviderError> {
    let call = |id: &str, function: &Value| {
        let part = |name: &str| function.get(name).and_then(Value::as_str).unwrap_or_default();
        AssistantToolCall {
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
            .ok_or_else(|| missing_parameter(&format!("messages[{index}].tool_calls.id")))?;
        calls.push(call(id, entry.get("function").unwrap_or(&Value::Null)));
    }
    Ok(calls)
}

fn validate_tool_results(unanswered: &[String]) -> Result<(), ProviderError> {
    if unanswered.is_empty() {
        return Ok(());
    }
    let mut problem = ProviderError::invalid(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to \
         each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        unanswered.join(", ")
    ));
    problem.param = Some("messages");
    Err(problem)
}

/// Decodes a tool result. This wire format has no error flag; clients usually write `Error: …`. The
/// prefix is removed, so that the text is the same as in the other wire format.
fn decode_tool_result(call_id: &str, text: &str) -> ChatMessage {
    let start: String = text.chars().take(16).filter(|c| !c.is_whitespace()).collect();
    let start = start.to_lowercase();
    let error = start.starts_with("error") || start.starts_with("{\"error\"");
    let text = if start.starts_with("error:") {
        text.split_once(':').map_or(text, |(_, rest)| rest.trim_start())
    } else {
        text
    };
    ChatMessage::ToolResult { call_id: call_id.to_owned(), text: text.to_owned(), error }
}

fn missing_parameter(field: &str) -> ProviderError {
    let mut problem = ProviderError::invalid(format!("Missing required parameter: '{field}'."));
    problem.code = Some("missing_required_parameter");
    problem
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn error_results_are_recognized_by_their_text() {
        let cases = [
            ("Error: no such item", "no such item", true),
            ("ERROR : x", "x", true),
            ("error", "error", true),
            ("{ \"error\": {\"code\": 1}}", "{ \"error\": {\"code\": 1}}", true),
            ("{\"errors\": 0}", "{\"errors\": 0}", false),
            ("fine", "fine", false),
        ];
        for (sent, text, error) in cases {
            let expected =
                ChatMessage::ToolResult { call_id: "c".into(), text: text.into(), error };
            assert_eq!(decode_tool_result("c", sent), expected, "{sent}");
        }
    }

    #[test]
    fn request_is_decoded() {
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
        let answered: Vec<_> = prompt
            .last_answered_calls()
            .into_iter()
            .map(|outcome| (outcome.arguments, outcome.result, outcome.error))
            .collect();
        let expected =
            [(json!("{"), json!("cut off"), true), (json!({"x": 1}), json!({"y": 2}), false)];
        assert_eq!(answered, expected);
    }

    #[test]
    fn invalid_requests_are_rejected() {
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
