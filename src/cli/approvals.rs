//! `greenroom approvals`: the questions a running server has for people, and answers to them
//! (G8, G11). A client like any other: it uses the public HTTP surface and keeps nothing.

mod view;

use super::{
    ConfigArgs, Usage,
    client::{Client, Refusal},
    form,
    id::Abbreviation,
    terminal::{self, Paint},
};
use crate::startup::SystemClock;
use greenroom_actors::ports::Clock as _;
use greenroom_core::{approval::ApprovalKind, limits::REASON_BYTES_MAX};
use serde_json::{Value, json};
use view::Asked;

/// Questions that are asked of the server at once; it gives no more.
const PAGE: usize = 200;
/// Questions that are looked through for an abbreviated id.
const SEARCHED_MAX: usize = 10_000;
/// Questions that one list may have.
const LISTED_MAX: usize = 1_000;

/// See and answer what a running server asks people.
#[derive(Debug, clap::Args)]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List questions, the newest first
    List(ListArgs),
    /// Show one question whole
    Show(ShowArgs),
    /// Let calls run: all that are undecided, or the steps that are named
    Approve(AnswerArgs),
    /// Don't let calls run: all that are undecided, or the steps that are named
    Reject(AnswerArgs),
    /// To an unknown outcome: run the call once more
    Retry(WordArgs),
    /// To an unknown outcome: the call took effect
    Done(DoneArgs),
    /// To an unknown outcome: the call did not take effect
    Failed(WordArgs),
    /// To a budget: raise it
    Raise(RaiseArgs),
    /// To a budget: end the run
    Stop(WordArgs),
    /// To a tool that asks: fill in its form, or say that its page was visited
    Answer(FormArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only those that stand so
    #[arg(long, value_enum, default_value_t)]
    state: StateFilter,
    /// Only this session's: its id, or at least 6 characters of the id's end or beginning
    #[arg(long, value_name = "ID")]
    session: Option<Abbreviation>,
    /// At most so many, up to 1000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON, one object with `approvals` and `more`
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum StateFilter {
    /// They wait
    #[default]
    Pending,
    /// People decided every step
    Decided,
    /// Nobody answered in time
    Expired,
    /// Their run was cancelled
    Cancelled,
    /// However they stand
    All,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The question: its id, or at least 6 characters of the id's end or beginning
    id: Abbreviation,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct AnswerArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The question: its id, or at least 6 characters of the id's end or beginning
    id: Abbreviation,
    /// Only this step: its call's id, or at least 6 characters of it (can be repeated)
    #[arg(long = "step", value_name = "CALL_ID")]
    steps: Vec<Abbreviation>,
    /// Why; the model is told
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// With one --step to approve: pass these arguments instead
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// Let later calls of the approved tools run without asking, in this session
    #[arg(long)]
    for_session: bool,
    /// With --for-session: only calls that this CEL expression holds for
    #[arg(long = "where", value_name = "EXPRESSION", requires = "for_session")]
    condition: Option<String>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
}

/// An answer to a question without steps.
#[derive(Debug, clap::Args)]
struct WordArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The question: its id, or at least 6 characters of the id's end or beginning
    id: Abbreviation,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DoneArgs {
    #[command(flatten)]
    word: WordArgs,
    /// What the call gave: JSON, or else a text
    #[arg(long, value_name = "RESULT")]
    result: Option<String>,
}

#[derive(Debug, clap::Args)]
struct RaiseArgs {
    #[command(flatten)]
    word: WordArgs,
    /// The new limit, in the budget's unit
    #[arg(value_name = "LIMIT")]
    limit: f64,
}

#[derive(Debug, clap::Args)]
struct FormArgs {
    #[command(flatten)]
    word: WordArgs,
    /// A field of the form; the value is JSON where the form says so, or else a text
    #[arg(value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    /// The whole form as JSON instead
    #[arg(long, value_name = "JSON", conflicts_with = "fields")]
    value: Option<String>,
}

/// Runs the command; errs when the server says no.
pub async fn run(args: ApprovalsArgs) -> anyhow::Result<()> {
    match args.command {
        Command::List(args) => list(args).await,
        Command::Show(args) => show(args).await,
        Command::Approve(args) => answer(args, true).await,
        Command::Reject(args) => answer(args, false).await,
        Command::Retry(args) => say(args, "retry", Value::Null).await,
        Command::Done(args) => {
            let text = args.result.unwrap_or_else(|| "null".to_owned());
            let result = serde_json::from_str(&text).unwrap_or(Value::String(text));
            say(args.word, "done", result).await
        }
        Command::Failed(args) => say(args, "failed", Value::Null).await,
        Command::Raise(args) => say(args.word, "raise", json!(args.limit)).await,
        Command::Stop(args) => say(args, "stop", Value::Null).await,
        Command::Answer(args) => fill_in(args).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    if !(1..=LISTED_MAX).contains(&args.limit) {
        return Err(Usage(format!("--limit must be 1 to {LISTED_MAX}")).into());
    }
    let client = Client::of(&args.config.load()?)?;
    let mut filter = match args.state {
        StateFilter::Pending => "&state=pending",
        StateFilter::Decided => "&state=decided",
        StateFilter::Expired => "&state=expired",
        StateFilter::Cancelled => "&state=cancelled",
        StateFilter::All => "",
    }
    .to_owned();
    if let Some(session) = &args.session {
        let session = client.session(session).await?;
        filter.push_str(&format!("&session_id={session}"));
    }
    let mut found = Vec::new();
    let more = pages(&client, &filter, args.limit, |view| found.push(view)).await?;
    if args.json {
        let listing = json!({"approvals": found, "more": more});
        return Ok(terminal::print(&format!("{listing:#}\n"))?);
    }
    let found = found.into_iter().map(Asked::read).collect::<Result<Vec<_>, _>>()?;
    let mut out = view::list(&found, SystemClock.now(), Paint::of_stdout());
    if found.is_empty() {
        out.push_str(match args.state {
            StateFilter::Pending => "Nothing waits for a person.\n",
            StateFilter::Decided
            | StateFilter::Expired
            | StateFilter::Cancelled
            | StateFilter::All => "There are none.\n",
        });
    }
    if more {
        out.push_str("There are more; see --limit.\n");
    }
    Ok(terminal::print(&out)?)
}

async fn show(args: ShowArgs) -> anyhow::Result<()> {
    let client = Client::of(&args.config.load()?)?;
    let view = find(&client, &args.id).await?;
    if args.json {
        return Ok(terminal::print(&format!("{view:#}\n"))?);
    }
    let asked = Asked::read(view)?;
    Ok(terminal::print(&view::whole(&asked, SystemClock.now(), Paint::of_stdout()))?)
}

async fn answer(args: AnswerArgs, approve: bool) -> anyhow::Result<()> {
    check_reason(args.reason.as_ref())?;
    let arguments = args.arguments.as_deref().map(serde_json::from_str::<Value>).transpose();
    let arguments = arguments.map_err(|error| Usage(format!("--arguments is no JSON: {error}")))?;
    if arguments.is_some() && (args.steps.len() != 1 || !approve) {
        return Err(Usage("--arguments goes with `approve` and one --step".to_owned()).into());
    }
    let client = Client::of(&args.config.load()?)?;
    let asked = Asked::read(find(&client, &args.id).await?)?;
    let mut body = json!({"decision": if approve { "approve" } else { "reject" }});
    if let Some(reason) = args.reason {
        body["reason"] = reason.into();
    }
    if !args.steps.is_empty() {
        let step = |step: &Abbreviation| {
            let calls = asked.steps().iter().map(|step| step.call_id.to_string());
            let call_id = step.one_of(calls, "step of this question")?;
            let mut step = json!({"call_id": call_id});
            if let Some(arguments) = &arguments {
                step["arguments"] = arguments.clone();
            }
            anyhow::Ok(step)
        };
        body["steps"] = args.steps.iter().map(step).collect::<Result<Vec<_>, _>>()?.into();
    }
    if args.for_session {
        body["for_session"] = json!({"where": args.condition});
    }
    send(&client, &asked, &body, approve, args.json).await
}

/// Answers a question without steps.
async fn say(args: WordArgs, decision: &str, value: Value) -> anyhow::Result<()> {
    check_reason(args.reason.as_ref())?;
    let client = Client::of(&args.config.load()?)?;
    let asked = Asked::read(find(&client, &args.id).await?)?;
    let body = json!({"decision": decision, "value": value, "reason": args.reason});
    send(&client, &asked, &body, true, args.json).await
}

/// Fills in the form of a tool that asks (T1).
async fn fill_in(args: FormArgs) -> anyhow::Result<()> {
    let FormArgs { word, fields, value } = args;
    check_reason(word.reason.as_ref())?;
    let whole = value.as_deref().map(serde_json::from_str::<Value>).transpose();
    let whole = whole.map_err(|error| Usage(format!("--value is no JSON: {error}")))?;
    let client = Client::of(&word.config.load()?)?;
    let view = find(&client, &word.id).await?;
    let value = match whole {
        Some(whole) => whole,
        None => {
            let kind = view["kind"].as_str().unwrap_or_default();
            if kind != ApprovalKind::Elicitation.name() && !fields.is_empty() {
                let told = format!(
                    "no form belongs to a question of the kind `{kind}`; `greenroom approvals show` says \
                     what answers it"
                );
                return Err(Usage(told).into());
            }
            form::filled_in(&view["schema"], &fields)?
        }
    };
    let asked = Asked::read(view)?;
    let body = json!({"decision": "answer", "value": value, "reason": word.reason});
    send(&client, &asked, &body, true, word.json).await
}

fn check_reason(reason: Option<&String>) -> Result<(), Usage> {
    if reason.is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        return Err(Usage(format!("--reason may have at most {REASON_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// Sends the answer and prints what became of it.
async fn send(
    client: &Client,
    asked: &Asked,
    body: &Value,
    approve: bool,
    as_json: bool,
) -> anyhow::Result<()> {
    let path = format!("/agent/approvals/{}", asked.approval_id);
    let answered = client.post(&path, body).await.map_err(|error| explained(error, asked))?;
    if as_json {
        return Ok(terminal::print(&format!("{answered:#}\n"))?);
    }
    let repeated = answered["repeated"] == true;
    let after = Asked::read(answered["approval"].clone())?;
    Ok(terminal::print(&view::answered(asked, &after, approve, repeated))?)
}

/// A refusal in the words of somebody at a terminal.
fn explained(error: anyhow::Error, asked: &Asked) -> anyhow::Error {
    let Some(refusal) = error.downcast_ref::<Refusal>() else { return error };
    match refusal.code() {
        "already_decided" => match serde_json::from_value(refusal.body["first"].clone()) {
            Ok(first) => anyhow::Error::msg(view::already_decided(asked, &first)),
            Err(_) => error,
        },
        "approval_expired" => {
            let deadline = asked.deadline.map(|at| format!(" at {}", view::time(at)));
            let when = deadline.unwrap_or_default();
            anyhow::anyhow!("nobody answered in time: the question expired{when}")
        }
        "approval_cancelled" => {
            anyhow::anyhow!("the question is moot: its run was cancelled")
        }
        _ => error,
    }
}

/// The question of that id, as the server shows it.
async fn find(client: &Client, id: &Abbreviation) -> anyhow::Result<Value> {
    if let Some(whole) = id.whole() {
        return client.get(&format!("/agent/approvals/{whole}")).await;
    }
    let (mut fitting, mut searched) = (Vec::new(), 0);
    let more = pages(client, "", SEARCHED_MAX, |view| {
        searched += 1;
        let candidate = view["approval_id"].as_str().filter(|candidate| id.fits(candidate));
        fitting.extend(candidate.map(str::to_owned));
    })
    .await?;
    let kind = if more { format!("question of the newest {searched}") } else { "question".into() };
    let one = id.one_of(fitting, &kind)?;
    client.get(&format!("/agent/approvals/{one}")).await
}

/// Hands over the questions of `filter`, the newest first, at most so many; says whether there are
/// more.
async fn pages(
    client: &Client,
    filter: &str,
    limit: usize,
    mut take: impl FnMut(Value),
) -> anyhow::Result<bool> {
    let (mut left, mut before) = (limit, String::new());
    loop {
        let size = left.min(PAGE);
        let path = format!("/agent/approvals?limit={size}{filter}{before}");
        let mut page = client.get(&path).await?;
        let Value::Array(views) = page["approvals"].take() else { return Ok(false) };
        left = left.saturating_sub(views.len());
        let is_empty = views.is_empty();
        views.into_iter().for_each(&mut take);
        match page["next"].as_str() {
            Some(_) if left == 0 => return Ok(true),
            Some(next) if !is_empty => before = format!("&before={next}"),
            Some(_) | None => return Ok(false),
        }
    }
}
