//! The Anthropic Messages wire format: decodes requests, encodes messages, events and errors.
//!
//! Pure. Owns everything specific to this protocol, including its validation of requests. Does not
//! know scripts, sockets or the other wire format. Called by `server`.

mod request;
mod response;

pub(super) use request::decode;
pub(super) use response::{
    default_message, encode_error, encode_error_frame, encode_message, encode_stream,
};
