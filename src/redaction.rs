//! What may leave, and what is blacked out on its way (E7). Pure.
//!
//! The log holds real values, because a restart must run what was approved; everything that
//! encodes for clients, administrators or logs passes through a [`Redactor`]. It owns the list of
//! secret keys and the configured secrets, and knows nothing of transports.

mod malformed_json;
mod redacted_view;
mod restore;

use memchr::memmem;
use regex::{NoExpand, Regex};
use serde_json::Value;
use std::borrow::Cow;

pub use redacted_view::RedactedView;

/// What stands where a secret was.
pub use greenroom_core::scrub::REDACTED;

/// The shortest configured secret: anything shorter would black out ordinary words.
pub const SECRET_BYTES_MIN: usize = 8;

/// Values under keys that end with one of these are secret, whatever their case and however they
/// are hyphenated: `api_key`, `X-Api-Key`, `accessToken` …
const SECRET_KEYS: [&str; 6] = ["password", "token", "apikey", "authorization", "secret", "cookie"];

/// Nesting below which nothing is looked at any more; it is blacked out as a whole.
const DEPTH_MAX: usize = 128;

/// Blacks out secrets.
#[derive(Debug, Default)]
pub struct Redactor {
    /// Longest first, so that a secret that contains another goes as a whole.
    secrets: Vec<SecretMatcher>,
    patterns: Vec<Regex>,
}

/// A configured secret, and what finds it: making that takes longer than a look at a short text.
#[derive(Debug)]
struct SecretMatcher {
    text: Box<str>,
    finder: memmem::Finder<'static>,
}

impl Redactor {
    /// One that also blacks out these texts wherever they stand, also where they are escaped in JSON.
    /// Those shorter than [`SECRET_BYTES_MIN`] are left out.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let long = |secret: &String| secret.len() >= SECRET_BYTES_MIN;
        // A log line is JSON, and so may be what it quotes.
        let spelled = |secret: String| {
            let once = escape_json(&secret);
            let twice = escape_json(&once);
            [secret, once, twice]
        };
        let mut secrets: Vec<String> = secrets.into_iter().filter(long).flat_map(spelled).collect();
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        let secret = |text: String| {
            let finder = memmem::Finder::new(&text).into_owned();
            SecretMatcher { text: text.into_boxed_str(), finder }
        };
        Self { secrets: secrets.into_iter().map(secret).collect(), patterns: Vec::new() }
    }

    /// The same, which also blacks out what any of `patterns` finds.
    pub fn with_patterns(self, patterns: Vec<Regex>) -> Self {
        Self { patterns, ..self }
    }

    /// `text` without the configured secrets, and then without what the patterns find.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for SecretMatcher { text, finder } in &self.secrets {
            if finder.find(clean.as_bytes()).is_some() {
                clean = Cow::Owned(clean.replace(&**text, REDACTED));
            }
        }
        for pattern in &self.patterns {
            if let Cow::Owned(black) = pattern.replace_all(&clean, NoExpand(REDACTED)) {
                clean = Cow::Owned(black);
            }
        }
        clean
    }

    /// The value as it may be shown ([`Self::shown`]).
    pub fn redact_value(&self, value: Value) -> Value {
        view_to_value(&self.redact(&value))
    }

    /// `text` cleaned as JSON, if it is a JSON object or array, whole or not, with something to clean.
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

/// The keys of one object as they are shown, in their order. A secret may even be a key, and so may
/// another one beside it: from the second on they are numbered.
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

/// What is shown of a value, as one.
fn view_to_value(shown: &RedactedView<'_, Value>) -> Value {
    // Plain data: serialising it can't fail.
    serde_json::to_value(shown).unwrap_or_else(|_| REDACTED.into())
}

/// `text` as it stands between the quotes of JSON.
fn escape_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Whether what stands under `key` is secret by its name alone.
pub(crate) fn is_secret_key(key: &str) -> bool {
    // Nearly all keys are, and this is asked of each one of each frame.
    if key.is_ascii() {
        return has_secret_suffix(key.as_bytes());
    }
    has_secret_suffix(key.to_lowercase().as_bytes())
}

/// The same of a key whose letters beyond ASCII are small.
fn has_secret_suffix(key: &[u8]) -> bool {
    let is_letter = |byte: &&u8| !matches!(byte, b'-' | b'_' | b' ' | b'.');
    // From their ends, where nearly all keys differ from these at once.
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
    fn e7_configured_secrets_go_everywhere_the_longest_first() {
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
    fn e7_configured_secrets_go_also_where_they_are_escaped() {
        let secret = "a\"b\\c\nd\"e";
        let redactor = Redactor::new([secret.to_owned()]);
        let once = json!(secret).to_string();
        let twice = json!(once).to_string();
        assert_eq!(redactor.redact_text(secret), REDACTED);
        assert_eq!(redactor.redact_text(&once), json!(REDACTED).to_string());
        assert_eq!(redactor.redact_text(&twice), json!(json!(REDACTED).to_string()).to_string());
    }

    #[test]
    fn e7_json_inside_of_text_is_cleaned_and_other_text_stays_byte_for_byte() {
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
    fn e7_what_configured_patterns_find_goes_everywhere() {
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
    fn e7_keys_that_are_secret_stay_apart() {
        let redactor = Redactor::new(["k3y-k3y-k3y", "s3cr3t-s3cr3t"].map(str::to_owned));
        let value = json!({"a": 1, "k3y-k3y-k3y": 2, "s3cr3t-s3cr3t": {"n": 3}});
        let expected = json!({"a": 1, "[redacted]": 2, "[redacted] (2)": {"n": 3}});
        assert_eq!(redactor.redact_value(value), expected);
    }

    #[test]
    fn e7_json_that_was_cut_is_cleaned_too() {
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
