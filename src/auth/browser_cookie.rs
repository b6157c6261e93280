//! Browser cookies (X3). A cookie contains its expiry and the credential for which it was issued, and
//! is signed with a key derived from the admin token. The server stores nothing, so cookies stay
//! valid after a restart.

use super::admin_token::{AdminToken, TOKEN_CHARS_MAX, constant_time_eq};
use greenroom_core::{Timestamp, json::Digest};
use ring::hmac;
use std::{fmt, time::Duration};

/// Lifetime of a cookie.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// The label from which the signing key is derived, so that the key is used for nothing else.
const KEY_DERIVATION_LABEL: &[u8] = b"greenroom browser cookie v1";

/// The credential for which a cookie was issued. It contains no secret that authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialRef {
    /// The admin token.
    AdminToken,
    /// The API key with this hash.
    ApiKey(Digest),
}

/// Signs and verifies cookies.
pub struct CookieSigner(hmac::Key);

impl CookieSigner {
    /// Creates a signer whose cookies are valid as long as the admin token does not change.
    pub fn from_admin_token(admin_token: &AdminToken) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, admin_token.expose().as_bytes());
        Self(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, KEY_DERIVATION_LABEL).as_ref()))
    }

    /// Returns the value of a new cookie for `credential`.
    pub fn issue(&self, credential: CredentialRef, now: Timestamp) -> String {
        let expires_at = now.saturating_add(COOKIE_LIFETIME).0;
        let content = match credential {
            CredentialRef::AdminToken => format!("{expires_at}.admin"),
            CredentialRef::ApiKey(hash) => format!("{expires_at}.{hash}"),
        };
        format!("{content}.{}", self.sign(&content))
    }

    /// Returns the credential of a cookie, if its signature is valid and it has not expired.
    pub fn verify(&self, cookie: &str, now: Timestamp) -> Option<CredentialRef> {
        if cookie.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let (content, signature) = cookie.rsplit_once('.')?;
        if !constant_time_eq(&self.sign(content), signature) {
            return None;
        }
        let (expires_at, credential) = content.split_once('.')?;
        if Timestamp(expires_at.parse().ok()?) <= now {
            return None;
        }
        match credential {
            "admin" => Some(CredentialRef::AdminToken),
            hash => serde_json::from_value(hash.into()).ok().map(CredentialRef::ApiKey),
        }
    }

    fn sign(&self, content: &str) -> String {
        hmac::sign(&self.0, content.as_bytes())
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl fmt::Debug for CookieSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieSigner(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn signer(token: &str) -> CookieSigner {
        CookieSigner::from_admin_token(&AdminToken::parse(token).unwrap())
    }

    #[test]
    fn x3_cookie_expires() {
        let signer = signer("0123456789abcdef");
        let key = CredentialRef::ApiKey(Digest::hash_bytes(b"a key"));
        for credential in [CredentialRef::AdminToken, key] {
            let cookie = signer.issue(credential, NOW);
            assert_eq!(signer.verify(&cookie, NOW), Some(credential));
            assert_eq!(signer.verify(&cookie, NOW.saturating_add(COOKIE_LIFETIME)), None);
        }
    }

    #[test]
    fn x3_cookie_survives_a_restart_but_not_a_new_token() {
        let cookie = signer("0123456789abcdef").issue(CredentialRef::AdminToken, NOW);
        let restarted = signer("0123456789abcdef");
        assert_eq!(restarted.verify(&cookie, NOW), Some(CredentialRef::AdminToken));
        assert_eq!(signer("another-token-0123").verify(&cookie, NOW), None);
    }

    #[test]
    fn x3_modified_cookie_is_rejected() {
        let signer = signer("0123456789abcdef");
        let cookie = signer.issue(CredentialRef::ApiKey(Digest::hash_bytes(b"a key")), NOW);
        for index in 0..cookie.len() {
            let mut bytes = cookie.clone().into_bytes();
            bytes[index] = if bytes[index] == b'1' { b'2' } else { b'1' };
            let forged = String::from_utf8(bytes).unwrap();
            assert_eq!(signer.verify(&forged, NOW), None, "changed at {index}");
        }
        for malformed in ["", ".", "..", "9999999999999.admin.", "9999999999999.admin"] {
            assert_eq!(signer.verify(malformed, NOW), None, "{malformed:?}");
        }
    }
}
