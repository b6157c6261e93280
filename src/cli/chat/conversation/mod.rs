//! What goes on between a person and an agent, as a machine without a terminal, a connection or a
//! clock: things happen, and it says what is to be done.
//!
//! Requests are answered one after the other, each by a run; calls are shown as they go; questions
//! are put one at a time, and fall away when somebody else answers them first.

mod calls;
mod hearing;
mod questions;

use super::{
    heard::Outcome,
    line::Line,
    link::chat_send,
    show,
    word::{HELP, Word},
};
use crate::cli::terminal::{Style, span};
use calls::Calls;
use greenroom_core::{Timestamp, context::workflow, ids::SessionId};
use questions::Questions;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    /// Show more of the agent's text.
    Text(String),
    /// The text so far is whole: what comes next begins a line.
    Break,
    /// The text that was shown since the last break does not count.
    Void,
    /// Show a line.
    Show(Line),
    /// Submit a message; its session may still have to be made.
    Chat { id: String, content: String },
    /// Send a frame.
    Send(Value),
    /// Post to a resource; the answer comes back as [`Conversation::posted`].
    Post { to: Post, path: String, body: Value },
    /// Let the person edit that; it comes back as [`Conversation::edited`].
    Edit(Value),
    /// Let the person edit that text in place.
    Prefill(String),
    /// A person is asked. For who does not wait.
    Asked,
    /// It is over.
    Leave(u8),
}

/// What something was posted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Post {
    /// An answer, by its number.
    Answer(String),
    /// Cancelling a run.
    Cancel,
}

/// What did not work, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: String,
    pub(super) detail: String,
}

/// The machine.
pub(super) struct Conversation {
    session: Option<String>,
    requests: Vec<Request>,
    /// The workflows that open requests start.
    workflows: BTreeMap<String, Value>,
    /// The workflow of the next request.
    next_workflow: Option<Value>,
    calls: Calls,
    questions: Questions,
    mode: Mode,
    /// The message whose text is being shown.
    talking: Option<String>,
    /// The connection is lost, and tried again then.
    lost: Option<(String, Timestamp)>,
    /// The model is asked again then, and why.
    retrying: Option<(String, Timestamp)>,
    /// It was interrupted once.
    interrupted: bool,
    /// How the last request ended.
    pub(super) outcome: Option<Outcome>,
    /// Frames that were answered so far, for their ids.
    answers: u64,
}

struct Request {
    id: String,
    run_id: Option<String>,
    going: bool,
    /// To be cancelled as soon as the server says which run it is.
    unwanted: bool,
}

/// What a line that is entered is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A message; or an answer, if there is a question.
    Talking,
    /// The arguments of the question's call, edited.
    Editing,
    /// The question's step, said anew.
    Rewording(usize),
}

/// What is shown below everything else.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Live {
    /// What goes on.
    pub(super) lines: Vec<Line>,
    /// What is asked for.
    pub(super) prompt: String,
}

