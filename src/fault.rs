//! Dying on purpose, as by `kill -9`, at a chosen moment: `GREENROOM_FAULT=after_append:3` ends the
//! process when that point is reached for the third time. The crash harness (`tests/crash`) sets it.
//!
//! It decorates the ports, so neither the actors nor the core know of it. It exists in builds with
//! debug assertions alone: a release build has none of this, and refuses the variable as unknown.

use anyhow::Context as _;
use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};
use greenroom_actors::{
    ports::{
        ApprovalQuery, Commit, Journal, JournalError, ModelClient, Progress, Purge, ServerPrompt,
        ServerResource, SessionCounts, SessionQuery, ToolCall, ToolHost,
    },
    runtime::Parts,
    tool_host::ServerStatus,
};
use greenroom_core::{
    Timestamp,
    budget::{Measure, Spent},
    call::{ToolOutcome, ToolOutput},
    ids::{ApprovalId, Seq, SessionId, UserId},
    model::{delta::Delta, failure::ModelFailure, request::ModelRequest},
    policy::{Settings, ToolBook},
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

/// The variable that names the point, and how often it is reached before.
pub const VARIABLE: &str = "GREENROOM_FAULT";
/// How long a tool has been at work, or a backoff has lasted, when the process dies in it.
const A_MOMENT: Duration = Duration::from_millis(5);

/// The moments to die at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// Decided, and not stored.
    BeforeAppend,
    /// Stored, and neither published nor acted upon.
    AfterAppend,
    /// The same two, of a person's decision.
    BeforeDecision,
    AfterDecision,
    /// Published, and the provider not asked.
    BeforeModel,
    /// Inside the model's answer.
    DuringModel,
    /// Published, and nothing sent to the tool.
    BeforeTool,
    /// The tool is at work.
    DuringTool,
    /// The tool has answered, and nobody has noted what.
    AfterTool,
    /// Another attempt is due later, and that is stored.
    Backoff,
}

impl Point {
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

/// One fault, to strike once.
#[derive(Debug)]
struct Fault {
    point: Point,
    /// How often the point may still be passed.
    passes: AtomicU64,
}

impl Fault {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (name, count) = text.split_once(':').unwrap_or((text, "1"));
        let known = || Point::ALL.map(|(name, _)| name).join(", ");
        let point = Point::ALL.iter().find(|(known, _)| *known == name);
        let (_, point) = point
            .with_context(|| format!("{VARIABLE}: there is no `{name}`, there are {}", known()))?;
        let count: u64 = count.parse().ok().filter(|count| *count > 0).with_context(|| {
            format!("{VARIABLE}: `{count}` is no number of times; 1 is the first")
        })?;
        Ok(Self { point: *point, passes: AtomicU64::new(count - 1) })
    }

    /// Whether it strikes now.
    fn is_due(&self, here: Point) -> bool {
        let pass = |passes: u64| passes.checked_sub(1);
        self.point == here && self.passes.fetch_update(Relaxed, Relaxed, pass).is_err()
    }

    fn reach(&self, here: Point) {
        if self.is_due(here) {
            die();
        }
    }
}

/// Nothing is flushed, closed or told, as when somebody else does it.
fn die() -> ! {
    if raise(Signal::SIGKILL).is_err() {
        std::process::abort();
    }
    loop {
        std::thread::park();
    }
}

/// The same parts, which end the process at the point that the environment names, if it does.
pub fn arm(parts: Parts) -> anyhow::Result<Parts> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(parts) };
    let fault = Arc::new(Fault::parse(&text)?);
    tracing::warn!(point = %text, "this process will end itself");
    let journal = Arc::new(FatalJournal { inner: parts.journal, fault: fault.clone() });
    let models = Arc::new(FatalModels { inner: parts.models, fault: fault.clone() });
    let tools = Arc::new(FatalTools { inner: parts.tools, fault });
    Ok(Parts { journal, models, tools, ..parts })
}

struct FatalJournal {
    inner: Arc<dyn Journal>,
    fault: Arc<Fault>,
}

#[async_trait]
impl Journal for FatalJournal {
    async fn append(&self, commit: Commit) -> Result<(), JournalError> {
        let has = |kind: fn(&SessionEvent) -> bool| {
            commit.records.iter().any(|record| kind(&record.event))
        };
        let decides = has(|event| matches!(event, SessionEvent::ApprovalDecided { .. }));
        let waits = has(|event| {
            matches!(
                event,
                SessionEvent::ToolCallRetrying { .. } | SessionEvent::StepRetrying { .. }
            )
        });
        self.fault.reach(Point::BeforeAppend);
        if decides {
            self.fault.reach(Point::BeforeDecision);
        }
        self.inner.append(commit).await?;
        self.fault.reach(Point::AfterAppend);
        if decides {
            self.fault.reach(Point::AfterDecision);
        }
        if waits && self.fault.is_due(Point::Backoff) {
            actix_web::rt::spawn(async {
                tokio::time::sleep(A_MOMENT).await;
                die();
            });
        }
        Ok(())
    }

