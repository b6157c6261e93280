//! Repairs invalid JSON of servers (E6): `NaN` and numbers beyond the range of a double become null;
//! lone surrogates and raw control characters in strings are replaced. Used by `stdio` and
//! `oversized_message`, only for text that does not parse.

use serde_json::Value;

/// Returns the repaired text. Valid JSON keeps its meaning.
pub(super) fn repair_json(text: &str) -> String {
    let mut repaired = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let consumed = if first == '"' {
            repair_string(rest, &mut repaired)
        } else if is_bare(first) {
            repair_bare(rest, &mut repaired)
        } else {
            repaired.push(first);
            first.len_utf8()
        };
        rest = &rest[consumed..];
    }
    repaired
}

fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.')
}

/// Repairs the number or bare word at the start of `text` and returns its length.
fn repair_bare(text: &str, repaired: &mut String) -> usize {
    let end = text.find(|c| !is_bare(c)).unwrap_or(text.len());
    let word = &text[..end];
    let is_json = serde_json::from_str::<Value>(word).is_ok();
    repaired.push_str(if is_json { word } else { "null" });
    end
}

/// Repairs the string at the start of `text` and returns its length.
fn repair_string(text: &str, repaired: &mut String) -> usize {
    repaired.push('"');
    let mut index = 1;
    while let Some(c) = text[index..].chars().next() {
        match c {
            '"' => {
                repaired.push('"');
                return index + 1;
            }
            '\\' => index += repair_escape(&text[index..], repaired),
            control if control < ' ' => {
                repaired.push_str(&format!("\\u{:04x}", u32::from(control)));
                index += 1;
            }
            other => {
                repaired.push(other);
                index += other.len_utf8();
            }
        }
    }
    index
}

/// Repairs the escape sequence at the start of `text` and returns its length.
fn repair_escape(text: &str, repaired: &mut String) -> usize {
    let unit = |index: usize| {
        let digits = text.get(index..index + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let kept = match (unit(0), unit(6)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
        (Some(0xd800..=0xdfff), _) => {
            repaired.push_str("\\ufffd");
            return 6;
        }
        (Some(_), _) => 6,
        (None, _) => match text[1..].chars().next() {
            Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => 2,
            // Not an escape sequence: the backslash is literal.
            Some(_) | None => {
                repaired.push_str("\\\\");
                return 1;
            }
        },
    };
    repaired.push_str(&text[..kept]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn repaired(text: &str) -> Value {
        serde_json::from_str(&repair_json(text)).unwrap()
    }

    #[test]
    fn valid_json_is_unchanged() {
        let text =
            r#" {"a": [1, -2.5e10, true, false, null, "x\ny\u00e9\ud83d\ude80\"\\"], "": {}} "#;
        assert_eq!(repaired(text), serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(repair_json(text), text);
    }

    #[test]
    fn e6_values_outside_json_become_null() {
        assert_eq!(
            repaired(r#"[NaN, Infinity, -Infinity, 1.e5, "NaN"]"#),
            json!([null, null, null, null, "NaN"])
        );
        let numbers = "[1e+999,18446744073709551616]";
        assert_eq!(repaired(numbers).to_string(), numbers);
    }

    #[test]
    fn e6_lone_surrogates_and_raw_control_characters_are_replaced() {
        assert_eq!(
            repaired(r#"["\ud800", "\udc00x", "\ud800\u0041"]"#),
            json!(["\u{fffd}", "\u{fffd}x", "\u{fffd}A"])
        );
        assert_eq!(repaired("[\"a\tb\u{0}\"]"), json!(["a\tb\u{0}"]));
        assert_eq!(repaired(r#"["C:\path", "\u12"]"#), json!(["C:\\path", "\\u12"]));
    }

    #[test]
    fn arbitrary_text_does_not_panic() {
        for text in ["", "\"", "\"\\", "\"\\u", "\\", "é\"\\u00é", "-", "\"\\ud83d\\"] {
            repair_json(text);
        }
    }
}
