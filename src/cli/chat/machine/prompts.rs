//! Approvals that wait for the user's reply, and answers that wait for the server's response.

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

/// Error codes after which an approval can no longer be answered.
const FINAL_ERROR_CODES: [&str; 4] =
    ["already_decided", "approval_expired", "approval_cancelled", "approval_not_found"];

/// The approvals in the order of their requests; the first one is presented.
#[derive(Debug, Default)]
pub(super) struct PromptQueue {
    waiting: VecDeque<ApprovalPrompt>,
    /// Answers sent whose result is not known yet.
    sent: Vec<SentAnswer>,
    /// Number of reconnects.
    connections: u32,
}

#[derive(Debug)]
struct SentAnswer {
    /// The answer's id.
    id: String,
    prompt: ApprovalPrompt,
    /// The connection that carries the answer; `None` if it was sent by POST.
    connection: Option<u32>,
}

impl PromptQueue {
    /// Returns the presented approval.
    pub(super) fn front(&self) -> Option<&ApprovalPrompt> {
        self.waiting.front()
    }

    pub(super) fn set_step_description(&mut self, step: usize, text: &str) {
        if let Some(prompt) = self.waiting.front_mut() {
            prompt.set_step_description(step, text);
        }
    }

    /// True if `id` is the id of a sent answer.
    pub(super) fn is_answer(&self, id: &str) -> bool {
        self.sent.iter().any(|answer| answer.id == id)
    }

    /// Counts a reconnect. Answers sent on the previous connection may be lost.
    pub(super) fn handle_reconnect(&mut self) {
        self.connections += 1;
    }

    /// Removes the approvals of a request that has ended.
    pub(super) fn remove_request(&mut self, request_id: &str) {
        let is_of_other = |prompt: &ApprovalPrompt| match prompt {
            ApprovalPrompt::Call(request) => request.request_id != request_id,
            ApprovalPrompt::Plan(checklist) => checklist.request_id != request_id,
            // These kinds have no request id; events of their own remove them.
            ApprovalPrompt::Form(_) | ApprovalPrompt::Other(_) => true,
        };
        self.waiting.retain(is_of_other);
        self.sent.retain(|answer| is_of_other(&answer.prompt));
    }
}

fn is_same(prompt: &ApprovalPrompt, other: &ApprovalPrompt) -> bool {
    prompt.approval_id() == other.approval_id() && prompt.call_id() == other.call_id()
}

impl ChatMachine {
    /// Adds a requested approval. After a lost connection the server may request it again.
    pub(super) fn enqueue_prompt(&mut self, prompt: ApprovalPrompt, out: &mut Vec<ChatEffect>) {
        self.end_text(out);
        let connections = self.prompts.connections;
        // An answer sent on the current connection is on its way to the server.
        let is_on_its_way = |answer: &SentAnswer| {
            is_same(&answer.prompt, &prompt)
                && answer.connection.is_none_or(|connection| connection >= connections)
        };
        let is_waiting = self.prompts.waiting.iter().any(|waiting| is_same(waiting, &prompt));
        if is_waiting || self.prompts.sent.iter().any(is_on_its_way) {
            return;
        }
        self.prompts.sent.retain(|answer| !is_same(&answer.prompt, &prompt));
        self.prompts.waiting.push_back(prompt);
        if self.prompts.waiting.len() == 1 {
            self.show_prompt(out);
        }
        out.push(ChatEffect::ApprovalPending);
    }

    /// Presents the first waiting approval.
    pub(super) fn show_prompt(&mut self, out: &mut Vec<ChatEffect>) {
        if let Some(prompt) = self.prompts.front() {
            out.push(ChatEffect::EndText);
            out.extend(prompt.render_lines().into_iter().map(ChatEffect::Show));
        }
    }

    /// Handles the user's reply to the presented approval.
    pub(super) fn handle_reply(&mut self, text: &str, out: &mut Vec<ChatEffect>) {
        let Some(prompt) = self.prompts.waiting.front_mut() else { return };
        let echo = |reply: &str| {
            ChatEffect::Show(StyledLine::with_indent(2).styled(Style::Bold, &format!("› {reply}")))
        };
        match prompt.parse_reply(text) {
            PromptReply::Invalid(help) => out.push(ChatEffect::Show(render::note_line(help))),
            PromptReply::Reprompt => self.show_prompt(out),
            PromptReply::FieldAccepted(text) => {
                out.push(ChatEffect::Show(render::note_line(&format!("  {text}"))))
            }
            PromptReply::Edit => {
                let value = prompt.editable_value();
                out.push(ChatEffect::Edit(value));
            }
            PromptReply::EditStep(step) => {
                let description = prompt.step_description(step).to_owned();
                self.mode = InputMode::EditStep(step);
                out.push(ChatEffect::Prefill(description));
            }
            PromptReply::Call { approved, for_session } => {
                let mut frame = json!({
                    "type": "tool.approval.response", "toolCallId": prompt.call_id(),
                    "approved": approved,
                });
                if for_session {
                    frame["sessionApprove"] = true.into();
                }
                out.push(echo(match (approved, for_session) {
                    (true, true) => "yes, for this session",
                    (true, false) => "yes",
                    (false, _) => "no",
                }));
                self.send_answer(frame, out);
            }
            PromptReply::Plan { approved } => {
                let frame = plan_answer_frame(prompt, approved);
                out.push(echo(if approved { "yes" } else { "no" }));
                self.send_answer(frame, out);
            }
            PromptReply::PostAnswer(body) => {
                let arguments =
                    body["value"].as_object().map(|_| render::format_arguments(&body["value"]));
                out.push(echo(arguments.as_deref().unwrap_or(text)));
                self.post_answer(body, out);
            }
        }
    }

