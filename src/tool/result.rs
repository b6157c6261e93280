//! Converts MCP results to tool outcomes that are bounded and safe to display (T4, E6, R1). Pure. Used
//! by `call` and `resources`.

use greenroom_core::{
    call::{ToolOutcome, ToolOutput, outcome::RetryHint},
    json::validate_value,
    limits::TOOL_ERROR_BYTES_MAX,
    text::truncate,
};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use super::oversized_message::META_CUT;

/// `_meta` key with which a failed tool states if the call may be repeated.
const META_RETRY: &str = "greenroom/retry";
/// `_meta` key that is equivalent to `greenroom/retry = "temporary"`.
const META_RETRYABLE: &str = "greenroom/retryable";

/// Converts a tool result to an outcome.
pub(super) fn outcome_from_result(result: CallToolResult, bytes_max: usize) -> ToolOutcome {
    if result.is_error == Some(true) {
        let hint = retry_hint(&result);
        let output = output_from_result(result, TOOL_ERROR_BYTES_MAX);
        let has_no_text = output.text.trim().is_empty();
        let error = if has_no_text {
            "the tool failed without an error message".to_owned()
        } else {
            output.text
        };
        return ToolOutcome::Failed { error, hint };
    }
    ToolOutcome::Completed(output_from_result(result, bytes_max))
}

fn output_from_result(result: CallToolResult, bytes_max: usize) -> ToolOutput {
    let original_bytes = meta(&result, META_CUT).and_then(Value::as_u64);
    let mut text = BoundedText::new(bytes_max);
    for (index, block) in result.content.iter().enumerate() {
        if index > 0 {
            text.push("\n");
        }
        push_block(block, &mut text);
    }
    let structured = result.structured_content.map(safe_value);
    let structured_text = structured.as_ref().map(Value::to_string);
    if text.total_bytes == 0
        && let Some(structured_text) = &structured_text
    {
        text.push(structured_text);
    }
    let is_short = structured_text.is_some_and(|text| text.len() <= bytes_max);
    let fits = is_short && structured.as_ref().is_some_and(|value| validate_value(value).is_ok());
    let (text, truncated) = text.finish(original_bytes);
    ToolOutput { text, structured: structured.filter(|_| fits), truncated, cached: false }
}

/// Appends a content block. Describes a block that is not text.
fn push_block(block: &ContentBlock, text: &mut BoundedText) {
    match block {
        ContentBlock::Text(content) => text.push(&content.text),
        ContentBlock::Image(content) => {
            text.push(&media_placeholder("image", &content.mime_type, &content.data));
        }
        ContentBlock::Audio(content) => {
            text.push(&media_placeholder("audio", &content.mime_type, &content.data));
        }
        ContentBlock::Resource(content) => push_resource(&content.resource, text),
        ContentBlock::ResourceLink(link) => {
            text.push(&format!("[link {} {}]", link.name, link.uri))
        }
        // The SDK's enum may grow.
        _ => text.push("[content of an unknown kind]"),
    }
}

fn push_resource(contents: &ResourceContents, text: &mut BoundedText) {
    match contents {
        ResourceContents::TextResourceContents { uri, text: body, .. } => {
            text.push(&format!("[resource {uri}]\n"));
            text.push(body);
        }
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            let mime_type = mime_type.as_deref().unwrap_or("application/octet-stream");
            text.push(&media_placeholder(&format!("resource {uri}"), mime_type, blob));
        }
        // The SDK's enum may grow.
        _ => text.push("[resource of an unknown kind]"),
    }
}

/// Converts the contents of a resource to the output for the model.
pub(super) fn output_from_resource(contents: &[ResourceContents], bytes_max: usize) -> ToolOutput {
    let mut text = BoundedText::new(bytes_max);
    for (index, part) in contents.iter().enumerate() {
        if index > 0 {
            text.push("\n");
        }
        push_resource(part, &mut text);
    }
    let (text, truncated) = text.finish(None);
    ToolOutput { text, truncated, ..ToolOutput::default() }
}

fn media_placeholder(label: &str, mime_type: &str, base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|&byte| byte == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    format!("[{label} {mime_type}, {bytes} bytes]")
}

fn meta<'a>(result: &'a CallToolResult, key: &str) -> Option<&'a Value> {
    result.meta.as_ref().and_then(|meta| meta.get(key))
}

/// Returns the retry hint of a failed tool.
fn retry_hint(result: &CallToolResult) -> RetryHint {
    match meta(result, META_RETRY).and_then(Value::as_str) {
        Some("did_not_run") => return RetryHint::DidNotRun,
        Some("temporary") => return RetryHint::Temporary,
        Some(_) | None => {}
    }
    let structured = result.structured_content.as_ref();
    let error_flag = structured.and_then(|content| content.pointer("/error/retryable"));
    let retryable = [meta(result, META_RETRYABLE), error_flag].contains(&Some(&Value::Bool(true)));
    if retryable { RetryHint::Temporary } else { RetryHint::Unspecified }
}

/// Text that is limited to its start and counts all bytes.
struct BoundedText {
    text: String,
    total_bytes: usize,
    bytes_max: usize,
}

impl BoundedText {
    fn new(bytes_max: usize) -> Self {
        Self { text: String::new(), total_bytes: 0, bytes_max }
    }

    fn push(&mut self, part: &str) {
        self.total_bytes = self.total_bytes.saturating_add(part.len());
        for c in part.chars() {
            if self.text.len() > self.bytes_max {
                return;
            }
            self.text.push(safe_char(c));
        }
    }

