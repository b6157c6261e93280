//! `GET /agent/export`: conversations as JSON lines, one per session, with `messages` and `tools` of
//! OpenAI's chat format, which tools for fine-tuning and evaluation read (C5). The lines are
//! redacted, and are read from the store as the client consumes them.

use super::{
    AppState, Problem, State,
    access_control::Caller,
    commands,
    endpoint::{Endpoint, JSON_LINES},
    extract,
};
use crate::auth::Role;
use actix_web::{HttpRequest, HttpResponse, http::header, web::Bytes};
use futures::stream;
use greenroom_actors::{
    limits::LOG_PAGE_EVENTS,
    ports::{JournalError, SessionQuery},
};
use greenroom_core::{
    Timestamp, context,
    ids::{AgentName, SessionId, UserId},
    model::{openai, request::ModelRequest},
    session::{EventRecord, SessionEvent, SessionRow, SessionState, evolve},
    usage::ModelUsage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

/// Number of session rows that are read at a time.
const SESSION_PAGE_SIZE: usize = 50;
/// Default and maximum number of sessions in an export.
const SESSION_LIMITS: (usize, usize) = (1_000, 100_000);

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/export", export)
            .operation("export", "Exports conversations as JSON lines, newest first.")
            .description("Uses OpenAI's chat format, for fine-tuning and evaluation tools.")
            .query::<ExportQuery>()
            .limit_param("limit", SESSION_LIMITS)
            .returns_stream::<ExportedConversation>(JSON_LINES, "One session per line")
            .problems(&["forbidden", "invalid_id", "session_not_found"]),
    ]
}

/// An exported session. `messages` and `tools` have OpenAI's chat format.
#[derive(Serialize, ToSchema)]
#[schema(as = ExportedConversation)]
struct ExportedConversation<'a> {
    session_id: SessionId,
    user_id: &'a UserId,
    agent: &'a AgentName,
    /// The first model of the agent.
    model: String,
    title: &'a Option<String>,
    created_at: Timestamp,
    messages: Value,
    tools: Value,
    /// Users' feedback.
    feedback: Vec<Value>,
    usage: ModelUsage,
}

#[derive(Deserialize, IntoParams)]
pub(super) struct ExportQuery {
    /// Only this session.
    #[param(value_type = Option<SessionId>)]
    session_id: Option<String>,
    /// Only sessions of this user; only administrators may name another user.
    #[param(value_type = Option<UserId>)]
    user: Option<String>,
    /// Only sessions that were created before this one. To continue an export, pass the
    /// `session_id` of its last line.
    #[param(value_type = Option<SessionId>)]
    before: Option<String>,
    /// Maximum number of sessions.
    limit: Option<usize>,
}

/// `GET /agent/export`
async fn export(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let query: ExportQuery = extract::parse_query(&request)?;
    let remaining =
        extract::validate_page_size("limit", query.limit, SESSION_LIMITS.0, SESSION_LIMITS.1)?;
    let user = extract::parse_optional_id("user", query.user.as_deref())?;
    let own_user = Some(caller.0.user.clone());
    let owner = match user {
        Some(_) if caller.0.role < Role::Admin && user != own_user => {
            let detail = "only administrators may export the sessions of another user";
            return Err(Problem::forbidden(detail));
        }
        Some(user) => Some(user),
        None if caller.0.role == Role::Admin => None,
        None => own_user,
    };
    let before = extract::parse_optional_id::<SessionId>("before", query.before.as_deref())?;
    let rows =
        match extract::parse_optional_id::<SessionId>("session_id", query.session_id.as_deref())? {
            Some(session_id) => {
                vec![commands::load_visible_session(&state, &caller.0, session_id).await?]
            }
            None => Vec::new(),
        };
    let is_single = !rows.is_empty();
    let progress = ExportProgress { rows, owner, before, remaining, is_last: is_single };
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, JSON_LINES))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(stream::unfold(Some(progress), move |progress| {
            let state = state.clone();
            async move { next_line(&state, progress?).await }
        })))
}

/// The progress of an export.
struct ExportProgress {
    /// Sessions that were read and not yet exported, in reverse order.
    rows: Vec<SessionRow>,
    owner: Option<UserId>,
    before: Option<SessionId>,
    remaining: usize,
    is_last: bool,
}

