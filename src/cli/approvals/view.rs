//! Renders approvals as text for a terminal. Pure: the output depends only on the approval and the
//! given time.

use crate::cli::{
    schema_form,
    terminal::{
        ColorMode, Style, escape_unsafe, format_duration, push_labelled, push_line, truncate,
    },
};
use greenroom_core::{
    Timestamp,
    amount::format_amount,
    approval::{BudgetRaiseRequest, Elicitation, ElicitationMode, RecordedAnswer, Role, Surface},
    ids::{ApprovalId, CallId, RunId, SessionId, UserId},
    json::from_value,
    policy::{Cost, Risk, units::USD},
    preflight::CostEstimate,
    session::ApprovalState,
};
use serde::Deserialize;
use serde_json::Value;

/// Columns of a step's arguments in a list.
const ARGUMENTS_COLUMNS: usize = 60;
/// Characters of the end of an id in lists.
const ID_CHARS: usize = 8;

/// An approval as the server returns it.
#[derive(Debug, Deserialize)]
pub(super) struct ApprovalDetails {
    pub(super) approval_id: ApprovalId,
    purpose: String,
    max_risk_level: Risk,
    requested_at: Timestamp,
    pub(super) deadline: Option<Timestamp>,
    #[serde(default)]
    on_deadline: OnDeadline,
    #[serde(default)]
    escalated_to: Option<Role>,
    #[serde(flatten)]
    subject: SubjectDetails,
    state: ApprovalState,
    session_id: SessionId,
    run_id: RunId,
    user_id: UserId,
    decisions: Vec<StepDecisionDetails>,
    #[serde(default)]
    answer: Option<RecordedAnswer>,
    closed_at: Option<Timestamp>,
}

/// The kind of an approval and the data of that kind.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum SubjectDetails {
    Plan {
        steps: Vec<PlanStepDetails>,
    },
    Budget(BudgetRaiseRequest),
    Preflight(ChecklistDetails),
    UnknownOutcome {
        call: UnknownOutcomeCall,
        why: String,
    },
    Elicitation(ElicitationView),
    /// A kind that this version of the program does not know; the server may be newer.
    #[serde(other)]
    Other,
}

/// A call of a plan. The server sends a keyed digest.
#[derive(Debug, Deserialize)]
pub(super) struct PlanStepDetails {
    pub(super) call_id: CallId,
    pub(super) tool: String,
    arguments: Value,
    digest: String,
    risk: Risk,
    description: String,
    why: String,
    #[serde(default)]
    cost: Option<Cost>,
    #[serde(default)]
    exceeds_budget: bool,
}

/// The decision on a call of a plan.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StepDecisionDetails {
    call_id: CallId,
    approved: bool,
    #[serde(default)]
    reason: Option<String>,
    by: UserId,
    surface: Surface,
    at: Timestamp,
}

/// The plan of a preflight.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChecklistDetails {
    steps: Vec<ChecklistStepDetails>,
    estimated_cost: CostEstimate,
    required_permissions: Vec<String>,
    warnings: Vec<String>,
}

/// A step of a preflight.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChecklistStepDetails {
    position: u32,
    description: String,
    #[serde(default)]
    tool_name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    risk: Risk,
    needs_approval: bool,
}

/// A call whose outcome is unknown.
#[derive(Debug, Deserialize)]
struct UnknownOutcomeCall {
    call_id: CallId,
    tool: String,
    arguments: Value,
    digest: String,
    attempts: u32,
}

/// An elicitation of a running tool.
#[derive(Debug, Deserialize)]
struct ElicitationView {
    call_id: CallId,
    tool: String,
    server: String,
    #[serde(flatten)]
    elicitation: Elicitation,
}

/// The action at the deadline of an unanswered approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OnDeadline {
    #[default]
    Deny,
    Escalate,
    Wait,
}

impl ApprovalDetails {
    pub(super) fn from_json(view: Value) -> anyhow::Result<Self> {
        use anyhow::Context as _;
        from_value(&view).context("unexpected response from the server")
    }

