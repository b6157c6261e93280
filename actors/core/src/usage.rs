//! The usage of models, in tokens and in money (M6).

use crate::{
    amount::{self, Amount},
    policy::units::USD_DECIMALS_DEFAULT,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The tokens of one or more model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenUsage {
    /// Input tokens, including those read from the provider's cache.
    pub input_tokens: u64,
    /// Output tokens, including thinking.
    pub output_tokens: u64,
    /// The part of `input_tokens` that the provider's cache served.
    pub cached_tokens: u64,
    /// True if the provider's report of some of these tokens was lost, so that they are an estimate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl TokenUsage {
    /// Returns the sum of input and output tokens. Saturates.
    pub fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Returns the difference; a component is at least 0.
    pub fn minus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(other.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(other.cached_tokens),
            estimated: self.estimated,
        }
    }

    /// Returns the sum. Saturates.
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            estimated: self.estimated || other.estimated,
        }
    }
}

/// Tokens and their cost. Serialized as one object.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelUsage {
    /// The tokens.
    #[serde(flatten)]
    pub tokens: TokenUsage,
    /// US dollars; `None` if the price or the number of any of the tokens is unknown, as opposed
    /// to 0.
    #[serde(default)]
    pub cost_usd: Option<Amount>,
    /// US dollars including the estimated tokens; only if `cost_usd` is unknown because of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_cost_usd: Option<Amount>,
}

impl Default for ModelUsage {
    /// Returns no tokens at no cost.
    fn default() -> Self {
        let cost_usd = Some(Amount::ZERO);
        Self { tokens: TokenUsage::default(), cost_usd, estimated_cost_usd: None }
    }
}

impl ModelUsage {
    /// Computes the cost of tokens at `price`; the cost is unknown if `price` is `None`, and only
    /// estimated if the tokens are.
    pub fn from_tokens(price: Option<&ModelPrice>, tokens: TokenUsage) -> Self {
        if tokens == TokenUsage::default() {
            return Self::default();
        }
        Self::with_counted_cost(
            tokens,
            price.map(|price| price.cost_usd(tokens)),
            !tokens.estimated,
        )
    }

    fn with_counted_cost(tokens: TokenUsage, cost: Option<Amount>, is_known: bool) -> Self {
        let (cost_usd, estimated_cost_usd) = if is_known { (cost, None) } else { (None, cost) };
        Self { tokens, cost_usd, estimated_cost_usd }
    }

    /// Returns the cost that budgets count: an estimate if a provider's report was lost.
    pub fn counted_cost_usd(self) -> Option<Amount> {
        self.cost_usd.or(self.estimated_cost_usd)
    }

    /// Returns the rest without `other`, which must be a part of `self`. No tokens have no cost.
    pub fn minus(self, other: Self) -> Self {
        let tokens = self.tokens.minus(other.tokens);
        if tokens.total() == 0 {
            return Self::default();
        }
        let costs = self.counted_cost_usd().zip(other.counted_cost_usd());
        let cost = costs.map(|(total, part)| (total - part).at_least_zero());
        Self::with_counted_cost(tokens, cost, self.cost_usd.is_some())
    }

    /// Returns the sum. The cost is known only if both costs are known.
    pub fn plus(self, other: Self) -> Self {
        let costs = self.counted_cost_usd().zip(other.counted_cost_usd());
        let is_known = self.cost_usd.is_some() && other.cost_usd.is_some();
        let cost = costs.map(|(left, right)| left + right);
        Self::with_counted_cost(self.tokens.plus(other.tokens), cost, is_known)
    }
}

/// The price of a model, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// The price of input tokens that the cache did not serve.
    #[serde(deserialize_with = "amount::deserialize_input")]
    pub input: Amount,
    /// The price of output tokens.
    #[serde(deserialize_with = "amount::deserialize_input")]
    pub output: Amount,
    /// The price of input tokens that the cache served; the `input` price if absent.
    #[serde(default, deserialize_with = "amount::deserialize_optional_input")]
    pub cached: Option<Amount>,
    /// The decimals of US dollars; a cost is rounded up to them.
    #[serde(skip, default = "usd_decimals_default")]
    pub decimals: u8,
}

