//! End-to-end tests of the command line: the real binary, a real server and real tools (G1, G11,
//! G16).

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod approvals;
mod backup;
mod ca_certificates;
mod database;
mod doctor;
mod harness;
mod model_server;
mod output;
mod policy;
mod served_models;
mod sessions;
mod tools;