type ExportStep = (Result<Bytes, JournalError>, Option<ExportProgress>);

/// Returns the next line. If reading the log fails, the connection is aborted, so that a partial
/// export does not look complete.
async fn next_line(state: &AppState, mut progress: ExportProgress) -> Option<ExportStep> {
    loop {
        let Some(row) = progress.rows.pop() else {
            if progress.is_last || progress.remaining == 0 {
                return None;
            }
            let limit = progress.remaining.min(SESSION_PAGE_SIZE);
            let (owner, before) = (progress.owner.clone(), progress.before);
            let query = SessionQuery { owner, before, limit, ..SessionQuery::default() };
            match state.runtime.journal.list_sessions(query).await {
                Ok(rows) => {
                    progress.is_last = rows.len() < limit;
                    progress.remaining -= rows.len();
                    progress.before = rows.last().map(|row| row.session_id).or(progress.before);
                    progress.rows = rows;
                    progress.rows.reverse();
                }
                Err(error) => return Some((Err(error), None)),
            }
            continue;
        };
        match format_line(state, &row).await {
            Ok(Some(line)) => return Some((Ok(Bytes::from(line)), Some(progress))),
            // The session has no messages.
            Ok(None) => {}
            Err(error) => return Some((Err(error), None)),
        }
    }
}

async fn format_line(state: &AppState, row: &SessionRow) -> Result<Option<String>, JournalError> {
    let mut past = SessionState::new(row.session_id);
    let mut feedback = Vec::new();
    loop {
        let page = state
            .runtime
            .journal
            .load_events(row.session_id, past.last_seq, LOG_PAGE_EVENTS)
            .await?;
        let is_last = page.len() < LOG_PAGE_EVENTS;
        for record in &page {
            feedback.extend(export_feedback(record));
            past = evolve(past, record);
        }
        if is_last {
            break;
        }
    }
    let messages: Vec<_> = past.conversation.messages().into_iter().cloned().collect();
    if messages.is_empty() {
        return Ok(None);
    }
    let governance = state.runtime.governance();
    let rules = governance.rules(&row.agent, row.parent.as_deref(), state.runtime.tools.as_ref());
    let model = rules.agent.models.first().cloned().unwrap_or_default();
    // All messages, including those that a request would leave out.
    let request =
        ModelRequest { messages, ..context::assemble_request(&past, &rules, model.clone()) };
    let body = openai::encode(&request, openai::EncodeOptions::default());
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut messages = body["messages"].clone();
    redact_embedded_json(state, &mut messages);
    let line = ExportedConversation {
        session_id: row.session_id,
        user_id: &row.owner,
        agent: &row.agent,
        model,
        title: &row.title,
        created_at: row.created_at,
        messages,
        tools: body["tools"].clone(),
        feedback,
        usage: row.usage,
    };
    Ok(Some(format!("{}\n", state.redactor.redact_value(json!(line)))))
}

fn export_feedback(record: &EventRecord) -> Option<Value> {
    let SessionEvent::FeedbackGiven { feedback, by } = &record.event else { return None };
    let mut exported = json!(feedback);
    exported["by"] = json!(by);
    exported["at"] = json!(record.at);
    exported["run_id"] = json!(record.run_id);
    Some(exported)
}

/// Redacts arguments and results that are JSON within strings, where redaction by key would not
/// apply.
fn redact_embedded_json(state: &AppState, messages: &mut Value) {
    let redact = |text: &mut Value| {
        let inner = text.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        if let Some(inner @ (Value::Object(_) | Value::Array(_))) = inner {
            *text = state.redactor.redact_value(inner).to_string().into();
        }
    };
    for message in messages.as_array_mut().into_iter().flatten() {
        for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
            redact(&mut call["function"]["arguments"]);
        }
        if message["role"] == "tool" {
            redact(&mut message["content"]);
        }
    }
    // The mutable index above inserts `null` where a message has no `tool_calls`.
    for message in messages.as_array_mut().into_iter().flatten() {
        if let Some(members) = message.as_object_mut() {
            members.retain(|name, value| name != "tool_calls" || !value.is_null());
        }
    }
}
