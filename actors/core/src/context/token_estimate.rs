//! How many tokens a text is, roughly. Providers count in ways of their own; what is estimated here
//! keeps requests within bounds, and stands in for what a provider did not come to say of a message
//! that was stopped.
//!
//! A token is counted as three bytes of UTF-8. That is about right for JSON, code and writing without
//! spaces, and a third too many for English prose: an estimate that errs, errs on the safe side.

use crate::message::{Arguments, AssistantMessage, Message, Reasoning};
use serde_json::Value;

/// Bytes that are counted as one token.
pub const BYTES_PER_TOKEN: u64 = 3;
/// Tokens around a message, or a call, that are not its text.
const MESSAGE_OVERHEAD_TOKENS: u64 = 8;

/// The tokens of a text of so many bytes.
pub fn estimate_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// The tokens of a message.
pub fn estimate_message_tokens(message: &Message) -> u64 {
    let (bytes, frames) = match message {
        Message::User { text, .. } => (text.len() as u64, 1),
        Message::Assistant(said) => (assistant_message_bytes(said), 1 + said.calls.len() as u64),
        Message::ToolResults(results) => {
            let texts = results.iter().map(|result| result.text.len() as u64);
            (texts.sum(), results.len() as u64)
        }
    };
    estimate_tokens(bytes) + frames * MESSAGE_OVERHEAD_TOKENS
}

fn assistant_message_bytes(said: &AssistantMessage) -> u64 {
    let thoughts = said.reasoning.iter().map(|block| match block {
        Reasoning::Thinking { text, signature } => {
            text.len() + signature.as_ref().map_or(0, String::len)
        }
        Reasoning::Redacted { payload } => payload.len(),
    });
    let calls = said.calls.iter().map(|call| match &call.arguments {
        Arguments::Json(value) => call.tool.len() as u64 + estimate_json_bytes(value),
        Arguments::Malformed { .. } => call.tool.len() as u64 + 2,
    });
    (said.text.len() + thoughts.sum::<usize>()) as u64 + calls.sum::<u64>()
}

/// The bytes of a value as JSON, but for escapes.
pub fn estimate_json_bytes(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
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
    fn c1_everything_that_is_sent_is_counted() {
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
        let said = AssistantMessage {
            text: "abc".to_owned(),
            reasoning: vec![
                Reasoning::Thinking { text: "abc".to_owned(), signature: Some("abc".to_owned()) },
                Reasoning::Redacted { payload: "abc".to_owned() },
            ],
            calls: vec![call],
        };
        let bytes = 12 + 3 + estimate_json_bytes(&json!({"n": [1, null, "x"]}));
        assert_eq!(
            estimate_message_tokens(&Message::Assistant(Arc::new(said))),
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
    fn c1_json_is_counted_as_long_as_it_is_or_a_little_longer() {
        for value in [
            json!(null),
            json!(false),
            json!(12_345_678),
            json!({"a": [1, 2, {"b": "text"}], "c": null, "d": true}),
            json!([[], {}, ""]),
        ] {
            let real = value.to_string().len() as u64;
            let counted = estimate_json_bytes(&value);
            assert!(counted >= real && counted <= real * 2 + 16, "{value}: {counted} of {real}");
        }
    }
}
