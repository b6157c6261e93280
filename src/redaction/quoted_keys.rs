//! Redacts the values of quoted secret keys in text: JSON inside a sentence, and JSON that cannot be
//! parsed because it was truncated or badly written by a model (E7).
//!
//! A quoted text is a key if a colon or an equals sign follows its closing quote, no matter how
//! malformed the text before it is. The number of backslashes before a quote determines its string
//! nesting level. The scan is one pass; a redacted value keeps its quotes, and all other text is
//! unchanged.

use super::{
    REDACTED,
    secret_keys::{KeyKind, SecretKeys},
};
use memchr::memchr2_iter;
use std::{borrow::Cow, ops::Range};

/// Maximum nesting levels of strings within strings at which escaped keys are decoded.
const UNESCAPE_DEPTH_MAX: usize = 4;
/// Maximum bytes of a key, with its escapes. A longer quoted text is not a key.
const KEY_BYTES_MAX: usize = 512;

/// A single (as in Python) or double quote and the backslashes directly before it.
#[derive(Clone, Copy)]
struct Quote {
    position: usize,
    byte: u8,
    backslashes: usize,
}

impl Quote {
    /// Returns the quotes of `bytes` from index `from`.
    fn all(bytes: &[u8], from: usize) -> impl Iterator<Item = Self> {
        memchr2_iter(b'"', b'\'', &bytes[from..]).map(move |offset| {
            let position = from + offset;
            let slashes = bytes[from..position].iter().rev().take_while(|byte| **byte == b'\\');
            Self { position, byte: bytes[position], backslashes: slashes.count() }
        })
    }

    /// True if this quote ends a string whose opening quote follows `slashes` backslashes. Each
    /// level of nesting doubles the backslashes.
    fn closes(self, slashes: usize) -> bool {
        self.backslashes < slashes || self.backslashes % (2 * (slashes + 1)) == slashes
    }
}

/// The extent of a value under a secret key.
pub(super) struct SecretSpan {
    /// Index after the value.
    pub(super) end: usize,
    /// The ranges of the opening and the closing quote to write around the placeholder.
    pub(super) delimiters: [Range<usize>; 2],
}

/// Returns `text` with the values of quoted secret keys replaced, or `None` if it has none.
pub(super) fn redact_quoted_keys(text: &str, keys: &SecretKeys) -> Option<String> {
    let bytes = text.as_bytes();
    let mut clean = String::new();
    let mut copied = 0;
    // The previous single quote and the previous double quote.
    let mut previous: [Option<Quote>; 2] = [None; 2];
    for quote in Quote::all(bytes, 0) {
        if quote.position < copied {
            continue;
        }
        let opening = previous[usize::from(quote.byte == b'"')].replace(quote);
        let (Some(opening), Some(start)) = (opening, find_value_start(bytes, quote.position + 1))
        else {
            continue;
        };
        let key_start = opening.position + 1;
        let key_end = (quote.position - quote.backslashes).max(key_start);
        let kind = kind_of_escaped_key(&text[key_start..key_end], keys);
        let Some(value) = secret_span(text, start, quote, kind) else { continue };
        let [open, close] = value.delimiters.map(|range| &text[range]);
        clean.extend([&text[copied..start], open, REDACTED, close]);
        copied = value.end;
        previous = [None; 2];
    }
    (copied > 0).then(|| clean + &text[copied..])
}

/// Returns the kind of the key after up to [`UNESCAPE_DEPTH_MAX`] levels of unescaping.
fn kind_of_escaped_key(key: &str, keys: &SecretKeys) -> KeyKind {
    if key.len() > KEY_BYTES_MAX {
        return KeyKind::Plain;
    }
    let mut key = Cow::Borrowed(key);
    for _ in 0..UNESCAPE_DEPTH_MAX {
        if !key.contains('\\') {
            break;
        }
        let Ok(plain) = serde_json::from_str::<String>(&format!("\"{key}\"")) else { break };
        key = Cow::Owned(plain);
    }
    keys.kind(&key)
}

/// Returns the index at which a value starts if a colon, `=` or `=>` follows at `index`, with
/// optional space.
fn find_value_start(bytes: &[u8], index: usize) -> Option<usize> {
    let skip_space = |index: usize| {
        let space = bytes[index..].iter().take_while(|byte| byte.is_ascii_whitespace());
        index + space.count()
    };
    let separator = skip_space(index);
    let length = match bytes[separator..] {
        [b'=', b'>', ..] => 2,
        [b':' | b'=', ..] => 1,
        _ => return None,
    };
    Some(skip_space(separator + length))
}

