//! What the server says, and what follows from it.

use super::{Act, Conversation, Failure, cancelling};
use crate::cli::chat::{
    ask::Question,
    heard::{Heard, Outcome},
    show,
};
use greenroom_core::Timestamp;
use serde_json::Value;

impl Conversation {
    /// The server said something.
    pub(in crate::cli::chat) fn heard(&mut self, heard: Heard, out: &mut Vec<Act>) {
        match heard {
            Heard::Start { request_id, session_id, run_id, queued } => {
                if let Some(request) = self.request(&request_id) {
                    (request.run_id, request.going) = (run_id, !queued);
                    if let (true, Some(run_id)) = (request.unwanted, &request.run_id) {
                        out.push(cancelling(&session_id, run_id));
                        request.unwanted = false;
                    }
                }
                self.session = Some(session_id);
                if queued {
                    out.push(Act::Show(show::note("it waits for its turn")));
                }
            }
            Heard::Delta { message_id, discarded: true, .. } => {
                if self.talking.take_if(|talking| *talking == message_id).is_some() {
                    out.push(Act::Void);
                    out.push(Act::Show(show::note("that was cut off, and is said anew:")));
                }
            }
            Heard::Delta { delta, message_id, .. } => {
                self.retrying = None;
                if self.talking.as_ref() != Some(&message_id) {
                    self.pause(out);
                    self.talking = Some(message_id);
                }
                out.push(Act::Text(delta));
            }
            Heard::End { request_id, outcome, usage } => {
                self.pause(out);
                self.retrying = None;
                self.calls.clear();
                self.questions.end_request(&request_id);
                self.close(&request_id, outcome);
                out.push(Act::Show(show::ending(outcome, usage)));
            }
            Heard::Call { tool_call_id, tool_name, args } => {
                self.pause(out);
                self.retrying = None;
                self.calls.propose(tool_call_id, tool_name, args);
            }
            Heard::Result { tool_call_id, tool_name, result, is_error } => {
                self.pause(out);
                let args = self.calls.end(&tool_call_id).unwrap_or_default();
                out.push(Act::Show(show::call(&tool_name, &args)));
                out.push(Act::Show(show::result(&result, is_error)));
                self.settle(|question| question.call_id() == Some(&tool_call_id), None, out);
            }
            Heard::AskedForCall(asked) => {
                self.calls.ask(&asked.tool_call_id);
                self.ask(Question::Call(asked), out);
            }
            Heard::Checklist(list) => self.ask(Question::Plan(list), out),
            Heard::Asking(asked) => self.ask(Question::of_view(asked.into_view()), out),
            Heard::Error { request_id, code, message, more } => {
                self.failed(request_id.as_deref(), Failure { code, detail: message }, &more, out);
            }
            Heard::Native { event } => self.native(&event, out),
            Heard::Unknown => {}
        }
    }

    fn failed(
        &mut self,
        id: Option<&str>,
        failure: Failure,
        more: &serde_json::Map<String, Value>,
        out: &mut Vec<Act>,
    ) {
        match failure.code.as_str() {
            "waiting_for_approval" => {
                let view = more.get("approval").cloned().unwrap_or_default();
                return self.ask(Question::of_view(view), out);
            }
            // The link takes care of it.
            "server_draining" | "draining" | "stream_broken" => {
                return out.push(Act::Show(show::note(&failure.detail)));
            }
            _ => {}
        }
        self.pause(out);
        let Some(id) = id else { return out.push(Act::Show(show::problem(&failure.detail))) };
        if self.questions.is_answer(id) {
            return self.refused(id, &failure, out);
        }
        out.push(Act::Show(show::problem(&failure.detail)));
        // A run that fails comes to its end by itself; what was not taken does not.
        if self.request(id).is_some_and(|request| request.run_id.is_none()) {
            self.close(id, Outcome::Failed);
        }
    }

    /// What the gateway has no word for.
    fn native(&mut self, event: &Value, out: &mut Vec<Act>) {
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        let until = || serde_json::from_value::<Timestamp>(event["until"].clone()).ok();
        match text("type") {
            "run_started" => {
                let run_id = event["run_id"].as_str();
                let started = self.requests.iter_mut().find(|it| it.run_id.as_deref() == run_id);
                if let Some(request) = started {
                    request.going = true;
                }
            }
            "thinking" | "step_started" => self.retrying = None,
            "step_retrying" => {
                self.pause(out);
                self.retrying = until().map(|until| (text("reason").to_owned(), until));
            }
            "approval_decided" => {
                let word = decided(event);
                let closed = event["closed"] == true;
                let calls: Vec<_> = event["steps"].as_array().into_iter().flatten().collect();
                let approval_id = text("approval_id");
                self.settle(
                    |question| {
                        let of_step =
                            |step: &&Value| step["call_id"].as_str() == question.call_id();
                        question.approval_id() == approval_id
                            && (closed || calls.iter().any(of_step))
                    },
                    Some(&word),
                    out,
                );
            }
            kind @ ("approval_expired" | "approval_cancelled") => {
                let told = match kind {
                    "approval_expired" => "nobody answered in time",
                    _ => "the question is moot: nothing waits for it any more",
                };
                let approval_id = text("approval_id");
                self.settle(|question| question.approval_id() == approval_id, Some(told), out);
            }
            "approval_escalated" => {
                let told = format!("nobody answered in time: now an {} is asked", text("to"));
                out.push(Act::Show(show::note(&told)));
            }
            "preflight_skipped" => {
                self.pause(out);
                out.push(Act::Show(show::note(text("warning"))));
            }
            "tool_call_retrying" => {
                self.calls.retry(text("call_id"), &event["attempt"], text("reason"), until());
            }
            "tool_call_attempt_started" => self.calls.start(text("call_id")),
            "tool_call_progress" => self.calls.progress(text("call_id"), event),
            "tool_call_allowed" if event["edit"].is_object() => {
                self.calls.edit(text("call_id"), &event["edit"]["arguments"]);
            }
            // Other events are nothing that a chat must show.
            _ => {}
        }
    }
}

/// Who decided what, of a question that somebody answered elsewhere.
fn decided(event: &Value) -> String {
    let step = event["steps"].as_array().and_then(|steps| steps.first());
    let said = step.unwrap_or(&event["answer"]);
    let text = |name: &str| said[name].as_str().unwrap_or("?");
    let word = match said["approved"].as_bool() {
        Some(true) => "approved",
        Some(false) => "rejected",
        None => text("decision"),
    };
    format!("answered elsewhere: {word} by {} ({})", text("by"), text("surface"))
}
