//! Management of API keys for administrators (X2): create, list and revoke.

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

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/admin/keys", list)
            .operation("list_keys", "Lists the API keys, including revoked ones.")
            .returns::<Keys>("The keys without their secrets, oldest first")
            .problems(&["forbidden", "not_found"]),
        Endpoint::post("/admin/keys", create)
            .operation("create_key", "Creates an API key.")
            .header(SURFACE_HEADER, "The surface of the request: `cli` or `rest`")
            .body::<CreateKeyRequest>()
            .returns_with_status::<CreateKeyResponse>(
                201,
                "The key; this is the only response that contains the secret",
            )
            .problems(&["forbidden", "not_found", "surface_invalid", "too_many_keys", "internal"]),
        Endpoint::new(Method::DELETE, "/admin/keys/{key_id}", revoke)
            .operation("revoke_key", "Revokes an API key with immediate effect.")
            .header(SURFACE_HEADER, "The surface of the request: `cli` or `rest`")
            .returns::<ApiKey>("The revoked key")
            .problems(&["forbidden", "not_found", "surface_invalid", "key_not_found"]),
    ]
}

/// A list of API keys.
#[derive(Serialize, ToSchema)]
struct Keys {
    keys: Vec<ApiKey>,
}

/// A key that was just created.
#[derive(Serialize, ToSchema)]
struct CreateKeyResponse {
    #[serde(flatten)]
    key_info: ApiKey,
    /// The secret. Shown only in this response.
    key: String,
}

/// The data of a new API key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateKey)]
pub(super) struct CreateKeyRequest {
    /// The user whom the key authenticates. `user` is an alias.
    #[serde(rename = "user_id", alias = "user")]
    user: UserId,
    /// The role of the key.
    role: Role,
    /// An optional name, shown in lists.
    #[serde(default)]
    #[schema(max_length = 100)]
    name: Option<String>,
}

fn key_store(state: &State) -> Result<&dyn KeyStore, Problem> {
    let no_store =
        || Problem::new(StatusCode::NOT_FOUND, "not_found", "this server has no API keys");
    state.auth.key_store().ok_or_else(no_store)
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

/// `POST /admin/keys`: returns the only response that contains the secret.
async fn create(
    state: State,
    caller: Caller,
    request: HttpRequest,
    Json(body): Json<CreateKeyRequest>,
) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let store = key_store(&state)?;
    let name_chars = body.name.as_ref().map_or(0, |name| name.chars().count());
    if name_chars > KEY_NAME_CHARS_MAX {
        return Err(Problem::too_long("name", name_chars, KEY_NAME_CHARS_MAX, "characters"));
    }
    if store.list_keys().await?.len() >= KEYS_MAX {
        let detail = format!("there are {KEYS_MAX} keys, the maximum, including revoked ones");
        return Err(Problem::too_many("too_many_keys", detail, KEYS_MAX as u64));
    }
    let key = ApiKey {
        key_id: KeyId(state.runtime.new_id()),
        user: body.user,
        role: body.role,
        name: body.name,
        created_at: state.runtime.clock.now(),
        revoked_at: None,
    };
    let text = api_key::generate_key();
    let hash = api_key::hash_key(&text).ok_or_else(|| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "internal", "the generated key is malformed")
    })?;
    let entry = audit_entry(&state, &caller, &request, AuditAction::KeyCreated, &key)?;
    store.store_key(&key, hash, entry).await?;
    tracing::info!(key_id = %key.key_id, user = %key.user, role = %key.role, "key created");
    let response = CreateKeyResponse { key_info: key, key: text };
    Ok(HttpResponse::Created().insert_header(("Cache-Control", "no-store")).json(response))
}

/// `GET /admin/keys`: includes revoked keys.
async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let keys = key_store(&state)?.list_keys().await?;
    Ok(HttpResponse::Ok().json(Keys { keys }))
}

/// `DELETE /admin/keys/{key_id}`: revokes the key with immediate effect. Idempotent.
async fn revoke(
    state: State,
    caller: Caller,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    caller.require_admin()?;
    let key_id: KeyId = extract::path_id(&request, "key_id")?;
    let key = key_store(&state)?.list_keys().await?.into_iter().find(|key| key.key_id == key_id);
    let unknown = || Problem::new(StatusCode::NOT_FOUND, "key_not_found", "API key not found");
    let mut key = key.ok_or_else(unknown)?;
    if key.revoked_at.is_none() {
        let now = state.runtime.clock.now();
        let entry = audit_entry(&state, &caller, &request, AuditAction::KeyRevoked, &key)?;
        state.auth.revoke_key(key_id, now, entry).await?;
        tracing::info!(key_id = %key_id, user = %key.user, "key revoked");
        key.revoked_at = Some(now);
    }
    Ok(HttpResponse::Ok().json(key))
}
