//! The Anthropic Messages wire: requests in, messages, events and errors out.
//!
//! Pure. Owns everything that is particular to this protocol, its strictness about requests
//! included; knows nothing of scripts, sockets or the other wire. Called by the server.

mod request;
mod response;

pub(super) use request::decode;
pub(super) use response::{
    default_message, encode_error, encode_error_frame, encode_message, encode_stream,
};
