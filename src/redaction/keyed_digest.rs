//! Keyed digests of arguments and results (E7).
//!
//! A short secret can be guessed from a plain digest of the value that contains it. Digests that
//! leave the process or that are stored in audit rows are therefore keyed with a secret of the
//! database: two equal values have equal digests, on every node, but a guess cannot be checked
//! without the key. The log keeps the plain digests, which approvals are bound to.

use super::{REDACTED, Redactor};
use greenroom_core::json::Digest;
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{borrow::Cow, fmt};
use utoipa::ToSchema;

/// The start of every keyed digest.
const PREFIX: &str = "hmac-sha256:";
/// Hexadecimal digits of a digest.
const DIGEST_DIGITS: usize = 64;

/// A keyed digest: `hmac-sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, pattern = "^hmac-sha256:[0-9a-f]{64}$")]
pub struct KeyedDigest(String);

impl fmt::Display for KeyedDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key of digests, a secret of the database.
#[derive(Clone)]
pub struct DigestKey(hmac::Key);

impl DigestKey {
    /// Bytes of a key.
    pub const BYTES: usize = 32;

    /// Creates a key from its bytes.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Returns the keyed form of `digest`.
    pub fn apply(&self, digest: Digest) -> KeyedDigest {
        self.apply_to_text(&digest.to_string())
    }

    /// Returns the HMAC of a digest's text.
    fn apply_to_text(&self, digest: &str) -> KeyedDigest {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let tag = hmac::sign(&self.0, digest.as_bytes());
        let digits = tag.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        let digits = digits.map(|digit| char::from(DIGITS[usize::from(digit)]));
        let mut text = String::with_capacity(PREFIX.len() + DIGEST_DIGITS);
        text.push_str(PREFIX);
        text.extend(digits);
        KeyedDigest(text)
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(…)")
    }
}

impl Redactor {
    /// Returns the keyed form of a digest, given the value that it is serialized as; the placeholder
    /// if the redactor has no key.
    pub(super) fn key_digest<T: Serialize + ?Sized>(&self, digest: &T) -> Cow<'static, str> {
        match (&self.digest_key, serde_json::to_value(digest)) {
            (Some(key), Ok(Value::String(digest))) => key.apply_to_text(&digest).0.into(),
            (_, _) => REDACTED.into(),
        }
    }
}

/// Replaces the plain digests in the content of an audit row by the placeholder. Rows of earlier
/// versions contain plain digests, which the hash chain covers.
pub fn redact_plain_digests(content: &mut Value) {
    if let Some(digest) = content.get_mut("digest") {
        redact_plain_digest(digest);
    }
    let steps = content.pointer_mut("/details/steps").and_then(Value::as_array_mut);
    for step in steps.into_iter().flatten() {
        step.get_mut("digest").map(redact_plain_digest);
    }
}

fn redact_plain_digest(digest: &mut Value) {
    let is_keyed = digest.as_str().is_some_and(|digest| digest.starts_with(PREFIX));
    if !digest.is_null() && !is_keyed {
        *digest = REDACTED.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e7_digests_of_typed_values_are_keyed_wherever_they_stand() {
        #[derive(Serialize)]
        struct Row {
            digest: Digest,
            others: Vec<Option<Digest>>,
            text: &'static str,
        }
        let digest = Digest::hash_json(&json!({"password": "1234"}));
        let row = Row { digest, others: vec![Some(digest), None], text: "t" };
        assert_eq!(json!(row)["digest"], digest.to_string(), "the stored form is plain");
        let key = DigestKey::from_bytes(&[7; 32]);
        let keyed = key.apply(digest).to_string();
        assert!(
            keyed.starts_with(PREFIX) && keyed.len() == PREFIX.len() + DIGEST_DIGITS,
            "{keyed}"
        );
        assert!(!keyed.contains(&digest.to_string()));
        let redactor = Redactor::default().with_digest_key(key);
        let expected = json!({"digest": keyed, "others": [keyed, null], "text": "t"});
        assert_eq!(redactor.redact_to_value(&row), expected);
        let other = DigestKey::from_bytes(&[8; 32]);
        assert_ne!(other.apply(digest).to_string(), keyed);
        let without_key = Redactor::default().redact_to_value(&row);
        assert_eq!(without_key["digest"], REDACTED);
        assert_eq!(format!("{other:?}"), "DigestKey(…)");
    }

    /// The expected value was computed with Python's `hmac`.
    #[test]
    fn e7_keyed_digest_is_the_hmac_of_the_digests_text() {
        let digest = Digest::hash_bytes(b"");
        let expected =
            "hmac-sha256:9c2592d05323094eae9b2c900ebfcaf56ab144ab6067ac8f2bd649a70d0bf353";
        assert_eq!(DigestKey::from_bytes(&[7; 32]).apply(digest).to_string(), expected);
    }

    #[test]
    fn x6_plain_digests_of_earlier_audit_rows_are_not_shown() {
        let mut row = json!({
            "digest": "ab", "n": 1,
            "details": {"steps": [{"digest": "cd"}, {"tool": "t"}, {"digest": "hmac-sha256:ef"}]},
        });
        redact_plain_digests(&mut row);
        let expected = json!({
            "digest": REDACTED, "n": 1,
            "details": {"steps": [{"digest": REDACTED}, {"tool": "t"}, {"digest": "hmac-sha256:ef"}]},
        });
        assert_eq!(row, expected);
    }
}
