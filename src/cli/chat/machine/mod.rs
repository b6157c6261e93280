//! The state machine of the chat: input lines, server messages and connection events in, effects
//! out. It has no terminal, connection or clock.
//!
//! Requests are answered one after the other, each by a run. Calls are displayed with their status.
//! Approvals are presented one at a time, and disappear when they are answered elsewhere first.

mod calls;
mod prompts;
mod server_events;

use super::{
    command::{ChatCommand, HELP},
    gateway_connection::chat_send_frame,
    gateway_message::RunOutcome,
    render,
    styled_line::StyledLine,
};
use crate::cli::terminal::{Style, format_duration};
use calls::OpenCalls;
use greenroom_core::{Timestamp, context::workflow, ids::SessionId};
use prompts::PromptQueue;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// An effect for the front end to carry out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChatEffect {
    /// Append to the agent's text.
    Text(String),
    /// The text so far is complete; further output starts on a new line.
    EndText,
    /// Discard the text since the last `EndText`.
    DiscardText,
    /// Show a line.
    Show(StyledLine),
    /// Send a message, after creating the session if there is none.
    SendMessage { id: String, content: String },
    /// Send a frame.
    Send(Value),
    /// Send a POST request; the result goes to [`ChatMachine::handle_post_result`].
    Post { purpose: PostPurpose, path: String, body: Value },
    /// Let the user edit the value; the result goes to [`ChatMachine::handle_edit`].
    Edit(Value),
    /// Put the text into the input line for editing.
    Prefill(String),
    /// An approval is needed. Front ends that do not wait exit.
    ApprovalPending,
    /// Exit with this code.
    Exit(u8),
}

/// The purpose of a POST request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PostPurpose {
    /// An answer to an approval, by the answer's id.
    Answer(String),
    /// Cancellation of a run.
    Cancel,
}

/// A failed request: the server's code and detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestFailure {
    pub(super) code: String,
    pub(super) detail: String,
}

/// The state of the chat.
pub(super) struct ChatMachine {
    session: Option<String>,
    requests: Vec<OpenRequest>,
    /// The workflows started by open requests, by request id.
    workflows: BTreeMap<String, Value>,
    /// The workflow that the next request starts.
    next_workflow: Option<Value>,
    calls: OpenCalls,
    prompts: PromptQueue,
    mode: InputMode,
    /// The id of the message whose text is being displayed.
    streaming_message: Option<String>,
    /// The reason of a lost connection and the time of the next attempt.
    lost: Option<(String, Timestamp)>,
    /// The reason of a failed model call and the time of the next attempt.
    model_retry: Option<(String, Timestamp)>,
    /// True after one interrupt.
    interrupted: bool,
    /// The outcome of the last request.
    pub(super) outcome: Option<RunOutcome>,
    /// Number of answers sent, for their ids.
    answers: u64,
}

struct OpenRequest {
    id: String,
    run_id: Option<String>,
    is_running: bool,
    /// True to cancel the run as soon as its id is known.
    cancel_on_start: bool,
}

/// The use of the next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputMode {
    /// A message, or the reply to the presented approval.
    Message,
    /// The edited arguments of the presented approval's call.
    EditArguments,
    /// The edited description of a step of the presented preflight.
    EditStep(usize),
}

/// The lines and the prompt below the scrolling output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LiveArea {
    /// The status of calls, retries and the connection.
    pub(super) lines: Vec<StyledLine>,
    /// The prompt of the input line.
    pub(super) prompt: String,
}

impl ChatMachine {
    /// Creates a chat with a session, or with a session still to be created.
    pub(super) fn new(session: Option<SessionId>) -> Self {
        Self {
            session: session.map(|session| session.to_string()),
            requests: Vec::new(),
            workflows: BTreeMap::new(),
            next_workflow: None,
            calls: OpenCalls::default(),
            prompts: PromptQueue::default(),
            mode: InputMode::Message,
            streaming_message: None,
            lost: None,
            model_retry: None,
            interrupted: false,
            outcome: None,
            answers: 0,
        }
    }

    /// Returns the session's id, if there is a session.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Sets the session.
    pub(super) fn set_session(&mut self, session: String) {
        self.session = Some(session);
    }

    /// True if no request is open.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// True if the display changes with time.
    pub(super) fn has_countdown(&self) -> bool {
        let has_deadline = self.prompts.front().is_some_and(|prompt| prompt.deadline().is_some());
        has_deadline
            || self.lost.is_some()
            || self.model_retry.is_some()
            || self.calls.has_countdown()
    }

