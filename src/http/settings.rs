//! Users' settings (G4): one's own, or another's for administrators.

use super::{
    AppState, Problem, State, commands,
    endpoint::{Endpoint, Schemas, extended},
    guard::{self, Caller, SURFACE},
    read::{self, Json},
};
use crate::audit::{Action, Actor, Entry, Outcome};
use actix_web::{HttpRequest, HttpResponse, http::Method};
use greenroom_actors::{ports::SessionQuery, session::CommandError};
use greenroom_core::{
    ids::UserId,
    policy::{Autonomy, Settings, SettingsPatch},
    session::{Input, Rejection, SessionStatus},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{borrow::Cow, sync::Arc};
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{ObjectBuilder, Ref, RefOr, Schema, Type},
};

/// Sessions looked at at once.
const SESSIONS_PAGE: usize = 200;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/settings", read)
            .named("read_settings", "What a user allows.")
            .query::<WhoseQuery>()
            .answers::<UserSettings>("The settings")
            .problems(&["forbidden", "invalid_id"]),
        Endpoint::new(Method::PATCH, "/agent/settings", change)
            .named("change_settings", "Changes what a user allows; what is absent stays.")
            .explained("Sessions that would then be wider than their user are narrowed.")
            .query::<WhoseQuery>()
            .header(SURFACE, "`cli` or `rest`: through what it is changed")
            .body::<SettingsPatch>()
            .answers::<UserSettings>("The settings")
            .problems(&["forbidden", "invalid_id", "surface_invalid"])
            .problems(&["mailbox_full", "draining"]),
    ]
}

/// What a user allows, and who that is.
#[derive(Serialize)]
struct UserSettings<'a> {
    #[serde(flatten)]
    settings: &'a Settings,
    user_id: &'a UserId,
    autonomy_name: &'static str,
}

impl PartialSchema for UserSettings<'_> {
    fn schema() -> RefOr<Schema> {
        let name = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(Autonomy::ALL.map(Autonomy::name)));
        let more = ObjectBuilder::new()
            .property("user_id", Ref::from_schema_name(UserId::name()))
            .required("user_id")
            .property("autonomy_name", name)
            .required("autonomy_name");
        extended::<Settings>(more)
    }
}

impl ToSchema for UserSettings<'_> {
    fn name() -> Cow<'static, str> {
        "UserSettings".into()
    }

    fn schemas(schemas: &mut Schemas) {
        schemas.push((UserId::name().into_owned(), UserId::schema()));
        Settings::schemas(schemas);
    }
}

#[derive(Deserialize, IntoParams)]
struct WhoseQuery {
    /// Another user's, for administrators; `character_id` says the same.
    #[param(value_type = Option<UserId>)]
    #[serde(alias = "character_id")]
    user_id: Option<String>,
}

fn whose(request: &HttpRequest, caller: &Caller) -> Result<UserId, Problem> {
    let query: WhoseQuery = read::query(request)?;
    let user = read::id("user_id", query.user_id.as_deref())?;
    commands::acting_for(&caller.0, user)
}

fn view<'a>(user_id: &'a UserId, settings: &'a Settings) -> UserSettings<'a> {
    UserSettings { settings, user_id, autonomy_name: settings.autonomy_level.name() }
}

/// `GET /agent/settings`
async fn read(state: State, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let user = whose(&request, &caller)?;
    let settings = state.user_settings(&user).await?;
    Ok(HttpResponse::Ok().json(view(&user, &settings)))
}

/// `PATCH /agent/settings`: what is absent stays.
async fn change(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(patch): Json<SettingsPatch>,
) -> Result<HttpResponse, Problem> {
    let user = whose(&request, &caller)?;
    let actor = Actor::calling(&caller.0, guard::surface(&request, &caller.0)?);
    let settings = store(&state, &actor, &user, &patch).await?;
    tracing::info!(user = %user, by = %caller.0.user, "settings changed");
    Ok(HttpResponse::Ok().json(view(&user, &settings)))
}

async fn store(
    state: &AppState,
    actor: &Actor,
    user: &UserId,
    patch: &SettingsPatch,
) -> Result<Settings, Problem> {
    let _alone = state.settings_lock.write().await;
    let settings = patch.applied_to(&state.user_settings(user).await?)?;
    // Sessions first: what fails half-way leaves them narrower than need be, never wider.
    narrow_sessions(state, actor, user, &settings).await?;
    state.runtime.journal.put_settings(user, &settings).await?;
    let actor = Some(actor.clone());
    let (action, now) = (Action::UserSettingsChanged, state.runtime.clock.now());
    let details = Some(json!({"user_id": user, "settings": settings}));
    state.note(Entry { details, ..Entry::new(now, action, Outcome::Done, actor) }).await?;
    Ok(settings)
}

/// Narrows the user's sessions to what the user allows from now on (G4).
async fn narrow_sessions(
    state: &AppState,
    actor: &Actor,
    user: &UserId,
    allowed: &Settings,
) -> Result<(), Problem> {
    let runtime = &state.runtime;
    let mut before = None;
    loop {
        let (owner, limit) = (Some(user.clone()), SESSIONS_PAGE);
        let query = SessionQuery { owner, before, limit, ..SessionQuery::default() };
        let page = runtime.journal.sessions(query).await?;
        for session in page.iter().filter(|session| session.status != SessionStatus::Closed) {
            if session.settings.check_within(allowed).is_ok() {
                continue;
            }
            let input = match session.parent {
                Some(_) => Input::Narrow { within: Arc::new(allowed.clone()) },
                None => Input::ChangeSettings {
                    change: session.settings.within(allowed).into(),
                    title: None,
                    by: actor.user.clone(),
                },
            };
            match runtime.command(session.session_id, input).await {
                // Closed meanwhile; or it rests, and is narrowed when it comes back.
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
