//! The pure core of Greenroom: the behaviour of a session, as functions from data to data.
//!
//! The core does not read a clock, generate randomness, perform I/O or know actors. [`Env`]
//! supplies the time and fresh ids, and the core returns each required side effect as a
//! [`session::Effect`]. See `ARCHITECTURE.md`.

pub mod agent;
pub mod amount;
pub mod approval;
pub mod authors;
pub mod budget;
pub mod call;
pub mod circuit_breaker;
pub mod context;
pub mod cursor;
pub mod delegation;
pub mod duration;
pub mod env;
pub mod feedback;
pub mod ids;
pub mod json;
pub mod limits;
pub mod message;
pub mod model;
pub mod persistent_list;
pub mod policy;
pub mod preflight;
pub mod scrub;
pub mod session;
pub mod text;
pub mod time;
pub mod trace_context;
pub mod uri;
pub mod usage;

pub use env::{Env, Rules};
pub use time::Timestamp;
