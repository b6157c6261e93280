//! OpenAI Chat Completions and compatible servers: parses streams and response bodies, encodes
//! requests (M1, M2).
//!
//! Pure functions; [`super`] describes the callers. The wire types are private to the submodules.

mod call_tracker;
mod model_list;
mod parser;
mod request;

pub use model_list::{MODEL_NAME_BYTES_MAX, parse_model_list};
pub use parser::{Parser, parse_message};
pub use request::{EncodeOptions, encode};
