//! The command line, one file a subcommand.

pub mod audit;
mod client;
pub mod doctor;
pub mod events;
pub mod key;
pub mod migrate;
pub mod rehearse;
pub mod serve;
pub mod tools;

use crate::configuration::{Configuration, Environment};
use std::path::PathBuf;

/// Where the configuration is.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgs {
    /// Configuration file [default: greenroom.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ConfigArgs {
    /// Reads the configuration, with this process's environment over it.
    pub fn load(&self) -> anyhow::Result<Configuration> {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        let environment: Environment = std::env::vars_os()
            .filter_map(|(key, value)| Some((text(key)?, text(value)?)))
            .collect();
        Ok(Configuration::load(self.config.as_deref(), &environment)?)
    }
}
