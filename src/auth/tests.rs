use super::*;
use crate::audit::{AuditAction, AuditOutcome};
use async_trait::async_trait;
use greenroom_core::json::Digest;
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use uuid::Uuid;

const TOKEN: &str = "0123456789abcdef";

fn token_only_authenticator() -> Authenticator {
    Authenticator::new(AdminToken::parse(TOKEN).unwrap())
}

#[tokio::test]
async fn x1_only_the_admin_token_authenticates() {
    let auth = token_only_authenticator();
    let now = Timestamp(1_000);
    let admin = auth.authenticate(Credential::Bearer(TOKEN), now).await.unwrap().unwrap();
    assert_eq!((admin.role, admin.auth_method), (Role::Admin, AuthMethod::Bearer));
    let key = api_key::generate_key();
    for wrong in ["", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0", &key] {
        assert_eq!(auth.authenticate(Credential::Bearer(wrong), now).await.unwrap(), None);
        assert_eq!(auth.issue_cookie(wrong, now).await.unwrap(), None);
    }
}

#[tokio::test]
async fn x3_cookie_is_not_a_bearer_token_and_vice_versa() {
    let auth = token_only_authenticator();
    let now = Timestamp(1_000);
    let cookie = auth.issue_cookie(TOKEN, now).await.unwrap().unwrap();
    let admin = auth.authenticate(Credential::Cookie(&cookie), now).await.unwrap().unwrap();
    assert_eq!(admin.auth_method, AuthMethod::Cookie);
    assert_eq!(auth.authenticate(Credential::Bearer(&cookie), now).await.unwrap(), None);
    assert_eq!(auth.authenticate(Credential::Cookie(TOKEN), now).await.unwrap(), None);
}

/// A store with one key, which counts lookups.
struct SingleKeyStore {
    hash: Digest,
    key: Mutex<ApiKey>,
    lookups: AtomicUsize,
}

impl SingleKeyStore {
    fn new(text: &str) -> Arc<Self> {
        let key = ApiKey {
            key_id: KeyId(Uuid::from_u128(7)),
            user: UserId::parse("ada").unwrap(),
            role: Role::Approver,
            name: None,
            created_at: Timestamp(0),
            revoked_at: None,
        };
        let hash = Digest::hash_bytes(text.as_bytes());
        Arc::new(Self { hash, key: Mutex::new(key), lookups: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl KeyStore for SingleKeyStore {
    async fn store_key(&self, _: &ApiKey, _: Digest, _: AuditEntry) -> Result<(), JournalError> {
        Err(JournalError::Unavailable("the store holds one key".to_owned()))
    }

    async fn revoke_key(&self, _: KeyId, at: Timestamp, _: AuditEntry) -> Result<(), JournalError> {
        self.key.lock().unwrap().revoked_at = Some(at);
        Ok(())
    }

    async fn list_keys(&self) -> Result<Vec<ApiKey>, JournalError> {
        Ok(vec![self.key.lock().unwrap().clone()])
    }

    async fn find_key_by_hash(&self, hash: Digest) -> Result<Option<ApiKey>, JournalError> {
        self.lookups.fetch_add(1, Relaxed);
        Ok((hash == self.hash).then(|| self.key.lock().unwrap().clone()))
    }
}

#[tokio::test]
async fn x2_key_and_its_cookie_authenticate_until_revocation() {
    let text = api_key::generate_key();
    let store = SingleKeyStore::new(&text);
    let auth = token_only_authenticator().with_key_store(store.clone());
    let now = Timestamp(1_000);
    let key_id = KeyId(Uuid::from_u128(7));
    let ada = Principal {
        user: UserId::parse("ada").unwrap(),
        role: Role::Approver,
        auth_method: AuthMethod::Bearer,
        key_id: Some(key_id),
    };
    for _ in 0..3 {
        let principal = auth.authenticate(Credential::Bearer(&text), now).await.unwrap();
        assert_eq!(principal, Some(ada.clone()));
    }
    assert_eq!(store.lookups.load(Relaxed), 1, "the key is cached");
    let cookie = auth.issue_cookie(&text, now).await.unwrap().unwrap();
    let by_cookie = auth.authenticate(Credential::Cookie(&cookie), now).await.unwrap();
    assert_eq!(by_cookie, Some(Principal { auth_method: AuthMethod::Cookie, ..ada.clone() }));
    assert!(auth.is_still_valid(&ada));

    let other = api_key::generate_key();
    assert_eq!(auth.authenticate(Credential::Bearer(&other), now).await.unwrap(), None);
    let malformed = auth.authenticate(Credential::Bearer("gr_nonsense"), now).await.unwrap();
    assert_eq!(
        (malformed, store.lookups.load(Relaxed)),
        (None, 2),
        "a malformed key is not looked up"
    );

    let entry = AuditEntry::new(Timestamp(1), AuditAction::KeyRevoked, AuditOutcome::Done, None);
    auth.revoke_key(key_id, Timestamp(1), entry).await.unwrap();
    assert_eq!(auth.authenticate(Credential::Bearer(&text), now).await.unwrap(), None);
    assert_eq!(auth.authenticate(Credential::Cookie(&cookie), now).await.unwrap(), None);
    assert!(!auth.is_still_valid(&ada));
}
