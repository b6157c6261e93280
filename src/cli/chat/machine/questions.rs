//! Questions that wait for the person here, and answers that wait for the server.

use super::{ChatEffect, ChatMachine, InputMode, PostPurpose, RequestFailure};
use crate::cli::{
    chat::{
        approval_prompt::{ApprovalPrompt, PromptReply},
        render,
        styled_line::StyledLine,
    },
    terminal::Style,
};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Codes of refusals after which there is nothing to answer any more.
const FINAL_ERROR_CODES: [&str; 4] =
    ["already_decided", "approval_expired", "approval_cancelled", "approval_not_found"];

/// The questions, in the order they were asked; the first is put to the person.
#[derive(Debug, Default)]
pub(super) struct PromptQueue {
    waiting: VecDeque<ApprovalPrompt>,
    /// What was answered here, until the server says what became of it.
    sent: Vec<SentAnswer>,
    /// How often the connection came back.
    connections: u32,
}

#[derive(Debug)]
struct SentAnswer {
    /// The answer's id.
    id: String,
    question: ApprovalPrompt,
    /// The connection that carries the answer; none if it was posted.
    connection: Option<u32>,
}

impl PromptQueue {
    /// The one that is put.
    pub(super) fn front(&self) -> Option<&ApprovalPrompt> {
        self.waiting.front()
    }

    pub(super) fn set_step_description(&mut self, step: usize, text: &str) {
        if let Some(question) = self.waiting.front_mut() {
            question.set_step_description(step, text);
        }
    }

    /// Whether that id is an answer's.
    pub(super) fn is_answer(&self, id: &str) -> bool {
        self.sent.iter().any(|answered| answered.id == id)
    }

    /// The connection is back: answers that the one before carried may be lost.
    pub(super) fn handle_reconnect(&mut self) {
        self.connections += 1;
    }

    /// The request is over, and with it what it asked.
    pub(super) fn remove_request(&mut self, request_id: &str) {
        let others = |question: &ApprovalPrompt| match question {
            ApprovalPrompt::Call(asked) => asked.request_id != request_id,
            ApprovalPrompt::Plan(list) => list.request_id != request_id,
            // They don't say; what is over is told by their own events.
            ApprovalPrompt::Form(_) | ApprovalPrompt::Other(_) => true,
        };
        self.waiting.retain(others);
        self.sent.retain(|answered| others(&answered.question));
    }
}

fn is_same(one: &ApprovalPrompt, other: &ApprovalPrompt) -> bool {
    one.approval_id() == other.approval_id() && one.call_id() == other.call_id()
}

impl ChatMachine {
    /// A person is asked; after a connection was lost, perhaps once more.
    pub(super) fn enqueue_prompt(&mut self, question: ApprovalPrompt, out: &mut Vec<ChatEffect>) {
        self.end_text(out);
        let connections = self.questions.connections;
        // It was asked before the answer came to it, which comes on the same connection.
        let is_on_its_way = |answered: &SentAnswer| {
            is_same(&answered.question, &question)
                && answered.connection.is_none_or(|connection| connection >= connections)
        };
        let waits = self.questions.waiting.iter().any(|waiting| is_same(waiting, &question));
        if waits || self.questions.sent.iter().any(is_on_its_way) {
            return;
        }
        self.questions.sent.retain(|answered| !is_same(&answered.question, &question));
        self.questions.waiting.push_back(question);
        if self.questions.waiting.len() == 1 {
            self.show_prompt(out);
        }
        out.push(ChatEffect::ApprovalPending);
    }

    /// Puts the first question that waits.
    pub(super) fn show_prompt(&mut self, out: &mut Vec<ChatEffect>) {
        if let Some(question) = self.questions.front() {
            out.push(ChatEffect::EndText);
            out.extend(question.render_lines().into_iter().map(ChatEffect::Show));
        }
    }

    /// Takes the person's answer to the first question.
    pub(super) fn handle_reply(&mut self, text: &str, out: &mut Vec<ChatEffect>) {
        let Some(question) = self.questions.waiting.front_mut() else { return };
        let shown = |word: &str| {
            ChatEffect::Show(StyledLine::with_indent(2).styled(Style::Bold, &format!("› {word}")))
        };
        match question.parse_reply(text) {
            PromptReply::Invalid(help) => out.push(ChatEffect::Show(render::note_line(help))),
            PromptReply::Reprompt => self.show_prompt(out),
            PromptReply::FieldAccepted(told) => {
                out.push(ChatEffect::Show(render::note_line(&format!("  {told}"))))
            }
            PromptReply::Edit => {
                let value = question.editable_value();
                out.push(ChatEffect::Edit(value));
            }
            PromptReply::EditStep(step) => {
                let wording = question.step_description(step).to_owned();
                self.mode = InputMode::EditStep(step);
                out.push(ChatEffect::Prefill(wording));
            }
            PromptReply::Call { approved, for_session } => {
                let mut frame = json!({
                    "type": "tool.approval.response", "toolCallId": question.call_id(),
                    "approved": approved,
                });
                if for_session {
                    frame["sessionApprove"] = true.into();
                }
                out.push(shown(match (approved, for_session) {
                    (true, true) => "yes, for this session",
                    (true, false) => "yes",
                    (false, _) => "no",
                }));
                self.send_answer(frame, out);
            }
            PromptReply::Plan { approved } => {
                let frame = plan_answer_frame(question, approved);
                out.push(shown(if approved { "yes" } else { "no" }));
                self.send_answer(frame, out);
            }
            PromptReply::PostAnswer(body) => {
                let whole =
                    body["value"].as_object().map(|_| render::format_arguments(&body["value"]));
                out.push(shown(whole.as_deref().unwrap_or(text)));
                self.post_answer(body, out);
            }
        }
    }

