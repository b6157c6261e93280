//! `greenroom migrate`: migrates a database to this version's schema without serving it.

use super::{ConfigArgs, terminal};
use crate::store::{self, DatabaseLocation};
use anyhow::Context as _;

/// Create or migrate a database; `greenroom serve` does the same at startup
#[derive(Debug, clap::Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// SQLite file, or postgres://USER@HOST/NAME [default: the configured database]
    #[arg(long, value_name = "DATABASE")]
    database: Option<DatabaseLocation>,
}

/// Runs the command.
pub async fn run(args: MigrateArgs) -> anyhow::Result<()> {
    let database = args.config.database(args.database)?;
    let outcome =
        store::migrate(&database).await.with_context(|| format!("can't migrate {database}"))?;
    Ok(terminal::print(&report(outcome))?)
}

/// Formats the outcome for the terminal.
fn report(
    store::MigrationOutcome { from_version: from, to_version: to }: store::MigrationOutcome,
) -> String {
    match to - from {
        0 => format!("schema version {to}, nothing to do\n"),
        1 => format!("applied migration {to}; schema version {to}\n"),
        _ => format!("applied migrations {} to {to}; schema version {to}\n", from + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_applied_migrations() {
        let report =
            |from, to| report(store::MigrationOutcome { from_version: from, to_version: to });
        assert_eq!(report(2, 2), "schema version 2, nothing to do\n");
        assert_eq!(report(1, 2), "applied migration 2; schema version 2\n");
        assert_eq!(report(0, 3), "applied migrations 1 to 3; schema version 3\n");
    }
}
