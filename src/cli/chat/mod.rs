//! `greenroom chat`: talking with an agent from a terminal, or from a program. A client like any
//! other: it speaks the dialect `gateway`, and uses REST where that has no word.
//!
//! What is going on is in one pure machine, [`conversation`]; around it are the [`link`] that keeps
//! the connection, and three ways of showing and asking: a [`terminal`](interactive), plain
//! [`lines`](plain), and JSON for [`programs`](programs).

mod ask;
mod conversation;
mod editing;
mod editor;
mod form;
mod heard;
mod interactive;
mod line;
mod link;
mod plain;
mod programs;
mod screen;
mod show;
#[cfg(test)]
mod tests;
mod word;

use super::{ConfigArgs, Usage, client::Client, id::Abbreviation};
use conversation::Conversation;
use greenroom_core::{
    context::workflow::command,
    ids::{AgentName, SessionId},
};
use link::Link;
use serde_json::{Value, json};
use std::{
    io::{IsTerminal as _, Read as _},
    process::ExitCode,
};

/// The run failed or was cancelled, or the message was refused.
const EXIT_FAILED: u8 = 1;
/// A person is asked, and the command was told not to wait.
const EXIT_ASKED: u8 = 3;
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
    session: Option<Abbreviation>,
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
struct Setup {
    client: Client,
    link: Link,
    conversation: Conversation,
    /// The agent of the session that is still to be made.
    agent: Option<AgentName>,
    /// Whether to leave when a person is asked.
    no_wait: bool,
}

/// Runs the command.
pub async fn run(args: ChatArgs) -> anyhow::Result<ExitCode> {
    let client = Client::of(&args.config.load()?)?;
    let (reads, writes) = (std::io::stdin().is_terminal(), std::io::stdout().is_terminal());
    let started = args.workflow.as_ref().map(|name| workflow(name, &args.inputs)).transpose()?;
    let once = match (args.message, &started) {
        (Some(message), _) => Some(message),
        // Lines of programs may be frames.
        (None, Some((line, workflow))) if args.json => {
            Some(json!({"content": line, "workflow": workflow}).to_string())
        }
        (None, Some((line, _))) => Some(line.clone()),
        (None, None) if reads || args.json => None,
        (None, None) => Some(piped()?),
    };
    let session = match &args.session {
        Some(session) => Some(client.session(session).await?),
        None => None,
    };
    let going = match session {
        Some(session) => Some(resume(&client, session).await?),
        None => None,
    };
    if let (Some(name), Some(_)) = (&args.workflow, &args.agent) {
        check_is_known(&client, name).await?;
    }
    let link = Link::open(&client).await?;
    let mut conversation = Conversation::new(session);
    if let Some((_, workflow)) = started {
        conversation.starts_with(workflow);
    }
    let setup = Setup { client, link, conversation, agent: args.agent, no_wait: args.no_wait };
    let going = going.unwrap_or_default();
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if args.json {
        programs::run(setup, once, going).await
    } else if reads && writes && !dumb {
        interactive::run(setup, once, going).await
    } else {
        plain::run(setup, once, going).await
    }
}

/// The line that starts a workflow, and the same as a frame has it.
fn workflow(name: &str, inputs: &[String]) -> anyhow::Result<(String, Value)> {
    let mut said = serde_json::Map::new();
    for input in inputs {
        let pair = input.split_once('=');
        let (key, value) = pair.ok_or_else(|| Usage(format!("`{input}` is not KEY=VALUE")))?;
        said.insert(key.to_owned(), value.into());
    }
    Ok((command(name, &said), json!({"name": name, "inputs": said})))
}

/// Errs if there is no such workflow: the session that an agent is named for is made before the server
/// is asked for it.
async fn check_is_known(client: &Client, name: &str) -> anyhow::Result<()> {
    let found = client.get("/agent/workflows").await?;
    let known = found["workflows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_known = known.iter().any(|workflow| workflow["name"] == name);
    anyhow::ensure!(is_known, "there is no workflow `{name}`; `greenroom workflows` lists them");
    Ok(())
}

/// What is piped in, as one message.
fn piped() -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MESSAGE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| Usage(format!("what is piped in is no text: {error}")))?;
    if text.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(Usage(format!("a message may have at most {MESSAGE_BYTES_MAX} bytes")).into());
    }
    if text.trim().is_empty() {
        return Err(Usage("there is nothing to say: give a message, or pipe one in".into()).into());
    }
    Ok(text.trim_end().to_owned())
}

/// A request that somebody made before: its id, and what was said.
type Request = (String, String);

/// The requests of the session that are not over, oldest first. Sent again they start nothing, and
/// stream what remains.
async fn resume(client: &Client, session: SessionId) -> anyhow::Result<Vec<Request>> {
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
async fn create(client: &Client, agent: &AgentName) -> anyhow::Result<String> {
    let created = client.post("/agent/session", &json!({ "agent": agent })).await?;
    let session = created["session_id"].as_str();
    session.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("the server names no session"))
}
