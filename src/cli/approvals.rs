//! `greenroom approvals`: lists the approvals of a running server and answers them (G8, G11).
//!
//! The command uses the public HTTP API like any other client and stores nothing.

#[cfg(test)]
mod decoder_fuzz;
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
use greenroom_core::{
    amount::Amount, approval::ApprovalKind, json::from_value, limits::REASON_BYTES_MAX,
};
use serde_json::{Value, json};
use view::ApprovalDetails;

/// Approvals requested per page; the server's maximum.
const PAGE: usize = 200;
/// Maximum number of approvals searched for an abbreviated id.
const SEARCHED_MAX: usize = 10_000;
/// Maximum value of `--limit`.
const LISTED_MAX: usize = 1_000;

/// List and answer the approvals of a running server
#[derive(Debug, clap::Args)]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    command: ApprovalsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ApprovalsCommand {
    /// List approvals, newest first
    List(ListArgs),
    /// Show an approval in full
    Show(ShowArgs),
    /// Approve a plan: all undecided steps, or those given with --step
    Approve(PlanAnswerArgs),
    /// Reject a plan: all undecided steps, or those given with --step
    Reject(PlanAnswerArgs),
    /// Answer an unknown outcome: run the call again
    Retry(CommonAnswerArgs),
    /// Answer an unknown outcome: the call took effect
    Done(DoneArgs),
    /// Answer an unknown outcome: the call had no effect
    Failed(CommonAnswerArgs),
    /// Answer a budget approval: raise the limit
    Raise(RaiseArgs),
    /// Answer a budget approval: stop the run
    Stop(CommonAnswerArgs),
    /// Answer a tool's elicitation: fill in its form, or confirm that its page was visited
    Answer(ElicitationAnswerArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only approvals in this state
    #[arg(long, value_enum, default_value_t)]
    state: StateFilter,
    /// Only approvals of this session: its id, or at least 6 characters of the id's end or beginning
    #[arg(long, value_name = "ID")]
    session: Option<PartialId>,
    /// Maximum number of approvals, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON: one object with `approvals` and `more`
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum StateFilter {
    /// Waiting for an answer
    #[default]
    Pending,
    /// Every step decided by a human
    Decided,
    /// Not answered in time
    Expired,
    /// Cancelled with the run
    Cancelled,
    /// Any state
    All,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The approval: its id, or at least 6 characters of the id's end or beginning
    id: PartialId,
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct PlanAnswerArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The approval: its id, or at least 6 characters of the id's end or beginning
    id: PartialId,
    /// Only this step: its call id, or at least 6 characters of it (repeatable)
    #[arg(long = "step", value_name = "CALL_ID")]
    steps: Vec<PartialId>,
    /// Reason; sent to the model
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Replace the arguments; only with `approve` and one --step
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// Allow later calls of the approved tools in this session without approval
    #[arg(long)]
    for_session: bool,
    /// With --for-session: only calls for which this CEL expression is true
    #[arg(long = "where", value_name = "EXPRESSION", requires = "for_session")]
    condition: Option<String>,
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
}

/// The arguments common to the answers of an approval without steps.
#[derive(Debug, clap::Args)]
struct CommonAnswerArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The approval: its id, or at least 6 characters of the id's end or beginning
    id: PartialId,
    /// Reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print the server's JSON response
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DoneArgs {
    #[command(flatten)]
    common: CommonAnswerArgs,
    /// Result of the call: JSON, or else plain text
    #[arg(long, value_name = "RESULT")]
    result: Option<String>,
}

#[derive(Debug, clap::Args)]
struct RaiseArgs {
    #[command(flatten)]
    common: CommonAnswerArgs,
    /// The new limit, in the budget's unit
    #[arg(value_name = "LIMIT", value_parser = Amount::parse)]
    limit: Amount,
}

#[derive(Debug, clap::Args)]
struct ElicitationAnswerArgs {
    #[command(flatten)]
    common: CommonAnswerArgs,
    /// A form field; the value is JSON if the field's type requires it, or else plain text
    #[arg(value_name = "FIELD=VALUE")]
    fields: Vec<String>,
    /// The whole form as JSON
    #[arg(long, value_name = "JSON", conflicts_with = "fields")]
    value: Option<String>,
}

/// Runs the command. Fails if the server rejects the request.
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
    let mut views = Vec::new();
    let has_more = visit_approvals(&client, &filter, args.limit, |view| views.push(view)).await?;
    if args.json {
        let listing = json!({"approvals": views, "more": has_more});
        return Ok(terminal::print(&format!("{listing:#}\n"))?);
    }
    let approvals =
        views.into_iter().map(ApprovalDetails::from_json).collect::<Result<Vec<_>, _>>()?;
    let mut out = view::render_list(&approvals, SystemClock.now(), ColorMode::for_stdout());
    if approvals.is_empty() {
        out.push_str(match args.state {
            StateFilter::Pending => "No pending approvals.\n",
            StateFilter::Decided
            | StateFilter::Expired
            | StateFilter::Cancelled
            | StateFilter::All => "No approvals found.\n",
        });
    }
    if has_more {
        out.push_str("More approvals exist; raise --limit.\n");
    }
    Ok(terminal::print(&out)?)
}

