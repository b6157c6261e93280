//! `greenroom audit`: verifies the audit log in the database. Does not need a running server.

use super::{ConfigArgs, EXIT_USAGE, report_error, terminal};
use crate::{
    audit::ChainHead,
    store::{self, AuditError, DatabaseLocation},
};
use greenroom_core::json::Digest;
use serde_json::json;
use std::{process::ExitCode, str::FromStr};

/// Verify the audit log
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    /// Verify the hash of every row; on failure, name the first row changed, moved or removed
    ///
    /// Exit code: 0 if every row is valid, 1 if a row is invalid, 2 if the log could not be checked.
    Verify {
        #[command(flatten)]
        config: ConfigArgs,
        /// SQLite file, or postgres://USER@HOST/NAME [default: the configured database]
        #[arg(long, value_name = "DATABASE")]
        database: Option<DatabaseLocation>,
        /// A row printed by an earlier check; the log must still contain it
        #[arg(long, value_name = "N:HASH")]
        anchor: Option<AnchorArg>,
    },
}

/// The number and hash of a row, in the form that `verify` prints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AnchorArg(ChainHead);

impl FromStr for AnchorArg {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORMAT_ERROR: &str = "an anchor must be a row number, a colon and the row's hash";
        let (n, hash) = text.split_once(':').ok_or(FORMAT_ERROR)?;
        let hash: Digest = serde_json::from_value(json!(hash)).map_err(|_| FORMAT_ERROR)?;
        Ok(Self(ChainHead { n: n.parse().map_err(|_| FORMAT_ERROR)?, hash }))
    }
}

/// Runs the command. Failure to check has another exit code than an invalid log.
pub async fn run(args: AuditArgs) -> anyhow::Result<ExitCode> {
    let AuditCommand::Verify { config, database, anchor } = args.command;
    let report_unchecked = |error: &anyhow::Error| {
        report_error(error);
        Ok(ExitCode::from(EXIT_USAGE))
    };
    let database = match config.database(database) {
        Ok(database) => database,
        Err(error) => return report_unchecked(&error),
    };
    match store::verify_audit(&database, anchor.map(|AnchorArg(head)| head)).await {
        Ok(head) => {
            let ChainHead { n, hash } = head;
            terminal::print(&format!("{n} rows verified\nanchor {n}:{hash}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(AuditError::Broken(broken)) => {
            Err(anyhow::Error::new(broken)
                .context(format!("the audit log in {database} is invalid")))
        }
        Err(AuditError::Store(error)) => report_unchecked(
            &anyhow::Error::new(error)
                .context(format!("the audit log in {database} can't be checked")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchor_parses_printed_rows_only() {
        let head = ChainHead { n: 7, hash: Digest::hash_bytes(b"x") };
        assert_eq!(format!("{}:{}", head.n, head.hash).parse(), Ok(AnchorArg(head)));
        for invalid in ["", "7", "7:", ":ab", "x:00", "7:zz"] {
            assert!(invalid.parse::<AnchorArg>().is_err(), "{invalid}");
        }
    }
}
