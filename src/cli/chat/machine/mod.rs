//! What goes on between a person and an agent, as a machine without a terminal, a connection or a
//! clock: things happen, and it says what is to be done.
//!
//! Requests are answered one after the other, each by a run; calls are shown as they go; questions
//! are put one at a time, and fall away when somebody else answers them first.

mod calls;
mod questions;
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
use questions::PromptQueue;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChatEffect {
    /// Show more of the agent's text.
    Text(String),
    /// The text so far is whole: what comes next begins a line.
    EndText,
    /// The text that was shown since the last break does not count.
    DiscardText,
    /// Show a line.
    Show(StyledLine),
    /// Submit a message; its session may still have to be made.
    SendMessage { id: String, content: String },
    /// Send a frame.
    Send(Value),
    /// Post to a resource; the answer comes back as [`Conversation::posted`].
    Post { to: PostPurpose, path: String, body: Value },
    /// Let the person edit that; it comes back as [`Conversation::edited`].
    Edit(Value),
    /// Let the person edit that text in place.
    Prefill(String),
    /// A person is asked. For who does not wait.
    ApprovalPending,
    /// It is over.
    Exit(u8),
}

/// What something was posted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PostPurpose {
    /// An answer, by its number.
    Answer(String),
    /// Cancelling a run.
    Cancel,
}

/// What did not work, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestFailure {
    pub(super) code: String,
    pub(super) detail: String,
}

/// The machine.
pub(super) struct ChatMachine {
    session: Option<String>,
    requests: Vec<OpenRequest>,
    /// The workflows that open requests start.
    workflows: BTreeMap<String, Value>,
    /// The workflow of the next request.
    next_workflow: Option<Value>,
    calls: OpenCalls,
    questions: PromptQueue,
    mode: InputMode,
    /// The message whose text is being shown.
    streaming_message: Option<String>,
    /// The connection is lost, and tried again then.
    lost: Option<(String, Timestamp)>,
    /// The model is asked again then, and why.
    model_retry: Option<(String, Timestamp)>,
    /// It was interrupted once.
    interrupted: bool,
    /// How the last request ended.
    pub(super) outcome: Option<RunOutcome>,
    /// Frames that were answered so far, for their ids.
    answers: u64,
}

struct OpenRequest {
    id: String,
    run_id: Option<String>,
    is_running: bool,
    /// To be cancelled as soon as the server says which run it is.
    cancel_on_start: bool,
}

/// What a line that is entered is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputMode {
    /// A message; or an answer, if there is a question.
    Message,
    /// The arguments of the question's call, edited.
    EditArguments,
    /// The question's step, said anew.
    EditStep(usize),
}

/// What is shown below everything else.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LiveArea {
    /// What goes on.
    pub(super) lines: Vec<StyledLine>,
    /// What is asked for.
    pub(super) prompt: String,
}

impl ChatMachine {
    /// One with that session, or with one that is still to be made.
    pub(super) fn new(session: Option<SessionId>) -> Self {
        Self {
            session: session.map(|session| session.to_string()),
            requests: Vec::new(),
            workflows: BTreeMap::new(),
            next_workflow: None,
            calls: OpenCalls::default(),
            questions: PromptQueue::default(),
            mode: InputMode::Message,
            streaming_message: None,
            lost: None,
            model_retry: None,
            interrupted: false,
            outcome: None,
            answers: 0,
        }
    }

    /// The session, once there is one.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Makes that the session.
    pub(super) fn set_session(&mut self, session: String) {
        self.session = Some(session);
    }

    /// Whether no request is open.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether what is shown changes by time alone.
    pub(super) fn has_countdown(&self) -> bool {
        let asks = self.questions.front().is_some_and(|question| question.deadline().is_some());
        asks || self.lost.is_some() || self.model_retry.is_some() || self.calls.has_countdown()
    }

    /// The next thing that is said starts that workflow.
    pub(super) fn set_next_workflow(&mut self, workflow: Value) {
        self.next_workflow = Some(workflow);
    }

    /// Says something to the agent. `id` is fresh, or that of a request that is to go on.
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

