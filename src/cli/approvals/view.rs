//! Questions as people read them at a terminal. Pure: a question and the time in, text out.

use crate::cli::terminal::{Paint, Style, labelled, push_line, safe, shortened, span};
use greenroom_core::{
    Timestamp,
    approval::{Approval, ApprovalKind, PlanStep, Question, StepDecision, Surface},
    ids::{RunId, SessionId, UserId},
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
    #[serde(flatten)]
    pub(super) approval: Approval,
    state: ApprovalState,
    session_id: SessionId,
    run_id: RunId,
    user_id: UserId,
    decisions: Vec<StepDecision>,
    closed_at: Option<Timestamp>,
}

impl Asked {
    pub(super) fn read(view: Value) -> anyhow::Result<Self> {
        use anyhow::Context as _;
        serde_json::from_value(view).context("the server's answer is not as expected")
    }

    fn decision(&self, step: &PlanStep) -> Option<&StepDecision> {
        self.decisions.iter().find(|decision| decision.call_id == step.call_id)
    }

    /// Where it stands, with what a person must hurry for.
    fn standing(&self, now: Timestamp) -> String {
        let closed = self.closed_at.map(|at| format!(" at {}", time(at))).unwrap_or_default();
        match self.state {
            ApprovalState::Pending => match self.approval.deadline {
                None => "pending, no deadline".to_owned(),
                Some(deadline) if deadline > now => {
                    format!("pending, expires in {}", span(deadline.until_from(now)))
                }
                Some(deadline) => {
                    format!("pending, overdue for {}", span(now.until_from(deadline)))
                }
            },
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
            paint.paint(Style::Bold, &end_of(asked.approval.approval_id)),
            asked.standing(now),
            end_of(asked.session_id),
            safe(asked.user_id.as_str()),
        );
        push_line(&mut out, &head);
        labelled(&mut out, 2, "Purpose", &shortened(&safe(&asked.approval.purpose), 160));
        let tool = asked.approval.steps().iter().map(|step| safe(&step.tool).chars().count());
        let tool = tool.max().unwrap_or(0).min(40);
        for (number, step) in (1..).zip(asked.approval.steps()) {
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
        if let Question::Preflight(checklist) = &asked.approval.question {
            planned_steps(&mut out, checklist, paint);
        }
    }
    out
}

/// The steps of a preflight, a line each.
fn planned_steps(out: &mut String, checklist: &Checklist, paint: Paint) {
    for step in &checklist.steps {
        let tool = step.tool_name.as_deref().map(|tool| safe(tool)).unwrap_or_default();
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
    let approval = &asked.approval;
    let mut out = String::new();
    let id = approval.approval_id.to_string();
    push_line(&mut out, &format!("Approval {}", paint.paint(Style::Bold, &id)));
    let ago = span(now.until_from(approval.requested_at));
    let deadline = approval.deadline.map_or("none".to_owned(), time);
    for (label, text) in [
        ("State", asked.standing(now)),
        ("Purpose", safe(&approval.purpose)),
        ("Risk", approval.max_risk_level.name().to_owned()),
        ("User", safe(asked.user_id.as_str())),
        ("Session", asked.session_id.to_string()),
        ("Run", asked.run_id.to_string()),
        ("Asked", format!("{} ({ago} ago)", time(approval.requested_at))),
        ("Deadline", deadline),
    ] {
        labelled(&mut out, 2, label, &text);
    }
    if let Question::Preflight(asked) = &approval.question {
        checklist(&mut out, asked, paint);
    }
    for (number, step) in (1..).zip(approval.steps()) {
        out.push('\n');
        let tool = paint.paint(Style::Bold, &safe(&step.tool));
        let risk = paint.paint(style_of(step.risk), step.risk.name());
        push_line(&mut out, &format!("  {number}. {tool}  {risk}"));
        labelled(&mut out, 5, "Call", &step.call_id.to_string());
        if !step.description.is_empty() {
            labelled(&mut out, 5, "Does", &safe(&step.description));
        }
        labelled(&mut out, 5, "Why", &safe(&step.why));
        labelled(&mut out, 5, "Decision", &decision(asked.decision(step)));
        push_line(&mut out, "     Arguments");
        // The breaks of the layout are ours; those within a text are escaped by JSON.
        for line in format!("{:#}", step.arguments).lines() {
            push_line(&mut out, &format!("       {}", safe(line)));
        }
        labelled(&mut out, 5, "Digest", &step.digest.to_string());
    }
    out
}

fn word(decision: &StepDecision) -> &'static str {
    if decision.approved { "approved" } else { "rejected" }
}

fn decision(decision: Option<&StepDecision>) -> String {
    let Some(decision) = decision else { return "none yet".to_owned() };
    let through = match decision.surface {
        Surface::Rest => "REST",
        Surface::Websocket => "a WebSocket",
        Surface::Cli => "the command line",
        Surface::Dashboard => "the dashboard",
    };
    let by = safe(decision.by.as_str());
    let reason = decision.reason.as_deref().map(|reason| format!(": {}", safe(reason)));
    let (word, at) = (word(decision), time(decision.at));
    format!("{word} by {by} at {at} through {through}{}", reason.unwrap_or_default())
}

/// What an answer changed.
pub(super) fn answered(before: &Asked, after: &Asked, approve: bool, repeated: bool) -> String {
    let mut out = String::new();
    let id = after.approval.approval_id;
    if repeated {
        push_line(&mut out, &format!("Approval {id}: you had said so already."));
    } else if after.approval.kind() == ApprovalKind::Preflight {
        let word = if approve { "approved" } else { "rejected, and the run ends" };
        push_line(&mut out, &format!("Approval {id}: the plan is {word}."));
    } else {
        let new = after.decisions.len().saturating_sub(before.decisions.len());
        let steps = if new == 1 { "1 step".to_owned() } else { format!("{new} steps") };
        let word = if approve { "approved" } else { "rejected" };
        push_line(&mut out, &format!("Approval {id}: {steps} {word}."));
    }
    for (number, step) in (1..).zip(after.approval.steps()) {
        let tool = safe(&step.tool);
        labelled(&mut out, 2, &format!("{number}. {tool}"), &decision(after.decision(step)));
    }
    if after.state == ApprovalState::Pending {
        let undecided = after.approval.steps().len().saturating_sub(after.decisions.len());
        push_line(&mut out, &format!("Still undecided: {undecided}."));
    }
    out
}

/// Why an answer was refused: somebody was first.
pub(super) fn already_decided(asked: &Asked, first: Vec<StepDecision>) -> String {
    let mut out = "already decided differently:".to_owned();
    for decided in &first {
        let step = asked.approval.steps().iter().find(|step| step.call_id == decided.call_id);
        let tool = step.map(|step| safe(&step.tool)).unwrap_or_default();
        out.push_str(&format!("\n  {tool}: {}", decision(Some(decided))));
    }
    out
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
