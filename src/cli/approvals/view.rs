//! Questions as people read them at a terminal. Pure: a question and the time in, text out.

use crate::cli::{
    form,
    terminal::{Paint, Style, labelled, push_line, safe, shortened, span},
};
use greenroom_core::{
    Timestamp,
    approval::{BudgetQuestion, Elicitation, PlanStep, Role, StepDecision, Surface, Wanted, Word},
    ids::{ApprovalId, CallId, RunId, SessionId, UserId},
    json::Digest,
    policy::Risk,
    preflight::{Checklist, EstimatedCost},
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
pub(super) struct Asked {
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
    question: Question,
    state: ApprovalState,
    session_id: SessionId,
    run_id: RunId,
    user_id: UserId,
    decisions: Vec<StepDecision>,
    #[serde(default)]
    answer: Option<Word>,
    closed_at: Option<Timestamp>,
}

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Question {
    Plan {
        steps: Vec<PlanStep>,
    },
    Budget(BudgetQuestion),
    Preflight(Checklist),
    UnknownOutcome {
        call: DoubtfulCall,
        why: String,
    },
    Elicitation(ElicitationView),
    /// Of a kind that this program does not know; the server may be newer.
    #[serde(other)]
    Other,
}

/// A call of which nobody knows what became.
#[derive(Debug, Deserialize)]
struct DoubtfulCall {
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

impl Asked {
    pub(super) fn read(view: Value) -> anyhow::Result<Self> {
        use anyhow::Context as _;
        serde_json::from_value(view).context("the server's answer is not as expected")
    }

    /// The steps of a plan; other questions have none.
    pub(super) fn steps(&self) -> &[PlanStep] {
        match &self.question {
            Question::Plan { steps } => steps,
            Question::Budget(_)
            | Question::Preflight(_)
            | Question::UnknownOutcome { .. }
            | Question::Elicitation(_)
            | Question::Other => &[],
        }
    }

    /// The commands that answer it.
    fn commands(&self) -> &'static str {
        match self.question {
            Question::Plan { .. } | Question::Preflight(_) => "approve, reject",
            Question::Budget(_) => "raise LIMIT, stop",
            Question::UnknownOutcome { .. } => "retry, done [--result RESULT], failed",
            Question::Elicitation(ElicitationView {
                elicitation: Elicitation { wanted: Wanted::Url { .. }, .. },
                ..
            }) => "answer (once it is done there), reject",
            Question::Elicitation(_) => "answer FIELD=VALUE…, reject",
            Question::Other => "see the dashboard",
        }
    }

    fn decision(&self, step: &PlanStep) -> Option<&StepDecision> {
        self.decisions.iter().find(|decision| decision.call_id == step.call_id)
    }

    /// Where it stands, with what a person must hurry for.
    fn standing(&self, now: Timestamp) -> String {
        let closed = self.closed_at.map(|at| format!(" at {}", time(at))).unwrap_or_default();
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
                        format!("pending, {then} in {}{to}", span(deadline.until_from(now)))
                    }
                    Some(deadline) => {
                        format!("pending, overdue for {}{to}", span(now.until_from(deadline)))
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
pub(super) fn time(at: Timestamp) -> String {
    let text = at.to_string();
    let (date, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("{date} {}Z", time.get(..8).unwrap_or(time))
}

/// The end of an id, which tells it from others; its beginning is the time.
fn end_of(id: impl std::fmt::Display) -> String {
    let id = id.to_string();
    id.get(id.len().saturating_sub(ID_CHARS)..).unwrap_or(&id).to_owned()
}

fn style_of(risk: Risk) -> Style {
    match risk {
        Risk::ReadOnly => Style::Green,
        Risk::WriteLowRisk => Style::Dim,
        Risk::WriteHighRisk => Style::Yellow,
        Risk::Critical => Style::Red,
    }
}

/// All of them, shortened.
pub(super) fn list(all: &[Asked], now: Timestamp, paint: Paint) -> String {
    let mut out = String::new();
    for asked in all {
        if !out.is_empty() {
            out.push('\n');
        }
        let head = format!(
            "{}  {}  session {}  user {}",
            paint.paint(Style::Bold, &end_of(asked.approval_id)),
            asked.standing(now),
            end_of(asked.session_id),
            safe(asked.user_id.as_str()),
        );
        push_line(&mut out, &head);
        labelled(&mut out, 2, "Purpose", &shortened(&safe(&asked.purpose), 160));
        labelled(&mut out, 2, "Answers", asked.commands());
        let tool = asked.steps().iter().map(|step| safe(&step.tool).chars().count());
        let tool = tool.max().unwrap_or(0).min(40);
        for (number, step) in (1..).zip(asked.steps()) {
            let decided = asked.decision(step).map(|decision| format!("  [{}]", word(decision)));
            let line = format!(
                "  {number}. {:tool$}  {}  {}{}",
                safe(&step.tool),
                paint.paint(style_of(step.risk), &format!("{:15}", step.risk.name())),
                shortened(&safe(&step.arguments.to_string()), ARGUMENTS_COLUMNS - tool.min(30)),
                decided.unwrap_or_default(),
            );
            push_line(&mut out, &line);
        }
        if let Question::Preflight(checklist) = &asked.question {
            planned_steps(&mut out, checklist, paint);
        }
    }
    out
}

/// The steps of a preflight, a line each.
fn planned_steps(out: &mut String, checklist: &Checklist, paint: Paint) {
    for step in &checklist.steps {
        let tool = step.tool_name.as_deref().map(safe).unwrap_or_default();
        let asks = if step.needs_approval { "  asks" } else { "" };
        let risk = paint.paint(style_of(step.risk), &format!("{:15}", step.risk.name()));
        let does = shortened(&safe(&step.description), ARGUMENTS_COLUMNS);
        push_line(out, &format!("  {}. {risk}  {does}  {tool}{asks}", step.position));
    }
}

/// A preflight, whole: its steps, what they may cost, and what there is to know.
fn checklist(out: &mut String, checklist: &Checklist, paint: Paint) {
    let EstimatedCost { input_tokens, output_tokens, estimated_usd } = checklist.estimated_cost;
    let money = match estimated_usd {
        Some(dollars) => format!("about {dollars:.4} USD"),
        None => "price unknown".to_owned(),
    };
    let cost = format!("{input_tokens} input and {output_tokens} output tokens, {money}");
    labelled(out, 2, "Cost", &cost);
    for needed in &checklist.required_permissions {
        labelled(out, 2, "Needs", &safe(needed));
    }
    for warning in &checklist.warnings {
        labelled(out, 2, "Warning", &paint.paint(Style::Yellow, &safe(warning)));
    }
    out.push('\n');
    planned_steps(out, checklist, paint);
    for step in &checklist.steps {
        let Some(arguments) = &step.arguments else { continue };
        push_line(out, &format!("  Arguments of step {}", step.position));
        for line in format!("{arguments:#}").lines() {
            push_line(out, &format!("    {}", safe(line)));
        }
    }
}

/// One of them, whole.
pub(super) fn whole(asked: &Asked, now: Timestamp, paint: Paint) -> String {
    let mut out = String::new();
    let id = asked.approval_id.to_string();
    push_line(&mut out, &format!("Approval {}", paint.paint(Style::Bold, &id)));
    let ago = span(now.until_from(asked.requested_at));
    let deadline = asked.deadline.map_or("none".to_owned(), time);
    for (label, text) in [
        ("State", asked.standing(now)),
        ("Purpose", safe(&asked.purpose)),
        ("Answers", asked.commands().to_owned()),
        ("Risk", asked.max_risk_level.name().to_owned()),
        ("User", safe(asked.user_id.as_str())),
        ("Session", asked.session_id.to_string()),
        ("Run", asked.run_id.to_string()),
        ("Asked", format!("{} ({ago} ago)", time(asked.requested_at))),
        ("Deadline", deadline),
    ] {
        labelled(&mut out, 2, label, &text);
    }
    match &asked.question {
        Question::Budget(budget) => push_budget(&mut out, budget),
        Question::UnknownOutcome { call, why } => push_doubtful(&mut out, call, why, paint),
        Question::Preflight(asked) => checklist(&mut out, asked, paint),
        Question::Elicitation(asked) => push_asking(&mut out, asked, paint),
        Question::Plan { .. } | Question::Other => {}
    }
    if let Some(word) = &asked.answer {
        labelled(&mut out, 2, "Answer", &said(word));
    }
    for (number, step) in (1..).zip(asked.steps()) {
        out.push('\n');
        let tool = paint.paint(Style::Bold, &safe(&step.tool));
        let risk = paint.paint(style_of(step.risk), step.risk.name());
        push_line(&mut out, &format!("  {number}. {tool}  {risk}"));
        labelled(&mut out, 5, "Call", &step.call_id.to_string());
        if !step.description.is_empty() {
            labelled(&mut out, 5, "Does", &safe(&step.description));
        }
        labelled(&mut out, 5, "Why", &safe(&step.why));
        if let Some(cost) = &step.cost {
            let beyond = if step.exceeds_budget { " (more than the budget has left)" } else { "" };
            labelled(&mut out, 5, "Costs", &format!("{}{beyond}", safe(&cost.to_string())));
        }
        labelled(&mut out, 5, "Decision", &decision(asked.decision(step)));
        push_arguments(&mut out, &step.arguments);
        labelled(&mut out, 5, "Digest", &step.digest.to_string());
    }
    out
}

fn push_arguments(out: &mut String, arguments: &Value) {
    push_line(out, "     Arguments");
    // The breaks of the layout are ours; those within a text are escaped by JSON.
    for line in format!("{arguments:#}").lines() {
        push_line(out, &format!("       {}", safe(line)));
    }
}

fn push_budget(out: &mut String, asked: &BudgetQuestion) {
    let measure = safe(&asked.budget.measure.to_string());
    labelled(out, 2, "Budget", &safe(&asked.budget.to_string()));
    labelled(out, 2, "Spent", &format!("{} {measure}", asked.spent));
    if asked.needed > 0.0 {
        labelled(out, 2, "Needed", &format!("{} {measure}", asked.needed));
    }
    for expense in &asked.spent_on {
        push_line(out, &format!("     {} {measure} on {}", expense.amount, safe(&expense.what)));
    }
}

fn push_doubtful(out: &mut String, call: &DoubtfulCall, why: &str, paint: Paint) {
    labelled(out, 2, "Why", &safe(why));
    push_line(out, &format!("\n  {}", paint.paint(Style::Bold, &safe(&call.tool))));
    labelled(out, 5, "Call", &call.call_id.to_string());
    labelled(out, 5, "Attempts", &call.attempts.to_string());
    push_arguments(out, &call.arguments);
    labelled(out, 5, "Digest", &call.digest.to_string());
}

/// What a running tool wants to know: its words, and the form or the page.
fn push_asking(out: &mut String, asked: &ElicitationView, paint: Paint) {
    labelled(out, 2, "Call", &asked.call_id.to_string());
    let tool = paint.paint(Style::Bold, &safe(&asked.tool));
    push_line(out, &format!("\n  {tool} of {} asks:", safe(&asked.server)));
    for line in asked.elicitation.message.lines() {
        push_line(out, &format!("     {}", safe(line)));
    }
    match &asked.elicitation.wanted {
        Wanted::Url { url } => labelled(out, 5, "Visit", &paint.paint(Style::Bold, &safe(url))),
        Wanted::Form { schema } => {
            for name in form::names(schema) {
                let words = form::in_words(&schema["properties"][&name]);
                let needed = match form::is_required(schema, &name) {
                    true => "",
                    false => " (may be left out)",
                };
                labelled(out, 5, &safe(&name), &format!("{}{needed}", safe(&words)));
            }
        }
    }
}

/// A person's word on a question without steps.
fn said(word: &Word) -> String {
    let through = through(word.surface);
    let reason = word.reason.as_deref().map(|reason| format!(": {}", safe(reason)));
    let (name, by, at) = (word.resolution.name(), safe(word.by.as_str()), time(word.at));
    format!("{name}, said {by} at {at} through {through}{}", reason.unwrap_or_default())
}

fn through(surface: Surface) -> &'static str {
    match surface {
        Surface::Rest => "REST",
        Surface::Websocket => "a WebSocket",
        Surface::Cli => "the command line",
        Surface::Dashboard => "the dashboard",
    }
}

fn word(decision: &StepDecision) -> &'static str {
    if decision.approved { "approved" } else { "rejected" }
}

fn decision(decision: Option<&StepDecision>) -> String {
    let Some(decision) = decision else { return "none yet".to_owned() };
    let through = through(decision.surface);
    let by = safe(decision.by.as_str());
    let reason = decision.reason.as_deref().map(|reason| format!(": {}", safe(reason)));
    let (word, at) = (word(decision), time(decision.at));
    format!("{word} by {by} at {at} through {through}{}", reason.unwrap_or_default())
}

/// What an answer changed.
pub(super) fn answered(before: &Asked, after: &Asked, approve: bool, repeated: bool) -> String {
    let mut out = String::new();
    let id = after.approval_id;
    if repeated {
        push_line(&mut out, &format!("Approval {id}: you had said so already."));
    } else if let Some(word) = &after.answer {
        push_line(&mut out, &format!("Approval {id}: {}.", said(word)));
    } else if let Question::Preflight(_) = &after.question {
        let word = if approve { "approved" } else { "rejected, and the run ends" };
        push_line(&mut out, &format!("Approval {id}: the plan is {word}."));
    } else {
        let new = after.decisions.len().saturating_sub(before.decisions.len());
        let steps = if new == 1 { "1 step".to_owned() } else { format!("{new} steps") };
        let word = if approve { "approved" } else { "rejected" };
        push_line(&mut out, &format!("Approval {id}: {steps} {word}."));
    }
    for (number, step) in (1..).zip(after.steps()) {
        let tool = safe(&step.tool);
        labelled(&mut out, 2, &format!("{number}. {tool}"), &decision(after.decision(step)));
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
pub(super) enum First {
    /// Of a plan.
    Steps(Vec<StepDecision>),
    /// Of a question without steps.
    Word(Box<Word>),
}

/// Why an answer was refused: somebody was first.
pub(super) fn already_decided(asked: &Asked, first: &First) -> String {
    let mut out = "already decided differently:".to_owned();
    let first = match first {
        First::Word(word) => {
            out.push_str(&format!("\n  {}", said(word)));
            return out;
        }
        First::Steps(steps) => steps,
    };
    for decided in first {
        let step = asked.steps().iter().find(|step| step.call_id == decided.call_id);
        let tool = step.map(|step| safe(&step.tool)).unwrap_or_default();
        out.push_str(&format!("\n  {tool}: {}", decision(Some(decided))));
    }
    out
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
