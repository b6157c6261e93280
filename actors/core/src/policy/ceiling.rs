//! Ceilings: limits set by administrators that no user, session or approval may exceed (G17).
//!
//! [`Ceilings`] are the configured limits of the installation, of roles, agents and users.
//! [`Ceilings::combine`] returns the [`EffectiveCeiling`] of one session. Does not know where
//! ceilings are stored or who may change them.

use super::{Autonomy, BudgetLimit, BudgetPeriod, CeilingLimit, EffectiveCeiling, TooManyEntries};
use crate::{
    approval::Role,
    ids::{AgentName, ToolName, UserId},
    limits,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};
use utoipa::ToSchema;

/// The owner of a ceiling: all sessions that it applies to. A tenant's ceiling would stand between
/// the installation's and a role's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(tag = "scope", content = "name", rename_all = "snake_case")]
#[schema(as = CeilingScope)]
pub enum CeilingScope {
    /// All sessions.
    Installation,
    /// The runs that principals of this role began.
    Role(Role),
    /// The sessions of this agent and of the agents that it delegates to.
    Agent(AgentName),
    /// The sessions of this user.
    User(UserId),
}

impl fmt::Display for CeilingScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installation => f.write_str("the ceiling of the installation"),
            Self::Role(role) => write!(f, "the ceiling of role `{role}`"),
            Self::Agent(agent) => write!(f, "the ceiling of agent `{agent}`"),
            Self::User(user) => write!(f, "the ceiling of user `{user}`"),
        }
    }
}

/// One ceiling. An absent field limits nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ceiling {
    /// The highest autonomy level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autonomy_level: Option<Autonomy>,
    /// True if the setting `require_confirmation` may not be switched off. L3 then also asks before
    /// calls with the risk `write_high_risk` or higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_confirmation: Option<bool>,
    /// The regions outside of which no constraint allows a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_regions: Option<BTreeSet<i64>>,
    /// Limits on the cost of tools for each user: at most one per unit and period. No approval
    /// raises them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub budget_limits: Vec<BudgetLimit>,
    /// Names of tools, or globs over names, that are always denied.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub blocked_tools: BTreeSet<ToolName>,
}

/// The reason why a ceiling is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCeilings {
    /// A list is too long.
    #[error("{path}{0}", path = TablePath(.1))]
    TooManyEntries(TooManyEntries, CeilingScope),
    /// Two budget limits have the same unit and period.
    #[error(
        "{path}budget_limits: two limits in {unit} with the period `{period}`; give one",
        path = TablePath(.scope),
        period = .period.name()
    )]
    DuplicateBudget {
        /// The owner of the ceiling.
        scope: CeilingScope,
        /// The unit of both limits.
        unit: String,
        /// The period of both limits.
        period: BudgetPeriod,
    },
    /// There are too many ceilings of agents or users.
    #[error(transparent)]
    TooManyCeilings(TooManyEntries),
}

impl InvalidCeilings {
    /// Returns the path of the field that is not valid.
    pub fn field(&self) -> String {
        match self {
            Self::TooManyEntries(error, scope) => format!("{}{}", TablePath(scope), error.field),
            Self::DuplicateBudget { scope, .. } => format!("{}budget_limits", TablePath(scope)),
            Self::TooManyCeilings(error) => error.field.to_owned(),
        }
    }
}

/// Displays the path of a ceiling's table as the prefix of a field's path.
struct TablePath<'a>(&'a CeilingScope);

impl fmt::Display for TablePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CeilingScope::Installation => Ok(()),
            CeilingScope::Role(role) => write!(f, "roles.{role}."),
            CeilingScope::Agent(agent) => write!(f, "agents.{agent}."),
            CeilingScope::User(user) => write!(f, "users.{user}."),
        }
    }
}

/// A value in a ceiling, or in requested settings, is wider than a ceiling permits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct CeilingExceeded {
    /// The path of the field.
    pub field: String,
    /// The requested value and the limit, for humans.
    pub problem: String,
    /// The owner of the ceiling.
    pub scope: CeilingScope,
}

