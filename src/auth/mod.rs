//! Who is calling, and what they may see (X1). Knows nothing of HTTP; [`crate::http`] finds the
//! credential in a request and asks the [`Authenticator`].
//!
//! Today's one credential is the administrator's token, used as it is or exchanged for a browser's
//! cookie. Further kinds of credential are further variants of [`Credential`].

pub mod browser;
pub mod token;

pub use browser::BrowserSessions;
pub use token::{Token, TokenError};

use greenroom_core::{
    approval::Surface,
    ids::UserId,
    session::{ApprovalRow, SessionRow},
};
use std::time::Instant;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Work with sessions of their own.
    User,
    /// Also see and answer everybody's approvals.
    Approver,
    /// Everything.
    Admin,
}

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Who.
    pub user: UserId,
    /// What they may do.
    pub role: Role,
    /// How they showed who they are.
    pub via: Via,
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
    browsers: BrowserSessions,
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
}

impl Authenticator {
    /// One that knows the administrator's token alone.
    pub fn new(admin_token: Token) -> Self {
        let admin = UserId::parse("admin").expect("a short name without control characters");
        Self { admin_token, admin, browsers: BrowserSessions::default() }
    }

    /// Whose credential it is, if anybody's.
    pub fn authenticate(&self, credential: Credential<'_>, now: Instant) -> Option<Principal> {
        let (known, via) = match credential {
            Credential::Bearer(token) => (self.admin_token.matches(token), Via::Bearer),
            Credential::Cookie(cookie) => (self.browsers.knows(cookie, now), Via::Cookie),
        };
        known.then(|| Principal { user: self.admin.clone(), role: Role::Admin, via })
    }

    /// Exchanges the token of the first link for a new cookie's value (X3).
    pub fn open_browser_session(&self, token: &str, now: Instant) -> Option<String> {
        self.admin_token.matches(token).then(|| self.browsers.open(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x1_only_the_token_opens() {
        let auth = Authenticator::new(Token::from_text("0123456789abcdef").unwrap());
        let now = Instant::now();
        let admin = auth.authenticate(Credential::Bearer("0123456789abcdef"), now).unwrap();
        assert_eq!((admin.role, admin.via), (Role::Admin, Via::Bearer));
        for wrong in ["", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0"] {
            assert_eq!(auth.authenticate(Credential::Bearer(wrong), now), None);
            assert_eq!(auth.open_browser_session(wrong, now), None);
        }
    }

    #[test]
    fn x3_a_cookie_is_not_a_bearer_token_nor_the_other_way_round() {
        let auth = Authenticator::new(Token::from_text("0123456789abcdef").unwrap());
        let now = Instant::now();
        let cookie = auth.open_browser_session("0123456789abcdef", now).unwrap();
        let admin = auth.authenticate(Credential::Cookie(&cookie), now).unwrap();
        assert_eq!(admin.via, Via::Cookie);
        assert_eq!(auth.authenticate(Credential::Bearer(&cookie), now), None);
        assert_eq!(auth.authenticate(Credential::Cookie("0123456789abcdef"), now), None);
    }
}
