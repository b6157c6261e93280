//! The runtime.

pub mod configuration;