    /// What was edited came back; or it was not edited, and why.
    pub(in crate::cli::chat) fn handle_edit(
        &mut self,
        text: Result<&str, String>,
        out: &mut Vec<ChatEffect>,
    ) {
        let Some(question) = self.questions.front() else { return };
        match text.and_then(|text| question.answer_from_edit(text)) {
            Ok(body) => {
                let word = StyledLine::with_indent(2).styled(Style::Bold, "› yes, with ");
                let arguments = &body["steps"][0]["arguments"];
                let passed = if arguments.is_null() { &body["value"] } else { arguments };
                let passed = render::format_arguments(passed);
                out.push(ChatEffect::Show(word.text(&passed)));
                self.post_answer(body, out);
            }
            Err(error) => {
                out.push(ChatEffect::Show(render::error_line(&error)));
                self.show_prompt(out);
            }
        }
    }

    /// There is no editor to be had: what is edited is edited in place.
    pub(in crate::cli::chat) fn edit_in_place(&mut self) {
        self.mode = InputMode::EditArguments;
    }

    /// What was posted was answered.
    pub(in crate::cli::chat) fn handle_post_result(
        &mut self,
        to: &PostPurpose,
        result: Result<(), RequestFailure>,
        out: &mut Vec<ChatEffect>,
    ) {
        match (to, result) {
            // What it leads to is told on the stream.
            (PostPurpose::Cancel, Ok(())) => {}
            (PostPurpose::Cancel, Err(failure)) => {
                if failure.code != "no_run" && failure.code != "run_not_active" {
                    out.push(ChatEffect::Show(render::error_line(&failure.detail)));
                }
            }
            (PostPurpose::Answer(id), Ok(())) => {
                self.questions.sent.retain(|answered| answered.id != *id);
            }
            (PostPurpose::Answer(id), Err(failure)) => self.handle_rejection(id, &failure, out),
        }
    }

    /// An answer was refused: somebody was first, or it was not good enough and is asked for again.
    pub(super) fn handle_rejection(
        &mut self,
        id: &str,
        failure: &RequestFailure,
        out: &mut Vec<ChatEffect>,
    ) {
        let found = self.questions.sent.iter().position(|answered| answered.id == id);
        let Some(at) = found else { return };
        let SentAnswer { question, .. } = self.questions.sent.remove(at);
        out.push(ChatEffect::Show(render::error_line(&failure.detail)));
        if !FINAL_ERROR_CODES.contains(&failure.code.as_str()) {
            self.questions.waiting.push_front(question);
            self.show_prompt(out);
        }
    }

    /// Questions like that are answered, or moot. If they were put to the person, that is shown.
    pub(super) fn resolve_prompts(
        &mut self,
        is: impl Fn(&ApprovalPrompt) -> bool,
        told: Option<&str>,
        out: &mut Vec<ChatEffect>,
    ) {
        self.questions.sent.retain(|answered| !is(&answered.question));
        let was_put = self.questions.front().is_some_and(&is);
        self.questions.waiting.retain(|question| !is(question));
        if was_put {
            self.mode = InputMode::Message;
            out.extend(told.map(|told| ChatEffect::Show(render::note_line(&format!("  {told}")))));
            self.show_prompt(out);
        }
    }

    fn send_answer(&mut self, mut frame: Value, out: &mut Vec<ChatEffect>) {
        let id = self.next_answer_id();
        frame["id"] = id.clone().into();
        out.push(ChatEffect::Send(frame));
        // While there is no connection it waits for the next one.
        let connection = self.questions.connections + u32::from(self.lost.is_some());
        self.await_answer(id, Some(connection), out);
    }

    fn post_answer(&mut self, body: Value, out: &mut Vec<ChatEffect>) {
        let Some(question) = self.questions.front() else { return };
        let path = format!("/agent/approvals/{}", question.approval_id());
        let id = self.next_answer_id();
        out.push(ChatEffect::Post { to: PostPurpose::Answer(id.clone()), path, body });
        self.await_answer(id, None, out);
    }

    fn await_answer(&mut self, id: String, connection: Option<u32>, out: &mut Vec<ChatEffect>) {
        if let Some(question) = self.questions.waiting.pop_front() {
            self.questions.sent.push(SentAnswer { id, question, connection });
        }
        self.show_prompt(out);
    }

    fn next_answer_id(&mut self) -> String {
        self.answers += 1;
        format!("answer-{}", self.answers)
    }
}

/// The word on a plan: its steps by position, if a person changed any.
fn plan_answer_frame(question: &ApprovalPrompt, approved: bool) -> Value {
    let ApprovalPrompt::Plan(list) = question else { return Value::Null };
    let mut frame = json!({
        "type": "preflight.approval", "requestId": list.request_id, "approved": approved,
    });
    if approved {
        let step = |step: &crate::cli::chat::gateway_message::PreflightStep| {
            let mut edited = json!({ "description": step.description });
            if let Some(tool) = &step.tool_name {
                edited["toolName"] = tool.clone().into();
            }
            if step.skip {
                edited["skip"] = true.into();
            }
            edited
        };
        frame["editedSteps"] = list.steps.iter().map(step).collect();
    }
    frame
}
