//! `greenroom eval`: runs cases against a model, or the rehearsal, and compares them with their
//! expectations (C6).
//!
//! Each case has its own session. The command starts a complete server with a temporary database
//! and uses its public HTTP API.

mod cases;
#[cfg(test)]
mod decoder_fuzz;
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
use cases::{ApproverReply, Case, CaseDefaults, CaseFile, ExpectedVerdict};
use greenroom_core::model::sse::SseParser;
use observed_run::{ObservedRun, find_problems};
use serde_json::{Value, json};
use std::{
    fs, future,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

/// Columns of a case's name in the output.
const NAME_COLUMNS: usize = 44;

/// Run test cases against a model, or the rehearsal, and check their results
#[derive(Debug, clap::Args)]
pub struct EvalArgs {
    #[command(flatten)]
    config: super::ConfigArgs,
    /// TOML file with a [[case]] table for each case
    file: PathBuf,
    /// Only cases whose name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of a case.
struct CaseResult {
    name: String,
    observed: ObservedRun,
    problems: Vec<String>,
    elapsed: Duration,
}

/// Runs the command. The exit code is 1 if a case fails.
pub async fn run(args: EvalArgs) -> anyhow::Result<ExitCode> {
    let mut file = load_cases(&args.file)?;
    if let Some(only) = &args.only {
        file.cases.retain(|case| case.name.contains(only.as_str()));
        if file.cases.is_empty() {
            return Err(UsageError(format!("no case has \"{only}\" in its name")).into());
        }
    }
    let folder = tempfile::tempdir().context("can't create a temporary folder")?;
    let server =
        Server::start(build_configuration(&args, &file, folder.path())?, Metrics::start()?);
    let server = server.await?;
    let client =
        ApiClient::new(format!("http://{}", server.address()), server.admin_token().expose())?;
    let mut results = Vec::with_capacity(file.cases.len());
    for case in &file.cases {
        let result = run_case(&client, case, &file.defaults).await;
        if !args.json {
            print(&format_row(&result, ColorMode::for_stdout()))?;
        }
        results.push(result);
    }
    server.shut_down(future::pending()).await;
    let failed = results.iter().filter(|result| !result.problems.is_empty()).count();
    let summary = if args.json {
        format_json(&args.file, &results, failed)
    } else {
        format_summary(&results, failed)
    };
    print(&summary)?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn load_cases(file: &Path) -> anyhow::Result<CaseFile> {
    let unreadable = || format!("can't read {}", file.display());
    let bytes = fs::metadata(file).with_context(unreadable)?.len();
    if bytes > cases::FILE_BYTES_MAX {
        let max = cases::FILE_BYTES_MAX;
        let path = file.display();
        return Err(UsageError(format!("{path}: {bytes} bytes; the limit is {max}")).into());
    }
    let text = fs::read_to_string(file).with_context(unreadable)?;
    CaseFile::parse(&text)
        .map_err(|error| UsageError(format!("{}: {error}", file.display())).into())
}

/// Builds the configuration: the process's and the file's environment, a free port on the loopback
/// address, and a database in `folder`.
fn build_configuration(
    args: &EvalArgs,
    file: &CaseFile,
    folder: &Path,
) -> anyhow::Result<Configuration> {
    let text = |text: std::ffi::OsString| text.into_string().ok();
    let process_environment =
        std::env::vars_os().filter_map(|(key, value)| Some((text(key)?, text(value)?)));
    let folder_text = folder.display().to_string();
    let file_environment = file
        .environment
        .iter()
        .map(|(key, value)| (key.clone(), value.replace("{folder}", &folder_text)));
    let environment: Environment = process_environment.chain(file_environment).collect();
    let mut configuration = Configuration::load(args.config.config.as_deref(), &environment)?;
    configuration.listen = ([127, 0, 0, 1], 0).into();
    configuration.database = DatabaseLocation::Sqlite(folder.join("greenroom.db"));
    Ok(configuration)
}

/// Runs a case. An error becomes a problem of the case and does not stop the others.
async fn run_case(client: &ApiClient, case: &Case, defaults: &CaseDefaults) -> CaseResult {
    let start = Instant::now();
    let mut observed = ObservedRun::default();
    let limit = case.timeout(defaults);
    let driver = drive_case(client, case, defaults, &mut observed);
    let result = tokio::time::timeout(limit, driver).await;
    let problems = match result {
        Ok(Err(error)) => vec![format!("{error:#}")],
        Ok(Ok(())) | Err(_) => find_problems(case, &observed),
    };
    CaseResult { name: case.name.clone(), observed, problems, elapsed: start.elapsed() }
}

/// Sends the message, follows the run to its end and answers its approvals as the case specifies.
async fn drive_case(
    client: &ApiClient,
    case: &Case,
    defaults: &CaseDefaults,
    observed: &mut ObservedRun,
) -> anyhow::Result<()> {
    let level = case.autonomy_level.or(defaults.autonomy_level);
    if let Some(level) = level {
        client.patch("/agent/settings", &json!({"autonomy_level": level})).await?;
    }
    let agent = case.agent.as_ref().or(defaults.agent.as_ref());
    let mut request = json!({"title": case.name});
    for (name, value) in [("agent", json!(agent)), ("autonomy_level", json!(level))] {
        if !value.is_null() {
            request[name] = value;
        }
    }
    let created = client.post("/agent/session", &request).await?;
    let message = json!({"session_id": created["session_id"], "message": case.message});
    let mut response = client.post_for_stream("/agent/chat/stream", &message).await?;
    let mut parser = SseParser::default();
    let mut approvals = Vec::new();
    while let Some(bytes) = response.chunk().await? {
        parser.push::<anyhow::Error>(&bytes, |event| {
            if let Ok(frame) = serde_json::from_str::<Value>(&event.data) {
                approvals.extend(observed.apply_frame(&frame));
            }
            Ok(())
        })?;
        for approval_id in approvals.drain(..) {
            let decision = match case.approver {
                ApproverReply::Approve => "approve",
                ApproverReply::Reject => "reject",
            };
            let path = format!("/agent/approvals/{approval_id}");
            client.post(&path, &json!({"decision": decision})).await?;
        }
    }
    Ok(())
}

/// Formats the line of a case, with its problems below.
fn format_row(result: &CaseResult, paint: ColorMode) -> String {
    let mut decisions: Vec<(String, usize)> = Vec::new();
    for call in &result.observed.calls {
        let verdict = call.verdict.map_or("-", ExpectedVerdict::name);
        let decision = format!("{verdict} {}", escape_unsafe(&call.tool));
        match decisions.last_mut() {
            Some((last, times)) if *last == decision => *times += 1,
            Some(_) | None => decisions.push((decision, 1)),
        }
    }
    let decisions: Vec<_> = decisions
        .into_iter()
        .map(|(decision, times)| if times > 1 { format!("{decision} ×{times}") } else { decision })
        .collect();
    let (label, style) = match result.problems.is_empty() {
        true => ("ok    ", Style::Green),
        false => ("FAILED", Style::Red),
    };
    let mut out = String::new();
    let name = truncate(&escape_unsafe(&result.name), NAME_COLUMNS);
    let seconds = result.elapsed.as_secs_f64();
    let calls = match decisions.as_slice() {
        [] => "no calls".to_owned(),
        decisions => decisions.join(", "),
    };
    let line = format!("{}  {name:NAME_COLUMNS$}  {seconds:5.1} s  ", paint.paint(style, label));
    push_line(&mut out, &format!("{line}{}", truncate(&calls, 90)));
    for problem in &result.problems {
        push_labelled(&mut out, 8, "-", &escape_unsafe(problem));
    }
    out
}

fn format_summary(results: &[CaseResult], failed: usize) -> String {
    let elapsed: Duration = results.iter().map(|result| result.elapsed).sum();
    let input: u64 = results.iter().map(|result| result.observed.input_tokens).sum();
    let output: u64 = results.iter().map(|result| result.observed.output_tokens).sum();
    let passed = results.len() - failed;
    format!(
        "\n{passed} of {} cases passed in {:.1} s; {input} tokens in, {output} out\n",
        results.len(),
        elapsed.as_secs_f64(),
    )
}

fn format_json(file: &Path, results: &[CaseResult], failed: usize) -> String {
    let case = |result: &CaseResult| {
        json!({
            "name": result.name, "passed": result.problems.is_empty(), "problems": result.problems,
            "took_ms": u64::try_from(result.elapsed.as_millis()).unwrap_or(u64::MAX),
            "calls": result.observed.calls, "text": result.observed.text,
            "outcome": result.observed.outcome,
            "usage": {
                "input_tokens": result.observed.input_tokens,
                "output_tokens": result.observed.output_tokens,
            },
        })
    };
    let cases: Vec<_> = results.iter().map(case).collect();
    let report = json!({
        "file": file.display().to_string(), "passed": results.len() - failed, "failed": failed,
        "cases": cases,
    });
    format!("{report:#}\n")
}
