//! `greenroom policy show`: prints the policy table and the ceilings. `greenroom policy check`: compares the recorded decisions with those that another configuration
//! would make (G16). Reads the event log and evaluates the policy; changes nothing.

mod ceilings;
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

/// Sessions loaded per page.
const SESSIONS_PAGE: usize = 100;
/// Events loaded per page.
const EVENTS_PAGE: usize = 500;
/// Exit code if a decision differs or is unknown.
const EXIT_DIFFERENT: u8 = 1;

/// Show the policy, or test it against recorded calls
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    /// Evaluate the recorded calls under another configuration and print the differing decisions
    ///
    /// Exit code: 0 if no decision differs, 1 if one differs or is unknown, 2 if the check failed.
    Check(CheckArgs),
    /// Print the policy table and the ceilings, each with its owner
    Show(ceilings::ShowArgs),
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Database with the recorded calls [default: the configured database]
    #[arg(long, value_name = "DATABASE")]
    database: Option<DatabaseLocation>,
    /// Only calls since then: a duration back from now (7d, 12h) or a time (2026-01-31T12:00:00Z)
    #[arg(long, value_name = "DURATION|TIME")]
    since: Option<SinceArg>,
    /// Only calls of this session: its id, or at least 6 characters of the id's end or beginning
    #[arg(long, value_name = "ID")]
    session: Option<PartialId>,
    /// Start the configured MCP servers and use their tools' schemas and annotations
    #[arg(long)]
    with_servers: bool,
    /// Print JSON: one object per line for each difference, and a last one with the counts
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SinceArg {
    Ago(ConfigDuration),
    At(Timestamp),
}

impl FromStr for SinceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = || serde_json::from_value::<Timestamp>(text.into()).ok().map(Self::At);
        let since = text.parse().map(Self::Ago).ok().or_else(at);
        since.ok_or_else(|| "must be a duration (30m, 12h, 7d) or a time with its zone".to_owned())
    }
}

impl SinceArg {
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

/// Runs the command. A failed check has another exit code than a difference.
pub async fn run(args: PolicyArgs) -> anyhow::Result<ExitCode> {
    let args = match args.command {
        PolicyCommand::Check(args) => args,
        PolicyCommand::Show(args) => {
            return ceilings::show(args).await.map(|()| ExitCode::SUCCESS);
        }
    };
    match check(args).await {
        Ok(unchanged) => {
            Ok(if unchanged { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DIFFERENT) })
        }
        Err(error) => {
            report_error(&error);
            Ok(ExitCode::from(EXIT_USAGE))
        }
    }
}

async fn check(args: CheckArgs) -> anyhow::Result<bool> {
    let mut configuration = args.config.load()?;
    let database = args.database.unwrap_or_else(|| configuration.database.clone());
    let since = args.since.map(|since| since.to_timestamp(SystemClock.now()));
    let store = Store::open_read_only(&database).await.context("can't read the event log")?;
    let stored = store.load_ceilings().await?;
    configuration.ceilings = configuration.ceilings.narrowed_to(&stored.ceilings);
    let simulator = PolicySimulator::start(configuration, args.with_servers).await;
    let mut check = PolicyCheck { store, simulator, since, report: PolicyReport::new(args.json) };
    match args.session {
        None => check.check_all_sessions().await?,
        Some(id) => {
            let session_id = check.find_session(&id).await?;
            let row = check.store.load_session(session_id).await?;
            let row = row.ok_or_else(|| UsageError(format!("session {session_id} not found")))?;
            check.check_session(&row).await?;
        }
    }
    check.report.finish()
}

struct PolicyCheck {
    store: ReadOnlyStore,
    simulator: PolicySimulator,
    since: Option<Timestamp>,
    report: PolicyReport,
}

impl PolicyCheck {
    async fn check_all_sessions(&mut self) -> anyhow::Result<()> {
        let mut query = SessionQuery { limit: SESSIONS_PAGE, ..SessionQuery::default() };
        loop {
            let page = self.store.list_sessions(query.clone()).await?;
            for row in &page {
                if !self.ended_before_since(row) {
                    self.check_session(row).await?;
                }
            }
            let Some(last) = page.last() else { return Ok(()) };
            query.before = Some(last.session_id);
        }
    }

    /// Returns the only session whose id matches `id`.
    async fn find_session(&self, id: &PartialId) -> anyhow::Result<SessionId> {
        let mut matching: Vec<_> = id.as_full().map(str::to_owned).into_iter().collect();
        let mut query = SessionQuery { limit: SESSIONS_PAGE, ..SessionQuery::default() };
        while id.as_full().is_none() {
            let page = self.store.list_sessions(query.clone()).await?;
            let ids = page.iter().map(|row| row.session_id.to_string());
            matching.extend(ids.filter(|candidate| id.matches(candidate)));
            let Some(last) = page.last() else { break };
            query.before = Some(last.session_id);
        }
        Ok(id.resolve(matching, "session")?.parse()?)
    }

    /// True if all calls of the session are older than `since`. The end of a run updates the
    /// session's row; a row that is older than `since` and has no run has no later call.
    fn ended_before_since(&self, row: &SessionRow) -> bool {
        let has_no_run = match row.status {
            SessionStatus::Idle | SessionStatus::Closed => true,
            SessionStatus::Running | SessionStatus::Waiting => false,
        };
        has_no_run && self.since.is_some_and(|since| row.updated_at < since)
    }

    async fn check_session(&mut self, row: &SessionRow) -> anyhow::Result<()> {
        let mut replay = SessionReplay::new(row);
        let (mut after, mut is_new) = (Seq(0), true);
        loop {
            let page = self.store.load_events(row.session_id, after, EVENTS_PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq;
            for record in page {
                let at = record.at;
                for call in replay.apply_event(record) {
                    if self.since.is_some_and(|since| at < since) {
                        continue;
                    }
                    self.report.count_session(&mut is_new);
                    let simulated = self.simulator.simulate(&call, &replay);
                    self.report.report_call(row, &call, simulated)?;
                }
            }
        }
    }
}

impl SimulatedVerdict {
    /// True if the simulated verdict is known and equals the recorded one.
    fn matches_recorded(&self, recorded: greenroom_core::policy::MatrixVerdict) -> bool {
        matches!(self, Self::Known { verdict, .. } if *verdict == recorded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g16_since_is_a_duration_back_or_an_instant() {
        let now: Timestamp = serde_json::from_value("2026-01-02T00:00:00Z".into()).unwrap();
        for (text, from) in [
            ("1d", "2026-01-01T00:00:00.000Z"),
            ("90s", "2026-01-01T23:58:30.000Z"),
            ("2026-01-01T12:00:00+02:00", "2026-01-01T10:00:00.000Z"),
        ] {
            assert_eq!(
                text.parse::<SinceArg>().unwrap().to_timestamp(now).to_string(),
                from,
                "{text}"
            );
        }
        for invalid in ["", "yesterday", "2026-01-01", "-1d", "5"] {
            assert!(invalid.parse::<SinceArg>().is_err(), "{invalid}");
        }
    }
}
