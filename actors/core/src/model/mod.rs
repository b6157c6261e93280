//! Talking to models without talking to anyone: requests are encoded and streams are parsed here,
//! as pure functions of bytes. Who opens the connection is not our business.

pub mod anthropic;
pub mod completion;
pub mod delta;
pub mod failure;
pub mod openai;
mod repeat;
pub mod request;
pub mod sse;
pub mod stream;
