//! `greenroom approvals`: the questions a running server has for people, and answers to them
//! (G8, G11). A client like any other: it uses the public HTTP surface and keeps nothing.

mod view;

use super::{
    ConfigArgs, UsageError,
    client::{ApiClient, ApiError},
    partial_id::PartialId,
    schema_form,
    terminal::{self, ColorMode},
};
use crate::startup::SystemClock;
use greenroom_actors::ports::Clock as _;
use greenroom_core::{approval::ApprovalKind, limits::REASON_BYTES_MAX};
use serde_json::{Value, json};
use view::ApprovalDetails;

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
    command: ApprovalsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ApprovalsCommand {
    /// List questions, the newest first
    List(ListArgs),
    /// Show one question whole
    Show(ShowArgs),
    /// Let calls run: all that are undecided, or the steps that are named
    Approve(PlanAnswerArgs),
    /// Don't let calls run: all that are undecided, or the steps that are named
    Reject(PlanAnswerArgs),
    /// To an unknown outcome: run the call once more
    Retry(CommonAnswerArgs),
    /// To an unknown outcome: the call took effect
    Done(DoneArgs),
    /// To an unknown outcome: the call did not take effect
    Failed(CommonAnswerArgs),
    /// To a budget: raise it
    Raise(RaiseArgs),
    /// To a budget: end the run
    Stop(CommonAnswerArgs),
    /// To a tool that asks: fill in its form, or say that its page was visited
    Answer(ElicitationAnswerArgs),
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
    session: Option<PartialId>,
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
    id: PartialId,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct PlanAnswerArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The question: its id, or at least 6 characters of the id's end or beginning
    id: PartialId,
    /// Only this step: its call's id, or at least 6 characters of it (can be repeated)
    #[arg(long = "step", value_name = "CALL_ID")]
    steps: Vec<PartialId>,
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
struct CommonAnswerArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The question: its id, or at least 6 characters of the id's end or beginning
    id: PartialId,
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
    common: CommonAnswerArgs,
    /// What the call gave: JSON, or else a text
    #[arg(long, value_name = "RESULT")]
    result: Option<String>,
}

#[derive(Debug, clap::Args)]
struct RaiseArgs {
    #[command(flatten)]
    common: CommonAnswerArgs,
    /// The new limit, in the budget's unit
    #[arg(value_name = "LIMIT")]
    limit: f64,
}

#[derive(Debug, clap::Args)]
struct ElicitationAnswerArgs {
    #[command(flatten)]
    common: CommonAnswerArgs,
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
        ApprovalsCommand::List(args) => list(args).await,
        ApprovalsCommand::Show(args) => show(args).await,
        ApprovalsCommand::Approve(args) => answer_plan(args, true).await,
        ApprovalsCommand::Reject(args) => answer_plan(args, false).await,
        ApprovalsCommand::Retry(args) => send_answer(args, "retry", Value::Null).await,
        ApprovalsCommand::Done(args) => {
            let text = args.result.unwrap_or_else(|| "null".to_owned());
            let result = serde_json::from_str(&text).unwrap_or(Value::String(text));
            send_answer(args.common, "done", result).await
        }
        ApprovalsCommand::Failed(args) => send_answer(args, "failed", Value::Null).await,
        ApprovalsCommand::Raise(args) => send_answer(args.common, "raise", json!(args.limit)).await,
        ApprovalsCommand::Stop(args) => send_answer(args, "stop", Value::Null).await,
        ApprovalsCommand::Answer(args) => answer_elicitation(args).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    if !(1..=LISTED_MAX).contains(&args.limit) {
        return Err(UsageError(format!("--limit must be 1 to {LISTED_MAX}")).into());
    }
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let mut filter = match args.state {
        StateFilter::Pending => "&state=pending",
        StateFilter::Decided => "&state=decided",
        StateFilter::Expired => "&state=expired",
        StateFilter::Cancelled => "&state=cancelled",
        StateFilter::All => "",
    }
    .to_owned();
    if let Some(session) = &args.session {
        let session = client.find_session(session).await?;
        filter.push_str(&format!("&session_id={session}"));
    }
    let mut found = Vec::new();
    let more = visit_approvals(&client, &filter, args.limit, |view| found.push(view)).await?;
    if args.json {
        let listing = json!({"approvals": found, "more": more});
        return Ok(terminal::print(&format!("{listing:#}\n"))?);
    }
    let found = found.into_iter().map(ApprovalDetails::from_json).collect::<Result<Vec<_>, _>>()?;
    let mut out = view::render_list(&found, SystemClock.now(), ColorMode::for_stdout());
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
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let view = find_approval(&client, &args.id).await?;
    if args.json {
        return Ok(terminal::print(&format!("{view:#}\n"))?);
    }
    let asked = ApprovalDetails::from_json(view)?;
    Ok(terminal::print(&view::render_details(&asked, SystemClock.now(), ColorMode::for_stdout()))?)
}

