//! The actors of Greenroom and the ports they talk through. No SQL, no HTTP, no JSON frames.

pub mod limits;
pub mod observation;
pub mod ports;
pub mod tool_connection;
pub mod tool_host;
