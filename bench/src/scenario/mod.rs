//! The scenarios. Each scenario has its own file.

pub(crate) mod cold_start;
pub(crate) mod fan_out;
pub(crate) mod growth;
pub(crate) mod memory;
pub(crate) mod runs;
