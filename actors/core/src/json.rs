//! The canonical text of JSON values, their digest, and the limit of their nesting.

use crate::limits::VALUE_LEVELS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;
use utoipa::ToSchema;

/// A SHA-256 digest, serialised as 64 hexadecimal digits. Clients receive a keyed form of it, which
/// is what the schema describes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, pattern = "^hmac-sha256:[0-9a-f]{64}$")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The name under which a digest is serialized, as a newtype of its text. An encoder for clients
    /// recognizes digests by it and keys them.
    pub const TYPE_NAME: &str = "greenroom_core::json::Digest";

    /// Returns the digest of the canonical text of `value` ([`to_canonical_json`]).
    pub fn hash_json(value: &Value) -> Self {
        Self::hash_bytes(to_canonical_json(value).as_bytes())
    }

    /// Returns the digest of raw bytes.
    pub fn hash_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the digest's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        let mut text = [0; 64];
        for (byte, digit) in text.iter_mut().zip(digits) {
            *byte = DIGITS[usize::from(digit)];
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
        let expected = || serde::de::Error::custom("expected 64 hexadecimal digits");
        if text.len() != 64 || !text.is_ascii() {
            return Err(expected());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| expected())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| expected())?;
        }
        Ok(Self(bytes))
    }
}

/// Formats `value` with object keys sorted by their bytes and without white space.
///
/// Two values are the same arguments exactly if their canonical texts are equal. Numbers are
/// formatted as by `serde_json`, so `1` and `1.0` differ.
pub fn to_canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string());
        }
    }
}

/// True if `value` is nested deeper than `levels_max` levels. A scalar has no levels.
pub fn is_deeper(value: &Value, levels_max: u32) -> bool {
    let deeper = |member: &Value| is_deeper(member, levels_max - 1);
    match value {
        Value::Object(members) => levels_max == 0 || members.values().any(deeper),
        Value::Array(items) => levels_max == 0 || items.iter().any(deeper),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Validates the nesting of a value from outside; the error describes the problem. Events wrap the
/// value in further levels, and the number of levels in the log is limited.
pub fn validate_levels(value: &Value) -> Result<(), String> {
    if is_deeper(value, VALUE_LEVELS_MAX) {
        return Err(format!("nested deeper than {VALUE_LEVELS_MAX} levels"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_does_not_change_digest() {
        let first: Value = serde_json::from_str(r#"{"b":[1,{"y":2,"x":1}],"a":"é"}"#).unwrap();
        let second: Value = serde_json::from_str(r#"{ "a":"é", "b":[1,{"x":1,"y":2}] }"#).unwrap();
        assert_eq!(to_canonical_json(&first), r#"{"a":"é","b":[1,{"x":1,"y":2}]}"#);
        assert_eq!(Digest::hash_json(&first), Digest::hash_json(&second));
    }

    #[test]
    fn different_values_have_different_digests() {
        assert_ne!(
            Digest::hash_json(&json!({"quantity": 1000})),
            Digest::hash_json(&json!({"quantity": 1000000}))
        );
    }

    #[test]
    fn digest_round_trips_and_invalid_text_is_rejected() {
        let digest = Digest::hash_json(&json!(null));
        let text = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), digest);
        assert!(serde_json::from_str::<Digest>("\"zz\"").is_err());
    }

    #[test]
    fn nesting_is_counted_in_levels() {
        for (value, depth) in [(json!(1), 0), (json!({}), 1), (json!({"a": [1]}), 2)] {
            assert!(!is_deeper(&value, depth));
            assert!(depth == 0 || is_deeper(&value, depth - 1));
        }
    }
}
