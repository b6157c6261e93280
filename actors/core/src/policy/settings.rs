//! What a user allows, and how a session may narrow it (G4).
//!
//! [`Settings`] are whole and valid; a [`SettingsPatch`] is what somebody wants changed. Who may
//! change whose settings is the caller's business.

use super::budget_limit::BudgetLimit;
use super::risk::Autonomy;
use crate::{ids::ToolName, limits};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// A user's settings, or a session's. The default is the safe one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How much the agent may do by itself.
    pub autonomy_level: Autonomy,
    /// Whether L2 asks before `write_high_risk`.
    pub require_confirmation: bool,
    /// Tools that are always denied, read-only ones too.
    pub blocked_tools: BTreeSet<ToolName>,
    /// Regions that catalog constraints may use; `None` is no restriction.
    pub allowed_regions: Option<BTreeSet<i64>>,
    /// What tools may cost.
    pub budget_limit: Option<BudgetLimit>,
    /// Whether the model first submits a plan for each message (G14). It allows nothing by itself,
    /// so a session chooses freely.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub preflight: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            autonomy_level: Autonomy::default(),
            require_confirmation: true,
            blocked_tools: BTreeSet::new(),
            allowed_regions: None,
            budget_limit: None,
            preflight: false,
        }
    }
}

/// Settings with more in them than fits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} may have at most {max} entries, not {found}")]
pub struct TooManyEntries {
    /// The field of the settings.
    pub field: &'static str,
    /// What it has.
    pub found: usize,
    /// What it may have.
    pub max: usize,
}

/// Why wanted settings were not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// They are not valid.
    #[error(transparent)]
    TooManyEntries(#[from] TooManyEntries),
    /// They allow more than the user's do.
    #[error(transparent)]
    Widening(#[from] WideningError),
}

/// A session's settings would allow more than its user's (G4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}; a session may only narrow what its user allows")]
pub struct WideningError {
    /// The field that would.
    pub field: &'static str,
    /// How.
    pub problem: String,
}

impl Settings {
    /// Checks what the types don't: that no list is too long.
    pub fn validate(&self) -> Result<(), TooManyEntries> {
        let regions = self.allowed_regions.as_ref().map_or(0, BTreeSet::len);
        for (field, found, max) in [
            ("blocked_tools", self.blocked_tools.len(), limits::BLOCKED_TOOLS_MAX),
            ("allowed_regions", regions, limits::ALLOWED_REGIONS_MAX),
        ] {
            if found > max {
                return Err(TooManyEntries { field, found, max });
            }
        }
        Ok(())
    }

    /// Whether these settings allow nothing that `user` does not.
    pub fn validate_within(&self, user: &Self) -> Result<(), WideningError> {
        match self.find_widening(user) {
            None => Ok(()),
            Some((field, problem)) => Err(WideningError { field, problem }),
        }
    }

    /// The narrower of both in every field: what a session with these settings may do once its
    /// user, who may have tightened theirs since it was created, allows `user`.
    #[must_use]
    pub fn narrowed_to(&self, user: &Self) -> Self {
        Self {
            autonomy_level: self.autonomy_level.min(user.autonomy_level),
            require_confirmation: self.require_confirmation || user.require_confirmation,
            blocked_tools: self.blocked_tools.union(&user.blocked_tools).cloned().collect(),
            allowed_regions: narrow_option(
                &self.allowed_regions,
                &user.allowed_regions,
                |own, allowed| own.intersection(allowed).copied().collect(),
            ),
            budget_limit: narrow_option(
                &self.budget_limit,
                &user.budget_limit,
                BudgetLimit::narrowed_to,
            ),
            preflight: self.preflight,
        }
    }

    /// The first field that allows more than `user`, and how.
    fn find_widening(&self, user: &Self) -> Option<(&'static str, String)> {
        if self.autonomy_level > user.autonomy_level {
            let (wanted, allowed) = (self.autonomy_level.level(), user.autonomy_level.level());
            return Some(("autonomy_level", format!("{wanted} is more than the user's {allowed}")));
        }
        if user.require_confirmation && !self.require_confirmation {
            return Some(("require_confirmation", "the user's is true".to_owned()));
        }
        if let Some(missing) = user.blocked_tools.difference(&self.blocked_tools).next() {
            return Some(("blocked_tools", format!("the user blocks `{missing}` too")));
        }
        if let Some(allowed) = &user.allowed_regions {
            let field = "allowed_regions";
            let Some(wanted) = &self.allowed_regions else {
                return Some((field, "the user's are restricted".to_owned()));
            };
            if let Some(extra) = wanted.difference(allowed).next() {
                return Some((field, format!("{extra} is not among the user's")));
            }
        }
        if let Some(limit) = &user.budget_limit {
            let field = "budget_limit";
            let Some(wanted) = &self.budget_limit else {
                return Some((field, format!("the user's is {limit}")));
            };
            if !wanted.is_within(limit) {
                return Some((field, format!("{wanted} is not within the user's {limit}")));
            }
        }
        None
    }
}

/// The narrower of two restrictions, where absence is none.
fn narrow_option<T: Clone>(
    own: &Option<T>,
    user: &Option<T>,
    of_both: impl FnOnce(&T, &T) -> T,
) -> Option<T> {
    match (own, user) {
        (Some(own), Some(user)) => Some(of_both(own, user)),
        (own, user) => own.as_ref().or(user.as_ref()).cloned(),
    }
}

/// Changes to settings: what is absent stays. `null` lifts `allowed_regions` or `budget_limit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SettingsPatch {
    /// See [`Settings::autonomy_level`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autonomy_level: Option<Autonomy>,
    /// See [`Settings::require_confirmation`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_confirmation: Option<bool>,
    /// The whole new list. See [`Settings::blocked_tools`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_tools: Option<BTreeSet<ToolName>>,
    /// See [`Settings::allowed_regions`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_nullable")]
    pub allowed_regions: Option<Option<BTreeSet<i64>>>,
    /// See [`Settings::budget_limit`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_nullable")]
    pub budget_limit: Option<Option<BudgetLimit>>,
    /// See [`Settings::preflight`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preflight: Option<bool>,
}

