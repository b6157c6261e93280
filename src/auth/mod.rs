//! Who is calling, and what they may see (X1, X2). Knows nothing of HTTP; [`crate::http`] finds the
//! credential in a request and asks the [`Authenticator`].
//!
//! Credentials are the administrator's token and API keys, used as they are or exchanged for a
//! browser's cookie.

pub mod admin_token;
pub mod api_key;
pub mod browser_cookie;
mod critical_approval;
mod key_cache;
#[cfg(test)]
mod tests;

pub use admin_token::{AdminToken, AdminTokenError};
pub use api_key::{ApiKey, KeyId, KeyStore};
pub use browser_cookie::CookieSigner;
pub use critical_approval::{CriticalApprovalError, CriticalApprovalRule};
pub use greenroom_core::approval::{InvalidRole, Role};

use crate::audit::AuditEntry;
use browser_cookie::CredentialRef;
use greenroom_actors::ports::JournalError;
use greenroom_core::{
    Timestamp,
    approval::Surface,
    ids::UserId,
    session::{ApprovalRow, SessionRow},
};
use key_cache::KeyCache;
use std::sync::Arc;

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Who.
    pub user: UserId,
    /// What they may do.
    pub role: Role,
    /// How they showed who they are.
    pub auth_method: AuthMethod,
    /// With which key; `None` is the administrator's token.
    pub key_id: Option<KeyId>,
}

/// How somebody showed who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// A credential in the request itself, which no other site can make a browser send.
    Bearer,
    /// A browser's cookie.
    Cookie,
}

/// A credential as it came.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    /// `Authorization: Bearer …`.
    Bearer(&'a str),
    /// The cookie a browser got for the first link.
    Cookie(&'a str),
}

/// Tells who a credential belongs to.
#[derive(Debug)]
pub struct Authenticator {
    admin_token: AdminToken,
    admin: UserId,
    cookie_signer: CookieSigner,
    key_cache: Option<KeyCache>,
}

impl Principal {
    /// Whether they are an administrator.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    /// Whether they may know that the session exists.
    pub fn can_see(&self, session: &SessionRow) -> bool {
        self.is_admin() || session.owner == self.user
    }

    /// Whether they may see and answer the question.
    pub fn can_answer(&self, approval: &ApprovalRow) -> bool {
        self.role >= Role::Approver || approval.owner == self.user
    }

    /// Whether they may act for that user.
    pub fn can_act_for(&self, user: &UserId) -> bool {
        self.is_admin() || *user == self.user
    }

    /// What their answers to approvals are recorded to have come through, over HTTP.
    pub fn surface(&self) -> Surface {
        match self.auth_method {
            AuthMethod::Bearer => Surface::Rest,
            AuthMethod::Cookie => Surface::Dashboard,
        }
    }

    /// Which credential it was, for the audit log: not the secret.
    pub fn credential_name(&self) -> String {
        match self.key_id {
            Some(key_id) => format!("key:{key_id}"),
            None => "admin_token".to_owned(),
        }
    }
}

impl Authenticator {
    /// One that knows the administrator's token alone.
    pub fn new(admin_token: AdminToken) -> Self {
        let admin = UserId::parse("admin").expect("a short name without control characters");
        let cookie_signer = CookieSigner::from_admin_token(&admin_token);
        Self { admin_token, admin, cookie_signer, key_cache: None }
    }

    /// It also knows the API keys that are kept there.
    pub fn with_key_store(mut self, store: Arc<dyn KeyStore>) -> Self {
        self.key_cache = Some(KeyCache::new(store));
        self
    }

    /// Where the keys are kept, if there are any at all.
    pub fn key_store(&self) -> Option<&dyn KeyStore> {
        self.key_cache.as_ref().map(KeyCache::store)
    }

    /// Whose credential it is, if anybody's. Errs when the keys can't be read.
    pub async fn authenticate(
        &self,
        credential: Credential<'_>,
        now: Timestamp,
    ) -> Result<Option<Principal>, JournalError> {
        match credential {
            Credential::Bearer(secret) => match self.identify_credential(secret) {
                Some(behind) => self.resolve_principal(behind, AuthMethod::Bearer).await,
                None => Ok(None),
            },
            Credential::Cookie(cookie) => match self.cookie_signer.verify(cookie, now) {
                Some(behind) => self.resolve_principal(behind, AuthMethod::Cookie).await,
                None => Ok(None),
            },
        }
    }

    /// Exchanges the token of the first link, or a key, for a new cookie's value (X3).
    pub async fn issue_cookie(
        &self,
        secret: &str,
        now: Timestamp,
    ) -> Result<Option<String>, JournalError> {
        let Some(behind) = self.identify_credential(secret) else { return Ok(None) };
        let owner = self.resolve_principal(behind, AuthMethod::Cookie).await?;
        Ok(owner.map(|_| self.cookie_signer.issue(behind, now)))
    }

    /// Whether the credential of somebody who got in earlier still works: what a key has opened
    /// ends with it.
    pub fn is_still_valid(&self, principal: &Principal) -> bool {
        let revoked = |key_id| self.key_cache.as_ref().is_some_and(|keys| keys.is_revoked(key_id));
        !principal.key_id.is_some_and(revoked)
    }

    /// Revokes a key: once this returns `Ok` it opens nothing, nor does anything it has opened.
    pub async fn revoke_key(
        &self,
        key_id: KeyId,
        at: Timestamp,
        entry: AuditEntry,
    ) -> Result<(), JournalError> {
        let Some(keys) = &self.key_cache else { return Ok(()) };
        keys.store().revoke_key(key_id, at, entry).await?;
        keys.mark_revoked(key_id);
        Ok(())
    }

    /// What kind of credential the text could be.
    fn identify_credential(&self, secret: &str) -> Option<CredentialRef> {
        if self.admin_token.matches(secret) {
            return Some(CredentialRef::AdminToken);
        }
        api_key::hash_key(secret).map(CredentialRef::ApiKey)
    }

    async fn resolve_principal(
        &self,
        behind: CredentialRef,
        via: AuthMethod,
    ) -> Result<Option<Principal>, JournalError> {
        let hash = match behind {
            CredentialRef::AdminToken => {
                let (user, role) = (self.admin.clone(), Role::Admin);
                return Ok(Some(Principal { user, role, auth_method: via, key_id: None }));
            }
            CredentialRef::ApiKey(hash) => hash,
        };
        let Some(keys) = &self.key_cache else { return Ok(None) };
        let key = keys.find(hash).await?;
        Ok(key.map(|key| {
            let (user, role) = (key.user.clone(), key.role);
            Principal { user, role, auth_method: via, key_id: Some(key.key_id) }
        }))
    }
}
