//! Finds the few fields of a JSON-RPC message that matter, in one pass over its bytes and in
//! constant memory. Knows nothing of their meaning. Used by `oversize`.

/// Longest key or scalar that is kept; longer ones are none we look for.
const TOKEN_BYTES_MAX: usize = 160;
/// Levels whose keys are known.
const LEVELS: usize = 2;

/// What was seen so far.
#[derive(Default)]
pub(super) struct MessageScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    expects_key: bool,
    /// Whether the container at each level is an object, and the key it is at.
    objects: [bool; LEVELS],
    keys: [Vec<u8>; LEVELS],
    /// The last scalar or key, as it is written.
    token: Vec<u8>,
    too_long: bool,
    /// The message's `id`, as it is written.
    pub(super) id: Option<Vec<u8>>,
    /// Whether there is a `method`: then it is no response.
    pub(super) has_method: bool,
    /// Whether `result.isError` is `true`.
    pub(super) is_error: bool,
}

impl MessageScanner {
    /// Takes in the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.in_string { self.scan_in_string(byte) } else { self.scan_outside(byte) }
        }
    }

    fn scan_in_string(&mut self, byte: u8) {
        self.push_byte(byte);
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
            if self.expects_key && (1..=LEVELS).contains(&self.depth) {
                self.keys[self.depth - 1] = std::mem::take(&mut self.token);
            }
        }
    }

    fn scan_outside(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.clear();
                self.push_byte(byte);
                self.in_string = true;
            }
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth <= LEVELS {
                    self.objects[self.depth - 1] = byte == b'{';
                    self.keys[self.depth - 1].clear();
                }
                self.expects_key = byte == b'{';
                self.clear();
            }
            b'}' | b']' => {
                self.end_of_value();
                self.depth = self.depth.saturating_sub(1);
                self.expects_key = false;
                self.clear();
            }
            b',' => {
                self.end_of_value();
                self.expects_key =
                    (1..=LEVELS).contains(&self.depth) && self.objects[self.depth - 1];
                self.clear();
            }
            b':' => {
                self.expects_key = false;
                self.clear();
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            other => self.push_byte(other),
        }
    }

    fn end_of_value(&mut self) {
        if self.too_long {
            return;
        }
        match (self.depth, self.keys[0].as_slice(), self.keys[1].as_slice()) {
            (1, b"\"id\"", _) if !self.token.is_empty() => self.id = Some(self.token.clone()),
            (1, b"\"method\"", _) => self.has_method = true,
            (2, b"\"result\"", b"\"isError\"") => self.is_error = self.token == b"true",
            _ => {}
        }
    }

    fn push_byte(&mut self, byte: u8) {
        if self.depth > LEVELS {
            return;
        }
        if self.token.len() < TOKEN_BYTES_MAX {
            self.token.push(byte);
        } else {
            self.too_long = true;
        }
    }

    fn clear(&mut self) {
        self.token.clear();
        self.too_long = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `id`, `has_method`, `is_error`; fed byte by byte, since pieces come as they like.
    fn outline(text: &str) -> (Option<String>, bool, bool) {
        let mut outline = MessageScanner::default();
        for byte in text.bytes() {
            outline.feed(&[byte]);
        }
        let id = outline.id.map(|id| String::from_utf8(id).unwrap());
        (id, outline.has_method, outline.is_error)
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        let seven = (Some("7".to_owned()), false, false);
        assert_eq!(outline(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#), seven);
        assert_eq!(outline(r#"{"result":{"id":8,"content":[{"id":9}]},"id" : 7 }"#), seven);
        let text = (Some(r#""a\"b""#.to_owned()), false, false);
        assert_eq!(outline(r#"{"result":{"a":"\\"},"id":"a\"b"}"#), text);
    }

    #[test]
    fn what_stands_in_texts_is_no_structure() {
        let found = outline(r#"{"result":{"content":[{"text":"\",\"id\":1,{[\\"}]},"id":2}"#);
        assert_eq!(found.0.as_deref(), Some("2"));
    }

    #[test]
    fn methods_and_errors_are_seen() {
        assert!(outline(r#"{"id":1,"method":"ping"}"#).1);
        assert!(outline(r#"{"id":1,"result":{"content":[],"isError":true}}"#).2);
        assert!(!outline(r#"{"id":1,"result":{"a":{"isError":true}}}"#).2);
        assert!(!outline(r#"{"id":1,"other":{"isError":true}}"#).2);
    }

    #[test]
    fn a_huge_key_is_ignored() {
        let text = format!(r#"{{"{}":1,"id":3,"x":"{}"}}"#, "k".repeat(5000), "v".repeat(5000));
        assert_eq!(outline(&text).0.as_deref(), Some("3"));
    }
}
