//! Logs and metrics (A4, E7): set up once, at the start of the process.
//!
//! Logs go to standard error, so that what a command prints stays clean. Prompts and payloads are
//! logged at DEBUG only.

mod log_writer;
mod trace_exporter;

pub use log_writer::set_log_redactor;
pub use trace_exporter::TraceExporter;

use crate::{http, redaction::Redactor};
use anyhow::Context as _;
use greenroom_actors::ports::Meter;
use greenroom_core::{
    feedback::Feedback,
    ids::{AgentName, SessionId},
    json::to_canonical_json,
    session::{EventRecord, Run, SessionEvent},
    text::truncate,
    usage::{ModelUsage, TokenUsage},
};
use metrics::{
    Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::PrometheusHandle;
use std::{io::IsTerminal as _, sync::Arc, time::Duration};
use tokio::time::MissedTickBehavior;
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

/// What is logged where `GREENROOM_LOG` says nothing. What actix_http calls errors is what clients send
/// or that they hang up: as many lines as anybody likes, of nothing that is wrong here.
const LOG_DEFAULT: &str = "info,rmcp=warn,sqlx=warn,actix_server=warn,hyper=warn,actix_http=off";

/// What is logged of a server whose log nobody came for.
const LOG_QUIET: &str = "error,actix_http=off";

/// Starts logging: text for people at a terminal, JSON lines otherwise. Quietly where what a command
/// prints is what somebody wants to read.
pub fn start_logging(quietly: bool) -> anyhow::Result<()> {
    let default = if quietly { LOG_QUIET } else { LOG_DEFAULT };
    let filter = std::env::var("GREENROOM_LOG").unwrap_or_else(|_| default.to_owned());
    let filter = EnvFilter::try_new(&filter).context("GREENROOM_LOG is not a log filter")?;
    let for_people = std::io::stderr().is_terminal();
    let text = for_people
        .then(|| fmt::layer().with_writer(|| log_writer::RedactingWriter).with_target(false));
    let json =
        (!for_people).then(|| fmt::layer().json().with_writer(|| log_writer::RedactingWriter));
    tracing_subscriber::registry().with(filter).with(text).with(json).try_init()?;
    Ok(())
}

/// The metrics of this process.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Starts collecting, once in a process.
    pub fn start() -> anyhow::Result<Self> {
        let handle = http::metrics::install().context("metrics are collected twice")?;
        describe_counter!("greenroom_runs_total", "Runs that ended, by agent and outcome");
        describe_counter!("greenroom_calls_total", "Tool calls that ended, by agent and outcome");
        describe_counter!(
            "greenroom_steps_total",
            "Model attempts that ended, by agent and outcome"
        );
        describe_counter!("greenroom_retries_total", "Attempts that are tried again, by what");
        describe_histogram!(
            "greenroom_model_first_token_seconds",
            "Time from a request to the first text or call, by model"
        );
        describe_counter!(
            "greenroom_model_fallbacks_total",
            "Models that were given up for the next of the profile"
        );
        describe_counter!(
            "greenroom_compactions_total",
            "Conversations whose older part was summarised"
        );
        describe_counter!(
            "greenroom_approvals_total",
            "Questions to people, by what became of them"
        );
        describe_histogram!(
            "greenroom_bus_lag_seconds",
            "Time from a commit's publishing until the event bus takes it to subscribers"
        );
        describe_counter!("greenroom_tokens_total", "Tokens of ended runs, by agent and kind");
        describe_counter!("greenroom_unpriced_runs_total", "Ended runs whose cost is not known");
        describe_gauge!("greenroom_cost_usd", "What ended runs cost where it is known, by agent");
        Ok(Self(handle))
    }

    /// What renders them for Prometheus.
    pub fn handle(&self) -> PrometheusHandle {
        self.0.clone()
    }

    /// Sums up what was measured, again and again, for as long as it is polled: the recorder keeps
    /// every single measurement until then, whether anybody ever asks for the metrics or not.
    pub async fn run_upkeep(self) {
        let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.0.run_upkeep();
        }
    }
}

/// How long single measurements are kept.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Bytes of a call's input or error that a log line shows.
const LOGGED_BYTES_MAX: usize = 256;

/// Counts what sessions commit (M6, A4), and logs their tool calls (E7).
pub struct SessionMeter {
    redactor: Arc<Redactor>,
    trace_exporter: Option<Arc<TraceExporter>>,
    bus_lag: Histogram,
}

impl SessionMeter {
    /// A meter whose log lines are blacked out by `redactor`. Metrics must have been started.
    pub fn new(redactor: Arc<Redactor>, trace_exporter: Option<Arc<TraceExporter>>) -> Self {
        Self { redactor, trace_exporter, bus_lag: histogram!("greenroom_bus_lag_seconds") }
    }

    /// Tool calls at INFO with their input redacted and shortened, failed ones at WARN. What a
    /// model or tool wrote is a text to the log, which quotes it: it can't pass for a line of ours.
    fn log_call(&self, session_id: SessionId, record: &EventRecord) {
        let run_id = record.run_id.map(tracing::field::display);
        if let SessionEvent::ToolCallStarted { call_id, tool, arguments, .. } = &record.event {
            if !tracing::enabled!(tracing::Level::INFO) {
                return;
            }
            let input = to_canonical_json(&self.redactor.redact_value(arguments.to_value()));
            let (input, tool) =
                (truncate(&input, LOGGED_BYTES_MAX), truncate(tool, LOGGED_BYTES_MAX));
            tracing::info!(%session_id, run_id, %call_id, tool, input, "tool call");
        } else if let SessionEvent::ToolCallFailed { call_id, tool, reason, error, .. } =
            &record.event
        {
            let error = self.redactor.redact_text(error);
            let (error, tool) =
                (truncate(&error, LOGGED_BYTES_MAX), truncate(tool, LOGGED_BYTES_MAX));
            let reason = reason.name();
            tracing::warn!(%session_id, run_id, %call_id, tool, reason, error, "tool call failed");
        }
    }
}

