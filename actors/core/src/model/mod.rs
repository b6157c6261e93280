//! Talking to models without talking to anyone: requests are encoded and streams are parsed here,
//! as pure functions of bytes. Who opens the connection is not our business.

pub mod anthropic;
pub mod completion;
pub mod delta;
mod event_template;
pub mod failure;
pub mod openai;
pub mod request;
pub mod sse;
pub mod stream_parser;