    /// A line was entered. `id` is fresh.
    pub(super) fn handle_line(&mut self, line: &str, id: String, out: &mut Vec<ChatEffect>) {
        self.interrupted = false;
        match self.mode {
            InputMode::EditArguments => {
                self.mode = InputMode::Message;
                return self.handle_edit(Ok(line), out);
            }
            InputMode::EditStep(step) => {
                self.mode = InputMode::Message;
                self.questions.set_step_description(step, line);
                return self.show_prompt(out);
            }
            InputMode::Message => {}
        }
        if self.questions.front().is_some() {
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
                for (word, told) in HELP {
                    let word = format!("{word:10} ");
                    out.push(ChatEffect::Show(
                        StyledLine::with_indent(2).styled(Style::Bold, &word).text(told),
                    ));
                }
            }
            ChatCommand::Cancel => self.cancel(out),
            ChatCommand::ShowSession => {
                let told = self.session.as_deref().unwrap_or("there is none yet; say something");
                out.push(ChatEffect::Show(render::note_line(told)));
            }
            ChatCommand::NewSession if self.is_idle() => {
                self.session = None;
                out.push(ChatEffect::Show(render::note_line(
                    "the next message begins another session",
                )));
            }
            ChatCommand::NewSession => {
                out.push(ChatEffect::Show(render::error_line("an answer is still on its way")))
            }
            ChatCommand::Exit => out.push(ChatEffect::Exit(0)),
            ChatCommand::StartWorkflow { name, rest } => self.start_workflow(name, rest, id, out),
        }
    }

    /// `/name key=value …`: starts a workflow. The message is that line, so that it says what it
    /// starts wherever it is sent again.
    fn start_workflow(&mut self, name: &str, rest: &str, id: String, out: &mut Vec<ChatEffect>) {
        if name.is_empty() {
            let told = "there is no command /; see /help, or begin a message with //";
            return out.push(ChatEffect::Show(render::error_line(told)));
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

    /// Ctrl-C: once ends what is going on, twice leaves.
    pub(super) fn handle_interrupt(&mut self, out: &mut Vec<ChatEffect>) {
        if self.mode != InputMode::Message {
            self.mode = InputMode::Message;
            return self.show_prompt(out);
        }
        if std::mem::replace(&mut self.interrupted, true) {
            return out.push(ChatEffect::Exit(super::EXIT_INTERRUPTED));
        }
        if self.is_idle() {
            out.push(ChatEffect::Show(render::note_line("Ctrl-C again, or Ctrl-D, leaves")));
        } else {
            self.cancel(out);
        }
    }

    /// Ctrl-C while something was being typed: that is gone, and nothing else happens, but that what
    /// was being edited is not edited any more.
    pub(super) fn handle_interrupt_while_typing(&mut self, out: &mut Vec<ChatEffect>) {
        if self.mode != InputMode::Message {
            self.handle_interrupt(out);
        }
    }

    /// The message could not be sent at all.
    pub(super) fn handle_send_failure(&mut self, id: &str) {
        self.close_request(id, RunOutcome::Failed);
    }

    /// Whether a line that is entered is an answer.
    pub(super) fn has_prompt(&self) -> bool {
        self.questions.front().is_some()
    }

    /// Cancels the run that is going.
    fn cancel(&mut self, out: &mut Vec<ChatEffect>) {
        let going = self.requests.iter().position(|request| request.is_running);
        let Some(request) = self.requests.get_mut(going.unwrap_or(0)) else {
            return out.push(ChatEffect::Show(render::note_line("nothing runs")));
        };
        out.push(ChatEffect::Show(render::note_line("cancelling …")));
        match (&self.session, &request.run_id) {
            (Some(session), Some(run_id)) => out.push(cancel_effect(session, run_id)),
            _ => request.cancel_on_start = true,
        }
    }

    /// The connection is lost until then, or longer.
    pub(super) fn handle_disconnect(
        &mut self,
        why: &str,
        again_in: Duration,
        now: Timestamp,
        out: &mut Vec<ChatEffect>,
    ) {
        if self.lost.is_none() {
            out.push(ChatEffect::EndText);
            let told = format!("the connection is lost: {why}");
            out.push(ChatEffect::Show(render::error_line(&told)));
        }
        self.lost = Some((why.to_owned(), now.saturating_add(again_in)));
    }

    /// The connection is back.
    pub(super) fn handle_reconnect(&mut self, out: &mut Vec<ChatEffect>) {
        self.questions.handle_reconnect();
        if self.lost.take().is_some() {
            out.push(ChatEffect::Show(render::note_line("connected again")));
        }
    }

    /// Text so far is whole.
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

    /// The frame that submits a message.
    pub(super) fn message_frame(&self, id: &str, content: &str) -> Value {
        let mut frame = chat_send_frame(id, self.session(), content);
        if let Some(workflow) = self.workflows.get(id) {
            frame["workflow"] = workflow.clone();
        }
        frame
    }

    /// What is shown below everything else.
    pub(super) fn live_area(&self, now: Timestamp) -> LiveArea {
        let mut lines = self.calls.render_lines(now);
        let in_time = |at: Timestamp| match at > now {
            true => format!("in {}", format_duration(at.saturating_duration_since(now))),
            false => "now".to_owned(),
        };
        if let Some((why, at)) = &self.model_retry {
            let told = format!("the model is asked again {}: {why}", in_time(*at));
            lines.push(StyledLine::with_indent(0).styled(Style::Yellow, &told).rows_max(2));
        }
        if let Some((why, at)) = &self.lost {
            let told = format!("connecting again {}: {why}", in_time(*at));
            lines.push(StyledLine::with_indent(0).styled(Style::Yellow, &told).rows_max(2));
        }
        let waits =
            self.streaming_message.is_none() && self.calls.is_empty() && self.lost.is_none();
        if !self.is_idle() && waits && self.model_retry.is_none() {
            lines.push(render::note_line("thinking …"));
        }
        let prompt = match (self.mode, self.questions.front()) {
            (InputMode::EditArguments, _) => "Edit › ".to_owned(),
            (InputMode::EditStep(step), _) => format!("Step {} › ", step + 1),
            (InputMode::Message, Some(question)) => question.prompt_text(now),
            (InputMode::Message, None) => "› ".to_owned(),
        };
        LiveArea { lines, prompt }
    }
}

fn cancel_effect(session: &str, run_id: &str) -> ChatEffect {
    let path = format!("/agent/session/{session}/cancel");
    ChatEffect::Post { to: PostPurpose::Cancel, path, body: json!({ "run_id": run_id }) }
}
