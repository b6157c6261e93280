//! Cookies of browsers that followed the first link (X3). A cookie says until when it is good and
//! which credential it was given for, signed with a key made from the administrator's token. So it
//! outlives a restart, which an open page should hardly notice, and nothing of it is kept here.

use super::admin_token::{AdminToken, TOKEN_CHARS_MAX, constant_time_eq};
use greenroom_core::{Timestamp, json::Digest};
use ring::hmac;
use std::{fmt, time::Duration};

/// How long a browser stays signed in.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// What the signing key is made for, so that it is good for nothing else.
const KEY_DERIVATION_LABEL: &[u8] = b"greenroom browser cookie v1";

/// The credential behind a cookie. Neither can be used in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialRef {
    /// The administrator's token.
    AdminToken,
    /// The API key with that hash.
    ApiKey(Digest),
}

/// Signs cookies, and knows them again.
pub struct CookieSigner(hmac::Key);

impl CookieSigner {
    /// Cookies that are good for as long as this is the administrator's token.
    pub fn from_admin_token(admin_token: &AdminToken) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, admin_token.expose().as_bytes());
        Self(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, KEY_DERIVATION_LABEL).as_ref()))
    }

    /// A cookie's value for who showed that credential.
    pub fn issue(&self, behind: CredentialRef, now: Timestamp) -> String {
        let ends = now.saturating_add(COOKIE_LIFETIME).0;
        let said = match behind {
            CredentialRef::AdminToken => format!("{ends}.admin"),
            CredentialRef::ApiKey(hash) => format!("{ends}.{hash}"),
        };
        format!("{said}.{}", self.sign(&said))
    }

    /// What is behind a cookie, if it is one of ours and still good.
    pub fn verify(&self, cookie: &str, now: Timestamp) -> Option<CredentialRef> {
        if cookie.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let (said, signature) = cookie.rsplit_once('.')?;
        if !constant_time_eq(&self.sign(said), signature) {
            return None;
        }
        let (ends, behind) = said.split_once('.')?;
        if Timestamp(ends.parse().ok()?) <= now {
            return None;
        }
        match behind {
            "admin" => Some(CredentialRef::AdminToken),
            hash => serde_json::from_value(hash.into()).ok().map(CredentialRef::ApiKey),
        }
    }

    fn sign(&self, said: &str) -> String {
        hmac::sign(&self.0, said.as_bytes())
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl fmt::Debug for CookieSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookies(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn cookies(token: &str) -> CookieSigner {
        CookieSigner::from_admin_token(&AdminToken::parse(token).unwrap())
    }

    #[test]
    fn x3_a_cookie_ends() {
        let cookies = cookies("0123456789abcdef");
        let key = CredentialRef::ApiKey(Digest::hash_bytes(b"a key"));
        for behind in [CredentialRef::AdminToken, key] {
            let cookie = cookies.issue(behind, NOW);
            assert_eq!(cookies.verify(&cookie, NOW), Some(behind));
            assert_eq!(cookies.verify(&cookie, NOW.saturating_add(COOKIE_LIFETIME)), None);
        }
    }

    #[test]
    fn x3_a_cookie_outlives_a_restart_and_not_the_token() {
        let cookie = cookies("0123456789abcdef").issue(CredentialRef::AdminToken, NOW);
        let restarted = cookies("0123456789abcdef");
        assert_eq!(restarted.verify(&cookie, NOW), Some(CredentialRef::AdminToken));
        assert_eq!(cookies("another-token-0123").verify(&cookie, NOW), None);
    }

    #[test]
    fn x3_whatever_somebody_changes_in_a_cookie_makes_it_void() {
        let cookies = cookies("0123456789abcdef");
        let cookie = cookies.issue(CredentialRef::ApiKey(Digest::hash_bytes(b"a key")), NOW);
        for at in 0..cookie.len() {
            let mut bytes = cookie.clone().into_bytes();
            bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
            let forged = String::from_utf8(bytes).unwrap();
            assert_eq!(cookies.verify(&forged, NOW), None, "changed at {at}");
        }
        for nonsense in ["", ".", "..", "9999999999999.admin.", "9999999999999.admin"] {
            assert_eq!(cookies.verify(nonsense, NOW), None, "{nonsense:?}");
        }
    }
}
