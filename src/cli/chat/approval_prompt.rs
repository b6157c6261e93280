//! Approvals at the terminal: how each kind is rendered, and how a reply is parsed. Pure.

use super::{
    elicitation_form::ElicitationForm,
    gateway_message::{CallApprovalRequest, PreflightRequest},
    render,
    styled_line::StyledLine,
};
use crate::cli::terminal::{Style, format_duration};
use greenroom_core::{
    Timestamp,
    amount::{Amount, format_amount},
    budget::BudgetMeasure,
    policy::units::USD,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// An approval that is presented to the user.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ApprovalPrompt {
    /// The approval of a call.
    Call(Box<CallApprovalRequest>),
    /// The approval of a preflight.
    Plan(Box<PreflightRequest>),
    /// An elicitation of a running tool.
    Form(Box<ElicitationForm>),
    /// Any other kind, as the resource `/agent/approvals/{id}`.
    Other(Value),
}

/// The meaning of a reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PromptReply {
    /// An answer on the call.
    Call { approved: bool, for_session: bool },
    /// An answer on the preflight.
    Plan { approved: bool },
    /// A body for `POST /agent/approvals/{id}`.
    PostAnswer(Value),
    /// Edit the value; the result goes to [`ApprovalPrompt::answer_from_edit`].
    Edit,
    /// Edit a step's description; the result goes to [`ApprovalPrompt::set_step_description`].
    EditStep(usize),
    /// The approval's text changed and must be shown again.
    Reprompt,
    /// A form field is accepted; the prompt is for the next one.
    FieldAccepted(String),
    /// The reply is invalid; the text lists the valid replies.
    Invalid(&'static str),
}

impl ApprovalPrompt {
    /// Returns the approval's id.
    pub(super) fn approval_id(&self) -> &str {
        match self {
            Self::Call(request) => &request.approval_id,
            Self::Plan(checklist) => &checklist.approval_id,
            Self::Form(form) => form.view["approval_id"].as_str().unwrap_or_default(),
            Self::Other(view) => view["approval_id"].as_str().unwrap_or_default(),
        }
    }

    /// Returns the id of the call that the approval is about, if any.
    pub(super) fn call_id(&self) -> Option<&str> {
        match self {
            Self::Call(request) => Some(&request.tool_call_id),
            Self::Plan(_) => None,
            Self::Form(form) => form.view["call_id"].as_str(),
            Self::Other(view) => view["call"]["call_id"].as_str().or(view["call_id"].as_str()),
        }
    }

    /// Returns the deadline of the approval.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Call(request) => request.deadline,
            Self::Plan(checklist) => checklist.deadline,
            Self::Form(form) => deadline(&form.view),
            Self::Other(view) => deadline(view),
        }
    }

    /// Renders the approval.
    pub(super) fn render_lines(&self) -> Vec<StyledLine> {
        match self {
            Self::Call(request) => call_lines(request),
            Self::Plan(checklist) => plan_lines(checklist),
            Self::Form(form) => form.render_lines(),
            Self::Other(view) => other_lines(view),
        }
    }

    /// Returns the prompt: the valid replies and the time left.
    pub(super) fn prompt_text(&self, now: Timestamp) -> String {
        let replies = match self {
            Self::Call(request) if !request.grantable => "Run it? y/n/e(dit)".to_owned(),
            Self::Call(_) => "Run it? y/n/e(dit)/s(ession)".to_owned(),
            Self::Plan(_) => "Run the plan? y/n/e N/s N".to_owned(),
            Self::Form(form) => form.prompt_text(),
            Self::Other(view) => match kind(view) {
                "budget" => "New limit, or stop",
                "unknown_outcome" => "retry/done RESULT/failed",
                _ => "Answer elsewhere",
            }
            .to_owned(),
        };
        let time_left = self.deadline().map(|deadline| match deadline > now {
            true => format!(" ({} left)", format_duration(deadline.saturating_duration_since(now))),
            false => " (deadline passed)".to_owned(),
        });
        format!("{replies}{} › ", time_left.unwrap_or_default())
    }

    /// Parses a reply.
    pub(super) fn parse_reply(&mut self, text: &str) -> PromptReply {
        let text = text.trim();
        let (keyword, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let keyword = keyword.to_lowercase();
        let argument = argument.trim();
        match self {
            Self::Call(request) => parse_call_reply(request, &keyword, argument),
            Self::Plan(checklist) => parse_plan_reply(checklist, &keyword, argument),
            Self::Form(form) => form.parse_reply(text),
            Self::Other(view) => parse_other_reply(view, &keyword, argument, text),
        }
    }

    /// Returns the value that the user can edit; null if there is none.
    pub(super) fn editable_value(&self) -> Value {
        match self {
            Self::Call(request) => request.args.clone(),
            Self::Plan(_) | Self::Other(_) => Value::Null,
            Self::Form(form) => form.current_values(),
        }
    }

    /// Builds the answer from the edited value, or returns the reason why the value is invalid.
    pub(super) fn answer_from_edit(&self, text: &str) -> Result<Value, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        match self {
            Self::Call(request) => Ok(json!({"steps": [{
                "call_id": request.tool_call_id, "decision": "approve", "arguments": value,
            }]})),
            Self::Plan(_) => Err("a plan is edited step by step".to_owned()),
            Self::Form(_) | Self::Other(_) => Ok(json!({"decision": "answer", "value": value})),
        }
    }

    /// Replaces the description of a preflight step. Ignores a blank text.
    pub(super) fn set_step_description(&mut self, step: usize, text: &str) {
        if let Self::Plan(checklist) = self
            && let Some(step) = checklist.steps.get_mut(step)
            && !text.trim().is_empty()
        {
            step.description = text.trim().to_owned();
        }
    }

    /// Returns the description of a preflight step.
    pub(super) fn step_description(&self, step: usize) -> &str {
        match self {
            Self::Plan(checklist) => {
                checklist.steps.get(step).map_or("", |step| step.description.as_str())
            }
            Self::Call(_) | Self::Form(_) | Self::Other(_) => "",
        }
    }
}

