//! Settings: what a user allows, and the narrower settings of a session (G4).
//!
//! [`Settings`] are complete and valid; a [`SettingsPatch`] holds requested changes. The caller
//! checks the permission to change settings.

use super::budget_limit::BudgetLimit;
use super::ceiling::CeilingExceeded;
use super::effective_ceiling::EffectiveCeiling;
use super::risk::Autonomy;
use crate::{ids::ToolName, limits};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// The settings of a user or of a session. The defaults are the safe values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The autonomy level of the agent.
    pub autonomy_level: Autonomy,
    /// True if L2 asks before a `write_high_risk` call.
    pub require_confirmation: bool,
    /// Tools that are always denied, including read-only tools: names, `server__tool`, or globs
    /// (`*` matches any text) over both.
    pub blocked_tools: BTreeSet<ToolName>,
    /// The regions that catalog constraints allow; `None` means no restriction.
    pub allowed_regions: Option<BTreeSet<i64>>,
    /// The limit on the cost of tools.
    pub budget_limit: Option<BudgetLimit>,
    /// True if the model must submit a plan for each message (G14). This setting allows nothing by
    /// itself, so a session may set it freely.
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

/// A list in the settings has too many entries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {found} entries; the limit is {max}")]
pub struct TooManyEntries {
    /// The field of the list.
    pub field: &'static str,
    /// The number of entries.
    pub found: usize,
    /// Maximum number of entries.
    pub max: usize,
}

