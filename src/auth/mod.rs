//! Authentication and access rights (X1, X2). Does not know HTTP: [`crate::http`] finds the
//! credential in a request and passes it to the [`Authenticator`].
//!
//! Credentials are the admin token and API keys. Each is used directly or exchanged for a browser
//! cookie.

pub mod admin_token;
pub mod api_key;
pub mod browser_cookie;
#[cfg(test)]
mod decoder_fuzz;
mod key_cache;
#[cfg(test)]
mod tests;

pub use admin_token::{AdminToken, AdminTokenError};
pub use api_key::{ApiKey, KeyId, KeyStore};
pub use browser_cookie::CookieSigner;
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

/// The authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The user.
    pub user: UserId,
    /// The role.
    pub role: Role,
    /// The kind of credential.
    pub auth_method: AuthMethod,
    /// The API key; `None` is the admin token.
    pub key_id: Option<KeyId>,
}

/// The kind of credential that authenticated a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// A credential in the request itself, which another site cannot make a browser send.
    Bearer,
    /// A browser cookie.
    Cookie,
}

/// A credential of a request, not yet verified.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    /// `Authorization: Bearer …`.
    Bearer(&'a str),
    /// The value of a cookie that [`Authenticator::issue_cookie`] issued.
    Cookie(&'a str),
}

/// Resolves credentials to principals.
#[derive(Debug)]
pub struct Authenticator {
    admin_token: AdminToken,
    admin: UserId,
    cookie_signer: CookieSigner,
    key_cache: Option<KeyCache>,
}

impl Principal {
    /// True if the role is administrator.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    /// True if the principal may see the session.
    pub fn can_see(&self, session: &SessionRow) -> bool {
        self.is_admin() || session.owner == self.user
    }

    /// True if the principal may see and answer the approval.
    pub fn can_answer(&self, approval: &ApprovalRow) -> bool {
        self.role >= Role::Approver || approval.owner == self.user
    }

    /// True if the principal may act for `user`.
    pub fn can_act_for(&self, user: &UserId) -> bool {
        self.is_admin() || *user == self.user
    }

    /// Returns the surface that is recorded for answers over HTTP.
    pub fn surface(&self) -> Surface {
        match self.auth_method {
            AuthMethod::Bearer => Surface::Rest,
            AuthMethod::Cookie => Surface::Dashboard,
        }
    }

    /// Returns the name of the credential for the audit log, without the secret.
    pub fn credential_name(&self) -> String {
        match self.key_id {
            Some(key_id) => format!("key:{key_id}"),
            None => "admin_token".to_owned(),
        }
    }
}

impl Authenticator {
    /// Creates an authenticator that accepts only the admin token.
    pub fn new(admin_token: AdminToken) -> Self {
        let admin = UserId::parse("admin").expect("`admin` is a valid user id");
        let cookie_signer = CookieSigner::from_admin_token(&admin_token);
        Self { admin_token, admin, cookie_signer, key_cache: None }
    }

    /// Also accepts the API keys of `store`.
    pub fn with_key_store(mut self, store: Arc<dyn KeyStore>) -> Self {
        self.key_cache = Some(KeyCache::new(store));
        self
    }

    /// Returns the store of API keys, if there is one.
    pub fn key_store(&self) -> Option<&dyn KeyStore> {
        self.key_cache.as_ref().map(KeyCache::store)
    }

    /// Returns the principal of a credential, or `None` if the credential is not valid. Errors if the
    /// API keys cannot be loaded.
    pub async fn authenticate(
        &self,
        credential: Credential<'_>,
        now: Timestamp,
    ) -> Result<Option<Principal>, JournalError> {
        match credential {
            Credential::Bearer(secret) => match self.identify_credential(secret) {
                Some(credential) => self.resolve_principal(credential, AuthMethod::Bearer).await,
                None => Ok(None),
            },
            Credential::Cookie(cookie) => match self.cookie_signer.verify(cookie, now) {
                Some(credential) => self.resolve_principal(credential, AuthMethod::Cookie).await,
                None => Ok(None),
            },
        }
    }

    /// Exchanges the admin token or an API key for the value of a new cookie (X3).
    pub async fn issue_cookie(
        &self,
        secret: &str,
        now: Timestamp,
    ) -> Result<Option<String>, JournalError> {
        let Some(credential) = self.identify_credential(secret) else { return Ok(None) };
        let principal = self.resolve_principal(credential, AuthMethod::Cookie).await?;
        Ok(principal.map(|_| self.cookie_signer.issue(credential, now)))
    }

    /// True unless the principal's API key was revoked. Streams and sockets end with their key.
    pub fn is_still_valid(&self, principal: &Principal) -> bool {
        let is_revoked =
            |key_id| self.key_cache.as_ref().is_some_and(|keys| keys.is_revoked(key_id));
        !principal.key_id.is_some_and(is_revoked)
    }

    /// Revokes a key. Once this returns `Ok`, the key and its cookies are rejected, and its streams
    /// and sockets end.
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

    /// Returns the kind of credential that the secret could be.
    fn identify_credential(&self, secret: &str) -> Option<CredentialRef> {
        if self.admin_token.matches(secret) {
            return Some(CredentialRef::AdminToken);
        }
        api_key::hash_key(secret).map(CredentialRef::ApiKey)
    }

    async fn resolve_principal(
        &self,
        credential: CredentialRef,
        auth_method: AuthMethod,
    ) -> Result<Option<Principal>, JournalError> {
        let hash = match credential {
            CredentialRef::AdminToken => {
                let (user, role) = (self.admin.clone(), Role::Admin);
                return Ok(Some(Principal { user, role, auth_method, key_id: None }));
            }
            CredentialRef::ApiKey(hash) => hash,
        };
        let Some(keys) = &self.key_cache else { return Ok(None) };
        let key = keys.find(hash).await?;
        Ok(key.map(|key| {
            let (user, role) = (key.user.clone(), key.role);
            Principal { user, role, auth_method, key_id: Some(key.key_id) }
        }))
    }
}
