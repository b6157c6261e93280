//! Redacts secrets from everything that leaves the process (E7). Pure.
//!
//! The event log holds real values, because a resumed session must run exactly the calls that were
//! approved. Everything that encodes values for clients, administrators or logs uses a [`Redactor`].
//! This module owns the list of secret keys and the configured secrets; it does not know transports.

mod malformed_json;
mod redacted_view;
mod restore;

use memchr::memmem;
use regex::{NoExpand, Regex};
use serde_json::Value;
use std::borrow::Cow;

pub use redacted_view::RedactedView;

/// The placeholder that replaces a secret.
pub use greenroom_core::scrub::REDACTED;

/// Minimum bytes of a configured secret. Shorter texts would redact ordinary words.
pub const SECRET_BYTES_MIN: usize = 8;

/// Suffixes of secret keys. Case, spaces and the characters `-`, `_` and `.` are ignored, so that
/// `api_key`, `X-Api-Key` and `accessToken` match.
const SECRET_KEYS: [&str; 6] = ["password", "token", "apikey", "authorization", "secret", "cookie"];

/// Maximum nesting depth of values; deeper values are redacted completely.
const DEPTH_MAX: usize = 128;

/// Replaces secrets with [`REDACTED`].
#[derive(Debug, Default)]
pub struct Redactor {
    /// Longest first, so that a secret that contains another one is replaced completely.
    secrets: Vec<SecretMatcher>,
    patterns: Vec<Regex>,
}

/// A configured secret and its prepared searcher. Preparing the searcher takes longer than searching
/// a short text.
#[derive(Debug)]
struct SecretMatcher {
    text: Box<str>,
    finder: memmem::Finder<'static>,
}

impl Redactor {
    /// Creates a redactor that replaces the values of secret keys and all occurrences of `secrets`,
    /// also where they are escaped once or twice as JSON strings. Ignores secrets shorter than
    /// [`SECRET_BYTES_MIN`].
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let is_long_enough = |secret: &String| secret.len() >= SECRET_BYTES_MIN;
        // A log line is JSON and may quote JSON.
        let spellings = |secret: String| {
            let once = escape_json(&secret);
            let twice = escape_json(&once);
            [secret, once, twice]
        };
        let mut secrets: Vec<String> =
            secrets.into_iter().filter(is_long_enough).flat_map(spellings).collect();
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        let matcher = |text: String| {
            let finder = memmem::Finder::new(&text).into_owned();
            SecretMatcher { text: text.into_boxed_str(), finder }
        };
        Self { secrets: secrets.into_iter().map(matcher).collect(), patterns: Vec::new() }
    }

    /// Adds patterns whose matches are redacted too.
    pub fn with_patterns(self, patterns: Vec<Regex>) -> Self {
        Self { patterns, ..self }
    }

    /// Returns `text` with the configured secrets replaced first, then the matches of the patterns.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for SecretMatcher { text, finder } in &self.secrets {
            if finder.find(clean.as_bytes()).is_some() {
                clean = Cow::Owned(clean.replace(&**text, REDACTED));
            }
        }
        for pattern in &self.patterns {
            if let Cow::Owned(redacted) = pattern.replace_all(&clean, NoExpand(REDACTED)) {
                clean = Cow::Owned(redacted);
            }
        }
        clean
    }

    /// Returns the redacted value ([`Self::redact`]).
    pub fn redact_value(&self, value: Value) -> Value {
        view_to_value(&self.redact(&value))
    }

    /// Returns `text` with its secrets replaced if it begins like a JSON object or array, complete
    /// or not, and contains a secret; `None` otherwise.
    fn redact_json_text(&self, text: &str, depth: usize) -> Option<String> {
        if !text.trim_start().starts_with(['{', '[']) {
            return None;
        }
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            let clean = malformed_json::redact_malformed(text)?;
            return Some(self.redact_text(&clean).into_owned());
        };
        let clean = view_to_value(&self.redact_at_depth(&value, depth + 1));
        (clean != value).then(|| clean.to_string())
    }
}

/// Redacts the keys of one object, in their order. Redacted keys after the first one are numbered,
/// so that the keys of the object remain distinct.
#[derive(Debug, Default)]
struct RedactedKeys {
    redacted_count: usize,
}

impl RedactedKeys {
    fn redact_next<'k>(&mut self, redactor: &Redactor, key: &'k str) -> Cow<'k, str> {
        let shown = redactor.redact_text(key);
        if matches!(shown, Cow::Borrowed(_)) {
            return shown;
        }
        self.redacted_count += 1;
        if self.redacted_count == 1 {
            shown
        } else {
            format!("{shown} ({})", self.redacted_count).into()
        }
    }
}

/// Serializes a redacted view to a JSON value.
fn view_to_value(view: &RedactedView<'_, Value>) -> Value {
    // Serializing a JSON value cannot fail.
    serde_json::to_value(view).unwrap_or_else(|_| REDACTED.into())
}

/// Returns `text` escaped as the content of a JSON string, without the quotes.
fn escape_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// True if the value under `key` is secret because of its key.
pub(crate) fn is_secret_key(key: &str) -> bool {
    // Nearly all keys are ASCII, and this check runs for each key of each frame.
    if key.is_ascii() {
        return has_secret_suffix(key.as_bytes());
    }
    has_secret_suffix(key.to_lowercase().as_bytes())
}

