//! Contract tests of the journal port for each database (D1, D4, D5, G11), and tests of behaviour
//! that is specific to one database. [`cases`] uses the port only; every case runs on each database.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod cases;
mod fixtures;
mod postgres;
mod postgres_failures;
mod postgres_query_plans;
mod postgres_records;
mod sqlite;
mod sqlite_audit;
mod sqlite_failures;
mod sqlite_files;
#[path = "../support/postgres.rs"]
mod support;
