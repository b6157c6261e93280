//! Handles the messages and events of the server.

use super::{ChatEffect, ChatMachine, RequestFailure, cancel_effect};
use crate::cli::chat::{
    approval_prompt::ApprovalPrompt,
    gateway_message::{GatewayMessage, RunOutcome},
    render,
};
use greenroom_core::Timestamp;
use serde_json::Value;

impl ChatMachine {
    /// Handles a message.
    pub(in crate::cli::chat) fn handle_message(
        &mut self,
        message: GatewayMessage,
        out: &mut Vec<ChatEffect>,
    ) {
        match message {
            GatewayMessage::Start { request_id, session_id, run_id, queued } => {
                if let Some(request) = self.request(&request_id) {
                    (request.run_id, request.is_running) = (run_id, !queued);
                    if let (true, Some(run_id)) = (request.cancel_on_start, &request.run_id) {
                        out.push(cancel_effect(&session_id, run_id));
                        request.cancel_on_start = false;
                    }
                }
                self.session = Some(session_id);
                if queued {
                    out.push(ChatEffect::Show(render::note_line("queued")));
                }
            }
            GatewayMessage::Delta { message_id, discarded: true, .. } => {
                if self.streaming_message.take_if(|streaming| *streaming == message_id).is_some() {
                    out.push(ChatEffect::DiscardText);
                    out.push(ChatEffect::Show(render::note_line(
                        "the message was interrupted and is repeated:",
                    )));
                }
            }
            GatewayMessage::Delta { delta, notice: true, .. } => {
                out.push(ChatEffect::Show(render::note_line(delta.trim())));
            }
            GatewayMessage::Delta { delta, message_id, .. } => {
                self.model_retry = None;
                if self.streaming_message.as_ref() != Some(&message_id) {
                    self.end_text(out);
                    self.streaming_message = Some(message_id);
                }
                out.push(ChatEffect::Text(delta));
            }
            GatewayMessage::End { request_id, outcome, stop_reason, usage } => {
                self.end_text(out);
                self.model_retry = None;
                self.calls.clear();
                self.prompts.remove_request(&request_id);
                self.close_request(&request_id, outcome);
                let notice = stop_reason.as_deref().and_then(render::stop_notice);
                out.extend(notice.map(ChatEffect::Show));
                out.push(ChatEffect::Show(render::outcome_line(outcome, usage)));
            }
            GatewayMessage::Call { tool_call_id, tool_name, args, arguments_text } => {
                self.end_text(out);
                self.model_retry = None;
                let args = arguments_text.map_or(args, Value::String);
                self.calls.insert(tool_call_id, tool_name, args);
            }
            GatewayMessage::Result { tool_call_id, tool_name, result, is_error } => {
                self.end_text(out);
                let args = self.calls.remove(&tool_call_id).unwrap_or_default();
                out.push(ChatEffect::Show(render::call_line(&tool_name, &args)));
                out.push(ChatEffect::Show(render::result_line(&result, is_error)));
                self.resolve_prompts(|prompt| prompt.call_id() == Some(&tool_call_id), None, out);
            }
            GatewayMessage::CallApprovalRequested(request) => {
                self.calls.set_awaiting_approval(&request.tool_call_id);
                self.enqueue_prompt(ApprovalPrompt::Call(request), out);
            }
            GatewayMessage::PreflightRequested(checklist) => {
                self.enqueue_prompt(ApprovalPrompt::Plan(checklist), out)
            }
            GatewayMessage::ElicitationRequested(request) => {
                self.enqueue_prompt(ApprovalPrompt::from_view(request.into_view()), out)
            }
            GatewayMessage::Error { request_id, code, message, more } => {
                self.handle_error(
                    request_id.as_deref(),
                    RequestFailure { code, detail: message },
                    &more,
                    out,
                );
            }
            GatewayMessage::AgentEvent { event } => self.handle_event(&event, out),
            GatewayMessage::Unknown => {}
        }
    }

