//! The settings of a user (G4): the caller's own, or those of another user for administrators.

use super::{
    AppState, Problem, State,
    access_control::{self, Caller, SURFACE_HEADER},
    commands,
    endpoint::{Endpoint, Schemas, extend_schema},
    extract::{self, Json},
};
use crate::audit::{AuditAction, AuditActor, AuditEntry, AuditOutcome};
use actix_web::{HttpRequest, HttpResponse, http::Method};
use greenroom_actors::{ports::SessionQuery, session::CommandError};
use greenroom_core::{
    ids::UserId,
    policy::{Autonomy, CeilingLimit, EffectiveCeiling, Settings, SettingsPatch},
    session::{Input, Rejection, SessionStatus},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{borrow::Cow, sync::Arc};
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{ArrayBuilder, ObjectBuilder, Ref, RefOr, Schema, Type},
};

/// Number of sessions that are read at a time.
const SESSIONS_PAGE: usize = 200;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/settings", read)
            .operation("read_settings", "Returns a user's settings.")
            .query::<SettingsQuery>()
            .returns::<UserSettings>("The settings")
            .problems(&["forbidden", "invalid_id"]),
        Endpoint::new(Method::PATCH, "/agent/settings", change)
            .operation(
                "change_settings",
                "Changes a user's settings; absent fields stay unchanged.",
            )
            .description(
                "Sessions whose settings exceed the new ones are narrowed. A value that exceeds a \
                 ceiling is rejected; stored values that exceed one are narrowed in `effective`.",
            )
            .query::<SettingsQuery>()
            .header(SURFACE_HEADER, "The surface of the change: `cli` or `rest`")
            .body::<SettingsPatch>()
            .returns::<UserSettings>("The settings")
            .problems(&["forbidden", "invalid_id", "surface_invalid", "settings_widened"])
            .problems(&["mailbox_full", "draining"]),
    ]
}

/// A user's settings, with the user's id.
#[derive(Serialize)]
struct UserSettings<'a> {
    #[serde(flatten)]
    settings: &'a Settings,
    user_id: &'a UserId,
    autonomy_name: &'static str,
    /// The settings that apply: narrowed to the ceilings (G17).
    effective: Cow<'a, Settings>,
    /// The limits of the ceilings.
    ceilings: Vec<CeilingLimit>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Returns a warning for each name or glob in `blocked_tools` that matches no tool at present, if the
/// patch sets the list. The entry is kept: its tool's server may be unavailable.
pub(super) fn block_warnings(state: &AppState, patch: &SettingsPatch) -> Vec<String> {
    let registry = state.runtime.tools.tool_registry();
    let unmatched = registry.unmatched_globs(patch.blocked_tools.iter().flatten());
    unmatched.into_iter().map(|name| format!("blocked_tools: `{name}` matches no tool")).collect()
}

/// Returns the schema of [`block_warnings`].
pub(super) fn warnings_schema() -> impl Into<RefOr<Schema>> {
    ArrayBuilder::new()
        .items(ObjectBuilder::new().schema_type(Type::String))
        .description(Some("Entries of `blocked_tools` that match no tool. Only after a change."))
}

impl PartialSchema for UserSettings<'_> {
    fn schema() -> RefOr<Schema> {
        let name = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(Autonomy::ALL.map(Autonomy::name)));
        let additional = ObjectBuilder::new()
            .property("user_id", Ref::from_schema_name(UserId::name()))
            .required("user_id")
            .property("effective", Ref::from_schema_name(Settings::name()))
            .required("effective")
            .property("ceilings", Vec::<CeilingLimit>::schema())
            .required("ceilings")
            .property("autonomy_name", name)
            .required("autonomy_name")
            .property("warnings", warnings_schema());
        extend_schema::<Settings>(additional)
    }
}

impl ToSchema for UserSettings<'_> {
    fn name() -> Cow<'static, str> {
        "UserSettings".into()
    }

    fn schemas(schemas: &mut Schemas) {
        schemas.push((UserId::name().into_owned(), UserId::schema()));
        schemas.push((Settings::name().into_owned(), Settings::schema()));
        Settings::schemas(schemas);
        schemas.push((CeilingLimit::name().into_owned(), CeilingLimit::schema()));
        CeilingLimit::schemas(schemas);
    }
}