    /// Makes the next message start the workflow.
    pub(super) fn set_next_workflow(&mut self, workflow: Value) {
        self.next_workflow = Some(workflow);
    }

    /// Opens a request and sends its message. `id` is new, or that of a request to resume.
    pub(super) fn submit(&mut self, id: String, content: &str, out: &mut Vec<ChatEffect>) {
        self.interrupted = false;
        if let Some(workflow) = self.next_workflow.take() {
            self.workflows.insert(id.clone(), workflow);
        }
        self.requests.push(OpenRequest {
            id: id.clone(),
            run_id: None,
            is_running: false,
            cancel_on_start: false,
        });
        out.push(ChatEffect::SendMessage { id, content: content.to_owned() });
    }

    /// Handles an entered line. `id` is a new request id.
    pub(super) fn handle_line(&mut self, line: &str, id: String, out: &mut Vec<ChatEffect>) {
        self.interrupted = false;
        match self.mode {
            InputMode::EditArguments => {
                self.mode = InputMode::Message;
                return self.handle_edit(Ok(line), out);
            }
            InputMode::EditStep(step) => {
                self.mode = InputMode::Message;
                self.prompts.set_step_description(step, line);
                return self.show_prompt(out);
            }
            InputMode::Message => {}
        }
        if self.prompts.front().is_some() {
            return self.handle_reply(line, out);
        }
        match ChatCommand::parse(line) {
            ChatCommand::Message("") => {}
            ChatCommand::Message(text) => {
                out.push(ChatEffect::Show(
                    StyledLine::with_indent(0).styled(Style::Bold, "› ").text(text),
                ));
                self.submit(id, text, out);
            }
            ChatCommand::Help => {
                for (key, effect) in HELP {
                    let key = format!("{key:10} ");
                    out.push(ChatEffect::Show(
                        StyledLine::with_indent(2).styled(Style::Bold, &key).text(effect),
                    ));
                }
            }
            ChatCommand::Cancel => self.cancel(out),
            ChatCommand::ShowSession => {
                let text = self.session.as_deref().unwrap_or("no session yet; send a message");
                out.push(ChatEffect::Show(render::note_line(text)));
            }
            ChatCommand::NewSession if self.is_idle() => {
                self.session = None;
                out.push(ChatEffect::Show(render::note_line(
                    "the next message starts a new session",
                )));
            }
            ChatCommand::NewSession => {
                out.push(ChatEffect::Show(render::error_line("a request is still running")))
            }
            ChatCommand::Exit => out.push(ChatEffect::Exit(0)),
            ChatCommand::StartWorkflow { name, rest } => self.start_workflow(name, rest, id, out),
        }
    }

    /// Starts a workflow from `/name key=value …`. The message content is that line, so that a request
    /// that is sent again names its workflow.
    fn start_workflow(&mut self, name: &str, rest: &str, id: String, out: &mut Vec<ChatEffect>) {
        if name.is_empty() {
            let text = "no command after /; see /help, or start the message with //";
            return out.push(ChatEffect::Show(render::error_line(text)));
        }
        match workflow::parse_inputs(rest) {
            Ok(inputs) => {
                let line = workflow::format_command(name, &inputs);
                out.push(ChatEffect::Show(
                    StyledLine::with_indent(0).styled(Style::Bold, "› ").text(&line),
                ));
                self.next_workflow = Some(json!({ "name": name, "inputs": inputs }));
                self.submit(id, &line, out);
            }
            Err(problem) => {
                out.push(ChatEffect::Show(render::error_line(&format!("/{name}: {problem}"))))
            }
        }
    }

    /// Handles Ctrl-C: ends editing or cancels the run; the second one in a row exits.
    pub(super) fn handle_interrupt(&mut self, out: &mut Vec<ChatEffect>) {
        if self.mode != InputMode::Message {
            self.mode = InputMode::Message;
            return self.show_prompt(out);
        }
        if std::mem::replace(&mut self.interrupted, true) {
            return out.push(ChatEffect::Exit(super::EXIT_INTERRUPTED));
        }
        if self.is_idle() {
            out.push(ChatEffect::Show(render::note_line("Ctrl-C again, or Ctrl-D, quits")));
        } else {
            self.cancel(out);
        }
    }

    /// Handles Ctrl-C on a line with text. The front end has cleared the line; the machine only ends
    /// editing.
    pub(super) fn handle_interrupt_while_typing(&mut self, out: &mut Vec<ChatEffect>) {
        if self.mode != InputMode::Message {
            self.handle_interrupt(out);
        }
    }