    /// Returns the steps of a plan; empty for other kinds.
    pub(super) fn steps(&self) -> &[PlanStepDetails] {
        match &self.subject {
            SubjectDetails::Plan { steps } => steps,
            SubjectDetails::Budget(_)
            | SubjectDetails::Preflight(_)
            | SubjectDetails::UnknownOutcome { .. }
            | SubjectDetails::Elicitation(_)
            | SubjectDetails::Other => &[],
        }
    }

    /// Returns the commands that answer the approval.
    fn answer_commands(&self) -> &'static str {
        match self.subject {
            SubjectDetails::Plan { .. } | SubjectDetails::Preflight(_) => "approve, reject",
            SubjectDetails::Budget(_) => "raise LIMIT, stop",
            SubjectDetails::UnknownOutcome { .. } => "retry, done [--result RESULT], failed",
            SubjectDetails::Elicitation(ElicitationView {
                elicitation: Elicitation { mode: ElicitationMode::Url { .. }, .. },
                ..
            }) => "answer (after visiting the page), reject",
            SubjectDetails::Elicitation(_) => "answer FIELD=VALUE…, reject",
            SubjectDetails::Other => "see the dashboard",
        }
    }

    fn step_decision(&self, step: &PlanStepDetails) -> Option<&StepDecisionDetails> {
        self.decisions.iter().find(|decision| decision.call_id == step.call_id)
    }

    /// Returns the state with the time left until the deadline or the time of closing.
    fn status_text(&self, now: Timestamp) -> String {
        let closed =
            self.closed_at.map(|at| format!(" at {}", format_time(at))).unwrap_or_default();
        match self.state {
            ApprovalState::Pending => {
                let escalated = self.escalated_to.map(|role| format!(", escalated to role {role}"));
                let escalated = escalated.unwrap_or_default();
                match self.deadline {
                    None => format!("pending, no deadline{escalated}"),
                    Some(deadline) if deadline > now => {
                        let action = match self.on_deadline {
                            OnDeadline::Escalate if escalated.is_empty() => "escalates",
                            OnDeadline::Wait => "overdue",
                            OnDeadline::Deny | OnDeadline::Escalate => "expires",
                        };
                        format!(
                            "pending, {action} in {}{escalated}",
                            format_duration(deadline.saturating_duration_since(now))
                        )
                    }
                    Some(deadline) => {
                        format!(
                            "pending, overdue by {}{escalated}",
                            format_duration(now.saturating_duration_since(deadline))
                        )
                    }
                }
            }
            ApprovalState::Decided => format!("decided{closed}"),
            ApprovalState::Expired => format!("expired{closed}"),
            ApprovalState::Cancelled => format!("cancelled{closed} with its run"),
        }
    }
}

