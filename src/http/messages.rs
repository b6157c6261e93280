//! The conversation of a session, folded from its log: each message with its tool calls.
//!
//! A message has the calls that it proposed. The message that ends a run, which `done` names, has all
//! calls of the run instead; it proposed none itself (S1).

use super::{
    AppState, Problem, State,
    access_control::Caller,
    commands,
    endpoint::{Endpoint, LAST_EVENT_ID},
    extract, run_log,
};
use crate::dialect::{CallArguments, agent};
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
use serde_json::{Map, Value};
use std::borrow::Cow;
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
    /// The tool calls that the message proposed; of the message that ends a run, all calls of the run.
    tool_calls: Vec<MessageCall>,
}

/// A tool call.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = MessageCall)]
struct MessageCall {
    call_id: CallId,
    /// The step whose message proposed the call. Absent for a call that was copied by a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u32>,
    tool: String,
    /// The arguments; empty if the model wrote no JSON object.
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
    /// The model's text in place of a JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_text: Option<String>,
    /// Absent for a call that was copied by a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<Risk>,
    #[serde(flatten)]
    status: MessageCallStatus,
}

/// The status of a tool call.
#[derive(Clone, Serialize, ToSchema)]
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
        /// The number of attempts that were started, if there were any.
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
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
    start: Cursor,
    limit: usize,
) -> Result<PageBuilder, Problem> {
    let mut page = PageBuilder::new(limit, usize::try_from(start.offset).unwrap_or(usize::MAX));
    let mut after = start.seq;
    loop {
        let records = state.runtime.journal.load_events(session_id, after, LOG_PAGE_EVENTS).await?;
        let has_more = records.len() == LOG_PAGE_EVENTS;
        for record in &records {
            if let Some(run_id) = page.find_run_to_complete(record) {
                let apply = |record: &EventRecord| {
                    apply_call_event(&mut page.earlier_calls, record);
                };
                run_log::fold_run(state, session_id, run_id, start.seq, apply).await?;
            }
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
    /// The run that started last on this page.
    started_run_id: Option<RunId>,
    /// The calls before this page of the run that ends next.
    earlier_calls: Vec<MessageCall>,
    messages: Vec<MessageView>,
    queued: Vec<MessageView>,
    /// The cursor of the next page, if there is one. Within the first event of a fork, its offset
    /// counts messages.
    next: Option<Cursor>,
}

impl PageBuilder {
    fn new(limit: usize, copied_skip: usize) -> Self {
        Self {
            limit,
            copied_skip,
            started_run_id: None,
            earlier_calls: Vec::new(),
            messages: Vec::new(),
            queued: Vec::new(),
            next: None,
        }
    }

    /// Returns the run that the event ends with a message, if the run started before this page.
    fn find_run_to_complete(&self, record: &EventRecord) -> Option<RunId> {
        final_message_id(&record.event)?;
        record.run_id.filter(|run_id| self.started_run_id != Some(*run_id))
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
        if let E::QueuedMessageChanged { message_id, text, .. } = &record.event {
            let is_changed =
                |queued: &&mut MessageView| queued.message_id.as_ref() == Some(message_id);
            if let Some(queued) = self.queued.iter_mut().find(is_changed) {
                queued.content = text.to_string();
            }
        }
        if let E::QueuedMessageWithdrawn { message_id, .. } = &record.event {
            self.queued.retain(|queued| queued.message_id.as_ref() != Some(message_id));
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
        if let Some(newest) = self.messages.last_mut() {
            apply_call_event(&mut newest.metadata.tool_calls, record);
        }
        if let E::RunStarted { .. } = &record.event {
            self.started_run_id = record.run_id;
        }
        if let Some(message_id) = final_message_id(&record.event) {
            self.collect_calls_of_run(record.run_id, message_id);
        }
        true
    }

    /// Gives the message that ended a run all calls of the run.
    fn collect_calls_of_run(&mut self, run_id: Option<RunId>, message_id: &MessageId) {
        let mut calls = std::mem::take(&mut self.earlier_calls);
        for message in self.messages.iter().filter(|message| message.run_id == run_id) {
            calls.extend(message.metadata.tool_calls.iter().cloned());
        }
        let is_final = |message: &&mut MessageView| message.message_id.as_ref() == Some(message_id);
        if let Some(message) = self.messages.iter_mut().rfind(is_final) {
            message.metadata.tool_calls = calls;
        }
    }
}

/// Returns the message with which the event ends a run.
fn final_message_id(event: &SessionEvent) -> Option<&MessageId> {
    if let SessionEvent::RunCompleted { message_id, .. } = event {
        return Some(message_id);
    } else if let SessionEvent::RunCancelled { message_id, .. } = event {
        return message_id.as_ref();
    }
    None
}

/// Applies an event to the calls that one message or run proposed.
fn apply_call_event(calls: &mut Vec<MessageCall>, record: &EventRecord) {
    use SessionEvent as E;
    let mut end_call = |call_id: CallId, status: MessageCallStatus| {
        let call = calls.iter_mut().find(|call| call.call_id == call_id);
        call.into_iter().for_each(|call| call.status = status.clone());
    };
    if let E::ToolCallCompleted { call_id, output, .. } = &record.event {
        let result = agent::tool_result(output).into();
        end_call(*call_id, MessageCallStatus::Completed { result });
    } else if let E::ToolCallFailed { call_id, reason, error, attempts, .. } = &record.event {
        let (reason, error) = (Some(*reason), error.clone());
        let attempts = Some(*attempts).filter(|attempts| *attempts > 0);
        end_call(*call_id, MessageCallStatus::Failed { reason, error, attempts });
    } else if let E::AuthorizationDenied { call_id, reason, .. } = &record.event {
        end_call(*call_id, MessageCallStatus::Denied { error: reason.clone() });
    } else if let E::ToolCallStarted { call_id, tool, arguments, risk, .. } = &record.event {
        let CallArguments { object, text } = CallArguments::from(&**arguments);
        calls.push(MessageCall {
            call_id: *call_id,
            step: record.step,
            tool: tool.clone(),
            arguments: object.into_owned(),
            arguments_text: text.map(Cow::into_owned),
            risk: Some(*risk),
            status: MessageCallStatus::Open,
        });
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
                let calls = message.calls.iter().map(|call: &ProposedCall| {
                    let CallArguments { object, text } = CallArguments::from(&call.arguments);
                    MessageCall {
                        call_id: call.call_id,
                        step: None,
                        tool: call.tool.clone(),
                        arguments: object.into_owned(),
                        arguments_text: text.map(Cow::into_owned),
                        risk: None,
                        status: MessageCallStatus::Open,
                    }
                });
                view.metadata.tool_calls = calls.collect();
                messages.push(view);
            }
            Message::ToolResults(results) => {
                let Some(view) = messages.last_mut() else { continue };
                for (call, result) in view.metadata.tool_calls.iter_mut().zip(results) {
                    let text = result.text.to_string();
                    call.status = match result.is_error {
                        true => {
                            MessageCallStatus::Failed { reason: None, error: text, attempts: None }
                        }
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
