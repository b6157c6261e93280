//! OpenAI Chat Completions, and the many servers that speak it: streams and bodies read, requests
//! written (M1, M2).
//!
//! Pure; [`super`] says who calls. Shapes of the wire are private to the files below.

mod call_tracker;
mod parser;
mod request;

pub use parser::{Parser, parse_message};
pub use request::{EncodeOptions, encode};
