//! The evaluation of the policy: a pure function that returns a verdict and its reason.
//!
//! Does not know sessions, approvals or grants. The caller requests approvals.

use super::{
    Autonomy, CeilingScope, Cost, CriticalRule, EffectiveCeiling, ExpressionContext, Matrix,
    MatrixVerdict, Risk, Settings, Tool,
};
use crate::amount::{Amount, format_amount};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of the policy for a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The call may run.
    Allow {
        /// The reason, for humans.
        reason: String,
        /// The cost of the call, if its tool has a cost.
        cost: Option<Cost>,
    },
    /// The call needs approval.
    Ask {
        /// The reason, for humans.
        reason: String,
        /// The cost of the call, if its tool has a cost.
        cost: Option<Cost>,
        /// True if the cost exceeds the remainder of a budget.
        exceeds_budget: bool,
    },
    /// The call would be allowed, but its cost exceeds the remainder of a budget. Raising the
    /// budget needs approval.
    OverBudget {
        /// The reason, for humans.
        reason: String,
        /// The cost of the call.
        cost: Option<Cost>,
    },
    /// The call must not run.
    Deny(Denial),
}

/// The reason why a call must not run (G7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The reason, for humans and for the model.
    pub reason: String,
    /// The lowest autonomy level at which the call is not denied; `None` if there is no such level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_level: Option<Autonomy>,
}

/// The context in which a call is evaluated, apart from the call and its tool.
#[derive(Clone, Copy, Debug)]
pub struct JudgeContext<'a> {
    /// The effective settings: the narrower of the session's and the user's. The evaluation narrows
    /// them to the ceiling.
    pub settings: &'a Settings,
    /// The ceiling of the session, with what its budgets have left (G17).
    pub ceiling: &'a EffectiveCeiling,
    /// The policy table, autonomy × risk.
    pub matrix: &'a Matrix,
    /// The rule for critical calls (G12).
    pub critical: CriticalRule,
    /// True if no human is available to answer approvals (G13).
    pub headless: bool,
    /// The user, as visible to expressions.
    pub user: &'a str,
    /// The session, as visible to expressions.
    pub session: &'a str,
    /// The agent of the session.
    pub agent: &'a str,
    /// The remainder of the budget in the unit of the tool's cost; `None` if there is no budget.
    pub remaining_budget: Option<Amount>,
}

/// Evaluates a call whose arguments are valid under the tool's schema.
///
/// The order is: tools that a ceiling or the user blocks, tools that the catalog denies, violated
/// constraints, exhausted budgets of a ceiling, and then the policy table. All but the last deny a
/// call of any risk. The rule for critical calls turns the table's allow into ask (G12).
pub fn judge_call(tool: &Tool, arguments: &Value, context: &JudgeContext<'_>) -> Verdict {
    let settings = context.ceiling.narrow(context.settings);
    let context = &JudgeContext { settings: &settings, ..*context };
    if let Some(reason) = unconditional_denial(tool, context) {
        return Verdict::Deny(Denial { reason, required_level: None });
    }
    let evaluated = evaluate_expressions(tool, arguments, context);
    let affordable = evaluated.and_then(|cost| {
        let denial = cost.as_ref().and_then(|cost| context.ceiling.budget_denial(cost));
        denial.map_or(Ok(cost), Err)
    });
    match affordable {
        Ok(cost) => Evaluation { tool, context, cost }.verdict(),
        Err(problem) => {
            let reason = format!("{} is denied: {problem}", tool.name);
            Verdict::Deny(Denial { reason, required_level: None })
        }
    }
}

/// Evaluates a tool without a call, for overviews. Unlike [`judge_call`], ignores everything that
/// depends on arguments.
pub fn judge_tool(tool: &Tool, context: &JudgeContext<'_>) -> Verdict {
    let settings = context.ceiling.narrow(context.settings);
    let context = &JudgeContext { settings: &settings, ..*context };
    match unconditional_denial(tool, context) {
        Some(reason) => Verdict::Deny(Denial { reason, required_level: None }),
        None => Evaluation { tool, context, cost: None }.verdict(),
    }
}

