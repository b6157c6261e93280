//! The OpenAI Chat Completions wire: requests in, completions, chunks and errors out.
//!
//! Pure. Owns everything that is particular to this protocol, its strictness about requests
//! included; knows nothing of scripts, sockets or the other wire. Called by the server.

mod request;
mod response;

pub(super) use request::decode;
pub(super) use response::{
    default_message, encode_completion, encode_error, encode_error_frame, encode_stream, status,
};
