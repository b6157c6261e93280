//! The resource `session` (S1): create, list, read, change settings, close, purge, cancel and fork.

use super::{
    Problem, State,
    access_control::Caller,
    commands::{self, CreateSessionRequest},
    endpoint::{Endpoint, Schemas, extend_schema},
    extract::{self, Json},
    problem_codes::{COMMAND_PROBLEMS, CREATE_SESSION_PROBLEMS},
    settings::block_warnings,
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode},
};
use greenroom_actors::ports::{ParentFilter, SessionQuery};
use greenroom_core::{
    Timestamp,
    delegation::{Parent, RootRun},
    ids::{AgentName, CallId, RunId, Seq, SessionId, UserId},
    limits::TITLE_CHARS_MAX,
    policy::{Autonomy, Settings, SettingsPatch, session_settings},
    session::{Input, SessionRow, SessionStatus},
    usage::ModelUsage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{borrow::Cow, sync::Arc};
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type, schema::SchemaType},
};

/// Default and maximum number of sessions on a page.
const PAGE_LIMITS: (usize, usize) = (50, 200);

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let item_path = "/agent/session/{session_id}";
    vec![
        Endpoint::get("/agent/session", list)
            .operation("list_sessions", "Lists sessions, newest first.")
            .description(
                "Administrators see all sessions or those of one user, other users their own.",
            )
            .query::<ListSessionsQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .returns::<SessionPage>("A page of sessions")
            .problems(&["forbidden", "invalid_id"]),
        Endpoint::post("/agent/session", create)
            .operation("create_session", "Creates a session.")
            .description("Its settings may narrow those of its user, but never widen them.")
            .body::<CreateSessionRequest>()
            .returns::<SessionView>("The session")
            .problems(COMMAND_PROBLEMS)
            .problems(CREATE_SESSION_PROBLEMS),
        Endpoint::get(item_path, read)
            .operation("read_session", "Returns a session.")
            .returns::<SessionView>("The session, with its `head`")
            .problems(&["session_not_found"]),
        Endpoint::new(Method::DELETE, item_path, close)
            .operation("close_session", "Closes or purges a session.")
            .description(
                "A closed session is read-only. `purge=true` permanently removes the session, \
                 whether it is closed or not.",
            )
            .query::<CloseQuery>()
            .returns::<CloseResponse>("The closed session, or the id of the purged session")
            .problems(COMMAND_PROBLEMS)
            .problems(&["child_session"]),
        Endpoint::new(Method::PATCH, "/agent/session/{session_id}/settings", change_settings)
            .operation(
                "change_session_settings",
                "Changes a session's settings and title; absent fields stay unchanged.",
            )
            .body::<SessionSettingsPatch>()
            .returns::<SessionView>("The session")
            .problems(COMMAND_PROBLEMS)
            .problems(&["settings_widened"]),
        Endpoint::post("/agent/session/{session_id}/cancel", cancel)
            .operation("cancel_run", "Cancels the active run, or the given run.")
            .body::<CancelBody>()
            .returns::<CancelResponse>("The cancelled run")
            .problems(COMMAND_PROBLEMS)
            .problems(&["no_run", "run_not_active"]),
        Endpoint::post("/agent/session/{session_id}/fork", fork)
            .operation("fork_session", "Creates a session that continues this conversation.")
            .body::<ForkBody>()
            .returns::<SessionView>("The new session")
            .problems(COMMAND_PROBLEMS)
            .problems(&["forbidden", "too_many_sessions"]),
    ]
}

/// A session.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
struct SessionView {
    session_id: SessionId,
    /// The owner of the session.
    user_id: UserId,
    agent: AgentName,
    /// The title that a user set, or the beginning of the first message.
    title: Option<String>,
    status: SessionStatus,
    autonomy_level: Autonomy,
    /// True if runs start with a preflight by default.
    preflight: bool,
    #[schema(value_type = Settings)]
    settings: Arc<Settings>,
    /// The model usage so far.
    usage: ModelUsage,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// The number of the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<Seq>,
    /// The call that started the session, if it is a child session.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<ParentView>,
    /// The newest child sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Vec<ChildView>>,
    /// Entries of `blocked_tools` that match no tool. Only after a change of settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
}

/// The call of another session that started a child session.
#[derive(Serialize, ToSchema)]
struct ParentView {
    session_id: SessionId,
    run_id: RunId,
    call_id: CallId,
    /// The run of the root session.
    root: RootRun,
    /// Number of sessions above the child session.
    depth: u32,
}

impl From<&Parent> for ParentView {
    fn from(parent: &Parent) -> Self {
        let Parent { session_id, run_id, call_id, root, depth, bounds: _ } = *parent;
        Self { session_id, run_id, call_id, root, depth }
    }
}

/// A child session.
#[derive(Serialize, ToSchema)]
struct ChildView {
    session_id: SessionId,
    /// The call that started the session.
    call_id: Option<CallId>,
    agent: AgentName,
    title: Option<String>,
    status: SessionStatus,
}

