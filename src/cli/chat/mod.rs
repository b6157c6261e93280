//! `greenroom chat`: a chat client for a terminal or a program.
//!
//! Like any other client, the chat uses the dialect `gateway`, and REST for requests that the dialect
//! does not have. [`machine`] is the pure state machine of the chat, [`gateway_connection`] keeps the
//! WebSocket open, and there are three front ends: a full [`terminal`](interactive), [`plain`] lines,
//! and [JSON lines](json_lines) for programs.

mod approval_prompt;
mod command;
#[cfg(test)]
mod decoder_fuzz;
mod elicitation_form;
mod external_editor;
mod gateway_connection;
mod gateway_message;
mod interactive;
mod json_lines;
mod line_editor;
mod machine;
mod plain;
mod render;
mod screen;
mod styled_line;
#[cfg(test)]
mod tests;

use super::{ConfigArgs, UsageError, client::ApiClient, partial_id::PartialId};
use gateway_connection::GatewayConnection;
use greenroom_core::{
    context::workflow::format_command,
    ids::{AgentName, SessionId},
};
use machine::ChatMachine;
use serde_json::{Value, json};
use std::{
    io::{IsTerminal as _, Read as _},
    process::ExitCode,
};

/// Exit code if a run failed or was cancelled, or the server rejected a message.
const EXIT_FAILED: u8 = 1;
/// Exit code if an approval is pending and `--no-wait` is set.
const EXIT_APPROVAL_PENDING: u8 = 3;
/// Exit code after two interrupts.
const EXIT_INTERRUPTED: u8 = 130;
/// Maximum bytes of a message from standard input; the server's limit.
const MESSAGE_BYTES_MAX: u64 = greenroom_core::limits::MESSAGE_BYTES_MAX as u64;
/// Number of events before the session's last one that are searched for the current run.
const EVENTS_SEARCHED: u64 = 2_000;

/// Chat with an agent of a running server
#[derive(Debug, clap::Args)]
pub struct ChatArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Send this message and exit after the answer [default: read messages from standard input]
    message: Option<String>,
    /// Continue this session: its id, or at least 6 characters of the id's end or beginning
    #[arg(long, value_name = "ID")]
    session: Option<PartialId>,
    /// Start this workflow and exit after the answer; `greenroom workflows` lists workflows
    #[arg(long, value_name = "NAME", conflicts_with = "message")]
    workflow: Option<String>,
    /// An input of the workflow (repeatable)
    #[arg(
        long = "input",
        value_name = "KEY=VALUE",
        requires = "workflow",
        // Without this, clap would accept a message in place of the required workflow.
        conflicts_with = "message"
    )]
    inputs: Vec<String>,
    /// Agent of the new session
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    agent: Option<AgentName>,
    /// Read and write JSON lines, in the frames of the gateway dialect
    #[arg(long)]
    json: bool,
    /// Exit with code 3 if approval is needed, instead of waiting for the answer
    #[arg(long)]
    no_wait: bool,
}

/// The state that every front end starts with.
struct ChatSetup {
    client: ApiClient,
    connection: GatewayConnection,
    machine: ChatMachine,
    /// The agent of the session still to be created.
    agent: Option<AgentName>,
    /// True to exit when approval is needed.
    no_wait: bool,
}

/// Runs the command.
pub async fn run(args: ChatArgs) -> anyhow::Result<ExitCode> {
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let (stdin_is_terminal, stdout_is_terminal) =
        (std::io::stdin().is_terminal(), std::io::stdout().is_terminal());
    let workflow =
        args.workflow.as_ref().map(|name| parse_workflow(name, &args.inputs)).transpose()?;
    let single_message = match (args.message, &workflow) {
        (Some(message), _) => Some(message),
        // A line of JSON may be a frame, which names the workflow.
        (None, Some((line, workflow))) if args.json => {
            Some(json!({"content": line, "workflow": workflow}).to_string())
        }
        (None, Some((line, _))) => Some(line.clone()),
        (None, None) if stdin_is_terminal || args.json => None,
        (None, None) => Some(read_piped_message()?),
    };
    let session = match &args.session {
        Some(session) => Some(client.find_session(session).await?),
        None => None,
    };
    let resumed = match session {
        Some(session) => Some(find_open_requests(&client, session).await?),
        None => None,
    };
    if let (Some(name), Some(_)) = (&args.workflow, &args.agent) {
        require_known_workflow(&client, name).await?;
    }
    let connection = GatewayConnection::open(&client).await?;
    let mut machine = ChatMachine::new(session);
    if let Some((_, workflow)) = workflow {
        machine.set_next_workflow(workflow);
    }
    let setup = ChatSetup { client, connection, machine, agent: args.agent, no_wait: args.no_wait };
    let resumed = resumed.unwrap_or_default();
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if args.json {
        json_lines::run(setup, single_message, resumed).await
    } else if stdin_is_terminal && stdout_is_terminal && !dumb {
        interactive::run(setup, single_message, resumed).await
    } else {
        plain::run(setup, single_message, resumed).await
    }
}

