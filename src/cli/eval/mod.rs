//! `greenroom eval`: runs cases against a model, or the rehearsal, and says which are as expected
//! (C6). Each case is a session of its own on a whole server, started for the purpose on a database
//! that is gone afterwards, and spoken to over its public HTTP surface.

mod cases;
mod observed_run;

use super::{
    UsageError,
    client::ApiClient,
    terminal::{ColorMode, Style, escape_unsafe, print, push_labelled, push_line, truncate},
};
use crate::{
    configuration::{Configuration, Environment},
    startup::Server,
    store::DatabaseLocation,
    telemetry::Metrics,
};
use anyhow::Context as _;
use cases::{Case, CaseDefaults, CaseFile, PersonReply};
use greenroom_core::model::sse::SseParser;
use observed_run::{ObservedRun, problems};
use serde_json::{Value, json};
use std::{
    fs, future,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

/// Columns of a case's name in the table.
const NAME_COLUMNS: usize = 44;

/// Run cases against a model, or the rehearsal, and say which are as expected.
#[derive(Debug, clap::Args)]
pub struct EvalArgs {
    #[command(flatten)]
    config: super::ConfigArgs,
    /// The cases: a TOML file with a table [[case]] for each
    file: PathBuf,
    /// Only cases whose name has this in it
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A case that was tried.
struct CaseResult {
    name: String,
    observed: ObservedRun,
    problems: Vec<String>,
    took: Duration,
}

/// Runs the command; 1 if a case is not as expected.
pub async fn run(args: EvalArgs) -> anyhow::Result<ExitCode> {
    let mut cases = load_cases(&args.file)?;
    if let Some(only) = &args.only {
        cases.cases.retain(|case| case.name.contains(only.as_str()));
        if cases.cases.is_empty() {
            return Err(UsageError(format!("no case has \"{only}\" in its name")).into());
        }
    }
    let folder = tempfile::tempdir().context("there is no room for a database")?;
    let server =
        Server::start(build_configuration(&args, &cases, folder.path())?, Metrics::start()?);
    let server = server.await?;
    let client =
        ApiClient::new(format!("http://{}", server.address()), server.admin_token().expose());
    let mut tried = Vec::with_capacity(cases.cases.len());
    for case in &cases.cases {
        let one = run_case(&client, case, &cases.defaults).await;
        if !args.json {
            print(&format_row(&one, ColorMode::for_stdout()))?;
        }
        tried.push(one);
    }
    server.shut_down(future::pending()).await;
    let failed = tried.iter().filter(|one| !one.problems.is_empty()).count();
    let summary = if args.json {
        format_json(&args.file, &tried, failed)
    } else {
        format_summary(&tried, failed)
    };
    print(&summary)?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn load_cases(file: &Path) -> anyhow::Result<CaseFile> {
    let named = || format!("can't read {}", file.display());
    let bytes = fs::metadata(file).with_context(named)?.len();
    if bytes > cases::FILE_BYTES_MAX {
        let max = cases::FILE_BYTES_MAX;
        return Err(UsageError(format!("{} has more than {max} bytes", file.display())).into());
    }
    let text = fs::read_to_string(file).with_context(named)?;
    CaseFile::parse(&text)
        .map_err(|error| UsageError(format!("{}: {error}", file.display())).into())
}

/// The configuration, with the file's environment over it, for a server that nobody else finds.
fn build_configuration(
    args: &EvalArgs,
    cases: &CaseFile,
    folder: &Path,
) -> anyhow::Result<Configuration> {
    let text = |text: std::ffi::OsString| text.into_string().ok();
    let own = std::env::vars_os().filter_map(|(key, value)| Some((text(key)?, text(value)?)));
    let here = folder.display().to_string();
    let more = cases.environment.iter();
    let more = more.map(|(key, value)| (key.clone(), value.replace("{folder}", &here)));
    let environment: Environment = own.chain(more).collect();
    let mut configuration = Configuration::load(args.config.config.as_deref(), &environment)?;
    configuration.listen = ([127, 0, 0, 1], 0).into();
    configuration.database = DatabaseLocation::Sqlite(folder.join("greenroom.db"));
    Ok(configuration)
}

/// Tries a case; whatever goes wrong is its problem alone.
async fn run_case(client: &ApiClient, case: &Case, defaults: &CaseDefaults) -> CaseResult {
    let began = Instant::now();
    let mut happened = ObservedRun::default();
    let limit = case.timeout(defaults);
    let trying = drive_case(client, case, defaults, &mut happened);
    let ended = tokio::time::timeout(limit, trying).await;
    let problems = match ended {
        Ok(Err(error)) => vec![format!("{error:#}")],
        Ok(Ok(())) | Err(_) => problems(case, &happened),
    };
    CaseResult { name: case.name.clone(), observed: happened, problems, took: began.elapsed() }
}

/// Says the message and hears its run to the end; a person who is asked says what the case tells.
async fn drive_case(
    client: &ApiClient,
    case: &Case,
    defaults: &CaseDefaults,
    happened: &mut ObservedRun,
) -> anyhow::Result<()> {
    let level = case.autonomy_level.or(defaults.autonomy_level);
    if let Some(level) = level {
        client.patch("/agent/settings", &json!({"autonomy_level": level})).await?;
    }
    let agent = case.agent.as_ref().or(defaults.agent.as_ref());
    let mut wish = json!({"title": case.name});
    for (name, value) in [("agent", json!(agent)), ("autonomy_level", json!(level))] {
        if !value.is_null() {
            wish[name] = value;
        }
    }
    let created = client.post("/agent/session", &wish).await?;
    let message = json!({"session_id": created["session_id"], "message": case.message});
    let mut response = client.post_for_stream("/agent/chat/stream", &message).await?;
    let mut parser = SseParser::default();
    let mut questions = Vec::new();
    while let Some(bytes) = response.chunk().await? {
        parser.push::<anyhow::Error>(&bytes, |event| {
            if let Ok(frame) = serde_json::from_str::<Value>(&event.data) {
                questions.extend(happened.apply_frame(&frame));
            }
            Ok(())
        })?;
        for approval_id in questions.drain(..) {
            let decision = match case.person {
                PersonReply::Approve => "approve",
                PersonReply::Reject => "reject",
            };
            let path = format!("/agent/approvals/{approval_id}");
            client.post(&path, &json!({"decision": decision})).await?;
        }
    }
    Ok(())
}

/// A case in the table.
fn format_row(tried: &CaseResult, paint: ColorMode) -> String {
    let mut decisions: Vec<(String, usize)> = Vec::new();
    for call in &tried.observed.calls {
        let decision = call.verdict.map_or("-", |it| it.name());
        let told = format!("{decision} {}", escape_unsafe(&call.tool));
        match decisions.last_mut() {
            Some((before, times)) if *before == told => *times += 1,
            Some(_) | None => decisions.push((told, 1)),
        }
    }
    let decisions: Vec<_> = decisions
        .into_iter()
        .map(|(told, times)| if times > 1 { format!("{told} ×{times}") } else { told })
        .collect();
    let (word, style) = match tried.problems.is_empty() {
        true => ("ok    ", Style::Green),
        false => ("FAILED", Style::Red),
    };
    let mut out = String::new();
    let name = truncate(&escape_unsafe(&tried.name), NAME_COLUMNS);
    let seconds = tried.took.as_secs_f64();
    let calls = match decisions.as_slice() {
        [] => "no calls".to_owned(),
        decisions => decisions.join(", "),
    };
    let line = format!("{}  {name:NAME_COLUMNS$}  {seconds:5.1} s  ", paint.paint(style, word));
    push_line(&mut out, &format!("{line}{}", truncate(&calls, 90)));
    for problem in &tried.problems {
        push_labelled(&mut out, 8, "-", &escape_unsafe(problem));
    }
    out
}

fn format_summary(tried: &[CaseResult], failed: usize) -> String {
    let took: Duration = tried.iter().map(|one| one.took).sum();
    let input: u64 = tried.iter().map(|one| one.observed.input_tokens).sum();
    let output: u64 = tried.iter().map(|one| one.observed.output_tokens).sum();
    let passed = tried.len() - failed;
    format!(
        "\n{passed} of {} cases passed in {:.1} s; {input} tokens in, {output} out\n",
        tried.len(),
        took.as_secs_f64(),
    )
}

fn format_json(file: &Path, tried: &[CaseResult], failed: usize) -> String {
    let case = |one: &CaseResult| {
        json!({
            "name": one.name, "passed": one.problems.is_empty(), "problems": one.problems,
            "took_ms": u64::try_from(one.took.as_millis()).unwrap_or(u64::MAX),
            "calls": one.observed.calls, "text": one.observed.text,
            "outcome": one.observed.outcome,
            "usage": {
                "input_tokens": one.observed.input_tokens,
                "output_tokens": one.observed.output_tokens,
            },
        })
    };
    let cases: Vec<_> = tried.iter().map(case).collect();
    let whole = json!({
        "file": file.display().to_string(), "passed": tried.len() - failed, "failed": failed,
        "cases": cases,
    });
    format!("{whole:#}\n")
}
