//! API keys, for administrators (X2): make one and show it once, list them, revoke one.

use super::{
    Problem, State,
    access_control::{self, Caller, SURFACE_HEADER},
    endpoint::Endpoint,
    extract::{self, Json},
};
use crate::{
    audit::{AuditAction, AuditActor, AuditEntry, AuditOutcome},
    auth::{
        ApiKey, KeyId, KeyStore, Role,
        api_key::{self, KEY_NAME_CHARS_MAX, KEYS_MAX},
    },
};
use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode},
};
use greenroom_core::ids::UserId;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/admin/keys", list)
            .operation("list_keys", "API keys, revoked ones too.")
            .returns::<Keys>("The keys, the oldest first; none shows what it opens with")
            .problems(&["forbidden", "not_found"]),
        Endpoint::post("/admin/keys", create)
            .operation("create_key", "Makes an API key.")
            .header(SURFACE_HEADER, "`cli` or `rest`: through what it is made")
            .body::<CreateKeyRequest>()
            .returns_with_status::<CreateKeyResponse>(201, "The one answer that has the key itself")
            .problems(&["forbidden", "not_found", "surface_invalid", "too_many_keys", "internal"]),
        Endpoint::new(Method::DELETE, "/admin/keys/{key_id}", revoke)
            .operation("revoke_key", "Revokes an API key; it opens nothing from here on.")
            .header(SURFACE_HEADER, "`cli` or `rest`: through what it is revoked")
            .returns::<ApiKey>("The key as it is now")
            .problems(&["forbidden", "not_found", "surface_invalid", "key_not_found"]),
    ]
}

/// API keys.
#[derive(Serialize, ToSchema)]
struct Keys {
    keys: Vec<ApiKey>,
}

/// A key that was just made.
#[derive(Serialize, ToSchema)]
struct CreateKeyResponse {
    #[serde(flatten)]
    key_info: ApiKey,
    /// The key itself, which is shown this once.
    key: String,
}

/// A key to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateKey)]
struct CreateKeyRequest {
    /// Who shall call with it; `user` says the same.
    #[serde(rename = "user_id", alias = "user")]
    user: UserId,
    role: Role,
    /// For people.
    #[serde(default)]
    #[schema(max_length = 100)]
    name: Option<String>,
}

fn key_store(state: &State) -> Result<&dyn KeyStore, Problem> {
    let absent = || Problem::new(StatusCode::NOT_FOUND, "not_found", "this server keeps no keys");
    state.auth.key_store().ok_or_else(absent)
}

fn audit_entry(
    state: &State,
    caller: &Caller,
    request: &HttpRequest,
    action: AuditAction,
    key: &ApiKey,
) -> Result<AuditEntry, Problem> {
    let actor =
        AuditActor::from_principal(&caller.0, access_control::resolve_surface(request, &caller.0)?);
    let details = json!({
        "key_id": key.key_id, "user_id": key.user, "role": key.role, "name": key.name,
    });
    let now = state.runtime.clock.now();
    let entry = AuditEntry::new(now, action, AuditOutcome::Done, Some(actor));
    Ok(AuditEntry { details: Some(details), ..entry })
}

/// `POST /admin/keys`: the one answer that has the key itself.
async fn create(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(wish): Json<CreateKeyRequest>,
) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let store = key_store(&state)?;
    let too_long = |name: &String| name.chars().count() > KEY_NAME_CHARS_MAX;
    if wish.name.as_ref().is_some_and(too_long) {
        let detail = format!("may have at most {KEY_NAME_CHARS_MAX} characters");
        return Err(Problem::invalid("name", detail));
    }
    if store.list_keys().await?.len() >= KEYS_MAX {
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
    let text = api_key::generate_key();
    let hash = api_key::hash_key(&text).ok_or_else(|| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "internal", "the fresh key has not the form of one")
    })?;
    let entry = audit_entry(&state, &caller, &request, AuditAction::KeyCreated, &key)?;
    store.store_key(&key, hash, entry).await?;
    tracing::info!(key_id = %key.key_id, user = %key.user, role = %key.role, "key created");
    let fresh = CreateKeyResponse { key_info: key, key: text };
    Ok(HttpResponse::Created().insert_header(("Cache-Control", "no-store")).json(fresh))
}

/// `GET /admin/keys`: revoked ones too.
async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let keys = key_store(&state)?.list_keys().await?;
    Ok(HttpResponse::Ok().json(Keys { keys }))
}

/// `DELETE /admin/keys/{key_id}`: it opens nothing from here on. Again, it changes nothing.
async fn revoke(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let key_id: KeyId = extract::path_id(&request, "key_id")?;
    let found = key_store(&state)?.list_keys().await?.into_iter().find(|key| key.key_id == key_id);
    let unknown = || Problem::new(StatusCode::NOT_FOUND, "key_not_found", "there is no such key");
    let mut key = found.ok_or_else(unknown)?;
    if key.revoked_at.is_none() {
        let now = state.runtime.clock.now();
        let entry = audit_entry(&state, &caller, &request, AuditAction::KeyRevoked, &key)?;
        state.auth.revoke_key(key_id, now, entry).await?;
        tracing::info!(key_id = %key_id, user = %key.user, "key revoked");
        key.revoked_at = Some(now);
    }
    Ok(HttpResponse::Ok().json(key))
}
