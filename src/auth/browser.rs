//! Cookies of browsers that followed the first link (X3): kept in memory, few, and not for long.

use super::token::{TOKEN_CHARS_MAX, random_hex};
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
    /// The end of each, by the digest of its cookie: looking a digest up tells nothing of the
    /// cookie by its timing.
    ends: Mutex<HashMap<Digest, Instant>>,
}

impl BrowserSessions {
    /// Signs a browser in; the value is its cookie's.
    pub fn open(&self, now: Instant) -> String {
        let cookie = random_hex();
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.retain(|_, end| *end > now);
        if ends.len() >= BROWSER_SESSIONS_MAX {
            let first = ends.iter().min_by_key(|(_, end)| **end).map(|(cookie, _)| *cookie);
            first.and_then(|first| ends.remove(&first));
        }
        ends.insert(Digest::of_bytes(cookie.as_bytes()), now + BROWSER_SESSION_TIME);
        cookie
    }

    /// Whether a browser with that cookie is signed in.
    pub fn knows(&self, cookie: &str, now: Instant) -> bool {
        if cookie.len() > TOKEN_CHARS_MAX {
            return false;
        }
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get(&Digest::of_bytes(cookie.as_bytes())).is_some_and(|end| *end > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x3_a_cookie_ends() {
        let sessions = BrowserSessions::default();
        let now = Instant::now();
        let cookie = sessions.open(now);
        assert!(sessions.knows(&cookie, now));
        assert!(!sessions.knows("nonsense", now));
        assert!(!sessions.knows(&cookie, now + BROWSER_SESSION_TIME));
    }

    #[test]
    fn x3_signing_in_for_ever_does_not_fill_the_memory() {
        let sessions = BrowserSessions::default();
        let now = Instant::now();
        let first = sessions.open(now);
        let later = now + Duration::from_secs(1);
        let rest: Vec<_> = (0..BROWSER_SESSIONS_MAX).map(|_| sessions.open(later)).collect();
        assert!(!sessions.knows(&first, later));
        assert!(rest.iter().all(|cookie| sessions.knows(cookie, later)));
    }
}
