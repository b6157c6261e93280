//! Traces for OpenTelemetry (A4), by its conventions for generative AI: a run is `invoke_agent`, a
//! model attempt `chat`, a tool attempt `execute_tool`, and what waits for a person a span too.
//!
//! Spans are made of committed events: they tell what the log tells, and their ids follow from it
//! (`greenroom_core::trace`). Prompts, arguments and results are in none. What is exported is handed
//! to a queue of a bounded length that is emptied on a thread of its own; a collector that is away
//! costs spans, never time.

use crate::redaction::Redactor;
use async_trait::async_trait;
use bytes::Bytes;
use greenroom_core::{
    Timestamp,
    ids::{AgentName, CallId, RunId, SessionId},
    session::{self, EventRecord, SessionEvent},
    text::cut,
    trace::Trace,
    usage::Spending,
};
use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId,
    trace::{SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

/// Runs that are traced at the same time; further ones are not.
const RUNS_MAX: usize = 10_000;
/// Spans of a run that are open at the same time.
const OPEN_PER_RUN_MAX: usize = 128;
/// Bytes of an error that a span keeps.
const ERROR_BYTES_MAX: usize = 256;
/// Time for one export, and for the last one.
const EXPORT_TIME: Duration = Duration::from_secs(10);

/// What makes spans of events.
#[derive(Debug)]
pub struct Traces {
    processor: Box<dyn SpanProcessor>,
    scope: InstrumentationScope,
    redactor: Arc<Redactor>,
    runs: Mutex<HashMap<RunId, Run>>,
}

#[derive(Debug)]
struct Run {
    began: Timestamp,
    /// The span in which it was asked for.
    parent: Option<Trace>,
    /// By the id of the attempt or approval.
    open: HashMap<Uuid, Open>,
    /// Which of them is the model's.
    step: Option<Uuid>,
    /// The attempt that each call is at, and its tool.
    calls: HashMap<CallId, (Option<Uuid>, String)>,
}

#[derive(Debug)]
struct Open {
    began: Timestamp,
    name: String,
    kind: SpanKind,
    attributes: Vec<KeyValue>,
}

/// How a span ended.
enum End {
    Good,
    Failed { kind: &'static str, error: String },
}

impl Traces {
    /// Traces that go to the collector at `endpoint`, such as `http://localhost:4318`. Needs the
    /// runtime on which requests are made.
    pub fn start(endpoint: &str, redactor: Arc<Redactor>) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(EXPORT_TIME)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let runtime = tokio::runtime::Handle::current();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client { http, runtime })
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        let resource = Resource::builder()
            .with_service_name("greenroom")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        processor.set_resource(&resource);
        Ok(Self {
            processor: Box::new(processor),
            scope: InstrumentationScope::builder("greenroom").build(),
            redactor,
            runs: Mutex::default(),
        })
    }

    /// Exports what is left. Blocks until that is done or takes too long.
    pub fn finish(&self) {
        if let Err(error) = self.processor.shutdown_with_timeout(EXPORT_TIME) {
            tracing::warn!(%error, "the last traces could not be exported");
        }
    }

    /// Takes note of a run that goes on after a restart: when it began, in which trace, and what its
    /// calls are of.
    pub fn resumed(&self, run: &session::Run) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() < RUNS_MAX {
            runs.entry(run.run_id).or_insert_with(|| {
                let calls = run.calls.iter().map(|call| (call.call_id, (None, call.tool.clone())));
                Run { calls: calls.collect(), ..Run::new(run.started_at, run.traceparent) }
            });
        }
    }

    /// Takes note of an event of that session.
    pub fn committed(&self, session_id: SessionId, agent: &AgentName, record: &EventRecord) {
        let Some(run_id) = record.run_id else { return };
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= RUNS_MAX && !runs.contains_key(&run_id) {
            return;
        }
        // What is first heard of a run is its message.
        let run = runs.entry(run_id).or_insert_with(|| Run::new(record.at, None));
        if let SessionEvent::RunStarted { traceparent, .. } = &record.event {
            run.parent = *traceparent;
        }
        let telling = Telling { traces: self, run_id, parent: run.parent, at: record.at };
        let outcome = telling.heard(run, &record.event);
        if let Some((end, usage)) = outcome
            && let Some(run) = runs.remove(&run_id)
        {
            drop(runs);
            telling.run_ended(session_id, agent, run, end, usage);
        }
    }
}

