//! A message that exceeds the size limit: keeps its start and scans the rest without storing it (T4).
//! The kept part is converted to a well-formed response that is marked as truncated. Used by `stdio`.

use super::{json_repair::repair_json, message_scanner::MessageScanner};
use serde_json::{Value, json};

/// `_meta` key of a response that was truncated here: its original number of bytes.
pub(super) const META_CUT: &str = "greenroom/cut";
/// Maximum nesting depth that is kept: the limit of the JSON parser less a few levels.
const DEPTH_MAX: usize = 120;

/// A message that exceeds the size limit.
pub(super) struct OversizedMessage {
    head: Vec<u8>,
    scanner: MessageScanner,
    bytes: usize,
}

impl OversizedMessage {
    /// Creates the message from its start, the only part that is kept.
    pub(super) fn new(head: Vec<u8>) -> Self {
        let mut scanner = MessageScanner::default();
        scanner.feed(&head);
        let bytes = head.len();
        Self { head, scanner, bytes }
    }

    /// Scans the next bytes and drops them.
    pub(super) fn skip(&mut self, bytes: &[u8]) {
        self.scanner.feed(bytes);
        self.bytes = self.bytes.saturating_add(bytes.len());
    }

    /// Returns the length of the message so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the message as a truncated response. `None` if it is not a response or its id is
    /// unknown.
    pub(super) fn into_truncated_response(self) -> Option<Value> {
        if self.scanner.has_method {
            return None;
        }
        let id: Value = serde_json::from_slice(&self.scanner.id?).ok()?;
        let start = close_json(&self.head)
            .and_then(|text| serde_json::from_str::<Value>(&repair_json(&text)).ok())
            .unwrap_or_default();
        if let Some(message) = start["error"]["message"].as_str() {
            let code = start["error"]["code"].as_i64().unwrap_or(-32603);
            let error = json!({"code": code, "message": message});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
        let result = &start["result"];
        let texts = result["content"].as_array().into_iter().flatten();
        let mut content: Vec<Value> = texts
            .filter_map(|block| block["text"].as_str())
            .map(|text| json!({"type": "text", "text": text}))
            .collect();
        if content.is_empty() && !result["structuredContent"].is_null() {
            let text = result["structuredContent"].to_string();
            content.push(json!({"type": "text", "text": text}));
        }
        let result = json!({
            "content": content,
            "isError": self.scanner.is_error,
            "_meta": {META_CUT: self.bytes},
        });
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }
}

/// Returns the longest prefix of `head` that becomes JSON when its open containers are closed, with
/// these closed.
fn close_json(head: &[u8]) -> Option<String> {
    let head = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
    };
    let mut open: Vec<u8> = Vec::new();
    let (mut in_string, mut is_key, mut expects_key) = (false, false, false);
    // The ends of the valid prefix: outside of strings, and within the open string.
    let (mut safe, mut safe_in_string) = (0, 0);
    let mut bytes = head.bytes().enumerate();
    while let Some((index, byte)) = bytes.next() {
        if in_string {
            match byte {
                b'"' => {
                    in_string = false;
                    if !is_key {
                        safe = index + 1;
                    }
                }
                b'\\' => {
                    let Some(end) = end_of_escape(&head[index..]) else { break };
                    for _ in 1..end {
                        bytes.next();
                    }
                    safe_in_string = index + end;
                }
                _ => safe_in_string = index + 1,
            }
            continue;
        }
        match byte {
            b'"' => (in_string, is_key, safe_in_string) = (true, expects_key, index + 1),
            // Stops here: deeper content and everything after it are dropped.
            b'{' | b'[' if open.len() >= DEPTH_MAX => break,
            b'{' | b'[' => {
                open.push(if byte == b'{' { b'}' } else { b']' });
                (expects_key, safe) = (byte == b'{', index + 1);
            }
            b'}' | b']' => {
                open.pop()?;
                (expects_key, safe) = (false, index + 1);
            }
            b',' => (expects_key, safe) = (open.last() == Some(&b'}'), index),
            b':' => expects_key = false,
            _ => {}
        }
    }
    let mut text = if in_string && !is_key {
        let mut text = head[..head.floor_char_boundary(safe_in_string)].to_owned();
        text.push('"');
        text
    } else {
        head[..safe].to_owned()
    };
    text.extend(open.into_iter().rev().map(char::from));
    Some(text)
}

