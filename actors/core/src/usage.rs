//! The usage of models, in tokens and in money (M6).

use crate::json::float;
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
        }
    }

    /// Returns the sum. Saturates.
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
        }
    }
}

/// Tokens and their cost. Serialized as one object.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelUsage {
    /// The tokens.
    #[serde(flatten)]
    pub tokens: TokenUsage,
    /// US dollars; `None` if the price of any of the tokens is unknown, as opposed to 0.
    #[serde(default, deserialize_with = "float::deserialize_option")]
    pub cost_usd: Option<f64>,
}

impl Default for ModelUsage {
    /// Returns no tokens at no cost.
    fn default() -> Self {
        Self { tokens: TokenUsage::default(), cost_usd: Some(0.0) }
    }
}

impl ModelUsage {
    /// Computes the cost of tokens at `price`; the cost is unknown if `price` is `None`.
    pub fn from_tokens(price: Option<&ModelPrice>, tokens: TokenUsage) -> Self {
        if tokens == TokenUsage::default() {
            return Self::default();
        }
        Self { tokens, cost_usd: price.map(|price| price.cost_usd(tokens)) }
    }

    /// Returns the rest without `other`, which must be a part of `self`. No tokens have no cost.
    pub fn minus(self, other: Self) -> Self {
        let tokens = self.tokens.minus(other.tokens);
        if tokens == TokenUsage::default() {
            return Self::default();
        }
        let costs = self.cost_usd.zip(other.cost_usd);
        Self { tokens, cost_usd: costs.map(|(total, part)| (total - part).max(0.0)) }
    }

    /// Returns the sum. The cost is known only if both costs are known.
    pub fn plus(self, other: Self) -> Self {
        let costs = self.cost_usd.zip(other.cost_usd);
        Self {
            tokens: self.tokens.plus(other.tokens),
            cost_usd: costs.map(|(left, right)| left + right),
        }
    }
}

/// The price of a model, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// The price of input tokens that the cache did not serve.
    pub input: f64,
    /// The price of output tokens.
    pub output: f64,
    /// The price of input tokens that the cache served; the `input` price if absent.
    #[serde(default)]
    pub cached: Option<f64>,
}

impl ModelPrice {
    /// Returns the cost of `usage`, in US dollars.
    pub fn cost_usd(&self, usage: TokenUsage) -> f64 {
        let uncached = usage.input_tokens.saturating_sub(usage.cached_tokens);
        let cached_price = self.cached.unwrap_or(self.input);
        let total = uncached as f64 * self.input
            + usage.cached_tokens as f64 * cached_price
            + usage.output_tokens as f64 * self.output;
        total / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m6_unknown_price_makes_sum_unknown() {
        let price = ModelPrice { input: 1.0, output: 1.0, cached: None };
        let tokens = TokenUsage { input_tokens: 1_000_000, ..TokenUsage::default() };
        let known = ModelUsage::from_tokens(Some(&price), tokens);
        let unknown = ModelUsage::from_tokens(None, tokens);
        assert_eq!(known.plus(known).cost_usd, Some(2.0));
        assert_eq!(known.plus(unknown).cost_usd, None);
        assert_eq!(known.plus(unknown).tokens.input_tokens, 2_000_000);
        assert_eq!(known.plus(ModelUsage::default()), known);
        assert_eq!(ModelUsage::from_tokens(None, TokenUsage::default()).cost_usd, Some(0.0));
    }

    #[test]
    fn m6_cached_tokens_have_separate_price() {
        let price = ModelPrice { input: 3.0, output: 15.0, cached: Some(0.3) };
        let usage =
            TokenUsage { input_tokens: 1_000_000, output_tokens: 100_000, cached_tokens: 500_000 };
        assert_eq!(price.cost_usd(usage), 1.5 + 0.15 + 1.5);
    }
}
