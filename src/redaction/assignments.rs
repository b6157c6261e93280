//! Redacts `key=value` and `key: value` in text (E7): queries of addresses, settings, headers, log
//! lines. Also the password in an address such as `postgres://user:password@host`.
//!
//! A value is a quoted text, a bracketed group, or everything up to the next white space; of headers
//! and passphrases, the rest of the line. Where the end is unclear, more is redacted rather than
//! less. The scan is one pass, and each step looks at a bounded number of bytes around a separator.

use super::{
    REDACTED,
    quoted_keys::{is_visible_scalar, nested_end, string_span},
    secret_keys::{KeyKind, SecretKeys},
};
use memchr::{memchr_iter, memchr2_iter};
use std::ops::Range;

/// Maximum bytes of a key. Of a longer word, the last bytes are examined.
const KEY_BYTES_MAX: usize = 64;
/// Maximum spaces and closing marks between a key and its separator.
const GAP_BYTES_MAX: usize = 8;
/// Maximum bytes of the part of an address that contains user and password.
const USER_INFO_BYTES_MAX: usize = 512;
/// Parts of keys whose value is the rest of the line, because it may contain spaces.
const LINE_KEYS: [&str; 5] = ["authorization", "authorisation", "cookie", "credential", "phrase"];

/// Returns `text` with the values of secret keys replaced, or `None` if it has none.
pub(super) fn redact_assignments(text: &str, keys: &SecretKeys) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut clean, mut copied) = (String::new(), 0);
    let mut context = QuoteContext::default();
    for separator in memchr2_iter(b'=', b':', bytes) {
        if separator < copied {
            continue;
        }
        let value = match find_url_password(text, separator) {
            Some(password) => Some(password),
            None => {
                let Some(key) = find_key(text, separator) else { continue };
                let kind = keys.kind(key);
                if kind == KeyKind::Plain {
                    continue;
                }
                let in_string = context.is_in_string(bytes, separator);
                let lower = key.to_ascii_lowercase();
                let extent = match LINE_KEYS.iter().any(|part| lower.contains(part)) {
                    true => Extent::Line,
                    false => Extent::Word,
                };
                let reader = ValueReader { text, in_string, extent };
                reader.find_value(separator + 1).filter(|range| {
                    let value = &text[range.clone()];
                    !is_visible_scalar(value, kind) && !value.starts_with(REDACTED)
                })
            }
        };
        let Some(value) = value else { continue };
        clean.push_str(&text[copied..value.start]);
        clean.push_str(REDACTED);
        copied = value.end;
    }
    (copied > 0).then(|| clean + &text[copied..])
}

/// Determines whether a position is inside a text in double quotes.
#[derive(Default)]
struct QuoteContext {
    position: usize,
    in_string: bool,
}

impl QuoteContext {
    /// Positions must not decrease.
    fn is_in_string(&mut self, bytes: &[u8], position: usize) -> bool {
        for offset in memchr_iter(b'"', &bytes[self.position..position]) {
            let before = bytes[..self.position + offset].iter().rev();
            let is_escaped = before.take_while(|byte| **byte == b'\\').count() % 2 == 1;
            self.in_string ^= !is_escaped;
        }
        self.position = position;
        self.in_string
    }
}

/// Returns the range of the password if `separator` is the colon after the scheme of an address.
fn find_url_password(text: &str, separator: usize) -> Option<Range<usize>> {
    let start = separator + 3;
    if !text[separator..].starts_with("://") {
        return None;
    }
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"/?#\"'<>\\".contains(byte);
    let authority = text.as_bytes()[start..].iter().take(USER_INFO_BYTES_MAX);
    let authority: Vec<u8> = authority.take_while(|byte| !ends(byte)).copied().collect();
    let at = authority.iter().rposition(|byte| *byte == b'@')?;
    let colon = authority[..at].iter().position(|byte| *byte == b':')?;
    let password = start + colon + 1..start + at;
    (!password.is_empty() && &text[password.clone()] != REDACTED).then_some(password)
}