    fn handle_error(
        &mut self,
        id: Option<&str>,
        failure: RequestFailure,
        more: &serde_json::Map<String, Value>,
        out: &mut Vec<ChatEffect>,
    ) {
        match failure.code.as_str() {
            "waiting_for_approval" => {
                let view = more.get("approval").cloned().unwrap_or_default();
                return self.enqueue_prompt(ApprovalPrompt::from_view(view), out);
            }
            // The connection sends the request again.
            "server_draining" | "draining" | "stream_broken" => {
                return out.push(ChatEffect::Show(render::note_line(&failure.detail)));
            }
            _ => {}
        }
        self.end_text(out);
        let Some(id) = id else {
            return out.push(ChatEffect::Show(render::error_line(&failure.detail)));
        };
        if self.prompts.is_answer(id) {
            return self.handle_rejection(id, &failure, out);
        }
        out.push(ChatEffect::Show(render::error_line(&failure.detail)));
        // A failed run ends with its own message; a rejected request does not.
        if self.request(id).is_some_and(|request| request.run_id.is_none()) {
            self.close_request(id, RunOutcome::Failed);
        }
    }

    /// Handles a native event that the gateway dialect has no message for.
    fn handle_event(&mut self, event: &Value, out: &mut Vec<ChatEffect>) {
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        let until = || serde_json::from_value::<Timestamp>(event["until"].clone()).ok();
        match text("type") {
            "run_started" => {
                let run_id = event["run_id"].as_str();
                let started =
                    self.requests.iter_mut().find(|request| request.run_id.as_deref() == run_id);
                if let Some(request) = started {
                    request.is_running = true;
                }
            }
            "thinking" | "step_started" => self.model_retry = None,
            "step_retrying" => {
                self.end_text(out);
                self.model_retry = until().map(|until| (text("reason").to_owned(), until));
            }
            "approval_decided" => {
                let answer = format_answer(event);
                let closed = event["closed"] == true;
                let steps: Vec<_> = event["steps"].as_array().into_iter().flatten().collect();
                let approval_id = text("approval_id");
                self.resolve_prompts(
                    |prompt| {
                        let is_decided =
                            |step: &&Value| step["call_id"].as_str() == prompt.call_id();
                        prompt.approval_id() == approval_id
                            && (closed || steps.iter().any(is_decided))
                    },
                    Some(&answer),
                    out,
                );
            }
            kind @ ("approval_expired" | "approval_cancelled") => {
                let note = match kind {
                    "approval_expired" => "approval expired",
                    _ => "approval cancelled",
                };
                let approval_id = text("approval_id");
                self.resolve_prompts(|prompt| prompt.approval_id() == approval_id, Some(note), out);
            }
            "approval_escalated" => {
                let note = format!("not answered in time; escalated to role {}", text("to"));
                out.push(ChatEffect::Show(render::note_line(&note)));
            }
            "preflight_skipped" => {
                self.end_text(out);
                out.push(ChatEffect::Show(render::note_line(text("warning"))));
            }
            "tool_call_retrying" => {
                self.calls.set_retrying(
                    text("call_id"),
                    &event["attempt"],
                    text("reason"),
                    until(),
                );
            }
            "tool_call_attempt_started" => self.calls.set_running(text("call_id")),
            "tool_call_progress" => self.calls.set_progress(text("call_id"), event),
            "tool_call_allowed" if event["edit"].is_object() => {
                self.calls.set_arguments(text("call_id"), &event["edit"]["arguments"]);
            }
            // The chat does not display other events.
            _ => {}
        }
    }
}

/// Formats an answer given elsewhere: the decision, the user and the surface.
fn format_answer(event: &Value) -> String {
    let step = event["steps"].as_array().and_then(|steps| steps.first());
    let answer = step.unwrap_or(&event["answer"]);
    let text = |name: &str| answer[name].as_str().unwrap_or("?");
    let decision = match answer["approved"].as_bool() {
        Some(true) => "approved",
        Some(false) => "rejected",
        None => text("decision"),
    };
    format!("answered elsewhere: {decision} by {} ({})", text("by"), text("surface"))
}
