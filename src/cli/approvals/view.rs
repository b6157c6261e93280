//! Questions as people read them at a terminal. Pure: a question and the time in, text out.

use crate::cli::{
    schema_form,
    terminal::{
        ColorMode, Style, escape_unsafe, format_duration, push_labelled, push_line, truncate,
    },
};
use greenroom_core::{
    Timestamp,
    approval::{
        BudgetRaiseRequest, Elicitation, ElicitationMode, PlanStep, PlanStepDecision,
        RecordedAnswer, Role, Surface,
    },
    ids::{ApprovalId, CallId, RunId, SessionId, UserId},
    json::Digest,
    policy::Risk,
    preflight::{Checklist, CostEstimate},
    session::ApprovalState,
};
use serde::Deserialize;
use serde_json::Value;

/// Columns that a step's arguments have in a list.
const ARGUMENTS_COLUMNS: usize = 60;
/// Characters of an id's end that lists show.
const ID_CHARS: usize = 8;

/// A question as the server shows it.
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
    decisions: Vec<PlanStepDecision>,
    #[serde(default)]
    answer: Option<RecordedAnswer>,
    closed_at: Option<Timestamp>,
}

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum SubjectDetails {
    Plan {
        steps: Vec<PlanStep>,
    },
    Budget(BudgetRaiseRequest),
    Preflight(Checklist),
    UnknownOutcome {
        call: UnknownOutcomeCall,
        why: String,
    },
    Elicitation(ElicitationView),
    /// Of a kind that this program does not know; the server may be newer.
    #[serde(other)]
    Other,
}

/// A call of which nobody knows what became.
#[derive(Debug, Deserialize)]
struct UnknownOutcomeCall {
    call_id: CallId,
    tool: String,
    arguments: Value,
    digest: Digest,
    attempts: u32,
}

/// What a running tool asks.
#[derive(Debug, Deserialize)]
struct ElicitationView {
    call_id: CallId,
    tool: String,
    server: String,
    #[serde(flatten)]
    elicitation: Elicitation,
}

/// What happens when nobody answers in time.
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
        serde_json::from_value(view).context("the server's answer is not as expected")
    }

    /// The steps of a plan; other questions have none.
    pub(super) fn steps(&self) -> &[PlanStep] {
        match &self.subject {
            SubjectDetails::Plan { steps } => steps,
            SubjectDetails::Budget(_)
            | SubjectDetails::Preflight(_)
            | SubjectDetails::UnknownOutcome { .. }
            | SubjectDetails::Elicitation(_)
            | SubjectDetails::Other => &[],
        }
    }

    /// The commands that answer it.
    fn answer_commands(&self) -> &'static str {
        match self.subject {
            SubjectDetails::Plan { .. } | SubjectDetails::Preflight(_) => "approve, reject",
            SubjectDetails::Budget(_) => "raise LIMIT, stop",
            SubjectDetails::UnknownOutcome { .. } => "retry, done [--result RESULT], failed",
            SubjectDetails::Elicitation(ElicitationView {
                elicitation: Elicitation { mode: ElicitationMode::Url { .. }, .. },
                ..
            }) => "answer (once it is done there), reject",
            SubjectDetails::Elicitation(_) => "answer FIELD=VALUE…, reject",
            SubjectDetails::Other => "see the dashboard",
        }
    }

    fn step_decision(&self, step: &PlanStep) -> Option<&PlanStepDecision> {
        self.decisions.iter().find(|decision| decision.call_id == step.call_id)
    }

    /// Where it stands, with what a person must hurry for.
    fn status_text(&self, now: Timestamp) -> String {
        let closed =
            self.closed_at.map(|at| format!(" at {}", format_time(at))).unwrap_or_default();
        match self.state {
            ApprovalState::Pending => {
                let to = self.escalated_to.map(|role| format!(", escalated to role {role}"));
                let to = to.unwrap_or_default();
                match self.deadline {
                    None => format!("pending, no deadline{to}"),
                    Some(deadline) if deadline > now => {
                        let then = match self.on_deadline {
                            OnDeadline::Escalate if to.is_empty() => "escalates",
                            OnDeadline::Wait => "late",
                            OnDeadline::Deny | OnDeadline::Escalate => "expires",
                        };
                        format!(
                            "pending, {then} in {}{to}",
                            format_duration(deadline.saturating_duration_since(now))
                        )
                    }
                    Some(deadline) => {
                        format!(
                            "pending, overdue for {}{to}",
                            format_duration(now.saturating_duration_since(deadline))
                        )
                    }
                }
            }
            ApprovalState::Decided => format!("decided{closed}"),
            ApprovalState::Expired => format!("expired{closed}: nobody answered in time"),
            ApprovalState::Cancelled => format!("cancelled{closed} with its run"),
        }
    }
}

