//! `greenroom chat`: talking with an agent from a terminal, or from a program. A client like any
//! other: it speaks the dialect `gateway`, and uses REST where that has no word.
//!
//! What is going on is in one pure machine, [`conversation`]; around it are the [`link`] that keeps
//! the connection, and three ways of showing and asking: a [`terminal`](interactive), plain
//! [`lines`](plain), and JSON for [`programs`](programs).

mod approval_prompt;
mod command;
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

/// The run failed or was cancelled, or the message was refused.
const EXIT_FAILED: u8 = 1;
/// A person is asked, and the command was told not to wait.
const EXIT_APPROVAL_PENDING: u8 = 3;
/// It was interrupted twice.
const EXIT_INTERRUPTED: u8 = 130;
/// Bytes of a message from standard input; the server takes no more.
const MESSAGE_BYTES_MAX: u64 = greenroom_core::limits::MESSAGE_BYTES_MAX as u64;
/// Events before a session's last one, among which the run that is going is looked for.
const EVENTS_LOOKED_BACK: u64 = 2_000;

/// Talk with an agent of a running server.
#[derive(Debug, clap::Args)]
pub struct ChatArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Say this, and leave when it is answered; else what is typed, or what is piped in
    message: Option<String>,
    /// Go on with this session: its id, or at least 6 characters of the id's end or beginning
    #[arg(long, value_name = "ID")]
    session: Option<PartialId>,
    /// Start this workflow, and leave when it is answered; `greenroom workflows` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "message")]
    workflow: Option<String>,
    /// An input of the workflow; may be said several times
    #[arg(
        long = "input",
        value_name = "KEY=VALUE",
        requires = "workflow",
        // A message would make up for the workflow that is required.
        conflicts_with = "message"
    )]
    inputs: Vec<String>,
    /// The agent of a new session
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    agent: Option<AgentName>,
    /// For programs: JSON lines in and out, in the words of the gateway
    #[arg(long)]
    json: bool,
    /// Leave with exit code 3 when a person is asked, instead of waiting for their answer
    #[arg(long)]
    no_wait: bool,
}

/// What every way of talking starts from.
struct ChatSetup {
    client: ApiClient,
    link: GatewayConnection,
    conversation: ChatMachine,
    /// The agent of the session that is still to be made.
    agent: Option<AgentName>,
    /// Whether to leave when a person is asked.
    no_wait: bool,
}

/// Runs the command.
pub async fn run(args: ChatArgs) -> anyhow::Result<ExitCode> {
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let (reads, writes) = (std::io::stdin().is_terminal(), std::io::stdout().is_terminal());
    let started =
        args.workflow.as_ref().map(|name| parse_workflow(name, &args.inputs)).transpose()?;
    let once = match (args.message, &started) {
        (Some(message), _) => Some(message),
        // Lines of programs may be frames.
        (None, Some((line, workflow))) if args.json => {
            Some(json!({"content": line, "workflow": workflow}).to_string())
        }
        (None, Some((line, _))) => Some(line.clone()),
        (None, None) if reads || args.json => None,
        (None, None) => Some(read_piped_message()?),
    };
    let session = match &args.session {
        Some(session) => Some(client.find_session(session).await?),
        None => None,
    };
    let going = match session {
        Some(session) => Some(find_open_requests(&client, session).await?),
        None => None,
    };
    if let (Some(name), Some(_)) = (&args.workflow, &args.agent) {
        require_known_workflow(&client, name).await?;
    }
    let link = GatewayConnection::open(&client).await?;
    let mut conversation = ChatMachine::new(session);
    if let Some((_, workflow)) = started {
        conversation.set_next_workflow(workflow);
    }
    let setup = ChatSetup { client, link, conversation, agent: args.agent, no_wait: args.no_wait };
    let going = going.unwrap_or_default();
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if args.json {
        json_lines::run(setup, once, going).await
    } else if reads && writes && !dumb {
        interactive::run(setup, once, going).await
    } else {
        plain::run(setup, once, going).await
    }
}

/// The line that starts a workflow, and the same as a frame has it.
fn parse_workflow(name: &str, inputs: &[String]) -> anyhow::Result<(String, Value)> {
    let mut said = serde_json::Map::new();
    for input in inputs {
        let pair = input.split_once('=');
        let (key, value) = pair.ok_or_else(|| UsageError(format!("`{input}` is not KEY=VALUE")))?;
        said.insert(key.to_owned(), value.into());
    }
    Ok((format_command(name, &said), json!({"name": name, "inputs": said})))
}

/// Errs if there is no such workflow: the session that an agent is named for is made before the server
/// is asked for it.
async fn require_known_workflow(client: &ApiClient, name: &str) -> anyhow::Result<()> {
    let found = client.get("/agent/workflows").await?;
    let known = found["workflows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_known = known.iter().any(|workflow| workflow["name"] == name);
    anyhow::ensure!(is_known, "there is no workflow `{name}`; `greenroom workflows` lists them");
    Ok(())
}

/// What is piped in, as one message.
fn read_piped_message() -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MESSAGE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| UsageError(format!("what is piped in is no text: {error}")))?;
    if text.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(
            UsageError(format!("a message may have at most {MESSAGE_BYTES_MAX} bytes")).into()
        );
    }
    if text.trim().is_empty() {
        return Err(
            UsageError("there is nothing to say: give a message, or pipe one in".into()).into()
        );
    }
    Ok(text.trim_end().to_owned())
}

/// A request that somebody made before: its id, and what was said.
type ResumedRequest = (String, String);

/// The requests of the session that are not over, oldest first. Sent again they start nothing, and
/// stream what remains.
async fn find_open_requests(
    client: &ApiClient,
    session: SessionId,
) -> anyhow::Result<Vec<ResumedRequest>> {
    let found = client.get(&format!("/agent/session/{session}")).await?;
    match found["status"].as_str() {
        Some("running" | "waiting") => {}
        Some("closed") => anyhow::bail!("the session is closed; it can only be read"),
        Some(_) | None => return Ok(Vec::new()),
    }
    let after = found["head"].as_u64().unwrap_or_default().saturating_sub(EVENTS_LOOKED_BACK);
    let path = format!("/agent/session/{session}/messages?limit=500&after={after}");
    let page = client.get(&path).await?;
    let of_user = |message: &&Value| message["role"] == "user";
    let request = |message: &Value| {
        let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
        (text("message_id"), text("content"))
    };
    let all = |name: &str| page[name].as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let accepted = all("messages");
    // What steered a run is accepted in it, too: its first message is what it answers.
    let run_id = accepted.iter().rfind(of_user).map(|message| &message["run_id"]);
    let first = accepted.iter().filter(of_user).find(|message| Some(&message["run_id"]) == run_id);
    Ok(first.into_iter().chain(all("queued").iter()).map(request).collect())
}

/// A new session with that agent.
async fn create_session(client: &ApiClient, agent: &AgentName) -> anyhow::Result<String> {
    let created = client.post("/agent/session", &json!({ "agent": agent })).await?;
    let session = created["session_id"].as_str();
    session.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("the server names no session"))
}
