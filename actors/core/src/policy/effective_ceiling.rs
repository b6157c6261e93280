//! The ceiling of one session: the combination of all ceilings that apply to it (G17).
//!
//! Every value knows whose ceiling it is, so that an error or a denial can name it.

use super::{
    Autonomy, BudgetLimit, Ceiling, CeilingExceeded, CeilingScope, Cost, Settings, SettingsPatch,
    Tool,
};
use crate::{
    amount::{Amount, format_amount},
    ids::ToolName,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};
use utoipa::ToSchema;

/// A value of a ceiling with its owner.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedLimit<T> {
    /// The value.
    pub value: T,
    /// The owner of the ceiling.
    pub scope: CeilingScope,
}

/// A budget of a ceiling.
#[derive(Clone, Debug, PartialEq)]
pub struct CeilingBudget {
    /// The limit.
    pub limit: BudgetLimit,
    /// The owner of the ceiling.
    pub scope: CeilingScope,
    /// The rest of the limit. The whole limit, if the spending is not known.
    pub remaining: Amount,
}

/// One limit of an effective ceiling, for display.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CeilingLimit {
    /// The field of the ceiling.
    pub field: &'static str,
    /// The limit: the value of the field, or one entry of `budget_limits` and `blocked_tools`.
    pub value: Value,
    /// The owner of the ceiling.
    pub ceiling: CeilingScope,
}

/// The combination of the ceilings that apply to a session. The default limits nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EffectiveCeiling {
    /// The highest autonomy level.
    pub autonomy_level: Option<OwnedLimit<Autonomy>>,
    /// The owner of the ceiling that requires confirmation.
    pub require_confirmation: Option<CeilingScope>,
    /// The allowed regions of each ceiling that restricts them, ordered by owner. A region is
    /// allowed if all of them contain it.
    pub allowed_regions: Vec<OwnedLimit<BTreeSet<i64>>>,
    /// All budget limits, ordered by unit, period and owner.
    pub budgets: Vec<CeilingBudget>,
    /// The names and globs of blocked tools, each with the owner of its ceiling.
    pub blocked_tools: BTreeMap<ToolName, CeilingScope>,
}

