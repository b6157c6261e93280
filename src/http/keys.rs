//! API keys, for administrators (X2): make one and show it once, list them, revoke one.

use super::{
    Problem, State,
    guard::{self, Caller},
    read::{self, Json},
};
use crate::{
    audit::{Action, Actor, Entry, Outcome},
    auth::{
        ApiKey, KeyId, KeyStore, Role,
        key::{self, KEY_NAME_CHARS_MAX, KEYS_MAX},
    },
};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode};
use greenroom_core::ids::UserId;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
pub(super) struct Wish {
    #[serde(rename = "user_id", alias = "user")]
    user: UserId,
    role: Role,
    #[serde(default)]
    name: Option<String>,
}

fn store(state: &State) -> Result<&dyn KeyStore, Problem> {
    let absent = || Problem::new(StatusCode::NOT_FOUND, "not_found", "this server keeps no keys");
    state.auth.keys().ok_or_else(absent)
}

fn entry(
    state: &State,
    caller: &Caller,
    request: &HttpRequest,
    action: Action,
    key: &ApiKey,
) -> Result<Entry, Problem> {
    let actor = Actor::calling(&caller.0, guard::surface(request, &caller.0)?);
    let details = json!({
        "key_id": key.key_id, "user_id": key.user, "role": key.role, "name": key.name,
    });
    let now = state.runtime.clock.now();
    let entry = Entry::new(now, action, Outcome::Done, Some(actor));
    Ok(Entry { details: Some(details), ..entry })
}

/// `POST /admin/keys`: the one answer that has the key itself.
pub(super) async fn create(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(wish): Json<Wish>,
) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    let store = store(&state)?;
    let too_long = |name: &String| name.chars().count() > KEY_NAME_CHARS_MAX;
    if wish.name.as_ref().is_some_and(too_long) {
        let detail = format!("may have at most {KEY_NAME_CHARS_MAX} characters");
        return Err(Problem::invalid("name", detail));
    }
    if store.keys().await?.len() >= KEYS_MAX {
        let detail = format!("there are {KEYS_MAX} keys, revoked ones included");
        return Err(Problem::too_many("too_many_keys", detail, KEYS_MAX as u64));
    }
    let key = ApiKey {
        key_id: KeyId(state.runtime.new_id()),
        user: wish.user,
        role: wish.role,
        name: wish.name,
        created_at: state.runtime.clock.now(),
        revoked_at: None,
    };
    let text = key::fresh_key();
    let hash = key::hash_of(&text).ok_or_else(|| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "internal", "the fresh key has not the form of one")
    })?;
    let entry = entry(&state, &caller, &request, Action::KeyCreated, &key)?;
    store.add_key(&key, hash, entry).await?;
    tracing::info!(key_id = %key.key_id, user = %key.user, role = %key.role, "key created");
    let mut view = json!(key);
    view["key"] = json!(text);
    Ok(HttpResponse::Created().insert_header(("Cache-Control", "no-store")).json(view))
}

/// `GET /admin/keys`: revoked ones too.
pub(super) async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    let keys = store(&state)?.keys().await?;
    Ok(HttpResponse::Ok().json(json!({"keys": keys})))
}

/// `DELETE /admin/keys/{key_id}`: it opens nothing from here on. Again, it changes nothing.
pub(super) async fn revoke(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.must_be_admin()?;
    let key_id: KeyId = read::path_id(&request, "key_id")?;
    let found = store(&state)?.keys().await?.into_iter().find(|key| key.key_id == key_id);
    let unknown = || Problem::new(StatusCode::NOT_FOUND, "key_not_found", "there is no such key");
    let mut key = found.ok_or_else(unknown)?;
    if key.revoked_at.is_none() {
        let now = state.runtime.clock.now();
        let entry = entry(&state, &caller, &request, Action::KeyRevoked, &key)?;
        state.auth.revoke_key(key_id, now, entry).await?;
        tracing::info!(key_id = %key_id, user = %key.user, "key revoked");
        key.revoked_at = Some(now);
    }
    Ok(HttpResponse::Ok().json(key))
}