impl SettingsPatch {
    /// `settings` with these changes, if there are not too many of anything.
    pub fn apply(&self, settings: &Settings) -> Result<Settings, TooManyEntries> {
        let changed = self.clone().apply_unchecked(settings);
        changed.validate().map(|()| changed)
    }

    /// `settings` with these changes, which were looked at before.
    #[must_use]
    pub fn apply_unchecked(self, settings: &Settings) -> Settings {
        let settings = settings.clone();
        Settings {
            autonomy_level: self.autonomy_level.unwrap_or(settings.autonomy_level),
            require_confirmation: self
                .require_confirmation
                .unwrap_or(settings.require_confirmation),
            blocked_tools: self.blocked_tools.unwrap_or(settings.blocked_tools),
            allowed_regions: self.allowed_regions.unwrap_or(settings.allowed_regions),
            budget_limit: self.budget_limit.unwrap_or(settings.budget_limit),
            preflight: self.preflight.unwrap_or(settings.preflight),
        }
    }
}

impl From<Settings> for SettingsPatch {
    /// Changes everything.
    fn from(settings: Settings) -> Self {
        Self {
            autonomy_level: Some(settings.autonomy_level),
            require_confirmation: Some(settings.require_confirmation),
            blocked_tools: Some(settings.blocked_tools),
            allowed_regions: Some(settings.allowed_regions),
            budget_limit: Some(settings.budget_limit),
            preflight: Some(settings.preflight),
        }
    }
}

/// The settings of a new session whose user has `user` and that wants `wanted`. Never clamps.
pub fn session_settings(
    user: &Settings,
    wanted: &SettingsPatch,
) -> Result<Settings, SettingsError> {
    let settings = wanted.apply(user)?;
    settings.validate_within(user)?;
    Ok(settings)
}

