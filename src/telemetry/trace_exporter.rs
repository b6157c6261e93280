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

/// Runs that are traced at the same time; further ones are not.
const RUNS_MAX: usize = 10_000;
/// Spans of a run that are open at the same time.
const OPEN_PER_RUN_MAX: usize = 128;
/// Bytes of an error that a span keeps.
const ERROR_BYTES_MAX: usize = 256;
/// Time for one export, and for the last one.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// What makes spans of events.
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
    /// The span in which it was asked for.
    parent: Option<TraceContext>,
    /// By the id of the attempt or approval.
    open_spans: HashMap<Uuid, OpenSpan>,
    /// Which of them is the model's.
    step_attempt: Option<Uuid>,
    /// The attempt that each call is at, and its tool.
    calls: HashMap<CallId, (Option<Uuid>, String)>,
}

#[derive(Debug)]
struct OpenSpan {
    started_at: Timestamp,
    name: String,
    kind: SpanKind,
    attributes: Vec<KeyValue>,
}

/// How a span ended.
enum SpanOutcome {
    Success,
    Failed { kind: &'static str, error: String },
}

impl TraceExporter {
    /// Traces that go to the collector at `endpoint`, such as `http://localhost:4318`. Needs the
    /// runtime on which requests are made.
    pub fn start(endpoint: &str, redactor: Arc<Redactor>) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(EXPORT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
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

    /// Exports what is left. Blocks until that is done or takes too long.
    pub fn shut_down(&self) {
        if let Err(error) = self.processor.shutdown_with_timeout(EXPORT_TIMEOUT) {
            tracing::warn!(%error, "the last traces could not be exported");
        }
    }

    /// Takes note of a run that goes on after a restart: when it began, in which trace, and what its
    /// calls are of.
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

    /// Takes note of an event of that session.
    pub fn record_event(&self, session_id: SessionId, agent: &AgentName, record: &EventRecord) {
        let Some(run_id) = record.run_id else { return };
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() >= RUNS_MAX && !runs.contains_key(&run_id) {
            return;
        }
        // What is first heard of a run is its message.
        let run = runs.entry(run_id).or_insert_with(|| RunSpans::new(record.at, None));
        if let SessionEvent::RunStarted { traceparent, .. } = &record.event {
            run.parent = *traceparent;
        }
        let telling = EventRecorder { traces: self, run_id, parent: run.parent, at: record.at };
        let outcome = telling.apply_event(run, &record.event);
        if let Some((end, usage)) = outcome
            && let Some(run) = runs.remove(&run_id)
        {
            drop(runs);
            telling.end_run(session_id, agent, run, end, usage);
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

/// One event, being taken note of.
struct EventRecorder<'a> {
    traces: &'a TraceExporter,
    run_id: RunId,
    parent: Option<TraceContext>,
    at: Timestamp,
}

impl EventRecorder<'_> {
    /// What the event begins and ends within the run; how the run ended, if it did.
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
            let finish = KeyValue::new("gen_ai.response.finish_reasons", reason);
            self.end_step(run, SpanOutcome::Success, *usage, Some(finish));
        } else if let E::ContextCompacted { usage, .. } = event {
            self.end_step(run, SpanOutcome::Success, *usage, None);
        } else if let E::StepRetrying { reason, usage, .. }
        | E::StepModelFallback { reason, usage, .. }
        | E::ContextCompactionFailed { reason, usage } = event
        {
            let end = SpanOutcome::Failed { kind: "model_failure", error: reason.clone() };
            self.end_step(run, end, *usage, None);
        } else if let E::ToolCallStarted { call_id, tool, .. } = event {
            run.calls.insert(*call_id, (None, tool.clone()));
        } else if let E::ToolCallAttemptStarted { call_id, attempt_id, attempt, .. } = event {
            let of_call = run.calls.entry(*call_id).or_default();
            of_call.0 = Some(attempt_id.0);
            let open = self.tool_span(*call_id, &of_call.1, *attempt);
            run.open_span(attempt_id.0, open);
        } else if let E::ToolCallCompleted { call_id, .. } = event {
            self.end_tool_attempt(run, *call_id, SpanOutcome::Success);
        } else if let E::ToolCallRetrying { call_id, reason, .. } = event {
            let end = SpanOutcome::Failed { kind: "tool_failure", error: reason.clone() };
            self.end_tool_attempt(run, *call_id, end);
        } else if let E::ToolCallFailed { call_id, error, .. } = event {
            let end = SpanOutcome::Failed { kind: "tool_failure", error: error.clone() };
            self.end_tool_attempt(run, *call_id, end);
        } else if let E::ApprovalRequested { approval } = event {
            let name = format!("await_approval {}", approval.kind().name());
            let id = approval.approval_id.0;
            let attributes = vec![KeyValue::new("greenroom.approval.id", id.to_string())];
            let (began, kind) = (self.at, SpanKind::Internal);
            run.open_span(id, OpenSpan { started_at: began, name, kind, attributes });
        } else if let E::ApprovalDecided { approval_id, closed: true, .. }
        | E::ApprovalCancelled { approval_id } = event
        {
            self.end_span(run, approval_id.0, SpanOutcome::Success, Vec::new());
        } else if let E::ApprovalExpired { approval_id } = event {
            let end = SpanOutcome::Failed {
                kind: "expired",
                error: "nobody answered in time".to_owned(),
            };
            self.end_span(run, approval_id.0, end, Vec::new());
        } else if let E::RunCompleted { usage, .. } | E::RunCancelled { usage, .. } = event {
            return Some((SpanOutcome::Success, *usage));
        } else if let E::RunFailed { error, usage, .. } = event {
            let end = SpanOutcome::Failed { kind: "run_failed", error: error.clone() };
            return Some((end, *usage));
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
        end: SpanOutcome,
        usage: ModelUsage,
        more: Option<KeyValue>,
    ) {
        if let Some(attempt) = run.step_attempt.take() {
            let attributes = tokens(usage).into_iter().chain(more).collect();
            self.end_span(run, attempt, end, attributes);
        }
    }

    fn end_tool_attempt(&self, run: &mut RunSpans, call_id: CallId, end: SpanOutcome) {
        let attempt = run.calls.get_mut(&call_id).and_then(|(attempt, _)| attempt.take());
        if let Some(attempt) = attempt {
            self.end_span(run, attempt, end, Vec::new());
        }
    }

    /// The run's own span.
    fn run_trace(&self) -> TraceContext {
        TraceContext::for_run(self.run_id, self.parent)
    }

    fn end_span(&self, run: &mut RunSpans, id: Uuid, end: SpanOutcome, more: Vec<KeyValue>) {
        if let Some(open) = run.open_spans.remove(&id) {
            self.export(
                TraceContext::span_id_from_uuid(id),
                Some(self.run_trace().span_id),
                open,
                end,
                more,
            );
        }
    }

    fn end_run(
        &self,
        session_id: SessionId,
        agent: &AgentName,
        mut run: RunSpans,
        end: SpanOutcome,
        usage: ModelUsage,
    ) {
        for id in run.open_spans.keys().copied().collect::<Vec<_>>() {
            let left = SpanOutcome::Failed { kind: "cancelled", error: "the run ended".to_owned() };
            self.end_span(&mut run, id, left, Vec::new());
        }
        let open = OpenSpan {
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
        self.export(self.run_trace().span_id, parent, open, end, tokens(usage).into());
    }

    fn export(
        &self,
        id: u64,
        parent: Option<u64>,
        open: OpenSpan,
        end: SpanOutcome,
        more: Vec<KeyValue>,
    ) {
        let OpenSpan { started_at: began, name, kind, mut attributes } = open;
        attributes.extend(more);
        let status = match end {
            SpanOutcome::Success => Status::Unset,
            SpanOutcome::Failed { kind, error } => {
                attributes.push(KeyValue::new("error.type", kind));
                let error = self.traces.redactor.redact_text(&error);
                Status::error(truncate(&error, ERROR_BYTES_MAX).to_owned())
            }
        };
        let of_run = self.run_trace();
        let trace_id = TraceId::from(of_run.trace_id);
        let (flags, state) = (TraceFlags::SAMPLED, TraceState::default());
        self.traces.processor.on_end(SpanData {
            span_context: SpanContext::new(trace_id, SpanId::from(id), flags, false, state),
            parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
            parent_span_is_remote: id == of_run.span_id && parent.is_some(),
            span_kind: kind,
            name: name.into(),
            start_time: to_system_time(began),
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

fn tokens(usage: ModelUsage) -> [KeyValue; 2] {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    [
        KeyValue::new("gen_ai.usage.input_tokens", count(usage.tokens.input_tokens)),
        KeyValue::new("gen_ai.usage.output_tokens", count(usage.tokens.output_tokens)),
    ]
}

fn to_system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or_default())
}

/// The exporter's thread has no runtime: requests are made on the server's.
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
        let answered = self.runtime.spawn(async move {
            let response = request.send().await?;
            let status = response.status();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        });
        let (status, body) = answered.await??;
        Ok(Response::builder().status(status).body(body)?)
    }
}
