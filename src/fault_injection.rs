//! Kills the process at a chosen point, as `kill -9` does: with `GREENROOM_FAULT=after_append:3` the
//! process dies when it reaches that point for the third time. The crash harness (`tests/crash`)
//! sets the variable.
//!
//! Decorates the ports, so neither the actors nor the core know this module. It exists only in
//! builds with debug assertions; a release build rejects the variable as unknown.

use anyhow::Context as _;
use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};
use greenroom_actors::{
    ports::{
        ApprovalQuery, Commit, Journal, JournalError, ModelClient, Progress, PurgeRequest,
        RequestRow, ServerPrompt, ServerResource, SessionCounts, SessionQuery, ToolCall, ToolHost,
    },
    runtime::RuntimeParams,
    tool_servers::ServerStatus,
};
use greenroom_core::{
    Timestamp,
    budget::{BudgetMeasure, SpendingTotals},
    call::{ToolOutcome, ToolOutput},
    ids::{ApprovalId, CallId, MessageId, Seq, SessionId, UserId},
    model::{delta::Delta, failure::ModelFailure, request::ModelRequest},
    policy::{Settings, ToolRegistry},
    session::{ApprovalRow, EventRecord, SessionEvent, SessionRow},
    time::Day,
};
use nix::sys::signal::{Signal, raise};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The environment variable that names the fault point and the pass at which the process dies.
pub const FAULT_VARIABLE: &str = "GREENROOM_FAULT";
/// Time from the start of a tool attempt or a backoff until the process dies in it.
const KILL_DELAY: Duration = Duration::from_millis(5);

/// The points at which the process can die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultPoint {
    /// Events decided but not stored.
    BeforeAppend,
    /// Events stored but neither published nor acted upon.
    AfterAppend,
    /// The same two points, only for a commit that contains an approval's decision.
    BeforeDecision,
    AfterDecision,
    /// Step published, request not sent to the provider.
    BeforeModel,
    /// Inside the model's response stream.
    DuringModel,
    /// Attempt published, request not sent to the tool.
    BeforeTool,
    /// The tool is running.
    DuringTool,
    /// The tool has returned, and its outcome is not recorded.
    AfterTool,
    /// A later attempt is scheduled and stored.
    Backoff,
}

impl FaultPoint {
    const ALL: [(&str, Self); 10] = [
        ("before_append", Self::BeforeAppend),
        ("after_append", Self::AfterAppend),
        ("before_decision", Self::BeforeDecision),
        ("after_decision", Self::AfterDecision),
        ("before_model", Self::BeforeModel),
        ("during_model", Self::DuringModel),
        ("before_tool", Self::BeforeTool),
        ("during_tool", Self::DuringTool),
        ("after_tool", Self::AfterTool),
        ("backoff", Self::Backoff),
    ];
}

/// A fault that fires once.
#[derive(Debug)]
struct FaultTrigger {
    point: FaultPoint,
    /// Number of times that the point is passed before the fault fires.
    remaining_passes: AtomicU64,
}

impl FaultTrigger {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (name, count) = text.split_once(':').unwrap_or((text, "1"));
        let known_names = || FaultPoint::ALL.map(|(name, _)| name).join(", ");
        let point = FaultPoint::ALL.iter().find(|(known, _)| *known == name);
        let (_, point) = point.with_context(|| {
            format!("{FAULT_VARIABLE}: unknown point `{name}`; known points: {}", known_names())
        })?;
        let count: u64 = count.parse().ok().filter(|count| *count > 0).with_context(|| {
            format!("{FAULT_VARIABLE}: `{count}` is not a count; the minimum is 1")
        })?;
        Ok(Self { point: *point, remaining_passes: AtomicU64::new(count - 1) })
    }

    /// Records that `point` is reached. True if the fault fires now.
    fn record_pass(&self, point: FaultPoint) -> bool {
        let decrement = |passes: u64| passes.checked_sub(1);
        self.point == point
            && self.remaining_passes.fetch_update(Relaxed, Relaxed, decrement).is_err()
    }

    fn kill_if_due(&self, point: FaultPoint) {
        if self.record_pass(point) {
            kill_process();
        }
    }
}

