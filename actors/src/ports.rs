//! The interfaces the actors depend on, as traits. `src/` implements them for SQLite, HTTP and MCP;
//! [`crate::testing`] implements them for tests.

use crate::tool_servers::ServerStatus;
use async_trait::async_trait;
use futures::{future::BoxFuture, stream::BoxStream};
use greenroom_core::{
    Timestamp,
    approval::{Elicitation, ElicitationAnswer},
    budget::{BudgetMeasure, SpendingTotals},
    call::{ToolOutcome, ToolOutput},
    ids::{AgentName, ApprovalId, CallId, MessageId, Seq, SessionId, UserId},
    json::Digest,
    model::{delta::Delta, failure::ModelFailure, request::ModelRequest},
    policy::{Settings, ToolRegistry},
    session::{ApprovalRow, ApprovalState, EventRecord, Projection, Run, SessionRow},
    time::Day,
    trace_context::TraceContext,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

/// The durable event log and the rows derived from it (D1).
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Commits one decision atomically. The commit is durable when this returns `Ok`.
    async fn append(&self, commit: Commit) -> Result<(), JournalError>;

    /// Deletes the log, the row and the approvals of a session and records the purge in the audit
    /// log, in one atomic commit. The user's spending is not changed. A session that does not exist
    /// is a conflict (S1).
    async fn purge(&self, request: PurgeRequest) -> Result<(), JournalError>;

    /// Returns at most `limit` events after `after_seq`, in order. Empty at the head and for
    /// sessions that do not exist.
    async fn load_events(
        &self,
        session_id: SessionId,
        after_seq: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError>;

    /// Returns the number of the last event; 0 for a session that does not exist.
    async fn load_head(&self, session_id: SessionId) -> Result<Seq, JournalError>;

    /// Returns a session's row.
    async fn load_session(&self, session_id: SessionId)
    -> Result<Option<SessionRow>, JournalError>;

    /// Returns sessions, newest first.
    async fn list_sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, JournalError>;

    /// Returns the sessions with a run to resume at start (status `running`).
    async fn list_unfinished_sessions(&self) -> Result<Vec<SessionId>, JournalError>;

    /// Counts a user's sessions that are not closed, and those that have a run (X4).
    async fn count_sessions(&self, owner: &UserId) -> Result<SessionCounts, JournalError>;

    /// Returns an approval.
    async fn load_approval(
        &self,
        approval_id: ApprovalId,
    ) -> Result<Option<ApprovalRow>, JournalError>;

    /// Returns approvals, newest first.
    async fn list_approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRow>, JournalError>;

    /// Returns the approvals with this call among their steps, newest first.
    async fn list_approvals_of_call(
        &self,
        call_id: CallId,
    ) -> Result<Vec<ApprovalRow>, JournalError>;

    /// Stores a request of a chat client. Has no effect if the user has a row with this id that was
    /// stored at `valid_since` or later. Deletes at most [`EXPIRED_REQUESTS_DELETED_MAX`](crate::limits::EXPIRED_REQUESTS_DELETED_MAX) rows that
    /// were stored before. A purge of the session deletes its rows.
    async fn store_request(
        &self,
        row: &RequestRow,
        valid_since: Timestamp,
    ) -> Result<(), JournalError>;

    /// Returns the user's request with this id that was stored at `valid_since` or later.
    async fn find_request(
        &self,
        user: &UserId,
        request_id: &MessageId,
        valid_since: Timestamp,
    ) -> Result<Option<RequestRow>, JournalError>;

    /// Returns the deadlines of all pending approvals, for the approval desk at start.
    async fn list_pending_deadlines(
        &self,
    ) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError>;

    /// Returns a user's settings, if they were ever stored (G4).
    async fn load_settings(&self, user: &UserId) -> Result<Option<Settings>, JournalError>;

    /// Stores a user's settings.
    async fn store_settings(&self, user: &UserId, settings: &Settings) -> Result<(), JournalError>;

    /// Returns a user's spending for each measure, as of `today` (G6).
    async fn load_spending(
        &self,
        user: &UserId,
        today: Day,
    ) -> Result<BTreeMap<BudgetMeasure, SpendingTotals>, JournalError>;

    /// Checks that the journal can be read and written now (`/readyz`).
    async fn check_health(&self) -> Result<(), JournalError>;
}

/// A decision to be committed.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The session.
    pub session_id: SessionId,
    /// The session's last event before this commit. The append fails with a conflict if the session
    /// has a newer event.
    pub expected_head: Seq,
    /// The events, numbered from `expected_head + 1` without gaps; at least one.
    pub records: Arc<[EventRecord]>,
    /// The changes to the rows derived from the log.
    pub projection: Projection,
}

