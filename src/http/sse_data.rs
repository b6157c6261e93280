//! The JSON of `data:` lines in server-sent events.
//!
//! JSON escapes CR and LF, the line breaks of the SSE format. Some clients, such as httpx's
//! `iter_lines`, also split at the line breaks that only Unicode knows: U+0085, U+2028 and U+2029.
//! These are escaped here as well. Frames are encoded often, so text without them is only scanned.

use serde_json::Value;

/// The first bytes of the UTF-8 forms of U+0085 and of U+2028 and U+2029.
const FIRST_BYTES: [u8; 2] = [0xC2, 0xE2];

/// Formats `value` as the JSON of a `data:` line.
pub(super) fn format_sse_data(value: &Value) -> String {
    let mut text = value.to_string().into_bytes();
    escape_unicode_line_breaks(&mut text, 0);
    String::from_utf8(text).unwrap_or_default()
}

/// Escapes the Unicode line breaks of the JSON that `text` contains from `start` on. In JSON they
/// can only occur inside of strings.
pub(super) fn escape_unicode_line_breaks(text: &mut Vec<u8>, start: usize) {
    if find_line_break(&text[start..]).is_none() {
        return;
    }
    let json = text.split_off(start);
    let mut rest = json.as_slice();
    while let Some((position, length, escape)) = find_line_break(rest) {
        text.extend_from_slice(&rest[..position]);
        text.extend_from_slice(escape);
        rest = &rest[position + length..];
    }
    text.extend_from_slice(rest);
}

/// Returns the position, the length and the escape of the first line break in `text`.
fn find_line_break(text: &[u8]) -> Option<(usize, usize, &'static [u8])> {
    let mut positions = memchr::memchr2_iter(FIRST_BYTES[0], FIRST_BYTES[1], text);
    positions.find_map(|position| {
        let (length, escape) = escape_of(&text[position..])?;
        Some((position, length, escape))
    })
}

/// Returns the length and the escape of the line break that `text` starts with, if any.
fn escape_of(text: &[u8]) -> Option<(usize, &'static [u8])> {
    match text {
        [0xC2, 0x85, ..] => Some((2, br"\u0085")),
        [0xE2, 0x80, 0xA8, ..] => Some((3, br"\u2028")),
        [0xE2, 0x80, 0xA9, ..] => Some((3, br"\u2029")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e1_line_breaks_of_unicode_are_escaped_in_sse_data() {
        for (text, expected) in [
            ("", r#"{"text":""}"#),
            ("plain é — ½", r#"{"text":"plain é — ½"}"#),
            ("\u{85}", r#"{"text":"\u0085"}"#),
            ("a\u{2028}\u{2029}b\u{2028}", r#"{"text":"a\u2028\u2029b\u2028"}"#),
            ("\u{2014}\u{85}\u{b0}", r#"{"text":"—\u0085°"}"#),
        ] {
            let value = json!({"text": text});
            let data = format_sse_data(&value);
            assert_eq!(data, expected);
            assert_eq!(serde_json::from_str::<Value>(&data).unwrap(), value);
        }
        // Keys of objects are strings, too. Text before the start is not changed.
        let mut text = "\u{2028}{\"\u{2029}\":1}".as_bytes().to_vec();
        escape_unicode_line_breaks(&mut text, 3);
        assert_eq!(String::from_utf8(text).unwrap(), "\u{2028}{\"\\u2029\":1}");
    }
}
