//! `greenroom audit`: checks the audit log in the database, whether a server runs or not.

use super::{ConfigArgs, EXIT_USAGE, report_error, terminal};
use crate::{
    audit::ChainHead,
    store::{self, AuditError, DatabaseLocation},
};
use greenroom_core::json::Digest;
use serde_json::json;
use std::{process::ExitCode, str::FromStr};

/// Check the audit log.
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    /// Check every row's hash; fails and names the first row that was changed, moved or removed
    ///
    /// Exits with 0 if all are sound, 1 if one is not, 2 if it could not check.
    Verify {
        #[command(flatten)]
        config: ConfigArgs,
        /// The SQLite file, or postgres://USER@HOST/NAME [default: the configured one]
        #[arg(long, value_name = "DATABASE")]
        database: Option<DatabaseLocation>,
        /// A row as an earlier check has printed it, kept elsewhere: it must still be there
        #[arg(long, value_name = "N:HASH")]
        anchor: Option<Anchor>,
    },
}

/// A row and its hash, as `verify` prints them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Anchor(ChainHead);

impl FromStr for Anchor {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "an anchor is a row's number, a colon and its hash";
        let (n, hash) = text.split_once(':').ok_or(WRONG)?;
        let hash: Digest = serde_json::from_value(json!(hash)).map_err(|_| WRONG)?;
        Ok(Self(ChainHead { n: n.parse().map_err(|_| WRONG)?, hash }))
    }
}

/// Runs the command. That it could not check must not look as if the log were not sound.
pub async fn run(args: AuditArgs) -> anyhow::Result<ExitCode> {
    let AuditCommand::Verify { config, database, anchor } = args.command;
    let could_not_check = |error: &anyhow::Error| {
        report_error(error);
        Ok(ExitCode::from(EXIT_USAGE))
    };
    let database = match config.database(database) {
        Ok(database) => database,
        Err(error) => return could_not_check(&error),
    };
    match store::verify_audit(&database, anchor.map(|Anchor(head)| head)).await {
        Ok(head) => {
            let ChainHead { n, hash } = head;
            terminal::print(&format!("{n} rows, all sound\nanchor {n}:{hash}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(AuditError::Broken(broken)) => {
            Err(anyhow::Error::new(broken)
                .context(format!("the audit log in {database} is not sound")))
        }
        Err(AuditError::Store(error)) => could_not_check(
            &anyhow::Error::new(error)
                .context(format!("the audit log in {database} can't be checked")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_what_a_check_prints() {
        let head = ChainHead { n: 7, hash: Digest::hash_bytes(b"x") };
        assert_eq!(format!("{}:{}", head.n, head.hash).parse(), Ok(Anchor(head)));
        for wrong in ["", "7", "7:", ":ab", "x:00", "7:zz"] {
            assert!(wrong.parse::<Anchor>().is_err(), "{wrong}");
        }
    }
}
