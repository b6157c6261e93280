//! Greenroom: an actor-based, event-driven runtime for LLM agents.
//!
//! This crate is the top floor: the only one that knows HTTP, SQL, JSON frames and the network.
//! `greenroom-actors` below it knows actors and ports, `greenroom-core` below that is pure.

pub mod audit;
pub mod auth;
pub mod cli;
pub mod configuration;
pub mod dialect;
#[cfg(debug_assertions)]
pub mod fault_injection;
pub mod http;
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

/// Chooses the one TLS implementation of this process. Call it first; a second call does nothing.
pub fn install_crypto() {
    // An error means that it is installed already.
    drop(rustls::crypto::ring::default_provider().install_default());
}
