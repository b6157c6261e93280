//! Greenroom: an actor-based, event-driven runtime for LLM agents.
//!
//! This crate is the top floor: the only one that knows HTTP, SQL, JSON frames and the network.
//! `greenroom-actors` below it knows actors and ports, `greenroom-core` below that is pure.

pub mod auth;
pub mod cli;
pub mod configuration;
pub mod dialect;
pub mod http;
pub mod model;
pub mod redaction;
pub mod rehearsal;
pub mod store;
pub mod tool;