const fn usd_decimals_default() -> u8 {
    USD_DECIMALS_DEFAULT
}

impl ModelPrice {
    /// Returns a price without a separate price of cached tokens.
    pub const fn new(input: Amount, output: Amount) -> Self {
        Self { input, output, cached: None, decimals: USD_DECIMALS_DEFAULT }
    }

    /// Returns the cost of `usage`, in US dollars.
    pub fn cost_usd(&self, usage: TokenUsage) -> Amount {
        let uncached = usage.input_tokens.saturating_sub(usage.cached_tokens);
        let cached_price = self.cached.unwrap_or(self.input);
        let total = self.input.times_per_million(uncached)
            + cached_price.times_per_million(usage.cached_tokens)
            + self.output.times_per_million(usage.output_tokens);
        total.rounded_up(self.decimals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m6_unknown_price_makes_sum_unknown() {
        let price = ModelPrice::new(1.into(), 1.into());
        let tokens = TokenUsage { input_tokens: 1_000_000, ..TokenUsage::default() };
        let known = ModelUsage::from_tokens(Some(&price), tokens);
        let unknown = ModelUsage::from_tokens(None, tokens);
        assert_eq!(known.plus(known).cost_usd, Some(2.into()));
        assert_eq!(known.plus(unknown).cost_usd, None);
        assert_eq!(known.plus(unknown).tokens.input_tokens, 2_000_000);
        assert_eq!(known.plus(ModelUsage::default()), known);
        assert_eq!(
            ModelUsage::from_tokens(None, TokenUsage::default()).cost_usd,
            Some(Amount::ZERO)
        );
    }

    #[test]
    fn m6_cost_of_lost_usage_is_unknown_and_counted_as_an_estimate() {
        let price = ModelPrice::new(1.into(), 1.into());
        let tokens = TokenUsage { input_tokens: 1_000_000, ..TokenUsage::default() };
        let known = ModelUsage::from_tokens(Some(&price), tokens);
        let lost = TokenUsage { estimated: true, ..tokens };
        let lost = ModelUsage::from_tokens(Some(&price), lost);
        assert_eq!((lost.cost_usd, lost.estimated_cost_usd), (None, Some(1.into())));
        let sum = known.plus(lost).plus(known);
        assert_eq!((sum.cost_usd, sum.counted_cost_usd()), (None, Some(3.into())));
        assert!(sum.tokens.estimated);
        assert_eq!(sum.minus(known).counted_cost_usd(), Some(2.into()));
        let unpriced = ModelUsage::from_tokens(None, lost.tokens);
        assert_eq!((unpriced.cost_usd, unpriced.estimated_cost_usd), (None, None));
        assert_eq!(sum.plus(unpriced).counted_cost_usd(), None);
        let encoded = serde_json::to_value(lost).unwrap();
        let expected = serde_json::json!({
            "input_tokens": 1_000_000, "output_tokens": 0, "cached_tokens": 0, "estimated": true,
            "cost_usd": null, "estimated_cost_usd": 1,
        });
        assert_eq!(encoded, expected);
        assert_eq!(serde_json::from_value::<ModelUsage>(encoded).unwrap(), lost);
    }

    #[test]
    fn m6_cached_tokens_have_separate_price() {
        let cached = Some(Amount::parse("0.3").unwrap());
        let price = ModelPrice { cached, ..ModelPrice::new(3.into(), 15.into()) };
        let usage = TokenUsage {
            input_tokens: 1_000_000,
            output_tokens: 100_000,
            cached_tokens: 500_000,
            estimated: false,
        };
        assert_eq!(price.cost_usd(usage), Amount::parse("3.15").unwrap());
        // 0.3 and 3 millionths of a dollar are rounded up once.
        let usage = TokenUsage { input_tokens: 2, cached_tokens: 1, ..TokenUsage::default() };
        assert_eq!(price.cost_usd(usage), Amount::parse("0.000004").unwrap());
        let price = ModelPrice { decimals: 2, ..price };
        assert_eq!(price.cost_usd(usage), Amount::parse("0.01").unwrap());
    }
}
