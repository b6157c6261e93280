//! Fuzz tests of what MCP servers send: lines of standard output, oversized messages, results and
//! URLs of the configuration. No input causes a panic, and the output is bounded.

use super::{
    address_policy, json_repair::repair_json, message_scanner::MessageScanner,
    oversized_message::OversizedMessage, result, stdio,
};
use crate::hostile_input;
use greenroom_core::{call::ToolOutcome, limits::TOOL_ERROR_BYTES_MAX};
use proptest::prelude::*;
use rmcp::{
    model::{CallToolResult, ElicitRequestParams, ReadResourceResult},
    service::{RoleClient, RxJsonRpcMessage},
};
use serde_json::Value;

/// Maximum bytes of a result in the tests.
const RESULT_BYTES_MAX: usize = 256;
/// Maximum bytes of a line in the tests.
const LINE_BYTES_MAX: usize = 150;

const MESSAGES: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"a\ud83d\"b\""}],"isError":true,"_meta":{"greenroom/retry":"temporary"}}}"#,
    r#"{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"resource","resource":{"uri":"a:b","text":"t"}}],"structuredContent":{"n":NaN}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32000,"message":"no","data":{"a":[1]}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5,"total":1e400}}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string","enum":["x"]}}}}}"#,
];

const RESULTS: &[&str] = &[
    r#"{"content":[{"type":"text","text":"done"},{"type":"resource_link","name":"n","uri":"a:b"}],"isError":true,"_meta":{"greenroom/retry":"did_not_run","greenroom/cut":99}}"#,
    r#"{"content":[{"type":"audio","data":"AAA=","mimeType":"audio/wav"}],"structuredContent":{"a":[1,{"b":null}]}}"#,
    r#"{"contents":[{"uri":"a:b","text":"t","mimeType":"text/plain"},{"uri":"a:c","blob":"AAAA"}]}"#,
    r#"{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"integer","minimum":1}},"required":["a"]}}"#,
];

const URLS: &[&str] = &[
    "https://mcp.example:8443/a?b=c",
    "http://[::ffff:127.0.0.1]/",
    "http://2130706433/",
    "file:///etc",
];

proptest! {
    #[test]
    fn t4_lines_yield_messages_or_nothing(
        chunks in prop::collection::vec(hostile_input::bytes(MESSAGES), 1..4),
    ) {
        let mut chunks = chunks;
        chunks.iter_mut().step_by(2).for_each(|chunk| chunk.push(b'\n'));
        let messages = stdio::parse_chunks(&chunks, LINE_BYTES_MAX);
        let lines = chunks.concat().iter().filter(|byte| **byte == b'\n').count();
        prop_assert!(messages.len() <= lines);
    }

    #[test]
    fn e6_repaired_text_keeps_the_meaning_of_json(text in hostile_input::text(MESSAGES)) {
        let repaired = repair_json(&text);
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            prop_assert_eq!(serde_json::from_str::<Value>(&repaired).ok(), Some(value));
        }
        serde_json::from_str::<RxJsonRpcMessage<RoleClient>>(&repaired).ok();
    }

    /// The scan depends only on the bytes, not on their chunks, and a truncated message is a
    /// response with the id that was sent.
    #[test]
    fn t4_oversized_messages_yield_responses_or_nothing(
        message in hostile_input::bytes(MESSAGES),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(message.len() + 1);
        let (head, rest) = message.split_at(cut);
        let mut whole = MessageScanner::default();
        whole.feed(&message);
        let mut oversized = OversizedMessage::new(head.to_vec());
        rest.chunks(7).for_each(|chunk| oversized.skip(chunk));
        prop_assert_eq!(oversized.bytes(), message.len());
        if let Some(response) = oversized.into_truncated_response() {
            let id: Option<Value> = whole.id.and_then(|id| serde_json::from_slice(&id).ok());
            prop_assert_eq!(Some(&response["id"]), id.as_ref());
            prop_assert!(response["result"].is_object() || response["error"].is_object());
        }
    }

    #[test]
    fn t4_results_yield_bounded_outcomes(value in hostile_input::json(RESULTS)) {
        if let Ok(decoded) = serde_json::from_value::<CallToolResult>(value.clone()) {
            match result::outcome_from_result(decoded, RESULT_BYTES_MAX) {
                ToolOutcome::Completed(output) => {
                    prop_assert!(output.text.len() <= RESULT_BYTES_MAX, "{}", output.text);
                    let structured = output.structured.map_or(0, |value| value.to_string().len());
                    prop_assert!(structured <= RESULT_BYTES_MAX);
                }
                ToolOutcome::Failed { error, .. } => {
                    prop_assert!(!error.is_empty() && error.len() <= TOOL_ERROR_BYTES_MAX);
                }
                other @ (ToolOutcome::NotSent { .. }
                | ToolOutcome::TimedOut { .. }
                | ToolOutcome::Crashed { .. }) => prop_assert!(false, "{other:?}"),
            }
        }
        if let Ok(decoded) = serde_json::from_value::<ReadResourceResult>(value.clone()) {
            let output = result::output_from_resource(&decoded.contents, RESULT_BYTES_MAX);
            prop_assert!(output.text.len() <= RESULT_BYTES_MAX);
        }
        if let Ok(decoded) = serde_json::from_value::<ElicitRequestParams>(value)
            && let Some(elicitation) = super::elicitation::parse_elicitation(decoded)
        {
            elicitation.validated().ok();
        }
    }

    #[test]
    fn x5_urls_are_accepted_or_refused(url in hostile_input::text(URLS)) {
        address_policy::validate_url(&url, true).ok();
        if address_policy::validate_url(&url, false).is_ok() {
            prop_assert!(address_policy::validate_url(&url, true).is_ok());
        }
    }
}
