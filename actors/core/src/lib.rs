//! The pure core of Greenroom: what a session does, as functions from data to data.
//!
//! Nothing here reads a clock, invents randomness, opens a file or a socket, or knows of actors:
//! time and fresh ids come in with [`Env`], and everything that must happen in the world goes out
//! as an [`session::Effect`]. See `ARCHITECTURE.md`.

pub mod agent;
pub mod approval;
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
