//! Tests of the market server over real pipes (T7).

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod faults;
mod harness;
mod protocol;
mod reading;
mod scan;
mod writing;