/// Formats a timestamp as date and time of day in UTC, without fractions of a second.
pub(super) fn format_time(at: Timestamp) -> String {
    let text = at.to_string();
    let (date, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("{date} {}Z", time.get(..8).unwrap_or(time))
}

/// Returns the end of an id. The beginning of an id is a timestamp and does not distinguish ids.
fn short_id(id: impl std::fmt::Display) -> String {
    let id = id.to_string();
    id.get(id.len().saturating_sub(ID_CHARS)..).unwrap_or(&id).to_owned()
}

fn risk_style(risk: Risk) -> Style {
    match risk {
        Risk::ReadOnly => Style::Green,
        Risk::WriteLowRisk => Style::Dim,
        Risk::WriteHighRisk => Style::Yellow,
        Risk::Critical => Style::Red,
    }
}

/// Renders approvals as a list with shortened texts.
pub(super) fn render_list(
    approvals: &[ApprovalDetails],
    now: Timestamp,
    paint: ColorMode,
) -> String {
    let mut out = String::new();
    for approval in approvals {
        if !out.is_empty() {
            out.push('\n');
        }
        let head = format!(
            "{}  {}  session {}  user {}",
            paint.paint(Style::Bold, &short_id(approval.approval_id)),
            approval.status_text(now),
            short_id(approval.session_id),
            escape_unsafe(approval.user_id.as_str()),
        );
        push_line(&mut out, &head);
        push_labelled(&mut out, 2, "Purpose", &truncate(&escape_unsafe(&approval.purpose), 160));
        push_labelled(&mut out, 2, "Answers", approval.answer_commands());
        let tools = approval.steps().iter().map(|step| escape_unsafe(&step.tool).chars().count());
        let tool_columns = tools.max().unwrap_or(0).min(40);
        for (number, step) in (1..).zip(approval.steps()) {
            let decision = approval
                .step_decision(step)
                .map(|decision| format!("  [{}]", decision_label(decision)));
            let line = format!(
                "  {number}. {:tool_columns$}  {}  {}{}",
                escape_unsafe(&step.tool),
                paint.paint(risk_style(step.risk), &format!("{:15}", step.risk.name())),
                truncate(
                    &escape_unsafe(&step.arguments.to_string()),
                    ARGUMENTS_COLUMNS - tool_columns.min(30)
                ),
                decision.unwrap_or_default(),
            );
            push_line(&mut out, &line);
        }
        if let SubjectDetails::Preflight(checklist) = &approval.subject {
            push_planned_steps(&mut out, checklist, paint);
        }
    }
    out
}

/// Renders the steps of a preflight, one per line.
fn push_planned_steps(out: &mut String, checklist: &ChecklistDetails, paint: ColorMode) {
    for step in &checklist.steps {
        let tool = step.tool_name.as_deref().map(escape_unsafe).unwrap_or_default();
        let note = if step.needs_approval { "  needs approval" } else { "" };
        let risk = paint.paint(risk_style(step.risk), &format!("{:15}", step.risk.name()));
        let description = truncate(&escape_unsafe(&step.description), ARGUMENTS_COLUMNS);
        push_line(out, &format!("  {}. {risk}  {description}  {tool}{note}", step.position));
    }
}

/// Renders a preflight in full: cost, required permissions, warnings, steps and arguments.
fn push_checklist(out: &mut String, checklist: &ChecklistDetails, paint: ColorMode) {
    let CostEstimate { input_tokens, output_tokens, estimated_usd } = checklist.estimated_cost;
    let price = match estimated_usd {
        Some(dollars) => format!("about {}", format_amount(dollars, USD)),
        None => "price unknown".to_owned(),
    };
    let cost = format!("{input_tokens} input and {output_tokens} output tokens, {price}");
    push_labelled(out, 2, "Cost", &cost);
    for permission in &checklist.required_permissions {
        push_labelled(out, 2, "Requires", &escape_unsafe(permission));
    }
    for warning in &checklist.warnings {
        push_labelled(out, 2, "Warning", &paint.paint(Style::Yellow, &escape_unsafe(warning)));
    }
    out.push('\n');
    push_planned_steps(out, checklist, paint);
    for step in &checklist.steps {
        let Some(arguments) = &step.arguments else { continue };
        push_line(out, &format!("  Arguments of step {}", step.position));
        for line in format!("{arguments:#}").lines() {
            push_line(out, &format!("    {}", escape_unsafe(line)));
        }
    }
}

/// Renders an approval in full.
pub(super) fn render_details(
    approval: &ApprovalDetails,
    now: Timestamp,
    paint: ColorMode,
) -> String {
    let mut out = String::new();
    let id = approval.approval_id.to_string();
    push_line(&mut out, &format!("Approval {}", paint.paint(Style::Bold, &id)));
    let ago = format_duration(now.saturating_duration_since(approval.requested_at));
    let deadline = approval.deadline.map_or("none".to_owned(), format_time);
    for (label, text) in [
        ("State", approval.status_text(now)),
        ("Purpose", escape_unsafe(&approval.purpose)),
        ("Answers", approval.answer_commands().to_owned()),
        ("Risk", approval.max_risk_level.name().to_owned()),
        ("User", escape_unsafe(approval.user_id.as_str())),
        ("Session", approval.session_id.to_string()),
        ("Run", approval.run_id.to_string()),
        ("Requested", format!("{} ({ago} ago)", format_time(approval.requested_at))),
        ("Deadline", deadline),
    ] {
        push_labelled(&mut out, 2, label, &text);
    }
    match &approval.subject {
        SubjectDetails::Budget(budget) => push_budget(&mut out, budget),
        SubjectDetails::UnknownOutcome { call, why } => {
            push_unknown_outcome(&mut out, call, why, paint)
        }
        SubjectDetails::Preflight(checklist) => push_checklist(&mut out, checklist, paint),
        SubjectDetails::Elicitation(view) => push_elicitation(&mut out, view, paint),
        SubjectDetails::Plan { .. } | SubjectDetails::Other => {}
    }
    if let Some(answer) = &approval.answer {
        push_labelled(&mut out, 2, "Answer", &format_answer(answer));
    }
    for (number, step) in (1..).zip(approval.steps()) {
        out.push('\n');
        let tool = paint.paint(Style::Bold, &escape_unsafe(&step.tool));
        let risk = paint.paint(risk_style(step.risk), step.risk.name());
        push_line(&mut out, &format!("  {number}. {tool}  {risk}"));
        push_labelled(&mut out, 5, "Call", &step.call_id.to_string());
        if !step.description.is_empty() {
            push_labelled(&mut out, 5, "Action", &escape_unsafe(&step.description));
        }
        push_labelled(&mut out, 5, "Reason", &escape_unsafe(&step.why));
        if let Some(cost) = &step.cost {
            let note = if step.exceeds_budget { " (exceeds the remaining budget)" } else { "" };
            push_labelled(
                &mut out,
                5,
                "Cost",
                &format!("{}{note}", escape_unsafe(&cost.to_string())),
            );
        }
        push_labelled(&mut out, 5, "Decision", &format_step_decision(approval.step_decision(step)));
        push_arguments(&mut out, &step.arguments);
        push_labelled(&mut out, 5, "Digest", &escape_unsafe(&step.digest));
    }
    out
}

fn push_arguments(out: &mut String, arguments: &Value) {
    push_line(out, "     Arguments");
    // The line breaks come from the pretty printer; JSON escapes those within a string.
    for line in format!("{arguments:#}").lines() {
        push_line(out, &format!("       {}", escape_unsafe(line)));
    }
}

fn push_budget(out: &mut String, request: &BudgetRaiseRequest) {
    let measure = escape_unsafe(&request.budget.measure.to_string());
    push_labelled(out, 2, "Budget", &escape_unsafe(&request.budget.to_string()));
    push_labelled(out, 2, "Spent", &format_amount(request.spent, &measure));
    if request.needed.is_positive() {
        push_labelled(out, 2, "Needed", &format_amount(request.needed, &measure));
    }
    for expense in &request.spent_on {
        push_line(
            out,
            &format!(
                "     {} on {}",
                format_amount(expense.amount, &measure),
                escape_unsafe(&expense.item)
            ),
        );
    }
}

fn push_unknown_outcome(out: &mut String, call: &UnknownOutcomeCall, why: &str, paint: ColorMode) {
    push_labelled(out, 2, "Reason", &escape_unsafe(why));
    push_line(out, &format!("\n  {}", paint.paint(Style::Bold, &escape_unsafe(&call.tool))));
    push_labelled(out, 5, "Call", &call.call_id.to_string());
    push_labelled(out, 5, "Attempts", &call.attempts.to_string());
    push_arguments(out, &call.arguments);
    push_labelled(out, 5, "Digest", &escape_unsafe(&call.digest));
}

/// Renders an elicitation: its message, and its form fields or its URL.
fn push_elicitation(out: &mut String, view: &ElicitationView, paint: ColorMode) {
    push_labelled(out, 2, "Call", &view.call_id.to_string());
    let tool = paint.paint(Style::Bold, &escape_unsafe(&view.tool));
    push_line(out, &format!("\n  {tool} of {} requests input:", escape_unsafe(&view.server)));
    for line in view.elicitation.message.lines() {
        push_line(out, &format!("     {}", escape_unsafe(line)));
    }
    match &view.elicitation.mode {
        ElicitationMode::Url { url } => {
            push_labelled(out, 5, "URL", &paint.paint(Style::Bold, &escape_unsafe(url)))
        }
        ElicitationMode::Form { schema } => {
            for name in schema_form::field_names(schema) {
                let description = schema_form::describe_field(&schema["properties"][&name]);
                let note = match schema_form::is_required(schema, &name) {
                    true => "",
                    false => " (optional)",
                };
                push_labelled(
                    out,
                    5,
                    &escape_unsafe(&name),
                    &format!("{}{note}", escape_unsafe(&description)),
                );
            }
        }
    }
}

/// Formats the answer to an approval without steps.
fn format_answer(answer: &RecordedAnswer) -> String {
    let surface = surface_name(answer.surface);
    let reason = answer.reason.as_deref().map(|reason| format!(": {}", escape_unsafe(reason)));
    let (name, by, at) =
        (answer.resolution.name(), escape_unsafe(answer.by.as_str()), format_time(answer.at));
    format!("{name} by {by} at {at} via {surface}{}", reason.unwrap_or_default())
}

fn surface_name(surface: Surface) -> &'static str {
    match surface {
        Surface::Rest => "REST",
        Surface::Websocket => "WebSocket",
        Surface::Cli => "command line",
        Surface::Dashboard => "dashboard",
    }
}