impl Conversation {
    /// One with that session, or with one that is still to be made.
    pub(super) fn new(session: Option<SessionId>) -> Self {
        Self {
            session: session.map(|session| session.to_string()),
            requests: Vec::new(),
            workflows: BTreeMap::new(),
            next_workflow: None,
            calls: Calls::default(),
            questions: Questions::default(),
            mode: Mode::Talking,
            talking: None,
            lost: None,
            retrying: None,
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
    pub(super) fn is_counting(&self) -> bool {
        let asks = self.questions.front().is_some_and(|question| question.deadline().is_some());
        asks || self.lost.is_some() || self.retrying.is_some() || self.calls.are_counting()
    }

    /// The next thing that is said starts that workflow.
    pub(super) fn starts_with(&mut self, workflow: Value) {
        self.next_workflow = Some(workflow);
    }

    /// Says something to the agent. `id` is fresh, or that of a request that is to go on.
    pub(super) fn say(&mut self, id: String, content: &str, out: &mut Vec<Act>) {
        self.interrupted = false;
        if let Some(workflow) = self.next_workflow.take() {
            self.workflows.insert(id.clone(), workflow);
        }
        self.requests.push(Request { id: id.clone(), run_id: None, going: false, unwanted: false });
        out.push(Act::Chat { id, content: content.to_owned() });
    }

    /// A line was entered. `id` is fresh.
    pub(super) fn entered(&mut self, line: &str, id: String, out: &mut Vec<Act>) {
        self.interrupted = false;
        match self.mode {
            Mode::Editing => {
                self.mode = Mode::Talking;
                return self.edited(Ok(line), out);
            }
            Mode::Rewording(step) => {
                self.mode = Mode::Talking;
                self.questions.reword(step, line);
                return self.put_question(out);
            }
            Mode::Talking => {}
        }
        if self.questions.front().is_some() {
            return self.answer(line, out);
        }
        match Word::of(line) {
            Word::Say("") => {}
            Word::Say(text) => {
                out.push(Act::Show(Line::at(0).styled(Style::Bold, "› ").text(text)));
                self.say(id, text, out);
            }
            Word::Help => {
                for (word, told) in HELP {
                    let word = format!("{word:10} ");
                    out.push(Act::Show(Line::at(2).styled(Style::Bold, &word).text(told)));
                }
            }
            Word::Cancel => self.cancel(out),
            Word::Session => {
                let told = self.session.as_deref().unwrap_or("there is none yet; say something");
                out.push(Act::Show(show::note(told)));
            }
            Word::New if self.is_idle() => {
                self.session = None;
                out.push(Act::Show(show::note("the next message begins another session")));
            }
            Word::New => out.push(Act::Show(show::problem("an answer is still on its way"))),
            Word::Leave => out.push(Act::Leave(0)),
            Word::Named { name, rest } => self.start_workflow(name, rest, id, out),
        }
    }

    /// `/name key=value …`: starts a workflow. The message is that line, so that it says what it
    /// starts wherever it is sent again.
    fn start_workflow(&mut self, name: &str, rest: &str, id: String, out: &mut Vec<Act>) {
        if name.is_empty() {
            let told = "there is no command /; see /help, or begin a message with //";
            return out.push(Act::Show(show::problem(told)));
        }
        match workflow::inputs_of(rest) {
            Ok(inputs) => {
                let line = workflow::command(name, &inputs);
                out.push(Act::Show(Line::at(0).styled(Style::Bold, "› ").text(&line)));
                self.next_workflow = Some(json!({ "name": name, "inputs": inputs }));
                self.say(id, &line, out);
            }
            Err(problem) => out.push(Act::Show(show::problem(&format!("/{name}: {problem}")))),
        }
    }

    /// Ctrl-C: once ends what is going on, twice leaves.
    pub(super) fn interrupt(&mut self, out: &mut Vec<Act>) {
        if self.mode != Mode::Talking {
            self.mode = Mode::Talking;
            return self.put_question(out);
        }
        if std::mem::replace(&mut self.interrupted, true) {
            return out.push(Act::Leave(super::EXIT_INTERRUPTED));
        }
        if self.is_idle() {
            out.push(Act::Show(show::note("Ctrl-C again, or Ctrl-D, leaves")));
        } else {
            self.cancel(out);
        }
    }

    /// Ctrl-C while something was being typed: that is gone, and nothing else happens, but that what
    /// was being edited is not edited any more.
    pub(super) fn interrupt_typing(&mut self, out: &mut Vec<Act>) {
        if self.mode != Mode::Talking {
            self.interrupt(out);
        }
    }

    /// The message could not be sent at all.
    pub(super) fn not_sent(&mut self, id: &str) {
        self.close(id, Outcome::Failed);
    }

    /// Whether a line that is entered is an answer.
    pub(super) fn is_asking(&self) -> bool {
        self.questions.front().is_some()
    }

    /// Cancels the run that is going.
    fn cancel(&mut self, out: &mut Vec<Act>) {
        let going = self.requests.iter().position(|request| request.going);
        let Some(request) = self.requests.get_mut(going.unwrap_or(0)) else {
            return out.push(Act::Show(show::note("nothing runs")));
        };
        out.push(Act::Show(show::note("cancelling …")));
        match (&self.session, &request.run_id) {
            (Some(session), Some(run_id)) => out.push(cancelling(session, run_id)),
            _ => request.unwanted = true,
        }
    }

    /// The connection is lost until then, or longer.
    pub(super) fn lost(
        &mut self,
        why: &str,
        again_in: Duration,
        now: Timestamp,
        out: &mut Vec<Act>,
    ) {
        if self.lost.is_none() {
            out.push(Act::Break);
            let told = format!("the connection is lost: {why}");
            out.push(Act::Show(show::problem(&told)));
        }
        self.lost = Some((why.to_owned(), now.after(again_in)));
    }

    /// The connection is back.
    pub(super) fn back(&mut self, out: &mut Vec<Act>) {
        self.questions.reconnected();
        if self.lost.take().is_some() {
            out.push(Act::Show(show::note("connected again")));
        }
    }

    /// Text so far is whole.
    fn pause(&mut self, out: &mut Vec<Act>) {
        if self.talking.take().is_some() {
            out.push(Act::Break);
        }
    }

    fn request(&mut self, id: &str) -> Option<&mut Request> {
        self.requests.iter_mut().find(|request| request.id == id)
    }

    fn close(&mut self, id: &str, outcome: Outcome) {
        self.workflows.remove(id);
        let before = self.requests.len();
        self.requests.retain(|request| request.id != id);
        if self.requests.len() < before {
            self.outcome = Some(outcome);
            self.interrupted = false;
        }
    }

    /// The frame that submits a message.
    pub(super) fn chat(&self, id: &str, content: &str) -> Value {
        let mut frame = chat_send(id, self.session(), content);
        if let Some(workflow) = self.workflows.get(id) {
            frame["workflow"] = workflow.clone();
        }
        frame
    }

    /// What is shown below everything else.
    pub(super) fn live(&self, now: Timestamp) -> Live {
        let mut lines = self.calls.lines(now);
        let in_time = |at: Timestamp| match at > now {
            true => format!("in {}", span(at.until_from(now))),
            false => "now".to_owned(),
        };
        if let Some((why, at)) = &self.retrying {
            let told = format!("the model is asked again {}: {why}", in_time(*at));
            lines.push(Line::at(0).styled(Style::Yellow, &told).rows_max(2));
        }
        if let Some((why, at)) = &self.lost {
            let told = format!("connecting again {}: {why}", in_time(*at));
            lines.push(Line::at(0).styled(Style::Yellow, &told).rows_max(2));
        }
        let waits = self.talking.is_none() && self.calls.are_none() && self.lost.is_none();
        if !self.is_idle() && waits && self.retrying.is_none() {
            lines.push(show::note("thinking …"));
        }
        let prompt = match (self.mode, self.questions.front()) {
            (Mode::Editing, _) => "Edit › ".to_owned(),
            (Mode::Rewording(step), _) => format!("Step {} › ", step + 1),
            (Mode::Talking, Some(question)) => question.prompt(now),
            (Mode::Talking, None) => "› ".to_owned(),
        };
        Live { lines, prompt }
    }
}

fn cancelling(session: &str, run_id: &str) -> Act {
    let path = format!("/agent/session/{session}/cancel");
    Act::Post { to: Post::Cancel, path, body: json!({ "run_id": run_id }) }
}
