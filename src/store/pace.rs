//! When the writer may take its next group. Pure: the writer brings the time.
//!
//! A group of ten commits costs little more than one of a single commit: one transaction, one wait for
//! the disk, one time waking everybody. So while several sessions commit, groups begin some way apart,
//! and what comes meanwhile shares the next one. A session that commits alone waits for nobody.

use greenroom_core::ids::SessionId;
use std::time::{Duration, Instant};

/// From the beginning of one group to that of the next, while several sessions commit.
const APART: Duration = Duration::from_millis(8);

/// What is known of the last group that had commits.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<Last>);

#[derive(Debug)]
struct Last {
    began: Instant,
    /// The session that all of it was of; `None` if it was of several.
    only: Option<SessionId>,
}

impl Pace {
    /// How long a group waits that begins with a commit of `session`. `None` is not at all, which is
    /// less than a timer of no time takes.
    pub(super) fn wait(&self, session: SessionId, now: Instant) -> Option<Duration> {
        let last = self.0.as_ref().filter(|last| last.only != Some(session))?;
        let waited = now.saturating_duration_since(last.began);
        APART.checked_sub(waited).filter(|left| !left.is_zero())
    }

    /// A group begins, with commits of these sessions. One without commits changes nothing.
    pub(super) fn begin(&mut self, sessions: impl IntoIterator<Item = SessionId>, now: Instant) {
        let mut sessions = sessions.into_iter();
        let Some(first) = sessions.next() else { return };
        let only = sessions.all(|other| other == first).then_some(first);
        self.0 = Some(Last { began: now, only });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const ANN: SessionId = SessionId(Uuid::from_u128(1));
    const BEN: SessionId = SessionId(Uuid::from_u128(2));

    #[test]
    fn who_commits_alone_waits_for_nobody() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.wait(ANN, now), None);
        pace.begin([ANN, ANN], now);
        assert_eq!(pace.wait(ANN, now), None);
    }

    #[test]
    fn groups_of_several_begin_apart() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let later = |ms| now + Duration::from_millis(ms);
        pace.begin([ANN], now);
        assert_eq!(pace.wait(BEN, now), Some(APART));
        assert_eq!(pace.wait(BEN, later(3)), Some(Duration::from_millis(5)));
        assert_eq!(pace.wait(BEN, later(8)), None);
        pace.begin([ANN, BEN], later(9));
        assert_eq!(pace.wait(ANN, later(9)), Some(APART));
        pace.begin([], later(12));
        assert_eq!(pace.wait(ANN, later(12)), Some(Duration::from_millis(5)));
    }
}
