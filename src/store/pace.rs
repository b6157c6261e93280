//! When the writer may take its next group. Pure: the writer brings the time.
//!
//! A group of ten commits costs little more than one of a single commit: one transaction, one wait for
//! the disk, one time waking everybody. So once commits of several sessions have met in a group, the next
//! one begins some way after it, and what comes meanwhile shares it. Where commits do not meet, nobody
//! waits.

use greenroom_core::ids::SessionId;
use std::time::{Duration, Instant};

/// From the beginning of a group of several sessions' commits to that of the next one.
const APART: Duration = Duration::from_millis(8);

/// When the last group began, if commits of several sessions met in it.
#[derive(Debug, Default)]
pub(super) struct Pace(Option<Instant>);

impl Pace {
    /// How long a group with a commit waits. `None` is not at all, which is less than a timer of no time
    /// takes.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.0?);
        APART.checked_sub(waited).filter(|left| !left.is_zero())
    }

    /// A group begins, with commits of these sessions. One without commits changes nothing.
    pub(super) fn begin(&mut self, sessions: impl IntoIterator<Item = SessionId>, now: Instant) {
        let mut sessions = sessions.into_iter();
        let Some(first) = sessions.next() else { return };
        self.0 = sessions.any(|other| other != first).then_some(now);
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
        for sessions in [&[][..], &[ANN, ANN], &[BEN]] {
            pace.begin(sessions.iter().copied(), now);
            assert_eq!(pace.wait(now), None);
        }
    }

    #[test]
    fn where_commits_meet_the_next_group_begins_some_way_after() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let later = |ms| now + Duration::from_millis(ms);
        pace.begin([ANN, BEN], now);
        assert_eq!(pace.wait(now), Some(APART));
        pace.begin([], later(2));
        assert_eq!(pace.wait(later(3)), Some(Duration::from_millis(5)));
        assert_eq!(pace.wait(later(8)), None);
        pace.begin([ANN], later(9));
        assert_eq!(pace.wait(later(9)), None, "nobody came along");
    }
}
