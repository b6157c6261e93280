//! The principals who wrote a message or a run's messages (G12).

use crate::{approval::Role, ids::UserId, limits::AUTHORS_MAX};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, sync::Arc};

/// The users who wrote a message, or the messages of a run. The default is an unknown author, as in
/// logs that did not record authors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authors {
    /// The known authors, at most [`AUTHORS_MAX`].
    #[serde(default, skip_serializing_if = "is_empty")]
    users: Arc<BTreeSet<UserId>>,
    /// The roles in which they wrote, whose ceilings apply to the run (G17). Empty if the roles were
    /// not recorded.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    roles: BTreeSet<Role>,
    /// True if there are further authors who were not recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
}

impl Default for Authors {
    fn default() -> Self {
        Self { users: Arc::default(), roles: BTreeSet::new(), incomplete: true }
    }
}

impl From<UserId> for Authors {
    fn from(user: UserId) -> Self {
        let (users, roles) = (Arc::new(BTreeSet::from([user])), BTreeSet::new());
        Self { users, roles, incomplete: false }
    }
}

impl Authors {
    /// Returns one author who wrote in this role.
    pub fn with_role(user: UserId, role: Role) -> Self {
        Self { roles: BTreeSet::from([role]), ..Self::from(user) }
    }

    /// Returns the roles of all authors. If the role of an author is not known, the role with the
    /// fewest rights is among them.
    pub fn roles(&self) -> BTreeSet<Role> {
        let is_known = self.is_complete() && !self.roles.is_empty();
        let unknown = (!is_known).then_some(Role::User);
        self.roles.iter().copied().chain(unknown).collect()
    }

    /// Adds an author whose role is not known. At the limit, the set becomes incomplete instead.
    pub fn add(&mut self, user: &UserId) {
        if self.users.contains(user) {
            return;
        }
        if !self.roles.is_empty() {
            self.roles.insert(Role::User);
        }
        if self.users.len() < AUTHORS_MAX {
            Arc::make_mut(&mut self.users).insert(user.clone());
        } else {
            self.incomplete = true;
        }
    }

    /// Adds the authors of another message.
    pub fn add_all(&mut self, others: &Self) {
        // Without any known role, the set stays empty.
        let is_known = !(self.roles.is_empty() && others.roles.is_empty());
        let roles = self.roles().union(&others.roles()).copied().filter(|_| is_known).collect();
        others.users.iter().for_each(|user| self.add(user));
        self.roles = roles;
        self.incomplete |= others.incomplete;
    }

    /// Returns true if the user is a known author.
    pub fn contains(&self, user: &UserId) -> bool {
        self.users.contains(user)
    }

    /// Returns true if every author is known.
    pub fn is_complete(&self) -> bool {
        !self.incomplete && !self.users.is_empty()
    }

    /// Returns true if nothing is known of the authors.
    pub fn is_unknown(&self) -> bool {
        self.users.is_empty()
    }
}

fn is_empty(users: &Arc<BTreeSet<UserId>>) -> bool {
    users.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    #[test]
    fn g17_unknown_role_counts_as_user() {
        let admin = || Authors::with_role(user("dora"), Role::Admin);
        assert_eq!(Authors::default().roles(), [Role::User].into());
        assert_eq!(Authors::from(user("ann")).roles(), [Role::User].into());
        assert_eq!(admin().roles(), [Role::Admin].into());
        let mut edited = admin();
        edited.add(&user("dora"));
        assert_eq!(edited.roles(), [Role::Admin].into());
        edited.add(&user("ann"));
        assert_eq!(edited.roles(), [Role::User, Role::Admin].into());
        for (other, expected) in [
            (Authors::with_role(user("carl"), Role::Approver), vec![Role::Approver, Role::Admin]),
            (Authors::from(user("ann")), vec![Role::User, Role::Admin]),
            (Authors::default(), vec![Role::User, Role::Admin]),
        ] {
            let mut combined = admin();
            combined.add_all(&other);
            assert_eq!(combined.roles(), expected.into_iter().collect());
        }
        let stored = serde_json::to_value(admin()).unwrap();
        assert_eq!(stored, json!({"users": ["dora"], "roles": ["admin"]}));
        assert_eq!(serde_json::from_value::<Authors>(stored).unwrap(), admin());
    }

    #[test]
    fn g12_authors_beyond_the_limit_make_the_set_incomplete() {
        let mut authors = Authors::from(user("ann"));
        for n in 1..AUTHORS_MAX {
            authors.add(&user(&format!("u{n}")));
        }
        authors.add(&user("ann"));
        assert!(authors.is_complete());
        authors.add(&user("one too many"));
        assert_eq!((authors.is_complete(), authors.users.len()), (false, AUTHORS_MAX));
        let mut combined = Authors::from(user("bob"));
        combined.add_all(&authors);
        assert!(combined.contains(&user("bob")) && !combined.is_complete());
    }

    #[test]
    fn g12_absent_authors_are_unknown() {
        let known = Authors::from(user("ann"));
        let mut partly = Authors::default();
        partly.add(&user("ann"));
        for (stored, expected) in [
            (json!({"users": ["ann"]}), known),
            (json!({"users": ["ann"], "incomplete": true}), partly),
            (json!({"incomplete": true}), Authors::default()),
        ] {
            assert_eq!(serde_json::to_value(&expected).unwrap(), stored);
            assert_eq!(serde_json::from_value::<Authors>(stored).unwrap(), expected);
        }
        let empty: Authors = serde_json::from_value(json!({})).unwrap();
        assert!(!empty.is_complete(), "nobody wrote the message");
    }
}
