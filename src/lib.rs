//! The runtime.

pub mod cli;
pub mod rehearsal;