/// Returns the span of the value at `start` under a key of the given kind whose closing quote is
/// `key`. `None` if the value is visible.
fn secret_span(text: &str, start: usize, key: Quote, kind: KeyKind) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    if kind == KeyKind::Plain || text[start..].starts_with(REDACTED) {
        return None;
    }
    let slashes = bytes[start..].iter().take_while(|byte| **byte == b'\\').count();
    let key_quote = key.position - key.backslashes..key.position + 1;
    match bytes.get(start + slashes)? {
        sign @ (b'"' | b'\'') => Some(string_span(bytes, start, slashes, *sign)),
        b'{' | b'[' => Some(SecretSpan {
            end: nested_end(bytes, start, key.backslashes),
            delimiters: [key_quote.clone(), key_quote],
        }),
        _ => {
            let end = scalar_end(bytes, start);
            let is_visible = is_visible_scalar(&text[start..end], kind);
            (!is_visible).then(|| SecretSpan { end, delimiters: [key_quote.clone(), key_quote] })
        }
    }
}

/// Returns the index after an unquoted value: a number, a word, or a word with quoted or bracketed
/// content, such as `String("…")` and `Object {…}` in Rust's debug notation.
fn scalar_end(bytes: &[u8], start: usize) -> usize {
    let mut index = start;
    while let Some(byte) = bytes.get(index) {
        match byte {
            b'"' => {
                let inside = &bytes[index + 1..];
                index += 1 + memchr::memchr(b'"', inside).unwrap_or(inside.len());
            }
            b'{' | b'[' => return nested_end(bytes, index, 0),
            b',' | b'}' | b']' => break,
            byte if byte.is_ascii_whitespace() => {
                let is_name = bytes[start..index].iter().all(u8::is_ascii_alphabetic);
                let opens = matches!(bytes.get(index + 1), Some(b'{' | b'['));
                if index == start || !is_name || !opens {
                    break;
                }
            }
            _ => {}
        }
        index += 1;
    }
    index.min(bytes.len())
}

/// True for unquoted values that are no secret: nothing, a boolean, and the number of a count.
pub(super) fn is_visible_scalar(text: &str, kind: KeyKind) -> bool {
    const NOTHING: [&str; 7] = ["", "null", "none", "nil", "undefined", "true", "false"];
    let is_number = || {
        text.starts_with(|first: char| first.is_ascii_digit() || first == '-')
            && text.bytes().all(|byte| byte.is_ascii_digit() || b".,_+-eE%".contains(&byte))
    };
    kind == KeyKind::Plain
        || NOTHING.iter().any(|nothing| text.eq_ignore_ascii_case(nothing))
        || (kind == KeyKind::Count && is_number())
}

/// Returns the span of a string: up to its closing quote, the end of an enclosing string, or the
/// end of `bytes`.
pub(super) fn string_span(bytes: &[u8], start: usize, slashes: usize, sign: u8) -> SecretSpan {
    let inside = start + slashes + 1;
    let end = Quote::all(bytes, inside).find(|quote| quote.byte == sign && quote.closes(slashes));
    let (end, close) = match end {
        Some(quote) if quote.backslashes >= slashes => {
            (quote.position + 1, quote.position - slashes..quote.position + 1)
        }
        Some(enclosing) => (enclosing.position - enclosing.backslashes, 0..0),
        None => (bytes.len(), 0..0),
    };
    SecretSpan { end, delimiters: [start..inside, close] }
}

