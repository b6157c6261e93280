//! Makes JSON of what careless servers take for it (E6): `NaN` and numbers beyond any double
//! become null, lone surrogates and raw control characters in texts are replaced. Used by `stdio`
//! and `oversize`, only for what does not parse as it is.

use serde_json::Value;

/// The repaired text. What was JSON before means the same after.
pub(super) fn repair_json(text: &str) -> String {
    let mut mended = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = if first == '"' {
            repair_string(rest, &mut mended)
        } else if is_bare(first) {
            repair_bare(rest, &mut mended)
        } else {
            mended.push(first);
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    mended
}

fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.')
}

/// A number or a word at the start of `text`; returns its length.
fn repair_bare(text: &str, mended: &mut String) -> usize {
    let end = text.find(|c| !is_bare(c)).unwrap_or(text.len());
    let word = &text[..end];
    let is_json = serde_json::from_str::<Value>(word).is_ok();
    mended.push_str(if is_json { word } else { "null" });
    end
}

/// The string at the start of `text`; returns its length.
fn repair_string(text: &str, mended: &mut String) -> usize {
    mended.push('"');
    let mut at = 1;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '"' => {
                mended.push('"');
                return at + 1;
            }
            '\\' => at += repair_escape(&text[at..], mended),
            control if control < ' ' => {
                mended.push_str(&format!("\\u{:04x}", u32::from(control)));
                at += 1;
            }
            other => {
                mended.push(other);
                at += other.len_utf8();
            }
        }
    }
    at
}

/// The escape at the start of `text`; returns its length.
fn repair_escape(text: &str, mended: &mut String) -> usize {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let kept = match (unit(0), unit(6)) {
        (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
        (Some(0xd800..=0xdfff), _) => {
            mended.push_str("\\ufffd");
            return 6;
        }
        (Some(_), _) => 6,
        (None, _) => match text[1..].chars().next() {
            Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => 2,
            // Not an escape: the backslash is meant.
            Some(_) | None => {
                mended.push_str("\\\\");
                return 1;
            }
        },
    };
    mended.push_str(&text[..kept]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mended(text: &str) -> Value {
        serde_json::from_str(&repair_json(text)).unwrap()
    }

    #[test]
    fn json_stays_what_it_is() {
        let text =
            r#" {"a": [1, -2.5e10, true, false, null, "x\ny\u00e9\ud83d\ude80\"\\"], "": {}} "#;
        assert_eq!(mended(text), serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(repair_json(text), text);
    }

    #[test]
    fn e6_what_json_has_no_word_for_becomes_null() {
        assert_eq!(
            mended(r#"[NaN, Infinity, -Infinity, 1e999, 18446744073709551616, "NaN"]"#),
            json!([null, null, null, null, 18446744073709551616.0, "NaN"])
        );
    }

    #[test]
    fn e6_lone_surrogates_and_raw_controls_are_made_safe() {
        assert_eq!(
            mended(r#"["\ud800", "\udc00x", "\ud800\u0041"]"#),
            json!(["\u{fffd}", "\u{fffd}x", "\u{fffd}A"])
        );
        assert_eq!(mended("[\"a\tb\u{0}\"]"), json!(["a\tb\u{0}"]));
        assert_eq!(mended(r#"["C:\path", "\u12"]"#), json!(["C:\\path", "\\u12"]));
    }

    #[test]
    fn nonsense_does_not_panic() {
        for text in ["", "\"", "\"\\", "\"\\u", "\\", "é\"\\u00é", "-", "\"\\ud83d\\"] {
            repair_json(text);
        }
    }
}
