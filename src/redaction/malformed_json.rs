//! Secrets in JSON that can't be parsed: cut off at a limit, or badly written by a model (E7).
//!
//! What is a key is told by the colon after its closing quote alone, wherever the text was broken
//! before. Text within text is found by the backslashes before its quotes. One pass; what is black
//! stays in quotes, and all else stays as it is.

use super::{REDACTED, is_secret_key};
use memchr::memchr2_iter;
use std::{borrow::Cow, ops::Range};

/// Texts within texts whose keys are read.
const UNESCAPE_DEPTH_MAX: usize = 4;

/// A quote, single as Python has it or double, and the backslashes right before it.
#[derive(Clone, Copy)]
struct Quote {
    at: usize,
    byte: u8,
    backslashes: usize,
}

impl Quote {
    /// The quotes of `bytes` from `from` on.
    fn all(bytes: &[u8], from: usize) -> impl Iterator<Item = Self> {
        memchr2_iter(b'"', b'\'', &bytes[from..]).map(move |at| {
            let slashes = bytes[from..from + at].iter().rev().take_while(|byte| **byte == b'\\');
            Self { at: from + at, byte: bytes[from + at], backslashes: slashes.count() }
        })
    }

    /// Whether a text that began behind `slashes` ends here: each text within a text doubles them.
    fn closes(self, slashes: usize) -> bool {
        self.backslashes < slashes || self.backslashes % (2 * (slashes + 1)) == slashes
    }
}

/// A value under a secret key.
struct SecretSpan {
    /// Where it ends.
    end: usize,
    /// The quotes to put what is black in.
    delimiters: [Range<usize>; 2],
}

/// `text` without the values of secret keys, if there are any.
pub(super) fn redact_malformed(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut clean = String::new();
    let mut kept = 0;
    // The quote before, of either sign.
    let mut before: [Option<Quote>; 2] = [None; 2];
    for quote in Quote::all(bytes, 0) {
        if quote.at < kept {
            continue;
        }
        let opening = before[usize::from(quote.byte == b'"')].replace(quote);
        let (Some(opening), Some(start)) = (opening, find_value_start(bytes, quote.at + 1)) else {
            continue;
        };
        let end_of_key = (quote.at - quote.backslashes).max(opening.at + 1);
        if !is_secret_escaped_key(&text[opening.at + 1..end_of_key]) {
            continue;
        }
        let Some(value) = secret_span(bytes, start, quote) else { continue };
        let [open, close] = value.delimiters.map(|range| &text[range]);
        clean.extend([&text[kept..start], open, REDACTED, close]);
        kept = value.end;
        before = [None; 2];
    }
    (kept > 0).then(|| clean + &text[kept..])
}

/// Whether a key is secret, however it is escaped.
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

/// Where a value begins, if a colon follows.
fn find_value_start(bytes: &[u8], at: usize) -> Option<usize> {
    let past_space = |at: usize| {
        let space = bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace());
        at + space.count()
    };
    let colon = past_space(at);
    (bytes.get(colon) == Some(&b':')).then(|| past_space(colon + 1))
}

/// The value that begins at `start`, behind a key that `key` closes; none where there is nothing to
/// hide.
fn secret_span(bytes: &[u8], start: usize, key: Quote) -> Option<SecretSpan> {
    let slashes = bytes[start..].iter().take_while(|byte| **byte == b'\\').count();
    let own = key.at - key.backslashes..key.at + 1;
    match bytes.get(start + slashes)? {
        sign @ (b'"' | b'\'') => Some(string_span(bytes, start, slashes, *sign)),
        b'{' | b'[' => Some(SecretSpan {
            end: nested_end(bytes, start, key.backslashes),
            delimiters: [own.clone(), own],
        }),
        _ => {
            let is_word =
                |byte: &&u8| !matches!(byte, b',' | b'}' | b']') && !byte.is_ascii_whitespace();
            let end = start + bytes[start..].iter().take_while(is_word).count();
            let has_none = matches!(&bytes[start..end], b"" | b"null");
            (!has_none).then(|| SecretSpan { end, delimiters: [own.clone(), own] })
        }
    }
}

/// A string: to the quote that ends it, or a text around it, or everything.
fn string_span(bytes: &[u8], start: usize, slashes: usize, sign: u8) -> SecretSpan {
    let inside = start + slashes + 1;
    let end = Quote::all(bytes, inside).find(|quote| quote.byte == sign && quote.closes(slashes));
    let (end, close) = match end {
        Some(quote) if quote.backslashes >= slashes => {
            (quote.at + 1, quote.at - slashes..quote.at + 1)
        }
        Some(around) => (around.at - around.backslashes, 0..0),
        None => (bytes.len(), 0..0),
    };
    SecretSpan { end, delimiters: [start..inside, close] }
}

