//! A session's conversation, folded from its log: each message with the calls it made.

use super::{
    AppState, Problem, State, commands,
    endpoint::{Endpoint, LAST_EVENT_ID},
    guard::Caller,
    read,
};
use crate::dialect::agent;
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::limits::LOG_PAGE_EVENTS;
use greenroom_core::{
    Timestamp,
    call::FailReason,
    cursor::Cursor,
    ids::{CallId, MessageId, RunId, Seq, SessionId},
    message::{Message, ProposedCall},
    model::delta::StopReason,
    policy::Risk,
    session::{EventRecord, SessionEvent},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Messages on a page where the client says nothing, and at most.
const PAGE: (usize, usize) = (100, 500);

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/session/{session_id}/messages", messages)
            .named("session_messages", "What was said, each message with the calls that it made.")
            .query::<MessagesQuery>()
            .at_most("limit", PAGE)
            .header(LAST_EVENT_ID, "The same as `after`; it wins")
            .answers::<MessagePage>("A page of messages, the oldest first")
            .problems(&["session_not_found", "cursor_invalid"]),
    ]
}

#[derive(Deserialize, IntoParams)]
struct MessagesQuery {
    /// `next` of the page before.
    after: Option<String>,
    limit: Option<usize>,
}

/// A page of a conversation.
#[derive(Serialize, ToSchema)]
struct MessagePage {
    messages: Vec<Told>,
    /// What waits for its run.
    queued: Vec<Told>,
    /// `after` of the next page, if there is one.
    #[schema(value_type = Option<String>)]
    next: Option<Cursor>,
}

/// A message.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
struct Told {
    /// Its id; `null` for what a model said before the session was forked.
    message_id: Option<MessageId>,
    role: Speaker,
    content: String,
    /// The event that it is from.
    seq: Seq,
    run_id: Option<RunId>,
    step: Option<u32>,
    at: Timestamp,
    metadata: Metadata,
    /// Why the model stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason>,
    /// Whether it was cut off by a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<bool>,
}

/// Who said it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Speaker {
    User,
    Assistant,
}

/// What belongs to a message.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = MessageMetadata)]
struct Metadata {
    tool_calls: Vec<Called>,
}

/// A call that a message made.
#[derive(Serialize, ToSchema)]
#[schema(as = MessageCall)]
struct Called {
    call_id: CallId,
    tool: String,
    arguments: Value,
    /// Absent for what was called before the session was forked.
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<Risk>,
    #[serde(flatten)]
    end: End,
}

/// What became of a call.
#[derive(Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
enum End {
    /// Nothing yet.
    Open,
    /// It ran.
    Completed {
        /// Structured where it can be, else text.
        result: Value,
    },
    /// It failed.
    Failed {
        /// How; absent for what was called before the session was forked.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<FailReason>,
        /// In words.
        error: String,
    },
    /// The policy did not let it run.
    Denied {
        /// Why, in words.
        error: String,
    },
}

/// `GET /agent/session/{session_id}/messages`
async fn messages(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let query: MessagesQuery = read::query(&request)?;
    let limit = read::page_size("limit", query.limit, PAGE.0, PAGE.1)?;
    let after = read::cursor(&request, query.after.as_deref())?;
    commands::session_for(&state, &caller.0, session_id).await?;
    let page = fold(&state, session_id, after, limit).await?;
    let Page { messages, queued, next, .. } = page;
    let page = MessagePage { messages, queued, next };
    Ok(HttpResponse::Ok().json(state.redactor.shown(&page)))
}

async fn fold(
    state: &AppState,
    session_id: SessionId,
    after: Cursor,
    limit: usize,
) -> Result<Page, Problem> {
    let mut page = Page::new(limit, usize::try_from(after.offset).unwrap_or(usize::MAX));
    let mut after = after.seq;
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
    /// So many messages of a forked session's first event were on pages before.
    copied_before: usize,
    messages: Vec<Told>,
    queued: Vec<Told>,
    /// The cursor of the next page, if there is one. Within a forked session's first event its offset
    /// is of messages.
    next: Option<Cursor>,
}

impl Page {
    fn new(limit: usize, copied_before: usize) -> Self {
        Self { limit, copied_before, messages: Vec::new(), queued: Vec::new(), next: None }
    }

