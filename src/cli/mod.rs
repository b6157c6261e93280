//! The command line, one file a subcommand.

pub mod migrate;
pub mod rehearse;
