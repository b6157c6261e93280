//! A plan as a person sees it before anything runs. What is stored is what clients are sent.

use crate::{
    json::Digest,
    policy::{Cost, Risk},
    usage::{ModelPrice, ModelUsage, TokenUsage},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What the model means to do, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checklist {
    /// The steps, in order.
    pub steps: Vec<ChecklistStep>,
    /// What its model calls may cost.
    pub estimated_cost: CostEstimate,
    /// What the session would need for steps that are denied as it is.
    pub required_permissions: Vec<String>,
    /// What a person should know before they agree.
    pub warnings: Vec<String>,
}

/// One step of a checklist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChecklistStep {
    /// Its place, from 1; people change and skip steps by it.
    pub position: u32,
    /// What it does, as the model says.
    pub description: String,
    /// The tool it means to call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The connection that the tool belongs to, if there is such a tool: another server's of that
    /// name is another tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What it means to pass, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The digest of `arguments` that an approval is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The tool's risk; `read_only` where the step calls none.
    pub risk: Risk,
    /// Whether a person would be asked when the call comes.
    pub needs_approval: bool,
    /// What the call costs, if its tool has a cost (G6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// What the model calls of a plan may cost: tokens, and dollars where the price is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostEstimate {
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// US dollars; `None` when the price is unknown, which is not zero.
    #[serde(rename = "estimatedUSD")]
    pub estimated_usd: Option<f64>,
}

impl CostEstimate {
    /// The estimate for so many model calls: each reads what the call that made the plan read, and
    /// writes as much as the plan, `max_tokens` at most. Nothing is assumed to come from a cache.
    pub fn from_plan_usage(
        planning: TokenUsage,
        model_calls: u64,
        max_tokens: u32,
        price: Option<&ModelPrice>,
    ) -> Self {
        let written = planning.output_tokens.min(u64::from(max_tokens));
        let tokens = TokenUsage {
            input_tokens: planning.input_tokens.saturating_mul(model_calls),
            output_tokens: written.saturating_mul(model_calls),
            cached_tokens: 0,
        };
        Self {
            input_tokens: tokens.input_tokens,
            output_tokens: tokens.output_tokens,
            estimated_usd: ModelUsage::from_tokens(price, tokens).cost_usd,
        }
    }

    /// Input and output together.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// What a person changes of one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChecklistStepEdit {
    /// Which step, from 1.
    pub position: u32,
    /// Other words for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Another tool; the arguments meant for the first are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Other arguments, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// It shall not be done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip: bool,
}

impl Checklist {
    /// The highest risk of its steps.
    pub fn max_risk(&self) -> Risk {
        self.steps.iter().map(|step| step.risk).max().unwrap_or(Risk::ReadOnly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g14_the_estimate_scales_planning_usage_by_model_calls() {
        let planning = TokenUsage { input_tokens: 1_000, output_tokens: 9_000, cached_tokens: 800 };
        let price = ModelPrice { input: 1.0, output: 10.0, cached: Some(0.1) };
        let found = CostEstimate::from_plan_usage(planning, 3, 4_000, Some(&price));
        let expected = CostEstimate {
            input_tokens: 3_000,
            output_tokens: 12_000,
            estimated_usd: Some(0.003 + 0.12),
        };
        assert_eq!(found, expected);
        assert_eq!(CostEstimate::from_plan_usage(planning, 3, 4_000, None).estimated_usd, None);
        let huge = TokenUsage { input_tokens: u64::MAX, ..planning };
        assert_eq!(CostEstimate::from_plan_usage(huge, 3, 4_000, None).tokens(), u64::MAX);
    }

    #[test]
    fn g14_the_estimate_has_the_names_of_the_wire() {
        let cost = CostEstimate { input_tokens: 1, output_tokens: 2, estimated_usd: None };
        let expected = serde_json::json!(
            {"inputTokens": 1, "outputTokens": 2, "estimatedUSD": null}
        );
        assert_eq!(serde_json::to_value(cost).unwrap(), expected);
    }
}
