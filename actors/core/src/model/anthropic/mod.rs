//! Anthropic Messages: parses streams and response bodies, encodes requests (M1, M2).
//!
//! Pure functions; [`super`] describes the callers. The wire types are private to the submodules.

mod parser;
mod request;

pub use parser::{Parser, parse_message};
pub use request::encode;