/// Returns the length of the escape sequence at the start of `text`, including both halves of a
/// surrogate pair; `None` if it is incomplete.
fn end_of_escape(text: &str) -> Option<usize> {
    let escape = text.as_bytes();
    if *escape.get(1)? != b'u' {
        return Some(2);
    }
    let is_high_half = matches!(
        (escape.get(2)?, escape.get(3)?, escape.get(5)?),
        (b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', _)
    );
    if is_high_half && escape.get(6)? == &b'\\' && escape.get(7)? == &b'u' {
        return escape.get(11).map(|_| 12);
    }
    Some(6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truncated_response(head: &str, rest: &str) -> Option<Value> {
        let mut oversize = OversizedMessage::new(head.as_bytes().to_vec());
        oversize.skip(rest.as_bytes());
        oversize.into_truncated_response()
    }

    #[test]
    fn every_prefix_of_a_message_can_be_closed() {
        let message = r#"{"result":{"content":[{"type":"text","text":"a\"\\é\ud83d\ude80 [{"},
            {"n":-1.5e3,"t":true,"x":null}, [], {}],"k":{"a":[1,2,"z"]}},"id":5}"#;
        for end in 0..=message.len() {
            let Some(text) = close_json(&message.as_bytes()[..end]) else { continue };
            assert!(
                text.is_empty() || serde_json::from_str::<Value>(&text).is_ok(),
                "{end}: {text}"
            );
        }
    }

    #[test]
    fn t4_truncated_response_keeps_its_start_id_and_error_flag() {
        let response = truncated_response(
            r#"{"result":{"content":[{"type":"text","text":"first"},{"type":"text","text":"seco"#,
            r#"nd and much more"}],"isError":true},"jsonrpc":"2.0","id":"x7"}"#,
        );
        assert_eq!(
            response.unwrap(),
            json!({"jsonrpc": "2.0", "id": "x7", "result": {
                "content": [{"type": "text", "text": "first"}, {"type": "text", "text": "seco"}],
                "isError": true,
                "_meta": {"greenroom/cut": 142},
            }})
        );
    }

    #[test]
    fn structured_content_replaces_missing_text() {
        let response =
            truncated_response(r#"{"id":1,"result":{"structuredContent":{"a":[1,2,3"#, "4]}}}")
                .unwrap();
        assert_eq!(response["result"]["content"][0]["text"], json!(r#"{"a":[1,2]}"#));
    }

    #[test]
    fn truncated_errors_remain_errors() {
        let response =
            truncated_response(r#"{"id":1,"error":{"code":-32602,"message":"no no"#, r#"no"}}"#)
                .unwrap();
        assert_eq!(response["error"], json!({"code": -32602, "message": "no no"}));
    }

    #[test]
    fn messages_other_than_responses_are_dropped() {
        assert_eq!(
            truncated_response(
                r#"{"method":"notifications/message","params":{"data":"#,
                r#""x"}}"#
            ),
            None
        );
        assert_eq!(truncated_response(r#"{"result":{"content":["#, "]}}"), None);
        assert_eq!(truncated_response("noise noise", " noise"), None);
    }

    #[test]
    fn excessive_nesting_is_truncated() {
        let deep = format!(r#"{{"id":1,"result":{}"#, "[".repeat(100_000));
        let response = truncated_response(&deep, &"]".repeat(100_000)).unwrap();
        assert_eq!(response["result"]["content"], json!([]));
    }
}