    /// Closes a request whose message could not be sent.
    pub(super) fn handle_send_failure(&mut self, id: &str) {
        self.close_request(id, RunOutcome::Failed);
    }

    /// True if the next line is the reply to an approval.
    pub(super) fn has_prompt(&self) -> bool {
        self.prompts.front().is_some()
    }

    /// Cancels the current run.
    fn cancel(&mut self, out: &mut Vec<ChatEffect>) {
        let running = self.requests.iter().position(|request| request.is_running);
        let Some(request) = self.requests.get_mut(running.unwrap_or(0)) else {
            return out.push(ChatEffect::Show(render::note_line("nothing to cancel")));
        };
        out.push(ChatEffect::Show(render::note_line("cancelling …")));
        match (&self.session, &request.run_id) {
            (Some(session), Some(run_id)) => out.push(cancel_effect(session, run_id)),
            _ => request.cancel_on_start = true,
        }
    }

    /// Handles the loss of the connection; the next attempt follows after `retry_in`.
    pub(super) fn handle_disconnect(
        &mut self,
        reason: &str,
        retry_in: Duration,
        now: Timestamp,
        out: &mut Vec<ChatEffect>,
    ) {
        if self.lost.is_none() {
            out.push(ChatEffect::EndText);
            let text = format!("connection lost: {reason}");
            out.push(ChatEffect::Show(render::error_line(&text)));
        }
        self.lost = Some((reason.to_owned(), now.saturating_add(retry_in)));
    }

    /// Handles the return of the connection.
    pub(super) fn handle_reconnect(&mut self, out: &mut Vec<ChatEffect>) {
        self.prompts.handle_reconnect();
        if self.lost.take().is_some() {
            out.push(ChatEffect::Show(render::note_line("reconnected")));
        }
    }

    /// Ends the text of the displayed message.
    fn end_text(&mut self, out: &mut Vec<ChatEffect>) {
        if self.streaming_message.take().is_some() {
            out.push(ChatEffect::EndText);
        }
    }

    fn request(&mut self, id: &str) -> Option<&mut OpenRequest> {
        self.requests.iter_mut().find(|request| request.id == id)
    }

    fn close_request(&mut self, id: &str, outcome: RunOutcome) {
        self.workflows.remove(id);
        let before = self.requests.len();
        self.requests.retain(|request| request.id != id);
        if self.requests.len() < before {
            self.outcome = Some(outcome);
            self.interrupted = false;
        }
    }

    /// Builds the frame of a request, with its workflow.
    pub(super) fn message_frame(&self, id: &str, content: &str) -> Value {
        let mut frame = chat_send_frame(id, self.session(), content);
        if let Some(workflow) = self.workflows.get(id) {
            frame["workflow"] = workflow.clone();
        }
        frame
    }

    /// Renders the live area.
    pub(super) fn live_area(&self, now: Timestamp) -> LiveArea {
        let mut lines = self.calls.render_lines(now);
        let time_left = |at: Timestamp| match at > now {
            true => format!("in {}", format_duration(at.saturating_duration_since(now))),
            false => "now".to_owned(),
        };
        if let Some((reason, at)) = &self.model_retry {
            let text = format!("retrying the model {}: {reason}", time_left(*at));
            lines.push(StyledLine::with_indent(0).styled(Style::Yellow, &text).rows_max(2));
        }
        if let Some((reason, at)) = &self.lost {
            let text = format!("reconnecting {}: {reason}", time_left(*at));
            lines.push(StyledLine::with_indent(0).styled(Style::Yellow, &text).rows_max(2));
        }
        let is_silent =
            self.streaming_message.is_none() && self.calls.is_empty() && self.lost.is_none();
        if !self.is_idle() && is_silent && self.model_retry.is_none() {
            lines.push(render::note_line("thinking …"));
        }
        let prompt = match (self.mode, self.prompts.front()) {
            (InputMode::EditArguments, _) => "Edit › ".to_owned(),
            (InputMode::EditStep(step), _) => format!("Step {} › ", step + 1),
            (InputMode::Message, Some(prompt)) => prompt.prompt_text(now),
            (InputMode::Message, None) => "› ".to_owned(),
        };
        LiveArea { lines, prompt }
    }
}

fn cancel_effect(session: &str, run_id: &str) -> ChatEffect {
    let path = format!("/agent/session/{session}/cancel");
    ChatEffect::Post { purpose: PostPurpose::Cancel, path, body: json!({ "run_id": run_id }) }
}
