use super::*;
use crate::audit::{Action, Outcome};
use async_trait::async_trait;
use greenroom_core::json::Digest;
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use uuid::Uuid;

const TOKEN: &str = "0123456789abcdef";

fn only_the_token() -> Authenticator {
    Authenticator::new(Token::from_text(TOKEN).unwrap())
}

#[tokio::test]
async fn x1_only_the_token_opens() {
    let auth = only_the_token();
    let now = Timestamp(1_000);
    let admin = auth.authenticate(Credential::Bearer(TOKEN), now).await.unwrap().unwrap();
    assert_eq!((admin.role, admin.via), (Role::Admin, Via::Bearer));
    let key = key::fresh_key();
    for wrong in ["", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0", &key] {
        assert_eq!(auth.authenticate(Credential::Bearer(wrong), now).await.unwrap(), None);
        assert_eq!(auth.open_browser_session(wrong, now).await.unwrap(), None);
    }
}

#[tokio::test]
async fn x3_a_cookie_is_not_a_bearer_token_nor_the_other_way_round() {
    let auth = only_the_token();
    let now = Timestamp(1_000);
    let cookie = auth.open_browser_session(TOKEN, now).await.unwrap().unwrap();
    let admin = auth.authenticate(Credential::Cookie(&cookie), now).await.unwrap().unwrap();
    assert_eq!(admin.via, Via::Cookie);
    assert_eq!(auth.authenticate(Credential::Bearer(&cookie), now).await.unwrap(), None);
    assert_eq!(auth.authenticate(Credential::Cookie(TOKEN), now).await.unwrap(), None);
}

/// One key, and how often it was looked up.
struct OneKey {
    hash: Digest,
    key: Mutex<ApiKey>,
    looked_up: AtomicUsize,
}

impl OneKey {
    fn new(text: &str) -> Arc<Self> {
        let key = ApiKey {
            key_id: KeyId(Uuid::from_u128(7)),
            user: UserId::parse("ada").unwrap(),
            role: Role::Approver,
            name: None,
            created_at: Timestamp(0),
            revoked_at: None,
        };
        let hash = Digest::of_bytes(text.as_bytes());
        Arc::new(Self { hash, key: Mutex::new(key), looked_up: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl KeyStore for OneKey {
    async fn add_key(&self, _: &ApiKey, _: Digest, _: Entry) -> Result<(), JournalError> {
        Err(JournalError::Unavailable("it holds one".to_owned()))
    }

    async fn revoke_key(&self, _: KeyId, at: Timestamp, _: Entry) -> Result<(), JournalError> {
        self.key.lock().unwrap().revoked_at = Some(at);
        Ok(())
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, JournalError> {
        Ok(vec![self.key.lock().unwrap().clone()])
    }

    async fn key_of(&self, hash: Digest) -> Result<Option<ApiKey>, JournalError> {
        self.looked_up.fetch_add(1, Relaxed);
        Ok((hash == self.hash).then(|| self.key.lock().unwrap().clone()))
    }
}

#[tokio::test]
async fn x2_a_key_opens_as_its_user_until_it_is_revoked_and_so_does_its_cookie() {
    let text = key::fresh_key();
    let store = OneKey::new(&text);
    let auth = only_the_token().with_keys(store.clone());
    let now = Timestamp(1_000);
    let key_id = KeyId(Uuid::from_u128(7));
    let ada = Principal {
        user: UserId::parse("ada").unwrap(),
        role: Role::Approver,
        via: Via::Bearer,
        key: Some(key_id),
    };
    for _ in 0..3 {
        let principal = auth.authenticate(Credential::Bearer(&text), now).await.unwrap();
        assert_eq!(principal, Some(ada.clone()));
    }
    assert_eq!(store.looked_up.load(Relaxed), 1, "it is remembered");
    let cookie = auth.open_browser_session(&text, now).await.unwrap().unwrap();
    let by_cookie = auth.authenticate(Credential::Cookie(&cookie), now).await.unwrap();
    assert_eq!(by_cookie, Some(Principal { via: Via::Cookie, ..ada.clone() }));
    assert!(auth.still_holds(&ada));

    let other = key::fresh_key();
    assert_eq!(auth.authenticate(Credential::Bearer(&other), now).await.unwrap(), None);
    let nonsense = auth.authenticate(Credential::Bearer("gr_nonsense"), now).await.unwrap();
    assert_eq!((nonsense, store.looked_up.load(Relaxed)), (None, 2), "nonsense costs no look-up");

    let entry = Entry::new(Timestamp(1), Action::KeyRevoked, Outcome::Done, None);
    auth.revoke_key(key_id, Timestamp(1), entry).await.unwrap();
    assert_eq!(auth.authenticate(Credential::Bearer(&text), now).await.unwrap(), None);
    assert_eq!(auth.authenticate(Credential::Cookie(&cookie), now).await.unwrap(), None);
    assert!(!auth.still_holds(&ada));
}
