//! Questions to the person at the terminal: how they are put, and what an answer means. Pure.

use super::{
    elicitation_form::ElicitationForm,
    gateway_message::{CallApprovalRequest, PreflightRequest},
    render,
    styled_line::StyledLine,
};
use crate::cli::terminal::{Style, format_duration};
use greenroom_core::Timestamp;
use serde_json::{Value, json};

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ApprovalPrompt {
    /// Whether a call may run.
    Call(Box<CallApprovalRequest>),
    /// Whether a plan made beforehand may be carried out.
    Plan(Box<PreflightRequest>),
    /// What a running tool wants to know.
    Form(Box<ElicitationForm>),
    /// Anything else, as it stands at `/agent/approvals/{id}`.
    Other(Value),
}

/// What a person's answer asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PromptReply {
    /// A word on the call.
    Call { approved: bool, for_session: bool },
    /// A word on the plan.
    Plan { approved: bool },
    /// A decision, as `POST /agent/approvals/{id}` takes it.
    PostAnswer(Value),
    /// To edit what is passed; comes back with [`Question::edited`].
    Edit,
    /// To say a step of the plan anew; comes back with [`Question::reworded`].
    EditStep(usize),
    /// The question changed, and is put again.
    Reprompt,
    /// A part of the answer is known; the prompt asks for the next.
    FieldAccepted(String),
    /// It means nothing here; what does.
    Invalid(&'static str),
}

impl ApprovalPrompt {
    /// The id at `/agent/approvals`.
    pub(super) fn approval_id(&self) -> &str {
        match self {
            Self::Call(asked) => &asked.approval_id,
            Self::Plan(list) => &list.approval_id,
            Self::Form(form) => form.view["approval_id"].as_str().unwrap_or_default(),
            Self::Other(view) => view["approval_id"].as_str().unwrap_or_default(),
        }
    }

    /// The call it is about, where it is about one.
    pub(super) fn call_id(&self) -> Option<&str> {
        match self {
            Self::Call(asked) => Some(&asked.tool_call_id),
            Self::Plan(_) => None,
            Self::Form(form) => form.view["call_id"].as_str(),
            Self::Other(view) => view["call"]["call_id"].as_str().or(view["call_id"].as_str()),
        }
    }

    /// When nobody may answer it any more.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Call(asked) => asked.deadline,
            Self::Plan(list) => list.deadline,
            Self::Form(form) => deadline(&form.view),
            Self::Other(view) => deadline(view),
        }
    }

    /// How it is put.
    pub(super) fn render_lines(&self) -> Vec<StyledLine> {
        match self {
            Self::Call(asked) => call_lines(asked),
            Self::Plan(list) => plan_lines(list),
            Self::Form(form) => form.render_lines(),
            Self::Other(view) => other_lines(view),
        }
    }

    /// What the answer is asked for with, and how long there is time.
    pub(super) fn prompt_text(&self, now: Timestamp) -> String {
        let words = match self {
            Self::Call(_) => "Run it? y/n/e(dit)/s(ession)".to_owned(),
            Self::Plan(_) => "Carry it out? y/n/e N/s N".to_owned(),
            Self::Form(form) => form.prompt_text(),
            Self::Other(view) => match kind(view) {
                "budget" => "New limit, or stop",
                "unknown_outcome" => "retry/done RESULT/failed",
                _ => "Answer elsewhere",
            }
            .to_owned(),
        };
        let left = self.deadline().map(|deadline| match deadline > now {
            true => format!(" ({} left)", format_duration(deadline.saturating_duration_since(now))),
            false => " (time is up)".to_owned(),
        });
        format!("{words}{} › ", left.unwrap_or_default())
    }

    /// What somebody's words mean.
    pub(super) fn parse_reply(&mut self, text: &str) -> PromptReply {
        let text = text.trim();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (word, rest) = (word.to_lowercase(), rest.trim());
        match self {
            Self::Call(asked) => parse_call_reply(asked, &word, rest),
            Self::Plan(list) => parse_plan_reply(list, &word, rest),
            Self::Form(form) => form.parse_reply(text),
            Self::Other(view) => parse_other_reply(view, &word, rest, text),
        }
    }

    /// What is there to be edited.
    pub(super) fn editable_value(&self) -> Value {
        match self {
            Self::Call(asked) => asked.args.clone(),
            Self::Plan(_) | Self::Other(_) => Value::Null,
            Self::Form(form) => form.current_values(),
        }
    }

    /// The decision that was edited, or why it is none.
    pub(super) fn answer_from_edit(&self, text: &str) -> Result<Value, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("that is not JSON: {error}"))?;
        match self {
            Self::Call(asked) => Ok(json!({"steps": [{
                "call_id": asked.tool_call_id, "decision": "approve", "arguments": value,
            }]})),
            Self::Plan(_) => Err("a plan is changed step by step".to_owned()),
            Self::Form(_) | Self::Other(_) => Ok(json!({"decision": "answer", "value": value})),
        }
    }

    /// Says a step of the plan anew.
    pub(super) fn set_step_description(&mut self, step: usize, text: &str) {
        if let Self::Plan(list) = self
            && let Some(step) = list.steps.get_mut(step)
            && !text.trim().is_empty()
        {
            step.description = text.trim().to_owned();
        }
    }

    /// What a step of the plan says.
    pub(super) fn step_description(&self, step: usize) -> &str {
        match self {
            Self::Plan(list) => list.steps.get(step).map_or("", |step| step.description.as_str()),
            Self::Call(_) | Self::Form(_) | Self::Other(_) => "",
        }
    }
}