impl Ceiling {
    /// Returns the intersection of both ceilings: what it permits, both permit.
    #[must_use]
    pub fn narrowed_to(&self, other: &Self) -> Self {
        let mut budget_limits = self.budget_limits.clone();
        for limit in &other.budget_limits {
            let same =
                |known: &&mut BudgetLimit| known.unit == limit.unit && known.period == limit.period;
            match budget_limits.iter_mut().find(same) {
                Some(known) if limit.amount < known.amount => *known = limit.clone(),
                Some(_) => {}
                None => budget_limits.push(limit.clone()),
            }
        }
        budget_limits.sort_by(|a, b| (&a.unit, a.period).cmp(&(&b.unit, b.period)));
        let regions = match (&self.allowed_regions, &other.allowed_regions) {
            (Some(own), Some(other)) => Some(own.intersection(other).copied().collect()),
            (own, other) => own.as_ref().or(other.as_ref()).cloned(),
        };
        let is_required = [self, other].iter().any(|one| one.require_confirmation == Some(true));
        Self {
            autonomy_level: self.autonomy_level.into_iter().chain(other.autonomy_level).min(),
            // `false` limits nothing, like an absent value.
            require_confirmation: is_required.then_some(true),
            allowed_regions: regions,
            budget_limits,
            blocked_tools: self.blocked_tools.union(&other.blocked_tools).cloned().collect(),
        }
    }

    fn validate(&self, scope: &CeilingScope) -> Result<(), InvalidCeilings> {
        let regions = self.allowed_regions.as_ref().map_or(0, BTreeSet::len);
        for (field, found, max) in [
            ("blocked_tools", self.blocked_tools.len(), limits::BLOCKED_TOOLS_MAX),
            ("allowed_regions", regions, limits::ALLOWED_REGIONS_MAX),
            ("budget_limits", self.budget_limits.len(), limits::CEILING_BUDGETS_MAX),
        ] {
            if found > max {
                let error = TooManyEntries { field, found, max };
                return Err(InvalidCeilings::TooManyEntries(error, scope.clone()));
            }
        }
        let mut seen = BTreeSet::new();
        for BudgetLimit { unit, period, .. } in &self.budget_limits {
            if !seen.insert((unit, *period)) {
                let (scope, unit, period) = (scope.clone(), unit.clone(), *period);
                return Err(InvalidCeilings::DuplicateBudget { scope, unit, period });
            }
        }
        Ok(())
    }
}

/// The ceilings of the installation, of roles, agents and users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "CeilingsTable", into = "CeilingsTable")]
pub struct Ceilings {
    /// The ceiling of all sessions.
    pub installation: Ceiling,
    /// The ceilings of roles.
    pub roles: BTreeMap<Role, Ceiling>,
    /// The ceilings of agents.
    pub agents: BTreeMap<AgentName, Ceiling>,
    /// The ceilings of users.
    pub users: BTreeMap<UserId, Ceiling>,
}

/// The form of [`Ceilings`] in configuration and JSON: the fields of the installation's ceiling
/// stand beside the tables of the others.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Ceilings)]
pub struct CeilingsTable {
    /// See [`Ceiling::autonomy_level`].
    #[serde(skip_serializing_if = "Option::is_none")]
    autonomy_level: Option<Autonomy>,
    /// See [`Ceiling::require_confirmation`].
    #[serde(skip_serializing_if = "Option::is_none")]
    require_confirmation: Option<bool>,
    /// See [`Ceiling::allowed_regions`].
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_regions: Option<BTreeSet<i64>>,
    /// See [`Ceiling::budget_limits`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    budget_limits: Vec<BudgetLimit>,
    /// See [`Ceiling::blocked_tools`].
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    blocked_tools: BTreeSet<ToolName>,
    /// The ceilings of roles, by name: `user`, `approver` or `admin`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Ceiling>)]
    roles: BTreeMap<Role, Ceiling>,
    /// The ceilings of agents, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Ceiling>)]
    agents: BTreeMap<AgentName, Ceiling>,
    /// The ceilings of users, by id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Ceiling>)]
    users: BTreeMap<UserId, Ceiling>,
}

impl From<CeilingsTable> for Ceilings {
    fn from(table: CeilingsTable) -> Self {
        let CeilingsTable { roles, agents, users, .. } = table;
        let installation = Ceiling {
            autonomy_level: table.autonomy_level,
            require_confirmation: table.require_confirmation,
            allowed_regions: table.allowed_regions,
            budget_limits: table.budget_limits,
            blocked_tools: table.blocked_tools,
        };
        Self { installation, roles, agents, users }
    }
}

impl From<Ceilings> for CeilingsTable {
    fn from(ceilings: Ceilings) -> Self {
        let Ceilings { installation, roles, agents, users } = ceilings;
        Self {
            autonomy_level: installation.autonomy_level,
            require_confirmation: installation.require_confirmation,
            allowed_regions: installation.allowed_regions,
            budget_limits: installation.budget_limits,
            blocked_tools: installation.blocked_tools,
            roles,
            agents,
            users,
        }
    }
}