#[derive(Deserialize, IntoParams)]
pub(super) struct SettingsQuery {
    /// The user; by default the caller. Only administrators may name another user. `character_id`
    /// is an alias.
    #[param(value_type = Option<UserId>)]
    #[serde(alias = "character_id")]
    user_id: Option<String>,
}

fn target_user(request: &HttpRequest, caller: &Caller) -> Result<UserId, Problem> {
    let query: SettingsQuery = extract::parse_query(request)?;
    let user = extract::parse_optional_id("user_id", query.user_id.as_deref())?;
    commands::resolve_acting_user(&caller.0, user)
}

fn settings_view<'a>(
    user_id: &'a UserId,
    settings: &'a Settings,
    ceiling: &EffectiveCeiling,
) -> UserSettings<'a> {
    let autonomy_name = settings.autonomy_level.name();
    let (effective, ceilings) = (ceiling.narrow(settings), ceiling.limits());
    UserSettings { settings, user_id, autonomy_name, effective, ceilings, warnings: Vec::new() }
}

/// `GET /agent/settings`
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let user = target_user(&request, &caller)?;
    let settings = state.load_user_settings(&user).await?;
    let ceiling = state.ceiling(&caller.0, None, &user);
    Ok(HttpResponse::Ok().json(settings_view(&user, &settings, &ceiling)))
}

/// `PATCH /agent/settings`: absent fields stay unchanged.
async fn change(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(patch): Json<SettingsPatch>,
) -> Result<HttpResponse, Problem> {
    let user = target_user(&request, &caller)?;
    let actor = AuditActor::from_principal(
        &caller.0,
        access_control::resolve_surface(&request, &caller.0)?,
    );
    let ceiling = state.ceiling(&caller.0, None, &user);
    ceiling.validate_patch(&patch)?;
    let settings = update_settings(&state, &actor, &user, &patch).await?;
    tracing::info!(user = %user, by = %caller.0.user, "settings changed");
    let warnings = block_warnings(&state, &patch);
    let view = settings_view(&user, &settings, &ceiling);
    Ok(HttpResponse::Ok().json(UserSettings { warnings, ..view }))
}

async fn update_settings(
    state: &AppState,
    actor: &AuditActor,
    user: &UserId,
    patch: &SettingsPatch,
) -> Result<Settings, Problem> {
    let _guard = state.settings_lock.write().await;
    let settings = patch.apply(&state.load_user_settings(user).await?)?;
    // Sessions are narrowed first: a failure midway leaves sessions too narrow, never too wide.
    narrow_sessions(state, actor, user, &settings).await?;
    state.runtime.journal.store_settings(user, &settings).await?;
    let actor = Some(actor.clone());
    let (action, now) = (AuditAction::UserSettingsChanged, state.runtime.clock.now());
    let details = Some(json!({"user_id": user, "settings": settings}));
    state
        .record_audit(AuditEntry {
            details,
            ..AuditEntry::new(now, action, AuditOutcome::Done, actor)
        })
        .await?;
    Ok(settings)
}

/// Narrows the user's sessions to `allowed` (G4).
async fn narrow_sessions(
    state: &AppState,
    actor: &AuditActor,
    user: &UserId,
    allowed: &Settings,
) -> Result<(), Problem> {
    let runtime = &state.runtime;
    let mut before = None;
    loop {
        let (owner, limit) = (Some(user.clone()), SESSIONS_PAGE);
        let query = SessionQuery { owner, before, limit, ..SessionQuery::default() };
        let page = runtime.journal.list_sessions(query).await?;
        for session in page.iter().filter(|session| session.status != SessionStatus::Closed) {
            if session.settings.validate_within(allowed).is_ok() {
                continue;
            }
            let input = match session.parent {
                Some(_) => Input::NarrowSettings { parent_settings: Arc::new(allowed.clone()) },
                None => Input::ChangeSettings {
                    patch: session.settings.narrowed_to(allowed).into(),
                    title: None,
                    by: actor.user.clone(),
                },
            };
            match runtime.execute(session.session_id, input).await {
                // The session was closed since it was listed, or is parked and is narrowed when it
                // is activated.
                Ok(_)
                | Err(
                    CommandError::Rejected(Rejection::SessionClosed) | CommandError::Parked { .. },
                ) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match page.last().filter(|_| page.len() == SESSIONS_PAGE) {
            Some(last) => before = Some(last.session_id),
            None => return Ok(()),
        }
    }
}