impl ApprovalPrompt {
    /// The question that stands so at `/agent/approvals/{id}`.
    pub(super) fn from_view(view: Value) -> Self {
        match kind(&view) {
            "elicitation" => Self::Form(Box::new(ElicitationForm::new(view))),
            _ => Self::Other(view),
        }
    }
}

fn deadline(view: &Value) -> Option<Timestamp> {
    serde_json::from_value(view["deadline"].clone()).ok().flatten()
}

fn kind(view: &Value) -> &str {
    view["kind"].as_str().unwrap_or_default()
}

fn text<'a>(view: &'a Value, name: &str) -> &'a str {
    view[name].as_str().unwrap_or_default()
}

fn risk_label(word: &str) -> (Style, String) {
    let style = match word {
        "low" => Style::Green,
        "medium" => Style::Yellow,
        _ => Style::Red,
    };
    (style, format!("{word} risk"))
}

fn call_lines(asked: &CallApprovalRequest) -> Vec<StyledLine> {
    let (style, risk) = risk_label(&asked.risk);
    let mut lines = vec![
        StyledLine::with_indent(0)
            .styled(Style::Yellow, "? ")
            .styled(Style::Bold, &asked.tool_name)
            .text("  ")
            .styled(style, &risk),
    ];
    if !asked.description.is_empty() {
        lines.push(StyledLine::with_indent(2).text(&asked.description));
    }
    lines.extend(render::field_lines(&asked.args, 4));
    if asked.cost.is_object() {
        let unit = text(&asked.cost, "unit");
        lines.push(
            StyledLine::with_indent(2).text(&format!("Costs {} {unit}", asked.cost["amount"])),
        );
    }
    if !asked.why.is_empty() {
        lines.push(
            StyledLine::with_indent(2).styled(Style::Dim, &format!("Asked because {}", asked.why)),
        );
    }
    lines
}

fn plan_lines(list: &PreflightRequest) -> Vec<StyledLine> {
    let mut lines = vec![
        StyledLine::with_indent(0).styled(Style::Yellow, "? ").styled(Style::Bold, "The plan"),
    ];
    for (number, step) in (1..).zip(&list.steps) {
        let (style, risk) = risk_label(&step.risk);
        let mut line = StyledLine::with_indent(2).text(&format!("{number}. "));
        line = match step.skip {
            true => line.styled(Style::Dim, &format!("{} (left out)", step.description)),
            false => line.text(&step.description),
        };
        if let Some(tool) = &step.tool_name {
            let args = step.arguments.as_ref().map(render::format_arguments).unwrap_or_default();
            line = line.styled(Style::Dim, format!("  {tool} {args}").trim_end());
        }
        line = line.text("  ").styled(style, &risk);
        if step.needs_approval {
            line = line.styled(Style::Yellow, "  needs your word");
        }
        lines.push(line);
    }
    let cost = &list.estimated_cost;
    if cost.is_object() {
        let usd = match cost["estimatedUSD"].as_f64() {
            Some(usd) => format!("${usd:.4}"),
            None => "price unknown".to_owned(),
        };
        let (input, output) = (&cost["inputTokens"], &cost["outputTokens"]);
        let told = format!("About {input} tokens in, {output} out, {usd}");
        lines.push(StyledLine::with_indent(2).styled(Style::Dim, &told));
    }
    if !list.required_permissions.is_empty() {
        let told = format!("Needs: {}", list.required_permissions.join(", "));
        lines.push(StyledLine::with_indent(2).text(&told));
    }
    for warning in &list.warnings {
        lines.push(StyledLine::with_indent(2).styled(Style::Yellow, "Warning: ").text(warning));
    }
    lines
}

