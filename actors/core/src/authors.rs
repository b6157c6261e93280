//! The principals who wrote a message or a run's messages (G12).

use crate::{ids::UserId, limits::AUTHORS_MAX};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, sync::Arc};

/// The users who wrote a message, or the messages of a run. The default is an unknown author, as in
/// logs that did not record authors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authors {
    /// The known authors, at most [`AUTHORS_MAX`].
    #[serde(default, skip_serializing_if = "is_empty")]
    users: Arc<BTreeSet<UserId>>,
    /// True if there are further authors who were not recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
}

impl Default for Authors {
    fn default() -> Self {
        Self { users: Arc::default(), incomplete: true }
    }
}

impl From<UserId> for Authors {
    fn from(user: UserId) -> Self {
        Self { users: Arc::new(BTreeSet::from([user])), incomplete: false }
    }
}

impl Authors {
    /// Adds an author. At the limit, the set becomes incomplete instead.
    pub fn add(&mut self, user: &UserId) {
        if self.users.contains(user) {
            return;
        }
        if self.users.len() < AUTHORS_MAX {
            Arc::make_mut(&mut self.users).insert(user.clone());
        } else {
            self.incomplete = true;
        }
    }

    /// Adds the authors of another message.
    pub fn add_all(&mut self, others: &Self) {
        others.users.iter().for_each(|user| self.add(user));
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
