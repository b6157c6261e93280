//! `greenroom audit`: checks the audit log in the database, whether a server runs or not.

use super::ConfigArgs;
use crate::{
    audit::Head,
    store::{self, Database},
};
use anyhow::Context as _;
use greenroom_core::json::Digest;
use serde_json::json;
use std::str::FromStr;

/// Check the audit log.
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    /// Check every row's hash; fails and names the first row that was changed, moved or removed
    Verify {
        #[command(flatten)]
        config: ConfigArgs,
        /// The SQLite file, or postgres://USER@HOST/NAME [default: the configured one]
        #[arg(long, value_name = "DATABASE")]
        database: Option<Database>,
        /// A row as an earlier check has printed it, kept elsewhere: it must still be there
        #[arg(long, value_name = "N:HASH")]
        anchor: Option<Anchor>,
    },
}

/// A row and its hash, as `verify` prints them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Anchor(Head);

impl FromStr for Anchor {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "an anchor is a row's number, a colon and its hash";
        let (n, hash) = text.split_once(':').ok_or(WRONG)?;
        let hash: Digest = serde_json::from_value(json!(hash)).map_err(|_| WRONG)?;
        Ok(Self(Head { n: n.parse().map_err(|_| WRONG)?, hash }))
    }
}

/// Runs the command.
pub async fn run(args: AuditArgs) -> anyhow::Result<()> {
    let AuditCommand::Verify { config, database, anchor } = args.command;
    let database = config.database(database)?;
    let head = store::verify_audit(&database, anchor.map(|Anchor(head)| head))
        .await
        .with_context(|| format!("the audit log in {database} is not sound"))?;
    println!("{} rows, all sound", head.n);
    println!("anchor {}:{}", head.n, head.hash);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_what_a_check_prints() {
        let head = Head { n: 7, hash: Digest::of_bytes(b"x") };
        assert_eq!(format!("{}:{}", head.n, head.hash).parse(), Ok(Anchor(head)));
        for wrong in ["", "7", "7:", ":ab", "x:00", "7:zz"] {
            assert!(wrong.parse::<Anchor>().is_err(), "{wrong}");
        }
    }
}