impl EffectiveCeiling {
    /// The ceiling of a session to which no ceiling applies.
    pub const UNLIMITED: &'static Self = &Self {
        autonomy_level: None,
        require_confirmation: None,
        allowed_regions: Vec::new(),
        budgets: Vec::new(),
        blocked_tools: BTreeMap::new(),
    };

    /// Narrows this ceiling to another one. The result does not depend on the order in which
    /// ceilings are added.
    pub(super) fn add(&mut self, scope: &CeilingScope, ceiling: &Ceiling) {
        if let Some(value) = ceiling.autonomy_level {
            let added = OwnedLimit { value, scope: scope.clone() };
            let rank = |limit: &OwnedLimit<Autonomy>| (limit.value, limit.scope.clone());
            if self.autonomy_level.as_ref().is_none_or(|known| rank(&added) < rank(known)) {
                self.autonomy_level = Some(added);
            }
        }
        if ceiling.require_confirmation == Some(true) {
            let known = self.require_confirmation.take().into_iter();
            self.require_confirmation = known.chain([scope.clone()]).min();
        }
        if let Some(regions) = &ceiling.allowed_regions {
            let added = OwnedLimit { value: regions.clone(), scope: scope.clone() };
            if !self.allowed_regions.contains(&added) {
                self.allowed_regions.push(added);
                self.allowed_regions
                    .sort_by(|a, b| (&a.scope, &a.value).cmp(&(&b.scope, &b.value)));
            }
        }
        for limit in &ceiling.budget_limits {
            let remaining = limit.amount;
            let added = CeilingBudget { limit: limit.clone(), scope: scope.clone(), remaining };
            if !self.budgets.contains(&added) {
                self.budgets.push(added);
            }
        }
        self.budgets.sort_by(|a, b| {
            let rank = |budget: &CeilingBudget| (budget.limit.period, budget.scope.clone());
            let by_unit = a.limit.unit.cmp(&b.limit.unit).then_with(|| rank(a).cmp(&rank(b)));
            by_unit.then_with(|| a.limit.amount.cmp(&b.limit.amount))
        });
        for pattern in &ceiling.blocked_tools {
            let owner = self.blocked_tools.entry(pattern.clone()).or_insert_with(|| scope.clone());
            if scope < owner {
                *owner = scope.clone();
            }
        }
    }

    /// Returns true if no ceiling limits anything.
    pub fn is_unlimited(&self) -> bool {
        self == Self::UNLIMITED
    }

    /// Returns all limits with their owners, for display.
    pub fn limits(&self) -> Vec<CeilingLimit> {
        let limit = |field, value, scope: &CeilingScope| CeilingLimit {
            field,
            value,
            ceiling: scope.clone(),
        };
        let level = self.autonomy_level.iter();
        let level = level.map(|owned| limit("autonomy_level", json!(owned.value), &owned.scope));
        let confirmation = self.require_confirmation.iter();
        let confirmation =
            confirmation.map(|scope| limit("require_confirmation", json!(true), scope));
        let regions = self.allowed_regions.iter();
        let regions =
            regions.map(|owned| limit("allowed_regions", json!(owned.value), &owned.scope));
        let budgets = self.budgets.iter();
        let budgets =
            budgets.map(|budget| limit("budget_limits", json!(budget.limit), &budget.scope));
        let blocked = self.blocked_tools.iter();
        let blocked = blocked.map(|(tool, scope)| limit("blocked_tools", json!(tool), scope));
        level.chain(confirmation).chain(regions).chain(budgets).chain(blocked).collect()
    }

    /// Returns the ceiling with what is left of each budget. `spent` returns what the user has
    /// spent in the unit and period of a limit.
    #[must_use]
    pub fn with_spending(mut self, spent: impl Fn(&BudgetLimit) -> Amount) -> Self {
        for budget in &mut self.budgets {
            budget.remaining = (budget.limit.amount - spent(&budget.limit)).at_least_zero();
        }
        self
    }

    /// Returns the settings that apply under this ceiling: the narrower value in every field.
    pub fn narrow<'a>(&self, settings: &'a Settings) -> Cow<'a, Settings> {
        if self.permits(settings) {
            return Cow::Borrowed(settings);
        }
        let mut narrowed = settings.clone();
        if let Some(limit) = &self.autonomy_level {
            narrowed.autonomy_level = narrowed.autonomy_level.min(limit.value);
        }
        narrowed.require_confirmation |= self.require_confirmation.is_some();
        narrowed.allowed_regions = self.narrow_regions(settings.allowed_regions.as_ref());
        if let Some(limit) = &mut narrowed.budget_limit {
            let exceeded = self.budgets.iter().filter(|budget| budget.is_exceeded_by(limit));
            let amounts = exceeded.map(|budget| budget.limit.amount);
            limit.amount = amounts.fold(limit.amount, Amount::min);
        }
        narrowed.blocked_tools.extend(self.blocked_tools.keys().cloned());
        Cow::Owned(narrowed)
    }

    /// Returns true if the settings are already as narrow as this ceiling.
    fn permits(&self, settings: &Settings) -> bool {
        let is_within = |limit: &OwnedLimit<BTreeSet<i64>>| {
            settings.allowed_regions.as_ref().is_some_and(|own| own.is_subset(&limit.value))
        };
        let is_exceeded = |limit| self.budgets.iter().any(|budget| budget.is_exceeded_by(limit));
        self.validate_level(settings.autonomy_level).is_ok()
            && (settings.require_confirmation || self.require_confirmation.is_none())
            && self.allowed_regions.iter().all(is_within)
            && !settings.budget_limit.as_ref().is_some_and(is_exceeded)
            && self.blocked_tools.keys().all(|tool| settings.blocked_tools.contains(tool))
    }

    fn narrow_regions(&self, own: Option<&BTreeSet<i64>>) -> Option<BTreeSet<i64>> {
        let mut sets = own.into_iter().chain(self.allowed_regions.iter().map(|limit| &limit.value));
        let first = sets.next()?.clone();
        Some(sets.fold(first, |left, right| left.intersection(right).copied().collect()))
    }

    /// Returns the regions that all ceilings allow; `None` if none restricts them.
    pub fn allowed_regions(&self) -> Option<BTreeSet<i64>> {
        self.narrow_regions(None)
    }

    /// Validates that a request for settings asks for no more than this ceiling permits. Fields
    /// that the request leaves out are not checked, because they are narrowed at each evaluation.
    ///
    /// `budget_limit: null` only lifts the user's own limit: the ceiling's budgets apply beside it.
    pub fn validate_patch(&self, patch: &SettingsPatch) -> Result<(), CeilingExceeded> {
        if let Some(level) = patch.autonomy_level {
            self.validate_level(level)?;
        }
        if let (Some(false), Some(scope)) = (patch.require_confirmation, &self.require_confirmation)
        {
            return Err(exceeded("require_confirmation", "it may not be switched off", scope));
        }
        if let Some(requested) = &patch.allowed_regions {
            self.validate_regions(requested.as_ref())?;
        }
        if let Some(Some(limit)) = &patch.budget_limit {
            self.validate_budget("budget_limit", limit)?;
        }
        Ok(())
    }

    /// Validates that the autonomy level does not exceed this ceiling.
    pub fn validate_level(&self, level: Autonomy) -> Result<(), CeilingExceeded> {
        match &self.autonomy_level {
            Some(limit) if level > limit.value => {
                let problem = format!("{} exceeds {}", level.level(), limit.value.level());
                Err(exceeded("autonomy_level", problem, &limit.scope))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn validate_regions(&self, requested: Option<&BTreeSet<i64>>) -> Result<(), CeilingExceeded> {
        let field = "allowed_regions";
        for OwnedLimit { value: allowed, scope } in &self.allowed_regions {
            let Some(requested) = requested else {
                return Err(exceeded(field, "null would allow all regions", scope));
            };
            if let Some(extra) = requested.difference(allowed).next() {
                return Err(exceeded(field, format!("{extra} is not among the regions"), scope));
            }
        }
        Ok(())
    }

    /// Validates that a limit on costs permits no more than the budgets of this ceiling: a limit
    /// may not exceed one in the same unit whose period is the same or longer.
    pub fn validate_budget(&self, field: &str, limit: &BudgetLimit) -> Result<(), CeilingExceeded> {
        match self.budgets.iter().find(|budget| budget.is_exceeded_by(limit)) {
            Some(CeilingBudget { limit: allowed, scope, .. }) => {
                Err(exceeded(field, format!("{limit} exceeds {allowed}"), scope))
            }
            None => Ok(()),
        }
    }

    /// Validates that an inner ceiling states nothing wider than this one.
    pub(super) fn validate_ceiling(&self, inner: &Ceiling) -> Result<(), CeilingExceeded> {
        let patch = SettingsPatch {
            autonomy_level: inner.autonomy_level,
            require_confirmation: inner.require_confirmation,
            allowed_regions: inner.allowed_regions.clone().map(Some),
            ..SettingsPatch::default()
        };
        self.validate_patch(&patch)?;
        let mut limits = inner.budget_limits.iter();
        limits.try_for_each(|limit| self.validate_budget("budget_limits", limit))
    }

    /// Returns the reason if a ceiling blocks the tool.
    pub(super) fn block_reason(&self, tool: &Tool) -> Option<String> {
        let scope = self.blocked_tools.get(tool.find_match(self.blocked_tools.keys())?)?;
        Some(format!("{} is blocked by {scope}", tool.name))
    }

    /// Returns the reason if the cost exceeds what a ceiling's budget has left. No approval raises
    /// such a budget.
    pub(super) fn budget_denial(&self, cost: &Cost) -> Option<String> {
        let fits = |budget: &CeilingBudget| cost.is_zero() || cost.amount <= budget.remaining;
        let mut in_unit = self.budgets.iter().filter(|budget| budget.limit.unit == cost.unit);
        let CeilingBudget { limit, scope, remaining } = in_unit.find(|budget| !fits(budget))?;
        let remaining = format_amount(*remaining, &cost.unit);
        Some(format!("its cost of {cost} exceeds the remaining {remaining} of {limit}, {scope}"))
    }
}

impl CeilingBudget {
    /// Returns true if `limit` permits more in its period than this budget does in its own, which
    /// is the same or longer.
    fn is_exceeded_by(&self, limit: &BudgetLimit) -> bool {
        limit.unit == self.limit.unit
            && limit.amount > self.limit.amount
            && limit.period <= self.limit.period
    }
}

fn exceeded(
    field: impl Into<String>,
    problem: impl std::fmt::Display,
    scope: &CeilingScope,
) -> CeilingExceeded {
    let problem = format!("{problem}, {scope}");
    CeilingExceeded { field: field.into(), problem, scope: scope.clone() }
}