/// Returns the line that starts the workflow, and the `workflow` member of its frame.
fn parse_workflow(name: &str, inputs: &[String]) -> anyhow::Result<(String, Value)> {
    let mut values = serde_json::Map::new();
    for input in inputs {
        let pair = input.split_once('=');
        let (key, value) =
            pair.ok_or_else(|| UsageError(format!("`{input}` must be KEY=VALUE")))?;
        values.insert(key.to_owned(), value.into());
    }
    Ok((format_command(name, &values), json!({"name": name, "inputs": values})))
}

/// Fails if the workflow does not exist. With `--agent` the session is created before the server
/// validates the workflow; this check keeps a wrong name from leaving a session behind.
async fn require_known_workflow(client: &ApiClient, name: &str) -> anyhow::Result<()> {
    let response = client.get("/agent/workflows").await?;
    let known = response["workflows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_known = known.iter().any(|workflow| workflow["name"] == name);
    anyhow::ensure!(is_known, "workflow `{name}` not found; `greenroom workflows` lists them");
    Ok(())
}

/// Reads standard input as one message.
fn read_piped_message() -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MESSAGE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| UsageError(format!("can't read the message: {error}")))?;
    if text.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(UsageError(format!("the message exceeds {MESSAGE_BYTES_MAX} bytes")).into());
    }
    if text.trim().is_empty() {
        return Err(
            UsageError("no message: give one as an argument or on standard input".into()).into()
        );
    }
    Ok(text.trim_end().to_owned())
}

/// The id and the content of a request sent earlier that is not finished.
type ResumedRequest = (String, String);

/// Returns the session's unfinished requests, oldest first. The server recognizes them by their ids
/// when they are sent again: it starts nothing and streams the rest.
async fn find_open_requests(
    client: &ApiClient,
    session: SessionId,
) -> anyhow::Result<Vec<ResumedRequest>> {
    let row = client.get(&format!("/agent/session/{session}")).await?;
    match row["status"].as_str() {
        Some("running" | "waiting") => {}
        Some("closed") => anyhow::bail!("the session is closed and read-only"),
        Some(_) | None => return Ok(Vec::new()),
    }
    let after = row["head"].as_u64().unwrap_or_default().saturating_sub(EVENTS_SEARCHED);
    let path = format!("/agent/session/{session}/messages?limit=500&after={after}");
    let page = client.get(&path).await?;
    let is_from_user = |message: &&Value| message["role"] == "user";
    let request = |message: &Value| {
        let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
        (text("message_id"), text("content"))
    };
    let all = |name: &str| page[name].as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let accepted = all("messages");
    // Messages that steer a run belong to it as well; the request is the run's first message.
    let run_id = accepted.iter().rfind(is_from_user).map(|message| &message["run_id"]);
    let mut from_user = accepted.iter().filter(is_from_user);
    let first = from_user.find(|message| Some(&message["run_id"]) == run_id);
    Ok(first.into_iter().chain(all("queued").iter()).map(request).collect())
}

/// Creates a session with the agent and returns its id.
async fn create_session(client: &ApiClient, agent: &AgentName) -> anyhow::Result<String> {
    let created = client.post("/agent/session", &json!({ "agent": agent })).await?;
    let session = created["session_id"].as_str();
    session.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("the response has no session id"))
}