/// Returns the index after the object or array at `start`: after its closing bracket, at the end
/// of an enclosing string, or the end of `bytes`.
pub(super) fn nested_end(bytes: &[u8], start: usize, own_slashes: usize) -> usize {
    let (mut depth, mut slashes) = (0_usize, 0);
    let mut open_quote = None;
    for (position, byte) in bytes.iter().enumerate().skip(start) {
        match (*byte, open_quote) {
            (sign @ (b'"' | b'\''), None) => {
                if slashes < own_slashes {
                    return position - slashes;
                }
                open_quote = Some(sign);
            }
            (sign @ (b'"' | b'\''), Some(opened))
                if sign == opened
                    && (Quote { position, byte: sign, backslashes: slashes })
                        .closes(own_slashes) =>
            {
                if slashes < own_slashes {
                    return position - slashes;
                }
                open_quote = None;
            }
            (b'{' | b'[', None) => depth += 1,
            (b'}' | b']', None) => {
                depth -= 1;
                if depth == 0 {
                    return position + 1;
                }
            }
            _ => {}
        }
        slashes = if *byte == b'\\' { slashes + 1 } else { 0 };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn redact(text: &str) -> Option<String> {
        redact_quoted_keys(text, &SecretKeys::default())
    }

    /// Malformed texts and their redacted forms.
    const CASES: &[(&str, &str)] = &[
        (r#"{"a":1,"password":"LEAK","n":"#, r#"{"a":1,"password":"[redacted]","n":"#),
        (r#"{"password":"LE"#, r#"{"password":"[redacted]"#),
        (r#"{"password":"L\"E\\\"AK\\","b":2"#, r#"{"password":"[redacted]","b":2"#),
        (r#"[{"token" : 12345, "b": 1}"#, r#"[{"token" : "[redacted]", "b": 1}"#),
        (r#"{"token":tru3}}"#, r#"{"token":"[redacted]"}}"#),
        (
            r#"{"token":null, "a_token":true, "token":"#,
            r#"{"token":null, "a_token":true, "token":"#,
        ),
        (r#"{"max_tokens":5, "tokens":["L"], x"#, r#"{"max_tokens":5, "tokens":"[redacted]", x"#),
        // In a sentence, and in other notations.
        (
            r#"login failed {"password":"LEAK","n":1} (it's over)"#,
            r#"login failed {"password":"[redacted]","n":1} (it's over)"#,
        ),
        (r#"got "api_keys" = ['LEAK', 'LEAK'] today"#, r#"got "api_keys" = "[redacted]" today"#),
        (
            r#"Object {"password": String("LEAK, LEAK"), "n": Number(1)}"#,
            r#"Object {"password": "[redacted]", "n": Number(1)}"#,
        ),
        (
            r#"{"tokens": Array [String("LEAK")], "secret": Object {"a": String("LEAK")}, "b"#,
            r#"{"tokens": "[redacted]", "secret": "[redacted]", "b"#,
        ),
        (r#"{'secret' => 'LEAK'}"#, r#"{'secret' => '[redacted]'}"#),
        (
            r#"{"password":"[redacted]","token":[redacted]}"#,
            r#"{"password":"[redacted]","token":[redacted]}"#,
        ),
        (r#"{"secret":{"a":["}",{}]},"b":{"#, r#"{"secret":"[redacted]","b":{"#),
        (r#"{"secret":["LEAK",{"a":"#, r#"{"secret":"[redacted]""#),
        // Surplus and missing quotes.
        (r#"{"a":"it"s","password":"LEAK"}"#, r#"{"a":"it"s","password":"[redacted]"}"#),
        (r#"{"a:1,"password":"LEAK"}"#, r#"{"a:1,"password":"[redacted]"}"#),
        (r#"{"pass\u0077ord":"LEAK""#, r#"{"pass\u0077ord":"[redacted]""#),
        // Strings in strings, truncated and complete.
        (r#"{"t":"{\"password\":\"LE"#, r#"{"t":"{\"password\":\"[redacted]"#),
        (r#"{"t":"{\"password\":\"LEAK","b":"#, r#"{"t":"{\"password\":\"[redacted]","b":"#),
        (
            r#"{"t":"{\"token\":\"L\\\"E\",\"n\":1}""#,
            r#"{"t":"{\"token\":\"[redacted]\",\"n\":1}""#,
        ),
        (r#"{"t":"{\"token\":[\"LEAK\"]}","b"#, r#"{"t":"{\"token\":\"[redacted]\"}","b"#),
        (r#"{"t":"{\"token\":[\"LE","b":1"#, r#"{"t":"{\"token\":\"[redacted]\"","b":1"#),
        // Python's notation.
        (r#"{'it': "it's", 'password': 'LE\'AK'}"#, r#"{'it': "it's", 'password': '[redacted]'}"#),
    ];

    #[test]
    fn e7_secret_keys_in_malformed_json_are_redacted() {
        for (text, redacted) in CASES {
            assert_eq!(redact(text).as_deref().unwrap_or(text), *redacted, "{text}");
        }
    }

    #[test]
    fn e7_malformed_json_without_secret_keys_is_unchanged() {
        for text in
            ["{not json", r#"{"max_tokens":1,"say":"password","#, r#"["token","a"#, "{\"", ""]
        {
            assert_eq!(redact(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn e7_json_truncated_anywhere_contains_no_secret(
            secret in r#"[XYZ]([XYZ]|"|\\|\n|é|\}|,){0,12}"#, before in r#"(\PC|"|\\){0,8}"#, depth in 0..4, cut in 0usize..400
        ) {
            let mut value = json!({"a": before, "password": secret, "list": [{"token": [secret, 1]}]});
            for _ in 0..depth {
                value = json!({"t": value.to_string(), "api_key": secret});
            }
            let mut text = value.to_string();
            text.truncate(text.floor_char_boundary(cut.min(text.len())));
            let redacted = redact(&text).unwrap_or(text);
            let rest = redacted.replace(&*before, "");
            prop_assert!(!rest.contains(['X', 'Y', 'Z']) || before.contains(['X', 'Y', 'Z']), "{redacted}");
        }

        #[test]
        fn e7_arbitrary_text_never_panics(text in r#"[{\[]([{}\[\],:"' \\]|"token"|\\"secret\\"|\PC|\n){0,60}"#) {
            let redacted = redact(&text);
            prop_assert!(redacted.is_none_or(|redacted| redacted.contains(REDACTED)));
        }
    }
}
