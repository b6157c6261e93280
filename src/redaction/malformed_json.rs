//! Redacts secrets in JSON that cannot be parsed because it was truncated or badly written by a
//! model (E7).
//!
//! A quoted text is a key if a colon follows its closing quote, no matter how malformed the text
//! before it is. The number of backslashes before a quote determines its string nesting level. The
//! scan is one pass; a redacted value keeps its quotes, and all other text is unchanged.

use super::{REDACTED, is_secret_key};
use memchr::memchr2_iter;
use std::{borrow::Cow, ops::Range};

/// Maximum nesting levels of strings within strings at which escaped keys are decoded.
const UNESCAPE_DEPTH_MAX: usize = 4;

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
struct SecretSpan {
    /// Index after the value.
    end: usize,
    /// The ranges of the opening and the closing quote to write around the placeholder.
    delimiters: [Range<usize>; 2],
}

/// Returns `text` with the values of secret keys replaced, or `None` if it has none.
pub(super) fn redact_malformed(text: &str) -> Option<String> {
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
        if !is_secret_escaped_key(&text[key_start..key_end]) {
            continue;
        }
        let Some(value) = secret_span(bytes, start, quote) else { continue };
        let [open, close] = value.delimiters.map(|range| &text[range]);
        clean.extend([&text[copied..start], open, REDACTED, close]);
        copied = value.end;
        previous = [None; 2];
    }
    (copied > 0).then(|| clean + &text[copied..])
}

/// True if the key is secret after up to [`UNESCAPE_DEPTH_MAX`] levels of unescaping.
fn is_secret_escaped_key(key: &str) -> bool {
    let mut key = Cow::Borrowed(key);
    for _ in 0..UNESCAPE_DEPTH_MAX {
        if !key.contains('\\') {
            break;
        }
        let Ok(plain) = serde_json::from_str::<String>(&format!("\"{key}\"")) else { break };
        key = Cow::Owned(plain);
    }
    is_secret_key(&key)
}

/// Returns the index at which a value starts if a colon follows at `index`, with optional space.
fn find_value_start(bytes: &[u8], index: usize) -> Option<usize> {
    let skip_space = |index: usize| {
        let space = bytes[index..].iter().take_while(|byte| byte.is_ascii_whitespace());
        index + space.count()
    };
    let colon = skip_space(index);
    (bytes.get(colon) == Some(&b':')).then(|| skip_space(colon + 1))
}

/// Returns the span of the value at `start` under a key whose closing quote is `key`. `None` for
/// an empty value and for `null`.
fn secret_span(bytes: &[u8], start: usize, key: Quote) -> Option<SecretSpan> {
    let slashes = bytes[start..].iter().take_while(|byte| **byte == b'\\').count();
    let key_quote = key.position - key.backslashes..key.position + 1;
    match bytes.get(start + slashes)? {
        sign @ (b'"' | b'\'') => Some(string_span(bytes, start, slashes, *sign)),
        b'{' | b'[' => Some(SecretSpan {
            end: nested_end(bytes, start, key.backslashes),
            delimiters: [key_quote.clone(), key_quote],
        }),
        _ => {
            let is_scalar =
                |byte: &&u8| !matches!(byte, b',' | b'}' | b']') && !byte.is_ascii_whitespace();
            let end = start + bytes[start..].iter().take_while(is_scalar).count();
            let is_empty = matches!(&bytes[start..end], b"" | b"null");
            (!is_empty).then(|| SecretSpan { end, delimiters: [key_quote.clone(), key_quote] })
        }
    }
}

/// Returns the span of a string: up to its closing quote, the end of an enclosing string, or the
/// end of `bytes`.
fn string_span(bytes: &[u8], start: usize, slashes: usize, sign: u8) -> SecretSpan {
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
fn nested_end(bytes: &[u8], start: usize, own_slashes: usize) -> usize {
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

    /// Malformed texts and their redacted forms.
    const CASES: &[(&str, &str)] = &[
        (r#"{"a":1,"password":"LEAK","n":"#, r#"{"a":1,"password":"[redacted]","n":"#),
        (r#"{"password":"LE"#, r#"{"password":"[redacted]"#),
        (r#"{"password":"L\"E\\\"AK\\","b":2"#, r#"{"password":"[redacted]","b":2"#),
        (r#"[{"token" : 12345, "b": 1}"#, r#"[{"token" : "[redacted]", "b": 1}"#),
        (r#"{"token":true}}"#, r#"{"token":"[redacted]"}}"#),
        (r#"{"token":null, "token":"#, r#"{"token":null, "token":"#),
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
            assert_eq!(redact_malformed(text).as_deref().unwrap_or(text), *redacted, "{text}");
        }
    }

    #[test]
    fn e7_malformed_json_without_secret_keys_is_unchanged() {
        for text in
            ["{not json", r#"{"max_tokens":1,"say":"password","#, r#"["token","a"#, "{\"", ""]
        {
            assert_eq!(redact_malformed(text), None, "{text}");
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
            let redacted = redact_malformed(&text).unwrap_or(text);
            let rest = redacted.replace(&*before, "");
            prop_assert!(!rest.contains(['X', 'Y', 'Z']) || before.contains(['X', 'Y', 'Z']), "{redacted}");
        }

        #[test]
        fn e7_arbitrary_text_never_panics(text in r#"[{\[]([{}\[\],:"' \\]|"token"|\\"secret\\"|\PC|\n){0,60}"#) {
            let redacted = redact_malformed(&text);
            prop_assert!(redacted.is_none_or(|redacted| redacted.contains(REDACTED)));
        }
    }
}
