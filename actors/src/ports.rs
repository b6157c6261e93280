//! What the actors need from the world, as traits. `src/` implements them for SQLite, HTTP and
//! MCP; [`crate::testing`] for tests.

use crate::tool_servers::ServerStatus;
use async_trait::async_trait;
use futures::{future::BoxFuture, stream::BoxStream};
use greenroom_core::{
    Timestamp,
    approval::{Elicitation, ElicitationAnswer},
    budget::{BudgetMeasure, SpendingTotals},
    call::{ToolOutcome, ToolOutput},
    ids::Seq,
    ids::{AgentName, ApprovalId, SessionId, UserId},
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

/// The durable log and what is kept beside it (D1).
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    /// Commits one decision, all of it or nothing. When this returns `Ok` it is durable.
    async fn append(&self, commit: Commit) -> Result<(), JournalError>;

    /// Removes everything of a session, its log, its row and its questions, in one commit with the
    /// audit log's note of it: all of it or nothing. What its user has spent stays spent. A session
    /// that does not exist is a conflict (S1).
    async fn purge(&self, purge: PurgeRequest) -> Result<(), JournalError>;

    /// The events after `after`, at most `limit`, in order. Empty at the head and for sessions
    /// that do not exist.
    async fn load_events(
        &self,
        session_id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError>;

    /// The number of the last event; 0 for a session that does not exist.
    async fn load_head(&self, session_id: SessionId) -> Result<Seq, JournalError>;

    /// One session's row.
    async fn load_session(&self, session_id: SessionId)
    -> Result<Option<SessionRow>, JournalError>;

    /// Sessions, newest first.
    async fn list_sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, JournalError>;

    /// Sessions whose run must be brought back to life at start (status `running`).
    async fn list_unfinished_sessions(&self) -> Result<Vec<SessionId>, JournalError>;

    /// How many sessions of a user are not closed, and how many have a run (X4).
    async fn count_sessions(&self, owner: &UserId) -> Result<SessionCounts, JournalError>;

    /// One question.
    async fn load_approval(
        &self,
        approval_id: ApprovalId,
    ) -> Result<Option<ApprovalRow>, JournalError>;

    /// Questions, newest first.
    async fn list_approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRow>, JournalError>;

    /// The deadlines of all questions that wait, for the desk at start.
    async fn list_pending_deadlines(
        &self,
    ) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError>;

    /// A user's settings, if they were ever stored (G4).
    async fn load_settings(&self, user: &UserId) -> Result<Option<Settings>, JournalError>;

    /// Stores a user's settings.
    async fn store_settings(&self, user: &UserId, settings: &Settings) -> Result<(), JournalError>;

    /// What a user has spent, of each measure, by `today` (G6).
    async fn load_spending(
        &self,
        user: &UserId,
        today: Day,
    ) -> Result<BTreeMap<BudgetMeasure, SpendingTotals>, JournalError>;

    /// Whether it can be read and written now (`/readyz`).
    async fn check_health(&self) -> Result<(), JournalError>;
}

/// One decision, to be committed.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The session.
    pub session_id: SessionId,
    /// The last event before these; the append fails unless it still is (compare-and-append).
    pub expected_head: Seq,
    /// The events, numbered from `expected_head + 1` without gaps; at least one.
    pub records: Arc<[EventRecord]>,
    /// What changes beside the log.
    pub projection: Projection,
}

/// A session, to be removed for good.
#[derive(Clone, Debug)]
pub struct PurgeRequest {
    /// The session.
    pub session_id: SessionId,
    /// Its last event; it fails unless it still is.
    pub expected_head: Seq,
    /// Who wants it gone.
    pub by: UserId,
    /// When they said so.
    pub at: Timestamp,
}

/// Which sessions.
#[derive(Clone, Debug, Default)]
pub struct SessionQuery {
    /// Only this user's.
    pub owner: Option<UserId>,
    /// Whether children of others are among them (S8).
    pub parent_filter: ParentFilter,
    /// Only those created before this one (the last of the page before).
    pub before: Option<SessionId>,
    /// At most so many.
    pub limit: usize,
}

/// Which sessions, by who started them (S8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParentFilter {
    /// Whoever did.
    #[default]
    Any,
    /// People.
    Roots,
    /// This session.
    ChildrenOf(SessionId),
}

/// Which questions.
#[derive(Clone, Debug, Default)]
pub struct ApprovalQuery {
    /// Only of this user's sessions.
    pub owner: Option<UserId>,
    /// Only of this session, and of those below it where people started it (S8).
    pub session_id: Option<SessionId>,
    /// Only in this state.
    pub state: Option<ApprovalState>,
    /// Only those asked before this one.
    pub before: Option<ApprovalId>,
    /// At most so many.
    pub limit: usize,
}

/// How many sessions a user has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Not closed.
    pub open: u64,
    /// With a run, waiting ones included.
    pub running: u64,
}

/// Why the journal did not do it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// Somebody else has appended to the session.
    #[error("the session's log has moved on")]
    Conflict,
    /// The user's spending has no room for what the commit claims.
    #[error("another session has spent what was left of the user's budget")]
    BudgetExceeded,
    /// The database can't be reached or written; it may work later.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// What is stored does not make sense.
    #[error("the stored log can't be read: {0}")]
    Corrupt(String),
}

/// Calls models over some wire (M1).
pub trait ModelClient: Send + Sync + 'static {
    /// Opens the stream; its items are what arrived together. It ends after [`Delta::Finished`]
    /// or with the one error that ended it; that nothing comes for too long is one (M3). Dropping
    /// it closes the connection.
    fn stream(&self, request: ModelRequest)
    -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>>;
}

