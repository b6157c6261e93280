//! Questions that wait for the person here, and answers that wait for the server.

use super::{Act, Conversation, Failure, Mode, Post};
use crate::cli::{
    chat::{
        ask::{Answer, Question},
        line::Line,
        show,
    },
    terminal::Style,
};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Codes of refusals after which there is nothing to answer any more.
const SETTLED: [&str; 4] =
    ["already_decided", "approval_expired", "approval_cancelled", "approval_not_found"];

/// The questions, in the order they were asked; the first is put to the person.
#[derive(Debug, Default)]
pub(super) struct Questions {
    waiting: VecDeque<Question>,
    /// What was answered here, until the server says what became of it.
    answered: Vec<Answered>,
    /// How often the connection came back.
    connections: u32,
}

#[derive(Debug)]
struct Answered {
    /// The answer's id.
    id: String,
    question: Question,
    /// The connection that carries the answer; none if it was posted.
    connection: Option<u32>,
}

impl Questions {
    /// The one that is put.
    pub(super) fn front(&self) -> Option<&Question> {
        self.waiting.front()
    }

    pub(super) fn reword(&mut self, step: usize, text: &str) {
        if let Some(question) = self.waiting.front_mut() {
            question.reworded(step, text);
        }
    }

    /// Whether that id is an answer's.
    pub(super) fn is_answer(&self, id: &str) -> bool {
        self.answered.iter().any(|answered| answered.id == id)
    }

    /// The connection is back: answers that the one before carried may be lost.
    pub(super) fn reconnected(&mut self) {
        self.connections += 1;
    }

    /// The request is over, and with it what it asked.
    pub(super) fn end_request(&mut self, request_id: &str) {
        let others = |question: &Question| match question {
            Question::Call(asked) => asked.request_id != request_id,
            Question::Plan(list) => list.request_id != request_id,
            // They don't say; what is over is told by their own events.
            Question::Form(_) | Question::Other(_) => true,
        };
        self.waiting.retain(others);
        self.answered.retain(|answered| others(&answered.question));
    }
}

fn is_same(one: &Question, other: &Question) -> bool {
    one.approval_id() == other.approval_id() && one.call_id() == other.call_id()
}

impl Conversation {
    /// A person is asked; after a connection was lost, perhaps once more.
    pub(super) fn ask(&mut self, question: Question, out: &mut Vec<Act>) {
        self.pause(out);
        let connections = self.questions.connections;
        // It was asked before the answer came to it, which comes on the same connection.
        let is_on_its_way = |answered: &Answered| {
            is_same(&answered.question, &question)
                && answered.connection.is_none_or(|connection| connection >= connections)
        };
        let waits = self.questions.waiting.iter().any(|waiting| is_same(waiting, &question));
        if waits || self.questions.answered.iter().any(is_on_its_way) {
            return;
        }
        self.questions.answered.retain(|answered| !is_same(&answered.question, &question));
        self.questions.waiting.push_back(question);
        if self.questions.waiting.len() == 1 {
            self.put_question(out);
        }
        out.push(Act::Asked);
    }

    /// Puts the first question that waits.
    pub(super) fn put_question(&mut self, out: &mut Vec<Act>) {
        if let Some(question) = self.questions.front() {
            out.push(Act::Break);
            out.extend(question.lines().into_iter().map(Act::Show));
        }
    }

