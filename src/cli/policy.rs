//! `greenroom policy check`: what another configuration would have decided of the calls that are
//! recorded (G16). Reads the log and asks the judge; changes nothing.

mod recorded_calls;
mod report;
mod simulator;

use super::{ConfigArgs, EXIT_USAGE, UsageError, partial_id::PartialId, report_error};
use crate::{
    startup::SystemClock,
    store::{DatabaseLocation, ReadOnlyStore, Store},
};
use anyhow::Context as _;
use greenroom_actors::ports::{Clock as _, SessionQuery};
use greenroom_core::{
    Timestamp,
    duration::ConfigDuration,
    ids::{Seq, SessionId},
    session::{SessionRow, SessionStatus},
};
use recorded_calls::SessionReplay;
use report::PolicyReport;
use simulator::{PolicySimulator, SimulatedVerdict};
use std::{process::ExitCode, str::FromStr};

/// Sessions that are read at once.
const SESSIONS_PAGE: usize = 100;
/// Events that are read at once.
const EVENTS_PAGE: usize = 500;
/// The exit code where something would differ, or can't be told.
const EXIT_DIFFERENT: u8 = 1;

/// Try a policy out before it is in force.
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    /// Judge the recorded calls by another configuration, and print which decisions would differ
    ///
    /// Exits with 0 if none would, 1 if some would or can't be told, 2 if it could not check.
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The database with the recorded calls [default: the configuration's]
    #[arg(long, value_name = "DATABASE")]
    database: Option<DatabaseLocation>,
    /// Only calls from then on: a duration back from now (7d, 12h) or a time
    /// (2026-01-31T12:00:00Z)
    #[arg(long, value_name = "DURATION|TIME")]
    since: Option<Since>,
    /// Only this session's calls: its id, or at least 6 characters of the id's end or beginning
    #[arg(long, value_name = "ID")]
    session: Option<PartialId>,
    /// Start the configuration's MCP servers, to know their tools' schemas and annotations
    #[arg(long)]
    with_servers: bool,
    /// Print JSON: one object a line for each difference, and a last one with the counts
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
enum Since {
    Ago(ConfigDuration),
    At(Timestamp),
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = || serde_json::from_value::<Timestamp>(text.into()).ok().map(Self::At);
        let since = text.parse().map(Self::Ago).ok().or_else(at);
        since.ok_or_else(|| "write a duration (30m, 12h, 7d) or a time with its zone".to_owned())
    }
}

impl Since {
    fn to_timestamp(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ConfigDuration(ago)) => {
                let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                Timestamp(now.0.saturating_sub(ago))
            }
        }
    }
}

/// Runs the command. That it could not check must not look as if something differed.
pub async fn run(args: PolicyArgs) -> anyhow::Result<ExitCode> {
    let PolicyCommand::Check(args) = args.command;
    match check(args).await {
        Ok(same) => Ok(if same { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DIFFERENT) }),
        Err(error) => {
            report_error(&error);
            Ok(ExitCode::from(EXIT_USAGE))
        }
    }
}

async fn check(args: CheckArgs) -> anyhow::Result<bool> {
    let configuration = args.config.load()?;
    let database = args.database.unwrap_or_else(|| configuration.database.clone());
    let since = args.since.map(|since| since.to_timestamp(SystemClock.now()));
    let journal = Store::open_read_only(&database).await.context("can't read the log")?;
    let judging = PolicySimulator::start(configuration, args.with_servers).await;
    let mut check = PolicyCheck { journal, judging, since, report: PolicyReport::new(args.json) };
    match args.session {
        None => check.check_all_sessions().await?,
        Some(id) => {
            let session_id = check.find_session(&id).await?;
            let row = check.journal.load_session(session_id).await?;
            let row = row.ok_or_else(|| UsageError(format!("there is no session {session_id}")))?;
            check.check_session(&row).await?;
        }
    }
    check.report.finish()
}

struct PolicyCheck {
    journal: ReadOnlyStore,
    judging: PolicySimulator,
    since: Option<Timestamp>,
    report: PolicyReport,
}

impl PolicyCheck {
    async fn check_all_sessions(&mut self) -> anyhow::Result<()> {
        let mut query = SessionQuery { limit: SESSIONS_PAGE, ..SessionQuery::default() };
        loop {
            let page = self.journal.list_sessions(query.clone()).await?;
            for row in &page {
                if !self.ended_before_since(row) {
                    self.check_session(row).await?;
                }
            }
            let Some(last) = page.last() else { return Ok(()) };
            query.before = Some(last.session_id);
        }
    }

    /// The session that `id` stands for.
    async fn find_session(&self, id: &PartialId) -> anyhow::Result<SessionId> {
        let mut fitting: Vec<_> = id.as_full().map(str::to_owned).into_iter().collect();
        let mut query = SessionQuery { limit: SESSIONS_PAGE, ..SessionQuery::default() };
        while id.as_full().is_none() {
            let page = self.journal.list_sessions(query.clone()).await?;
            let ids = page.iter().map(|row| row.session_id.to_string());
            fitting.extend(ids.filter(|candidate| id.matches(candidate)));
            let Some(last) = page.last() else { break };
            query.before = Some(last.session_id);
        }
        Ok(id.resolve(fitting, "session")?.parse()?)
    }

    /// Whether all its calls came before the time that is asked for: the end of a run changes a
    /// session's row, so that a row which is older and has no run is of a session at rest.
    fn ended_before_since(&self, row: &SessionRow) -> bool {
        let at_rest = match row.status {
            SessionStatus::Idle | SessionStatus::Closed => true,
            SessionStatus::Running | SessionStatus::Waiting => false,
        };
        at_rest && self.since.is_some_and(|since| row.updated_at < since)
    }

    async fn check_session(&mut self, row: &SessionRow) -> anyhow::Result<()> {
        let mut recording = SessionReplay::new(row);
        let (mut after, mut is_new) = (Seq(0), true);
        loop {
            let page = self.journal.load_events(row.session_id, after, EVENTS_PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq;
            for record in page {
                let at = record.at;
                for call in recording.apply_event(record) {
                    if self.since.is_some_and(|since| at < since) {
                        continue;
                    }
                    self.report.count_session(&mut is_new);
                    let finding = self.judging.simulate(&call, &recording);
                    self.report.report_call(row, &call, finding)?;
                }
            }
        }
    }
}

impl SimulatedVerdict {
    /// The same decision.
    fn matches_recorded(&self, recorded: greenroom_core::policy::MatrixVerdict) -> bool {
        matches!(self, Self::Known { ruling, .. } if *ruling == recorded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g16_a_time_is_a_duration_back_or_an_instant() {
        let now: Timestamp = serde_json::from_value("2026-01-02T00:00:00Z".into()).unwrap();
        for (text, from) in [
            ("1d", "2026-01-01T00:00:00.000Z"),
            ("90s", "2026-01-01T23:58:30.000Z"),
            ("2026-01-01T12:00:00+02:00", "2026-01-01T10:00:00.000Z"),
        ] {
            assert_eq!(
                text.parse::<Since>().unwrap().to_timestamp(now).to_string(),
                from,
                "{text}"
            );
        }
        for wrong in ["", "yesterday", "2026-01-01", "-1d", "5"] {
            assert!(wrong.parse::<Since>().is_err(), "{wrong}");
        }
    }
}
