//! The delay before the writer starts its next group. Free of I/O: the writer supplies the time.
//!
//! A group of ten commits costs little more than a group of one: one transaction, one wait for the
//! disk, one wake-up of the callers. If a group contains commits of several sessions, the
//! next group therefore starts an interval later and includes the commits that arrive in between. If
//! a group contains commits of only one session, the next group starts without a delay.

use greenroom_core::ids::SessionId;
use std::time::{Duration, Instant};

/// Time from the start of a group with commits of several sessions to the start of the next group.
const GROUP_INTERVAL: Duration = Duration::from_millis(8);

/// The start of the last group, if it contained commits of several sessions.
#[derive(Debug, Default)]
pub(super) struct GroupCommitDelay(Option<Instant>);

impl GroupCommitDelay {
    /// Returns the delay of a group with a commit. `None` means no delay; a timer of zero length
    /// would take longer.
    pub(super) fn delay(&self, now: Instant) -> Option<Duration> {
        let elapsed = now.saturating_duration_since(self.0?);
        GROUP_INTERVAL.checked_sub(elapsed).filter(|remaining| !remaining.is_zero())
    }

    /// Records the start of a group with commits of these sessions. A group without commits changes
    /// nothing.
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
        let (mut timer, now) = (GroupCommitDelay::default(), Instant::now());
        for sessions in [&[][..], &[ANN, ANN], &[BEN]] {
            timer.group_started(sessions.iter().copied(), now);
            assert_eq!(timer.delay(now), None);
        }
    }

    #[test]
    fn next_group_is_delayed_after_commits_of_several_sessions() {
        let (mut timer, now) = (GroupCommitDelay::default(), Instant::now());
        let after = |ms| now + Duration::from_millis(ms);
        timer.group_started([ANN, BEN], now);
        assert_eq!(timer.delay(now), Some(GROUP_INTERVAL));
        timer.group_started([], after(2));
        assert_eq!(timer.delay(after(3)), Some(Duration::from_millis(5)));
        assert_eq!(timer.delay(after(8)), None);
        timer.group_started([ANN], after(9));
        assert_eq!(timer.delay(after(9)), None, "only one session committed");
    }
}
