//! Sessions as resources (S1): create, list, read, change settings, close, cancel.

use super::{
    Problem, State,
    access_control::Caller,
    commands::{self, CreateSessionRequest},
    endpoint::{Endpoint, Schemas, extend_schema},
    extract::{self, Json},
    problem_codes::{COMMAND_PROBLEMS, CREATE_SESSION_PROBLEMS},
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

/// Sessions on a page where the client says nothing, and at most.
const PAGE_LIMITS: (usize, usize) = (50, 200);

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let one = "/agent/session/{session_id}";
    vec![
        Endpoint::get("/agent/session", list)
            .operation("list_sessions", "Sessions, the newest first.")
            .description("Administrators get everybody's, or one user's; others their own.")
            .query::<ListSessionsQuery>()
            .limit_param("limit", PAGE_LIMITS)
            .returns::<SessionPage>("A page of sessions")
            .problems(&["forbidden", "invalid_id"]),
        Endpoint::post("/agent/session", create)
            .operation("create_session", "Creates a session.")
            .description("Its settings may be narrower than its user's, never wider.")
            .body::<CreateSessionRequest>()
            .returns::<SessionView>("The session")
            .problems(COMMAND_PROBLEMS)
            .problems(CREATE_SESSION_PROBLEMS),
        Endpoint::get(one, read)
            .operation("read_session", "A session.")
            .returns::<SessionView>("The session, with its `head`")
            .problems(&["session_not_found"]),
        Endpoint::new(Method::DELETE, one, close)
            .operation("close_session", "Closes a session, or removes it for good.")
            .description(
                "What is closed can still be read. `purge=true` removes it, closed or not.",
            )
            .query::<CloseQuery>()
            .returns::<CloseResponse>("The session as it is now")
            .problems(COMMAND_PROBLEMS)
            .problems(&["child_session"]),
        Endpoint::new(Method::PATCH, "/agent/session/{session_id}/settings", change_settings)
            .operation(
                "change_session_settings",
                "Changes settings and title; what is absent stays.",
            )
            .body::<SessionSettingsPatch>()
            .returns::<SessionView>("The session")
            .problems(COMMAND_PROBLEMS)
            .problems(&["settings_widened"]),
        Endpoint::post("/agent/session/{session_id}/cancel", cancel)
            .operation("cancel_run", "Cancels the run that is going, or the one that is named.")
            .body::<CancelBody>()
            .returns::<CancelResponse>("The run that was cancelled")
            .problems(COMMAND_PROBLEMS)
            .problems(&["no_run", "run_not_active"]),
        Endpoint::post("/agent/session/{session_id}/fork", fork)
            .operation("fork_session", "A new session that goes on from what was said in this one.")
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
    /// Whose it is.
    user_id: UserId,
    agent: AgentName,
    /// What people called it, or else the beginning of its first message.
    title: Option<String>,
    status: SessionStatus,
    autonomy_level: Autonomy,
    /// Whether each message begins with a plan.
    preflight: bool,
    #[schema(value_type = Settings)]
    settings: Arc<Settings>,
    /// What it has used so far.
    usage: ModelUsage,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Its last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<Seq>,
    /// What started it, where no person did.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<ParentView>,
    /// The newest of those that it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Vec<ChildView>>,
}

/// What started a child: a call of another session.
#[derive(Serialize, ToSchema)]
struct ParentView {
    session_id: SessionId,
    run_id: RunId,
    call_id: CallId,
    /// The run that people watch.
    root: RootRun,
    /// How many sessions are above it.
    depth: u32,
}

impl From<&Parent> for ParentView {
    fn from(parent: &Parent) -> Self {
        let Parent { session_id, run_id, call_id, root, depth, bounds: _ } = *parent;
        Self { session_id, run_id, call_id, root, depth }
    }
}

/// A session that another one started.
#[derive(Serialize, ToSchema)]
struct ChildView {
    session_id: SessionId,
    /// The call that it works for.
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
        }
    }
}

/// A page of sessions.
#[derive(Serialize, ToSchema)]
struct SessionPage {
    sessions: Vec<SessionView>,
    /// `before` of the next page, if there is one.
    next: Option<SessionId>,
}

/// A session that was closed, or one that is gone.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum CloseResponse {
    Closed(Box<SessionView>),
    Purged(PurgeResponse),
}

/// A session that is gone.
#[derive(Serialize, ToSchema)]
struct PurgeResponse {
    session_id: SessionId,
    status: PurgedStatus,
}

/// What became of it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum PurgedStatus {
    Purged,
}

/// A run that was cancelled.
#[derive(Serialize, ToSchema)]
struct CancelResponse {
    session_id: SessionId,
    run_id: RunId,
    /// `cancelled`.
    status: &'static str,
}

