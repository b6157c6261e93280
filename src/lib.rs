//! The runtime.

pub mod auth;
pub mod dialect;
pub mod http;
pub mod redaction;
