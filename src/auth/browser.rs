//! Cookies of browsers that followed the first link (X3): kept in memory, few, and not for long.

use super::{
    Principal,
    token::{TOKEN_CHARS_MAX, random_hex},
};
use greenroom_core::json::Digest;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a browser stays signed in.
pub const BROWSER_SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Browsers signed in at once; the one that would end first makes room.
pub const BROWSER_SESSIONS_MAX: usize = 1_000;

/// The browsers that are signed in.
#[derive(Debug, Default)]
pub struct BrowserSessions {
    /// By the digest of each one's cookie: looking a digest up tells nothing of the cookie by its
    /// timing.
    browsers: Mutex<HashMap<Digest, Browser>>,
}

#[derive(Debug)]
struct Browser {
    ends: Instant,
    principal: Principal,
}

impl BrowserSessions {
    /// Signs a browser in, for whoever opened the link; the value is its cookie's.
    pub fn open(&self, principal: Principal, now: Instant) -> String {
        let cookie = random_hex();
        let mut browsers = self.browsers.lock().unwrap_or_else(PoisonError::into_inner);
        browsers.retain(|_, browser| browser.ends > now);
        if browsers.len() >= BROWSER_SESSIONS_MAX {
            let first = browsers.iter().min_by_key(|(_, it)| it.ends).map(|(cookie, _)| *cookie);
            first.and_then(|first| browsers.remove(&first));
        }
        let browser = Browser { ends: now + BROWSER_SESSION_TIME, principal };
        browsers.insert(Digest::of_bytes(cookie.as_bytes()), browser);
        cookie
    }

    /// Who signed in the browser with that cookie, if one is.
    pub fn find(&self, cookie: &str, now: Instant) -> Option<Principal> {
        if cookie.len() > TOKEN_CHARS_MAX {
            return None;
        }
        let browsers = self.browsers.lock().unwrap_or_else(PoisonError::into_inner);
        let browser = browsers.get(&Digest::of_bytes(cookie.as_bytes()))?;
        (browser.ends > now).then(|| browser.principal.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Role, Via};

    fn ada() -> Principal {
        let user = greenroom_core::ids::UserId::parse("ada").unwrap();
        Principal { user, role: Role::User, via: Via::Cookie, key: None }
    }

    #[test]
    fn x3_a_cookie_ends() {
        let sessions = BrowserSessions::default();
        let now = Instant::now();
        let cookie = sessions.open(ada(), now);
        assert_eq!(sessions.find(&cookie, now), Some(ada()));
        assert_eq!(sessions.find("nonsense", now), None);
        assert_eq!(sessions.find(&cookie, now + BROWSER_SESSION_TIME), None);
    }

    #[test]
    fn x3_signing_in_for_ever_does_not_fill_the_memory() {
        let sessions = BrowserSessions::default();
        let now = Instant::now();
        let first = sessions.open(ada(), now);
        let later = now + Duration::from_secs(1);
        let rest: Vec<_> = (0..BROWSER_SESSIONS_MAX).map(|_| sessions.open(ada(), later)).collect();
        assert_eq!(sessions.find(&first, later), None);
        assert!(rest.iter().all(|cookie| sessions.find(cookie, later).is_some()));
    }
}