    /// Takes the person's answer to the first question.
    pub(super) fn answer(&mut self, text: &str, out: &mut Vec<Act>) {
        let Some(question) = self.questions.waiting.front_mut() else { return };
        let shown = |word: &str| Act::Show(Line::at(2).styled(Style::Bold, &format!("› {word}")));
        match question.answer(text) {
            Answer::Unclear(help) => out.push(Act::Show(show::note(help))),
            Answer::Again => self.put_question(out),
            Answer::Noted(told) => out.push(Act::Show(show::note(&format!("  {told}")))),
            Answer::Edit => {
                let value = question.editable();
                out.push(Act::Edit(value));
            }
            Answer::Reword(step) => {
                let wording = question.wording(step).to_owned();
                self.mode = Mode::Rewording(step);
                out.push(Act::Prefill(wording));
            }
            Answer::Call { approved, for_session } => {
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
            Answer::Plan { approved } => {
                let frame = of_plan(question, approved);
                out.push(shown(if approved { "yes" } else { "no" }));
                self.send_answer(frame, out);
            }
            Answer::Decide(body) => {
                let whole = body["value"].as_object().map(|_| show::arguments(&body["value"]));
                out.push(shown(whole.as_deref().unwrap_or(text)));
                self.post_answer(body, out);
            }
        }
    }

    /// What was edited came back; or it was not edited, and why.
    pub(in crate::cli::chat) fn edited(&mut self, text: Result<&str, String>, out: &mut Vec<Act>) {
        let Some(question) = self.questions.front() else { return };
        match text.and_then(|text| question.edited(text)) {
            Ok(body) => {
                let word = Line::at(2).styled(Style::Bold, "› yes, with ");
                let arguments = &body["steps"][0]["arguments"];
                let passed = if arguments.is_null() { &body["value"] } else { arguments };
                let passed = show::arguments(passed);
                out.push(Act::Show(word.text(&passed)));
                self.post_answer(body, out);
            }
            Err(error) => {
                out.push(Act::Show(show::problem(&error)));
                self.put_question(out);
            }
        }
    }

    /// There is no editor to be had: what is edited is edited in place.
    pub(in crate::cli::chat) fn edit_in_place(&mut self) {
        self.mode = Mode::Editing;
    }

    /// What was posted was answered.
    pub(in crate::cli::chat) fn posted(
        &mut self,
        to: &Post,
        result: Result<(), Failure>,
        out: &mut Vec<Act>,
    ) {
        match (to, result) {
            // What it leads to is told on the stream.
            (Post::Cancel, Ok(())) => {}
            (Post::Cancel, Err(failure)) => {
                if failure.code != "no_run" && failure.code != "run_not_active" {
                    out.push(Act::Show(show::problem(&failure.detail)));
                }
            }
            (Post::Answer(id), Ok(())) => {
                self.questions.answered.retain(|answered| answered.id != *id);
            }
            (Post::Answer(id), Err(failure)) => self.refused(id, &failure, out),
        }
    }

    /// An answer was refused: somebody was first, or it was not good enough and is asked for again.
    pub(super) fn refused(&mut self, id: &str, failure: &Failure, out: &mut Vec<Act>) {
        let found = self.questions.answered.iter().position(|answered| answered.id == id);
        let Some(at) = found else { return };
        let Answered { question, .. } = self.questions.answered.remove(at);
        out.push(Act::Show(show::problem(&failure.detail)));
        if !SETTLED.contains(&failure.code.as_str()) {
            self.questions.waiting.push_front(question);
            self.put_question(out);
        }
    }

    /// Questions like that are answered, or moot. If they were put to the person, that is shown.
    pub(super) fn settle(
        &mut self,
        is: impl Fn(&Question) -> bool,
        told: Option<&str>,
        out: &mut Vec<Act>,
    ) {
        self.questions.answered.retain(|answered| !is(&answered.question));
        let was_put = self.questions.front().is_some_and(&is);
        self.questions.waiting.retain(|question| !is(question));
        if was_put {
            self.mode = Mode::Talking;
            out.extend(told.map(|told| Act::Show(show::note(&format!("  {told}")))));
            self.put_question(out);
        }
    }

    fn send_answer(&mut self, mut frame: Value, out: &mut Vec<Act>) {
        let id = self.next_answer();
        frame["id"] = id.clone().into();
        out.push(Act::Send(frame));
        // While there is no connection it waits for the next one.
        let connection = self.questions.connections + u32::from(self.lost.is_some());
        self.await_answer(id, Some(connection), out);
    }

    fn post_answer(&mut self, body: Value, out: &mut Vec<Act>) {
        let Some(question) = self.questions.front() else { return };
        let path = format!("/agent/approvals/{}", question.approval_id());
        let id = self.next_answer();
        out.push(Act::Post { to: Post::Answer(id.clone()), path, body });
        self.await_answer(id, None, out);
    }

    fn await_answer(&mut self, id: String, connection: Option<u32>, out: &mut Vec<Act>) {
        if let Some(question) = self.questions.waiting.pop_front() {
            self.questions.answered.push(Answered { id, question, connection });
        }
        self.put_question(out);
    }

    fn next_answer(&mut self) -> String {
        self.answers += 1;
        format!("answer-{}", self.answers)
    }
}

/// The word on a plan: its steps by position, if a person changed any.
fn of_plan(question: &Question, approved: bool) -> Value {
    let Question::Plan(list) = question else { return Value::Null };
    let mut frame = json!({
        "type": "preflight.approval", "requestId": list.request_id, "approved": approved,
    });
    if approved {
        let step = |step: &crate::cli::chat::heard::Step| {
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