/// Where an object or array ends that begins at `start`, or a text around it, or everything.
fn nested_end(bytes: &[u8], start: usize, slashes_of_own: usize) -> usize {
    let (mut depth, mut slashes) = (0_usize, 0);
    let mut inside = None;
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        match (*byte, inside) {
            (sign @ (b'"' | b'\''), None) => {
                if slashes < slashes_of_own {
                    return at - slashes;
                }
                inside = Some(sign);
            }
            (sign @ (b'"' | b'\''), Some(opened))
                if sign == opened
                    && (Quote { at, byte: sign, backslashes: slashes }).closes(slashes_of_own) =>
            {
                if slashes < slashes_of_own {
                    return at - slashes;
                }
                inside = None;
            }
            (b'{' | b'[', None) => depth += 1,
            (b'}' | b']', None) => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
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

    /// Each text, and what is left of it.
    const CASES: &[(&str, &str)] = &[
        (r#"{"a":1,"password":"LEAK","n":"#, r#"{"a":1,"password":"[redacted]","n":"#),
        (r#"{"password":"LE"#, r#"{"password":"[redacted]"#),
        (r#"{"password":"L\"E\\\"AK\\","b":2"#, r#"{"password":"[redacted]","b":2"#),
        (r#"[{"token" : 12345, "b": 1}"#, r#"[{"token" : "[redacted]", "b": 1}"#),
        (r#"{"token":true}}"#, r#"{"token":"[redacted]"}}"#),
        (r#"{"token":null, "token":"#, r#"{"token":null, "token":"#),
        (r#"{"secret":{"a":["}",{}]},"b":{"#, r#"{"secret":"[redacted]","b":{"#),
        (r#"{"secret":["LEAK",{"a":"#, r#"{"secret":"[redacted]""#),
        // A quote too many, and too few.
        (r#"{"a":"it"s","password":"LEAK"}"#, r#"{"a":"it"s","password":"[redacted]"}"#),
        (r#"{"a:1,"password":"LEAK"}"#, r#"{"a:1,"password":"[redacted]"}"#),
        (r#"{"pass\u0077ord":"LEAK""#, r#"{"pass\u0077ord":"[redacted]""#),
        // Texts in texts, cut and whole.
        (r#"{"t":"{\"password\":\"LE"#, r#"{"t":"{\"password\":\"[redacted]"#),
        (r#"{"t":"{\"password\":\"LEAK","b":"#, r#"{"t":"{\"password\":\"[redacted]","b":"#),
        (
            r#"{"t":"{\"token\":\"L\\\"E\",\"n\":1}""#,
            r#"{"t":"{\"token\":\"[redacted]\",\"n\":1}""#,
        ),
        (r#"{"t":"{\"token\":[\"LEAK\"]}","b"#, r#"{"t":"{\"token\":\"[redacted]\"}","b"#),
        (r#"{"t":"{\"token\":[\"LE","b":1"#, r#"{"t":"{\"token\":\"[redacted]\"","b":1"#),
        // As Python has it.
        (r#"{'it': "it's", 'password': 'LE\'AK'}"#, r#"{'it': "it's", 'password': '[redacted]'}"#),
    ];

    #[test]
    fn e7_secret_keys_are_found_in_what_is_no_json() {
        for (text, left) in CASES {
            assert_eq!(redact_malformed(text).as_deref().unwrap_or(text), *left, "{text}");
        }
    }

    #[test]
    fn e7_what_has_no_secret_keys_is_left_alone() {
        for text in
            ["{not json", r#"{"max_tokens":1,"say":"password","#, r#"["token","a"#, "{\"", ""]
        {
            assert_eq!(redact_malformed(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn e7_wherever_it_is_cut_nothing_secret_is_left(
            secret in r#"[XYZ]([XYZ]|"|\\|\n|é|\}|,){0,12}"#, before in r#"(\PC|"|\\){0,8}"#, depth in 0..4, cut in 0usize..400
        ) {
            let mut value = json!({"a": before, "password": secret, "list": [{"token": [secret, 1]}]});
            for _ in 0..depth {
                value = json!({"t": value.to_string(), "api_key": secret});
            }
            let mut text = value.to_string();
            text.truncate(text.floor_char_boundary(cut.min(text.len())));
            let left = redact_malformed(&text).unwrap_or(text);
            let told = left.replace(&*before, "");
            prop_assert!(!told.contains(['X', 'Y', 'Z']) || before.contains(['X', 'Y', 'Z']), "{left}");
        }

        #[test]
        fn e7_arbitrary_text_never_panics(text in r#"[{\[]([{}\[\],:"' \\]|"token"|\\"secret\\"|\PC|\n){0,60}"#) {
            let left = redact_malformed(&text);
            prop_assert!(left.is_none_or(|left| left.contains(REDACTED)));
        }
    }
}
