//! The judge: one pure function from what is known to a verdict with its reason.
//!
//! It knows nothing of sessions, approvals or grants; who asks whom is the caller's business.

use super::{Autonomy, Cost, ExpressionContext, Matrix, MatrixVerdict, Settings, Tool};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What may happen with a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It runs.
    Allow {
        /// Why, for people.
        reason: String,
        /// What it costs, if its tool has a cost.
        cost: Option<Cost>,
    },
    /// A person is asked.
    Ask {
        /// Why, for people.
        reason: String,
        /// What it costs, if its tool has a cost.
        cost: Option<Cost>,
        /// Whether that is more than a budget has left.
        exceeds_budget: bool,
    },
    /// It would run, but a budget has no room for what it costs: a person is asked to raise it.
    OverBudget {
        /// Why, for people.
        reason: String,
        /// What it costs.
        cost: Option<Cost>,
    },
    /// It does not run.
    Deny(Denial),
}

/// Why a call does not run (G7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// For people and for the model.
    pub reason: String,
    /// The least autonomy level at which it would not be denied, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_level: Option<Autonomy>,
}

/// What a call is judged by, itself and its tool aside.
#[derive(Clone, Copy, Debug)]
pub struct JudgeContext<'a> {
    /// What is allowed: the narrower of the session's settings and its user's.
    pub settings: &'a Settings,
    /// Autonomy × risk.
    pub matrix: &'a Matrix,
    /// Nobody is there to ask (G13).
    pub headless: bool,
    /// The user, as expressions see them.
    pub user: &'a str,
    /// The session, as expressions see it.
    pub session: &'a str,
    /// The session's agent.
    pub agent: &'a str,
    /// What remains of the budget for the unit of the tool's cost; `None` is no budget.
    pub remaining_budget: Option<f64>,
}

/// Judges one call whose arguments fit the tool's schema.
///
/// What the user blocks and what the catalog forbids is denied first, then what a constraint
/// forbids, whatever the tool's risk; the table rules on the rest.
pub fn judge_call(tool: &Tool, arguments: &Value, judging: &JudgeContext<'_>) -> Verdict {
    if let Some(reason) = unconditional_denial(tool, judging.settings) {
        return Verdict::Deny(Denial { reason, required_level: None });
    }
    match evaluate_expressions(tool, arguments, judging) {
        Ok(cost) => Evaluation { tool, context: judging, cost }.verdict(),
        Err(problem) => {
            let reason = format!("{} is denied: {problem}", tool.name);
            Verdict::Deny(Denial { reason, required_level: None })
        }
    }
}

/// The verdict on a tool before there is a call, for overviews: as [`judge`], but without what
/// depends on arguments.
pub fn judge_tool(tool: &Tool, judging: &JudgeContext<'_>) -> Verdict {
    match unconditional_denial(tool, judging.settings) {
        Some(reason) => Verdict::Deny(Denial { reason, required_level: None }),
        None => Evaluation { tool, context: judging, cost: None }.verdict(),
    }
}

/// A denial that no autonomy level lifts.
fn unconditional_denial(tool: &Tool, settings: &Settings) -> Option<String> {
    // Two servers with the same tool make its name longer; that must not unblock it.
    let blocks = |name: &str| name == tool.name.as_str() || name == tool.remote_name;
    if settings.blocked_tools.iter().any(|blocked| blocks(blocked.as_str())) {
        return Some(format!("{} is blocked by the user's settings", tool.name));
    }
    tool.denial_reason.as_ref().map(|reason| format!("{} is denied: {reason}", tool.name))
}

/// What a call that every constraint allows costs; the error says why it is not allowed, or why
/// that can't be known (G5).
fn evaluate_expressions(
    tool: &Tool,
    arguments: &Value,
    judging: &JudgeContext<'_>,
) -> Result<Option<Cost>, String> {
    if !tool.has_expressions() {
        return Ok(None);
    }
    let facts = ExpressionContext::new(arguments, judging)?;
    for constraint in &tool.constraints {
        if let Some(violation) = constraint.violation(&facts) {
            return Err(violation);
        }
    }
    // A call whose key is not known can't be kept from running beside others.
    tool.exclusive_key(&facts).map_err(|problem| format!("its exclusive key: {problem}"))?;
    let cost = tool.cost.as_ref().map(|rule| rule.evaluate(&facts)).transpose();
    cost.map_err(|problem| format!("its cost: {problem}"))
}

