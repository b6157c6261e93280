//! The command line. Each subcommand has its own file.
//!
//! The exit code is the result of a command: 0 for success, 1 for failure or a negative result, 2
//! for wrong usage. `docs/command-line.md` defines the negative result of each command.

// `print!` and `eprint!` panic if the write fails; `terminal` has functions that return the error.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod approvals;
pub mod audit;
pub mod backup;
pub mod chat;
mod client;
#[cfg(test)]
mod decoder_fuzz;
pub mod doctor;
pub mod eval;
pub mod events;
pub mod key;
pub mod migrate;
mod partial_id;
pub mod policy;
pub mod rehearse;
mod schema_form;
pub mod serve;
mod terminal;
pub mod tools;
pub mod workflows;

use self::client::ApiError;
use crate::{
    configuration::{Configuration, Environment},
    store::DatabaseLocation,
    telemetry,
};
use std::{path::PathBuf, process::ExitCode, sync::Arc};

/// Exit code for wrong usage; clap uses the same.
const EXIT_USAGE: u8 = 2;

/// An error in the arguments of a command.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

/// Prints the error and its causes to standard error and returns the exit code.
pub fn report_error(error: &anyhow::Error) -> ExitCode {
    // The message may quote a server's response. No backtrace: most errors are refusals, not defects.
    let escaped =
        |text: String| text.lines().map(terminal::escape_unsafe).collect::<Vec<_>>().join("\n");
    terminal::print_status(&format!("Error: {}", escaped(error.to_string())));
    for cause in error.chain().skip(1) {
        terminal::print_status(&format!("  caused by: {}", escaped(cause.to_string())));
    }
    let is_not_found = error.downcast_ref::<ApiError>().is_some_and(ApiError::is_not_found);
    if error.is::<UsageError>() || is_not_found {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::FAILURE
    }
}

/// The configuration file option.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgs {
    /// Configuration file [default: greenroom.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Loads the configuration; environment variables override the file. From then on the log
    /// redacts the configuration's secrets.
    pub fn load(&self) -> anyhow::Result<Configuration> {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        let environment: Environment = std::env::vars_os()
            .filter_map(|(key, value)| Some((text(key)?, text(value)?)))
            .collect();
        let configuration = Configuration::load(self.config.as_deref(), &environment)?;
        telemetry::set_log_redactor(Arc::new(configuration.redactor(configuration.secrets())));
        Ok(configuration)
    }

    /// Returns the given database location, or the configured one.
    fn database(&self, location: Option<DatabaseLocation>) -> anyhow::Result<DatabaseLocation> {
        match location {
            Some(database) => Ok(database),
            None => Ok(self.load()?.database),
        }
    }
}
