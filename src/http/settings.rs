//! Users' settings (G4): one's own, or another's for administrators.

use super::{
    AppState, Problem, State, commands,
    guard::{self, Caller},
    read::{self, Json},
};
use crate::audit::{Action, Actor, Entry, Outcome};
use actix_web::{HttpRequest, HttpResponse};
use greenroom_core::{
    ids::UserId,
    policy::{Settings, SettingsPatch},
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct WhoseQuery {
    #[serde(alias = "character_id")]
    user_id: Option<String>,
}

fn whose(request: &HttpRequest, caller: &Caller) -> Result<UserId, Problem> {
    let query: WhoseQuery = read::query(request)?;
    let user = query.user_id.as_deref().map(UserId::parse).transpose()?;
    commands::acting_for(&caller.0, user)
}

fn view(user: &UserId, settings: &Settings) -> Value {
    let mut view = json!(settings);
    view["user_id"] = json!(user);
    view["autonomy_name"] = json!(settings.autonomy_level.name());
    view
}

/// `GET /agent/settings`
pub(super) async fn read(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let user = whose(&request, &caller)?;
    let settings = state.user_settings(&user).await?;
    Ok(HttpResponse::Ok().json(view(&user, &settings)))
}

/// `PATCH /agent/settings`: what is absent stays.
pub(super) async fn change(
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
    let _one_writer = state.settings_writer.lock().await;
    let settings = patch.applied_to(&state.user_settings(user).await?)?;
    state.runtime.journal.put_settings(user, &settings).await?;
    let actor = Some(actor.clone());
    let (action, now) = (Action::UserSettingsChanged, state.runtime.clock.now());
    let details = Some(json!({"user_id": user, "settings": settings}));
    state.note(Entry { details, ..Entry::new(now, action, Outcome::Done, actor) }).await?;
    Ok(settings)
}
