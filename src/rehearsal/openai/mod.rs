//! The OpenAI Chat Completions wire: requests in, completions, chunks and errors out.
//!
//! Pure. Owns everything that is particular to this protocol, its strictness about requests
//! included; knows nothing of scripts, sockets or the other wire. Called by the server.

mod answer;
mod request;

pub(super) use answer::{completion, error_body, error_frame, frames, status, usual_message};
pub(super) use request::decode;