/// A request to remove a session permanently.
#[derive(Clone, Debug)]
pub struct PurgeRequest {
    /// The session.
    pub session_id: SessionId,
    /// The session's last event. The purge fails with a conflict if the session has a newer event.
    pub expected_head: Seq,
    /// The user who requested the purge.
    pub by: UserId,
    /// The time of the request.
    pub at: Timestamp,
}

/// A request of a chat client, stored so that a repetition is recognized (S5).
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRow {
    /// The user who sent the request.
    pub user: UserId,
    /// The id that the client chose.
    pub request_id: MessageId,
    /// The session of the request. It is created after this row.
    pub session_id: SessionId,
    /// The digest of the request's content.
    pub digest: Digest,
    /// The time of the request.
    pub at: Timestamp,
}

/// The filters of a list of sessions.
#[derive(Clone, Debug, Default)]
pub struct SessionQuery {
    /// Only sessions of this user.
    pub owner: Option<UserId>,
    /// Includes or excludes child sessions (S8).
    pub parent_filter: ParentFilter,
    /// Only sessions created before this one, which is the last of the previous page.
    pub before: Option<SessionId>,
    /// Maximum number of sessions.
    pub limit: usize,
}

/// A filter of sessions by their parent (S8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParentFilter {
    /// All sessions.
    #[default]
    Any,
    /// Sessions without a parent.
    Roots,
    /// The children of this session.
    ChildrenOf(SessionId),
}

/// The filters of a list of approvals.
#[derive(Clone, Debug, Default)]
pub struct ApprovalQuery {
    /// Only approvals of this user's sessions.
    pub owner: Option<UserId>,
    /// Only approvals of this session and, if it is a root, of its descendants (S8).
    pub session_id: Option<SessionId>,
    /// Only approvals in this state.
    pub state: Option<ApprovalState>,
    /// Only approvals requested before this one.
    pub before: Option<ApprovalId>,
    /// Maximum number of approvals.
    pub limit: usize,
}

/// The number of a user's sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Sessions that are not closed.
    pub open: u64,
    /// Sessions with a run, including runs that wait for an approval.
    pub running: u64,
}

/// The reason why a journal operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// Another writer has appended to the session.
    #[error("another writer has appended to the session's log")]
    Conflict,
    /// The commit needs more than the rest of the user's budget.
    #[error("another session has spent the rest of the user's budget")]
    BudgetExceeded,
    /// The database can't be reached or written. The operation may succeed later.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// The stored data is invalid.
    #[error("the stored log can't be read: {0}")]
    Corrupt(String),
}

/// A client of language models (M1).
pub trait ModelClient: Send + Sync + 'static {
    /// Opens a stream. Each item contains the deltas that arrived together. The stream ends after
    /// [`Delta::Finished`], or with one error; a timeout is such an error (M3). Dropping the stream
    /// closes the connection.
    fn stream(&self, request: ModelRequest)
    -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>>;
}

/// Runs tool calls on tool servers (T1).
pub trait ToolHost: Send + Sync + 'static {
    /// Returns the tools that are connected now.
    fn tool_registry(&self) -> Arc<ToolRegistry>;

    /// Returns the state of each tool server, including servers that are not connected (T2).
    fn server_statuses(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    /// Returns the prompts that the servers list now (C3).
    fn list_prompts(&self) -> BoxFuture<'static, Vec<ServerPrompt>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Returns the text of a prompt. The error is a human-readable text.
    fn get_prompt(
        &self,
        server: &str,
        _name: &str,
        _arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        let error = format!("there is no server `{server}`");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Returns the resources and resource templates that the servers list now (T1).
    fn list_resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Reads at most `bytes_max` bytes of a resource. The error is a human-readable text.
    fn read_resource(
        &self,
        server: &str,
        _uri: &str,
        _bytes_max: usize,
    ) -> BoxFuture<'static, Result<ToolOutput, String>> {
        let error = format!("there is no server `{server}`");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Runs one attempt of a call until it ends. Never panics and never runs beyond the timeout.
    /// Reports on `progress` without waiting for the receiver, and sends elicitations to
    /// `call.elicitation`. When `cancel` fires, the tool is notified and the attempt ends early.
    fn call_tool(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome>;
}

/// A prompt of a tool server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerPrompt {
    /// The server, by its name in configuration.
    pub server: String,
    /// The server's name of the prompt.
    pub name: String,
    /// A description for users.
    pub description: String,
    /// The arguments; their values are texts.
    pub arguments: Vec<PromptArgument>,
}

/// A resource of a tool server, or a template for resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Resource)]
pub struct ServerResource {
    /// The server, by its name in configuration.
    pub server: String,
    /// The resource's URI. A template has placeholders in braces (RFC 6570).
    pub uri: String,
    /// A name for users.
    pub name: String,
    /// A description for users.
    pub description: String,
    /// The MIME type, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The size in bytes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// True if this is a template.
    pub is_template: bool,
}

/// An argument of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptArgument {
    /// The argument's name.
    pub name: String,
    /// A description for users.
    pub description: String,
    /// True if the argument is required.
    pub required: bool,
}

