//! Who is calling, and what they may see (X1, X2). Knows nothing of HTTP; [`crate::http`] finds the
//! credential in a request and asks the [`Authenticator`].
//!
//! Credentials are the administrator's token and API keys, used as they are or exchanged for a
//! browser's cookie.

pub mod browser;
mod critical;
pub mod key;
mod key_ring;
#[cfg(test)]
mod tests;
pub mod token;

pub use browser::Cookies;
pub use critical::{CriticalRule, NotYours};
pub use greenroom_core::approval::{Role, UnknownRole};
pub use key::{ApiKey, KeyId, KeyStore};
pub use token::{Token, TokenError};

use crate::audit::Entry;
use browser::Behind;
use greenroom_actors::ports::JournalError;
use greenroom_core::{
    Timestamp,
    approval::Surface,
    ids::UserId,
    session::{ApprovalRow, SessionRow},
};
use key_ring::KeyRing;
use std::sync::Arc;

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Who.
    pub user: UserId,
    /// What they may do.
    pub role: Role,
    /// How they showed who they are.
    pub via: Via,
    /// With which key; `None` is the administrator's token.
    pub key: Option<KeyId>,
}

/// How somebody showed who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
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
    admin_token: Token,
    admin: UserId,
    cookies: Cookies,
    keys: Option<KeyRing>,
}

impl Principal {
    /// Whether they are an administrator.
    pub fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    /// Whether they may know that the session exists.
    pub fn may_see(&self, session: &SessionRow) -> bool {
        self.is_admin() || session.owner == self.user
    }

    /// Whether they may see and answer the question.
    pub fn may_decide(&self, approval: &ApprovalRow) -> bool {
        self.role >= Role::Approver || approval.owner == self.user
    }

    /// Whether they may act for that user.
    pub fn may_act_for(&self, user: &UserId) -> bool {
        self.is_admin() || *user == self.user
    }

    /// What their answers to approvals are recorded to have come through, over HTTP.
    pub fn surface(&self) -> Surface {
        match self.via {
            Via::Bearer => Surface::Rest,
            Via::Cookie => Surface::Dashboard,
        }
    }

    /// Which credential it was, for the audit log: not the secret.
    pub fn credential(&self) -> String {
        match self.key {
            Some(key_id) => format!("key:{key_id}"),
            None => "admin_token".to_owned(),
        }
    }
}

impl Authenticator {
    /// One that knows the administrator's token alone.
    pub fn new(admin_token: Token) -> Self {
        let admin = UserId::parse("admin").expect("a short name without control characters");
        let cookies = Cookies::signed_by(&admin_token);
        Self { admin_token, admin, cookies, keys: None }
    }

    /// It also knows the API keys that are kept there.
    pub fn with_keys(mut self, store: Arc<dyn KeyStore>) -> Self {
        self.keys = Some(KeyRing::new(store));
        self
    }

    /// Where the keys are kept, if there are any at all.
    pub fn keys(&self) -> Option<&dyn KeyStore> {
        self.keys.as_ref().map(KeyRing::store)
    }

    /// Whose credential it is, if anybody's. Errs when the keys can't be read.
    pub async fn authenticate(
        &self,
        credential: Credential<'_>,
        now: Timestamp,
    ) -> Result<Option<Principal>, JournalError> {
        match credential {
            Credential::Bearer(secret) => match self.behind(secret) {
                Some(behind) => self.owner_of(behind, Via::Bearer).await,
                None => Ok(None),
            },
            Credential::Cookie(cookie) => match self.cookies.read(cookie, now) {
                Some(behind) => self.owner_of(behind, Via::Cookie).await,
                None => Ok(None),
            },
        }
    }

    /// Exchanges the token of the first link, or a key, for a new cookie's value (X3).
    pub async fn open_browser_session(
        &self,
        secret: &str,
        now: Timestamp,
    ) -> Result<Option<String>, JournalError> {
        let Some(behind) = self.behind(secret) else { return Ok(None) };
        let owner = self.owner_of(behind, Via::Cookie).await?;
        Ok(owner.map(|_| self.cookies.give(behind, now)))
    }

    /// Whether the credential of somebody who got in earlier still works: what a key has opened
    /// ends with it.
    pub fn still_holds(&self, principal: &Principal) -> bool {
        let revoked = |key_id| self.keys.as_ref().is_some_and(|keys| keys.is_revoked(key_id));
        !principal.key.is_some_and(revoked)
    }

    /// Revokes a key: once this returns `Ok` it opens nothing, nor does anything it has opened.
    pub async fn revoke_key(
        &self,
        key_id: KeyId,
        at: Timestamp,
        entry: Entry,
    ) -> Result<(), JournalError> {
        let Some(keys) = &self.keys else { return Ok(()) };
        keys.store().revoke_key(key_id, at, entry).await?;
        keys.forget(key_id);
        Ok(())
    }

    /// What kind of credential the text could be.
    fn behind(&self, secret: &str) -> Option<Behind> {
        if self.admin_token.matches(secret) {
            return Some(Behind::AdminToken);
        }
        key::hash_of(secret).map(Behind::Key)
    }

    async fn owner_of(&self, behind: Behind, via: Via) -> Result<Option<Principal>, JournalError> {
        let hash = match behind {
            Behind::AdminToken => {
                let (user, role) = (self.admin.clone(), Role::Admin);
                return Ok(Some(Principal { user, role, via, key: None }));
            }
            Behind::Key(hash) => hash,
        };
        let Some(keys) = &self.keys else { return Ok(None) };
        let key = keys.find(hash).await?;
        Ok(key.map(|key| {
            let (user, role) = (key.user.clone(), key.role);
            Principal { user, role, via, key: Some(key.key_id) }
        }))
    }
}