/// Returns the unquoted key before the separator at `separator`, if there is one.
fn find_key(text: &str, separator: usize) -> Option<&str> {
    let bytes = text.as_bytes();
    // `::` separates the parts of a path.
    let is_path = bytes[separator] == b':'
        && (bytes.get(separator + 1) == Some(&b':') || bytes[..separator].last() == Some(&b':'));
    if is_path {
        return None;
    }
    let is_gap = |byte: &&u8| b" \t])*`".contains(byte);
    let gap = bytes[..separator].iter().rev().take(GAP_BYTES_MAX).take_while(is_gap).count();
    let end = separator - gap;
    let start = word_start(text, end);
    // `API key: …`
    let has_two_words =
        ["key", "keys"].iter().any(|key| text[start..end].eq_ignore_ascii_case(key))
            && bytes[..start].last() == Some(&b' ');
    let start = if has_two_words { word_start(text, start - 1) } else { start };
    (start < end).then(|| &text[start..end])
}

/// Returns the start of the word that ends at `end`, or of its last [`KEY_BYTES_MAX`] bytes.
fn word_start(text: &str, end: usize) -> usize {
    let is_key_byte =
        |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte) || !byte.is_ascii();
    let word = text.as_bytes()[..end].iter().rev().take(KEY_BYTES_MAX).take_while(is_key_byte);
    let start = end - word.count();
    (start..=end).find(|index| text.is_char_boundary(*index)).unwrap_or(end)
}

/// The part of a text that an unquoted value takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Word,
    Line,
}

/// Finds the value after a separator.
struct ValueReader<'a> {
    text: &'a str,
    /// True if the separator is in a text in double quotes, which then ends the value.
    in_string: bool,
    extent: Extent,
}

impl ValueReader<'_> {
    /// Returns the range of the value, without its quotes. `None` if there is none.
    fn find_value(&self, from: usize) -> Option<Range<usize>> {
        let bytes = self.text.as_bytes();
        let gap = bytes[from..].iter().take_while(|byte| b" \t=>*".contains(byte)).count();
        let start = from + gap;
        if self.text[start..].starts_with(REDACTED) {
            return None;
        }
        let slashes = bytes[start..].iter().take_while(|byte| **byte == b'\\').count();
        let end = match bytes.get(start + slashes)? {
            b'"' if self.in_string && slashes == 0 => return None,
            sign @ (b'"' | b'\'') if self.in_string || self.extent == Extent::Word => {
                let span = string_span(bytes, start, slashes, *sign);
                let [open, close] = span.delimiters;
                return Some(open.end..span.end - close.len());
            }
            b'{' | b'[' if slashes == 0 => return Some(start..nested_end(bytes, start, 0)),
            _ => self.unquoted_end(start),
        };
        let value = match self.extent {
            Extent::Word => self.text[start..end].trim_end_matches([
                '.', ',', ';', ':', '!', '?', ')', ']', '}', '>', '\'', '`', '*',
            ]),
            Extent::Line => self.text[start..end].trim_end(),
        };
        (!value.is_empty()).then(|| start..start + value.len())
    }

    fn unquoted_end(&self, start: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut index = start;
        while let Some(byte) = bytes.get(index) {
            let ends = match byte {
                b'\n' | b'\r' => true,
                b' ' | b'\t' | b'\x0b' | b'\x0c' => self.extent == Extent::Word,
                b'"' if self.in_string => true,
                b'"' if self.extent == Extent::Word => {
                    // `Some("…")`: the value contains a quoted text.
                    let inside = &bytes[index + 1..];
                    index += 1 + memchr::memchr(b'"', inside).unwrap_or(inside.len());
                    false
                }
                b'\\' if self.in_string => self.is_end_in_string(index),
                b'&' | b',' | b';' if self.extent == Extent::Word => {
                    is_assignment_ahead(&bytes[index + 1..])
                }
                _ => false,
            };
            if ends {
                break;
            }
            index += 1;
        }
        index.min(bytes.len())
    }

    /// True if the backslash at `index` belongs to an escaped quote or line break.
    fn is_end_in_string(&self, index: usize) -> bool {
        let rest = &self.text.as_bytes()[index..];
        let escaped = rest.iter().take(GAP_BYTES_MAX).find(|byte| **byte != b'\\');
        escaped.is_some_and(|byte| matches!(byte, b'"' | b'\'' | b'n' | b'r'))
    }
}

