//! `greenroom events`: prints events of a running server, one per line.

use super::{
    ConfigArgs, UsageError,
    client::ApiClient,
    partial_id::PartialId,
    terminal::{escape_unsafe, print_while_read},
};
use anyhow::Context as _;
use greenroom_core::model::sse::SseParser;
use serde_json::Value;

/// Print events of a running server
#[derive(Debug, clap::Args)]
pub struct EventsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Keep printing new events
    #[arg(long)]
    follow: bool,
    /// Only this session, from its first event: its id, or at least 6 characters of the id's end or
    /// beginning; without it, new events of all sessions
    #[arg(long, value_name = "ID")]
    session: Option<PartialId>,
    /// Only events after this cursor of the session
    #[arg(long, value_name = "CURSOR", requires = "session")]
    after: Option<greenroom_core::cursor::Cursor>,
    /// Print complete events as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub async fn run(args: EventsArgs) -> anyhow::Result<()> {
    if !args.follow && args.session.is_none() {
        let message = "give --follow for new events, or --session ID for those of a session";
        return Err(UsageError(message.to_owned()).into());
    }
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let after = args.after.unwrap_or_default();
    let path = match &args.session {
        Some(session) => {
            let session_id = client.find_session(session).await?;
            format!("/agent/session/{session_id}/events?after={after}")
        }
        None => "/admin/events".to_owned(),
    };
    if !args.follow {
        return print_pages(&client, &path, args.json).await;
    }
    let mut response = client.stream(&path).await?;
    let (mut parser, mut has_reader) = (SseParser::default(), true);
    while let Some(bytes) = response.chunk().await? {
        parser.push::<anyhow::Error>(&bytes, |event| {
            if let Ok(frame) = serde_json::from_str::<Value>(&event.data) {
                has_reader &= print_while_read(&line(&frame, args.json))?;
            }
            Ok(())
        })?;
        if !has_reader {
            return Ok(());
        }
    }
    anyhow::bail!("the server closed the stream")
}

async fn print_pages(client: &ApiClient, path: &str, json: bool) -> anyhow::Result<()> {
    let mut path = path.to_owned();
    loop {
        let page = client.get(&path).await?;
        let events = page["events"].as_array().cloned().unwrap_or_default();
        let lines: String = events.iter().map(|event| line(event, json)).collect();
        if !print_while_read(&lines)? || events.is_empty() {
            return Ok(());
        }
        let next = page["next"].as_u64().context("the response has no `next` cursor")?;
        let (before, _) = path.split_once("after=").unwrap_or((&path, ""));
        path = format!("{before}after={next}");
    }
}

fn line(frame: &Value, json: bool) -> String {
    if json {
        return format!("{frame}\n");
    }
    let text = |key: &str| frame[key].as_str().unwrap_or_default();
    let time = text("at").get(11..23).unwrap_or_default();
    let session: String = text("session_id").chars().rev().take(6).collect();
    let session: String = session.chars().rev().collect();
    format!("{time}  {session}  {:5}  {:24}  {}\n", frame["seq"], text("type"), summarize(frame))
}

/// Summarizes an event: the values of up to three known keys of its payload.
fn summarize(frame: &Value) -> String {
    const SUMMARY_KEYS: [&str; 8] =
        ["tool", "reason", "error", "text", "message", "iteration", "attempt", "outcome"];
    let payload = if frame["payload"].is_object() { &frame["payload"] } else { frame };
    let parts = SUMMARY_KEYS.iter().filter_map(|key| match &payload[*key] {
        Value::String(text) => {
            Some(escape_unsafe(&greenroom_core::text::truncate(text, 80).replace('\n', " ")))
        }
        Value::Number(number) => Some(format!("{key} {number}")),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    parts.take(3).collect::<Vec<_>>().join("  ")
}
