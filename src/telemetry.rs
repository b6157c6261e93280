//! Logging, metrics and tracing (A4, E7), set up once at process start.
//!
//! Logs are written to standard error, so that standard output holds only a command's output.
//! Prompts and payloads are logged at DEBUG only. Libraries log warnings and errors only, whatever
//! `GREENROOM_LOG` says, because they do not know what must be redacted.

mod log_writer;
mod session_log;
mod trace_exporter;

pub use log_writer::set_log_redactor;
pub use trace_exporter::TraceExporter;

use crate::{http, redaction::Redactor};
use anyhow::Context as _;
use greenroom_actors::ports::Meter;
use greenroom_core::{
    feedback::Feedback,
    ids::{AgentName, SessionId},
    session::{EventRecord, Run, SessionEvent},
    usage::{ModelUsage, TokenUsage},
};
use metrics::{
    Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::PrometheusHandle;
use std::{io::IsTerminal as _, sync::Arc, time::Duration};
use tokio::time::MissedTickBehavior;
use tracing::{Level, Metadata};
use tracing_subscriber::{EnvFilter, filter::filter_fn, fmt, prelude::*};

/// The log filter if `GREENROOM_LOG` is not set. `actix_http` is off because its errors report
/// malformed requests and closed connections: clients could fill the log with them.
const LOG_DEFAULT: &str = "info,rmcp=warn,sqlx=warn,actix_server=warn,hyper=warn,actix_http=off";

/// The log filter of a command that runs a server internally and whose output is its own report.
const LOG_QUIET: &str = "error,actix_http=off";

/// The amount of logging if `GREENROOM_LOG` is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogVolume {
    /// Information, warnings and errors.
    Normal,
    /// Errors only, for commands that run a server internally.
    ErrorsOnly,
}

/// Starts logging to standard error: text if it is a terminal, JSON lines otherwise.
pub fn start_logging(volume: LogVolume) -> anyhow::Result<()> {
    let default = match volume {
        LogVolume::Normal => LOG_DEFAULT,
        LogVolume::ErrorsOnly => LOG_QUIET,
    };
    let filter = std::env::var("GREENROOM_LOG").unwrap_or_else(|_| default.to_owned());
    let filter = EnvFilter::try_new(&filter).context("GREENROOM_LOG is not a valid log filter")?;
    let is_terminal = std::io::stderr().is_terminal();
    let text = is_terminal
        .then(|| fmt::layer().with_writer(|| log_writer::RedactingWriter).with_target(false));
    let json =
        (!is_terminal).then(|| fmt::layer().json().with_writer(|| log_writer::RedactingWriter));
    tracing_subscriber::registry()
        .with(filter)
        .with(filter_fn(is_permitted))
        .with(text)
        .with(json)
        .try_init()?;
    Ok(())
}

/// The crates whose log lines redact what they contain.
const OWN_CRATES: [&str; 3] = ["greenroom", "greenroom_actors", "greenroom_core"];

/// True for own log lines, and for warnings and errors of libraries.
fn is_permitted(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let crate_name = target.split_once("::").map_or(target, |(crate_name, _)| crate_name);
    OWN_CRATES.contains(&crate_name) || *metadata.level() <= Level::WARN
}

