//! Decodes and validates requests of the Anthropic Messages wire format.

use serde_json::Value;

use super::response::signature;
use crate::rehearsal::decoded_request::{AssistantToolCall, ChatMessage, DecodedRequest};
use crate::rehearsal::wire::{ProviderError, collect_strings, join_text};

/// Decodes a request. Rejects requests that the provider rejects.
pub(in crate::rehearsal) fn decode(body: &Value) -> Result<DecodedRequest, ProviderError> {
    let field = |name: &str| body.get(name).filter(|value| !value.is_null());
    let model = field("model").and_then(Value::as_str).ok_or_else(|| missing_field("model"))?;
    let max_tokens =
        field("max_tokens").and_then(Value::as_u64).ok_or_else(|| missing_field("max_tokens"))?;
    let messages =
        field("messages").and_then(Value::as_array).ok_or_else(|| missing_field("messages"))?;
    if max_tokens == 0 {
        return Err(ProviderError::invalid(
            "max_tokens: Input should be greater than or equal to 1",
        ));
    }
    if messages.is_empty() {
        return Err(ProviderError::invalid("messages: at least one message is required"));
    }
    let tools = collect_strings(field("tools"), "/name");
    for (index, tool) in tools.iter().enumerate() {
        if !is_name(tool, 128) {
            return Err(ProviderError::invalid(format!(
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
    validate_thinking(body, max_tokens, forced_tool.is_some())?;
    Ok(DecodedRequest {
        model: model.to_owned(),
        system: join_text(field("system")),
        messages: decode_messages(messages)?,
        tools,
        forced_tool,
        max_tokens: Some(max_tokens),
        stream: field("stream").and_then(Value::as_bool).unwrap_or(false),
        include_usage: true,
    })
}

fn validate_thinking(body: &Value, max_tokens: u64, forced: bool) -> Result<(), ProviderError> {
    if body.pointer("/thinking/type").and_then(Value::as_str) != Some("enabled") {
        return Ok(());
    }
    if forced {
        return Err(ProviderError::invalid(
            "Thinking may not be enabled when tool_choice forces tool use.",
        ));
    }
    let budget = body.pointer("/thinking/budget_tokens").and_then(Value::as_u64).unwrap_or(0);
    if budget < 1024 {
        return Err(ProviderError::invalid(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ));
    }
    if budget >= max_tokens {
        return Err(ProviderError::invalid(
            "`max_tokens` must be greater than `thinking.budget_tokens`",
        ));
    }
    Ok(())
}

fn decode_messages(messages: &[Value]) -> Result<Vec<ChatMessage>, ProviderError> {
    let mut chat_messages = Vec::new();
    let (mut unanswered, mut call_index) = (Vec::<String>::new(), 0);
    for (index, message) in messages.iter().enumerate() {
        let path = format!("messages.{index}");
        match message.get("role").and_then(Value::as_str) {
            Some("user") => decode_user(message, &path, &mut unanswered, &mut chat_messages)?,
            Some("assistant") => {
                validate_tool_results(&unanswered, call_index)?;
                call_index = index;
                let (text, calls) = decode_assistant(message, &path)?;
                unanswered = calls.iter().map(|call: &AssistantToolCall| call.id.clone()).collect();
                chat_messages.push(ChatMessage::Assistant { text, calls });
            }
            Some(role) => {
                return Err(ProviderError::invalid(format!(
                    "messages: Unexpected role \"{role}\". Allowed roles are \"user\" or \
                     \"assistant\"."
                )));
            }
            None => return Err(missing_field(&format!("{path}.role"))),
        }
    }
    validate_tool_results(&unanswered, call_index)?;
    Ok(chat_messages)
}

fn validate_tool_results(unanswered: &[String], call_index: usize) -> Result<(), ProviderError> {
    if unanswered.is_empty() {
        return Ok(());
    }
    Err(ProviderError::invalid(format!(
        "messages.{call_index}: `tool_use` ids were found without `tool_result` blocks immediately after: \
         {}. Each `tool_use` block must have a corresponding `tool_result` block in the next \
         message.",
        unanswered.join(", ")
    )))
}

fn decode_user(
    message: &Value,
    path: &str,
    unanswered: &mut Vec<String>,
    chat_messages: &mut Vec<ChatMessage>,
) -> Result<(), ProviderError> {
    let content =
        message.get("content").ok_or_else(|| missing_field(&format!("{path}.content")))?;
    let Some(blocks) = content.as_array() else {
        if content.as_str().is_none_or(str::is_empty) {
            return Err(ProviderError::invalid(format!(
                "{path}: user messages must have non-empty content"
            )));
        }
        chat_messages.push(ChatMessage::User(join_text(Some(content))));
        return Ok(());
    };
    let mut texts: Vec<&str> = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        match block.get("type").and_then(Value::as_str) {
            Some("tool_result") => {
                let id = block.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
                let Some(position) = unanswered.iter().position(|known| known == id) else {
                    return Err(ProviderError::invalid(format!(
                        "{path}.content.{index}: unexpected `tool_use_id` found in `tool_result` \
                         blocks: {id}. Each `tool_result` block must have a corresponding \
                         `tool_use` block in the previous message."
                    )));
                };
                unanswered.remove(position);
                chat_messages.push(ChatMessage::ToolResult {
                    call_id: id.to_owned(),
                    text: join_text(block.get("content")),
                    error: block.get("is_error").and_then(Value::as_bool).unwrap_or(false),
                });
            }
            Some("text") => texts.push(text_of(block, path)?),
            Some(_) => {}
            None => return Err(missing_field(&format!("{path}.content.{index}.type"))),
        }
    }
    if !texts.is_empty() {
        chat_messages.push(ChatMessage::User(texts.join("\n")));
    }
    Ok(())
}

fn decode_assistant(
    message: &Value,
    path: &str,
) -> Result<(String, Vec<AssistantToolCall>), ProviderError> {
    let content =
        message.get("content").ok_or_else(|| missing_field(&format!("{path}.content")))?;
    let Some(blocks) = content.as_array() else {
        return Ok((join_text(Some(content)), Vec::new()));
    };
    let (mut text, mut calls) = (String::new(), Vec::<AssistantToolCall>::new());
    for (index, block) in blocks.iter().enumerate() {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => text.push_str(text_of(block, path)?),
            Some("tool_use") => {
                let part = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
                let input = block.get("input").cloned().unwrap_or_default();
                if !input.is_object() {
                    return Err(ProviderError::invalid(format!(
                        "{path}.content.{index}.tool_use.input: Input should be a valid dictionary"
                    )));
                }
                if !is_name(part("id"), usize::MAX) {
                    return Err(ProviderError::invalid(format!(
                        "{path}.content.{index}.tool_use.id: String should match pattern \
                         '^[a-zA-Z0-9_-]+$'"
                    )));
                }
                if calls.iter().any(|call| call.id == part("id")) {
                    return Err(ProviderError::invalid(format!(
                        "{path}: `tool_use` ids must be unique"
                    )));
                }
                calls.push(AssistantToolCall {
                    id: part("id").to_owned(),
                    tool: part("name").to_owned(),
                    arguments: input,
                });
            }
            Some("thinking") => {
                let part = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
                if part("signature") != signature(part("thinking")) {
                    return Err(ProviderError::invalid(format!(
                        "{path}.content.{index}: Invalid `signature` in `thinking` block"
                    )));
                }
            }
            Some(_) => {}
            None => return Err(missing_field(&format!("{path}.content.{index}.type"))),
        }
    }
    Ok((text, calls))
}

fn text_of<'b>(block: &'b Value, path: &str) -> Result<&'b str, ProviderError> {
    match block.get("text").and_then(Value::as_str) {
        Some("") => {
            Err(ProviderError::invalid(format!("{path}: text content blocks must be non-empty")))
        }
        Some(text) => Ok(text),
        None => Err(missing_field(&format!("{path}.content.text"))),
    }
}

fn missing_field(field: &str) -> ProviderError {
    ProviderError::invalid(format!("{field}: Field required"))
}

/// True for a name or id of this wire format: letters, digits, `_` and `-`, at most `max` bytes.
fn is_name(text: &str, max: usize) -> bool {
    !text.is_empty()
        && text.len() <= max
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(messages: Value) -> Value {
        json!({"model": "m", "max_tokens": 100, "messages": messages})
    }

    #[test]
    fn results_and_text_of_one_message_keep_their_order() {
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
        let call =
            AssistantToolCall { id: "1".into(), tool: "a".into(), arguments: json!({"x": 1}) };
        let expected = vec![
            ChatMessage::User("first".into()),
            ChatMessage::Assistant { text: "calling".into(), calls: vec![call] },
            ChatMessage::ToolResult { call_id: "1".into(), text: "bad".into(), error: true },
            ChatMessage::User("and hurry".into()),
        ];
        assert_eq!(prompt.messages, expected);
        assert_eq!((prompt.last_user(), prompt.step()), ("and hurry", 0));
    }

    #[test]
    fn invalid_requests_are_rejected() {
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
    fn thinking_is_validated_against_the_request() {
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