impl From<SessionRow> for ChildView {
    fn from(row: SessionRow) -> Self {
        Self {
            session_id: row.session_id,
            call_id: row.parent.map(|parent| parent.call_id),
            agent: row.agent,
            title: row.title,
            status: row.status,
        }
    }
}

impl From<SessionRow> for SessionView {
    fn from(row: SessionRow) -> Self {
        Self {
            parent: row.parent.as_deref().map(ParentView::from),
            children: None,
            session_id: row.session_id,
            user_id: row.owner,
            agent: row.agent,
            title: row.title,
            status: row.status,
            autonomy_level: row.settings.autonomy_level,
            preflight: row.settings.preflight,
            settings: row.settings,
            usage: row.usage,
            created_at: row.created_at,
            updated_at: row.updated_at,
            head: None,
            warnings: None,
        }
    }
}

/// A page of sessions.
#[derive(Serialize, ToSchema)]
struct SessionPage {
    /// The sessions, newest first.
    sessions: Vec<SessionView>,
    /// The value of `before` for the next page; `null` on the last page.
    next: Option<SessionId>,
}

/// A closed or purged session.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum CloseResponse {
    Closed(Box<SessionView>),
    Purged(PurgeResponse),
}

/// A purged session.
#[derive(Serialize, ToSchema)]
struct PurgeResponse {
    session_id: SessionId,
    status: PurgedStatus,
}

/// The status of a purged session.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum PurgedStatus {
    Purged,
}

/// A cancelled run.
#[derive(Serialize, ToSchema)]
struct CancelResponse {
    session_id: SessionId,
    run_id: RunId,
    /// Always `cancelled`.
    status: &'static str,
}

/// Returns a redacted response (E7): a title may quote a message.
fn redacted_response(state: &State, view: &impl Serialize) -> HttpResponse {
    HttpResponse::Ok().json(state.redactor.redact(view))
}

/// `POST /agent/session`
async fn create(
    state: State,
    caller: Caller,
    Json(request): Json<CreateSessionRequest>,
) -> Result<HttpResponse, Problem> {
    let row = commands::create_session(&state, &caller.0, request).await?;
    Ok(redacted_response(&state, &SessionView::from(row)))
}

#[derive(Deserialize, IntoParams)]
pub(super) struct ListSessionsQuery {
    /// Maximum number of sessions.
    limit: Option<usize>,
    /// Only sessions that were created before this one.
    #[param(value_type = Option<SessionId>)]
    before: Option<String>,
    /// Only sessions of this user; only administrators may name another user.
    #[param(value_type = Option<UserId>)]
    user_id: Option<String>,
    /// Only child sessions of this session.
    #[param(value_type = Option<SessionId>)]
    parent: Option<String>,
    /// True to include child sessions.
    #[serde(default)]
    children: bool,
}

/// `GET /agent/session`: root sessions; `?children=true` also includes child sessions, `?parent=`
/// selects the children of one session.
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let query: ListSessionsQuery = extract::parse_query(&request)?;
    let user = extract::parse_optional_id("user_id", query.user_id.as_deref())?;
    let owner = match user {
        Some(user) => Some(commands::resolve_acting_user(&caller.0, Some(user))?),
        // Administrators see all sessions.
        None if caller.0.is_admin() => None,
        None => Some(caller.0.user.clone()),
    };
    let before = extract::parse_optional_id::<SessionId>("before", query.before.as_deref())?;
    let limit = extract::validate_page_size("limit", query.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    // One row more than the page shows if there is another page.
    let parent = extract::parse_optional_id::<SessionId>("parent", query.parent.as_deref())?;
    let parent_filter = match parent {
        Some(parent) => ParentFilter::ChildrenOf(parent),
        None if query.children => ParentFilter::Any,
        None => ParentFilter::Roots,
    };
    let query = SessionQuery { owner, parent_filter, before, limit: limit + 1 };
    let mut rows = state.runtime.journal.list_sessions(query).await?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| row.session_id);
    let sessions = rows.into_iter().map(SessionView::from).collect();
    Ok(redacted_response(&state, &SessionPage { sessions, next }))
}

/// `GET /agent/session/{session_id}`
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let session_id = extract::path_id(&request, "session_id")?;
    let row = commands::load_visible_session(&state, &caller.0, session_id).await?;
    let head = Some(state.runtime.journal.load_head(session_id).await?);
    let children = list_children(&state, session_id).await?;
    let children = Some(children.into_iter().map(ChildView::from).collect());
    Ok(redacted_response(&state, &SessionView { head, children, ..row.into() }))
}

/// Returns the newest child sessions (S8); `GET /agent/session?parent=` lists all.
async fn list_children(state: &State, parent: SessionId) -> Result<Vec<SessionRow>, Problem> {
    let parent_filter = ParentFilter::ChildrenOf(parent);
    let query = SessionQuery { parent_filter, limit: PAGE_LIMITS.1, ..SessionQuery::default() };
    Ok(state.runtime.journal.list_sessions(query).await?)
}

