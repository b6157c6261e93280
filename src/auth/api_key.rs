//! API keys (X2): their format, their generation, and the port to their store. Only the SHA-256 of a
//! key is stored: a key has 256 random bits, so a slower hash is not needed.

use super::{Role, admin_token::random_bytes};
use crate::audit::AuditEntry;
use async_trait::async_trait;
use greenroom_actors::ports::JournalError;
use greenroom_core::{
    Timestamp,
    ids::{InvalidId, UserId},
    json::Digest,
};
use serde::Serialize;
use std::{fmt, str::FromStr};
use utoipa::ToSchema;
use uuid::Uuid;

/// The prefix of every key, by which humans and secret scanners recognize one.
const PREFIX: &str = "gr_";
/// Length of a key in characters: the prefix and 32 bytes in base64url.
const KEY_CHARS: usize = PREFIX.len() + 43;
/// Maximum characters of a key's name.
pub const KEY_NAME_CHARS_MAX: usize = 100;
/// Maximum number of keys, including revoked ones.
pub const KEYS_MAX: usize = 10_000;

/// The id of an API key. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, format = "uuid")]
pub struct KeyId(pub Uuid);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for KeyId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Uuid::try_parse(text).map(Self).map_err(|_| InvalidId::NotUuid)
    }
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKey {
    /// The id of the key.
    pub key_id: KeyId,
    /// The user whom the key authenticates.
    #[serde(rename = "user_id")]
    pub user: UserId,
    /// The role of the key.
    pub role: Role,
    /// An optional name, shown in lists.
    pub name: Option<String>,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The time of revocation.
    pub revoked_at: Option<Timestamp>,
}

/// The store of API keys.
#[async_trait]
pub trait KeyStore: Send + Sync + 'static {
    /// Stores a new key under its hash and appends the audit entry, in one transaction.
    async fn store_key(
        &self,
        key: &ApiKey,
        hash: Digest,
        entry: AuditEntry,
    ) -> Result<(), JournalError>;

    /// Marks the key as revoked at `at` and appends the audit entry, in one transaction.
    async fn revoke_key(
        &self,
        key_id: KeyId,
        at: Timestamp,
        entry: AuditEntry,
    ) -> Result<(), JournalError>;

    /// Lists all keys, oldest first.
    async fn list_keys(&self) -> Result<Vec<ApiKey>, JournalError>;

    /// Returns the key with this hash, revoked or not.
    async fn find_key_by_hash(&self, hash: Digest) -> Result<Option<ApiKey>, JournalError>;
}

/// Generates the secret of a new key.
pub fn generate_key() -> String {
    format!("{PREFIX}{}", base64url(&random_bytes()))
}

/// Returns the hash by which a key is found, or `None` for a text that does not have the format of a
/// key, so that no query is needed for it.
pub fn hash_key(text: &str) -> Option<Digest> {
    let rest = text.strip_prefix(PREFIX)?;
    let is_base64url =
        rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    (text.len() == KEY_CHARS && is_base64url).then(|| Digest::hash_bytes(text.as_bytes()))
}

/// Encodes as base64url without padding (RFC 4648, section 5).
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..=group.len() {
            let sextet = bits >> (18 - 6 * index) & 0x3f;
            text.push(char::from(ALPHABET[sextet as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x2_key_has_prefix_and_43_characters() {
        let key = generate_key();
        assert_eq!((&key[..3], key.len()), ("gr_", 46));
        assert_ne!(key, generate_key());
        assert_eq!(hash_key(&key), Some(Digest::hash_bytes(key.as_bytes())));
        for malformed in ["", "gr_", "gr_short", &key[..45], &format!("{key}a"), &key[1..]] {
            assert_eq!(hash_key(malformed), None, "{malformed}");
        }
        assert_eq!(hash_key(&key.replacen("gr_", "gr-", 1)), None);
        assert_eq!(hash_key(&format!("{}=", &key[..45])), None);
    }

    /// The examples of RFC 4648, section 10, without padding, and the two characters of base64url.
    #[test]
    fn base64url_matches_rfc_4648() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg"),
            (b"fooba", "Zm9vYmE"),
            (b"foobar", "Zm9vYmFy"),
            (&[0xfb, 0xff], "-_8"),
        ] {
            assert_eq!(base64url(bytes), text);
        }
    }
}
