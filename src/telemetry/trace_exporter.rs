//! Exports traces by OpenTelemetry's conventions for generative AI (A4): a run is an `invoke_agent`
//! span, a model attempt `chat`, a tool attempt `execute_tool`, a pending approval `await_approval`.
//!
//! Spans are derived from committed events, and their ids from the ids in these events
//! (`greenroom_core::trace_context`). No span contains prompts, arguments or results. Finished spans
//! enter a bounded queue that a separate thread exports; an unreachable collector loses spans but
//! never delays a session.

use crate::{http_client, redaction::Redactor};
use async_trait::async_trait;
use bytes::Bytes;
use greenroom_core::{
    Timestamp,
    ids::{AgentName, CallId, RunId, SessionId},
    session::{self, EventRecord, SessionEvent},
    text::truncate,
    trace_context::TraceContext,
    usage::ModelUsage,
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

/// Maximum number of runs traced at the same time; further runs are not traced.
const RUNS_MAX: usize = 10_000;
/// Maximum number of open spans of a run.
const OPEN_PER_RUN_MAX: usize = 128;
/// Maximum bytes of an error in a span.
const ERROR_BYTES_MAX: usize = 256;
/// Timeout of an export request and of the final export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds spans from events and exports them.
#[derive(Debug)]
pub struct TraceExporter {
    processor: Box<dyn SpanProcessor>,
    scope: InstrumentationScope,
    redactor: Arc<Redactor>,
    runs: Mutex<HashMap<RunId, RunSpans>>,
}

#[derive(Debug)]
struct RunSpans {
    started_at: Timestamp,
    /// The span of the client's request, if it sent a `traceparent`.
    parent: Option<TraceContext>,
    /// Open spans by the id of their attempt or approval.
    open_spans: HashMap<Uuid, OpenSpan>,
    /// The id of the running model attempt.
    step_attempt: Option<Uuid>,
    /// The current attempt and the tool of each call.
    calls: HashMap<CallId, (Option<Uuid>, String)>,
}

#[derive(Debug)]
struct OpenSpan {
    started_at: Timestamp,
    name: String,
    kind: SpanKind,
    attributes: Vec<KeyValue>,
}

/// The outcome of a span.
enum SpanOutcome {
    Success,
    Failed { kind: &'static str, error: String },
}

impl TraceExporter {
    /// Creates an exporter to the OTLP collector at `endpoint`, such as `http://localhost:4318`.
    /// Requires the tokio runtime that performs the export requests.
    pub fn start(endpoint: &str, redactor: Arc<Redactor>) -> anyhow::Result<Self> {
        let http = http_client::build_client(&endpoint.parse()?, |client| {
            client.timeout(EXPORT_TIMEOUT).redirect(reqwest::redirect::Policy::none())
        })?;
        let runtime = tokio::runtime::Handle::current();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(OtlpHttpClient { http, runtime })
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

    /// Exports the remaining spans. Blocks until they are exported or [`EXPORT_TIMEOUT`] passes.
    pub fn shut_down(&self) {
        if let Err(error) = self.processor.shutdown_with_timeout(EXPORT_TIMEOUT) {
            tracing::warn!(%error, "failed to export the remaining traces");
        }
    }

    /// Registers a run that resumes after a restart: its start, its trace and the tools of its
    /// calls.
    pub fn resume_run(&self, run: &session::Run) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() < RUNS_MAX {
            runs.entry(run.run_id).or_insert_with(|| {
                let calls = run.calls.iter().map(|call| (call.call_id, (None, call.tool.clone())));
                RunSpans {
                    calls: calls.collect(),
                    ..RunSpans::new(run.started_at, run.traceparent)
                }
            });
        }
    }

    /// Opens and closes spans for an event of the session.
    pub fn record_event(&self, session_id: SessionId, agent: &AgentName, record: &EventRecord) {
        let Some(run_id) = record.run_id else { return };
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= RUNS_MAX && !runs.contains_key(&run_id) {
            return;
        }
        // The first event of a run is its message.
        let run = runs.entry(run_id).or_insert_with(|| RunSpans::new(record.at, None));
        if let SessionEvent::RunStarted { traceparent, .. } = &record.event {
            run.parent = *traceparent;
        }
        let recorder = EventRecorder { traces: self, run_id, parent: run.parent, at: record.at };
        let run_end = recorder.apply_event(run, &record.event);
        if let Some((outcome, usage)) = run_end
            && let Some(run) = runs.remove(&run_id)
        {
            drop(runs);
            recorder.end_run(session_id, agent, run, outcome, usage);
        }
    }
}

impl RunSpans {
    fn new(started_at: Timestamp, parent: Option<TraceContext>) -> Self {
        Self {
            started_at,
            parent,
            open_spans: HashMap::new(),
            step_attempt: None,
            calls: HashMap::new(),
        }
    }

    fn open_span(&mut self, id: Uuid, open: OpenSpan) {
        if self.open_spans.len() < OPEN_PER_RUN_MAX {
            self.open_spans.insert(id, open);
        }
    }
}

/// Context for applying one event to its run's spans.
struct EventRecorder<'a> {
    traces: &'a TraceExporter,
    run_id: RunId,
    parent: Option<TraceContext>,
    at: Timestamp,
}

impl EventRecorder<'_> {
    /// Opens and closes the spans of the event. Returns the run's outcome if the event ends the run.
    fn apply_event(
        &self,
        run: &mut RunSpans,
        event: &SessionEvent,
    ) -> Option<(SpanOutcome, ModelUsage)> {
        use SessionEvent as E;
        if let E::StepStarted { attempt_id, attempt, model, .. } = event {
            run.step_attempt = Some(attempt_id.0);
            run.open_span(attempt_id.0, self.chat_span(model, *attempt));
        } else if let E::StepCompleted { usage, stop_reason } = event {
            let reason = serde_json::to_value(stop_reason).unwrap_or_default();
            let reason = reason.as_str().unwrap_or("other").to_owned();
            let finish_reason = KeyValue::new("gen_ai.response.finish_reasons", reason);
            self.end_step(run, SpanOutcome::Success, *usage, Some(finish_reason));
        } else if let E::ContextCompacted { usage, .. } = event {
            self.end_step(run, SpanOutcome::Success, *usage, None);
        } else if let E::StepRetrying { reason, usage, .. }
        | E::StepModelFallback { reason, usage, .. }
        | E::ContextCompactionFailed { reason, usage } = event
        {
            let outcome = SpanOutcome::Failed { kind: "model_failure", error: reason.clone() };
            self.end_step(run, outcome, *usage, None);
        } else if let E::ToolCallStarted { call_id, tool, .. } = event {
            run.calls.insert(*call_id, (None, tool.clone()));
        } else if let E::ToolCallAttemptStarted { call_id, attempt_id, attempt, .. } = event {
            let call = run.calls.entry(*call_id).or_default();
            call.0 = Some(attempt_id.0);
            let span = self.tool_span(*call_id, &call.1, *attempt);
            run.open_span(attempt_id.0, span);
        } else if let E::ToolCallCompleted { call_id, .. } = event {
            self.end_tool_attempt(run, *call_id, SpanOutcome::Success);
        } else if let E::ToolCallRetrying { call_id, reason, .. } = event {
            let outcome = SpanOutcome::Failed { kind: "tool_failure", error: reason.clone() };
            self.end_tool_attempt(run, *call_id, outcome);
        } else if let E::ToolCallFailed { call_id, error, .. } = event {
            let outcome = SpanOutcome::Failed { kind: "tool_failure", error: error.clone() };
            self.end_tool_attempt(run, *call_id, outcome);
        } else if let E::ApprovalRequested { approval } = event {
            let name = format!("await_approval {}", approval.kind().name());
            let id = approval.approval_id.0;
            let attributes = vec![KeyValue::new("greenroom.approval.id", id.to_string())];
            let (started_at, kind) = (self.at, SpanKind::Internal);
            run.open_span(id, OpenSpan { started_at, name, kind, attributes });
        } else if let E::ApprovalDecided { approval_id, closed: true, .. }
        | E::ApprovalCancelled { approval_id } = event
        {
            self.end_span(run, approval_id.0, SpanOutcome::Success, Vec::new());
        } else if let E::ApprovalExpired { approval_id } = event {
            let outcome =
                SpanOutcome::Failed { kind: "expired", error: "the approval expired".to_owned() };
            self.end_span(run, approval_id.0, outcome, Vec::new());
        } else if let E::RunCompleted { usage, .. } | E::RunCancelled { usage, .. } = event {
            return Some((SpanOutcome::Success, *usage));
        } else if let E::RunFailed { error, usage, .. } = event {
            let outcome = SpanOutcome::Failed { kind: "run_failed", error: error.clone() };
            return Some((outcome, *usage));
        }
        None
    }

    fn chat_span(&self, model: &str, attempt: u32) -> OpenSpan {
        OpenSpan {
            started_at: self.at,
            name: format!("chat {model}"),
            kind: SpanKind::Client,
            attributes: vec![
                KeyValue::new("gen_ai.operation.name", "chat"),
                KeyValue::new("gen_ai.request.model", model.to_owned()),
                KeyValue::new("greenroom.attempt", i64::from(attempt)),
            ],
        }
    }

    fn tool_span(&self, call_id: CallId, tool: &str, attempt: u32) -> OpenSpan {
        OpenSpan {
            started_at: self.at,
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

    fn end_step(
        &self,
        run: &mut RunSpans,
        outcome: SpanOutcome,
        usage: ModelUsage,
        extra_attribute: Option<KeyValue>,
    ) {
        if let Some(attempt) = run.step_attempt.take() {
            let attributes = token_attributes(usage).into_iter().chain(extra_attribute).collect();
            self.end_span(run, attempt, outcome, attributes);
        }
    }

    fn end_tool_attempt(&self, run: &mut RunSpans, call_id: CallId, outcome: SpanOutcome) {
        let attempt = run.calls.get_mut(&call_id).and_then(|(attempt, _)| attempt.take());
        if let Some(attempt) = attempt {
            self.end_span(run, attempt, outcome, Vec::new());
        }
    }

    /// Returns the trace context of the run's span.
    fn run_trace(&self) -> TraceContext {
        TraceContext::for_run(self.run_id, self.parent)
    }

    fn end_span(
        &self,
        run: &mut RunSpans,
        id: Uuid,
        outcome: SpanOutcome,
        extra_attributes: Vec<KeyValue>,
    ) {
        if let Some(span) = run.open_spans.remove(&id) {
            self.export(
                TraceContext::span_id_from_uuid(id),
                Some(self.run_trace().span_id),
                span,
                outcome,
                extra_attributes,
            );
        }
    }

    fn end_run(
        &self,
        session_id: SessionId,
        agent: &AgentName,
        mut run: RunSpans,
        outcome: SpanOutcome,
        usage: ModelUsage,
    ) {
        for id in run.open_spans.keys().copied().collect::<Vec<_>>() {
            let cancelled =
                SpanOutcome::Failed { kind: "cancelled", error: "the run ended".to_owned() };
            self.end_span(&mut run, id, cancelled, Vec::new());
        }
        let run_span = OpenSpan {
            started_at: run.started_at,
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
        let attributes = token_attributes(usage).into();
        self.export(self.run_trace().span_id, parent, run_span, outcome, attributes);
    }

    fn export(
        &self,
        id: u64,
        parent: Option<u64>,
        span: OpenSpan,
        outcome: SpanOutcome,
        extra_attributes: Vec<KeyValue>,
    ) {
        let OpenSpan { started_at, name, kind, mut attributes } = span;
        attributes.extend(extra_attributes);
        let status = match outcome {
            SpanOutcome::Success => Status::Unset,
            SpanOutcome::Failed { kind, error } => {
                attributes.push(KeyValue::new("error.type", kind));
                let error = self.traces.redactor.redact_text(&error);
                Status::error(truncate(&error, ERROR_BYTES_MAX).to_owned())
            }
        };
        let run_trace = self.run_trace();
        let trace_id = TraceId::from(run_trace.trace_id);
        let (flags, state) = (TraceFlags::SAMPLED, TraceState::default());
        self.traces.processor.on_end(SpanData {
            span_context: SpanContext::new(trace_id, SpanId::from(id), flags, false, state),
            parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
            parent_span_is_remote: id == run_trace.span_id && parent.is_some(),
            span_kind: kind,
            name: name.into(),
            start_time: to_system_time(started_at),
            end_time: to_system_time(self.at),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.traces.scope.clone(),
        });
    }
}

fn token_attributes(usage: ModelUsage) -> [KeyValue; 2] {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    [
        KeyValue::new("gen_ai.usage.input_tokens", count(usage.tokens.input_tokens)),
        KeyValue::new("gen_ai.usage.output_tokens", count(usage.tokens.output_tokens)),
    ]
}

fn to_system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or_default())
}

/// Sends export requests on the server's runtime, because the exporter's thread has none.
#[derive(Debug)]
struct OtlpHttpClient {
    http: reqwest::Client,
    runtime: tokio::runtime::Handle,
}

#[async_trait]
impl HttpClient for OtlpHttpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let request = self.http.request(head.method, head.uri.to_string());
        let request = request.headers(head.headers).body(body);
        let response = self.runtime.spawn(async move {
            let response = request.send().await?;
            let status = response.status();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        });
        let (status, body) = response.await??;
        Ok(Response::builder().status(status).body(body)?)
    }
}
