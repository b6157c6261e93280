//! The command line, one file a subcommand.
//!
//! A command says how it ended by its exit code: 0 is yes, 1 is no (or that it could not), 2 is that
//! it was asked wrongly. `docs/command-line.md` says what no means for each.

// They panic where nothing can be written; `terminal` has what does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod approvals;
pub mod audit;
pub mod chat;
mod client;
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

/// The exit code of a command that was asked for something that makes no sense; clap's too.
const EXIT_USAGE: u8 = 2;

/// A command that was asked for something that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

/// Tells people how a command failed, and what its exit code is.
pub fn report_error(error: &anyhow::Error) -> ExitCode {
    // They may quote what a server said. No backtrace: most of them are somebody's no.
    let shown =
        |text: String| text.lines().map(terminal::escape_unsafe).collect::<Vec<_>>().join("\n");
    terminal::print_status(&format!("Error: {}", shown(error.to_string())));
    for cause in error.chain().skip(1) {
        terminal::print_status(&format!("  caused by: {}", shown(cause.to_string())));
    }
    let names_nothing = error.downcast_ref::<ApiError>().is_some_and(ApiError::is_not_found);
    if error.is::<UsageError>() || names_nothing {
        ExitCode::from(EXIT_USAGE)
    } else {
        ExitCode::FAILURE
    }
}

/// Where the configuration is.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgs {
    /// Configuration file [default: greenroom.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Reads the configuration, with this process's environment over it. What is logged from now on is
    /// without its secrets.
    pub fn load(&self) -> anyhow::Result<Configuration> {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        let environment: Environment = std::env::vars_os()
            .filter_map(|(key, value)| Some((text(key)?, text(value)?)))
            .collect();
        let configuration = Configuration::load(self.config.as_deref(), &environment)?;
        telemetry::set_log_redactor(Arc::new(configuration.redactor(configuration.secrets())));
        Ok(configuration)
    }

    /// The database that is named, else the configured one.
    fn database(&self, named: Option<DatabaseLocation>) -> anyhow::Result<DatabaseLocation> {
        match named {
            Some(database) => Ok(database),
            None => Ok(self.load()?.database),
        }
    }
}