/// Returns the reason of a denial that applies at every autonomy level.
fn unconditional_denial(tool: &Tool, context: &JudgeContext<'_>) -> Option<String> {
    if let Some(reason) = context.ceiling.block_reason(tool) {
        return Some(reason);
    }
    if tool.find_match(&context.settings.blocked_tools).is_some() {
        return Some(format!("{} is blocked by the user's settings", tool.name));
    }
    tool.denial_reason.as_ref().map(|reason| format!("{} is denied: {reason}", tool.name))
}

/// Checks the constraints and returns the cost of the call. The error is the reason why the call is
/// not allowed, or why this can't be determined (G5).
fn evaluate_expressions(
    tool: &Tool,
    arguments: &Value,
    context: &JudgeContext<'_>,
) -> Result<Option<Cost>, String> {
    if !tool.has_expressions() {
        return Ok(None);
    }
    let context = ExpressionContext::new(arguments, context)?;
    for constraint in &tool.constraints {
        if let Some(violation) = constraint.violation(&context) {
            return Err(violation);
        }
    }
    // Without its key, a call can't be excluded from running in parallel with others.
    tool.exclusive_key(&context).map_err(|problem| format!("its exclusive key: {problem}"))?;
    let cost = tool.cost.as_ref().map(|rule| rule.evaluate(&context)).transpose();
    cost.map_err(|problem| format!("its cost: {problem}"))
}

/// The evaluation of a call by the table and the budget.
struct Evaluation<'a> {
    tool: &'a Tool,
    context: &'a JudgeContext<'a>,
    cost: Option<Cost>,
}

