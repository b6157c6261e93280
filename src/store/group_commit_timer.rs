//! When the writer may take its next group. Pure: the writer brings the time.
//!
//! A group of ten commits costs little more than one of a single commit: one transaction, one wait for
//! the disk, one time waking everybody. So once commits of several sessions have met in a group, the next
//! one begins some way after it, and what comes meanwhile shares it. Where commits do not meet, nobody
//! waits.

use greenroom_core::ids::SessionId;
use std::time::{Duration, Instant};

/// From the beginning of a group of several sessions' commits to that of the next one.
const GROUP_INTERVAL: Duration = Duration::from_millis(8);

/// When the last group began, if commits of several sessions met in it.
#[derive(Debug, Default)]
pub(super) struct GroupCommitTimer(Option<Instant>);

impl GroupCommitTimer {
    /// How long a group with a commit waits. `None` is not at all, which is less than a timer of no time
    /// takes.
    pub(super) fn delay(&self, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.0?);
        GROUP_INTERVAL.checked_sub(waited).filter(|left| !left.is_zero())
    }

    /// A group begins, with commits of these sessions. One without commits changes nothing.
    pub(super) fn group_started(
        &mut self,
        sessions: impl IntoIterator<Item = SessionId>,
        now: Instant,
    ) {
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
    fn groups_of_one_session_are_not_delayed() {
        let (mut pace, now) = (GroupCommitTimer::default(), Instant::now());
        for sessions in [&[][..], &[ANN, ANN], &[BEN]] {
            pace.group_started(sessions.iter().copied(), now);
            assert_eq!(pace.delay(now), None);
        }
    }

    #[test]
    fn next_group_is_delayed_after_commits_of_several_sessions() {
        let (mut pace, now) = (GroupCommitTimer::default(), Instant::now());
        let later = |ms| now + Duration::from_millis(ms);
        pace.group_started([ANN, BEN], now);
        assert_eq!(pace.delay(now), Some(GROUP_INTERVAL));
        pace.group_started([], later(2));
        assert_eq!(pace.delay(later(3)), Some(Duration::from_millis(5)));
        assert_eq!(pace.delay(later(8)), None);
        pace.group_started([ANN], later(9));
        assert_eq!(pace.delay(later(9)), None, "nobody came along");
    }
}