impl Run {
    fn new(began: Timestamp, parent: Option<Trace>) -> Self {
        Self { began, parent, open: HashMap::new(), step: None, calls: HashMap::new() }
    }

    fn begin(&mut self, id: Uuid, open: Open) {
        if self.open.len() < OPEN_PER_RUN_MAX {
            self.open.insert(id, open);
        }
    }
}

/// One event, being taken note of.
struct Telling<'a> {
    traces: &'a Traces,
    run_id: RunId,
    parent: Option<Trace>,
    at: Timestamp,
}

impl Telling<'_> {
    /// What the event begins and ends within the run; how the run ended, if it did.
    fn heard(&self, run: &mut Run, event: &SessionEvent) -> Option<(End, Spending)> {
        use SessionEvent as E;
        if let E::StepStarted { attempt_id, attempt, model, .. } = event {
            run.step = Some(attempt_id.0);
            run.begin(attempt_id.0, self.chat(model, *attempt));
        } else if let E::StepCompleted { usage, stop_reason } = event {
            let reason = serde_json::to_value(stop_reason).unwrap_or_default();
            let reason = reason.as_str().unwrap_or("other").to_owned();
            let finish = KeyValue::new("gen_ai.response.finish_reasons", reason);
            self.step_ended(run, End::Good, *usage, Some(finish));
        } else if let E::ContextCompacted { usage, .. } = event {
            self.step_ended(run, End::Good, *usage, None);
        } else if let E::StepRetrying { reason, usage, .. }
        | E::StepModelFallback { reason, usage, .. }
        | E::ContextCompactionFailed { reason, usage } = event
        {
            let end = End::Failed { kind: "model_failure", error: reason.clone() };
            self.step_ended(run, end, *usage, None);
        } else if let E::ToolCallStarted { call_id, tool, .. } = event {
            run.calls.insert(*call_id, (None, tool.clone()));
        } else if let E::ToolCallAttemptStarted { call_id, attempt_id, attempt, .. } = event {
            let of_call = run.calls.entry(*call_id).or_default();
            of_call.0 = Some(attempt_id.0);
            let open = self.execute_tool(*call_id, &of_call.1, *attempt);
            run.begin(attempt_id.0, open);
        } else if let E::ToolCallCompleted { call_id, .. } = event {
            self.attempt_ended(run, *call_id, End::Good);
        } else if let E::ToolCallRetrying { call_id, reason, .. } = event {
            let end = End::Failed { kind: "tool_failure", error: reason.clone() };
            self.attempt_ended(run, *call_id, end);
        } else if let E::ToolCallFailed { call_id, error, .. } = event {
            let end = End::Failed { kind: "tool_failure", error: error.clone() };
            self.attempt_ended(run, *call_id, end);
        } else if let E::ApprovalRequested { approval } = event {
            let name = format!("await_approval {}", approval.kind().name());
            let id = approval.approval_id.0;
            let attributes = vec![KeyValue::new("greenroom.approval.id", id.to_string())];
            let (began, kind) = (self.at, SpanKind::Internal);
            run.begin(id, Open { began, name, kind, attributes });
        } else if let E::ApprovalDecided { approval_id, closed: true, .. }
        | E::ApprovalCancelled { approval_id } = event
        {
            self.ended(run, approval_id.0, End::Good, Vec::new());
        } else if let E::ApprovalExpired { approval_id } = event {
            let end = End::Failed { kind: "expired", error: "nobody answered in time".to_owned() };
            self.ended(run, approval_id.0, end, Vec::new());
        } else if let E::RunCompleted { usage, .. } | E::RunCancelled { usage, .. } = event {
            return Some((End::Good, *usage));
        } else if let E::RunFailed { error, usage, .. } = event {
            let end = End::Failed { kind: "run_failed", error: error.clone() };
            return Some((end, *usage));
        }
        None
    }

    fn chat(&self, model: &str, attempt: u32) -> Open {
        Open {
            began: self.at,
            name: format!("chat {model}"),
            kind: SpanKind::Client,
            attributes: vec![
                KeyValue::new("gen_ai.operation.name", "chat"),
                KeyValue::new("gen_ai.request.model", model.to_owned()),
                KeyValue::new("greenroom.attempt", i64::from(attempt)),
            ],
        }
    }

    fn execute_tool(&self, call_id: CallId, tool: &str, attempt: u32) -> Open {
        Open {
            began: self.at,
            name: format!("execute_tool {tool}"),
            kind: SpanKind::Internal,
            attributes: vec![
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("gen_ai.tool.name", tool.to_owned()),
                KeyValue::new("gen_ai.tool.call.id", call_id.to_string()),
                KeyValue::new("greenroom.attempt", i64::from(attempt)),
            ],
        }
    }

    fn step_ended(&self, run: &mut Run, end: End, usage: Spending, more: Option<KeyValue>) {
        if let Some(attempt) = run.step.take() {
            let attributes = tokens(usage).into_iter().chain(more).collect();
            self.ended(run, attempt, end, attributes);
        }
    }

    fn attempt_ended(&self, run: &mut Run, call_id: CallId, end: End) {
        let attempt = run.calls.get_mut(&call_id).and_then(|(attempt, _)| attempt.take());
        if let Some(attempt) = attempt {
            self.ended(run, attempt, end, Vec::new());
        }
    }

    /// The run's own span.
    fn of_run(&self) -> Trace {
        Trace::of_run(self.run_id, self.parent)
    }

    fn ended(&self, run: &mut Run, id: Uuid, end: End, more: Vec<KeyValue>) {
        if let Some(open) = run.open.remove(&id) {
            self.export(Trace::span_of(id), Some(self.of_run().span_id), open, end, more);
        }
    }

    fn run_ended(
        &self,
        session_id: SessionId,
        agent: &AgentName,
        mut run: Run,
        end: End,
        usage: Spending,
    ) {
        for id in run.open.keys().copied().collect::<Vec<_>>() {
            let left = End::Failed { kind: "cancelled", error: "the run ended".to_owned() };
            self.ended(&mut run, id, left, Vec::new());
        }
        let open = Open {
            began: run.began,
            name: format!("invoke_agent {agent}"),
            kind: SpanKind::Internal,
            attributes: vec![
                KeyValue::new("gen_ai.operation.name", "invoke_agent"),
                KeyValue::new("gen_ai.agent.name", agent.to_string()),
                KeyValue::new("gen_ai.conversation.id", session_id.to_string()),
                KeyValue::new("greenroom.run.id", self.run_id.to_string()),
            ],
        };
        let parent = self.parent.map(|parent| parent.span_id);
        self.export(self.of_run().span_id, parent, open, end, tokens(usage).into());
    }

    fn export(&self, id: u64, parent: Option<u64>, open: Open, end: End, more: Vec<KeyValue>) {
        let Open { began, name, kind, mut attributes } = open;
        attributes.extend(more);
        let status = match end {
            End::Good => Status::Unset,
            End::Failed { kind, error } => {
                attributes.push(KeyValue::new("error.type", kind));
                let error = self.traces.redactor.text(&error);
                Status::error(cut(&error, ERROR_BYTES_MAX).to_owned())
            }
        };
        let of_run = self.of_run();
        let trace_id = TraceId::from(of_run.trace_id);
        let (flags, state) = (TraceFlags::SAMPLED, TraceState::default());
        self.traces.processor.on_end(SpanData {
            span_context: SpanContext::new(trace_id, SpanId::from(id), flags, false, state),
            parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
            parent_span_is_remote: id == of_run.span_id && parent.is_some(),
            span_kind: kind,
            name: name.into(),
            start_time: instant(began),
            end_time: instant(self.at),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.traces.scope.clone(),
        });
    }
}

fn tokens(usage: Spending) -> [KeyValue; 2] {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    [
        KeyValue::new("gen_ai.usage.input_tokens", count(usage.tokens.input_tokens)),
        KeyValue::new("gen_ai.usage.output_tokens", count(usage.tokens.output_tokens)),
    ]
}

fn instant(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or_default())
}

/// The exporter's thread has no runtime: requests are made on the server's.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: tokio::runtime::Handle,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let request = self.http.request(head.method, head.uri.to_string());
        let request = request.headers(head.headers).body(body);
        let answered = self.runtime.spawn(async move {
            let response = request.send().await?;
            let status = response.status();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        });
        let (status, body) = answered.await??;
        Ok(Response::builder().status(status).body(body)?)
    }
}
