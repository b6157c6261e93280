//! The ceiling of the session, as it is in force at the decision (G17).

use super::{DecisionBuilder, Rejection};
use crate::{
    amount::Amount,
    approval::Role,
    authors::Authors,
    budget::{Budget, BudgetMeasure, BudgetScope, SpendingPrecondition},
    call::Reservation,
    ids::AgentName,
    policy::{BudgetLimit, Cost, EffectiveCeiling, Settings},
};
use std::collections::BTreeSet;

impl DecisionBuilder<'_> {
    /// Returns the ceiling of the session. Computed for each evaluation, because the run, and with
    /// it the role, changes within a decision.
    pub(super) fn ceiling(&self) -> EffectiveCeiling {
        let owner = self.owner();
        self.env.rules.ceilings.combine(self.roles(), self.agents(), owner.as_ref())
    }

    /// Returns the ceiling with what its budgets have left, without the reservation of the call
    /// itself.
    pub(super) fn ceiling_with_spending(&self, reserved: Option<&Reservation>) -> EffectiveCeiling {
        self.ceiling().with_spending(|limit| {
            let own = reserved.filter(|reservation| reservation.cost.unit == limit.unit);
            let own_amount = own.map_or(Amount::ZERO, |reservation| reservation.cost.amount);
            // Nothing is left if a cost is unknown.
            let spent = self.total_spent(&Budget::from_settings(limit, BudgetScope::User));
            let Some(spent) = spent else { return limit.amount };
            (spent - own_amount).at_least_zero()
        })
    }

    /// Returns the settings in force, narrowed to the ceiling.
    pub(super) fn narrowed_settings(&self) -> Settings {
        self.ceiling().narrow(self.active.effective_settings()).into_owned()
    }

    /// Returns the agents whose ceilings apply: the session's, and those of its ancestors.
    pub(super) fn agents(&self) -> impl Iterator<Item = &AgentName> {
        let parent = self.owner_and_parent.as_ref().map(|(_, parent)| &parent.bounds.agents);
        parent.into_iter().flatten().chain([&self.env.rules.agent.name])
    }

    /// Returns the roles whose ceilings apply: those of all authors of the run's messages. In logs
    /// that do not record them, the role with the fewest rights counts.
    fn roles(&self) -> BTreeSet<Role> {
        let run = self.active.run.as_ref();
        run.map_or_else(|| Authors::default().roles(), |run| run.authors.roles())
    }

    /// Rejects a raise of a budget beyond what the ceiling permits.
    pub(super) fn ensure_raise_within_ceiling(
        &self,
        budget: &Budget,
        limit: Amount,
    ) -> Result<(), Rejection> {
        let BudgetMeasure::Unit(unit) = &budget.measure else { return Ok(()) };
        let (unit, period) = (unit.to_string(), budget.period);
        let raised = BudgetLimit { amount: limit, unit, period };
        Ok(self.ceiling().validate_budget("value", &raised)?)
    }

    /// Lets the commit fail if another session has used up a budget of the ceiling by then. A budget
    /// that is already exceeded adds no condition: its call is denied before its attempt starts.
    pub(super) fn require_ceiling_budgets(&mut self, cost: &Cost) {
        let day = self.env.now.day();
        let ceiling = self.ceiling_with_spending(None);
        let in_unit = ceiling.budgets.iter().filter(|budget| budget.limit.unit == cost.unit);
        for budget in in_unit.filter(|budget| cost.amount <= budget.remaining) {
            let BudgetLimit { amount: limit, unit, period } = &budget.limit;
            let measure = BudgetMeasure::from_unit(unit);
            let (period, limit) = (*period, *limit);
            self.ceiling_preconditions.push(SpendingPrecondition { measure, period, day, limit });
        }
    }
}