impl ApprovalPrompt {
    /// Creates the prompt of an approval from the resource `/agent/approvals/{id}`.
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

fn risk_label(risk: &str) -> (Style, String) {
    let style = match risk {
        "low" => Style::Green,
        "medium" => Style::Yellow,
        _ => Style::Red,
    };
    (style, format!("{risk} risk"))
}

fn call_lines(request: &CallApprovalRequest) -> Vec<StyledLine> {
    let (style, risk) = risk_label(&request.risk);
    let mut lines = vec![
        StyledLine::with_indent(0)
            .styled(Style::Yellow, "? ")
            .styled(Style::Bold, &request.tool_name)
            .text("  ")
            .styled(style, &risk),
    ];
    if !request.description.is_empty() {
        lines.push(StyledLine::with_indent(2).text(&request.description));
    }
    lines.extend(render::field_lines(&request.args, 4));
    if request.cost.is_object() {
        let cost = amount_text(&request.cost["amount"], text(&request.cost, "unit"));
        lines.push(StyledLine::with_indent(2).text(&format!("Cost: {cost}")));
    }
    if !request.why.is_empty() {
        lines.push(
            StyledLine::with_indent(2).styled(Style::Dim, &format!("Reason: {}", request.why)),
        );
    }
    lines
}

fn plan_lines(checklist: &PreflightRequest) -> Vec<StyledLine> {
    let mut lines =
        vec![StyledLine::with_indent(0).styled(Style::Yellow, "? ").styled(Style::Bold, "Plan")];
    for (number, step) in (1..).zip(&checklist.steps) {
        let (style, risk) = risk_label(&step.risk);
        let mut line = StyledLine::with_indent(2).text(&format!("{number}. "));
        line = match step.skip {
            true => line.styled(Style::Dim, &format!("{} (skipped)", step.description)),
            false => line.text(&step.description),
        };
        if let Some(tool) = &step.tool_name {
            let args = step.arguments.as_ref().map(render::format_arguments).unwrap_or_default();
            line = line.styled(Style::Dim, format!("  {tool} {args}").trim_end());
        }
        line = line.text("  ").styled(style, &risk);
        if step.needs_approval {
            line = line.styled(Style::Yellow, "  needs approval");
        }
        lines.push(line);
    }
    let cost = &checklist.estimated_cost;
    if cost.is_object() {
        let usd = &cost["estimatedUSD"];
        let is_known = usd.is_number() && cost["costKnown"] != false;
        let usd = if is_known { amount_text(usd, USD) } else { "price unknown".to_owned() };
        let (input, output) = (&cost["inputTokens"], &cost["outputTokens"]);
        let text = format!("About {input} tokens in, {output} out, {usd}");
        lines.push(StyledLine::with_indent(2).styled(Style::Dim, &text));
    }
    if !checklist.required_permissions.is_empty() {
        let text = format!("Requires: {}", checklist.required_permissions.join(", "));
        lines.push(StyledLine::with_indent(2).text(&text));
    }
    for warning in &checklist.warnings {
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
            let measure = BudgetMeasure::from_name(text(budget, "measure")).to_string();
            let amount = |name: &str| {
                parse_amount(if view[name].is_null() { &budget[name] } else { &view[name] })
            };
            let summary = format!(
                "{} of {} spent of the {}'s budget; {} more needed",
                amount("spent"),
                format_amount(amount("limit"), &measure),
                text(budget, "scope"),
                format_amount(amount("needed"), &measure),
            );
            lines.push(StyledLine::with_indent(2).text(&summary));
            for expense in view["spent_on"].as_array().into_iter().flatten() {
                let amount = amount_text(&expense["amount"], &measure);
                let line = format!("{amount}  {}", text(expense, "what"));
                lines.push(StyledLine::with_indent(4).styled(Style::Dim, &line));
            }
        }
        "unknown_outcome" => {
            let call = if view["call"].is_object() { &view["call"] } else { view };
            lines.push(StyledLine::with_indent(2).styled(Style::Bold, text(call, "tool")));
            lines.extend(render::field_lines(&call["arguments"], 4));
            lines.push(StyledLine::with_indent(2).text(text(view, "why")));
        }
        _ => {
            let hint = format!("Answer it at /agent/approvals/{}", text(view, "approval_id"));
            lines.push(StyledLine::with_indent(2).text(&hint));
        }
    }
    lines
}