/// Kills this process with SIGKILL; nothing is flushed, closed or published.
fn kill_process() -> ! {
    if raise(Signal::SIGKILL).is_err() {
        std::process::abort();
    }
    loop {
        std::thread::park();
    }
}

/// Wraps the ports of `parts` so that the process dies at the fault point that the environment
/// names. Returns `parts` unchanged if the variable is not set.
pub fn inject_faults(parts: RuntimeParams) -> anyhow::Result<RuntimeParams> {
    let Ok(text) = std::env::var(FAULT_VARIABLE) else { return Ok(parts) };
    let fault = Arc::new(FaultTrigger::parse(&text)?);
    tracing::warn!(point = %text, "fault injection is active; this process will kill itself");
    let journal = Arc::new(FaultyJournal { inner: parts.journal, fault: fault.clone() });
    let models = Arc::new(FaultyModelClient { inner: parts.models, fault: fault.clone() });
    let tools = Arc::new(FaultyToolHost { inner: parts.tools, fault });
    Ok(RuntimeParams { journal, models, tools, ..parts })
}

struct FaultyJournal {
    inner: Arc<dyn Journal>,
    fault: Arc<FaultTrigger>,
}

#[async_trait]
impl Journal for FaultyJournal {
    async fn append(&self, commit: Commit) -> Result<(), JournalError> {
        let contains_event = |matches: fn(&SessionEvent) -> bool| {
            commit.records.iter().any(|record| matches(&record.event))
        };
        let has_decision =
            contains_event(|event| matches!(event, SessionEvent::ApprovalDecided { .. }));
        let has_backoff = contains_event(|event| {
            matches!(
                event,
                SessionEvent::ToolCallRetrying { .. } | SessionEvent::StepRetrying { .. }
            )
        });
        self.fault.kill_if_due(FaultPoint::BeforeAppend);
        if has_decision {
            self.fault.kill_if_due(FaultPoint::BeforeDecision);
        }
        self.inner.append(commit).await?;
        self.fault.kill_if_due(FaultPoint::AfterAppend);
        if has_decision {
            self.fault.kill_if_due(FaultPoint::AfterDecision);
        }
        if has_backoff && self.fault.record_pass(FaultPoint::Backoff) {
            actix_web::rt::spawn(async {
                tokio::time::sleep(KILL_DELAY).await;
                kill_process();
            });
        }
        Ok(())
    }

    async fn purge(&self, purge: PurgeRequest) -> Result<(), JournalError> {
        self.fault.kill_if_due(FaultPoint::BeforeAppend);
        self.inner.purge(purge).await?;
        self.fault.kill_if_due(FaultPoint::AfterAppend);
        Ok(())
    }

    async fn load_events(
        &self,
        session_id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        self.inner.load_events(session_id, after, limit).await
    }

    async fn load_head(&self, session_id: SessionId) -> Result<Seq, JournalError> {
        self.inner.load_head(session_id).await
    }

    async fn load_session(
        &self,
        session_id: SessionId,
    ) -> Result<Option<SessionRow>, JournalError> {
        self.inner.load_session(session_id).await
    }

    async fn list_sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, JournalError> {
        self.inner.list_sessions(query).await
    }

    async fn list_unfinished_sessions(&self) -> Result<Vec<SessionId>, JournalError> {
        self.inner.list_unfinished_sessions().await
    }

    async fn count_sessions(&self, owner: &UserId) -> Result<SessionCounts, JournalError> {
        self.inner.count_sessions(owner).await
    }

    async fn load_approval(
        &self,
        approval_id: ApprovalId,
    ) -> Result<Option<ApprovalRow>, JournalError> {
        self.inner.load_approval(approval_id).await
    }

    async fn list_approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRow>, JournalError> {
        self.inner.list_approvals(query).await
    }

    async fn list_approvals_of_call(
        &self,
        call_id: CallId,
    ) -> Result<Vec<ApprovalRow>, JournalError> {
        self.inner.list_approvals_of_call(call_id).await
    }

