//! The checklist: a submitted plan as it is shown to an approver before anything runs. The stored
//! form and the form sent to clients are the same.

use crate::{
    amount::Amount,
    json::Digest,
    policy::{Cost, Risk},
    usage::{ModelPrice, ModelUsage, TokenUsage},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A submitted plan with the evaluation of its steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checklist {
    /// The steps, in order.
    pub steps: Vec<ChecklistStep>,
    /// The estimated cost of the model calls.
    pub estimated_cost: CostEstimate,
    /// The permissions that the session lacks for denied steps.
    pub required_permissions: Vec<String>,
    /// Warnings for the approver.
    pub warnings: Vec<String>,
}

/// One step of a checklist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChecklistStep {
    /// The position, starting at 1. Edits refer to steps by position.
    pub position: u32,
    /// The description, written by the model.
    pub description: String,
    /// The tool that the step will call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The connection of the tool, if the tool exists. A tool of the same name on another server is
    /// another tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The arguments that the step will pass, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The digest of `arguments` that an approval is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The tool's risk; `read_only` if the step calls no tool.
    pub risk: Risk,
    /// True if the call would need approval without the plan.
    pub needs_approval: bool,
    /// The cost of the call, if its tool has a cost (G6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// The estimated cost of the model calls of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostEstimate {
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// US dollars; `None` if the price is unknown, as opposed to 0.
    #[serde(rename = "estimatedUSD")]
    pub estimated_usd: Option<Amount>,
}

impl CostEstimate {
    /// Estimates the cost of `model_calls` calls. Each call is assumed to read as many tokens as
    /// the call that made the plan, and to write as many as the plan, at most `max_tokens`. Assumes
    /// no cached tokens.
    pub fn from_plan_usage(
        planning: TokenUsage,
        model_calls: u64,
        max_tokens: u32,
        price: Option<&ModelPrice>,
    ) -> Self {
        let output_tokens = planning.output_tokens.min(u64::from(max_tokens));
        let tokens = TokenUsage {
            input_tokens: planning.input_tokens.saturating_mul(model_calls),
            output_tokens: output_tokens.saturating_mul(model_calls),
            cached_tokens: 0,
            estimated: false,
        };
        Self {
            input_tokens: tokens.input_tokens,
            output_tokens: tokens.output_tokens,
            estimated_usd: ModelUsage::from_tokens(price, tokens).cost_usd,
        }
    }

    /// Returns the sum of input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// The approver's edit of one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChecklistStepEdit {
    /// The position of the step, starting at 1.
    pub position: u32,
    /// A new description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Another tool. The arguments for the original tool are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Complete new arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// True if the step must not be executed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip: bool,
}

impl Checklist {
    /// Returns the highest risk of the steps.
    pub fn max_risk(&self) -> Risk {
        self.steps.iter().map(|step| step.risk).max().unwrap_or(Risk::ReadOnly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g14_estimate_scales_planning_usage_by_model_calls() {
        let planning = TokenUsage {
            input_tokens: 1_000,
            output_tokens: 9_000,
            cached_tokens: 800,
            estimated: false,
        };
        let price = ModelPrice {
            cached: Some(Amount::parse("0.1").unwrap()),
            ..ModelPrice::new(1.into(), 10.into())
        };
        let actual = CostEstimate::from_plan_usage(planning, 3, 4_000, Some(&price));
        let expected = CostEstimate {
            input_tokens: 3_000,
            output_tokens: 12_000,
            estimated_usd: Some(Amount::parse("0.123").unwrap()),
        };
        assert_eq!(actual, expected);
        assert_eq!(CostEstimate::from_plan_usage(planning, 3, 4_000, None).estimated_usd, None);
        let huge = TokenUsage { input_tokens: u64::MAX, ..planning };
        assert_eq!(CostEstimate::from_plan_usage(huge, 3, 4_000, None).tokens(), u64::MAX);
    }

    #[test]
    fn g14_estimate_has_wire_names() {
        let cost = CostEstimate { input_tokens: 1, output_tokens: 2, estimated_usd: None };
        let expected = serde_json::json!(
            {"inputTokens": 1, "outputTokens": 2, "estimatedUSD": null}
        );
        assert_eq!(serde_json::to_value(cost).unwrap(), expected);
    }
}