/// Same as [`is_secret_key`], for a key whose letters beyond ASCII are in lower case.
fn has_secret_suffix(key: &[u8]) -> bool {
    let is_letter = |byte: &&u8| !matches!(byte, b'-' | b'_' | b' ' | b'.');
    // Compares from the end, because most keys differ from each suffix in the last letter.
    let letters = || key.iter().rev().filter(is_letter).map(u8::to_ascii_lowercase);
    SECRET_KEYS.iter().any(|secret| letters().take(secret.len()).eq(secret.bytes().rev()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e7_secret_keys_are_matched_in_any_spelling() {
        let value = json!({
            "Password": "x", "access_token": 5, "X-Api-Key": ["a"], "apiKey": "k",
            "Authorization": {"a": 1}, "client_secret": "s", "Set-Cookie": "c", "token": null,
            "clé-Token": "t", "to\u{212a}en": "t",
            "max_tokens": 7, "input_tokens": 9, "keyboard": "q", "secretary": "Ann",
            "deep": [{"refresh-token": "r", "name": "n"}],
        });
        let expected = json!({
            "Password": REDACTED, "access_token": REDACTED, "X-Api-Key": REDACTED,
            "apiKey": REDACTED, "Authorization": REDACTED, "client_secret": REDACTED,
            "Set-Cookie": REDACTED, "token": null, "clé-Token": REDACTED, "to\u{212a}en": REDACTED,
            "max_tokens": 7, "input_tokens": 9,
            "keyboard": "q", "secretary": "Ann",
            "deep": [{"refresh-token": REDACTED, "name": "n"}],
        });
        assert_eq!(Redactor::default().redact_value(value), expected);
    }

    #[test]
    fn e7_configured_secrets_are_redacted_everywhere_longest_first() {
        let secrets = ["hunter2hunter2", "hunter2h", "short"].map(str::to_owned);
        let redactor = Redactor::new(secrets);
        assert_eq!(redactor.redact_text("a hunter2hunter2 b hunter2h short"), {
            "a [redacted] b [redacted] short"
        });
        let value = json!({"hunter2hunter2": ["so hunter2h!"], "n": 1});
        let expected = json!({"[redacted]": ["so [redacted]!"], "n": 1});
        assert_eq!(redactor.redact_value(value), expected);
    }

    #[test]
    fn e7_escaped_configured_secrets_are_redacted() {
        let secret = "a\"b\\c\nd\"e";
        let redactor = Redactor::new([secret.to_owned()]);
        let once = json!(secret).to_string();
        let twice = json!(once).to_string();
        assert_eq!(redactor.redact_text(secret), REDACTED);
        assert_eq!(redactor.redact_text(&once), json!(REDACTED).to_string());
        assert_eq!(redactor.redact_text(&twice), json!(json!(REDACTED).to_string()).to_string());
    }

    #[test]
    fn e7_json_in_text_is_redacted_and_other_text_is_unchanged() {
        let redactor = Redactor::default();
        let inner = json!({"api_key": "k", "n": 1}).to_string();
        let clean = redactor.redact_value(json!({"text": inner}));
        let text = clean["text"].as_str().unwrap();
        let expected = json!({"api_key": REDACTED, "n": 1});
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);
        for same in ["{ \"a\" : 1 }", "{not json", "[1,  2]", "plain"] {
            assert_eq!(redactor.redact_value(json!(same)), json!(same));
        }
    }

    #[test]
    fn e7_matches_of_configured_patterns_are_redacted_everywhere() {
        let patterns = [r"\b\d{3}-\d{2}-\d{4}\b", "(?i)badge [a-z]+"];
        let patterns = patterns.map(|pattern| Regex::new(pattern).unwrap()).to_vec();
        let redactor = Redactor::new(["k3y-k3y-k3y".to_owned()]).with_patterns(patterns);
        let value =
            json!({"123-45-6789": ["Badge blue of k3y-k3y-k3y", 7], "t": r#"{"n":"123-45-6789"}"#});
        let expected =
            json!({REDACTED: ["[redacted] of [redacted]", 7], "t": r#"{"n":"[redacted]"}"#});
        assert_eq!(redactor.redact_value(value), expected);
        assert!(matches!(redactor.redact_text("1234-45-6789"), Cow::Borrowed(_)));
    }

    #[test]
    fn e7_redacted_keys_remain_distinct() {
        let redactor = Redactor::new(["k3y-k3y-k3y", "s3cr3t-s3cr3t"].map(str::to_owned));
        let value = json!({"a": 1, "k3y-k3y-k3y": 2, "s3cr3t-s3cr3t": {"n": 3}});
        let expected = json!({"a": 1, "[redacted]": 2, "[redacted] (2)": {"n": 3}});
        assert_eq!(redactor.redact_value(value), expected);
    }

    #[test]
    fn e7_truncated_json_is_redacted() {
        let redactor = Redactor::new(["hunter2hunter2".to_owned()]);
        let cut = json!([r#"{"password":"p","say":"hunter2hunter2","n"#, "{ hunter2hunter2"]);
        let expected = json!([r#"{"password":"[redacted]","say":"[redacted]","n"#, "{ [redacted]"]);
        assert_eq!(redactor.redact_value(cut), expected);
    }

    #[test]
    fn values_nested_too_deep_are_redacted_whole() {
        let mut value = json!({"password": "p"});
        for _ in 0..200 {
            value = Value::Array(vec![value]);
        }
        let clean = Redactor::default().redact_value(value).to_string();
        assert!(clean.contains(REDACTED) && !clean.contains("\"p\""));
    }
}