    async fn store_request(
        &self,
        row: &RequestRow,
        valid_since: Timestamp,
    ) -> Result<(), JournalError> {
        self.inner.store_request(row, valid_since).await
    }

    async fn find_request(
        &self,
        user: &UserId,
        request_id: &MessageId,
        valid_since: Timestamp,
    ) -> Result<Option<RequestRow>, JournalError> {
        self.inner.find_request(user, request_id, valid_since).await
    }

    async fn list_pending_deadlines(
        &self,
    ) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
        self.inner.list_pending_deadlines().await
    }

    async fn load_settings(&self, user: &UserId) -> Result<Option<Settings>, JournalError> {
        self.inner.load_settings(user).await
    }

    async fn store_settings(&self, user: &UserId, settings: &Settings) -> Result<(), JournalError> {
        self.inner.store_settings(user, settings).await
    }

    async fn load_spending(
        &self,
        user: &UserId,
        today: Day,
    ) -> Result<BTreeMap<BudgetMeasure, SpendingTotals>, JournalError> {
        self.inner.load_spending(user, today).await
    }

    async fn check_health(&self) -> Result<(), JournalError> {
        self.inner.check_health().await
    }
}

struct FaultyModelClient {
    inner: Arc<dyn ModelClient>,
    fault: Arc<FaultTrigger>,
}

impl ModelClient for FaultyModelClient {
    fn stream(
        &self,
        request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        self.fault.kill_if_due(FaultPoint::BeforeModel);
        let fault = self.fault.clone();
        let deltas = self.inner.stream(request);
        deltas.inspect(move |_| fault.kill_if_due(FaultPoint::DuringModel)).boxed()
    }
}

struct FaultyToolHost {
    inner: Arc<dyn ToolHost>,
    fault: Arc<FaultTrigger>,
}

impl ToolHost for FaultyToolHost {
    fn tool_registry(&self) -> Arc<ToolRegistry> {
        self.inner.tool_registry()
    }

    fn server_statuses(&self) -> Vec<ServerStatus> {
        self.inner.server_statuses()
    }

    fn list_prompts(&self) -> BoxFuture<'static, Vec<ServerPrompt>> {
        self.inner.list_prompts()
    }

    fn get_prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        self.inner.get_prompt(server, name, arguments)
    }

    fn list_resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
        self.inner.list_resources()
    }

    fn read_resource(
        &self,
        server: &str,
        uri: &str,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<ToolOutput, String>> {
        self.inner.read_resource(server, uri, bytes_max)
    }

    fn call_tool(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        self.fault.kill_if_due(FaultPoint::BeforeTool);
        let fault = self.fault.clone();
        let attempt = self.inner.call_tool(call, progress, cancel);
        let kills_tool = self.fault.record_pass(FaultPoint::DuringTool);
        async move {
            if kills_tool {
                actix_web::rt::spawn(async {
                    tokio::time::sleep(KILL_DELAY).await;
                    kill_process();
                });
            }
            let outcome = attempt.await;
            fault.kill_if_due(FaultPoint::AfterTool);
            outcome
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_fires_at_the_nth_pass() {
        let fault = FaultTrigger::parse("after_append:3").unwrap();
        let due = |point| fault.record_pass(point);
        assert_eq!(
            [
                FaultPoint::AfterAppend,
                FaultPoint::BeforeAppend,
                FaultPoint::AfterAppend,
                FaultPoint::AfterAppend
            ]
            .map(due),
            [false, false, false, true]
        );
        assert!(FaultTrigger::parse("backoff").unwrap().record_pass(FaultPoint::Backoff));
    }

    #[test]
    fn unknown_fault_point_lists_the_known_ones() {
        let error = |text| FaultTrigger::parse(text).unwrap_err().to_string();
        assert!(error("nowhere").contains("known points: before_append, after_append"));
        for text in ["backoff:0", "backoff:", "backoff:often", ""] {
            assert!(error(text).starts_with(FAULT_VARIABLE), "{text}");
        }
    }
}
