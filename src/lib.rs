//! Greenroom: an actor-based, event-driven runtime for LLM agents.
//!
//! This crate is the top floor: the only one that knows HTTP, SQL, JSON frames and the network.
//! `greenroom-actors` below it knows actors and ports, `greenroom-core` below that is pure.

pub mod cli;
pub mod configuration;
pub mod model;
pub mod rehearsal;
pub mod store;
pub mod tool;
