//! What every journal must do, whatever database it stands on (D1, D4, D5, G11), and what is
//! each database's own. [`cases`] knows the port alone; each database runs all of them.

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
