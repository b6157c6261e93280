//! Extracts the relevant fields of a JSON-RPC message in one pass over its bytes and in constant
//! memory. Does not interpret the fields. Used by `oversized_message`.

/// Maximum bytes of a key or scalar that is kept. The relevant keys and scalars are shorter.
const TOKEN_BYTES_MAX: usize = 160;
/// Number of nesting levels whose keys are tracked.
const LEVELS: usize = 2;

/// The state of the scan and the fields found so far.
#[derive(Default)]
pub(super) struct MessageScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    expects_key: bool,
    /// For each level: true if the container is an object, and the current key.
    objects: [bool; LEVELS],
    keys: [Vec<u8>; LEVELS],
    /// The last scalar or key, in its JSON notation.
    token: Vec<u8>,
    too_long: bool,
    /// The message's `id`, in its JSON notation.
    pub(super) id: Option<Vec<u8>>,
    /// True if the message has a `method` and is therefore not a response.
    pub(super) has_method: bool,
    /// True if `result.isError` is `true`.
    pub(super) is_error: bool,
}

impl MessageScanner {
    /// Scans the next bytes.
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

    /// Returns `id`, `has_method` and `is_error`. Feeds single bytes to cover any chunking.
    fn scan(text: &str) -> (Option<String>, bool, bool) {
        let mut scanner = MessageScanner::default();
        for byte in text.bytes() {
            scanner.feed(&[byte]);
        }
        let id = scanner.id.map(|id| String::from_utf8(id).unwrap());
        (id, scanner.has_method, scanner.is_error)
    }

    #[test]
    fn id_is_found_in_any_position() {
        let seven = (Some("7".to_owned()), false, false);
        assert_eq!(scan(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#), seven);
        assert_eq!(scan(r#"{"result":{"id":8,"content":[{"id":9}]},"id" : 7 }"#), seven);
        let text = (Some(r#""a\"b""#.to_owned()), false, false);
        assert_eq!(scan(r#"{"result":{"a":"\\"},"id":"a\"b"}"#), text);
    }

    #[test]
    fn text_content_is_not_scanned_as_structure() {
        let (id, ..) = scan(r#"{"result":{"content":[{"text":"\",\"id\":1,{[\\"}]},"id":2}"#);
        assert_eq!(id.as_deref(), Some("2"));
    }

    #[test]
    fn methods_and_errors_are_found() {
        assert!(scan(r#"{"id":1,"method":"ping"}"#).1);
        assert!(scan(r#"{"id":1,"result":{"content":[],"isError":true}}"#).2);
        assert!(!scan(r#"{"id":1,"result":{"a":{"isError":true}}}"#).2);
        assert!(!scan(r#"{"id":1,"other":{"isError":true}}"#).2);
    }

    #[test]
    fn oversized_key_is_ignored() {
        let text = format!(r#"{{"{}":1,"id":3,"x":"{}"}}"#, "k".repeat(5000), "v".repeat(5000));
        assert_eq!(scan(&text).0.as_deref(), Some("3"));
    }
}
