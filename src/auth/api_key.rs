//! API keys (X2): what one is, how it is made, and the port of where they are kept. Only a key's
//! SHA-256 is ever kept: a key has 256 random bits, so nothing slower is needed to hide it.

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

/// What every key begins with, so that people and scanners know one when they see it.
const PREFIX: &str = "gr_";
/// Characters of a key: the prefix, and 32 bytes in base64url.
const KEY_CHARS: usize = PREFIX.len() + 43;
/// The longest name of a key.
pub const KEY_NAME_CHARS_MAX: usize = 100;
/// Keys there may be, revoked ones included.
pub const KEYS_MAX: usize = 10_000;

/// A key's id, which is no secret.
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

/// What is known of a key, the key itself not among it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKey {
    /// Its id.
    pub key_id: KeyId,
    /// Who calls with it.
    #[serde(rename = "user_id")]
    pub user: UserId,
    /// What they may do.
    pub role: Role,
    /// For people.
    pub name: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stopped working.
    pub revoked_at: Option<Timestamp>,
}

/// Where keys are kept.
#[async_trait]
pub trait KeyStore: Send + Sync + 'static {
    /// Keeps a new key, known again by its hash, and appends the audit entry, both or neither.
    async fn store_key(
        &self,
        key: &ApiKey,
        hash: Digest,
        entry: AuditEntry,
    ) -> Result<(), JournalError>;

    /// Notes that the key does not work from then on, and appends the audit entry, both or
    /// neither.
    async fn revoke_key(
        &self,
        key_id: KeyId,
        at: Timestamp,
        entry: AuditEntry,
    ) -> Result<(), JournalError>;

    /// All keys, oldest first.
    async fn list_keys(&self) -> Result<Vec<ApiKey>, JournalError>;

    /// The key with that hash, revoked or not.
    async fn find_key_by_hash(&self, hash: Digest) -> Result<Option<ApiKey>, JournalError>;
}

/// A new key: the text to show once.
pub fn generate_key() -> String {
    format!("{PREFIX}{}", base64url(&random_bytes()))
}

/// The hash by which a key is found; nothing for a text that can't be one, so that nonsense costs
/// no look-up.
pub fn hash_key(text: &str) -> Option<Digest> {
    let rest = text.strip_prefix(PREFIX)?;
    let plain = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    (text.len() == KEY_CHARS && plain).then(|| Digest::hash_bytes(text.as_bytes()))
}

/// Base64 with `-` and `_`, without padding (RFC 4648, section 5).
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..=group.len() {
            let six = bits >> (18 - 6 * place) & 0x3f;
            text.push(char::from(ALPHABET[six as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x2_a_key_is_its_prefix_and_43_characters() {
        let key = generate_key();
        assert_eq!((&key[..3], key.len()), ("gr_", 46));
        assert_ne!(key, generate_key());
        assert_eq!(hash_key(&key), Some(Digest::hash_bytes(key.as_bytes())));
        for no_key in ["", "gr_", "gr_short", &key[..45], &format!("{key}a"), &key[1..]] {
            assert_eq!(hash_key(no_key), None, "{no_key}");
        }
        assert_eq!(hash_key(&key.replacen("gr_", "gr-", 1)), None);
        assert_eq!(hash_key(&format!("{}=", &key[..45])), None);
    }

    /// The examples of RFC 4648, section 10, without padding; and the two characters of its own.
    #[test]
    fn base64url_is_the_one_of_the_rfc() {
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