/// Tells `null` from absent, which `Option` alone does not.
fn deserialize_nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn patch(written: Value) -> SettingsPatch {
        serde_json::from_value(written).unwrap()
    }

    fn settings(written: Value) -> Settings {
        serde_json::from_value(written).unwrap()
    }

    #[test]
    fn g4_defaults_are_the_safe_ones() {
        let expected = settings(json!({
            "autonomy_level": 1,
            "require_confirmation": true,
            "blocked_tools": [],
            "allowed_regions": null,
            "budget_limit": null,
        }));
        assert_eq!(Settings::default(), expected);
    }

    #[test]
    fn g4_a_patch_changes_what_it_names_and_null_lifts() {
        let before = settings(json!({"allowed_regions": [1], "budget_limit": 5}));
        let untouched = patch(json!({})).apply(&before);
        assert_eq!(untouched.as_ref(), Ok(&before));
        let lifted = patch(json!({"allowed_regions": null, "autonomy_level": 3}));
        let expected = settings(json!({"autonomy_level": 3, "budget_limit": 5}));
        assert_eq!(lifted.apply(&before), Ok(expected));
        assert_eq!(
            serde_json::to_value(&lifted).unwrap(),
            json!({"allowed_regions": null, "autonomy_level": 3})
        );
    }

    #[test]
    fn g4_bad_settings_are_refused_naming_the_field() {
        let cases = [
            (json!({"autonomy_level": 7}), "autonomy_level must be 0, 1, 2 or 3, not 7"),
            (json!({"autonomy": 1}), "unknown field `autonomy`"),
            (json!({"budget_limit": 0}), "budget_limit.amount must be greater than 0"),
            (json!({"budget_limit": {"amount": 1, "perod": "day"}}), "unknown field `perod`"),
            (json!({"blocked_tools": [""]}), "a tool's name must have 1 to 128 characters"),
        ];
        for (written, expected) in cases {
            let error = serde_json::from_value::<SettingsPatch>(written).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn g4_lists_are_bounded() {
        let many: Vec<_> = (0..=1000).collect();
        let error = patch(json!({"allowed_regions": many})).apply(&Settings::default());
        let expected = "allowed_regions may have at most 1000 entries, not 1001";
        assert_eq!(error.unwrap_err().to_string(), expected);
        let names: Vec<_> = (0..=1000).map(|number| format!("tool_{number}")).collect();
        let error = patch(json!({"blocked_tools": names})).apply(&Settings::default());
        assert_eq!(error.unwrap_err().field, "blocked_tools");
    }

    /// A user with every restriction there is.
    fn restricted() -> Settings {
        settings(json!({
            "autonomy_level": 2,
            "require_confirmation": true,
            "blocked_tools": ["a"],
            "allowed_regions": [1, 2],
            "budget_limit": {"amount": 100, "unit": "ISK", "period": "day"},
        }))
    }

    #[test]
    fn g4_a_session_may_narrow() {
        for wanted in [
            json!({}),
            json!({"autonomy_level": 0}),
            json!({"require_confirmation": true}),
            json!({"blocked_tools": ["a", "b"]}),
            json!({"allowed_regions": []}),
            json!({"allowed_regions": [2]}),
            json!({"budget_limit": {"amount": 100, "unit": "ISK", "period": "day"}}),
            json!({"budget_limit": {"amount": 99.5, "unit": "ISK", "period": "month"}}),
        ] {
            let expected = patch(wanted.clone()).apply(&restricted()).unwrap();
            assert_eq!(
                session_settings(&restricted(), &patch(wanted.clone())),
                Ok(expected),
                "{wanted}"
            );
        }
        let all = serde_json::to_value(restricted()).unwrap();
        assert_eq!(
            session_settings(&settings(json!({"autonomy_level": 2})), &patch(all)),
            Ok(restricted())
        );
    }

    #[test]
    fn g4_a_session_may_not_widen() {
        for (wanted, field) in [
            (json!({"autonomy_level": 3}), "autonomy_level"),
            (json!({"require_confirmation": false}), "require_confirmation"),
            (json!({"blocked_tools": []}), "blocked_tools"),
            (json!({"blocked_tools": ["b"]}), "blocked_tools"),
            (json!({"allowed_regions": null}), "allowed_regions"),
            (json!({"allowed_regions": [1, 3]}), "allowed_regions"),
            (json!({"budget_limit": null}), "budget_limit"),
            (json!({"budget_limit": 1}), "budget_limit"),
            (
                json!({"budget_limit": {"amount": 101, "unit": "ISK", "period": "day"}}),
                "budget_limit",
            ),
            (
                json!({"budget_limit": {"amount": 1, "unit": "USD", "period": "day"}}),
                "budget_limit",
            ),
        ] {
            match session_settings(&restricted(), &patch(wanted.clone())) {
                Err(SettingsError::Widening(widening)) => assert_eq!(widening.field, field),
                other => panic!("{wanted}: {other:?}"),
            }
        }
    }

    #[test]
    fn g4_session_settings_are_narrowed_to_the_users() {
        let own = settings(json!({
            "autonomy_level": 3, "require_confirmation": false, "blocked_tools": ["b"],
            "allowed_regions": [2, 3], "budget_limit": {"amount": 50, "unit": "ISK"},
        }));
        let both = own.narrowed_to(&restricted());
        let expected = settings(json!({
            "autonomy_level": 2, "require_confirmation": true, "blocked_tools": ["a", "b"],
            "allowed_regions": [2],
            "budget_limit": {"amount": 50, "unit": "ISK", "period": "total"},
        }));
        assert_eq!(both, expected);
        assert_eq!(restricted().narrowed_to(&own), expected);
        for (one, other) in [
            (settings(json!({})), restricted()),
            (restricted(), settings(json!({"autonomy_level": 3, "require_confirmation": false}))),
            (settings(json!({"budget_limit": {"amount": 1, "unit": "USD"}})), restricted()),
            (settings(json!({"budget_limit": {"amount": 500, "unit": "ISK"}})), restricted()),
        ] {
            let both = one.narrowed_to(&other);
            assert_eq!(both.validate_within(&other), Ok(()), "{both:?}");
            assert_eq!(both.narrowed_to(&other), both);
            assert_eq!(both.allowed_regions, one.allowed_regions.clone().or(other.allowed_regions));
        }
    }

    #[test]
    fn g14_a_session_chooses_its_preflight_freely() {
        let [with, without] =
            [true, false].map(|preflight| settings(json!({"preflight": preflight})));
        for (own, user) in [(&with, &without), (&without, &with)] {
            assert_eq!(own.validate_within(user), Ok(()));
            assert_eq!(own.narrowed_to(user), *own);
        }
        assert_eq!(patch(json!({"preflight": true})).apply(&without), Ok(with));
    }

    #[test]
    fn g4_a_widening_says_what_the_user_allows() {
        let error = session_settings(&Settings::default(), &patch(json!({"autonomy_level": 3})));
        let expected = "autonomy_level: 3 is more than the user's 1; a session may only narrow \
                        what its user allows";
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
}
