//! Budgets: what is spent of them, whether there is room for what comes next, and asking for more
//! (G6).

use super::{Deciding, Rejection, judging::Found};
use crate::{
    approval::{BudgetQuestion, Question, Resolution, Word},
    budget::{Budget, Claim, Expense, Measure, Raise, Scope, is_within},
    call::Call,
    delegation::DELEGATE,
    ids::{ApprovalId, CallId},
    policy::{Cost, Risk, Verdict},
    preflight::EstimatedCost,
    session::{Allowance, RunFailure, SessionEvent},
    usage::Spending,
};

impl Deciding<'_> {
    /// Whether the next step may start. Where a budget is reached, people are asked, or the run
    /// fails if there is nobody to ask.
    pub(super) fn may_start_step(&mut self) -> bool {
        let models = |budget: &Budget| matches!(budget.measure, Measure::Tokens | Measure::Usd);
        let reached = self.budgets().into_iter().filter(models).find_map(|budget| {
            let spent = self.spent_of(&budget);
            // A cost that nobody knows has no room.
            (spent.is_nan() || spent >= budget.limit).then_some((budget, spent))
        });
        let Some((budget, spent)) = reached else { return true };
        self.budget_reached(budget, spent, 0.0, Vec::new());
        false
    }

    /// Whether people are asked about a budget that the next step waits for.
    pub(super) fn waits_for_budget(&self) -> bool {
        self.active.approvals.iter().any(|open| match &open.approval.question {
            Question::Budget(asked) => asked.calls.is_empty(),
            Question::Plan { .. }
            | Question::UnknownOutcome(_)
            | Question::Preflight(_)
            | Question::Elicitation(_) => false,
        })
    }

    /// What the tightest budget for costs of that unit has left beside `own`, which is set aside;
    /// `None` if there is none.
    pub(super) fn remaining(&self, unit: &str, own: f64) -> Option<f64> {
        let measure = Measure::unit(unit);
        let left = |budget: &Budget| (budget.limit - self.spent_of(budget) + own).max(0.0);
        let budgets = self.budgets();
        budgets.iter().filter(|budget| budget.measure == measure).map(left).reduce(f64::min)
    }

    pub(super) fn has_room_for(&self, cost: &Cost) -> bool {
        self.without_room_for(cost).is_none()
    }

    /// The first budget that has no room for that cost, and what is spent of it.
    fn without_room_for(&self, cost: &Cost) -> Option<(Budget, f64)> {
        // For what costs nothing there is room in every budget, one that is overdrawn included.
        if cost.is_nothing() {
            return None;
        }
        let measure = Measure::unit(&cost.unit);
        let of_unit = self.budgets().into_iter().filter(|budget| budget.measure == measure);
        of_unit.map(|budget| (self.spent_of(&budget), budget)).find_map(|(spent, budget)| {
            // Written so that a sum that is no number has no room.
            let fits = spent + cost.amount <= budget.limit;
            (!fits).then_some((budget, spent))
        })
    }

    /// The budgets that have no room for what a plan may cost, in words for people (G14).
    pub(super) fn shortfalls(&self, models: &EstimatedCost, tools: &[&Cost]) -> Vec<String> {
        let short = |budget: Budget| {
            let estimated = match &budget.measure {
                Measure::Tokens => models.tokens() as f64,
                // What nobody knows is warned of elsewhere.
                Measure::Usd => models.estimated_usd?,
                Measure::Unit(unit) => {
                    let of_unit = tools.iter().filter(|cost| cost.unit == **unit);
                    of_unit.map(|cost| cost.amount).sum()
                }
            };
            let left = (budget.limit - self.spent_of(&budget)).max(0.0);
            let (measure, fits) = (&budget.measure, estimated <= left);
            let words = || {
                format!(
                    "the plan may cost {estimated} {measure}, and the {budget} has {left} left; \
                     you will be asked to raise it"
                )
            };
            (!fits).then(words)
        };
        self.budgets().into_iter().filter_map(short).collect()
    }

    /// Sets aside what an allowed call costs. With `is_claimed` the commit fails if another session
    /// has spent the user's budget meanwhile; a person who saw the excess has covered it.
    pub(super) fn reserve(&mut self, call_id: CallId, cost: Cost, is_claimed: bool) {
        if cost.is_nothing() {
            return;
        }
        let Some(tool) = self.call(call_id).map(|call| call.tool.clone()) else { return };
        let measure = Measure::unit(&cost.unit);
        if is_claimed {
            let is_users =
                |budget: &Budget| budget.scope == Scope::User && budget.measure == measure;
            let day = self.env.now.day();
            let claim = |budget: Budget| {
                let Budget { scope: _, period, measure, limit } = budget;
                Claim { measure, period, day, limit }
            };
            self.claims.extend(self.budgets().into_iter().filter(is_users).map(claim));
        } else {
            // It is beyond what the calls before it in this decision take for granted.
            let of_unit = self.claims.iter_mut().filter(|claim| claim.measure == measure);
            of_unit.for_each(|claim| claim.limit += cost.amount);
        }
        self.emit(SessionEvent::BudgetReserved { call_id, tool, cost });
    }

    /// Asks for more for allowed calls that budgets have no room for: one question a budget.
    pub(super) fn ask_for_budget(&mut self, unfunded: Vec<(CallId, Cost)>) {
        let mut asks: Vec<(Budget, f64, f64, Vec<CallId>)> = Vec::new();
        for (call_id, cost) in unfunded {
            let Some((budget, spent)) = self.without_room_for(&cost) else {
                self.reserve(call_id, cost, true);
                continue;
            };
            match asks.iter_mut().find(|(asked, ..)| asked.is_of(&budget)) {
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
            self.budget_reached(budget, spent, needed, calls);
        }
    }

    /// The budgets for what tools cost that children draw on, with what is spent of each.
    pub(super) fn spent_by_unit(&self) -> Vec<(Budget, f64)> {
        let draws = |budget: &Budget| {
            matches!(budget.measure, Measure::Unit(_)) && budget.scope != Scope::User
        };
        let budgets = self.budgets().into_iter().filter(draws);
        budgets.map(|budget| (budget.clone(), self.spent_of(&budget))).collect()
    }

    /// Asks for more where children have spent more than there is since `before`: somebody raised the
    /// share of one. What runs goes on, and the next step waits. What models cost is looked at
    /// before each step anyway.
    pub(super) fn ask_where_overdrawn(&mut self, before: &[(Budget, f64)]) {
        for (budget, spent) in self.spent_by_unit() {
            let known = before.iter().find(|(known, _)| known.is_of(&budget));
            let is_more = known.is_none_or(|(_, before)| spent > *before);
            let is_over = is_more && !is_within(spent, budget.limit);
            if is_over && self.active.run.is_some() && !self.is_asked_for(&budget) {
                self.budget_reached(budget, spent, 0.0, Vec::new());
            }
        }
    }

    /// Whether people are asked about that budget already.
    fn is_asked_for(&self, budget: &Budget) -> bool {
        self.active.approvals.iter().any(|open| match &open.approval.question {
            Question::Budget(asked) => asked.calls.is_empty() && asked.budget.is_of(budget),
            Question::Plan { .. }
            | Question::UnknownOutcome(_)
            | Question::Preflight(_)
            | Question::Elicitation(_) => false,
        })
    }

    fn budget_reached(&mut self, budget: Budget, spent: f64, needed: f64, calls: Vec<CallId>) {
        let spent_on = self.spent_on(&budget, spent);
        // JSON has no NaN.
        let spent = if spent.is_finite() { spent } else { budget.limit };
        self.emit(SessionEvent::BudgetReached { budget: budget.clone(), spent, needed });
        if self.env.rules.agent.headless {
            let error = format!("the {budget} is reached, and there is nobody to raise it");
            return self.fail_run(RunFailure::BudgetReached, error);
        }
        let risks = calls.iter().filter_map(|call_id| self.call(*call_id)).map(|call| call.risk);
        let risk = risks.max().unwrap_or(Risk::ReadOnly);
        let mut purpose = format!("Raise the {budget}, or stop the run");
        if budget.scope == Scope::Parent {
            purpose += "; its parent is asked, too, where that is more than it has left";
        }
        let asked = BudgetQuestion { budget, spent, needed, spent_on, calls };
        self.ask(Question::Budget(asked), purpose, risk);
    }

    pub(super) fn resolve_budget(
        &mut self,
        approval_id: ApprovalId,
        asked: &BudgetQuestion,
        word: Word,
    ) -> Result<(), Rejection> {
        match word.resolution {
            Resolution::Raise(limit) => {
                if self.spent_of(&asked.budget).is_nan() {
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
                if let Some(call) = calls.into_iter().find(|it| self.is_away(it)) {
                    let problem = format!("{} is not there now; its server may be away", call.tool);
                    return Err(Rejection::InvalidAnswer { problem });
                }
                let by = word.by.clone();
                self.note_word(approval_id, word);
                let budget = Budget { limit, ..asked.budget.clone() };
                self.emit(SessionEvent::BudgetRaised { approval_id, budget, by });
                self.fund_all(&asked.calls);
            }
            Resolution::Stop => {
                let by = word.by.clone();
                self.note_word(approval_id, word);
                let error = format!("the {} is reached, and {by} stopped the run", asked.budget);
                self.fail_run(RunFailure::BudgetReached, error);
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
    fn fund_all(&mut self, calls: &[CallId]) {
        let mut unfunded = Vec::new();
        for call_id in calls {
            let Some(call) = self.call(*call_id) else { continue };
            let arguments = call.passed().to_value();
            let tool = match self.tool_of(call) {
                Found::Tool(tool) => tool,
                Found::Gone | Found::Away => {
                    self.fail_gone(*call_id);
                    continue;
                }
            };
            let cost = match self.verdict(&tool, &arguments) {
                Verdict::Deny(denial) => {
                    self.deny(*call_id, denial);
                    continue;
                }
                Verdict::Allow { cost, .. }
                | Verdict::Ask { cost, .. }
                | Verdict::OverBudget { cost, .. } => cost,
            };
            match cost.filter(|cost| !cost.is_nothing()) {
                Some(cost) => unfunded.push((*call_id, cost)),
                None => {
                    let why = "it costs nothing any more".to_owned();
                    self.allow(*call_id, &arguments, Allowance::Policy { why }, None);
                }
            }
        }
        self.ask_for_budget(unfunded);
    }

    fn is_away(&self, call: &Call) -> bool {
        matches!(self.tool_of(call), Found::Away)
    }

    /// Every budget in force, with its limit in force.
    pub(super) fn budgets(&self) -> Vec<Budget> {
        let own = self.active.settings.budget_limit.as_ref();
        let own = own.map(|limit| Budget::of_settings(limit, Scope::Session));
        let users = self.env.account.limit.as_ref();
        let users = users.map(|limit| Budget::of_settings(limit, Scope::User));
        let profile = self.env.rules.agent.budgets.iter().cloned();
        profile.chain(own).chain(users).map(|budget| self.with_raise(budget)).collect()
    }

    fn with_raise(&self, budget: Budget) -> Budget {
        let holds = |raise: &&Raise| raise.holds_for(&budget, self.env.now);
        let raised = self.active.raises.iter().find(holds).map(|raise| raise.budget.limit);
        Budget { limit: raised.map_or(budget.limit, |raised| raised.max(budget.limit)), ..budget }
    }

    /// What is spent or reserved of it; not a number where nobody knows what it cost.
    pub(super) fn spent_of(&self, budget: &Budget) -> f64 {
        self.spent_here_of(budget) + self.delegated_of(budget)
    }

    /// The same without what children spent, where they count.
    fn spent_here_of(&self, budget: &Budget) -> f64 {
        let amount = |spending: Spending| match budget.measure {
            Measure::Tokens => spending.tokens.total() as f64,
            Measure::Usd => spending.cost_usd.unwrap_or(f64::NAN),
            Measure::Unit(_) => 0.0,
        };
        let (today, period) = (self.env.now.day(), budget.period);
        match (&budget.measure, budget.scope) {
            (Measure::Unit(unit), Scope::Run) => {
                let run = self.active.run.as_ref();
                run.and_then(|run| run.costs.get(unit)).copied().unwrap_or_default()
            }
            (Measure::Unit(unit), Scope::Session | Scope::Parent) => {
                self.active.costs.spent(unit, period, today)
            }
            (Measure::Unit(unit), Scope::User) => {
                let spent = |costs: &crate::budget::Costs| costs.spent(unit, period, today);
                let here_and_now = spent(&self.active.costs) - spent(&self.session.active.costs);
                self.spent_by_user(budget) + here_and_now
            }
            (Measure::Tokens | Measure::Usd, Scope::Run) => {
                amount(self.active.run.as_ref().map(|run| run.usage).unwrap_or_default())
            }
            (Measure::Tokens | Measure::Usd, Scope::Session | Scope::Parent) => {
                amount(self.spent_by_models())
            }
            (Measure::Tokens | Measure::Usd, Scope::User) => {
                let here_and_now = amount(self.spent_by_models()) - amount(self.session.spent());
                self.spent_by_user(budget) + here_and_now
            }
        }
    }

    /// What children have spent of it.
    fn delegated_of(&self, budget: &Budget) -> f64 {
        let delegated = match budget.scope {
            Scope::Run => self.active.run.as_ref().map(|run| &run.delegated),
            Scope::Session | Scope::Parent => Some(&self.active.delegated),
            // They are sessions of the user like this one.
            Scope::User => None,
        };
        let Some(delegated) = delegated else { return 0.0 };
        let today = self.env.now.day();
        match &budget.measure {
            Measure::Tokens => delegated.usage.tokens.total() as f64,
            Measure::Usd => delegated.usage.cost_usd.unwrap_or(f64::NAN),
            Measure::Unit(unit) => delegated.costs.spent(unit, budget.period, today),
        }
    }

    /// What the user had spent when the decision began.
    fn spent_by_user(&self, budget: &Budget) -> f64 {
        let spent = self.env.account.spent.get(&budget.measure);
        spent.map_or(0.0, |spent| spent.in_period(budget.period))
    }

    /// What models have cost this session, the decision at hand included.
    fn spent_by_models(&self) -> Spending {
        let going = self.active.run.as_ref().map(|run| run.usage).unwrap_or_default();
        self.session.usage.plus(self.ended).plus(going)
    }

    /// What the budget was spent on, as far as this session knows; the rest is told as one.
    fn spent_on(&self, budget: &Budget, spent: f64) -> Vec<Expense> {
        let mut expenses = match &budget.measure {
            Measure::Unit(unit) if budget.scope == Scope::Run => {
                let calls = self.active.run.iter().flat_map(|run| &run.calls);
                let of_unit = calls.filter_map(|call| {
                    let cost = &call.reserved.as_ref()?.cost;
                    let what = call.tool.clone();
                    (cost.unit == **unit).then_some(Expense { what, amount: cost.amount })
                });
                of_unit.collect()
            }
            Measure::Unit(unit) => {
                self.active.costs.expenses(unit, budget.period, self.env.now.day())
            }
            Measure::Tokens | Measure::Usd => {
                let run = Budget { scope: Scope::Run, ..budget.clone() };
                vec![Expense { what: "this run".to_owned(), amount: self.spent_here_of(&run) }]
            }
        };
        expenses.push(Expense { what: DELEGATE.to_owned(), amount: self.delegated_of(budget) });
        expenses.retain(|expense| expense.amount > 0.0);
        let known: f64 = expenses.iter().map(|expense| expense.amount).sum();
        let rest = spent - known;
        if rest > 0.0 {
            let what = match budget.scope {
                Scope::Run => "earlier steps",
                Scope::Session | Scope::Parent => "earlier runs",
                Scope::User => "the user's other sessions and earlier runs",
            };
            expenses.push(Expense { what: what.to_owned(), amount: rest });
        }
        expenses
    }
}