impl Ceilings {
    /// Validates what the types don't guarantee: the length of the lists, and one budget limit per
    /// unit and period.
    pub fn validate(&self) -> Result<(), InvalidCeilings> {
        for (field, found) in [("agents", self.agents.len()), ("users", self.users.len())] {
            let max = limits::CEILINGS_MAX;
            if found > max {
                let error = TooManyEntries { field, found, max };
                return Err(InvalidCeilings::TooManyCeilings(error));
            }
        }
        self.iter().try_for_each(|(scope, ceiling)| ceiling.validate(&scope))
    }

    /// Returns the intersection of both: what it permits, both permit.
    #[must_use]
    pub fn narrowed_to(&self, other: &Self) -> Self {
        Self {
            installation: self.installation.narrowed_to(&other.installation),
            roles: narrow_each(&self.roles, &other.roles),
            agents: narrow_each(&self.agents, &other.agents),
            users: narrow_each(&self.users, &other.users),
        }
    }

    /// Validates that no value of these ceilings is wider than `outer` permits: a value that would
    /// have no effect is an error, never ignored.
    pub fn validate_within(&self, outer: &Self) -> Result<(), CeilingExceeded> {
        self.iter().try_for_each(|(scope, ceiling)| {
            let (roles, agents, user) = match &scope {
                CeilingScope::Installation => (Vec::new(), Vec::new(), None),
                CeilingScope::Role(role) => (vec![*role], Vec::new(), None),
                CeilingScope::Agent(agent) => (Vec::new(), vec![agent], None),
                CeilingScope::User(user) => (Vec::new(), Vec::new(), Some(user)),
            };
            let bound = outer.combine(roles, agents, user);
            bound.validate_ceiling(ceiling).map_err(|exceeded| CeilingExceeded {
                field: format!("{}{}", TablePath(&scope), exceeded.field),
                ..exceeded
            })
        })
    }

    /// Returns true if a ceiling limits the cost of tools.
    pub fn has_budgets(&self) -> bool {
        let inner = self.roles.values().chain(self.agents.values()).chain(self.users.values());
        inner.chain([&self.installation]).any(|ceiling| !ceiling.budget_limits.is_empty())
    }

    /// Combines the ceilings that apply to principals of these roles, to these agents (that of a
    /// session and those of its ancestors) and to the user. If several apply, each field has the
    /// narrowest value.
    pub fn combine<'a>(
        &self,
        roles: impl IntoIterator<Item = Role>,
        agents: impl IntoIterator<Item = &'a AgentName>,
        user: Option<&UserId>,
    ) -> EffectiveCeiling {
        let mut effective = EffectiveCeiling::default();
        effective.add(&CeilingScope::Installation, &self.installation);
        for role in roles {
            if let Some(ceiling) = self.roles.get(&role) {
                effective.add(&CeilingScope::Role(role), ceiling);
            }
        }
        for agent in agents {
            if let Some(ceiling) = self.agents.get(agent) {
                effective.add(&CeilingScope::Agent(agent.clone()), ceiling);
            }
        }
        if let Some(user) = user
            && let Some(ceiling) = self.users.get(user)
        {
            effective.add(&CeilingScope::User(user.clone()), ceiling);
        }
        effective
    }

    /// Returns the limits of all ceilings, for display.
    pub fn limits(&self) -> Vec<CeilingLimit> {
        let limits = self.iter().map(|(scope, ceiling)| {
            let mut alone = EffectiveCeiling::default();
            alone.add(&scope, ceiling);
            alone.limits()
        });
        limits.flatten().collect()
    }

    /// Iterates over all ceilings with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (CeilingScope, &Ceiling)> {
        let roles = self.roles.iter().map(|(role, ceiling)| (CeilingScope::Role(*role), ceiling));
        let agents = self.agents.iter();
        let agents = agents.map(|(agent, ceiling)| (CeilingScope::Agent(agent.clone()), ceiling));
        let users = self.users.iter();
        let users = users.map(|(user, ceiling)| (CeilingScope::User(user.clone()), ceiling));
        let installation = (CeilingScope::Installation, &self.installation);
        std::iter::once(installation).chain(roles).chain(agents).chain(users)
    }
}

/// Returns the ceilings of both maps, narrowed where both have one.
fn narrow_each<K: Ord + Clone>(
    own: &BTreeMap<K, Ceiling>,
    other: &BTreeMap<K, Ceiling>,
) -> BTreeMap<K, Ceiling> {
    let mut narrowed = own.clone();
    for (key, ceiling) in other {
        let entry = narrowed.entry(key.clone()).or_default();
        *entry = entry.narrowed_to(ceiling);
    }
    narrowed
}

#[cfg(test)]
#[path = "ceiling_tests.rs"]
mod tests;
