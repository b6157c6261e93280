//! Logs and metrics (A4, E7): set up once, at the start of the process.
//!
//! Logs go to standard error, so that what a command prints stays clean. Prompts and payloads are
//! logged at DEBUG only.

use anyhow::Context as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::io::IsTerminal as _;
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

/// What is logged where `GREENROOM_LOG` says nothing.
const LOG_DEFAULT: &str = "info,rmcp=warn,sqlx=warn,actix_server=warn,hyper=warn";

/// Starts logging: text for people at a terminal, JSON lines otherwise.
pub fn start_logging() -> anyhow::Result<()> {
    let filter = std::env::var("GREENROOM_LOG").unwrap_or_else(|_| LOG_DEFAULT.to_owned());
    let filter = EnvFilter::try_new(&filter).context("GREENROOM_LOG is not a log filter")?;
    let for_people = std::io::stderr().is_terminal();
    let text = for_people.then(|| fmt::layer().with_writer(std::io::stderr).with_target(false));
    let json = (!for_people).then(|| fmt::layer().json().with_writer(std::io::stderr));
    tracing_subscriber::registry().with(filter).with(text).with(json).try_init()?;
    Ok(())
}

/// The metrics of this process.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Starts collecting, once in a process.
    pub fn start() -> anyhow::Result<Self> {
        Ok(Self(
            PrometheusBuilder::new().install_recorder().context("metrics are collected twice")?,
        ))
    }

    /// What renders them for Prometheus.
    pub fn handle(&self) -> PrometheusHandle {
        self.0.clone()
    }
}