fn decision_label(decision: &StepDecisionDetails) -> &'static str {
    if decision.approved { "approved" } else { "rejected" }
}

fn format_step_decision(decision: Option<&StepDecisionDetails>) -> String {
    let Some(decision) = decision else { return "none yet".to_owned() };
    let surface = surface_name(decision.surface);
    let by = escape_unsafe(decision.by.as_str());
    let reason = decision.reason.as_deref().map(|reason| format!(": {}", escape_unsafe(reason)));
    let (label, at) = (decision_label(decision), format_time(decision.at));
    format!("{label} by {by} at {at} via {surface}{}", reason.unwrap_or_default())
}

/// Renders the effect of an answer on an approval.
pub(super) fn render_answer_result(
    before: &ApprovalDetails,
    after: &ApprovalDetails,
    approve: bool,
    repeated: bool,
) -> String {
    let mut out = String::new();
    let id = after.approval_id;
    if repeated {
        push_line(&mut out, &format!("Approval {id}: already answered this way."));
    } else if let Some(answer) = &after.answer {
        push_line(&mut out, &format!("Approval {id}: {}.", format_answer(answer)));
    } else if let SubjectDetails::Preflight(_) = &after.subject {
        let label = if approve { "approved" } else { "rejected; the run ends" };
        push_line(&mut out, &format!("Approval {id}: plan {label}."));
    } else {
        let new = after.decisions.len().saturating_sub(before.decisions.len());
        let steps = if new == 1 { "1 step".to_owned() } else { format!("{new} steps") };
        let label = if approve { "approved" } else { "rejected" };
        push_line(&mut out, &format!("Approval {id}: {steps} {label}."));
    }
    for (number, step) in (1..).zip(after.steps()) {
        let tool = escape_unsafe(&step.tool);
        push_labelled(
            &mut out,
            2,
            &format!("{number}. {tool}"),
            &format_step_decision(after.step_decision(step)),
        );
    }
    if after.state == ApprovalState::Pending {
        let undecided = after.steps().len().saturating_sub(after.decisions.len());
        push_line(&mut out, &format!("Undecided steps: {undecided}."));
    }
    out
}

/// The earlier answer with which a later answer conflicts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum FirstAnswer {
    /// The decisions on a plan's steps.
    Steps(Vec<StepDecisionDetails>),
    /// The answer to an approval without steps.
    Answer(Box<RecordedAnswer>),
}

/// Renders the refusal of an answer that differs from an earlier one.
pub(super) fn render_conflict(approval: &ApprovalDetails, first: &FirstAnswer) -> String {
    let mut out = "already decided differently:".to_owned();
    let first = match first {
        FirstAnswer::Answer(answer) => {
            out.push_str(&format!("\n  {}", format_answer(answer)));
            return out;
        }
        FirstAnswer::Steps(steps) => steps,
    };
    for decision in first {
        let step = approval.steps().iter().find(|step| step.call_id == decision.call_id);
        let tool = step.map(|step| escape_unsafe(&step.tool)).unwrap_or_default();
        out.push_str(&format!("\n  {tool}: {}", format_step_decision(Some(decision))));
    }
    out
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
