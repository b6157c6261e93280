//! Sessions as resources (S1): create, list, read, change settings, close, cancel.

use super::{
    Problem, State,
    commands::{self, CreateSession},
    guard::Caller,
    read::{self, Json},
};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_actors::ports::SessionQuery;
use greenroom_core::{
    ids::{RunId, Seq, SessionId, UserId},
    policy::SettingsPatch,
    session::{Input, SessionRow},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Sessions on a page where the client says nothing, and at most.
const PAGE: (usize, usize) = (50, 200);

/// A session as clients see it.
pub(super) fn view(row: &SessionRow) -> Value {
    json!({
        "session_id": row.session_id,
        "user_id": row.owner,
        "agent": row.agent,
        "title": row.title,
        "status": row.status,
        "autonomy_level": row.settings.autonomy_level,
        "preflight": row.settings.preflight,
        "settings": row.settings,
        "usage": row.usage,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    })
}

/// `POST /agent/session`
pub(super) async fn create(
    state: State,
    caller: Caller,
    Json(wish): Json<CreateSession>,
) -> Result<HttpResponse, Problem> {
    let row = commands::create(&state, &caller.0, wish).await?;
    Ok(HttpResponse::Ok().json(view(&row)))
}

#[derive(Deserialize)]
struct ListQuery {
    limit: Option<usize>,
    before: Option<String>,
    user_id: Option<String>,
}

/// `GET /agent/session`
pub(super) async fn list(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let query: ListQuery = read::query(&request)?;
    let user = query.user_id.as_deref().map(UserId::parse).transpose()?;
    let owner = match user {
        Some(user) => Some(commands::acting_for(&caller.0, Some(user))?),
        // Administrators see everybody's.
        None if caller.0.is_admin() => None,
        None => Some(caller.0.user.clone()),
    };
    let before = query.before.as_deref().map(str::parse::<SessionId>).transpose()?;
    let limit = read::page_size(query.limit, PAGE.0, PAGE.1)?;
    // One more than the page tells whether there is another.
    let query = SessionQuery { owner, before, limit: limit + 1 };
    let mut rows = state.runtime.journal.sessions(query).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.session_id);
    let sessions: Vec<_> = rows.iter().map(view).collect();
    Ok(HttpResponse::Ok().json(json!({"sessions": sessions, "next": next})))
}

/// `GET /agent/session/{session_id}`
pub(super) async fn read(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let row = commands::session_for(&state, &caller.0, session_id).await?;
    let mut view = view(&row);
    view["head"] = json!(state.runtime.journal.head(session_id).await?);
    Ok(HttpResponse::Ok().json(view))
}

#[derive(Deserialize)]
struct CloseQuery {
    #[serde(default)]
    purge: bool,
}

/// `DELETE /agent/session/{session_id}`: closes it, and it can still be read; or, with
/// `?purge=true`, removes it for good.
pub(super) async fn close(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let purge = read::query::<CloseQuery>(&request)?.purge;
    commands::session_for(&state, &caller.0, session_id).await?;
    if purge {
        state.runtime.purge(session_id, caller.0.user.clone()).await?;
        return Ok(HttpResponse::Ok().json(json!({"session_id": session_id, "status": "purged"})));
    }
    let input = Input::Close { by: caller.0.user.clone(), partial: None };
    state.runtime.command(session_id, input).await?;
    let row = commands::session_for(&state, &caller.0, session_id).await?;
    Ok(HttpResponse::Ok().json(view(&row)))
}

/// `PATCH /agent/session/{session_id}/settings`: settings and `title`; what is absent stays.
pub(super) async fn change_settings(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(mut wish): Json<serde_json::Map<String, Value>>,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let row = commands::session_for(&state, &caller.0, session_id).await?;
    let title = match wish.remove("title") {
        None => row.title.clone(),
        Some(Value::Null) => None,
        Some(Value::String(title)) => Some(commands::checked_title(title)?),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(Problem::invalid("title", "title must be a string or null"));
        }
    };
    let patch: SettingsPatch = read::parse_value(Value::Object(wish))?;
    let settings = patch.applied_to(&row.settings)?;
    let _unchanged = state.settings_lock.read().await;
    settings.check_within(&state.user_settings(&row.owner).await?)?;
    let input = Input::ChangeSettings { settings, title, by: caller.0.user.clone() };
    state.runtime.command(session_id, input).await?;
    let row = commands::session_for(&state, &caller.0, session_id).await?;
    Ok(HttpResponse::Ok().json(view(&row)))
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ForkBody {
    at_seq: Option<Seq>,
    title: Option<String>,
}

/// `POST /agent/session/{session_id}/fork`
pub(super) async fn fork(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<ForkBody>,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let source = commands::session_for(&state, &caller.0, session_id).await?;
    let row = commands::fork(&state, &caller.0, &source, body.at_seq, body.title).await?;
    Ok(HttpResponse::Ok().json(view(&row)))
}

#[derive(Deserialize)]
pub(super) struct CancelBody {
    #[serde(default)]
    run_id: Option<RunId>,
}

/// `POST /agent/session/{session_id}/cancel`
pub(super) async fn cancel(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<CancelBody>,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let row = commands::session_for(&state, &caller.0, session_id).await?;
    let run_id = commands::cancel(&state, &caller.0, &row, body.run_id).await?;
    let body = json!({"session_id": session_id, "run_id": run_id, "status": "cancelled"});
    Ok(HttpResponse::Ok().json(body))
}
