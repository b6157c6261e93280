//! The rule for critical calls (G12): they need approval, and the approver must meet its
//! requirements. Pure; does not know sessions.

use crate::{approval::Role, authors::Authors, ids::UserId};
use std::{collections::BTreeSet, fmt};

/// The requirements for critical calls, from configuration. If any is set, a critical call at least
/// requires approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CriticalRule {
    /// The lowest role of the approver; `None` for all users who may answer.
    pub min_role: Option<Role>,
    /// True if the approver must be neither the owner of the session, nor an author of the run's
    /// message, nor an editor of the call.
    pub four_eyes: bool,
}

/// A human who approves a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approver {
    /// The user.
    pub user: UserId,
    /// The role at the time of the approval; `None` if the log did not record it.
    pub role: Option<Role>,
}

/// The users who requested a call or determined its arguments.
#[derive(Clone, Copy, Debug)]
pub struct CallParties<'a> {
    /// The owner of the session.
    pub owner: Option<&'a UserId>,
    /// The authors of the run's messages.
    pub authors: &'a Authors,
    /// The users who edited the call's arguments, or the preflight plan of its run.
    pub editors: &'a BTreeSet<UserId>,
}

/// The reason why a user may not approve a critical call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CriticalApprovalError {
    /// The role is too low.
    RoleTooLow {
        /// The lowest role that may approve.
        role: Role,
    },
    /// Another user must approve.
    SecondUserRequired(InvolvedParty),
}

/// The reason why a user is not a second user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvolvedParty {
    /// The user owns the session.
    Owner,
    /// The user wrote a part of the run's messages.
    Author,
    /// The user edited what would run.
    Editor,
    /// The authors are not recorded, and the user is an administrator, who may have written the
    /// message.
    PossibleAuthor,
}

impl CriticalRule {
    /// Returns true if a critical call at least requires approval.
    pub fn requires_approval(&self) -> bool {
        self.min_role.is_some() || self.four_eyes
    }

    /// Returns the requirement as text for humans; `None` if there is none.
    pub fn requirement(&self) -> Option<String> {
        let role = self.min_role.map(|role| format!("the role `{role}`"));
        let approver = match (self.four_eyes, role) {
            (false, None) => return None,
            (false, Some(role)) => format!("a user with {role}"),
            (true, None) => "a second user".to_owned(),
            (true, Some(role)) => format!("a second user with {role}"),
        };
        Some(format!("critical calls require approval by {approver}"))
    }

    /// Returns an error if `approver` may not approve the critical call of these parties.
    pub fn authorize(
        &self,
        approver: &Approver,
        parties: &CallParties<'_>,
    ) -> Result<(), CriticalApprovalError> {
        if let Some(role) = self.min_role.filter(|role| approver.role < Some(*role)) {
            return Err(CriticalApprovalError::RoleTooLow { role });
        }
        match involved_party(approver, parties).filter(|_| self.four_eyes) {
            Some(party) => Err(CriticalApprovalError::SecondUserRequired(party)),
            None => Ok(()),
        }
    }
}

/// Returns the reason why `approver` is not a second user, if there is one.
fn involved_party(approver: &Approver, parties: &CallParties<'_>) -> Option<InvolvedParty> {
    let CallParties { owner, authors, editors } = parties;
    let user = &approver.user;
    // A role that was not recorded may have been the administrator's.
    let may_be_admin = approver.role.is_none_or(|role| role >= Role::Admin);
    if owner.is_none_or(|owner| owner == user) {
        Some(InvolvedParty::Owner)
    } else if authors.contains(user) {
        Some(InvolvedParty::Author)
    } else if editors.contains(user) {
        Some(InvolvedParty::Editor)
    } else if !authors.is_complete() && may_be_admin {
        Some(InvolvedParty::PossibleAuthor)
    } else {
        None
    }
}