impl Evaluation<'_> {
    fn verdict(self) -> Verdict {
        let (tool, level) = (self.tool, self.context.settings.autonomy_level);
        let reason = || {
            let confirmation = self.confirmation_ceiling(level);
            let confirmation = confirmation.map(|scope| format!("{scope} requires confirmation"));
            let notes = [self.budget_excess(), confirmation, self.critical_requirement()];
            let notes: String =
                notes.into_iter().flatten().map(|note| format!("; {note}")).collect();
            let (name, risk, source) = (&tool.name, tool.risk, &tool.risk_source);
            format!("{name} is {risk} ({source}), level {level}{notes}")
        };
        match self.verdict_at(level) {
            MatrixVerdict::Allow => Verdict::Allow { reason: reason(), cost: self.cost },
            MatrixVerdict::Ask if !self.context.headless => {
                let exceeds_budget = self.budget_excess().is_some();
                match self.matrix_verdict(level) {
                    MatrixVerdict::Allow => {
                        Verdict::OverBudget { reason: reason(), cost: self.cost }
                    }
                    MatrixVerdict::Ask | MatrixVerdict::Deny => {
                        Verdict::Ask { reason: reason(), cost: self.cost, exceeds_budget }
                    }
                }
            }
            verdict @ (MatrixVerdict::Ask | MatrixVerdict::Deny) => {
                Verdict::Deny(self.denial(verdict))
            }
        }
    }

    /// Returns the verdict of the table at a level, with allow turned into ask if the cost exceeds
    /// the budget.
    fn verdict_at(&self, level: Autonomy) -> MatrixVerdict {
        match self.matrix_verdict(level) {
            MatrixVerdict::Allow if self.budget_excess().is_some() => MatrixVerdict::Ask,
            verdict @ (MatrixVerdict::Allow | MatrixVerdict::Ask | MatrixVerdict::Deny) => verdict,
        }
    }

    /// Returns the verdict of the table at a level, with allow turned into ask if a ceiling requires
    /// confirmation, or the rule for critical calls requires approval (G12).
    fn matrix_verdict(&self, level: Autonomy) -> MatrixVerdict {
        let needs_confirmation = self.confirmation_ceiling(level).is_some();
        match self.table_verdict(level) {
            MatrixVerdict::Allow if needs_confirmation || self.critical_requirement().is_some() => {
                MatrixVerdict::Ask
            }
            verdict @ (MatrixVerdict::Allow | MatrixVerdict::Ask | MatrixVerdict::Deny) => verdict,
        }
    }

    /// Returns the owner of the ceiling that requires confirmation of a call that the table allows.
    fn confirmation_ceiling(&self, level: Autonomy) -> Option<&CeilingScope> {
        let scope = self.context.ceiling.require_confirmation.as_ref()?;
        let is_allowed = self.table_verdict(level) == MatrixVerdict::Allow;
        (self.tool.risk >= Risk::WriteHighRisk && is_allowed).then_some(scope)
    }

    /// Returns the verdict of the table at a level, as it is configured.
    fn table_verdict(&self, level: Autonomy) -> MatrixVerdict {
        let context = self.context;
        let fits = |cost: &Cost| {
            context.remaining_budget.is_some_and(|remaining| cost.amount <= remaining)
        };
        let is_affordable = self.budget_excess().is_none() && self.cost.as_ref().is_some_and(fits);
        context.matrix.verdict(level, self.tool.risk, context.settings, is_affordable)
    }

    /// Returns the requirement of the rule for critical calls, if it applies to the call.
    fn critical_requirement(&self) -> Option<String> {
        let is_critical = self.tool.risk == Risk::Critical;
        self.context.critical.requirement().filter(|_| is_critical)
    }

    /// Returns a description of the excess if the cost exceeds the remainder of the budget. If the
    /// remainder is not known, the whole limit counts as the remainder.
    fn budget_excess(&self) -> Option<String> {
        let cost = self.cost.as_ref()?;
        let limit = self.context.settings.budget_limit.as_ref();
        let limit = limit.filter(|limit| limit.unit == cost.unit).map(|limit| limit.amount);
        let remaining = self.context.remaining_budget.or(limit)?;
        let remaining_text = || format_amount(remaining, &cost.unit);
        (cost.amount > remaining)
            .then(|| format!("its cost of {cost} exceeds the remaining {}", remaining_text()))
    }

    /// Returns the denial of a call that the table denies, or that would need approval in a
    /// headless session (G13).
    fn denial(&self, verdict: MatrixVerdict) -> Denial {
        let (tool, headless) = (self.tool, self.context.headless);
        let denied_at = |level: &Autonomy| match self.verdict_at(*level) {
            MatrixVerdict::Allow => false,
            MatrixVerdict::Ask => headless,
            MatrixVerdict::Deny => true,
        };
        let required_level = Autonomy::ALL.into_iter().find(|level| !denied_at(level));
        let requirement = match required_level {
            None => "no autonomy level allows it".to_owned(),
            Some(level) => {
                // In a configured table, a higher level may deny what a lower level allows.
                let is_monotone =
                    !Autonomy::ALL.iter().any(|above| *above > level && denied_at(above));
                let or_higher = if is_monotone { " or higher" } else { "" };
                format!("requires autonomy level {level}{or_higher}")
            }
        };
        let headless_note = match verdict {
            MatrixVerdict::Ask => {
                let rule = self.critical_requirement().map(|text| format!(" {text};"));
                let note = "needs approval, and no approver is available because the agent is \
                            headless;";
                format!("{} {note}", rule.unwrap_or_default())
            }
            MatrixVerdict::Allow | MatrixVerdict::Deny => String::new(),
        };
        let excess = self.budget_excess().map(|text| format!(" {text};")).unwrap_or_default();
        let (name, risk) = (&tool.name, tool.risk);
        let current = self.context.settings.autonomy_level.name();
        let limit = self.context.ceiling.autonomy_level.as_ref();
        let limit = limit.filter(|limit| required_level.is_some_and(|level| level > limit.value));
        let ceiling = limit
            .map(|limit| format!("; {} permits at most {}", limit.scope, limit.value))
            .unwrap_or_default();
        let reason = format!(
            "{name} is {risk}:{excess}{headless_note} {requirement}; current level: \
             {current}{ceiling}"
        );
        Denial { reason, required_level }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