async fn answer_plan(args: PlanAnswerArgs, approve: bool) -> anyhow::Result<()> {
    validate_reason(args.reason.as_ref())?;
    let arguments = args.arguments.as_deref().map(serde_json::from_str::<Value>).transpose();
    let arguments =
        arguments.map_err(|error| UsageError(format!("--arguments is no JSON: {error}")))?;
    if arguments.is_some() && (args.steps.len() != 1 || !approve) {
        return Err(UsageError("--arguments goes with `approve` and one --step".to_owned()).into());
    }
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let asked = ApprovalDetails::from_json(find_approval(&client, &args.id).await?)?;
    let mut body = json!({"decision": if approve { "approve" } else { "reject" }});
    if let Some(reason) = args.reason {
        body["reason"] = reason.into();
    }
    if !args.steps.is_empty() {
        let step = |step: &PartialId| {
            let calls = asked.steps().iter().map(|step| step.call_id.to_string());
            let call_id = step.resolve(calls, "step of this question")?;
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
    post_answer(&client, &asked, &body, approve, args.json).await
}

/// Answers a question without steps.
async fn send_answer(args: CommonAnswerArgs, decision: &str, value: Value) -> anyhow::Result<()> {
    validate_reason(args.reason.as_ref())?;
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let asked = ApprovalDetails::from_json(find_approval(&client, &args.id).await?)?;
    let body = json!({"decision": decision, "value": value, "reason": args.reason});
    post_answer(&client, &asked, &body, true, args.json).await
}

/// Fills in the form of a tool that asks (T1).
async fn answer_elicitation(args: ElicitationAnswerArgs) -> anyhow::Result<()> {
    let ElicitationAnswerArgs { common: word, fields, value } = args;
    validate_reason(word.reason.as_ref())?;
    let whole = value.as_deref().map(serde_json::from_str::<Value>).transpose();
    let whole = whole.map_err(|error| UsageError(format!("--value is no JSON: {error}")))?;
    let client = ApiClient::from_configuration(&word.config.load()?)?;
    let view = find_approval(&client, &word.id).await?;
    let value = match whole {
        Some(whole) => whole,
        None => {
            let kind = view["kind"].as_str().unwrap_or_default();
            if kind != ApprovalKind::Elicitation.name() && !fields.is_empty() {
                let told = format!(
                    "no form belongs to a question of the kind `{kind}`; `greenroom approvals show` says \
                     what answers it"
                );
                return Err(UsageError(told).into());
            }
            schema_form::parse_form(&view["schema"], &fields)?
        }
    };
    let asked = ApprovalDetails::from_json(view)?;
    let body = json!({"decision": "answer", "value": value, "reason": word.reason});
    post_answer(&client, &asked, &body, true, word.json).await
}

fn validate_reason(reason: Option<&String>) -> Result<(), UsageError> {
    if reason.is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        return Err(UsageError(format!("--reason may have at most {REASON_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// Sends the answer and prints what became of it.
async fn post_answer(
    client: &ApiClient,
    asked: &ApprovalDetails,
    body: &Value,
    approve: bool,
    as_json: bool,
) -> anyhow::Result<()> {
    let path = format!("/agent/approvals/{}", asked.approval_id);
    let answered = client.post(&path, body).await.map_err(|error| explain_error(error, asked))?;
    if as_json {
        return Ok(terminal::print(&format!("{answered:#}\n"))?);
    }
    let repeated = answered["repeated"] == true;
    let after = ApprovalDetails::from_json(answered["approval"].clone())?;
    Ok(terminal::print(&view::render_answer_result(asked, &after, approve, repeated))?)
}

/// A refusal in the words of somebody at a terminal.
fn explain_error(error: anyhow::Error, asked: &ApprovalDetails) -> anyhow::Error {
    let Some(refusal) = error.downcast_ref::<ApiError>() else { return error };
    match refusal.code() {
        "already_decided" => match serde_json::from_value(refusal.body["first"].clone()) {
            Ok(first) => anyhow::Error::msg(view::render_conflict(asked, &first)),
            Err(_) => error,
        },
        "approval_expired" => {
            let deadline = asked.deadline.map(|at| format!(" at {}", view::format_time(at)));
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
async fn find_approval(client: &ApiClient, id: &PartialId) -> anyhow::Result<Value> {
    if let Some(whole) = id.as_full() {
        return client.get(&format!("/agent/approvals/{whole}")).await;
    }
    let (mut fitting, mut searched) = (Vec::new(), 0);
    let more = visit_approvals(client, "", SEARCHED_MAX, |view| {
        searched += 1;
        let candidate = view["approval_id"].as_str().filter(|candidate| id.matches(candidate));
        fitting.extend(candidate.map(str::to_owned));
    })
    .await?;
    let kind = if more { format!("question of the newest {searched}") } else { "question".into() };
    let one = id.resolve(fitting, &kind)?;
    client.get(&format!("/agent/approvals/{one}")).await
}

/// Hands over the questions of `filter`, the newest first, at most so many; says whether there are
/// more.
async fn visit_approvals(
    client: &ApiClient,
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
