//! Wire formats of model providers: encodes requests and parses responses and streams, as pure
//! functions of bytes. The caller opens the connection.

pub mod anthropic;
pub mod completion;
pub mod delta;
mod event_template;
pub mod failure;
pub mod openai;
pub mod request;
pub mod sse;
pub mod stream_parser;