/// A time of day where the date is clear from the context: the date too, in UTC.
pub(super) fn format_time(at: Timestamp) -> String {
    let text = at.to_string();
    let (date, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("{date} {}Z", time.get(..8).unwrap_or(time))
}

/// The end of an id, which tells it from others; its beginning is the time.
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

/// All of them, shortened.
pub(super) fn render_list(all: &[ApprovalDetails], now: Timestamp, paint: ColorMode) -> String {
    let mut out = String::new();
    for asked in all {
        if !out.is_empty() {
            out.push('\n');
        }
        let head = format!(
            "{}  {}  session {}  user {}",
            paint.paint(Style::Bold, &short_id(asked.approval_id)),
            asked.status_text(now),
            short_id(asked.session_id),
            escape_unsafe(asked.user_id.as_str()),
        );
        push_line(&mut out, &head);
        push_labelled(&mut out, 2, "Purpose", &truncate(&escape_unsafe(&asked.purpose), 160));
        push_labelled(&mut out, 2, "Answers", asked.answer_commands());
        let tool = asked.steps().iter().map(|step| escape_unsafe(&step.tool).chars().count());
        let tool = tool.max().unwrap_or(0).min(40);
        for (number, step) in (1..).zip(asked.steps()) {
            let decided = asked
                .step_decision(step)
                .map(|decision| format!("  [{}]", decision_label(decision)));
            let line = format!(
                "  {number}. {:tool$}  {}  {}{}",
                escape_unsafe(&step.tool),
                paint.paint(risk_style(step.risk), &format!("{:15}", step.risk.name())),
                truncate(
                    &escape_unsafe(&step.arguments.to_string()),
                    ARGUMENTS_COLUMNS - tool.min(30)
                ),
                decided.unwrap_or_default(),
            );
            push_line(&mut out, &line);
        }
        if let SubjectDetails::Preflight(checklist) = &asked.subject {
            push_planned_steps(&mut out, checklist, paint);
        }
    }
    out
}

/// The steps of a preflight, a line each.
fn push_planned_steps(out: &mut String, checklist: &Checklist, paint: ColorMode) {
    for step in &checklist.steps {
        let tool = step.tool_name.as_deref().map(escape_unsafe).unwrap_or_default();
        let asks = if step.needs_approval { "  asks" } else { "" };
        let risk = paint.paint(risk_style(step.risk), &format!("{:15}", step.risk.name()));
        let does = truncate(&escape_unsafe(&step.description), ARGUMENTS_COLUMNS);
        push_line(out, &format!("  {}. {risk}  {does}  {tool}{asks}", step.position));
    }
}

/// A preflight, whole: its steps, what they may cost, and what there is to know.
fn push_checklist(out: &mut String, checklist: &Checklist, paint: ColorMode) {
    let CostEstimate { input_tokens, output_tokens, estimated_usd } = checklist.estimated_cost;
    let money = match estimated_usd {
        Some(dollars) => format!("about {dollars:.4} USD"),
        None => "price unknown".to_owned(),
    };
    let cost = format!("{input_tokens} input and {output_tokens} output tokens, {money}");
    push_labelled(out, 2, "Cost", &cost);
    for needed in &checklist.required_permissions {
        push_labelled(out, 2, "Needs", &escape_unsafe(needed));
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

/// One of them, whole.
pub(super) fn render_details(asked: &ApprovalDetails, now: Timestamp, paint: ColorMode) -> String {
    let mut out = String::new();
    let id = asked.approval_id.to_string();
    push_line(&mut out, &format!("Approval {}", paint.paint(Style::Bold, &id)));
    let ago = format_duration(now.saturating_duration_since(asked.requested_at));
    let deadline = asked.deadline.map_or("none".to_owned(), format_time);
    for (label, text) in [
        ("State", asked.status_text(now)),
        ("Purpose", escape_unsafe(&asked.purpose)),
        ("Answers", asked.answer_commands().to_owned()),
        ("Risk", asked.max_risk_level.name().to_owned()),
        ("User", escape_unsafe(asked.user_id.as_str())),
        ("Session", asked.session_id.to_string()),
        ("Run", asked.run_id.to_string()),
        ("Asked", format!("{} ({ago} ago)", format_time(asked.requested_at))),
        ("Deadline", deadline),
    ] {
        push_labelled(&mut out, 2, label, &text);
    }
    match &asked.subject {
        SubjectDetails::Budget(budget) => push_budget(&mut out, budget),
        SubjectDetails::UnknownOutcome { call, why } => {
            push_unknown_outcome(&mut out, call, why, paint)
        }
        SubjectDetails::Preflight(asked) => push_checklist(&mut out, asked, paint),
        SubjectDetails::Elicitation(asked) => push_elicitation(&mut out, asked, paint),
        SubjectDetails::Plan { .. } | SubjectDetails::Other => {}
    }
    if let Some(word) = &asked.answer {
        push_labelled(&mut out, 2, "Answer", &format_answer(word));
    }
    for (number, step) in (1..).zip(asked.steps()) {
        out.push('\n');
        let tool = paint.paint(Style::Bold, &escape_unsafe(&step.tool));
        let risk = paint.paint(risk_style(step.risk), step.risk.name());
        push_line(&mut out, &format!("  {number}. {tool}  {risk}"));
        push_labelled(&mut out, 5, "Call", &step.call_id.to_string());
        if !step.description.is_empty() {
            push_labelled(&mut out, 5, "Does", &escape_unsafe(&step.description));
        }
        push_labelled(&mut out, 5, "Why", &escape_unsafe(&step.why));
        if let Some(cost) = &step.cost {
            let beyond = if step.exceeds_budget { " (more than the budget has left)" } else { "" };
            push_labelled(
                &mut out,
                5,
                "Costs",
                &format!("{}{beyond}", escape_unsafe(&cost.to_string())),
            );
        }
        push_labelled(&mut out, 5, "Decision", &format_step_decision(asked.step_decision(step)));
        push_arguments(&mut out, &step.arguments);
        push_labelled(&mut out, 5, "Digest", &step.digest.to_string());
    }
    out
}

fn push_arguments(out: &mut String, arguments: &Value) {
    push_line(out, "     Arguments");
    // The breaks of the layout are ours; those within a text are escaped by JSON.
    for line in format!("{arguments:#}").lines() {
        push_line(out, &format!("       {}", escape_unsafe(line)));
    }
}

fn push_budget(out: &mut String, asked: &BudgetRaiseRequest) {
    let measure = escape_unsafe(&asked.budget.measure.to_string());
    push_labelled(out, 2, "Budget", &escape_unsafe(&asked.budget.to_string()));
    push_labelled(out, 2, "Spent", &format!("{} {measure}", asked.spent));
    if asked.needed > 0.0 {
        push_labelled(out, 2, "Needed", &format!("{} {measure}", asked.needed));
    }
    for expense in &asked.spent_on {
        push_line(
            out,
            &format!("     {} {measure} on {}", expense.amount, escape_unsafe(&expense.what)),
        );
    }
}

fn push_unknown_outcome(out: &mut String, call: &UnknownOutcomeCall, why: &str, paint: ColorMode) {
    push_labelled(out, 2, "Why", &escape_unsafe(why));
    push_line(out, &format!("\n  {}", paint.paint(Style::Bold, &escape_unsafe(&call.tool))));
    push_labelled(out, 5, "Call", &call.call_id.to_string());
    push_labelled(out, 5, "Attempts", &call.attempts.to_string());
    push_arguments(out, &call.arguments);
    push_labelled(out, 5, "Digest", &call.digest.to_string());
}

/// What a running tool wants to know: its words, and the form or the page.
fn push_elicitation(out: &mut String, asked: &ElicitationView, paint: ColorMode) {
    push_labelled(out, 2, "Call", &asked.call_id.to_string());
    let tool = paint.paint(Style::Bold, &escape_unsafe(&asked.tool));
    push_line(out, &format!("\n  {tool} of {} asks:", escape_unsafe(&asked.server)));
    for line in asked.elicitation.message.lines() {
        push_line(out, &format!("     {}", escape_unsafe(line)));
    }
    match &asked.elicitation.mode {
        ElicitationMode::Url { url } => {
            push_labelled(out, 5, "Visit", &paint.paint(Style::Bold, &escape_unsafe(url)))
        }
        ElicitationMode::Form { schema } => {
            for name in schema_form::field_names(schema) {
                let words = schema_form::describe_field(&schema["properties"][&name]);
                let needed = match schema_form::is_required(schema, &name) {
                    true => "",
                    false => " (may be left out)",
                };
                push_labelled(
                    out,
                    5,
                    &escape_unsafe(&name),
                    &format!("{}{needed}", escape_unsafe(&words)),
                );
            }
        }
    }
}

/// A person's word on a question without steps.
fn format_answer(word: &RecordedAnswer) -> String {
    let through = surface_name(word.surface);
    let reason = word.reason.as_deref().map(|reason| format!(": {}", escape_unsafe(reason)));
    let (name, by, at) =
        (word.resolution.name(), escape_unsafe(word.by.as_str()), format_time(word.at));
    format!("{name}, said {by} at {at} through {through}{}", reason.unwrap_or_default())
}

fn surface_name(surface: Surface) -> &'static str {
    match surface {
        Surface::Rest => "REST",
        Surface::Websocket => "a WebSocket",
        Surface::Cli => "the command line",
        Surface::Dashboard => "the dashboard",
    }
}

fn decision_label(decision: &PlanStepDecision) -> &'static str {
    if decision.approved { "approved" } else { "rejected" }
}

fn format_step_decision(decision: Option<&PlanStepDecision>) -> String {
    let Some(decision) = decision else { return "none yet".to_owned() };
    let through = surface_name(decision.surface);
    let by = escape_unsafe(decision.by.as_str());
    let reason = decision.reason.as_deref().map(|reason| format!(": {}", escape_unsafe(reason)));
    let (word, at) = (decision_label(decision), format_time(decision.at));
    format!("{word} by {by} at {at} through {through}{}", reason.unwrap_or_default())
}

/// What an answer changed.
pub(super) fn render_answer_result(
    before: &ApprovalDetails,
    after: &ApprovalDetails,
    approve: bool,
    repeated: bool,
) -> String {
    let mut out = String::new();
    let id = after.approval_id;
    if repeated {
        push_line(&mut out, &format!("Approval {id}: you had said so already."));
    } else if let Some(word) = &after.answer {
        push_line(&mut out, &format!("Approval {id}: {}.", format_answer(word)));
    } else if let SubjectDetails::Preflight(_) = &after.subject {
        let word = if approve { "approved" } else { "rejected, and the run ends" };
        push_line(&mut out, &format!("Approval {id}: the plan is {word}."));
    } else {
        let new = after.decisions.len().saturating_sub(before.decisions.len());
        let steps = if new == 1 { "1 step".to_owned() } else { format!("{new} steps") };
        let word = if approve { "approved" } else { "rejected" };
        push_line(&mut out, &format!("Approval {id}: {steps} {word}."));
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
        push_line(&mut out, &format!("Still undecided: {undecided}."));
    }
    out
}

/// What was decided first.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum FirstAnswer {
    /// Of a plan.
    Steps(Vec<PlanStepDecision>),
    /// Of a question without steps.
    Answer(Box<RecordedAnswer>),
}

/// Why an answer was refused: somebody was first.
pub(super) fn render_conflict(asked: &ApprovalDetails, first: &FirstAnswer) -> String {
    let mut out = "already decided differently:".to_owned();
    let first = match first {
        FirstAnswer::Answer(word) => {
            out.push_str(&format!("\n  {}", format_answer(word)));
            return out;
        }
        FirstAnswer::Steps(steps) => steps,
    };
    for decided in first {
        let step = asked.steps().iter().find(|step| step.call_id == decided.call_id);
        let tool = step.map(|step| escape_unsafe(&step.tool)).unwrap_or_default();
        out.push_str(&format!("\n  {tool}: {}", format_step_decision(Some(decided))));
    }
    out
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
