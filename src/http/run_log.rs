//! Reads the part of a session's log that belongs to one run.

use super::{AppState, Problem};
use crate::dialect::open_child_calls::OpenChildCalls;
use greenroom_actors::limits::LOG_PAGE_EVENTS;
use greenroom_core::{
    ids::{RunId, Seq, SessionId},
    session::{EventRecord, SessionEvent, SessionRow},
};

/// Returns the calls of the run's child sessions that are open after event `until`.
pub(super) async fn load_open_child_calls(
    state: &AppState,
    session: &SessionRow,
    run_id: RunId,
    until: Seq,
) -> Result<OpenChildCalls, Problem> {
    let mut open_calls = OpenChildCalls::default();
    let session_id = session.session_id;
    let apply = |record: &EventRecord| open_calls.apply_event(session_id, &session.agent, record);
    fold_run(state, session_id, run_id, until, apply).await?;
    Ok(open_calls)
}

/// Calls `apply` with each event of the run up to event `until`, in order.
pub(super) async fn fold_run(
    state: &AppState,
    session_id: SessionId,
    run_id: RunId,
    until: Seq,
    mut apply: impl FnMut(&EventRecord),
) -> Result<(), Problem> {
    let Some(start) = find_run_start(state, session_id, run_id, until).await? else {
        return Ok(());
    };
    let mut last_read = Seq(start.0.saturating_sub(1));
    loop {
        let page =
            state.runtime.journal.load_events(session_id, last_read, LOG_PAGE_EVENTS).await?;
        let Some(last) = page.last().map(|record| record.seq) else { return Ok(()) };
        let read = page.iter().filter(|record| record.seq <= until);
        read.filter(|record| record.run_id == Some(run_id)).for_each(&mut apply);
        if last >= until {
            return Ok(());
        }
        last_read = last;
    }
}

/// Returns the event that starts or queues the run, if it is not after event `until`. Reads
/// backwards, because callers ask for recent runs.
async fn find_run_start(
    state: &AppState,
    session_id: SessionId,
    run_id: RunId,
    until: Seq,
) -> Result<Option<Seq>, Problem> {
    let mut end = until.0;
    while end > 0 {
        let start = end.saturating_sub(LOG_PAGE_EVENTS as u64);
        let page = state.runtime.journal.load_events(session_id, Seq(start), LOG_PAGE_EVENTS);
        let starts_run = |record: &&EventRecord| {
            let is_start = matches!(
                record.event,
                SessionEvent::RunStarted { .. } | SessionEvent::MessageQueued { steers: None, .. }
            );
            is_start && record.run_id == Some(run_id)
        };
        if let Some(record) = page.await?.iter().find(starts_run) {
            return Ok(Some(record.seq).filter(|seq| *seq <= until));
        }
        end = start;
    }
    Ok(None)
}