/// The reason why requested settings are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The settings are not valid.
    #[error(transparent)]
    TooManyEntries(#[from] TooManyEntries),
    /// The settings allow more than the user's settings.
    #[error(transparent)]
    Widening(#[from] WideningError),
    /// The settings allow more than a ceiling.
    #[error(transparent)]
    Ceiling(#[from] CeilingExceeded),
}

/// The settings of a session would allow more than the settings of its user (G4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}; a session can only narrow the user's settings")]
pub struct WideningError {
    /// The field that allows more.
    pub field: &'static str,
    /// The difference, for humans.
    pub problem: String,
}

impl Settings {
    /// Validates what the types don't guarantee: the length of the lists.
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

    /// Validates that these settings allow nothing that `user` does not allow.
    pub fn validate_within(&self, user: &Self) -> Result<(), WideningError> {
        match self.find_widening(user) {
            None => Ok(()),
            Some((field, problem)) => Err(WideningError { field, problem }),
        }
    }

    /// Returns the narrower value of both settings in every field.
    ///
    /// Used for a session whose user has tightened the settings since the session was created.
    #[must_use]
    pub fn narrowed_to(&self, user: &Self) -> Self {
        Self {
            autonomy_level: self.autonomy_level.min(user.autonomy_level),
            require_confirmation: self.require_confirmation || user.require_confirmation,
            blocked_tools: self.blocked_tools.union(&user.blocked_tools).cloned().collect(),
            allowed_regions: narrow_option(
                &self.allowed_regions,
                &user.allowed_regions,
                |session, user| session.intersection(user).copied().collect(),
            ),
            budget_limit: narrow_option(
                &self.budget_limit,
                &user.budget_limit,
                BudgetLimit::narrowed_to,
            ),
            preflight: self.preflight,
        }
    }

    /// Returns the first field that allows more than `user`, and a description of the difference.
    fn find_widening(&self, user: &Self) -> Option<(&'static str, String)> {
        if self.autonomy_level > user.autonomy_level {
            let (requested, allowed) = (self.autonomy_level.level(), user.autonomy_level.level());
            return Some(("autonomy_level", format!("{requested} exceeds the user's {allowed}")));
        }
        if user.require_confirmation && !self.require_confirmation {
            return Some(("require_confirmation", "the user's value is true".to_owned()));
        }
        if let Some(missing) = user.blocked_tools.difference(&self.blocked_tools).next() {
            return Some((
                "blocked_tools",
                format!("`{missing}` is missing, but the user's settings block it"),
            ));
        }
        if let Some(allowed) = &user.allowed_regions {
            let field = "allowed_regions";
            let Some(requested) = &self.allowed_regions else {
                return Some((field, "the user's settings restrict the regions".to_owned()));
            };
            if let Some(extra) = requested.difference(allowed).next() {
                return Some((field, format!("{extra} is not among the user's regions")));
            }
        }
        if let Some(limit) = &user.budget_limit {
            let field = "budget_limit";
            let Some(requested) = &self.budget_limit else {
                return Some((field, format!("the user's limit is {limit}")));
            };
            if !requested.is_within(limit) {
                return Some((
                    field,
                    format!("{requested} is not within the user's limit, {limit}"),
                ));
            }
        }
        None
    }
}

/// Returns the narrower of two optional restrictions, where `None` means no restriction.
fn narrow_option<T: Clone>(
    own: &Option<T>,
    user: &Option<T>,
    narrow: impl FnOnce(&T, &T) -> T,
) -> Option<T> {
    match (own, user) {
        (Some(own), Some(user)) => Some(narrow(own, user)),
        (own, user) => own.as_ref().or(user.as_ref()).cloned(),
    }
}

/// Changes to settings. Absent fields stay unchanged; `null` lifts `allowed_regions` or
/// `budget_limit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SettingsPatch {
    /// See [`Settings::autonomy_level`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autonomy_level: Option<Autonomy>,
    /// See [`Settings::require_confirmation`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_confirmation: Option<bool>,
    /// The complete new list. See [`Settings::blocked_tools`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_tools: Option<BTreeSet<ToolName>>,
    /// See [`Settings::allowed_regions`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_nullable")]
    pub allowed_regions: Option<Option<BTreeSet<i64>>>,
    /// See [`Settings::budget_limit`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_limit")]
    pub budget_limit: Option<Option<BudgetLimit>>,
    /// See [`Settings::preflight`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preflight: Option<bool>,
}

impl SettingsPatch {
    /// Returns `settings` with these changes, or an error if a list becomes too long.
    pub fn apply(&self, settings: &Settings) -> Result<Settings, TooManyEntries> {
        let changed = self.clone().apply_unchecked(settings);
        changed.validate().map(|()| changed)
    }

    /// Returns `settings` with these changes. The caller has validated them.
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
    /// Creates a patch that sets every field.
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

/// Returns the settings of a new session: the settings `user` of its user with the changes `patch`.
/// Returns an error if they would widen `user`, or if `patch` asks for more than `ceiling` permits;
/// never clamps a value.
pub fn session_settings(
    user: &Settings,
    patch: &SettingsPatch,
    ceiling: &EffectiveCeiling,
) -> Result<Settings, SettingsError> {
    ceiling.validate_patch(patch)?;
    let settings = patch.apply(user)?;
    settings.validate_within(user)?;
    Ok(settings)
}

/// Deserializes a requested limit, which must not exceed the maximum, or `null`.
fn deserialize_limit<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<BudgetLimit>>, D::Error> {
    let limit = Option::<BudgetLimit>::deserialize(deserializer)?;
    let problem = limit.as_ref().and_then(BudgetLimit::amount_problem);
    problem.map_or(Ok(Some(limit)), |problem| Err(D::Error::custom(problem)))
}

/// Deserializes `null` as `Some(None)`, which a plain `Option` does not distinguish from absence.
fn deserialize_nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn patch(json: Value) -> SettingsPatch {
        serde_json::from_value(json).unwrap()
    }

    fn settings(json: Value) -> Settings {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn g4_default_settings_are_safe() {
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
    fn g4_patch_changes_named_fields_and_null_lifts_restriction() {
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
    fn g4_invalid_settings_are_rejected_with_field_name() {
        let cases = [
            (
                json!({"autonomy_level": 7}),
                "invalid value: integer `7`, expected an autonomy level: 0, 1, 2 or 3",
            ),
            (json!({"autonomy": 1}), "unknown field `autonomy`"),
            (json!({"budget_limit": 0}), "budget_limit.amount must be greater than 0"),
            (json!({"budget_limit": -1}), "budget_limit.amount must be greater than 0"),
            (json!({"budget_limit": 1e-13}), "budget_limit.amount must be greater than 0"),
            (
                json!({"budget_limit": 1e25}),
                "budget_limit.amount must be at most 1,000,000,000,000,000,000,000,000, not \
                 10,000,000,000,000,000,000,000,000",
            ),
            (json!({"budget_limit": {"amount": 1e300}}), "budget_limit.amount must be at most"),
            (json!({"budget_limit": {"amount": 1, "perod": "day"}}), "unknown field `perod`"),
            (json!({"blocked_tools": [""]}), "a tool's name must have 1 to 128 characters"),
        ];
        for (json, expected) in cases {
            let error = serde_json::from_value::<SettingsPatch>(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn g4_settings_lists_are_bounded() {
        let many: Vec<_> = (0..=1000).collect();
        let error = patch(json!({"allowed_regions": many})).apply(&Settings::default());
        let expected = "allowed_regions: 1001 entries; the limit is 1000";
        assert_eq!(error.unwrap_err().to_string(), expected);
        let names: Vec<_> = (0..=1000).map(|number| format!("tool_{number}")).collect();
        let error = patch(json!({"blocked_tools": names})).apply(&Settings::default());
        assert_eq!(error.unwrap_err().field, "blocked_tools");
    }

    /// Returns settings with every kind of restriction.
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
    fn g4_session_may_narrow_user_settings() {
        for changes in [
            json!({}),
            json!({"autonomy_level": 0}),
            json!({"require_confirmation": true}),
            json!({"blocked_tools": ["a", "b"]}),
            json!({"allowed_regions": []}),
            json!({"allowed_regions": [2]}),
            json!({"budget_limit": {"amount": 100, "unit": "ISK", "period": "day"}}),
            json!({"budget_limit": {"amount": 99.5, "unit": "ISK", "period": "month"}}),
        ] {
            let expected = patch(changes.clone()).apply(&restricted()).unwrap();
            assert_eq!(
                session_settings(
                    &restricted(),
                    &patch(changes.clone()),
                    EffectiveCeiling::UNLIMITED
                ),
                Ok(expected),
                "{changes}"
            );
        }
        let all = serde_json::to_value(restricted()).unwrap();
        assert_eq!(
            session_settings(
                &settings(json!({"autonomy_level": 2})),
                &patch(all),
                EffectiveCeiling::UNLIMITED
            ),
            Ok(restricted())
        );
    }

    #[test]
    fn g4_session_must_not_widen_user_settings() {
        for (changes, field) in [
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
            match session_settings(
                &restricted(),
                &patch(changes.clone()),
                EffectiveCeiling::UNLIMITED,
            ) {
                Err(SettingsError::Widening(widening)) => assert_eq!(widening.field, field),
                other => panic!("{changes}: {other:?}"),
            }
        }
    }

    #[test]
    fn g4_session_settings_are_narrowed_to_user_settings() {
        let session_settings = settings(json!({
            "autonomy_level": 3, "require_confirmation": false, "blocked_tools": ["b"],
            "allowed_regions": [2, 3], "budget_limit": {"amount": 50, "unit": "ISK"},
        }));
        let narrowed = session_settings.narrowed_to(&restricted());
        let expected = settings(json!({
            "autonomy_level": 2, "require_confirmation": true, "blocked_tools": ["a", "b"],
            "allowed_regions": [2],
            "budget_limit": {"amount": 50, "unit": "ISK", "period": "total"},
        }));
        assert_eq!(narrowed, expected);
        assert_eq!(restricted().narrowed_to(&session_settings), expected);
        for (session_settings, user_settings) in [
            (settings(json!({})), restricted()),
            (restricted(), settings(json!({"autonomy_level": 3, "require_confirmation": false}))),
            (settings(json!({"budget_limit": {"amount": 1, "unit": "USD"}})), restricted()),
            (settings(json!({"budget_limit": {"amount": 500, "unit": "ISK"}})), restricted()),
        ] {
            let narrowed = session_settings.narrowed_to(&user_settings);
            assert_eq!(narrowed.validate_within(&user_settings), Ok(()), "{narrowed:?}");
            assert_eq!(narrowed.narrowed_to(&user_settings), narrowed);
            assert_eq!(
                narrowed.allowed_regions,
                session_settings.allowed_regions.clone().or(user_settings.allowed_regions)
            );
        }
    }

    #[test]
    fn g14_session_may_set_preflight_freely() {
        let [with, without] =
            [true, false].map(|preflight| settings(json!({"preflight": preflight})));
        for (session_settings, user_settings) in [(&with, &without), (&without, &with)] {
            assert_eq!(session_settings.validate_within(user_settings), Ok(()));
            assert_eq!(session_settings.narrowed_to(user_settings), *session_settings);
        }
        assert_eq!(patch(json!({"preflight": true})).apply(&without), Ok(with));
    }

    #[test]
    fn g4_widening_error_states_user_value() {
        let error = session_settings(
            &Settings::default(),
            &patch(json!({"autonomy_level": 3})),
            EffectiveCeiling::UNLIMITED,
        );
        let expected = "autonomy_level: 3 exceeds the user's 1; a session can only narrow the \
                        user's settings";
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
}