/// The metrics of this process.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Starts collecting metrics. Can be called once per process.
    pub fn start() -> anyhow::Result<Self> {
        let handle = http::metrics::install().context("metrics are already being collected")?;
        describe_counter!("greenroom_runs_total", "Runs that ended, by agent and outcome");
        describe_counter!("greenroom_calls_total", "Tool calls that ended, by agent and outcome");
        describe_counter!(
            "greenroom_steps_total",
            "Model attempts that ended, by agent and outcome"
        );
        describe_counter!("greenroom_retries_total", "Retries, by kind of attempt (step or call)");
        describe_histogram!(
            "greenroom_model_first_token_seconds",
            "Time from a request to the first text or call, by model"
        );
        describe_counter!(
            "greenroom_model_fallbacks_total",
            "Fallbacks to the next model of the agent, by both models"
        );
        describe_counter!("greenroom_compactions_total", "Context compactions, by agent");
        describe_counter!("greenroom_approvals_total", "Approvals that reached a state, by state");
        describe_histogram!(
            "greenroom_bus_lag_seconds",
            "Time from the publication of a commit until the event bus forwards it to subscribers"
        );
        describe_counter!("greenroom_tokens_total", "Tokens of ended runs, by agent and kind");
        describe_counter!("greenroom_unpriced_runs_total", "Ended runs of unknown cost, by agent");
        describe_gauge!("greenroom_cost_usd", "Cost of ended runs of known cost in USD, by agent");
        Ok(Self(handle))
    }

    /// Returns the handle that renders the metrics for Prometheus.
    pub fn handle(&self) -> PrometheusHandle {
        self.0.clone()
    }

    /// Aggregates the collected measurements every [`UPKEEP_INTERVAL`]. Never returns. Without the
    /// upkeep, the recorder keeps each single measurement until the metrics are rendered.
    pub async fn run_upkeep(self) {
        let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.0.run_upkeep();
        }
    }
}

/// Interval at which single measurements are aggregated.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Counts committed events (M6, A4) and logs them (E7).
pub struct SessionMeter {
    redactor: Arc<Redactor>,
    trace_exporter: Option<Arc<TraceExporter>>,
    bus_lag: Histogram,
}

impl SessionMeter {
    /// Creates a meter that redacts its log lines with `redactor`. Requires started metrics.
    pub fn new(redactor: Arc<Redactor>, trace_exporter: Option<Arc<TraceExporter>>) -> Self {
        Self { redactor, trace_exporter, bus_lag: histogram!("greenroom_bus_lag_seconds") }
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
        session_log::log_event(session_id, record, &self.redactor);
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
            | E::QueuedMessageChanged { .. }
            | E::QueuedMessageWithdrawn { .. }
            | E::MessageStarted { .. }
            | E::MessageCompleted { .. }
            | E::MessageDiscarded { .. }
            | E::RunStarted { .. }
            | E::StepStarted { .. }
            | E::ContextCompactionFailed { .. }
            | E::ToolCallStarted { .. }
            | E::ToolCallAllowed { .. }
            | E::ToolCallAttemptStarted { .. }
            // The child session counts its own events.
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
    let TokenUsage { input_tokens, output_tokens, cached_tokens, estimated: _ } = usage.tokens;
    for (kind, tokens) in
        [("input", input_tokens), ("output", output_tokens), ("cached", cached_tokens)]
    {
        counter!("greenroom_tokens_total", "agent" => agent.clone(), "kind" => kind)
            .increment(tokens);
    }
    match usage.cost_usd {
        Some(cost) => gauge!("greenroom_cost_usd", "agent" => agent).increment(cost.to_f64()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{self, Write},
        sync::Mutex,
    };

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn e7_libraries_log_no_payloads_at_any_level() {
        let output = Output::default();
        let writer = output.clone();
        let subscriber = tracing_subscriber::registry()
            .with(EnvFilter::new("trace,rmcp=trace"))
            .with(filter_fn(is_permitted))
            .with(fmt::layer().with_writer(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::trace!(target: "rmcp::service", "payload LEAK");
            tracing::info!(target: "rmcp::service", "payload LEAK");
            tracing::info!(target: "greenroomish", "payload LEAK");
            let span = tracing::info_span!(target: "rmcp::service", "serve", payload = "LEAK");
            let _entered = span.enter();
            tracing::warn!(target: "rmcp::service", "library warning");
            tracing::trace!(target: "greenroom_actors::session", "own trace");
            tracing::debug!(target: "greenroom", "own debug");
        });
        let output = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        assert!(!output.contains("LEAK"), "{output}");
        for line in ["library warning", "own trace", "own debug"] {
            assert!(output.contains(line), "{line}: {output}");
        }
    }
}
