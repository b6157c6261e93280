//! Budgets: what is spent of them, whether there is room for what comes next, and asking for more
//! (G6).

use super::{DecisionBuilder, Rejection, authorization::ToolLookup};
use crate::{
    approval::{ApprovalSubject, BudgetRaiseRequest, RecordedAnswer, Resolution},
    budget::{
        Budget, BudgetMeasure, BudgetRaise, BudgetScope, Expense, SpendingPrecondition, is_within,
    },
    call::Call,
    delegation::DELEGATE_TOOL,
    ids::{ApprovalId, CallId},
    policy::{Cost, Risk, Verdict},
    preflight::CostEstimate,
    session::{CallAuthorization, RunFailureCode, SessionEvent},
    usage::ModelUsage,
};

impl DecisionBuilder<'_> {
    /// Whether the next step may start. Where a budget is reached, people are asked, or the run
    /// fails if there is nobody to ask.
    pub(super) fn ensure_step_budget(&mut self) -> bool {
        let models =
            |budget: &Budget| matches!(budget.measure, BudgetMeasure::Tokens | BudgetMeasure::Usd);
        let reached = self.effective_budgets().into_iter().filter(models).find_map(|budget| {
            let spent = self.total_spent(&budget);
            // A cost that nobody knows has no room.
            (spent.is_nan() || spent >= budget.limit).then_some((budget, spent))
        });
        let Some((budget, spent)) = reached else { return true };
        self.request_budget_raise(budget, spent, 0.0, Vec::new());
        false
    }

    /// Whether people are asked about a budget that the next step waits for.
    pub(super) fn waits_for_budget(&self) -> bool {
        self.active.approvals.iter().any(|open| match &open.approval.subject {
            ApprovalSubject::Budget(asked) => asked.calls.is_empty(),
            ApprovalSubject::Plan { .. }
            | ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::Elicitation(_) => false,
        })
    }

    /// What the tightest budget for costs of that unit has left beside `own`, which is set aside;
    /// `None` if there is none.
    pub(super) fn remaining_budget(&self, unit: &str, own: f64) -> Option<f64> {
        let measure = BudgetMeasure::from_unit(unit);
        let left = |budget: &Budget| (budget.limit - self.total_spent(budget) + own).max(0.0);
        let budgets = self.effective_budgets();
        budgets.iter().filter(|budget| budget.measure == measure).map(left).reduce(f64::min)
    }

    pub(super) fn has_room_for(&self, cost: &Cost) -> bool {
        self.first_exceeded_budget(cost).is_none()
    }

    /// The first budget that has no room for that cost, and what is spent of it.
    fn first_exceeded_budget(&self, cost: &Cost) -> Option<(Budget, f64)> {
        // For what costs nothing there is room in every budget, one that is overdrawn included.
        if cost.is_zero() {
            return None;
        }
        let measure = BudgetMeasure::from_unit(&cost.unit);
        let of_unit =
            self.effective_budgets().into_iter().filter(|budget| budget.measure == measure);
        of_unit.map(|budget| (self.total_spent(&budget), budget)).find_map(|(spent, budget)| {
            // Written so that a sum that is no number has no room.
            let fits = spent + cost.amount <= budget.limit;
            (!fits).then_some((budget, spent))
        })
    }

    /// The budgets that have no room for what a plan may cost, in words for people (G14).
    pub(super) fn budget_warnings(&self, models: &CostEstimate, tools: &[&Cost]) -> Vec<String> {
        let short = |budget: Budget| {
            let estimated = match &budget.measure {
                BudgetMeasure::Tokens => models.tokens() as f64,
                // What nobody knows is warned of elsewhere.
                BudgetMeasure::Usd => models.estimated_usd?,
                BudgetMeasure::Unit(unit) => {
                    let of_unit = tools.iter().filter(|cost| cost.unit == **unit);
                    of_unit.map(|cost| cost.amount).sum()
                }
            };
            let left = (budget.limit - self.total_spent(&budget)).max(0.0);
            let (measure, fits) = (&budget.measure, estimated <= left);
            let words = || {
                format!(
                    "the plan may cost {estimated} {measure}, and the {budget} has {left} left; \
                     you will be asked to raise it"
                )
            };
            (!fits).then(words)
        };
        self.effective_budgets().into_iter().filter_map(short).collect()
    }

    /// Sets aside what an allowed call costs. With `is_claimed` the commit fails if another session
    /// has spent the user's budget meanwhile; a person who saw the excess has covered it.
    pub(super) fn reserve_cost(&mut self, call_id: CallId, cost: Cost, is_claimed: bool) {
        if cost.is_zero() {
            return;
        }
        let Some(tool) = self.call(call_id).map(|call| call.tool.clone()) else { return };
        let measure = BudgetMeasure::from_unit(&cost.unit);
        if is_claimed {
            let is_users =
                |budget: &Budget| budget.scope == BudgetScope::User && budget.measure == measure;
            let day = self.env.now.day();
            let claim = |budget: Budget| {
                let Budget { scope: _, period, measure, limit } = budget;
                SpendingPrecondition { measure, period, day, limit }
            };
            self.preconditions
                .extend(self.effective_budgets().into_iter().filter(is_users).map(claim));
        } else {
            // It is beyond what the calls before it in this decision take for granted.
            let of_unit = self.preconditions.iter_mut().filter(|claim| claim.measure == measure);
            of_unit.for_each(|claim| claim.limit += cost.amount);
        }
        self.emit(SessionEvent::BudgetReserved { call_id, tool, cost });
    }

    /// Asks for more for allowed calls that budgets have no room for: one question a budget.
    pub(super) fn request_budget_raises(&mut self, unfunded: Vec<(CallId, Cost)>) {
        let mut asks: Vec<(Budget, f64, f64, Vec<CallId>)> = Vec::new();
        for (call_id, cost) in unfunded {
            let Some((budget, spent)) = self.first_exceeded_budget(&cost) else {
                self.reserve_cost(call_id, cost, true);
                continue;
            };
            match asks.iter_mut().find(|(asked, ..)| asked.is_same_budget(&budget)) {
                Some((_, _, needed, calls)) => {
                    *needed += cost.amount;
                    calls.push(call_id);
                }
                None => asks.push((budget, spent, cost.amount, vec![call_id])),
            }
        }
        for (budget, spent, needed, calls) in asks {
            if self.active.run.is_none() {
                return; // The budget before this one ended it.
            }
            self.request_budget_raise(budget, spent, needed, calls);
        }
    }

    /// The budgets for what tools cost that children draw on, with what is spent of each.
    pub(super) fn tool_budgets(&self) -> Vec<(Budget, f64)> {
        let draws = |budget: &Budget| {
            matches!(budget.measure, BudgetMeasure::Unit(_)) && budget.scope != BudgetScope::User
        };
        let budgets = self.effective_budgets().into_iter().filter(draws);
        budgets.map(|budget| (budget.clone(), self.total_spent(&budget))).collect()
    }

    /// Asks for more where children have spent more than there is since `before`: somebody raised the
    /// share of one. What runs goes on, and the next step waits. What models cost is looked at
    /// before each step anyway.
    pub(super) fn request_raises_for_children(&mut self, before: &[(Budget, f64)]) {
        for (budget, spent) in self.tool_budgets() {
            let known = before.iter().find(|(known, _)| known.is_same_budget(&budget));
            let is_more = known.is_none_or(|(_, before)| spent > *before);
            let is_over = is_more && !is_within(spent, budget.limit);
            if is_over && self.active.run.is_some() && !self.is_raise_pending(&budget) {
                self.request_budget_raise(budget, spent, 0.0, Vec::new());
            }
        }
    }

    /// Whether people are asked about that budget already.
    fn is_raise_pending(&self, budget: &Budget) -> bool {
        self.active.approvals.iter().any(|open| match &open.approval.subject {
            ApprovalSubject::Budget(asked) => {
                asked.calls.is_empty() && asked.budget.is_same_budget(budget)
            }
            ApprovalSubject::Plan { .. }
            | ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::Elicitation(_) => false,
        })
    }

    fn request_budget_raise(
        &mut self,
        budget: Budget,
        spent: f64,
        needed: f64,
        calls: Vec<CallId>,
    ) {
        let spent_on = self.expense_breakdown(&budget, spent);
        // JSON has no NaN.
        let spent = if spent.is_finite() { spent } else { budget.limit };
        self.emit(SessionEvent::BudgetReached { budget: budget.clone(), spent, needed });
        if self.env.rules.agent.headless {
            let error = format!("the {budget} is reached, and there is nobody to raise it");
            return self.fail_run(RunFailureCode::BudgetReached, error);
        }
        let risks = calls.iter().filter_map(|call_id| self.call(*call_id)).map(|call| call.risk);
        let risk = risks.max().unwrap_or(Risk::ReadOnly);
        let mut purpose = format!("Raise the {budget}, or stop the run");
        if budget.scope == BudgetScope::Parent {
            purpose += "; its parent is asked, too, where that is more than it has left";
        }
        let asked = BudgetRaiseRequest { budget, spent, needed, spent_on, calls };
        self.request_approval(ApprovalSubject::Budget(asked), purpose, risk);
    }

    pub(super) fn resolve_budget_raise(
        &mut self,
        approval_id: ApprovalId,
        asked: &BudgetRaiseRequest,
        word: RecordedAnswer,
    ) -> Result<(), Rejection> {
        match word.resolution {
            Resolution::Raise(limit) => {
                if self.total_spent(&asked.budget).is_nan() {
                    let problem = "nobody knows what was spent of it, since a model has no price; \
                                   no limit can be kept";
                    return Err(Rejection::InvalidAnswer { problem: problem.to_owned() });
                }
                let needs = asked.spent + asked.needed;
                let is_enough = limit.is_finite()
                    && if asked.needed > 0.0 { limit >= needs } else { limit > needs };
                if !is_enough {
                    let least = if asked.needed > 0.0 { "at least" } else { "more than" };
                    let measure = &asked.budget.measure;
                    let problem = format!("the new limit must be {least} {needs} {measure}");
                    return Err(Rejection::InvalidAnswer { problem });
                }
                // What they cost can't be told.
                let calls = asked.calls.iter().filter_map(|call_id| self.call(*call_id));
                if let Some(call) = calls.into_iter().find(|it| self.is_tool_unavailable(it)) {
                    let problem = format!("{} is not there now; its server may be away", call.tool);
                    return Err(Rejection::InvalidAnswer { problem });
                }
                let by = word.by.clone();
                self.emit_answer(approval_id, word);
                let budget = Budget { limit, ..asked.budget.clone() };
                self.emit(SessionEvent::BudgetRaised { approval_id, budget, by });
                self.reserve_waiting_calls(&asked.calls);
            }
            Resolution::Stop => {
                let by = word.by.clone();
                self.emit_answer(approval_id, word);
                let error = format!("the {} is reached, and {by} stopped the run", asked.budget);
                self.fail_run(RunFailureCode::BudgetReached, error);
            }
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Failed
            | Resolution::Approve(_)
            | Resolution::Reject
            | Resolution::Answer(_) => {}
        }
        Ok(())
    }

    /// Sets aside what the calls cost that waited for a raise. They were allowed before; what the
    /// policy denies by now is denied.
    fn reserve_waiting_calls(&mut self, calls: &[CallId]) {
        let mut unfunded = Vec::new();
        for call_id in calls {
            let Some(call) = self.call(*call_id) else { continue };
            let arguments = call.effective_arguments().to_value();
            let tool = match self.lookup_tool(call) {
                ToolLookup::Available(tool) => tool,
                ToolLookup::Removed | ToolLookup::Unavailable => {
                    self.fail_removed_tool(*call_id);
                    continue;
                }
            };
            let cost = match self.verdict(&tool, &arguments) {
                Verdict::Deny(denial) => {
                    self.deny_call(*call_id, denial);
                    continue;
                }
                Verdict::Allow { cost, .. }
                | Verdict::Ask { cost, .. }
                | Verdict::OverBudget { cost, .. } => cost,
            };
            match cost.filter(|cost| !cost.is_zero()) {
                Some(cost) => unfunded.push((*call_id, cost)),
                None => {
                    let why = "it costs nothing any more".to_owned();
                    self.allow_call(*call_id, &arguments, CallAuthorization::Policy { why }, None);
                }
            }
        }
        self.request_budget_raises(unfunded);
    }

    fn is_tool_unavailable(&self, call: &Call) -> bool {
        matches!(self.lookup_tool(call), ToolLookup::Unavailable)
    }

    /// Every budget in force, with its limit in force.
    pub(super) fn effective_budgets(&self) -> Vec<Budget> {
        let own = self.active.settings.budget_limit.as_ref();
        let own = own.map(|limit| Budget::from_settings(limit, BudgetScope::Session));
        let users = self.env.user_spending.limit.as_ref();
        let users = users.map(|limit| Budget::from_settings(limit, BudgetScope::User));
        let profile = self.env.rules.agent.budgets.iter().cloned();
        profile.chain(own).chain(users).map(|budget| self.with_raise(budget)).collect()
    }

    fn with_raise(&self, budget: Budget) -> Budget {
        let holds = |raise: &&BudgetRaise| raise.applies_to(&budget, self.env.now);
        let raised = self.active.budget_raises.iter().find(holds).map(|raise| raise.budget.limit);
        Budget { limit: raised.map_or(budget.limit, |raised| raised.max(budget.limit)), ..budget }
    }

    /// What is spent or reserved of it; not a number where nobody knows what it cost.
    pub(super) fn total_spent(&self, budget: &Budget) -> f64 {
        self.spent_by_session(budget) + self.spent_by_children(budget)
    }

    /// The same without what children spent, where they count.
    fn spent_by_session(&self, budget: &Budget) -> f64 {
        let amount = |spending: ModelUsage| match budget.measure {
            BudgetMeasure::Tokens => spending.tokens.total() as f64,
            BudgetMeasure::Usd => spending.cost_usd.unwrap_or(f64::NAN),
            BudgetMeasure::Unit(_) => 0.0,
        };
        let (today, period) = (self.env.now.day(), budget.period);
        match (&budget.measure, budget.scope) {
            (BudgetMeasure::Unit(unit), BudgetScope::Run) => {
                let run = self.active.run.as_ref();
                run.and_then(|run| run.tool_costs.get(unit)).copied().unwrap_or_default()
            }
            (BudgetMeasure::Unit(unit), BudgetScope::Session | BudgetScope::Parent) => {
                self.active.tool_costs.spent(unit, period, today)
            }
            (BudgetMeasure::Unit(unit), BudgetScope::User) => {
                let spent = |costs: &crate::budget::ToolCosts| costs.spent(unit, period, today);
                let here_and_now =
                    spent(&self.active.tool_costs) - spent(&self.session.active.tool_costs);
                self.spent_by_user(budget) + here_and_now
            }
            (BudgetMeasure::Tokens | BudgetMeasure::Usd, BudgetScope::Run) => {
                amount(self.active.run.as_ref().map(|run| run.usage).unwrap_or_default())
            }
            (
                BudgetMeasure::Tokens | BudgetMeasure::Usd,
                BudgetScope::Session | BudgetScope::Parent,
            ) => amount(self.session_model_usage()),
            (BudgetMeasure::Tokens | BudgetMeasure::Usd, BudgetScope::User) => {
                let here_and_now =
                    amount(self.session_model_usage()) - amount(self.session.total_usage());
                self.spent_by_user(budget) + here_and_now
            }
        }
    }

    /// What children have spent of it.
    fn spent_by_children(&self, budget: &Budget) -> f64 {
        let delegated = match budget.scope {
            BudgetScope::Run => self.active.run.as_ref().map(|run| &run.child_usage),
            BudgetScope::Session | BudgetScope::Parent => Some(&self.active.child_usage),
            // They are sessions of the user like this one.
            BudgetScope::User => None,
        };
        let Some(delegated) = delegated else { return 0.0 };
        let today = self.env.now.day();
        match &budget.measure {
            BudgetMeasure::Tokens => delegated.usage.tokens.total() as f64,
            BudgetMeasure::Usd => delegated.usage.cost_usd.unwrap_or(f64::NAN),
            BudgetMeasure::Unit(unit) => delegated.costs.spent(unit, budget.period, today),
        }
    }

    /// What the user had spent when the decision began.
    fn spent_by_user(&self, budget: &Budget) -> f64 {
        let spent = self.env.user_spending.totals.get(&budget.measure);
        spent.map_or(0.0, |spent| spent.in_period(budget.period))
    }

    /// What models have cost this session, the decision at hand included.
    fn session_model_usage(&self) -> ModelUsage {
        let going = self.active.run.as_ref().map(|run| run.usage).unwrap_or_default();
        self.session.usage.plus(self.ended_usage).plus(going)
    }

    /// What the budget was spent on, as far as this session knows; the rest is told as one.
    fn expense_breakdown(&self, budget: &Budget, spent: f64) -> Vec<Expense> {
        let mut expenses = match &budget.measure {
            BudgetMeasure::Unit(unit) if budget.scope == BudgetScope::Run => {
                let calls = self.active.run.iter().flat_map(|run| &run.calls);
                let of_unit = calls.filter_map(|call| {
                    let cost = &call.reservation.as_ref()?.cost;
                    let what = call.tool.clone();
                    (cost.unit == **unit).then_some(Expense { what, amount: cost.amount })
                });
                of_unit.collect()
            }
            BudgetMeasure::Unit(unit) => {
                self.active.tool_costs.expenses(unit, budget.period, self.env.now.day())
            }
            BudgetMeasure::Tokens | BudgetMeasure::Usd => {
                let run = Budget { scope: BudgetScope::Run, ..budget.clone() };
                vec![Expense { what: "this run".to_owned(), amount: self.spent_by_session(&run) }]
            }
        };
        expenses.push(Expense {
            what: DELEGATE_TOOL.to_owned(),
            amount: self.spent_by_children(budget),
        });
        expenses.retain(|expense| expense.amount > 0.0);
        let known: f64 = expenses.iter().map(|expense| expense.amount).sum();
        let rest = spent - known;
        if rest > 0.0 {
            let what = match budget.scope {
                BudgetScope::Run => "earlier steps",
                BudgetScope::Session | BudgetScope::Parent => "earlier runs",
                BudgetScope::User => "the user's other sessions and earlier runs",
            };
            expenses.push(Expense { what: what.to_owned(), amount: rest });
        }
        expenses
    }
}
