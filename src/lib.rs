//! The runtime.

pub mod tool;