    /// Takes an event in; false when the page is full and this begins the next one. A message's
    /// calls have all ended before the next message begins, so a page never cuts them off.
    fn take(&mut self, record: &EventRecord) -> bool {
        use SessionEvent as E;
        if let E::MessageAccepted { .. } | E::MessageCompleted { .. } = &record.event
            && self.messages.len() >= self.limit
        {
            self.next = Some(Cursor::after(Seq(record.seq.0 - 1)));
            return false;
        }
        if let E::SessionForked { conversation, .. } = &record.event {
            let mut copied = copied(record, conversation).into_iter().skip(self.copied_before);
            self.messages.extend(copied.by_ref().take(self.limit));
            if copied.next().is_some() {
                let offset = (self.copied_before + self.messages.len()) as u64;
                self.next = Some(Cursor { seq: Seq(record.seq.0 - 1), offset });
                return false;
            }
        }
        if let E::MessageQueued { message_id, text, .. } = &record.event {
            self.queued.push(Told::by(Speaker::User, record, Some(message_id), text));
        }
        if let E::MessageAccepted { message_id, text, .. } = &record.event {
            self.queued.retain(|queued| queued.message_id.as_ref() != Some(message_id));
            self.messages.push(Told::by(Speaker::User, record, Some(message_id), text));
        }
        if let E::MessageCompleted { message_id, text, stopped, stop_reason, .. } = &record.event {
            let said = Told::by(Speaker::Assistant, record, Some(message_id), text);
            let (stop_reason, stopped) = (Some(*stop_reason), Some(*stopped));
            self.messages.push(Told { stop_reason, stopped, ..said });
        }
        if let E::RunCancelled { .. } = &record.event {
            self.queued.retain(|queued| queued.run_id != record.run_id);
        }
        self.take_call(record);
        true
    }

    fn take_call(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::ToolCallStarted { call_id, tool, arguments, risk, .. } = &record.event
            && let Some(newest) = self.messages.last_mut()
        {
            newest.metadata.tool_calls.push(Called {
                call_id: *call_id,
                tool: tool.clone(),
                arguments: agent::arguments(arguments).into(),
                risk: Some(*risk),
                end: End::Open,
            });
        }
        if let E::ToolCallCompleted { call_id, output, .. } = &record.event {
            self.end_call(*call_id, End::Completed { result: agent::result(output).into() });
        }
        if let E::ToolCallFailed { call_id, reason, error, .. } = &record.event {
            let (reason, error) = (Some(*reason), error.clone());
            self.end_call(*call_id, End::Failed { reason, error });
        }
        if let E::AuthorizationDenied { call_id, reason, .. } = &record.event {
            self.end_call(*call_id, End::Denied { error: reason.clone() });
        }
    }

    /// Ends a call of the newest message.
    fn end_call(&mut self, call_id: CallId, end: End) {
        let calls = self.messages.last_mut().map(|newest| &mut newest.metadata.tool_calls);
        let found = calls.into_iter().flatten().find(|call| call.call_id == call_id);
        if let Some(call) = found {
            call.end = end;
        }
    }
}

/// What was said in the session that this one was forked from: one event.
fn copied(record: &EventRecord, conversation: &[Message]) -> Vec<Told> {
    let mut messages: Vec<Told> = Vec::new();
    for said in conversation {
        match said {
            Message::User { message_id, text } => {
                messages.push(Told::by(Speaker::User, record, Some(message_id), text));
            }
            Message::Assistant(said) => {
                let mut told = Told::by(Speaker::Assistant, record, None, &said.text);
                let calls = said.calls.iter().map(|call: &ProposedCall| Called {
                    call_id: call.call_id,
                    tool: call.tool.clone(),
                    arguments: agent::arguments(&call.arguments).into(),
                    risk: None,
                    end: End::Open,
                });
                told.metadata.tool_calls = calls.collect();
                messages.push(told);
            }
            Message::ToolResults(results) => {
                let Some(told) = messages.last_mut() else { continue };
                for (call, result) in told.metadata.tool_calls.iter_mut().zip(results) {
                    let text = result.text.to_string();
                    call.end = match result.is_error {
                        true => End::Failed { reason: None, error: text },
                        false => End::Completed { result: text.into() },
                    };
                }
            }
        }
    }
    messages
}

impl Told {
    fn by(role: Speaker, record: &EventRecord, message_id: Option<&MessageId>, text: &str) -> Self {
        Self {
            message_id: message_id.cloned(),
            role,
            content: text.to_owned(),
            seq: record.seq,
            run_id: record.run_id,
            step: record.step,
            at: record.at,
            metadata: Metadata::default(),
            stop_reason: None,
            stopped: None,
        }
    }
}
