//! A message that is too long to be held: its start is kept, the rest only looked at in passing
//! (T4). What was kept becomes a well-formed answer that says it was cut. Used by `stdio`.

use super::{json_repair::repair_json, message_scanner::MessageScanner};
use serde_json::{Value, json};

/// `_meta` key of an answer that was cut here: the bytes it had.
pub(super) const META_CUT: &str = "greenroom/cut";
/// Deepest nesting that the JSON parser follows, less a few levels.
const DEPTH_MAX: usize = 120;

/// A message that grew beyond the limit.
pub(super) struct OversizedMessage {
    head: Vec<u8>,
    scanner: MessageScanner,
    bytes: usize,
}

impl OversizedMessage {
    /// The start of it, which is all that stays.
    pub(super) fn new(head: Vec<u8>) -> Self {
        let mut scanner = MessageScanner::default();
        scanner.feed(&head);
        let bytes = head.len();
        Self { head, scanner, bytes }
    }

    /// The next bytes, to be dropped.
    pub(super) fn skip(&mut self, bytes: &[u8]) {
        self.scanner.feed(bytes);
        self.bytes = self.bytes.saturating_add(bytes.len());
    }

    /// How long it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The answer it stands for, cut; nothing if it was none, or nobody can tell whose it is.
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

/// The longest start of `head` that can be closed to be JSON, closed.
fn close_json(head: &[u8]) -> Option<String> {
    let head = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
    };
    let mut open: Vec<u8> = Vec::new();
    let (mut in_string, mut is_key, mut expects_key) = (false, false, false);
    // Up to where the text can stand: outside of strings, and within the string we are in.
    let (mut safe, mut safe_in_string) = (0, 0);
    let mut bytes = head.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        if in_string {
            match byte {
                b'"' => {
                    in_string = false;
                    if !is_key {
                        safe = at + 1;
                    }
                }
                b'\\' => {
                    let Some(end) = end_of_escape(&head[at..]) else { break };
                    for _ in 1..end {
                        bytes.next();
                    }
                    safe_in_string = at + end;
                }
                _ => safe_in_string = at + 1,
            }
            continue;
        }
        match byte {
            b'"' => (in_string, is_key, safe_in_string) = (true, expects_key, at + 1),
            // What is deeper is left out, and what comes after it.
            b'{' | b'[' if open.len() >= DEPTH_MAX => break,
            b'{' | b'[' => {
                open.push(if byte == b'{' { b'}' } else { b']' });
                (expects_key, safe) = (byte == b'{', at + 1);
            }
            b'}' | b']' => {
                open.pop()?;
                (expects_key, safe) = (false, at + 1);
            }
            b',' => (expects_key, safe) = (open.last() == Some(&b'}'), at),
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

/// The length of the escape that `text` begins with, both halves of a surrogate pair included;
/// nothing if it is cut off.
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

    fn answer(head: &str, rest: &str) -> Option<Value> {
        let mut oversize = OversizedMessage::new(head.as_bytes().to_vec());
        oversize.skip(rest.as_bytes());
        oversize.into_truncated_response()
    }

    #[test]
    fn every_start_of_a_message_can_be_closed() {
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
    fn t4_a_cut_answer_keeps_its_start_its_id_and_its_error_flag() {
        let found = answer(
            r#"{"result":{"content":[{"type":"text","text":"first"},{"type":"text","text":"seco"#,
            r#"nd and much more"}],"isError":true},"jsonrpc":"2.0","id":"x7"}"#,
        );
        assert_eq!(
            found.unwrap(),
            json!({"jsonrpc": "2.0", "id": "x7", "result": {
                "content": [{"type": "text", "text": "first"}, {"type": "text", "text": "seco"}],
                "isError": true,
                "_meta": {"greenroom/cut": 142},
            }})
        );
    }

    #[test]
    fn structured_content_stands_in_for_missing_text() {
        let found =
            answer(r#"{"id":1,"result":{"structuredContent":{"a":[1,2,3"#, "4]}}}").unwrap();
        assert_eq!(found["result"]["content"][0]["text"], json!(r#"{"a":[1,2]}"#));
    }

    #[test]
    fn errors_stay_errors() {
        let found =
            answer(r#"{"id":1,"error":{"code":-32602,"message":"no no"#, r#"no"}}"#).unwrap();
        assert_eq!(found["error"], json!({"code": -32602, "message": "no no"}));
    }

    #[test]
    fn what_is_no_answer_is_dropped() {
        assert_eq!(
            answer(r#"{"method":"notifications/message","params":{"data":"#, r#""x"}}"#),
            None
        );
        assert_eq!(answer(r#"{"result":{"content":["#, "]}}"), None);
        assert_eq!(answer("noise noise", " noise"), None);
    }

    #[test]
    fn nesting_without_end_is_survived() {
        let deep = format!(r#"{{"id":1,"result":{}"#, "[".repeat(100_000));
        let found = answer(&deep, &"]".repeat(100_000)).unwrap();
        assert_eq!(found["result"]["content"], json!([]));
    }
}