/// An answer without secrets (E7): a title may be what somebody said.
fn redacted_response(state: &State, view: &impl Serialize) -> HttpResponse {
    HttpResponse::Ok().json(state.redactor.redact(view))
}

/// `POST /agent/session`
async fn create(
    state: State,
    caller: Caller,
    Json(wish): Json<CreateSessionRequest>,
) -> Result<HttpResponse, Problem> {
    let row = commands::create_session(&state, &caller.0, wish).await?;
    Ok(redacted_response(&state, &SessionView::from(row)))
}

#[derive(Deserialize, IntoParams)]
struct ListSessionsQuery {
    limit: Option<usize>,
    /// Only those created before this one.
    #[param(value_type = Option<SessionId>)]
    before: Option<String>,
    /// Only this user's.
    #[param(value_type = Option<UserId>)]
    user_id: Option<String>,
    /// Only those that this session started.
    #[param(value_type = Option<SessionId>)]
    parent: Option<String>,
    /// Whether those that sessions started are among them.
    #[serde(default)]
    children: bool,
}

/// `GET /agent/session`: those that people started; `?children=true` has those that sessions started
/// among them, `?parent=` alone those that this one did.
async fn list(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let query: ListSessionsQuery = extract::parse_query(&request)?;
    let user = extract::parse_optional_id("user_id", query.user_id.as_deref())?;
    let owner = match user {
        Some(user) => Some(commands::resolve_acting_user(&caller.0, Some(user))?),
        // Administrators see everybody's.
        None if caller.0.is_admin() => None,
        None => Some(caller.0.user.clone()),
    };
    let before = extract::parse_optional_id::<SessionId>("before", query.before.as_deref())?;
    let limit = extract::validate_page_size("limit", query.limit, PAGE_LIMITS.0, PAGE_LIMITS.1)?;
    // One more than the page tells whether there is another.
    let parent = extract::parse_optional_id::<SessionId>("parent", query.parent.as_deref())?;
    let descent = match parent {
        Some(parent) => ParentFilter::ChildrenOf(parent),
        None if query.children => ParentFilter::Any,
        None => ParentFilter::Roots,
    };
    let query = SessionQuery { owner, parent_filter: descent, before, limit: limit + 1 };
    let mut rows = state.runtime.journal.list_sessions(query).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.session_id);
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

/// The newest of its children (S8); `GET /agent/session?parent=` lists all.
async fn list_children(state: &State, parent: SessionId) -> Result<Vec<SessionRow>, Problem> {
    let descent = ParentFilter::ChildrenOf(parent);
    let query =
        SessionQuery { parent_filter: descent, limit: PAGE_LIMITS.1, ..SessionQuery::default() };
    Ok(state.runtime.journal.list_sessions(query).await?)
}

#[derive(Deserialize, IntoParams)]
struct CloseQuery {
    /// Whether to remove it for good.
    #[serde(default)]
    purge: bool,
}

/// `DELETE /agent/session/{session_id}`: closes it, and it can still be read; or, with
/// `?purge=true`, removes it for good.
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
            let detail = "it is gone with the session that started it, and not before";
            return Err(
                Problem::new(StatusCode::CONFLICT, "child_session", detail).with("parent", parent)
            );
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

/// Changes to a session's settings, and its `title`.
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

/// `PATCH /agent/session/{session_id}/settings`: settings and `title`; what is absent stays.
async fn change_settings(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(mut wish): Json<serde_json::Map<String, Value>>,
) -> Result<HttpResponse, Problem> {
    let session_id = extract::path_id(&request, "session_id")?;
    let row = commands::load_visible_session(&state, &caller.0, session_id).await?;
    let title = match wish.remove("title") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(Value::String(title)) => Some(Some(commands::validate_title(title)?)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(Problem::invalid("title", "title must be a string or null"));
        }
    };
    let change: SettingsPatch = extract::deserialize_value(Value::Object(wish))?;
    let _unchanged = state.settings_lock.read().await;
    // What stays is within what the user allows: whatever narrows that narrows the session.
    session_settings(&state.load_user_settings(&row.owner).await?, &change)?;
    let input = Input::ChangeSettings { patch: change, title, by: caller.0.user.clone() };
    state.runtime.execute(session_id, input).await?;
    let row = commands::load_visible_session(&state, &caller.0, session_id).await?;
    Ok(redacted_response(&state, &SessionView::from(row)))
}

/// From where.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
struct ForkBody {
    /// The last event that counts; by default the newest.
    at_seq: Option<Seq>,
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

/// Which run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CancelBody {
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