#[derive(Deserialize, IntoParams)]
pub(super) struct CloseQuery {
    /// True to remove the session permanently.
    #[serde(default)]
    purge: bool,
}

/// `DELETE /agent/session/{session_id}`: closes the session, which then is read-only;
/// `?purge=true` removes it permanently.
async fn close(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let session_id = extract::path_id(&request, "session_id")?;
    let purge = extract::parse_query::<CloseQuery>(&request)?.purge;
    let row = commands::load_visible_session(&state, &caller.0, session_id).await?;
    if let Some(parent) = row.parent.filter(|_| purge) {
        let parent = parent.session_id;
        if state.runtime.journal.load_session(parent).await?.is_some() {
            let detail = "a child session cannot be purged; purge its parent session";
            return Err(Problem::new(StatusCode::CONFLICT, "child_session", detail)
                .with_member("parent", parent));
        }
    }
    if purge {
        state.runtime.purge(session_id, caller.0.user.clone()).await?;
        let purged = PurgeResponse { session_id, status: PurgedStatus::Purged };
        return Ok(HttpResponse::Ok().json(CloseResponse::Purged(purged)));
    }
    let input = Input::CloseSession { by: caller.0.user.clone(), partial: None };
    state.runtime.execute(session_id, input).await?;
    let row = commands::load_visible_session(&state, &caller.0, session_id).await?;
    Ok(redacted_response(&state, &CloseResponse::Closed(Box::new(row.into()))))
}

/// The patch of a session's settings, with its `title`.
struct SessionSettingsPatch;

impl PartialSchema for SessionSettingsPatch {
    fn schema() -> RefOr<Schema> {
        let title = ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .max_length(Some(TITLE_CHARS_MAX));
        extend_schema::<SettingsPatch>(ObjectBuilder::new().property("title", title))
    }
}

impl ToSchema for SessionSettingsPatch {
    fn name() -> Cow<'static, str> {
        "SessionSettingsPatch".into()
    }

    fn schemas(schemas: &mut Schemas) {
        SettingsPatch::schemas(schemas);
    }
}

/// `PATCH /agent/session/{session_id}/settings`: absent fields stay unchanged.
async fn change_settings(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(mut body): Json<serde_json::Map<String, Value>>,
) -> Result<HttpResponse, Problem> {
    let session_id = extract::path_id(&request, "session_id")?;
    let row = commands::load_visible_session(&state, &caller.0, session_id).await?;
    let title = match body.remove("title") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(Value::String(title)) => Some(Some(commands::validate_title(title)?)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(Problem::invalid("title", "`title` must be a string or null"));
        }
    };
    let patch: SettingsPatch = extract::deserialize_value(Value::Object(body))?;
    let _guard = state.settings_lock.read().await;
    // Unchanged settings are within those of the user: narrowing a user narrows its sessions.
    let ceiling = state.ceiling(&caller.0, Some(&row.agent), &row.owner);
    session_settings(&state.load_user_settings(&row.owner).await?, &patch, &ceiling)?;
    let warnings = Some(block_warnings(&state, &patch)).filter(|warnings| !warnings.is_empty());
    let input = Input::ChangeSettings { patch, title, by: caller.0.user.clone() };
    state.runtime.execute(session_id, input).await?;
    let row = commands::load_visible_session(&state, &caller.0, session_id).await?;
    Ok(redacted_response(&state, &SessionView { warnings, ..row.into() }))
}

/// The start of a fork.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ForkBody {
    /// The last event that the fork takes over; by default the newest.
    at_seq: Option<Seq>,
    /// The title of the fork; by default that of the source.
    #[schema(max_length = 200)]
    title: Option<String>,
}

/// `POST /agent/session/{session_id}/fork`
async fn fork(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<ForkBody>,
) -> Result<HttpResponse, Problem> {
    let session_id = extract::path_id(&request, "session_id")?;
    let source = commands::load_visible_session(&state, &caller.0, session_id).await?;
    let row = commands::fork_session(&state, &caller.0, &source, body.at_seq, body.title).await?;
    Ok(redacted_response(&state, &SessionView::from(row)))
}

/// The run to cancel.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelBody {
    /// The run; by default the active run.
    #[serde(default)]
    run_id: Option<RunId>,
}

/// `POST /agent/session/{session_id}/cancel`
async fn cancel(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<CancelBody>,
) -> Result<HttpResponse, Problem> {
    let session_id = extract::path_id(&request, "session_id")?;
    let row = commands::load_visible_session(&state, &caller.0, session_id).await?;
    let run_id = commands::cancel_run(&state, &caller.0, &row, body.run_id).await?;
    Ok(HttpResponse::Ok().json(CancelResponse { session_id, run_id, status: "cancelled" }))
}