/// A call that only the table and the budget rule on.
struct Evaluation<'a> {
    tool: &'a Tool,
    context: &'a JudgeContext<'a>,
    cost: Option<Cost>,
}

impl Evaluation<'_> {
    fn verdict(self) -> Verdict {
        let (tool, level) = (self.tool, self.context.settings.autonomy_level);
        let why = || {
            let beyond = self.budget_excess().map(|said| format!("; {said}")).unwrap_or_default();
            format!("{} is {} ({}), level {level}{beyond}", tool.name, tool.risk, tool.risk_source)
        };
        match self.verdict_at(level) {
            MatrixVerdict::Allow => Verdict::Allow { reason: why(), cost: self.cost },
            MatrixVerdict::Ask if !self.context.headless => {
                let exceeds_budget = self.budget_excess().is_some();
                match self.matrix_verdict(level) {
                    MatrixVerdict::Allow => Verdict::OverBudget { reason: why(), cost: self.cost },
                    MatrixVerdict::Ask | MatrixVerdict::Deny => {
                        Verdict::Ask { reason: why(), cost: self.cost, exceeds_budget }
                    }
                }
            }
            ruling @ (MatrixVerdict::Ask | MatrixVerdict::Deny) => {
                Verdict::Deny(self.denial(ruling))
            }
        }
    }

    /// What the table says at that level, but that what a budget has no room for is asked for.
    fn verdict_at(&self, level: Autonomy) -> MatrixVerdict {
        match self.matrix_verdict(level) {
            MatrixVerdict::Allow if self.budget_excess().is_some() => MatrixVerdict::Ask,
            ruling @ (MatrixVerdict::Allow | MatrixVerdict::Ask | MatrixVerdict::Deny) => ruling,
        }
    }

    /// What the table alone says at that level.
    fn matrix_verdict(&self, level: Autonomy) -> MatrixVerdict {
        let judging = self.context;
        let fits = |cost: &Cost| judging.remaining_budget.is_some_and(|left| cost.amount <= left);
        let is_affordable = self.budget_excess().is_none() && self.cost.as_ref().is_some_and(fits);
        judging.matrix.verdict(level, self.tool.risk, judging.settings, is_affordable)
    }

    /// That the call costs more than a budget has left, if it does. Where nobody knows what is
    /// left, it is the whole limit at most.
    fn budget_excess(&self) -> Option<String> {
        let cost = self.cost.as_ref()?;
        let limit = self.context.settings.budget_limit.as_ref();
        let limit = limit.filter(|limit| limit.unit == cost.unit).map(|limit| limit.amount);
        let left = self.context.remaining_budget.or(limit)?;
        // Written so that a budget that is no number has no room.
        let fits = cost.amount <= left;
        let unit = &cost.unit;
        (!fits).then(|| format!("its cost of {cost} is more than the {left} {unit} that are left"))
    }

    /// The denial of a call that the table denies, or that would be asked for with nobody there
    /// (G13).
    fn denial(&self, ruling: MatrixVerdict) -> Denial {
        let (tool, headless) = (self.tool, self.context.headless);
        let denied_at = |level: &Autonomy| match self.verdict_at(*level) {
            MatrixVerdict::Allow => false,
            MatrixVerdict::Ask => headless,
            MatrixVerdict::Deny => true,
        };
        let required_level = Autonomy::ALL.into_iter().find(|level| !denied_at(level));
        let needs = match required_level {
            None => "no autonomy level allows it".to_owned(),
            Some(level) => {
                // A table from configuration may take back at a higher level what a lower one
                // gives.
                let monotone =
                    !Autonomy::ALL.iter().any(|above| *above > level && denied_at(above));
                let or_higher = if monotone { " or higher" } else { "" };
                format!("requires autonomy level {level}{or_higher}")
            }
        };
        let nobody = match ruling {
            MatrixVerdict::Ask => {
                " needs a person's approval and this agent is headless, so nobody can give it;"
            }
            MatrixVerdict::Allow | MatrixVerdict::Deny => "",
        };
        let beyond = self.budget_excess().map(|said| format!(" {said};")).unwrap_or_default();
        let (name, risk) = (&tool.name, tool.risk);
        let current = self.context.settings.autonomy_level.name();
        let reason = format!("{name} is {risk}:{beyond}{nobody} {needs}; current level: {current}");
        Denial { reason, required_level }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
