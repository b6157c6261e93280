//! Redacts secrets from everything that leaves the process (E7). Pure.
//!
//! The event log holds real values, because a resumed session must run exactly the calls that were
//! approved. Everything that encodes values for clients, administrators or logs uses a [`Redactor`].
//! It replaces the values of secret keys, in JSON and in text, credentials in text, and configured
//! secrets, and it keys digests. It does not know transports.

mod assignments;
mod auth_schemes;
#[cfg(test)]
mod decoder_fuzz;
mod keyed_digest;
mod quoted_keys;
mod redacted_view;
mod restore;
mod secret_keys;

use memchr::{memchr2, memmem};
use regex::{NoExpand, Regex};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

pub use keyed_digest::{DigestKey, KeyedDigest, redact_plain_digests};
pub use redacted_view::RedactedView;
pub use secret_keys::SecretKeys;
pub(crate) use secret_keys::is_secret_key;

/// The placeholder that replaces a secret.
pub use greenroom_core::scrub::REDACTED;

/// Minimum bytes of a configured secret. Shorter texts would redact ordinary words.
pub const SECRET_BYTES_MIN: usize = 8;

/// Maximum nesting depth of values; deeper values are redacted completely.
const DEPTH_MAX: usize = 128;

/// Replaces secrets with [`REDACTED`].
#[derive(Debug, Default)]
pub struct Redactor {
    /// Longest first, so that a secret that contains another one is replaced completely.
    secrets: Vec<SecretMatcher>,
    patterns: Vec<Regex>,
    keys: SecretKeys,
    /// The key of digests. Without it, digests are replaced.
    digest_key: Option<DigestKey>,
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
        Self { secrets: secrets.into_iter().map(matcher).collect(), ..Self::default() }
    }

    /// Adds patterns whose matches are redacted too.
    pub fn with_patterns(self, patterns: Vec<Regex>) -> Self {
        Self { patterns, ..self }
    }

    /// Adds sensitive key words ([`SecretKeys::with_added`]).
    pub fn with_keys(self, words: &[String]) -> Self {
        Self { keys: SecretKeys::with_added(words), ..self }
    }

    /// Sets the key of the digests of arguments and results. Without it, [`REDACTED`] replaces them.
    pub fn with_digest_key(self, digest_key: DigestKey) -> Self {
        Self { digest_key: Some(digest_key), ..self }
    }

    /// Returns `text` with its secrets replaced: configured secrets, the values of secret keys in
    /// JSON and in assignments, credentials after `Bearer` and `Basic`, and matches of the patterns.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for SecretMatcher { text, finder } in &self.secrets {
            if finder.find(clean.as_bytes()).is_some() {
                clean = Cow::Owned(clean.replace(&**text, REDACTED));
            }
        }
        if memchr2(b':', b'=', clean.as_bytes()).is_some() {
            clean =
                replace_if_found(clean, |text| quoted_keys::redact_quoted_keys(text, &self.keys));
            clean =
                replace_if_found(clean, |text| assignments::redact_assignments(text, &self.keys));
        }
        clean = replace_if_found(clean, auth_schemes::redact_credentials);
        for pattern in &self.patterns {
            if let Cow::Owned(redacted) = pattern.replace_all(&clean, NoExpand(REDACTED)) {
                clean = Cow::Owned(redacted);
            }
        }
        clean
    }

    /// Returns the redacted value ([`Self::redact`]). The digests in it are not recognized as such:
    /// use [`Self::redact_to_value`] for typed values.
    pub fn redact_value(&self, value: Value) -> Value {
        view_to_value(&self.redact(&value))
    }

    /// Returns a typed value as redacted JSON, with keyed digests.
    pub fn redact_to_value<T: Serialize + ?Sized>(&self, value: &T) -> Value {
        view_to_value(&self.redact(value))
    }

    /// Returns `text` with its secrets replaced if it is a JSON object or array and contains a
    /// secret; `None` otherwise.
    fn redact_json_text(&self, text: &str, depth: usize) -> Option<String> {
        if !text.trim_start().starts_with(['{', '[']) {
            return None;
        }
        let value = serde_json::from_str::<Value>(text).ok()?;
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

fn replace_if_found<'a>(
    text: Cow<'a, str>,
    replace: impl FnOnce(&str) -> Option<String>,
) -> Cow<'a, str> {
    match replace(&text) {
        Some(replaced) => Cow::Owned(replaced),
        None => text,
    }
}

/// Serializes a redacted view to a JSON value.
fn view_to_value<T: Serialize + ?Sized>(view: &RedactedView<'_, T>) -> Value {
    // Serializing a view, or another value without keys that are no texts, cannot fail.
    serde_json::to_value(view).unwrap_or_else(|_| REDACTED.into())
}

/// Returns `text` escaped as the content of a JSON string, without the quotes.
fn escape_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
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
            "tokens": ["t"], "max_secrets": 1, "password_hash": "h", "cookies_enabled": true,
            "deep": [{"refresh-token": "r", "name": "n"}],
        });
        let expected = json!({
            "Password": REDACTED, "access_token": REDACTED, "X-Api-Key": REDACTED,
            "apiKey": REDACTED, "Authorization": REDACTED, "client_secret": REDACTED,
            "Set-Cookie": REDACTED, "token": null, "clé-Token": REDACTED, "to\u{212a}en": REDACTED,
            "max_tokens": 7, "input_tokens": 9,
            "keyboard": "q", "secretary": "Ann",
            "tokens": REDACTED, "max_secrets": REDACTED, "password_hash": REDACTED,
            "cookies_enabled": true,
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
    fn e7_secrets_in_sentences_are_redacted() {
        let redactor = Redactor::default().with_keys(&["pin".to_owned()]);
        for (text, redacted) in [
            (
                r#"login failed {"password":"FAIL-PW","pins":["1","2"],"n":1}, pin=1234"#,
                r#"login failed {"password":"[redacted]","pins":"[redacted]","n":1}, pin=[redacted]"#,
            ),
            (
                "curl -H 'Authorization: Bearer abc' https://u:p@h",
                "curl -H 'Authorization: [redacted]",
            ),
            ("used Bearer abcdefgh12", "used Bearer [redacted]"),
        ] {
            assert_eq!(redactor.redact_value(json!({"error": text})), json!({"error": redacted}));
            assert_eq!(redactor.redact_text(text), redacted);
            assert_eq!(redactor.redact_text(redacted), redacted, "redacting again changes nothing");
        }
    }

    /// The work is linear in the text: 256 KiB of the most expensive texts take no noticeable time.
    /// The test would otherwise run for minutes.
    #[test]
    fn e7_huge_texts_are_redacted_in_linear_time() {
        let redactor = Redactor::default();
        for unit in [
            "token=",
            "token:",
            "\"token\":",
            "token=1,",
            "token:.",
            "\\\"",
            "'",
            "::",
            "://a:",
            "bearer ",
            "basic-",
            "password: \"",
            "{\"token\":[",
            "max_tokens=1 ",
            "token=\\",
            "a=\"",
            "key ",
            "key: ",
        ] {
            let text = unit.repeat(256 * 1024 / unit.len());
            let clean = redactor.redact_text(&text);
            assert!(clean.len() <= 4 * text.len(), "{unit}");
        }
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