/// One attempt of a tool call.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The calling session; `None` outside of sessions.
    pub caller: Option<CallingSession>,
    /// The tool's name in the tool registry.
    pub tool: String,
    /// The arguments, validated and allowed.
    pub arguments: Value,
    /// The key shared by all attempts of a call; sent to the tool in `_meta` (D3).
    pub idempotency_key: String,
    /// Time limit of the attempt, counted from sending; `None` means no limit.
    pub timeout: Option<Duration>,
    /// Maximum bytes of the result to keep.
    pub result_bytes_max: usize,
    /// The channel for elicitations during the call (T1). The time limit is paused while one waits
    /// for an answer (T4).
    pub elicitation: ElicitationChannel,
    /// The receiver of a result that arrives after the attempt was given up (R1).
    pub late_result: LateResultHandler,
}

/// A callback for the result of an attempt that was given up. A late result may be the only
/// evidence of what the call did. The default ignores it.
#[derive(Clone, Default)]
pub struct LateResultHandler(Option<Arc<dyn Fn(ToolOutcome) + Send + Sync>>);

impl LateResultHandler {
    /// Creates a handler that calls `callback`.
    pub fn new(callback: impl Fn(ToolOutcome) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(callback)))
    }

    /// Reports the late result.
    pub fn report(&self, outcome: ToolOutcome) {
        if let Some(callback) = &self.0 {
            callback(outcome);
        }
    }
}

impl fmt::Debug for LateResultHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LateResultHandler").field(&self.0.is_some()).finish()
    }
}

/// A channel over which a running tool sends elicitations. The default declines all of them.
#[derive(Clone, Debug, Default)]
pub struct ElicitationChannel(Option<mpsc::Sender<ElicitationRequest>>);

/// An elicitation of a running tool.
#[derive(Debug)]
pub struct ElicitationRequest {
    /// The elicitation.
    pub elicitation: Elicitation,
    /// The channel for the answer. If it is dropped, the elicitation counts as cancelled.
    pub reply: oneshot::Sender<ElicitationAnswer>,
    /// Cancelled when the tool no longer needs the answer.
    pub withdrawn: CancellationToken,
}

impl ElicitationChannel {
    /// Creates a channel that sends elicitations to `requests`.
    pub fn new(requests: mpsc::Sender<ElicitationRequest>) -> Self {
        Self(Some(requests))
    }

    /// Sends an elicitation and waits for its answer without a time limit. Dropping the future
    /// withdraws the elicitation.
    pub async fn request(&self, elicitation: Elicitation) -> ElicitationAnswer {
        let Some(requests) = &self.0 else { return ElicitationAnswer::Declined };
        let (reply, answer) = oneshot::channel();
        let withdrawn = CancellationToken::new();
        let _withdraw_guard = withdrawn.clone().drop_guard();
        if requests.send(ElicitationRequest { elicitation, reply, withdrawn }).await.is_err() {
            return ElicitationAnswer::Cancelled;
        }
        answer.await.unwrap_or(ElicitationAnswer::Cancelled)
    }
}

/// The session that makes a call. Built-in tools use it; external tools receive only the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallingSession {
    /// The session.
    pub session_id: SessionId,
    /// The session's agent profile.
    pub agent: AgentName,
    /// The trace context of the attempt; sent to the tool in `_meta` (A4).
    pub trace: TraceContext,
}

/// The progress of a running tool (T5).
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The amount done.
    pub progress: f64,
    /// The total amount, if known.
    pub total: Option<f64>,
    /// A description of the progress.
    pub message: Option<String>,
}

/// A receiver of metrics and log records.
pub trait Meter: Send + Sync + 'static {
    /// Records a committed event of a session with the given agent profile. Called between the
    /// commit and its effects, so it must not block.
    fn record_event(&self, session_id: SessionId, agent: &AgentName, record: &EventRecord);

    /// Records that a session was rebuilt with this run in progress, before its further events.
    fn record_resumed_run(&self, run: &Run);

    /// Records the time between publishing a commit and its handling by the event bus.
    fn record_publish_lag(&self, lag: Duration);
}

/// A meter that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopMeter;

impl Meter for NoopMeter {
    fn record_event(&self, _: SessionId, _: &AgentName, _: &EventRecord) {}

    fn record_resumed_run(&self, _: &Run) {}

    fn record_publish_lag(&self, _: Duration) {}
}

/// A source of time and randomness.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
    /// Returns a new unpredictable number.
    fn seed(&self) -> u64;
}
