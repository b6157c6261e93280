//! Greenroom: an actor-based, event-driven runtime for LLM agents.
//!
//! This crate owns HTTP, SQL, the wire formats and all network access. `greenroom-actors` holds the
//! actors and the ports that this crate implements; `greenroom-core` holds the pure decision logic.

pub mod audit;
pub mod auth;
pub mod ceilings;
pub mod cli;
pub mod configuration;
pub mod dialect;
#[cfg(debug_assertions)]
pub mod fault_injection;
#[cfg(test)]
#[path = "../tests/support/hostile_input.rs"]
mod hostile_input;
pub mod http;
mod http_client;
pub mod model;
pub mod redaction;
pub mod rehearsal;
pub mod skill;
pub mod startup;
pub mod store;
pub mod telemetry;
#[cfg(target_os = "linux")]
mod thread_scheduling;
pub mod tool;
pub mod workflow;

/// Installs the TLS implementation of this process. Must be called before the first connection;
/// idempotent.
pub fn install_crypto() {
    // An error means that a provider is already installed.
    drop(rustls::crypto::ring::default_provider().install_default());
}
