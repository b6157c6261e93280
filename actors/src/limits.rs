//! Every bound of the actors in one place. `docs/limits.md` explains them to people.

use std::time::Duration;

/// Messages waiting in a session's mailbox; beyond it senders are told that it is full.
pub const SESSION_MAILBOX_MAX: usize = 256;
/// Messages waiting in a subscriber's mailbox; beyond it the bus detaches the subscriber, which
/// then catches up from the log (E4).
pub const SUBSCRIBER_MAILBOX_MAX: usize = 256;
/// Messages waiting in the mailbox of the bus, the registry or the desk.
pub const SHARED_ACTOR_MAILBOX_MAX: usize = 16 * 1024;
/// Subscribers of one session where configuration says nothing (X4).
pub const SUBSCRIBERS_PER_SESSION_MAX: usize = 256;
/// Events read from the log at once.
pub const LOG_PAGE_EVENTS: usize = 256;
/// The same where a subscriber begins to catch up, or its client takes little at a time.
pub const SUBSCRIBER_PAGE_EVENTS_MIN: usize = 16;
/// Failures of one session's actor within [`SESSION_FAILURE_WINDOW`] after which it is parked (A3).
pub const SESSION_FAILURES_MAX: u32 = 3;
/// The window for [`SESSION_FAILURES_MAX`].
pub const SESSION_FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Delay before a failed session is brought back; doubles with each failure.
pub const SESSION_RESTART_DELAY: Duration = Duration::from_millis(50);
/// Questions of one tool attempt that wait to be put to people (T1); more are not heard.
pub const ELICITATION_BACKLOG_MAX: usize = 4;
/// Least time between two progress events of one call (T5).
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Progress reports waiting to be looked at.
pub const PROGRESS_BACKLOG_MAX: usize = 16;
/// Bytes of a waiting-for or last-error text that administrators see.
pub const STATUS_TEXT_BYTES_MAX: usize = 512;
/// Times a decision is made anew because another session of the user was faster with their budget.
pub const BUDGET_CONFLICT_RETRIES_MAX: u32 = 16;
/// Delay before a result that could not be stored is tried again (D8).
pub const STORE_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Delay before an overdue deadline is told again to a session that did not record it.
pub const DEADLINE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often it is looked whether every session has left memory, before the process ends.
pub const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often a purge is tried again because the session went on meanwhile.
pub const PURGE_ATTEMPTS_MAX: u32 = 8;
/// How often whoever follows a child makes sure that somebody would tell of it.
pub const CHILD_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Live items a subscriber holds back while it replays the log.
pub const SUBSCRIBER_BACKLOG_MAX: usize = 256;
/// Bytes of text that wait for the end of a flush interval, of one session (E5).
pub const BATCH_BYTES_MAX: usize = 16 * 1024;
/// Live items that wait for it. Well below a subscriber's mailbox, which takes them all at once.
pub const BATCH_ITEMS_MAX: usize = 64;

/// Delay before a tool server is started again after its first failure; doubles with each.
pub const RECONNECT_DELAY_BASE: Duration = Duration::from_millis(500);
/// Longest delay before a tool server is started again.
pub const RECONNECT_DELAY_CAP: Duration = Duration::from_secs(30);
/// A tool server that was ready for so long starts its delays from the beginning.
pub const CONNECTION_STABLE_AFTER: Duration = Duration::from_secs(30);
/// Least time between two readings of a tool server's changed list.
pub const TOOL_LIST_RELOAD_INTERVAL: Duration = Duration::from_millis(250);

/// Failures in a row after which a model or a tool server is left alone (R4).
pub const CIRCUIT_FAILURES_MAX: u32 = 5;
/// How long it is left alone at first; doubles while it goes on to fail.
pub const CIRCUIT_OPEN_DURATION: Duration = Duration::from_secs(10);
/// How long it is left alone at most.
pub const CIRCUIT_OPEN_DURATION_MAX: Duration = Duration::from_secs(120);
/// How long the one that tries it again may take before another may.
pub const CIRCUIT_PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Results of read-only tools that are kept to be used again (T6).
pub const CACHED_RESULTS_MAX: usize = 1_000;
/// Bytes of all of them.
pub const CACHED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of one; a larger one is not kept.
pub const CACHED_RESULT_BYTES_MAX: usize = 1024 * 1024;
