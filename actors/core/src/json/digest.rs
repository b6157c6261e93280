//! Digests of JSON values and of bytes.

use super::{decimal::Decimal, to_canonical_json, write_canonical};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};
use std::fmt;
use utoipa::ToSchema;

/// A SHA-256 digest. Its text is 64 hexadecimal digits; a digest of a JSON value in the second form
/// begins with `v2:`. Clients receive a keyed form of it, which is what the schema describes.
///
/// Compare a recorded digest with a value by [`Digest::matches`], because it may have the first
/// form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, pattern = "^hmac-sha256:[0-9a-f]{64}$")]
pub struct Digest(Hash);

/// The digest, by what it covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Hash {
    /// Bytes. In logs of version 0.1 also a JSON value, as its canonical text with numbers rounded
    /// to 64 bits; `1` and `1.0` differ.
    Plain([u8; 32]),
    /// A JSON value, as its canonical text with each number in the notation of [`Decimal`].
    V2([u8; 32]),
}

const V2_PREFIX: &str = "v2:";

impl Digest {
    /// The name under which a digest is serialized, as a newtype of its text. An encoder for clients
    /// recognizes digests by it and keys them.
    pub const TYPE_NAME: &str = "greenroom_core::json::Digest";

    /// Returns the digest of a value. Equal values have equal digests: neither the order of keys nor
    /// the notation of numbers matters.
    pub fn hash_json(value: &Value) -> Self {
        let mut text = String::new();
        write_canonical(value, &mut text, &|number, out| match Decimal::new(number) {
            Some(decimal) => out.push_str(&decimal.to_string()),
            // Its text: the exponent is beyond every number in the other notation.
            None => out.push_str(number.as_str()),
        });
        Self(Hash::V2(Sha256::digest(text.as_bytes()).into()))
    }

    /// Returns the digest of raw bytes.
    pub fn hash_bytes(bytes: &[u8]) -> Self {
        Self(Hash::Plain(Sha256::digest(bytes).into()))
    }

    /// True if this is the digest of `value`, in either form.
    pub fn matches(self, value: &Value) -> bool {
        self == match self.0 {
            Hash::Plain(_) => Self::hash_json_rounded(value),
            Hash::V2(_) => Self::hash_json(value),
        }
    }

    /// Returns the digest in the form of version 0.1.
    fn hash_json_rounded(value: &Value) -> Self {
        let mut text = String::new();
        write_canonical(value, &mut text, &|number, out| out.push_str(&rounded_text(number)));
        Self::hash_bytes(text.as_bytes())
    }

    /// Returns the digest of the canonical text of `value`, in which numbers keep their notation.
    /// For keys and names that must not change between versions.
    pub fn hash_canonical_text(value: &Value) -> Self {
        Self::hash_bytes(to_canonical_json(value).as_bytes())
    }

    /// Returns the digest's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        match &self.0 {
            Hash::Plain(bytes) | Hash::V2(bytes) => bytes,
        }
    }
}

/// Formats a number as `serde_json` did before it kept the digits.
fn rounded_text(number: &Number) -> String {
    let text = number.as_str();
    if text != "-0" && (number.is_u64() || number.is_i64()) {
        return text.to_owned();
    }
    let rounded = number.as_f64().and_then(Number::from_f64);
    rounded.map_or_else(|| text.to_owned(), |rounded| rounded.to_string())
}

impl From<[u8; 32]> for Digest {
    fn from(hash: [u8; 32]) -> Self {
        Self(Hash::Plain(hash))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = self.as_bytes().iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        let mut text = [0; 64];
        for (byte, digit) in text.iter_mut().zip(digits) {
            *byte = DIGITS[usize::from(digit)];
        }
        match self.0 {
            Hash::Plain(_) => {}
            Hash::V2(_) => f.write_str(V2_PREFIX)?,
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(Self::TYPE_NAME, &format_args!("{self}"))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let expected =
            || serde::de::Error::custom("expected 64 hexadecimal digits, with or without `v2:`");
        let to_hash: fn([u8; 32]) -> Hash =
            if text.starts_with(V2_PREFIX) { Hash::V2 } else { Hash::Plain };
        let digits = text.strip_prefix(V2_PREFIX).unwrap_or(&text);
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(expected());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| expected())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| expected())?;
        }
        Ok(Self(to_hash(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn m2_equal_values_have_equal_digests() {
        for (left, right) in [
            (r#"{"b":[1,{"y":2,"x":1}],"a":"é"}"#, r#"{ "a":"é", "b":[1,{"x":1,"y":2}] }"#),
            (r#"{"n":1}"#, r#"{"n":1.0}"#),
            (r#"{"n":100000}"#, r#"{"n":1E5}"#),
            (r#"{"n":-0}"#, r#"{"n":0}"#),
        ] {
            assert_eq!(Digest::hash_json(&value(left)), Digest::hash_json(&value(right)));
        }
    }

    #[test]
    fn m2_different_values_have_different_digests() {
        for (left, right) in [
            (r#"{"n":1000}"#, r#"{"n":1000000}"#),
            ("123456789012345678901234567890", "123456789012345678901234567891"),
            ("1e9223372036854775808", "1e9223372036854775809"),
            ("1", r#""1""#),
            ("1", r#""1e0""#),
            ("0.1", "0.10000000000000000001"),
        ] {
            assert_ne!(Digest::hash_json(&value(left)), Digest::hash_json(&value(right)));
        }
    }

    /// The texts are those that version 0.1 computed.
    #[test]
    fn m2_digest_of_first_form_matches_the_value_it_was_made_of() {
        for (written, hashed) in [
            (r#"{"b":1,"a":[2.50]}"#, r#"{"a":[2.5],"b":1}"#),
            ("1.0", "1.0"),
            ("1", "1"),
            ("-7", "-7"),
            ("1E5", "100000.0"),
            ("-0", "-0.0"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("123456789012345678901234567890", "1.2345678901234568e+29"),
        ] {
            let digest = Digest::hash_bytes(hashed.as_bytes());
            assert!(digest.matches(&value(written)), "{written}");
            assert!(!digest.matches(&json!("another")), "{written}");
        }
        assert!(!Digest::hash_bytes(b"1").matches(&value("1.0")));
        assert!(Digest::hash_json(&json!(1)).matches(&value("1.0")));
    }

    #[test]
    fn digest_round_trips_and_invalid_text_is_rejected() {
        for digest in [Digest::hash_json(&json!(null)), Digest::hash_bytes(b"null")] {
            let text = serde_json::to_string(&digest).unwrap();
            assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), digest);
        }
        let text = Digest::hash_json(&json!(null)).to_string();
        assert_eq!((text.len(), &text[..3]), (67, "v2:"));
        for invalid in ["zz", &text[..66], &text.replace("v2", "v3"), &"+1".repeat(32)] {
            assert!(serde_json::from_value::<Digest>(json!(invalid)).is_err(), "{invalid}");
        }
    }
}