    /// Returns the text within the limit, including a marker if it was truncated, and true if it was.
    /// `original_bytes` is the length of a response that was truncated while it was received.
    fn finish(self, original_bytes: Option<u64>) -> (String, bool) {
        let Self { mut text, total_bytes, bytes_max } = self;
        if original_bytes.is_none() && text.len() <= bytes_max {
            return (text, false);
        }
        let bytes = original_bytes.unwrap_or(total_bytes as u64);
        let marker = format!("\n… [cut: the result had {bytes} bytes, the limit is {bytes_max}]");
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(marker.len())));
        text.push_str(&marker);
        text.truncate(text.floor_char_boundary(bytes_max));
        (text, true)
    }
}

/// Returns `c`, or a visible replacement for a control character other than white space, because
/// terminals and databases cannot handle it.
fn safe_char(c: char) -> char {
    match c {
        '\n' | '\t' | '\r' => c,
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}' => '\u{fffd}',
        other => other,
    }
}

/// Applies [`safe_char`] to each character and limits the text to `bytes_max` bytes.
pub(super) fn safe_text(text: &str, bytes_max: usize) -> String {
    let text: String = truncate(text, bytes_max).chars().map(safe_char).collect();
    truncate(&text, bytes_max).to_owned()
}

fn safe_value(value: Value) -> Value {
    let safe = |text: String| text.chars().map(safe_char).collect::<String>();
    match value {
        Value::String(text) => Value::String(safe(text)),
        Value::Array(items) => items.into_iter().map(safe_value).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(key, value)| (safe(key), safe_value(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome_from_json(result: Value, bytes_max: usize) -> ToolOutcome {
        outcome_from_result(serde_json::from_value(result).unwrap(), bytes_max)
    }

    fn completed(text: &str) -> ToolOutcome {
        let text = text.to_owned();
        ToolOutcome::Completed(ToolOutput {
            text,
            structured: None,
            truncated: false,
            cached: false,
        })
    }

    #[test]
    fn content_blocks_become_lines_of_text() {
        let result = json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "mimeType": "image/png", "data": "AAAAAA=="},
            {"type": "resource_link", "name": "notes", "uri": "file:///n.txt"},
            {"type": "resource", "resource": {"uri": "a:b", "text": "body"}},
            {"type": "resource", "resource": {"uri": "c:d", "blob": "AAAA"}},
        ]});
        let text = "one\n[image image/png, 4 bytes]\n[link notes file:///n.txt]\n[resource a:b]\nbody\n\
            [resource c:d application/octet-stream, 3 bytes]";
        assert_eq!(outcome_from_json(result, 1000), completed(text));
    }

    #[test]
    fn structured_content_is_kept_and_replaces_missing_text() {
        let result = json!({"content": [], "structuredContent": {"a": 1}});
        let expected = ToolOutput {
            text: r#"{"a":1}"#.to_owned(),
            structured: Some(json!({"a": 1})),
            truncated: false,
            cached: false,
        };
        assert_eq!(outcome_from_json(result, 1000), ToolOutcome::Completed(expected));
    }

    #[test]
    fn x4_structured_content_that_is_nested_too_deep_is_kept_as_text() {
        let deep = (0..65).fold(json!("bottom"), |inner, _| json!([inner]));
        let text = deep.to_string();
        let result = json!({"content": [], "structuredContent": deep});
        assert_eq!(outcome_from_json(result, 1000), completed(&text));
    }

    #[test]
    fn t4_long_result_is_truncated_with_marker_within_the_limit() {
        let long = "é".repeat(300);
        let result =
            json!({"content": [{"type": "text", "text": long}], "structuredContent": [long]});
        let ToolOutcome::Completed(output) = outcome_from_json(result, 100) else {
            panic!("not completed")
        };
        let marker = "\n… [cut: the result had 600 bytes, the limit is 100]";
        let kept = "é".repeat((100 - marker.len()) / 2);
        assert_eq!(output.text, format!("{kept}{marker}"));
        assert_eq!((output.structured, output.truncated), (None, true));
    }

    #[test]
    fn smallest_limit_is_respected() {
        let result = json!({"content": [{"type": "text", "text": "xxxx"}]});
        let ToolOutcome::Completed(output) = outcome_from_json(result, 3) else {
            panic!("not completed")
        };
        assert!(output.text.len() <= 3 && output.truncated);
    }

    #[test]
    fn e6_control_characters_are_made_visible() {
        let result =
            json!({"content": [{"type": "text", "text": "a\u{0}\u{1b}[31m\t\u{7f}\u{9b}"}]});
        assert_eq!(outcome_from_json(result, 1000), completed("a␀␛[31m\t␡\u{fffd}"));
    }

    #[test]
    fn r1_failed_result_states_its_retry_hint() {
        let failed = |extra: Value| {
            let mut result = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
            result.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let outcome = outcome_from_json(result, 1000);
            let ToolOutcome::Failed { error, hint } = outcome else { panic!("{outcome:?}") };
            (error, hint)
        };
        let no = |hint| ("no".to_owned(), hint);
        assert_eq!(failed(json!({})), no(RetryHint::Unspecified));
        let meta = |key: &str, value: Value| json!({"_meta": {key: value}});
        assert_eq!(failed(meta(META_RETRY, json!("temporary"))), no(RetryHint::Temporary));
        assert_eq!(failed(meta(META_RETRY, json!("did_not_run"))), no(RetryHint::DidNotRun));
        assert_eq!(failed(meta(META_RETRYABLE, json!(true))), no(RetryHint::Temporary));
        let structured = json!({"structuredContent": {"error": {"retryable": true}}});
        assert_eq!(failed(structured), no(RetryHint::Temporary));
        assert_eq!(failed(meta(META_RETRY, json!(7))), no(RetryHint::Unspecified));
        let without_text = failed(json!({"content": []}));
        assert_eq!(without_text.0, "the tool failed without an error message");
    }
}
