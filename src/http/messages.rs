//! The conversation of a session, folded from its log: each message with its tool calls.

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

/// Default and maximum number of messages on a page.
const PAGE_LIMITS: (usize, usize) = (100, 500);

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/session/{session_id}/messages", messages)
            .operation(
                "session_messages",
                "Returns the conversation, each message with its tool calls.",
            )
            .query::<MessagesQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .header(LAST_EVENT_ID, "Same as `after`, over which it takes precedence")
            .returns::<MessagePage>("A page of messages, oldest first")
            .problems(&["session_not_found", "cursor_invalid"]),
    ]
}

#[derive(Deserialize, IntoParams)]
pub(super) struct MessagesQuery {
    /// `next` of the previous page.
    after: Option<String>,
    /// Maximum number of messages on a page.
    limit: Option<usize>,
}

/// A page of a conversation.
#[derive(Serialize, ToSchema)]
struct MessagePage {
    /// The messages, oldest first.
    messages: Vec<MessageView>,
    /// Messages that wait for a run, as of the end of this page.
    queued: Vec<MessageView>,
    /// The value of `after` for the next page; `null` on the last page.
    #[schema(value_type = Option<String>)]
    next: Option<Cursor>,
}

/// A message of the conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
struct MessageView {
    /// The message's id. `null` for a model's message that was copied by a fork.
    message_id: Option<MessageId>,
    role: MessageRole,
    content: String,
    /// The event that contains the message.
    seq: Seq,
    run_id: Option<RunId>,
    step: Option<u32>,
    at: Timestamp,
    metadata: Metadata,
    /// The reason why the model stopped; only for a model's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason>,
    /// True if a cancellation cut the message off; only for a model's message.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<bool>,
}

/// The author of a message.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum MessageRole {
    User,
    Assistant,
}

/// The data attached to a message.
#[derive(Default, Serialize, ToSchema)]
#[schema(as = MessageMetadata)]
struct Metadata {
    /// The tool calls that the message proposed.
    tool_calls: Vec<MessageCall>,
}

/// A tool call that a message proposed.
#[derive(Serialize, ToSchema)]
#[schema(as = MessageCall)]
struct MessageCall {
    call_id: CallId,
    tool: String,
    arguments: Value,
    /// Absent for a call that was copied by a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<Risk>,
    #[serde(flatten)]
    status: MessageCallStatus,
}

/// The status of a tool call.
#[derive(Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
enum MessageCallStatus {
    /// Not yet ended.
    Open,
    /// Completed.
    Completed {
        /// The output: structured if the tool returned structured content, otherwise text.
        result: Value,
    },
    /// Failed.
    Failed {
        /// The kind of failure; absent for a call that was copied by a fork.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<CallFailureReason>,
        /// The error message.
        error: String,
    },
    /// Denied by policy.
    Denied {
        /// The reason of the denial.
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
        let has_more = records.len() == LOG_PAGE_EVENTS;
        for record in &records {
            if !page.apply_event(record) {
                return Ok(page);
            }
            after = record.seq;
        }
        if !has_more {
            return Ok(page);
        }
    }
}

/// Builds a page of messages from events.
struct PageBuilder {
    limit: usize,
    /// Number of messages of a fork's first event that previous pages contained.
    copied_skip: usize,
    messages: Vec<MessageView>,
    queued: Vec<MessageView>,
    /// The cursor of the next page, if there is one. Within the first event of a fork, its offset
    /// counts messages.
    next: Option<Cursor>,
}

impl PageBuilder {
    fn new(limit: usize, copied_skip: usize) -> Self {
        Self { limit, copied_skip, messages: Vec::new(), queued: Vec::new(), next: None }
    }

    /// Applies an event. Returns false if the page is full and the event starts the next page. All
    /// calls of a message end before the next message starts, so a page never cuts off calls.
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
            let message = MessageView::new(MessageRole::Assistant, record, Some(message_id), text);
            let (stop_reason, stopped) = (Some(*stop_reason), Some(*stopped));
            self.messages.push(MessageView { stop_reason, stopped, ..message });
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

    /// Sets the final status of a call of the newest message.
    fn end_call(&mut self, call_id: CallId, status: MessageCallStatus) {
        let calls = self.messages.last_mut().map(|newest| &mut newest.metadata.tool_calls);
        let call = calls.into_iter().flatten().find(|call| call.call_id == call_id);
        if let Some(call) = call {
            call.status = status;
        }
    }
}

/// Returns the messages that a fork copied from its source; they are all in one event.
fn copied_messages(record: &EventRecord, conversation: &[Message]) -> Vec<MessageView> {
    let mut messages: Vec<MessageView> = Vec::new();
    for message in conversation {
        match message {
            Message::User { message_id, text } => {
                messages.push(MessageView::new(MessageRole::User, record, Some(message_id), text));
            }
            Message::Assistant(message) => {
                let mut view =
                    MessageView::new(MessageRole::Assistant, record, None, &message.text);
                let calls = message.calls.iter().map(|call: &ProposedCall| MessageCall {
                    call_id: call.call_id,
                    tool: call.tool.clone(),
                    arguments: agent::call_arguments(&call.arguments).into(),
                    risk: None,
                    status: MessageCallStatus::Open,
                });
                view.metadata.tool_calls = calls.collect();
                messages.push(view);
            }
            Message::ToolResults(results) => {
                let Some(view) = messages.last_mut() else { continue };
                for (call, result) in view.metadata.tool_calls.iter_mut().zip(results) {
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
