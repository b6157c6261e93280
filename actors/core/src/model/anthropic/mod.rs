//! Anthropic Messages: its streams and bodies read, its requests written (M1, M2).
//!
//! Pure; [`super`] says who calls. Shapes of the wire are private to the two files below.

mod parser;
mod request;

pub use parser::{Parser, parse_message};
pub use request::encode;