    async fn purge(&self, purge: Purge) -> Result<(), JournalError> {
        self.fault.reach(Point::BeforeAppend);
        self.inner.purge(purge).await?;
        self.fault.reach(Point::AfterAppend);
        Ok(())
    }

    async fn read(
        &self,
        session_id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        self.inner.read(session_id, after, limit).await
    }

    async fn head(&self, session_id: SessionId) -> Result<Seq, JournalError> {
        self.inner.head(session_id).await
    }

    async fn session(&self, session_id: SessionId) -> Result<Option<SessionRow>, JournalError> {
        self.inner.session(session_id).await
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, JournalError> {
        self.inner.sessions(query).await
    }

    async fn unfinished_sessions(&self) -> Result<Vec<SessionId>, JournalError> {
        self.inner.unfinished_sessions().await
    }

    async fn session_counts(&self, owner: &UserId) -> Result<SessionCounts, JournalError> {
        self.inner.session_counts(owner).await
    }

    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<ApprovalRow>, JournalError> {
        self.inner.approval(approval_id).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRow>, JournalError> {
        self.inner.approvals(query).await
    }

    async fn pending_deadlines(
        &self,
    ) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
        self.inner.pending_deadlines().await
    }

    async fn settings(&self, user: &UserId) -> Result<Option<Settings>, JournalError> {
        self.inner.settings(user).await
    }

    async fn put_settings(&self, user: &UserId, settings: &Settings) -> Result<(), JournalError> {
        self.inner.put_settings(user, settings).await
    }

    async fn spent(
        &self,
        user: &UserId,
        today: Day,
    ) -> Result<BTreeMap<Measure, Spent>, JournalError> {
        self.inner.spent(user, today).await
    }

    async fn check(&self) -> Result<(), JournalError> {
        self.inner.check().await
    }
}

struct FatalModels {
    inner: Arc<dyn ModelClient>,
    fault: Arc<Fault>,
}

impl ModelClient for FatalModels {
    fn stream(
        &self,
        request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        self.fault.reach(Point::BeforeModel);
        let fault = self.fault.clone();
        let heard = self.inner.stream(request);
        heard.inspect(move |_| fault.reach(Point::DuringModel)).boxed()
    }
}

struct FatalTools {
    inner: Arc<dyn ToolHost>,
    fault: Arc<Fault>,
}

impl ToolHost for FatalTools {
    fn book(&self) -> Arc<ToolBook> {
        self.inner.book()
    }

    fn servers(&self) -> Vec<ServerStatus> {
        self.inner.servers()
    }

    fn prompts(&self) -> BoxFuture<'static, Vec<ServerPrompt>> {
        self.inner.prompts()
    }

    fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        self.inner.prompt(server, name, arguments)
    }

    fn resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
        self.inner.resources()
    }

    fn read_resource(
        &self,
        server: &str,
        uri: &str,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<ToolOutput, String>> {
        self.inner.read_resource(server, uri, bytes_max)
    }

    fn call(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        self.fault.reach(Point::BeforeTool);
        let fault = self.fault.clone();
        let attempt = self.inner.call(call, progress, cancel);
        let dies = self.fault.is_due(Point::DuringTool);
        async move {
            if dies {
                actix_web::rt::spawn(async {
                    tokio::time::sleep(A_MOMENT).await;
                    die();
                });
            }
            let outcome = attempt.await;
            fault.reach(Point::AfterTool);
            outcome
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_strikes_at_its_point_the_nth_time_and_every_time_after() {
        let fault = Fault::parse("after_append:3").unwrap();
        let due = |point| fault.is_due(point);
        assert_eq!(
            [Point::AfterAppend, Point::BeforeAppend, Point::AfterAppend, Point::AfterAppend]
                .map(due),
            [false, false, false, true]
        );
        assert!(Fault::parse("backoff").unwrap().is_due(Point::Backoff));
    }

    #[test]
    fn what_is_no_fault_is_refused_with_those_there_are() {
        let said = |text| Fault::parse(text).unwrap_err().to_string();
        assert!(said("nowhere").contains("there are before_append, after_append"));
        for text in ["backoff:0", "backoff:", "backoff:often", ""] {
            assert!(said(text).starts_with(VARIABLE), "{text}");
        }
    }
}