/// Returns an amount of a frame; what is not a number counts as 0.
fn parse_amount(amount: &Value) -> Amount {
    Amount::deserialize(amount).unwrap_or_default()
}

fn amount_text(amount: &Value, unit: &str) -> String {
    format_amount(parse_amount(amount), unit)
}

fn parse_call_reply(request: &CallApprovalRequest, keyword: &str, argument: &str) -> PromptReply {
    match keyword {
        "y" | "yes" if argument.is_empty() => {
            PromptReply::Call { approved: true, for_session: false }
        }
        "s" | "session" if argument.is_empty() && request.grantable => {
            PromptReply::Call { approved: true, for_session: true }
        }
        "n" | "no" if argument.is_empty() => {
            PromptReply::Call { approved: false, for_session: false }
        }
        // The gateway dialect has no member for a reason.
        "n" | "no" => PromptReply::PostAnswer(json!({"steps": [{
            "call_id": request.tool_call_id, "decision": "reject", "reason": argument,
        }]})),
        "e" | "edit" => PromptReply::Edit,
        _ if !request.grantable => PromptReply::Invalid(
            "y: yes, n: no (n REASON is sent to the model), e: edit; the call can't be approved for \
             the session",
        ),
        _ => PromptReply::Invalid(
            "y: yes, n: no (n REASON is sent to the model), e: edit, s: yes for this session",
        ),
    }
}

fn parse_plan_reply(
    checklist: &mut PreflightRequest,
    keyword: &str,
    argument: &str,
) -> PromptReply {
    let number = argument.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let number = number.filter(|number| *number < checklist.steps.len());
    match (keyword, number) {
        ("y" | "yes", None) if argument.is_empty() => PromptReply::Plan { approved: true },
        ("n" | "no", None) if argument.is_empty() => PromptReply::Plan { approved: false },
        ("e" | "edit", Some(number)) => PromptReply::EditStep(number),
        ("s" | "skip", Some(number)) => {
            let step = &mut checklist.steps[number];
            step.skip = !step.skip;
            PromptReply::Reprompt
        }
        _ => PromptReply::Invalid(
            "y: yes, n: no, e N: edit step N, s N: skip step N or include it again",
        ),
    }
}

fn parse_other_reply(view: &Value, keyword: &str, argument: &str, line: &str) -> PromptReply {
    match (kind(view), keyword) {
        ("budget", "stop" | "n" | "no") => PromptReply::PostAnswer(json!({"decision": "stop"})),
        ("budget", _) => {
            let number = if keyword == "raise" { argument } else { line };
            match Amount::parse(&number.replace(['_', ','], "")) {
                Ok(limit) => PromptReply::PostAnswer(json!({"decision": "raise", "value": limit})),
                Err(_) => PromptReply::Invalid("enter the new limit as a number, or stop"),
            }
        }
        ("unknown_outcome", "r" | "retry") => PromptReply::PostAnswer(json!({"decision": "retry"})),
        ("unknown_outcome", "f" | "failed") => {
            PromptReply::PostAnswer(json!({"decision": "failed"}))
        }
        ("unknown_outcome", "d" | "done") => {
            let value = serde_json::from_str(argument).unwrap_or_else(|_| Value::from(argument));
            PromptReply::PostAnswer(json!({"decision": "done", "value": value}))
        }
        ("unknown_outcome", _) => PromptReply::Invalid(
            "retry: run the call again, done RESULT: it took effect, failed: it had no effect",
        ),
        _ => PromptReply::Invalid("this chat can't answer it; use `greenroom approvals`"),
    }
}
