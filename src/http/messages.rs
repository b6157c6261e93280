//! A session's conversation, folded from its log: each message with the calls it made.

use super::{
    AppState, Problem, State,
    access_control::Caller,
    commands,
    endpoint::{Endpoint, LAST_EVENT_ID},
    extract,
};
use crate::dialect::agent;
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::limits::LOG_PAGE_EVENTS;
use greenroom_core::{
    Timestamp,
    call::CallFailureReason,
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
const PAGE_LIMITS: (usize, usize) = (100, 500);

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/session/{session_id}/messages", messages)
            .operation(
                "session_messages",
                "What was said, each message with the calls that it made.",
            )
            .query::<MessagesQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .header(LAST_EVENT_ID, "The same as `after`; it wins")
            .returns::<MessagePage>("A page of messages, the oldest first")
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
    messages: Vec<MessageView>,
    /// What waits for its run.
    queued: Vec<MessageView>,
    /// `after` of the next page, if there is one.
    #[schema(value_type = Option<String>)]
    next: Option<Cursor>,
}

/// A message.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
struct MessageView {
    /// Its id; `null` for what a model said before the session was forked.
    message_id: Option<MessageId>,
    role: MessageRole,
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
enum MessageRole {
    User,
    Assistant,
}

/// What belongs to a message.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = MessageMetadata)]
struct Metadata {
    tool_calls: Vec<MessageCall>,
}

/// A call that a message made.
#[derive(Serialize, ToSchema)]
#[schema(as = MessageCall)]
struct MessageCall {
    call_id: CallId,
    tool: String,
    arguments: Value,
    /// Absent for what was called before the session was forked.
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<Risk>,
    #[serde(flatten)]
    status: MessageCallStatus,
}

/// What became of a call.
#[derive(Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
enum MessageCallStatus {
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
        reason: Option<CallFailureReason>,
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
    let session_id = extract::path_id(&request, "session_id")?;
    let query: MessagesQuery = extract::parse_query(&request)?;
    let limit = extract::validate_page_size("limit", query.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    let after = extract::parse_cursor(&request, query.after.as_deref())?;
    commands::load_visible_session(&state, &caller.0, session_id).await?;
    let page = build_page(&state, session_id, after, limit).await?;
    let PageBuilder { messages, queued, next, .. } = page;
    let page = MessagePage { messages, queued, next };
    Ok(HttpResponse::Ok().json(state.redactor.redact(&page)))
}

async fn build_page(
    state: &AppState,
    session_id: SessionId,
    after: Cursor,
    limit: usize,
) -> Result<PageBuilder, Problem> {
    let mut page = PageBuilder::new(limit, usize::try_from(after.offset).unwrap_or(usize::MAX));
    let mut after = after.seq;
    loop {
        let records = state.runtime.journal.load_events(session_id, after, LOG_PAGE_EVENTS).await?;
        let more = records.len() == LOG_PAGE_EVENTS;
        for record in &records {
            if !page.apply_event(record) {
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
struct PageBuilder {
    limit: usize,
    /// So many messages of a forked session's first event were on pages before.
    copied_skip: usize,
    messages: Vec<MessageView>,
    queued: Vec<MessageView>,
    /// The cursor of the next page, if there is one. Within a forked session's first event its offset
    /// is of messages.
    next: Option<Cursor>,
}

impl PageBuilder {
    fn new(limit: usize, copied_skip: usize) -> Self {
        Self { limit, copied_skip, messages: Vec::new(), queued: Vec::new(), next: None }
    }

    /// Takes an event in; false when the page is full and this begins the next one. A message's
    /// calls have all ended before the next message begins, so a page never cuts them off.
    fn apply_event(&mut self, record: &EventRecord) -> bool {
        use SessionEvent as E;
        if let E::MessageAccepted { .. } | E::MessageCompleted { .. } = &record.event
            && self.messages.len() >= self.limit
        {
            self.next = Some(Cursor::after_seq(Seq(record.seq.0 - 1)));
            return false;
        }
        if let E::SessionForked { conversation, .. } = &record.event {
            let mut copied =
                copied_messages(record, conversation).into_iter().skip(self.copied_skip);
            self.messages.extend(copied.by_ref().take(self.limit));
            if copied.next().is_some() {
                let offset = (self.copied_skip + self.messages.len()) as u64;
                self.next = Some(Cursor { seq: Seq(record.seq.0 - 1), offset });
                return false;
            }
        }
        if let E::MessageQueued { message_id, text, .. } = &record.event {
            self.queued.push(MessageView::new(MessageRole::User, record, Some(message_id), text));
        }
        if let E::MessageAccepted { message_id, text, .. } = &record.event {
            self.queued.retain(|queued| queued.message_id.as_ref() != Some(message_id));
            self.messages.push(MessageView::new(MessageRole::User, record, Some(message_id), text));
        }
        if let E::MessageCompleted { message_id, text, stopped, stop_reason, .. } = &record.event {
            let said = MessageView::new(MessageRole::Assistant, record, Some(message_id), text);
            let (stop_reason, stopped) = (Some(*stop_reason), Some(*stopped));
            self.messages.push(MessageView { stop_reason, stopped, ..said });
        }
        if let E::RunCancelled { .. } = &record.event {
            self.queued.retain(|queued| queued.run_id != record.run_id);
        }
        self.apply_call_event(record);
        true
    }

    fn apply_call_event(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::ToolCallStarted { call_id, tool, arguments, risk, .. } = &record.event
            && let Some(newest) = self.messages.last_mut()
        {
            newest.metadata.tool_calls.push(MessageCall {
                call_id: *call_id,
                tool: tool.clone(),
                arguments: agent::call_arguments(arguments).into(),
                risk: Some(*risk),
                status: MessageCallStatus::Open,
            });
        }
        if let E::ToolCallCompleted { call_id, output, .. } = &record.event {
            self.end_call(
                *call_id,
                MessageCallStatus::Completed { result: agent::tool_result(output).into() },
            );
        }
        if let E::ToolCallFailed { call_id, reason, error, .. } = &record.event {
            let (reason, error) = (Some(*reason), error.clone());
            self.end_call(*call_id, MessageCallStatus::Failed { reason, error });
        }
        if let E::AuthorizationDenied { call_id, reason, .. } = &record.event {
            self.end_call(*call_id, MessageCallStatus::Denied { error: reason.clone() });
        }
    }

    /// Ends a call of the newest message.
    fn end_call(&mut self, call_id: CallId, end: MessageCallStatus) {
        let calls = self.messages.last_mut().map(|newest| &mut newest.metadata.tool_calls);
        let found = calls.into_iter().flatten().find(|call| call.call_id == call_id);
        if let Some(call) = found {
            call.status = end;
        }
    }
}

/// What was said in the session that this one was forked from: one event.
fn copied_messages(record: &EventRecord, conversation: &[Message]) -> Vec<MessageView> {
    let mut messages: Vec<MessageView> = Vec::new();
    for said in conversation {
        match said {
            Message::User { message_id, text } => {
                messages.push(MessageView::new(MessageRole::User, record, Some(message_id), text));
            }
            Message::Assistant(said) => {
                let mut told = MessageView::new(MessageRole::Assistant, record, None, &said.text);
                let calls = said.calls.iter().map(|call: &ProposedCall| MessageCall {
                    call_id: call.call_id,
                    tool: call.tool.clone(),
                    arguments: agent::call_arguments(&call.arguments).into(),
                    risk: None,
                    status: MessageCallStatus::Open,
                });
                told.metadata.tool_calls = calls.collect();
                messages.push(told);
            }
            Message::ToolResults(results) => {
                let Some(told) = messages.last_mut() else { continue };
                for (call, result) in told.metadata.tool_calls.iter_mut().zip(results) {
                    let text = result.text.to_string();
                    call.status = match result.is_error {
                        true => MessageCallStatus::Failed { reason: None, error: text },
                        false => MessageCallStatus::Completed { result: text.into() },
                    };
                }
            }
        }
    }
    messages
}

impl MessageView {
    fn new(
        role: MessageRole,
        record: &EventRecord,
        message_id: Option<&MessageId>,
        text: &str,
    ) -> Self {
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