async fn show(args: ShowArgs) -> anyhow::Result<()> {
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let view = find_approval(&client, &args.id).await?;
    if args.json {
        return Ok(terminal::print(&format!("{view:#}\n"))?);
    }
    let approval = ApprovalDetails::from_json(view)?;
    let text = view::render_details(&approval, SystemClock.now(), ColorMode::for_stdout());
    Ok(terminal::print(&text)?)
}

async fn answer_plan(args: PlanAnswerArgs, approve: bool) -> anyhow::Result<()> {
    validate_reason(args.reason.as_ref())?;
    let arguments = args.arguments.as_deref().map(serde_json::from_str::<Value>).transpose();
    let arguments =
        arguments.map_err(|error| UsageError(format!("--arguments is not JSON: {error}")))?;
    if arguments.is_some() && (args.steps.len() != 1 || !approve) {
        return Err(UsageError("--arguments needs `approve` and one --step".to_owned()).into());
    }
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let approval = ApprovalDetails::from_json(find_approval(&client, &args.id).await?)?;
    let mut body = json!({"decision": if approve { "approve" } else { "reject" }});
    if let Some(reason) = args.reason {
        body["reason"] = reason.into();
    }
    if !args.steps.is_empty() {
        let step = |step: &PartialId| {
            let calls = approval.steps().iter().map(|step| step.call_id.to_string());
            let call_id = step.resolve(calls, "step of this approval")?;
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
    post_answer(&client, &approval, &body, approve, args.json).await
}

/// Answers an approval without steps.
async fn send_answer(args: CommonAnswerArgs, decision: &str, value: Value) -> anyhow::Result<()> {
    validate_reason(args.reason.as_ref())?;
    let client = ApiClient::from_configuration(&args.config.load()?)?;
    let approval = ApprovalDetails::from_json(find_approval(&client, &args.id).await?)?;
    let body = json!({"decision": decision, "value": value, "reason": args.reason});
    post_answer(&client, &approval, &body, true, args.json).await
}

/// Answers a tool's elicitation (T1).
async fn answer_elicitation(args: ElicitationAnswerArgs) -> anyhow::Result<()> {
    let ElicitationAnswerArgs { common, fields, value } = args;
    validate_reason(common.reason.as_ref())?;
    let form = value.as_deref().map(serde_json::from_str::<Value>).transpose();
    let form = form.map_err(|error| UsageError(format!("--value is not JSON: {error}")))?;
    let client = ApiClient::from_configuration(&common.config.load()?)?;
    let view = find_approval(&client, &common.id).await?;
    let value = match form {
        Some(form) => form,
        None => {
            let kind = view["kind"].as_str().unwrap_or_default();
            if kind != ApprovalKind::Elicitation.name() && !fields.is_empty() {
                let message = format!(
                    "an approval of kind `{kind}` has no form; `greenroom approvals show` lists \
                     its possible answers"
                );
                return Err(UsageError(message).into());
            }
            schema_form::parse_form(&view["schema"], &fields)?
        }
    };
    let approval = ApprovalDetails::from_json(view)?;
    let body = json!({"decision": "answer", "value": value, "reason": common.reason});
    post_answer(&client, &approval, &body, true, common.json).await
}

fn validate_reason(reason: Option<&String>) -> Result<(), UsageError> {
    if let Some(reason) = reason.filter(|reason| reason.len() > REASON_BYTES_MAX) {
        return Err(UsageError(format!(
            "--reason: {} bytes; the limit is {REASON_BYTES_MAX}",
            reason.len()
        )));
    }
    Ok(())
}

/// Sends the answer and prints the result.
async fn post_answer(
    client: &ApiClient,
    approval: &ApprovalDetails,
    body: &Value,
    approve: bool,
    as_json: bool,
) -> anyhow::Result<()> {
    let path = format!("/agent/approvals/{}", approval.approval_id);
    let response =
        client.post(&path, body).await.map_err(|error| explain_error(error, approval))?;
    if as_json {
        return Ok(terminal::print(&format!("{response:#}\n"))?);
    }
    let repeated = response["repeated"] == true;
    let after = ApprovalDetails::from_json(response["approval"].clone())?;
    Ok(terminal::print(&view::render_answer_result(approval, &after, approve, repeated))?)
}

/// Replaces the server's refusal by a message for a terminal.
fn explain_error(error: anyhow::Error, approval: &ApprovalDetails) -> anyhow::Error {
    let Some(refusal) = error.downcast_ref::<ApiError>() else { return error };
    match refusal.code() {
        "already_decided" => match from_value(&refusal.body["first"]) {
            Ok(first) => anyhow::Error::msg(view::render_conflict(approval, &first)),
            Err(_) => error,
        },
        "approval_expired" => {
            let deadline = approval.deadline.map(|at| format!(" at {}", view::format_time(at)));
            let deadline = deadline.unwrap_or_default();
            anyhow::anyhow!("the approval expired{deadline}")
        }
        "approval_cancelled" => {
            anyhow::anyhow!("the approval was cancelled with its run")
        }
        _ => error,
    }
}

/// Finds an approval by its id and returns the server's view of it.
async fn find_approval(client: &ApiClient, id: &PartialId) -> anyhow::Result<Value> {
    if let Some(full) = id.as_full() {
        return client.get(&format!("/agent/approvals/{full}")).await;
    }
    let (mut matching, mut searched) = (Vec::new(), 0);
    let has_more = visit_approvals(client, "", SEARCHED_MAX, |view| {
        searched += 1;
        let candidate = view["approval_id"].as_str().filter(|candidate| id.matches(candidate));
        matching.extend(candidate.map(str::to_owned));
    })
    .await?;
    let kind =
        if has_more { format!("approval of the newest {searched}") } else { "approval".into() };
    let approval_id = id.resolve(matching, &kind)?;
    client.get(&format!("/agent/approvals/{approval_id}")).await
}

/// Passes the approvals that match `filter`, newest first, to `visit`, at most `limit`. Returns
/// true if there are more.
async fn visit_approvals(
    client: &ApiClient,
    filter: &str,
    limit: usize,
    mut visit: impl FnMut(Value),
) -> anyhow::Result<bool> {
    let (mut remaining, mut before) = (limit, String::new());
    loop {
        let size = remaining.min(PAGE);
        let path = format!("/agent/approvals?limit={size}{filter}{before}");
        let mut page = client.get(&path).await?;
        let Value::Array(views) = page["approvals"].take() else { return Ok(false) };
        remaining = remaining.saturating_sub(views.len());
        let is_empty = views.is_empty();
        views.into_iter().for_each(&mut visit);
        match page["next"].as_str() {
            Some(_) if remaining == 0 => return Ok(true),
            Some(next) if !is_empty => before = format!("&before={next}"),
            Some(_) | None => return Ok(false),
        }
    }
}
