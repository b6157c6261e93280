//! Budgets: computes what is spent and left, reserves costs, and requests raises (G6).

use super::{DecisionBuilder, Rejection, authorization::ToolLookup, plans::PlanStepDraft};
use crate::{
    amount::{Amount, format_amount},
    approval::{ApprovalSubject, BudgetRaiseRequest, RecordedAnswer, Resolution},
    budget::{
        Budget, BudgetMeasure, BudgetRaise, BudgetScope, Expense, SpendingEntry,
        SpendingPrecondition,
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
    /// Checks the token and money budgets before a step; returns true if the step may start.
    /// Otherwise requests a raise, or fails the run of a headless agent.
    pub(super) fn ensure_step_budget(&mut self) -> bool {
        let is_model_budget =
            |budget: &Budget| matches!(budget.measure, BudgetMeasure::Tokens | BudgetMeasure::Usd);
        let mut budgets = self.effective_budgets().into_iter().filter(is_model_budget);
        let reached = budgets.find_map(|budget| {
            let spent = self.total_spent(&budget);
            // An unknown cost counts as reached.
            spent.is_none_or(|spent| spent >= budget.limit).then_some((budget, spent))
        });
        let Some((budget, spent)) = reached else { return true };
        self.request_budget_raise(budget, spent, Amount::ZERO, Vec::new());
        false
    }

    /// Returns true if a budget approval is open that the next step waits for.
    pub(super) fn waits_for_budget(&self) -> bool {
        self.active.approvals.iter().any(|open| match &open.approval.subject {
            ApprovalSubject::Budget(request) => request.calls.is_empty(),
            ApprovalSubject::Plan { .. }
            | ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::Elicitation(_) => false,
        })
    }

    /// Returns what the tightest budget for costs in `unit` has left, not counting `own_reservation`,
    /// the call's own reservation. `None` if there is no such budget.
    pub(super) fn remaining_budget(&self, unit: &str, own_reservation: Amount) -> Option<Amount> {
        let measure = BudgetMeasure::from_unit(unit);
        let remaining = |budget: &Budget| {
            let spent = self.total_spent(budget).unwrap_or(budget.limit);
            (budget.limit - spent + own_reservation).at_least_zero()
        };
        let budgets = self.effective_budgets();
        budgets.iter().filter(|budget| budget.measure == measure).map(remaining).min()
    }

    /// Returns what a budget has left; nothing if a cost is unknown.
    pub(super) fn remaining_of(&self, budget: &Budget) -> Amount {
        self.total_spent(budget)
            .map_or(Amount::ZERO, |spent| (budget.limit - spent).at_least_zero())
    }

    pub(super) fn has_room_for(&self, cost: &Cost) -> bool {
        self.first_exceeded_budget(cost).is_none()
    }

    /// Returns the first budget that has no room for the cost, and the amount spent of it.
    fn first_exceeded_budget(&self, cost: &Cost) -> Option<(Budget, Option<Amount>)> {
        // A zero cost fits into every budget, including an overdrawn one.
        if cost.is_zero() {
            return None;
        }
        let measure = BudgetMeasure::from_unit(&cost.unit);
        let budgets =
            self.effective_budgets().into_iter().filter(|budget| budget.measure == measure);
        let mut spent = budgets.map(|budget| (self.total_spent(&budget), budget));
        spent.find_map(|(spent, budget)| {
            let fits = spent.is_some_and(|spent| spent + cost.amount <= budget.limit);
            (!fits).then_some((budget, spent))
        })
    }

    /// Returns a warning for each budget that has no room for the estimated cost of a plan (G14).
    pub(super) fn budget_warnings(&self, models: &CostEstimate, tools: &[&Cost]) -> Vec<String> {
        let warning = |budget: Budget| {
            let estimated = match &budget.measure {
                BudgetMeasure::Tokens => Amount::from_whole(models.tokens()),
                // An unknown price has its own warning.
                BudgetMeasure::Usd => models.estimated_usd?,
                BudgetMeasure::Unit(unit) => {
                    let in_unit = tools.iter().filter(|cost| cost.unit == **unit);
                    in_unit.map(|cost| cost.amount).sum()
                }
            };
            let remaining = self.remaining_of(&budget);
            let text = || {
                let estimated = format_amount(estimated, &budget.measure);
                format!(
                    "the plan may cost {estimated}, but the {budget} has {remaining} left; a raise \
                     will need approval"
                )
            };
            (estimated > remaining).then(text)
        };
        self.effective_budgets().into_iter().filter_map(warning).collect()
    }

    /// Reserves the cost of an allowed call. With `is_conditional`, the commit fails if another
    /// session has used up the user's budget by then. Without it, a human who saw the excess
    /// approved the cost.
    pub(super) fn reserve_cost(&mut self, call_id: CallId, cost: Cost, is_conditional: bool) {
        if cost.is_zero() {
            return;
        }
        let Some(tool) = self.call(call_id).map(|call| call.tool.clone()) else { return };
        self.require_ceiling_budgets(&cost);
        let measure = BudgetMeasure::from_unit(&cost.unit);
        if is_conditional {
            let is_user_budget =
                |budget: &Budget| budget.scope == BudgetScope::User && budget.measure == measure;
            let day = self.env.now.day();
            let precondition = |budget: Budget| {
                let Budget { scope: _, period, measure, limit } = budget;
                SpendingPrecondition { measure, period, day, limit }
            };
            let budgets = self.effective_budgets().into_iter().filter(is_user_budget);
            self.preconditions.extend(budgets.map(precondition));
        } else {
            // The approved cost does not count against the preconditions of earlier calls.
            let in_measure =
                self.preconditions.iter_mut().filter(|condition| condition.measure == measure);
            in_measure.for_each(|precondition| precondition.limit += cost.amount);
        }
        self.emit(SessionEvent::BudgetReserved { call_id, tool, cost });
    }

    /// Requests raises for allowed calls whose cost exceeds a budget: one approval per budget.
    pub(super) fn request_budget_raises(&mut self, over_budget: Vec<(CallId, Cost)>) {
        let mut requests: Vec<(Budget, Option<Amount>, Amount, Vec<CallId>)> = Vec::new();
        for (call_id, cost) in over_budget {
            let Some((budget, spent)) = self.first_exceeded_budget(&cost) else {
                self.reserve_cost(call_id, cost, true);
                continue;
            };
            match requests.iter_mut().find(|(known, ..)| known.is_same_budget(&budget)) {
                Some((_, _, needed, calls)) => {
                    *needed += cost.amount;
                    calls.push(call_id);
                }
                None => requests.push((budget, spent, cost.amount, vec![call_id])),
            }
        }
        for (budget, spent, needed, calls) in requests {
            if self.active.run.is_none() {
                return; // An earlier request of this loop ended the run.
            }
            self.request_budget_raise(budget, spent, needed, calls);
        }
    }

    /// Returns the tool cost budgets that children draw on, with the amount spent of each.
    pub(super) fn tool_budgets(&self) -> Vec<(Budget, Option<Amount>)> {
        let is_shared = |budget: &Budget| {
            matches!(budget.measure, BudgetMeasure::Unit(_)) && budget.scope != BudgetScope::User
        };
        let budgets = self.effective_budgets().into_iter().filter(is_shared);
        budgets.map(|budget| (budget.clone(), self.total_spent(&budget))).collect()
    }

    /// Requests raises for budgets that children have overdrawn since `before`, which happens if
    /// the share of a child was raised. Running work continues, and the next step waits. Model
    /// costs need no check here, because they are checked before each step.
    pub(super) fn request_raises_for_children(&mut self, before: &[(Budget, Option<Amount>)]) {
        for (budget, spent) in self.tool_budgets() {
            let known = before.iter().find(|(known, _)| known.is_same_budget(&budget));
            let has_increased = known.is_none_or(|(_, before)| spent > *before);
            let is_exceeded = has_increased && spent.is_none_or(|spent| spent > budget.limit);
            if is_exceeded && self.active.run.is_some() && !self.is_raise_pending(&budget) {
                self.request_budget_raise(budget, spent, Amount::ZERO, Vec::new());
            }
        }
    }

    /// Returns true if an approval to raise that budget is already open.
    fn is_raise_pending(&self, budget: &Budget) -> bool {
        self.active.approvals.iter().any(|open| match &open.approval.subject {
            ApprovalSubject::Budget(request) => {
                request.calls.is_empty() && request.budget.is_same_budget(budget)
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
        spent: Option<Amount>,
        needed: Amount,
        calls: Vec<CallId>,
    ) {
        let spent_on = self.expense_breakdown(&budget, spent);
        // The amount of an unknown cost is recorded as the limit.
        let spent = spent.unwrap_or(budget.limit);
        self.emit(SessionEvent::BudgetReached { budget: budget.clone(), spent, needed });
        if self.env.rules.agent.headless {
            let error = format!("the {budget} is reached, and a headless agent can't raise it");
            return self.fail_run(RunFailureCode::BudgetReached, error);
        }
        let risks = calls.iter().filter_map(|call_id| self.call(*call_id)).map(|call| call.risk);
        let risk = risks.max().unwrap_or(Risk::ReadOnly);
        let mut purpose = format!("Raise the {budget}, or stop the run");
        if budget.scope == BudgetScope::Parent {
            purpose +=
                "; above the parent session's remaining budget, approval is needed there too";
        }
        let request = BudgetRaiseRequest { budget, spent, needed, spent_on, calls };
        self.request_approval(ApprovalSubject::Budget(request), purpose, risk);
    }

    pub(super) fn resolve_budget_raise(
        &mut self,
        approval_id: ApprovalId,
        request: &BudgetRaiseRequest,
        answer: RecordedAnswer,
    ) -> Result<(), Rejection> {
        match answer.resolution {
            Resolution::Raise(limit) => {
                if self.total_spent(&request.budget).is_none() {
                    let problem = "the amount spent is unknown because a model has no price; no \
                                   limit can be enforced";
                    return Err(Rejection::InvalidAnswer { problem: problem.to_owned() });
                }
                let needs = request.spent + request.needed;
                let is_known = request.needed.is_positive();
                let is_enough = if is_known { limit >= needs } else { limit > needs };
                if !is_enough {
                    let comparison = if is_known { "at least" } else { "more than" };
                    let needs = format_amount(needs, &request.budget.measure);
                    let problem = format!("the new limit must be {comparison} {needs}");
                    return Err(Rejection::InvalidAnswer { problem });
                }
                self.ensure_raise_within_ceiling(&request.budget, limit)?;
                // The cost of calls without an available tool can't be computed.
                let mut calls = request.calls.iter().filter_map(|call_id| self.call(*call_id));
                if let Some(call) = calls.find(|call| self.is_tool_unavailable(call)) {
                    let problem = format!(
                        "{} is currently unavailable; its server may be disconnected",
                        call.tool
                    );
                    return Err(Rejection::InvalidAnswer { problem });
                }
                let by = answer.by.clone();
                self.emit_answer(approval_id, answer);
                let budget = Budget { limit, ..request.budget.clone() };
                self.emit(SessionEvent::BudgetRaised { approval_id, budget, by });
                self.reserve_waiting_calls(&request.calls);
            }
            Resolution::Stop => {
                let by = answer.by.clone();
                self.emit_answer(approval_id, answer);
                let error = format!("the {} is reached, and {by} stopped the run", request.budget);
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

    /// Reserves the costs of calls that waited for a raise. The calls were allowed before; a call
    /// that the policy now denies is denied, and a call that is critical now may need approval.
    fn reserve_waiting_calls(&mut self, calls: &[CallId]) {
        let (mut over_budget, mut drafts) = (Vec::new(), Vec::new());
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
                // A raise does not replace the approval of a critical call (G12).
                Verdict::Ask { reason, cost, exceeds_budget }
                    if !self.is_approval_sufficient(call, tool.risk) =>
                {
                    drafts.push(PlanStepDraft {
                        call_id: *call_id,
                        tool,
                        reason,
                        cost,
                        exceeds_budget,
                        edited: None,
                    });
                    continue;
                }
                Verdict::Allow { cost, .. }
                | Verdict::Ask { cost, .. }
                | Verdict::OverBudget { cost, .. } => cost,
            };
            match cost.filter(|cost| !cost.is_zero()) {
                Some(cost) => over_budget.push((*call_id, cost)),
                None => {
                    let why = "the call no longer has a cost".to_owned();
                    self.allow_call(*call_id, &arguments, CallAuthorization::Policy { why }, None);
                }
            }
        }
        self.request_plan_approval(drafts);
        self.request_budget_raises(over_budget);
    }

    fn is_tool_unavailable(&self, call: &Call) -> bool {
        matches!(self.lookup_tool(call), ToolLookup::Unavailable)
    }

    /// Returns every budget in force, with its effective limit.
    pub(super) fn effective_budgets(&self) -> Vec<Budget> {
        let settings = self.active.settings.budget_limit.as_ref();
        let session = settings.map(|limit| Budget::from_settings(limit, BudgetScope::Session));
        let spending = self.env.user_spending.limit.as_ref();
        let user = spending.map(|limit| Budget::from_settings(limit, BudgetScope::User));
        let profile = self.env.rules.agent.budgets.iter().cloned();
        profile.chain(session).chain(user).map(|budget| self.with_raise(budget)).collect()
    }

    fn with_raise(&self, budget: Budget) -> Budget {
        let applies = |raise: &&BudgetRaise| raise.applies_to(&budget, self.env.now);
        let raised = self.active.budget_raises.iter().find(applies).map(|raise| raise.budget.limit);
        Budget { limit: raised.map_or(budget.limit, |raised| raised.max(budget.limit)), ..budget }
    }

    /// Returns the amount spent or reserved of a budget; `None` if a cost is unknown.
    pub(super) fn total_spent(&self, budget: &Budget) -> Option<Amount> {
        let own = self.spent_by_session(budget)? + self.spent_by_children(budget)?;
        Some(own + self.spent_before_fork(budget))
    }

    /// Returns the amount that the session that was forked had spent of a budget: a fork does not
    /// restart the budgets of its session (G17).
    fn spent_before_fork(&self, budget: &Budget) -> Amount {
        if budget.scope != BudgetScope::Session {
            return Amount::ZERO;
        }
        let first_day = budget.period.first_day(self.env.now.day());
        let is_counted = |entry: &&SpendingEntry| {
            entry.measure == budget.measure && first_day.is_none_or(|first| entry.day >= first)
        };
        let counted = self.active.spent_before_fork.iter().filter(is_counted);
        counted.fold(Amount::ZERO, |spent, entry| spent + entry.amount)
    }

    /// Returns the part of [`Self::total_spent`] that [`Self::spent_by_children`] does not count.
    fn spent_by_session(&self, budget: &Budget) -> Option<Amount> {
        let amount = |usage: ModelUsage| match budget.measure {
            BudgetMeasure::Tokens => Some(Amount::from_whole(usage.tokens.total())),
            BudgetMeasure::Usd => usage.counted_cost_usd(),
            BudgetMeasure::Unit(_) => Some(Amount::ZERO),
        };
        let (today, period) = (self.env.now.day(), budget.period);
        match (&budget.measure, budget.scope) {
            (BudgetMeasure::Unit(unit), BudgetScope::Run) => {
                let run = self.active.run.as_ref();
                let spent = run.and_then(|run| run.tool_costs.get(unit).copied());
                Some(spent.unwrap_or_default())
            }
            (BudgetMeasure::Unit(unit), BudgetScope::Session | BudgetScope::Parent) => {
                Some(self.active.tool_costs.spent(unit, period, today))
            }
            (BudgetMeasure::Unit(unit), BudgetScope::User) => {
                let spent = |costs: &crate::budget::ToolCosts| costs.spent(unit, period, today);
                let in_this_decision =
                    spent(&self.active.tool_costs) - spent(&self.session.active.tool_costs);
                Some(self.spent_by_user(budget) + in_this_decision)
            }
            (BudgetMeasure::Tokens | BudgetMeasure::Usd, BudgetScope::Run) => {
                amount(self.active.run.as_ref().map(|run| run.usage).unwrap_or_default())
            }
            (
                BudgetMeasure::Tokens | BudgetMeasure::Usd,
                BudgetScope::Session | BudgetScope::Parent,
            ) => amount(self.session_model_usage()),
            (BudgetMeasure::Tokens | BudgetMeasure::Usd, BudgetScope::User) => {
                let in_this_decision =
                    amount(self.session_model_usage())? - amount(self.session.total_usage())?;
                Some(self.spent_by_user(budget) + in_this_decision)
            }
        }
    }

    /// Returns the amount that children have spent of a budget.
    fn spent_by_children(&self, budget: &Budget) -> Option<Amount> {
        let child_usage = match budget.scope {
            BudgetScope::Run => self.active.run.as_ref().map(|run| &run.child_usage),
            BudgetScope::Session | BudgetScope::Parent => Some(&self.active.child_usage),
            // The user's spending already includes the children, which are sessions of the user.
            BudgetScope::User => None,
        };
        let Some(child_usage) = child_usage else { return Some(Amount::ZERO) };
        let today = self.env.now.day();
        match &budget.measure {
            BudgetMeasure::Tokens => Some(Amount::from_whole(child_usage.usage.tokens.total())),
            BudgetMeasure::Usd => child_usage.usage.counted_cost_usd(),
            BudgetMeasure::Unit(unit) => Some(child_usage.costs.spent(unit, budget.period, today)),
        }
    }

    /// Returns the amount that the user had spent of a budget before this decision.
    fn spent_by_user(&self, budget: &Budget) -> Amount {
        let spent = self.env.user_spending.totals.get(&budget.measure);
        spent.map_or(Amount::ZERO, |spent| spent.in_period(budget.period))
    }

    /// Returns the session's model usage, including runs that ended in this decision.
    fn session_model_usage(&self) -> ModelUsage {
        let run_usage = self.active.run.as_ref().map(|run| run.usage).unwrap_or_default();
        self.session.usage.plus(self.ended_usage).plus(run_usage)
    }

    /// Returns the expenses that make up `spent`. An amount that this session can't attribute is
    /// one entry.
    fn expense_breakdown(&self, budget: &Budget, spent: Option<Amount>) -> Vec<Expense> {
        let mut expenses = match &budget.measure {
            BudgetMeasure::Unit(unit) if budget.scope == BudgetScope::Run => {
                let calls = self.active.run.iter().flat_map(|run| &run.calls);
                let in_unit = calls.filter_map(|call| {
                    let cost = &call.reservation.as_ref()?.cost;
                    let item = call.tool.clone();
                    (cost.unit == **unit).then_some(Expense { item, amount: cost.amount })
                });
                in_unit.collect()
            }
            BudgetMeasure::Unit(unit) => {
                self.active.tool_costs.expenses(unit, budget.period, self.env.now.day())
            }
            BudgetMeasure::Tokens | BudgetMeasure::Usd => {
                let run = Budget { scope: BudgetScope::Run, ..budget.clone() };
                let amount = self.spent_by_session(&run).unwrap_or_default();
                vec![Expense { item: "this run".to_owned(), amount }]
            }
        };
        expenses.push(Expense {
            item: DELEGATE_TOOL.to_owned(),
            amount: self.spent_by_children(budget).unwrap_or_default(),
        });
        expenses.retain(|expense| expense.amount.is_positive());
        let known: Amount = expenses.iter().map(|expense| expense.amount).sum();
        if let Some(remainder) = spent.map(|spent| spent - known).filter(|rest| rest.is_positive())
        {
            let item = match budget.scope {
                BudgetScope::Run => "earlier steps",
                BudgetScope::Session | BudgetScope::Parent => "earlier runs",
                BudgetScope::User => "the user's other sessions and earlier runs",
            };
            expenses.push(Expense { item: item.to_owned(), amount: remainder });
        }
        expenses
    }
}
