//! A session's conversation, folded from its log: each message with the calls it made.

use super::{AppState, Problem, State, commands, guard::Caller, read};
use crate::dialect::agent;
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::limits::LOG_PAGE_EVENTS;
use greenroom_core::{
    ids::{CallId, RunId, Seq, SessionId},
    message::{Message, ProposedCall},
    session::{EventRecord, SessionEvent},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Messages on a page where the client says nothing, and at most.
const PAGE: (usize, usize) = (100, 500);

#[derive(Deserialize)]
struct MessagesQuery {
    after: Option<String>,
    limit: Option<usize>,
}

/// `GET /agent/session/{session_id}/messages`
pub(super) async fn messages(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let query: MessagesQuery = read::query(&request)?;
    let limit = read::page_size(query.limit, PAGE.0, PAGE.1)?;
    let after = read::cursor(&request, query.after.as_deref())?.seq;
    commands::session_for(&state, &caller.0, session_id).await?;
    let page = fold(&state, session_id, after, limit).await?;
    let body = json!({"messages": page.messages, "queued": page.queued, "next": page.next});
    Ok(HttpResponse::Ok().json(state.redactor.scrubbed(body)))
}

async fn fold(
    state: &AppState,
    session_id: SessionId,
    mut after: Seq,
    limit: usize,
) -> Result<Page, Problem> {
    let mut page = Page::new(limit);
    loop {
        let records = state.runtime.journal.read(session_id, after, LOG_PAGE_EVENTS).await?;
        let more = records.len() == LOG_PAGE_EVENTS;
        for record in &records {
            if !page.take(record) {
                return Ok(page);
            }
            after = record.seq;
        }
        if !more {
            return Ok(page);
        }
    }
}

/// Messages in the making.
struct Page {
    limit: usize,
    messages: Vec<Value>,
    queued: Vec<Value>,
    /// The cursor of the next page, if there is one.
    next: Option<Seq>,
}

impl Page {
    fn new(limit: usize) -> Self {
        Self { limit, messages: Vec::new(), queued: Vec::new(), next: None }
    }

    /// Takes an event in; false when the page is full and this begins the next one. A message's
    /// calls have all ended before the next message begins, so a page never cuts them off.
    fn take(&mut self, record: &EventRecord) -> bool {
        use SessionEvent as E;
        if let E::MessageAccepted { .. } | E::MessageCompleted { .. } = &record.event
            && self.messages.len() >= self.limit
        {
            self.next = Some(Seq(record.seq.0 - 1));
            return false;
        }
        if let E::SessionForked { conversation, .. } = &record.event {
            self.messages.extend(copied(record, conversation));
        }
        if let E::MessageQueued { message_id, text, .. } = &record.event {
            self.queued.push(message("user", record, json!(message_id), text));
        }
        if let E::MessageAccepted { message_id, text, .. } = &record.event {
            self.queued.retain(|queued| queued["message_id"] != json!(message_id));
            self.messages.push(message("user", record, json!(message_id), text));
        }
        if let E::MessageCompleted { message_id, text, stopped, stop_reason, .. } = &record.event {
            let mut said = message("assistant", record, json!(message_id), text);
            said["stop_reason"] = json!(stop_reason);
            said["stopped"] = json!(stopped);
            self.messages.push(said);
        }
        if let E::RunCancelled { .. } = &record.event {
            self.unqueue(record.run_id);
        }
        self.take_call(record);
        true
    }

    fn unqueue(&mut self, run_id: Option<RunId>) {
        self.queued.retain(|queued| queued["run_id"] != json!(run_id));
    }

    fn take_call(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::ToolCallStarted { call_id, tool, arguments, risk, .. } = &record.event
            && let Some(calls) = self.calls()
        {
            calls.push(json!({
                "call_id": call_id, "tool": tool, "arguments": agent::arguments(arguments),
                "risk": risk, "status": "open",
            }));
        }
        if let E::ToolCallCompleted { call_id, output, .. } = &record.event {
            let end = json!({"status": "completed", "result": agent::result(output)});
            self.end_call(*call_id, end);
        }
        if let E::ToolCallFailed { call_id, reason, error, .. } = &record.event {
            let end = json!({"status": "failed", "reason": reason, "error": error});
            self.end_call(*call_id, end);
        }
        if let E::AuthorizationDenied { call_id, reason, .. } = &record.event {
            self.end_call(*call_id, json!({"status": "denied", "error": reason}));
        }
    }

    fn end_call(&mut self, call_id: CallId, end: Value) {
        let calls = self.calls().into_iter().flatten();
        let found = calls
            .filter_map(Value::as_object_mut)
            .find(|call| call.get("call_id").is_some_and(|found| *found == json!(call_id)));
        if let (Some(call), Value::Object(end)) = (found, end) {
            call.extend(end);
        }
    }

    /// The calls of the newest message, if the model said it.
    fn calls(&mut self) -> Option<&mut Vec<Value>> {
        let newest = self.messages.last_mut()?.as_object_mut()?;
        newest.get_mut("metadata").and_then(Value::as_object_mut).and_then(of_metadata)
    }
}

/// What was said in the session that this one was forked from. It is one event, and is not cut.
fn copied(record: &EventRecord, conversation: &[Message]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for said in conversation {
        match said {
            Message::User { message_id, text } => {
                messages.push(message("user", record, json!(message_id), text));
            }
            Message::Assistant(said) => {
                let mut told = message("assistant", record, Value::Null, &said.text);
                let call = |call: &ProposedCall| {
                    json!({
                        "call_id": call.call_id, "tool": call.tool,
                        "arguments": agent::arguments(&call.arguments), "status": "open",
                    })
                };
                told["metadata"]["tool_calls"] = said.calls.iter().map(call).collect();
                messages.push(told);
            }
            Message::ToolResults(results) => {
                let Some(told) = messages.last_mut() else { continue };
                let calls = told["metadata"]["tool_calls"].as_array_mut();
                for (call, result) in calls.into_iter().flatten().zip(results) {
                    let (status, key) = match result.is_error {
                        true => ("failed", "error"),
                        false => ("completed", "result"),
                    };
                    call["status"] = json!(status);
                    call[key] = json!(result.text);
                }
            }
        }
    }
    messages
}

fn of_metadata(metadata: &mut Map<String, Value>) -> Option<&mut Vec<Value>> {
    metadata.get_mut("tool_calls")?.as_array_mut()
}

fn message(role: &str, record: &EventRecord, message_id: Value, text: &str) -> Value {
    json!({
        "message_id": message_id,
        "role": role,
        "content": text,
        "seq": record.seq,
        "run_id": record.run_id,
        "step": record.step,
        "at": record.at,
        "metadata": {"tool_calls": []},
    })
}