/// Runs tools, wherever they live (T1).
pub trait ToolHost: Send + Sync + 'static {
    /// The tools there are now.
    fn tool_registry(&self) -> Arc<ToolRegistry>;

    /// The servers the tools come from, those that are not there included (T2).
    fn server_statuses(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    /// The prompts that servers list now (C3).
    fn list_prompts(&self) -> BoxFuture<'static, Vec<ServerPrompt>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// The text of one of them. The error is for people.
    fn get_prompt(
        &self,
        server: &str,
        _name: &str,
        _arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        let error = format!("there is no server `{server}`");
        Box::pin(std::future::ready(Err(error)))
    }

    /// The resources that servers list now, and their templates of more (T1).
    fn list_resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// What one of them holds, at most so many bytes of it. The error is for people.
    fn read_resource(
        &self,
        server: &str,
        _uri: &str,
        _bytes_max: usize,
    ) -> BoxFuture<'static, Result<ToolOutput, String>> {
        let error = format!("there is no server `{server}`");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Runs one attempt to its end. Never panics and never hangs past the timeout; reports on
    /// `progress` without waiting for it, and asks `call.people`; stops early when `cancel` fires,
    /// telling the tool.
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
    /// The server's name for it.
    pub name: String,
    /// For people.
    pub description: String,
    /// What it wants to know: texts.
    pub arguments: Vec<PromptArgument>,
}

/// A resource of a tool server, or a template of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Resource)]
pub struct ServerResource {
    /// The server, by its name in configuration.
    pub server: String,
    /// What it is read by; of a template, with blanks in braces (RFC 6570).
    pub uri: String,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// What kind of file it is, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its size, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whether it is a template.
    pub is_template: bool,
}

/// What a prompt wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// For people.
    pub description: String,
    /// Whether there must be one.
    pub required: bool,
}

/// One attempt of a tool call.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// Who calls; `None` outside of sessions.
    pub caller: Option<Caller>,
    /// The tool, as the book names it.
    pub tool: String,
    /// The arguments, already validated and allowed.
    pub arguments: Value,
    /// The same for every attempt of one call; sent to the tool in `_meta` (D3).
    pub idempotency_key: String,
    /// Time for the attempt, counted from sending; `None` means no limit.
    pub timeout: Option<Duration>,
    /// Bytes of the result that are kept.
    pub result_bytes_max: usize,
    /// Where it can ask people while it runs (T1). Its time stands still meanwhile (T4).
    pub elicitation: ElicitationChannel,
    /// Who hears what comes after the attempt was given up (R1).
    pub late_result: LateResultHandler,
}

/// Who hears the result of an attempt that was given up: it may be all that is ever heard of what the
/// call did. By default nobody.
#[derive(Clone, Default)]
pub struct LateResultHandler(Option<Arc<dyn Fn(ToolOutcome) + Send + Sync>>);

impl LateResultHandler {
    /// Whoever that tells.
    pub fn new(hear: impl Fn(ToolOutcome) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hear)))
    }

    /// Tells the result.
    pub fn report(&self, outcome: ToolOutcome) {
        if let Some(hear) = &self.0 {
            hear(outcome);
        }
    }
}

impl fmt::Debug for LateResultHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Late").field(&self.0.is_some()).finish()
    }
}

/// The people whom a running tool can ask. By default there are none.
#[derive(Clone, Debug, Default)]
pub struct ElicitationChannel(Option<mpsc::Sender<ElicitationRequest>>);

/// A question of a running tool.
#[derive(Debug)]
pub struct ElicitationRequest {
    /// What it wants.
    pub elicitation: Elicitation,
    /// Takes the answer; dropped, it says that there is none.
    pub reply: oneshot::Sender<ElicitationAnswer>,
    /// Fires when the tool no longer wants to know.
    pub withdrawn: CancellationToken,
}

impl ElicitationChannel {
    /// Those who are asked over this channel.
    pub fn new(asks: mpsc::Sender<ElicitationRequest>) -> Self {
        Self(Some(asks))
    }

    /// Asks, and waits for as long as it takes. Dropping the future withdraws the question.
    pub async fn request(&self, elicitation: Elicitation) -> ElicitationAnswer {
        let Some(asks) = &self.0 else { return ElicitationAnswer::Declined };
        let (reply, answer) = oneshot::channel();
        let withdrawn = CancellationToken::new();
        let _no_longer_asked = withdrawn.clone().drop_guard();
        if asks.send(ElicitationRequest { elicitation, reply, withdrawn }).await.is_err() {
            return ElicitationAnswer::Cancelled;
        }
        answer.await.unwrap_or(ElicitationAnswer::Cancelled)
    }
}

/// The session that a call is made in. Built-in tools need it; of others nobody is told but the
/// trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The session.
    pub session_id: SessionId,
    /// Its agent.
    pub agent: AgentName,
    /// The attempt's place in the run's trace; sent to the tool in `_meta` (A4).
    pub trace: TraceContext,
}

/// How far a tool is (T5).
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// How much is done.
    pub progress: f64,
    /// Of how much.
    pub total: Option<f64>,
    /// In words.
    pub message: Option<String>,
}

/// Counts and logs what happens, for whoever runs the server.
pub trait Meter: Send + Sync + 'static {
    /// An event of a session of that agent was committed. Called between a commit and what
    /// follows from it: it must not wait.
    fn record_event(&self, session_id: SessionId, agent: &AgentName, record: &EventRecord);

    /// A session came back from its log with this run going on. What is committed of it comes next.
    fn record_resumed_run(&self, run: &Run);

    /// A commit was published so long ago that a bus takes only now.
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

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
    /// A fresh unpredictable number.
    fn seed(&self) -> u64;
}
