//! `greenroom backup`: copies the database to a file, also while a server is running.

use super::{ConfigArgs, terminal};
use crate::store::{self, BackupSummary, DatabaseLocation};
use anyhow::Context as _;
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Copy the database to a file, also while the server is running
#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    /// The file to create; an existing file is not overwritten
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// SQLite file [default: the configured database]
    #[arg(long, value_name = "DATABASE")]
    database: Option<DatabaseLocation>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub async fn run(args: BackupArgs) -> anyhow::Result<()> {
    let database = args.config.database(args.database)?;
    let started_at = Instant::now();
    let summary = store::backup(&database, &args.file)
        .await
        .with_context(|| format!("no backup of {database} was made"))?;
    let duration = started_at.elapsed();
    let report = if args.json {
        format!("{}\n", format_json(&args.file, &summary, duration))
    } else {
        format_text(&args.file, &summary, duration)
    };
    Ok(terminal::print(&report)?)
}

fn format_json(file: &Path, summary: &BackupSummary, duration: Duration) -> serde_json::Value {
    let BackupSummary { schema_version, sessions, events, bytes } = summary;
    json!({
        "file": file.display().to_string(),
        "sessions": sessions,
        "events": events,
        "bytes": bytes,
        "schema_version": schema_version,
        "duration_ms": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    })
}

fn format_text(file: &Path, summary: &BackupSummary, duration: Duration) -> String {
    let BackupSummary { schema_version, sessions, events, bytes } = *summary;
    let count =
        |count: u64, noun| terminal::pluralize(usize::try_from(count).unwrap_or(usize::MAX), noun);
    let file = terminal::escape_unsafe(&file.display().to_string());
    format!(
        "{file}: {}, {}, {}, schema version {schema_version}; {:.1} s\n",
        count(sessions, "session"),
        count(events, "event"),
        count(bytes, "byte"),
        duration.as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d10_report_names_file_content_and_duration() {
        let summary = BackupSummary { schema_version: 5, sessions: 1, events: 12, bytes: 4096 };
        let duration = Duration::from_millis(1234);
        assert_eq!(
            format_text(Path::new("b.db"), &summary, duration),
            "b.db: 1 session, 12 events, 4096 bytes, schema version 5; 1.2 s\n"
        );
        assert_eq!(
            format_json(Path::new("b.db"), &summary, duration),
            json!({
                "file": "b.db", "sessions": 1, "events": 12, "bytes": 4096, "schema_version": 5,
                "duration_ms": 1234,
            })
        );
    }
}
