//! The runtime.

pub mod store;