/// True if `bytes` begins with a quote, or with a word and a separator after it.
fn is_assignment_ahead(bytes: &[u8]) -> bool {
    let is_word_byte = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-.[]%".contains(byte);
    let bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
    let word = bytes.iter().take(KEY_BYTES_MAX).take_while(is_word_byte).count();
    match bytes.get(word) {
        Some(b'=' | b':') => word > 0,
        Some(b'"' | b'\'') => word == 0,
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redact(text: &str) -> Option<String> {
        redact_assignments(text, &SecretKeys::default())
    }

    const CASES: &[(&str, &str)] = &[
        ("password=LEAK", "password=[redacted]"),
        ("the password: LEAK.", "the password: [redacted]."),
        ("Password = LEAK, user = bob", "Password = [redacted], user = bob"),
        ("https://h/p?a=1&token=LEAK&b=2#c", "https://h/p?a=1&token=[redacted]&b=2#c"),
        ("https://h/p?user[password]=LEAK", "https://h/p?user[password]=[redacted]"),
        ("host=h;password=LE&A;K;db=d", "host=h;password=[redacted];db=d"),
        ("secret='LE AK' x", "secret='[redacted]' x"),
        (r#"secret="LE \" AK" x"#, r#"secret="[redacted]" x"#),
        (r#"Some { api_key: "LEAK", n: 1 }"#, r#"Some { api_key: "[redacted]", n: 1 }"#),
        (r#"token: Some("LE AK"), n: 1"#, "token: [redacted]), n: 1"),
        ("tokens=[LEAK, LEAK] n=1", "tokens=[redacted] n=1"),
        ("**Password:** LEAK\nnext", "**Password:** [redacted]\nnext"),
        ("`passwd`: `LEAK`", "`passwd`: [redacted]`"),
        ("API key: LEAK, gone", "API key: [redacted], gone"),
        ("passphrase: LE AK LE\nnext", "passphrase: [redacted]\nnext"),
        ("Authorization: Digest u=LEAK, r=LEAK\r\nHost: h", "Authorization: [redacted]\r\nHost: h"),
        ("Cookie: a=LEAK; b=\"LEAK\"; c=LEAK", "Cookie: [redacted]"),
        (
            r#"{"header":"Cookie: a=LEAK; b=LEAK","n":1}"#,
            r#"{"header":"Cookie: [redacted]","n":1}"#,
        ),
        (
            r#"{"t":"{\"note\":\"token=LEAK\",\"n\":1}"}"#,
            r#"{"t":"{\"note\":\"token=[redacted]\",\"n\":1}"}"#,
        ),
        (r#"{"env":"PGPASSWORD=LEAK\nX=1"}"#, r#"{"env":"PGPASSWORD=[redacted]\nX=1"}"#),
        ("postgres://bob:LE:AK@host/db", "postgres://bob:[redacted]@host/db"),
        ("DB_PWD=LEAK", "DB_PWD=[redacted]"),
        ("mot_de_passe_token=LEAK", "mot_de_passe_token=[redacted]"),
    ];

    #[test]
    fn e7_values_of_secret_keys_in_text_are_redacted() {
        for (text, redacted) in CASES {
            let found = redact(text);
            assert_eq!(found.as_deref(), Some(*redacted), "{text}");
            assert_eq!(redact(redacted), None, "redacting again changes nothing: {redacted}");
        }
    }

    #[test]
    fn e7_text_without_secret_values_is_unchanged() {
        for text in [
            "max_tokens=100, tokens: 1,234 of 4,000",
            "token: null, password: false, secret=",
            "auth::token::Kind: x",
            "at 12:30 = noon; key=x; https://host:80/p",
            "password:\n  next line",
            "secretary: Ann",
            r#"{"a":"token=","b":1}"#,
            "token: ****",
            "",
        ] {
            assert_eq!(redact(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn e7_value_is_redacted_in_any_context(
            before in r#"([a-z "'{},:=\n])*"#, separator in "=|: | = |:=", secret in "XX[A-Z0-9+/#!.,;&()-]{0,30}XX"
        ) {
            let text = format!("{before} my_token{separator}{secret} after");
            let redacted = redact(&text).unwrap_or(text);
            prop_assert!(!redacted.contains(&secret), "{redacted}");
        }

        #[test]
        fn e7_arbitrary_text_never_panics(text in r#"([{}\[\],:="'&;\\ \n]|token|password|://|@|é|\PC){0,60}"#) {
            redact(&text);
        }
    }
}
