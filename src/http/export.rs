//! `GET /agent/export`: conversations as JSON lines, one a session, in the form that tools for
//! fine-tuning and evaluation read: `messages` and `tools` of OpenAI's chat format (C5). Redacted,
//! and read as the client takes them.

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

/// Sessions whose rows are read at once.
const SESSION_PAGE_SIZE: usize = 50;
/// Sessions of one export where the client says nothing, and at most.
const SESSION_LIMITS: (usize, usize) = (1_000, 100_000);

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/export", export)
            .operation("export", "Conversations as JSON lines, the newest first.")
            .description("In the form that tools for fine-tuning and evaluation read.")
            .query::<ExportQuery>()
            .limit_param("limit", SESSION_LIMITS)
            .returns_stream::<ExportedConversation>(JSON_LINES, "A session in each line")
            .problems(&["forbidden", "invalid_id", "session_not_found"]),
    ]
}

/// A session, as it is exported: `messages` and `tools` are those of OpenAI's chat format.
#[derive(Serialize, ToSchema)]
#[schema(as = ExportedConversation)]
struct ExportedConversation<'a> {
    session_id: SessionId,
    user_id: &'a UserId,
    agent: &'a AgentName,
    model: String,
    title: &'a Option<String>,
    created_at: Timestamp,
    messages: Value,
    tools: Value,
    /// What people think of it.
    feedback: Vec<Value>,
    usage: ModelUsage,
}

#[derive(Deserialize, IntoParams)]
struct ExportQuery {
    /// Only this session.
    #[param(value_type = Option<SessionId>)]
    session_id: Option<String>,
    /// Only this user's; for administrators.
    #[param(value_type = Option<UserId>)]
    user: Option<String>,
    /// Only those created before this one: the last line's `session_id` goes on from there.
    #[param(value_type = Option<SessionId>)]
    before: Option<String>,
    limit: Option<usize>,
}

/// `GET /agent/export`
async fn export(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let query: ExportQuery = extract::parse_query(&request)?;
    let left =
        extract::validate_page_size("limit", query.limit, SESSION_LIMITS.0, SESSION_LIMITS.1)?;
    let asked = extract::parse_optional_id("user", query.user.as_deref())?;
    let own = Some(caller.0.user.clone());
    let owner = match asked {
        Some(_) if caller.0.role < Role::Admin && asked != own => {
            return Err(Problem::forbidden("conversations of others are for administrators"));
        }
        Some(asked) => Some(asked),
        None if caller.0.role == Role::Admin => None,
        None => own,
    };
    let before = extract::parse_optional_id::<SessionId>("before", query.before.as_deref())?;
    let rows =
        match extract::parse_optional_id::<SessionId>("session_id", query.session_id.as_deref())? {
            Some(session_id) => {
                vec![commands::load_visible_session(&state, &caller.0, session_id).await?]
            }
            None => Vec::new(),
        };
    let is_one = !rows.is_empty();
    let place = ExportProgress { rows, owner, before, remaining: left, is_last: is_one };
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, JSON_LINES))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(stream::unfold(Some(place), move |place| {
            let state = state.clone();
            async move { next_line(&state, place?).await }
        })))
}

/// Where an export stands.
struct ExportProgress {
    /// Sessions whose lines come next, the last first.
    rows: Vec<SessionRow>,
    owner: Option<UserId>,
    before: Option<SessionId>,
    remaining: usize,
    is_last: bool,
}

type ExportStep = (Result<Bytes, JournalError>, Option<ExportProgress>);

/// The next line. If the log can't be read any more, the connection breaks rather than look complete.
async fn next_line(state: &AppState, mut place: ExportProgress) -> Option<ExportStep> {
    loop {
        let Some(row) = place.rows.pop() else {
            if place.is_last || place.remaining == 0 {
                return None;
            }
            let limit = place.remaining.min(SESSION_PAGE_SIZE);
            let (owner, before) = (place.owner.clone(), place.before);
            let query = SessionQuery { owner, before, limit, ..SessionQuery::default() };
            match state.runtime.journal.list_sessions(query).await {
                Ok(rows) => {
                    place.is_last = rows.len() < limit;
                    place.remaining -= rows.len();
                    place.before = rows.last().map(|row| row.session_id).or(place.before);
                    place.rows = rows;
                    place.rows.reverse();
                }
                Err(error) => return Some((Err(error), None)),
            }
            continue;
        };
        match line(state, &row).await {
            Ok(Some(line)) => return Some((Ok(Bytes::from(line)), Some(place))),
            // Nothing was said in it.
            Ok(None) => {}
            Err(error) => return Some((Err(error), None)),
        }
    }
}

async fn line(state: &AppState, row: &SessionRow) -> Result<Option<String>, JournalError> {
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
    // All that was said, also where a request would leave out the oldest of it.
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
    let mut told = json!(feedback);
    told["by"] = json!(by);
    told["at"] = json!(record.at);
    told["run_id"] = json!(record.run_id);
    Some(told)
}

/// Arguments and results are JSON within texts there, where no key would be seen.
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
    // ChangeSource for calls leaves a `null` where there are none.
    for message in messages.as_array_mut().into_iter().flatten() {
        if let Some(members) = message.as_object_mut() {
            members.retain(|name, value| name != "tool_calls" || !value.is_null());
        }
    }
}