impl fmt::Display for InvolvedParty {
    /// Writes the requirement that the user does not meet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owner => "a user other than the session's owner",
            Self::Author => "a user other than an author of the run's messages",
            Self::Editor => "a user other than an editor of the call or its plan",
            Self::PossibleAuthor => {
                "a user who is neither the session's owner nor an administrator, because the \
                 author of the run's message is not recorded"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    /// Checks an approval of a call in a session of `ada`, whose message `mia` wrote and whose
    /// arguments `eve` edited.
    fn authorize(
        rule: CriticalRule,
        name: &str,
        role: impl Into<Option<Role>>,
        authors: &Authors,
    ) -> Result<(), CriticalApprovalError> {
        let approver = Approver { user: user(name), role: role.into() };
        let (owner, editors) = (user("ada"), BTreeSet::from([user("eve")]));
        let parties = CallParties { owner: Some(&owner), authors, editors: &editors };
        rule.authorize(&approver, &parties)
    }

    fn involved(party: InvolvedParty) -> Result<(), CriticalApprovalError> {
        Err(CriticalApprovalError::SecondUserRequired(party))
    }

    #[test]
    fn g12_role_and_four_eyes_apply_independently() {
        let needs_role = CriticalRule { min_role: Some(Role::Approver), four_eyes: false };
        let four_eyes = CriticalRule { min_role: None, four_eyes: true };
        let both = CriticalRule { four_eyes: true, ..needs_role };
        let role_too_low = || Err(CriticalApprovalError::RoleTooLow { role: Role::Approver });
        let (owner, author, editor) =
            (InvolvedParty::Owner, InvolvedParty::Author, InvolvedParty::Editor);
        for (name, role, rule, expected) in [
            ("ada", Role::User, CriticalRule::default(), Ok(())),
            ("ada", Role::User, needs_role, role_too_low()),
            ("ada", Role::Approver, needs_role, Ok(())),
            ("ada", Role::Admin, needs_role, Ok(())),
            ("mia", Role::Admin, needs_role, Ok(())),
            ("eve", Role::Approver, needs_role, Ok(())),
            ("ada", Role::User, four_eyes, involved(owner)),
            ("ada", Role::Admin, four_eyes, involved(owner)),
            ("mia", Role::Admin, four_eyes, involved(author)),
            ("eve", Role::Approver, four_eyes, involved(editor)),
            ("bob", Role::User, four_eyes, Ok(())),
            ("ada", Role::User, both, role_too_low()),
            ("ada", Role::Approver, both, involved(owner)),
            ("mia", Role::Admin, both, involved(author)),
            ("bob", Role::Approver, both, Ok(())),
            ("root", Role::Admin, both, Ok(())),
        ] {
            let actual = authorize(rule, name, role, &Authors::from(user("mia")));
            assert_eq!(actual, expected, "{name} {role} {rule:?}");
        }
    }

    #[test]
    fn g12_unknown_author_requires_an_approver_without_the_role_admin() {
        let rule = CriticalRule { min_role: None, four_eyes: true };
        let mut partly = Authors::default();
        partly.add(&user("mia"));
        let possible_author = || involved(InvolvedParty::PossibleAuthor);
        for (name, role, expected) in [
            ("bob", Some(Role::Approver), Ok(())),
            ("bob", Some(Role::Admin), possible_author()),
            ("bob", None, possible_author()),
            ("mia", Some(Role::Approver), involved(InvolvedParty::Author)),
            ("ada", Some(Role::Approver), involved(InvolvedParty::Owner)),
        ] {
            assert_eq!(authorize(rule, name, role, &partly), expected, "{name} {role:?}");
        }
    }

    #[test]
    fn g12_unrecorded_role_does_not_meet_a_required_role() {
        let rule = CriticalRule { min_role: Some(Role::User), four_eyes: false };
        let authors = Authors::from(user("mia"));
        let expected = Err(CriticalApprovalError::RoleTooLow { role: Role::User });
        assert_eq!(authorize(rule, "bob", None, &authors), expected);
        assert_eq!(authorize(rule, "bob", Role::User, &authors), Ok(()));
    }

    #[test]
    fn g12_requirement_names_role_and_second_user() {
        let role = Some(Role::Approver);
        for (min_role, four_eyes, expected) in [
            (None, false, None),
            (role, false, Some("a user with the role `approver`")),
            (None, true, Some("a second user")),
            (role, true, Some("a second user with the role `approver`")),
        ] {
            let rule = CriticalRule { min_role, four_eyes };
            let expected =
                expected.map(|approver| format!("critical calls require approval by {approver}"));
            assert_eq!(rule.requires_approval(), expected.is_some());
            assert_eq!(rule.requirement(), expected);
        }
    }
}