    /// Handles the result of editing: the edited text, or the reason why there is none.
    pub(in crate::cli::chat) fn handle_edit(
        &mut self,
        text: Result<&str, String>,
        out: &mut Vec<ChatEffect>,
    ) {
        let Some(prompt) = self.prompts.front() else { return };
        match text.and_then(|text| prompt.answer_from_edit(text)) {
            Ok(body) => {
                let line = StyledLine::with_indent(2).styled(Style::Bold, "› yes, with ");
                let arguments = &body["steps"][0]["arguments"];
                let value = if arguments.is_null() { &body["value"] } else { arguments };
                let value = render::format_arguments(value);
                out.push(ChatEffect::Show(line.text(&value)));
                self.post_answer(body, out);
            }
            Err(error) => {
                out.push(ChatEffect::Show(render::error_line(&error)));
                self.show_prompt(out);
            }
        }
    }

    /// Makes the next line the edited value, if there is no external editor.
    pub(in crate::cli::chat) fn edit_in_place(&mut self) {
        self.mode = InputMode::EditArguments;
    }

    /// Handles the result of a POST request.
    pub(in crate::cli::chat) fn handle_post_result(
        &mut self,
        purpose: &PostPurpose,
        result: Result<(), RequestFailure>,
        out: &mut Vec<ChatEffect>,
    ) {
        match (purpose, result) {
            // The stream reports the effect of the cancellation.
            (PostPurpose::Cancel, Ok(())) => {}
            (PostPurpose::Cancel, Err(failure)) => {
                if failure.code != "no_run" && failure.code != "run_not_active" {
                    out.push(ChatEffect::Show(render::error_line(&failure.detail)));
                }
            }
            (PostPurpose::Answer(id), Ok(())) => {
                self.prompts.sent.retain(|answer| answer.id != *id);
            }
            (PostPurpose::Answer(id), Err(failure)) => self.handle_rejection(id, &failure, out),
        }
    }

    /// Handles a rejected answer. Presents the approval again unless it can no longer be answered.
    pub(super) fn handle_rejection(
        &mut self,
        id: &str,
        failure: &RequestFailure,
        out: &mut Vec<ChatEffect>,
    ) {
        let index = self.prompts.sent.iter().position(|answer| answer.id == id);
        let Some(index) = index else { return };
        let SentAnswer { prompt, .. } = self.prompts.sent.remove(index);
        out.push(ChatEffect::Show(render::error_line(&failure.detail)));
        if !FINAL_ERROR_CODES.contains(&failure.code.as_str()) {
            self.prompts.waiting.push_front(prompt);
            self.show_prompt(out);
        }
    }

    /// Removes the matching approvals, which are answered or no longer apply. Shows `note` if one of
    /// them was presented.
    pub(super) fn resolve_prompts(
        &mut self,
        matches: impl Fn(&ApprovalPrompt) -> bool,
        note: Option<&str>,
        out: &mut Vec<ChatEffect>,
    ) {
        self.prompts.sent.retain(|answer| !matches(&answer.prompt));
        let was_presented = self.prompts.front().is_some_and(&matches);
        self.prompts.waiting.retain(|prompt| !matches(prompt));
        if was_presented {
            self.mode = InputMode::Message;
            out.extend(note.map(|note| ChatEffect::Show(render::note_line(&format!("  {note}")))));
            self.show_prompt(out);
        }
    }

    fn send_answer(&mut self, mut frame: Value, out: &mut Vec<ChatEffect>) {
        let id = self.next_answer_id();
        frame["id"] = id.clone().into();
        out.push(ChatEffect::Send(frame));
        // Without a connection, the frame is sent on the next one.
        let connection = self.prompts.connections + u32::from(self.lost.is_some());
        self.await_answer(id, Some(connection), out);
    }

    fn post_answer(&mut self, body: Value, out: &mut Vec<ChatEffect>) {
        let Some(prompt) = self.prompts.front() else { return };
        let path = format!("/agent/approvals/{}", prompt.approval_id());
        let id = self.next_answer_id();
        out.push(ChatEffect::Post { purpose: PostPurpose::Answer(id.clone()), path, body });
        self.await_answer(id, None, out);
    }

    fn await_answer(&mut self, id: String, connection: Option<u32>, out: &mut Vec<ChatEffect>) {
        if let Some(prompt) = self.prompts.waiting.pop_front() {
            self.prompts.sent.push(SentAnswer { id, prompt, connection });
        }
        self.show_prompt(out);
    }

    fn next_answer_id(&mut self) -> String {
        self.answers += 1;
        format!("answer-{}", self.answers)
    }
}

/// Builds the answer to a preflight, with its edited steps by position.
fn plan_answer_frame(prompt: &ApprovalPrompt, approved: bool) -> Value {
    let ApprovalPrompt::Plan(checklist) = prompt else { return Value::Null };
    let mut frame = json!({
        "type": "preflight.approval", "requestId": checklist.request_id, "approved": approved,
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
        frame["editedSteps"] = checklist.steps.iter().map(step).collect();
    }
    frame
}
