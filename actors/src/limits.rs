//! Every bound of the actors. `docs/limits.md` describes the bounds for users.

use std::time::Duration;

/// Maximum messages in a session's mailbox. Beyond it, senders get [`TrySendError::Full`].
///
/// [`TrySendError::Full`]: crate::mailbox::TrySendError::Full
pub const SESSION_MAILBOX_MAX: usize = 256;
/// Maximum messages in a subscriber's mailbox. Beyond it, the event bus detaches the subscriber,
/// which then catches up from the log (E4).
pub const SUBSCRIBER_MAILBOX_MAX: usize = 256;
/// Maximum messages in the mailbox of the event bus, the session registry or the approval desk.
pub const SHARED_ACTOR_MAILBOX_MAX: usize = 16 * 1024;
/// Maximum subscribers of one session, unless configured (X4).
pub const SUBSCRIBERS_PER_SESSION_MAX: usize = 256;
/// Maximum events read from the log in one query.
pub const LOG_PAGE_EVENTS: usize = 256;
/// Page size of a subscriber that starts to catch up, or whose client accepts few events at a time.
pub const SUBSCRIBER_PAGE_EVENTS_MIN: usize = 16;
/// Number of failures of a session's actor within [`SESSION_FAILURE_WINDOW`] that parks it (A3).
pub const SESSION_FAILURES_MAX: u32 = 3;
/// The window for [`SESSION_FAILURES_MAX`].
pub const SESSION_FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Delay before a failed session is restarted. Doubles with each failure.
pub const SESSION_RESTART_DELAY: Duration = Duration::from_millis(50);
/// Maximum elicitations of one tool attempt that wait to be recorded (T1). Beyond it, the tool
/// waits before it can send another one.
pub const ELICITATION_BACKLOG_MAX: usize = 4;
/// Minimum time between two progress events of one call (T5).
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum progress reports of an attempt that wait to be processed.
pub const PROGRESS_BACKLOG_MAX: usize = 16;
/// Maximum bytes of a "waiting for" or "last error" text on the status board.
pub const STATUS_TEXT_BYTES_MAX: usize = 512;
/// Maximum times an input is decided again because another session spent the user's budget first.
pub const BUDGET_CONFLICT_RETRIES_MAX: u32 = 16;
/// Delay before a failed read or write of the log is retried (D8).
pub const STORE_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Delay before a session that did not record an expired deadline is woken again.
pub const DEADLINE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Interval of the check that all sessions have been passivated, at shutdown.
pub const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum attempts to purge a session whose log grows during the purge.
pub const PURGE_ATTEMPTS_MAX: u32 = 8;
/// Interval at which a delegation reads its child's log without a notification from the event bus.
pub const CHILD_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum live items a subscriber buffers while it replays the log.
pub const SUBSCRIBER_BACKLOG_MAX: usize = 256;
/// Maximum bytes of text of one session that wait for the end of a flush interval (E5).
pub const BATCH_BYTES_MAX: usize = 16 * 1024;
/// Maximum live items of one session that wait for the end of a flush interval. Well below the
/// capacity of a subscriber's mailbox, which receives all of them at once.
pub const BATCH_ITEMS_MAX: usize = 64;

/// Delay before a tool server is reconnected after its first failure. Doubles with each failure.
pub const RECONNECT_DELAY_BASE: Duration = Duration::from_millis(500);
/// Maximum delay before a tool server is reconnected.
pub const RECONNECT_DELAY_CAP: Duration = Duration::from_secs(30);
/// Time a tool server must have been connected for its delay to start again from the base.
pub const CONNECTION_STABLE_AFTER: Duration = Duration::from_secs(30);
/// Minimum time between two reloads of a tool server's list of tools.
pub const TOOL_LIST_RELOAD_INTERVAL: Duration = Duration::from_millis(250);

/// Number of consecutive failures of a model or a tool server that opens its circuit (R4).
pub const CIRCUIT_CONSECUTIVE_FAILURES_MAX: u32 = 5;
/// Time a circuit stays open at first. Doubles with each failed probe.
pub const CIRCUIT_OPEN_DURATION: Duration = Duration::from_secs(10);
/// Maximum time a circuit stays open.
pub const CIRCUIT_OPEN_DURATION_MAX: Duration = Duration::from_secs(120);
/// Time after which a probe of a half-open circuit without a result no longer blocks the next one.
pub const CIRCUIT_PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which the id of a chat client's request is known to its user (S5).
pub const REQUEST_ID_LIFETIME: Duration = Duration::from_hours(24);
/// Maximum expired requests that are deleted when one is stored. More than one, so that they become
/// fewer.
pub const EXPIRED_REQUESTS_DELETED_MAX: usize = 32;
/// Maximum approvals of one call that are considered. A call is part of a second approval only if it
/// needs approval again, for example after its tool became critical.
pub const APPROVALS_OF_CALL_MAX: usize = 16;

/// Maximum cached results of read-only tools (T6).
pub const CACHED_RESULTS_MAX: usize = 1_000;
/// Maximum bytes of all cached results.
pub const CACHED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum bytes of one cached result. A larger result is not cached.
pub const CACHED_RESULT_BYTES_MAX: usize = 1024 * 1024;
