//! Cookies of browsers that followed the first link (X3). A cookie says until when it is good and
//! which credential it was given for, signed with a key made from the administrator's token. So it
//! outlives a restart, which an open page should hardly notice, and nothing of it is kept here.

use super::token::{TOKEN_CHARS_MAX, Token, same_secret};
use greenroom_core::{Timestamp, json::Digest};
use ring::hmac;
use std::{fmt, time::Duration};

/// How long a browser stays signed in.
pub const BROWSER_SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);

/// What the signing key is made for, so that it is good for nothing else.
const PURPOSE: &[u8] = b"greenroom browser cookie v1";

/// The credential behind a cookie. Neither can be used in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The administrator's token.
    AdminToken,
    /// The API key with that hash.
    Key(Digest),
}

/// Signs cookies, and knows them again.
pub struct Cookies(hmac::Key);

impl Cookies {
    /// Cookies that are good for as long as this is the administrator's token.
    pub fn signed_by(admin_token: &Token) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, admin_token.reveal().as_bytes());
        Self(hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, PURPOSE).as_ref()))
    }

    /// A cookie's value for who showed that credential.
    pub fn give(&self, behind: Behind, now: Timestamp) -> String {
        let ends = now.after(BROWSER_SESSION_TIME).0;
        let said = match behind {
            Behind::AdminToken => format!("{ends}.admin"),
            Behind::Key(hash) => format!("{ends}.{hash}"),
        };
        format!("{said}.{}", self.signature(&said))
    }

    /// What is behind a cookie, if it is one of ours and still good.
    pub fn read(&self, cookie: &str, now: Timestamp) -> Option<Behind> {
        if cookie.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let (said, signature) = cookie.rsplit_once('.')?;
        if !same_secret(&self.signature(said), signature) {
            return None;
        }
        let (ends, behind) = said.split_once('.')?;
        if Timestamp(ends.parse().ok()?) <= now {
            return None;
        }
        match behind {
            "admin" => Some(Behind::AdminToken),
            hash => serde_json::from_value(hash.into()).ok().map(Behind::Key),
        }
    }

    fn signature(&self, said: &str) -> String {
        hmac::sign(&self.0, said.as_bytes())
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookies(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    fn cookies(token: &str) -> Cookies {
        Cookies::signed_by(&Token::from_text(token).unwrap())
    }

    #[test]
    fn x3_a_cookie_ends() {
        let cookies = cookies("0123456789abcdef");
        let key = Behind::Key(Digest::of_bytes(b"a key"));
        for behind in [Behind::AdminToken, key] {
            let cookie = cookies.give(behind, NOW);
            assert_eq!(cookies.read(&cookie, NOW), Some(behind));
            assert_eq!(cookies.read(&cookie, NOW.after(BROWSER_SESSION_TIME)), None);
        }
    }

    #[test]
    fn x3_a_cookie_outlives_a_restart_and_not_the_token() {
        let cookie = cookies("0123456789abcdef").give(Behind::AdminToken, NOW);
        let restarted = cookies("0123456789abcdef");
        assert_eq!(restarted.read(&cookie, NOW), Some(Behind::AdminToken));
        assert_eq!(cookies("another-token-0123").read(&cookie, NOW), None);
    }

    #[test]
    fn x3_whatever_somebody_changes_in_a_cookie_makes_it_void() {
        let cookies = cookies("0123456789abcdef");
        let cookie = cookies.give(Behind::Key(Digest::of_bytes(b"a key")), NOW);
        for at in 0..cookie.len() {
            let mut bytes = cookie.clone().into_bytes();
            bytes[at] = if bytes[at] == b'1' { b'2' } else { b'1' };
            let forged = String::from_utf8(bytes).unwrap();
            assert_eq!(cookies.read(&forged, NOW), None, "changed at {at}");
        }
        for nonsense in ["", ".", "..", "9999999999999.admin.", "9999999999999.admin"] {
            assert_eq!(cookies.read(nonsense, NOW), None, "{nonsense:?}");
        }
    }
}
