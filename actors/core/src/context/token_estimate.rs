//! Estimates the number of tokens of a text.
//!
//! Providers count tokens differently. The estimate keeps requests within the context window and
//! replaces the provider's count for a message that was stopped before the provider reported it.
//!
//! One token is counted as three bytes of UTF-8. This is about right for JSON, code and scripts
//! without spaces, and a third too high for English prose, so the estimate errs on the safe side.

use crate::message::{Arguments, AssistantMessage, Message, Reasoning};
use serde_json::Value;

/// Bytes counted as one token.
pub const BYTES_PER_TOKEN: u64 = 3;
/// Tokens added for each message and each call in addition to its text.
const MESSAGE_OVERHEAD_TOKENS: u64 = 8;

/// Estimates the tokens of a text of `bytes` bytes.
pub fn estimate_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Estimates the tokens of a message.
pub fn estimate_message_tokens(message: &Message) -> u64 {
    let (bytes, frames) = match message {
        Message::User { text, .. } => (text.len() as u64, 1),
        Message::Assistant(message) => {
            (assistant_message_bytes(message), 1 + message.calls.len() as u64)
        }
        Message::ToolResults(results) => {
            let texts = results.iter().map(|result| result.text.len() as u64);
            (texts.sum(), results.len() as u64)
        }
    };
    estimate_tokens(bytes) + frames * MESSAGE_OVERHEAD_TOKENS
}

fn assistant_message_bytes(message: &AssistantMessage) -> u64 {
    let reasoning = message.reasoning.iter().map(|block| match block {
        Reasoning::Thinking { text, signature } => {
            text.len() + signature.as_ref().map_or(0, String::len)
        }
        Reasoning::Redacted { payload } => payload.len(),
    });
    let calls = message.calls.iter().map(|call| match &call.arguments {
        Arguments::Json(value) => call.tool.len() as u64 + estimate_json_bytes(value),
        Arguments::Malformed { raw, .. } => (call.tool.len() + raw.len()) as u64 + 2,
    });
    (message.text.len() + reasoning.sum::<usize>()) as u64 + calls.sum::<u64>()
}

/// Estimates the bytes of `value` as JSON, ignoring escapes.
pub fn estimate_json_bytes(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(number) => number.as_str().len().max(8) as u64,
        Value::String(text) => text.len() as u64 + 2,
        Value::Array(items) => {
            2 + items.iter().map(|item| estimate_json_bytes(item) + 1).sum::<u64>()
        }
        Value::Object(members) => {
            let member =
                |(key, value): (&String, &Value)| key.len() as u64 + 4 + estimate_json_bytes(value);
            2 + members.iter().map(member).sum::<u64>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{CallId, MessageId},
        message::{CallResult, ProposedCall},
    };
    use serde_json::json;
    use std::sync::Arc;
    use uuid::Uuid;

    #[test]
    fn c1_estimate_counts_every_sent_part() {
        assert_eq!(
            [estimate_tokens(0), estimate_tokens(1), estimate_tokens(3), estimate_tokens(4)],
            [0, 1, 1, 2]
        );
        let message_id = MessageId::parse("m").unwrap();
        assert_eq!(
            estimate_message_tokens(&Message::User { message_id, text: "abcdef".into() }),
            2 + 8
        );
        let call = ProposedCall {
            call_id: CallId(Uuid::nil()),
            provider_id: "ignored".to_owned(),
            tool: "buy".to_owned(),
            arguments: Arguments::Json(json!({"n": [1, null, "x"]})),
        };
        let message = AssistantMessage {
            text: "abc".to_owned(),
            reasoning: vec![
                Reasoning::Thinking { text: "abc".to_owned(), signature: Some("abc".to_owned()) },
                Reasoning::Redacted { payload: "abc".to_owned() },
            ],
            calls: vec![call],
        };
        let bytes = 12 + 3 + estimate_json_bytes(&json!({"n": [1, null, "x"]}));
        assert_eq!(
            estimate_message_tokens(&Message::Assistant(Arc::new(message))),
            estimate_tokens(bytes) + 16
        );
        let result = |text: &str| CallResult {
            call_id: CallId(Uuid::nil()),
            provider_id: String::new(),
            tool: "buy".to_owned(),
            text: text.into(),
            is_error: false,
        };
        assert_eq!(
            estimate_message_tokens(&Message::ToolResults(vec![result("abc"), result("d")])),
            2 + 16
        );
    }

    #[test]
    fn c1_json_estimate_is_at_least_actual_size() {
        for value in [
            json!(null),
            json!(false),
            json!(12_345_678),
            json!({"a": [1, 2, {"b": "text"}], "c": null, "d": true}),
            json!([[], {}, ""]),
        ] {
            let actual = value.to_string().len() as u64;
            let estimate = estimate_json_bytes(&value);
            assert!(
                estimate >= actual && estimate <= actual * 2 + 16,
                "{value}: {estimate} of {actual}"
            );
        }
    }
}