fn other_lines(view: &Value) -> Vec<StyledLine> {
    let head = |text: &str| {
        StyledLine::with_indent(0).styled(Style::Yellow, "? ").styled(Style::Bold, text)
    };
    let mut lines = vec![head(text(view, "purpose"))];
    match kind(view) {
        "budget" => {
            let budget = &view["budget"];
            let measure = text(budget, "measure");
            let told = format!(
                "{} of {} {measure} spent of the {}'s budget; {} more needed",
                view["spent"].as_f64().or(budget["spent"].as_f64()).unwrap_or_default(),
                budget["limit"].as_f64().unwrap_or_default(),
                text(budget, "scope"),
                view["needed"].as_f64().or(budget["needed"].as_f64()).unwrap_or_default(),
            );
            lines.push(StyledLine::with_indent(2).text(&told));
            for expense in view["spent_on"].as_array().into_iter().flatten() {
                let told = format!("{} {measure}  {}", expense["amount"], text(expense, "what"));
                lines.push(StyledLine::with_indent(4).styled(Style::Dim, &told));
            }
        }
        "unknown_outcome" => {
            let call = if view["call"].is_object() { &view["call"] } else { view };
            lines.push(StyledLine::with_indent(2).styled(Style::Bold, text(call, "tool")));
            lines.extend(render::field_lines(&call["arguments"], 4));
            lines.push(StyledLine::with_indent(2).text(text(view, "why")));
        }
        _ => {
            let told = format!("Answer it at /agent/approvals/{}", text(view, "approval_id"));
            lines.push(StyledLine::with_indent(2).text(&told));
        }
    }
    lines
}

fn parse_call_reply(asked: &CallApprovalRequest, word: &str, rest: &str) -> PromptReply {
    match word {
        "y" | "yes" if rest.is_empty() => PromptReply::Call { approved: true, for_session: false },
        "s" | "session" if rest.is_empty() => {
            PromptReply::Call { approved: true, for_session: true }
        }
        "n" | "no" if rest.is_empty() => PromptReply::Call { approved: false, for_session: false },
        // The gateway has no word for why.
        "n" | "no" => PromptReply::PostAnswer(json!({"steps": [{
            "call_id": asked.tool_call_id, "decision": "reject", "reason": rest,
        }]})),
        "e" | "edit" => PromptReply::Edit,
        _ => PromptReply::Invalid(
            "y: yes, n: no (n WHY tells the model), e: edit, s: yes for this session",
        ),
    }
}

fn parse_plan_reply(list: &mut PreflightRequest, word: &str, rest: &str) -> PromptReply {
    let number = rest.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let number = number.filter(|number| *number < list.steps.len());
    match (word, number) {
        ("y" | "yes", None) if rest.is_empty() => PromptReply::Plan { approved: true },
        ("n" | "no", None) if rest.is_empty() => PromptReply::Plan { approved: false },
        ("e" | "edit", Some(number)) => PromptReply::EditStep(number),
        ("s" | "skip", Some(number)) => {
            let step = &mut list.steps[number];
            step.skip = !step.skip;
            PromptReply::Reprompt
        }
        _ => PromptReply::Invalid(
            "y: yes, n: no, e N: say step N anew, s N: leave step N out, or not",
        ),
    }
}

fn parse_other_reply(view: &Value, word: &str, rest: &str, whole: &str) -> PromptReply {
    match (kind(view), word) {
        ("budget", "stop" | "n" | "no") => PromptReply::PostAnswer(json!({"decision": "stop"})),
        ("budget", _) => {
            let number = if word == "raise" { rest } else { whole };
            match number.replace(['_', ','], "").parse::<f64>() {
                Ok(limit) if limit.is_finite() => {
                    PromptReply::PostAnswer(json!({"decision": "raise", "value": limit}))
                }
                Ok(_) | Err(_) => PromptReply::Invalid("the new limit, a number; or stop"),
            }
        }
        ("unknown_outcome", "r" | "retry") => PromptReply::PostAnswer(json!({"decision": "retry"})),
        ("unknown_outcome", "f" | "failed") => {
            PromptReply::PostAnswer(json!({"decision": "failed"}))
        }
        ("unknown_outcome", "d" | "done") => {
            let value = serde_json::from_str(rest).unwrap_or_else(|_| Value::from(rest));
            PromptReply::PostAnswer(json!({"decision": "done", "value": value}))
        }
        ("unknown_outcome", _) => PromptReply::Invalid(
            "retry: run it again, done RESULT: it took effect, failed: it did not",
        ),
        _ => PromptReply::Invalid("this chat can't answer it; `greenroom approvals` may"),
    }
}