impl Meter for SessionMeter {
    fn record_resumed_run(&self, run: &Run) {
        if let Some(traces) = &self.trace_exporter {
            traces.resume_run(run);
        }
    }

    fn record_publish_lag(&self, lag: Duration) {
        self.bus_lag.record(lag.as_secs_f64());
    }

    fn record_event(&self, session_id: SessionId, agent: &AgentName, record: &EventRecord) {
        use SessionEvent as E;
        self.log_call(session_id, record);
        if let Some(traces) = &self.trace_exporter {
            traces.record_event(session_id, agent, record);
        }
        match &record.event {
            E::RunCompleted { usage, .. } => record_run_end(agent, "completed", *usage),
            E::RunFailed { usage, .. } => record_run_end(agent, "failed", *usage),
            E::RunCancelled { usage, .. } => record_run_end(agent, "cancelled", *usage),
            E::ToolCallCompleted { .. } => record_call_end(agent, "completed"),
            E::AuthorizationDenied { .. } => record_call_end(agent, "denied"),
            E::ToolCallFailed { reason, .. } => record_call_end(agent, reason.name()),
            E::StepCompleted { .. } => record_step_end(agent, "completed"),
            E::StepRetrying { .. } => {
                record_step_end(agent, "failed");
                counter!("greenroom_retries_total", "of" => "step").increment(1);
            }
            E::StepModelFallback { from, to, .. } => {
                let (from, to) = (from.clone(), to.clone());
                counter!("greenroom_model_fallbacks_total", "from" => from, "to" => to)
                    .increment(1);
            }
            E::ContextCompacted { .. } => {
                counter!("greenroom_compactions_total", "agent" => agent.to_string()).increment(1);
            }
            E::ToolCallRetrying { .. } => {
                counter!("greenroom_retries_total", "of" => "call").increment(1);
            }
            E::ApprovalRequested { .. } => record_approval("requested"),
            E::ApprovalDecided { closed: true, .. } => record_approval("decided"),
            E::ApprovalExpired { .. } => record_approval("expired"),
            E::ApprovalCancelled { .. } => record_approval("cancelled"),
            E::ApprovalEscalated { .. } => record_approval("escalated"),
            E::BudgetReached { .. } => counter!("greenroom_budgets_reached_total").increment(1),
            E::FeedbackGiven { feedback: Feedback::Message { rating, .. }, .. } => {
                let rating = u8::from(*rating).to_string();
                counter!("greenroom_ratings_total", "rating" => rating).increment(1);
            }
            E::FeedbackGiven { feedback: Feedback::Call { .. }, .. }
            | E::ApprovalDecided { closed: false, .. }
            | E::SessionCreated { .. }
            | E::SessionForked { .. }
            | E::SessionSettingsChanged { .. }
            | E::SessionClosed { .. }
            | E::MessageQueued { .. }
            | E::MessageAccepted { .. }
            | E::MessageStarted { .. }
            | E::MessageCompleted { .. }
            | E::MessageDiscarded { .. }
            | E::RunStarted { .. }
            | E::StepStarted { .. }
            | E::ContextCompactionFailed { .. }
            | E::ToolCallStarted { .. }
            | E::ToolCallAllowed { .. }
            | E::ToolCallAttemptStarted { .. }
            // A child is counted itself.
            | E::ChildEvent { .. }
            | E::ChildGone { .. }
            | E::ToolCallProgress { .. }
            | E::LateResult { .. }
            | E::BudgetReserved { .. }
            | E::BudgetRaised { .. }
            | E::PreflightApproved { .. }
            | E::PreflightSkipped { .. }
            | E::GrantAdded { .. }
            | E::GrantRevoked { .. } => {}
        }
    }
}

fn record_run_end(agent: &AgentName, outcome: &'static str, usage: ModelUsage) {
    let agent = agent.to_string();
    counter!("greenroom_runs_total", "agent" => agent.clone(), "outcome" => outcome).increment(1);
    let TokenUsage { input_tokens, output_tokens, cached_tokens } = usage.tokens;
    for (kind, tokens) in
        [("input", input_tokens), ("output", output_tokens), ("cached", cached_tokens)]
    {
        counter!("greenroom_tokens_total", "agent" => agent.clone(), "kind" => kind)
            .increment(tokens);
    }
    match usage.cost_usd {
        Some(cost) => gauge!("greenroom_cost_usd", "agent" => agent).increment(cost),
        None => counter!("greenroom_unpriced_runs_total", "agent" => agent).increment(1),
    }
}

fn record_step_end(agent: &AgentName, outcome: &'static str) {
    let agent = agent.to_string();
    counter!("greenroom_steps_total", "agent" => agent, "outcome" => outcome).increment(1);
}

fn record_call_end(agent: &AgentName, outcome: &'static str) {
    let agent = agent.to_string();
    counter!("greenroom_calls_total", "agent" => agent, "outcome" => outcome).increment(1);
}

fn record_approval(state: &'static str) {
    counter!("greenroom_approvals_total", "state" => state).increment(1);
}
