//! Amounts of money, of tool costs and of tokens, as exact decimal numbers (M2, G6).
//!
//! An [`Amount`] has up to 12 decimals. Sums and differences are exact, so that they do not depend
//! on the order of the operands, and two processes that add the same costs agree to the last digit.
//! JSON numbers are decoded by their digits; a fraction with more than 15 significant digits is the
//! rounding noise of a binary floating-point number and is rounded to 15. Logs of version 0.1
//! contain such numbers.

use crate::{
    json::decimal::{Decimal, RoundedInteger},
    limits::AMOUNT_MAX,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Number;
use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign, Neg, Sub, SubAssign},
};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

/// The decimals that an amount can have.
const DECIMALS: u32 = 12;
/// The number of smallest parts in 1.
const SCALE: i128 = 10_i128.pow(DECIMALS);
/// The largest absolute value in smallest parts: 10²⁶. Results beyond it saturate.
const PARTS_MAX: i128 = 10_i128.pow(26 + DECIMALS);
/// The significant digits that a binary floating-point number represents exactly.
const FLOAT_DIGITS: usize = 15;

/// An exact decimal amount. Costs, limits and sums are 0 or more; only a change of a sum can be
/// negative.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

/// The reason why a number is not a valid amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// The text or floating-point value is not a finite number.
    #[error("must be a number")]
    NotANumber,
    /// The number is negative.
    #[error("must be 0 or more, not {0}")]
    Negative(String),
    /// The number exceeds [`AMOUNT_MAX`].
    #[error("must be at most {}", Amount::MAX)]
    TooLarge,
}

impl Amount {
    /// 0.
    pub const ZERO: Self = Self(0);
    /// The largest cost or limit: [`AMOUNT_MAX`]. Sums can exceed it.
    pub const MAX: Self = Self(AMOUNT_MAX.cast_signed() * SCALE);

    /// Returns a whole amount.
    pub const fn from_whole(whole: u64) -> Self {
        Self(whole as i128 * SCALE)
    }

    /// Parses a JSON number as a cost or limit: 0 to [`AMOUNT_MAX`], rounded to 12 decimals.
    pub fn from_number(number: &Number) -> Result<Self, AmountError> {
        let amount = Self::from_recorded(number);
        if amount < Self::ZERO {
            return Err(AmountError::Negative(truncated(number)));
        }
        if amount > Self::MAX {
            return Err(AmountError::TooLarge);
        }
        Ok(amount)
    }

    /// Parses the decimal text of a number, such as `4120.5`, as a cost or limit.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        let number = text.trim().parse().map_err(|_| AmountError::NotANumber)?;
        Self::from_number(&number)
    }

    /// Parses a text of [`Amount::to_plain_text`], in any notation of a JSON number. It may be
    /// negative. Saturates.
    pub fn parse_exact(text: &str) -> Result<Self, AmountError> {
        let number: Number = text.parse().map_err(|_| AmountError::NotANumber)?;
        Ok(Decimal::new(&number).map_or(Self::ZERO, |decimal| Self::from_decimal(&decimal)))
    }

    /// Converts a floating-point number by its shortest decimal text.
    pub fn from_f64(float: f64) -> Result<Self, AmountError> {
        Self::from_number(&Number::from_f64(float).ok_or(AmountError::NotANumber)?)
    }

    /// Converts a recorded number. Saturates, because a log must stay readable.
    fn from_recorded(number: &Number) -> Self {
        let Some(decimal) = Decimal::new(number) else {
            // The exponent has more than 64 bits.
            let is_tiny = number.as_str().contains("e-") || number.as_str().contains("E-");
            let is_negative = number.as_str().starts_with('-');
            return if is_tiny { Self::ZERO } else { Self::saturated(is_negative) };
        };
        let is_noisy = decimal.significant_digits() > FLOAT_DIGITS
            && !decimal.is_integer()
            && !is_marked_exact(number.as_str());
        let decimal = if is_noisy { decimal.rounded_to_digits(FLOAT_DIGITS) } else { decimal };
        Self::from_decimal(&decimal)
    }

    fn from_decimal(decimal: &Decimal) -> Self {
        match decimal.to_scaled_integer(DECIMALS) {
            RoundedInteger::Value(parts) if parts.abs() <= PARTS_MAX => Self(parts),
            RoundedInteger::Value(parts) => Self::saturated(parts < 0),
            RoundedInteger::TooLarge { is_negative } => Self::saturated(is_negative),
        }
    }

    const fn saturated(is_negative: bool) -> Self {
        Self(if is_negative { -PARTS_MAX } else { PARTS_MAX })
    }

    const fn clamped(parts: i128) -> Self {
        if parts > PARTS_MAX || parts < -PARTS_MAX {
            return Self::saturated(parts < 0);
        }
        Self(parts)
    }

    /// Returns the amount with at most `decimals` decimals, rounded up.
    #[must_use]
    pub const fn rounded_up(self, decimals: u8) -> Self {
        let unit = parts_of_smallest(decimals);
        let remainder = self.0.rem_euclid(unit);
        Self(if remainder == 0 { self.0 } else { self.0 - remainder + unit })
    }

    /// Returns one of `parts` equal parts with at most `decimals` decimals, rounded down. The sum of
    /// the parts never exceeds the amount.
    #[must_use]
    pub fn equal_share(self, parts: usize, decimals: u8) -> Self {
        let unit = parts_of_smallest(decimals);
        let parts = i128::try_from(parts.max(1)).unwrap_or(i128::MAX);
        Self(self.0.div_euclid(parts).div_euclid(unit) * unit)
    }

    /// Returns the cost of `count` items at this price per million, not yet rounded to the decimals
    /// of a unit but rounded up to the decimals of an amount. Saturates.
    #[must_use]
    pub const fn times_per_million(self, count: u64) -> Self {
        const MILLION: i128 = 1_000_000;
        let (millions, rest) = (count as i128 / MILLION, count as i128 % MILLION);
        let total = self.0.saturating_mul(rest);
        let of_rest = total / MILLION + if total % MILLION > 0 { 1 } else { 0 };
        Self::clamped(self.0.saturating_mul(millions).saturating_add(of_rest))
    }

    /// Returns the amount, or 0 if it is negative.
    #[must_use]
    pub const fn at_least_zero(self) -> Self {
        if self.0 < 0 { Self::ZERO } else { self }
    }

    /// True if the amount is 0.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// True if the amount is greater than 0.
    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }

    /// Returns the nearest floating-point number, for expressions and metrics.
    pub fn to_f64(self) -> f64 {
        // Parsing the text rounds once; a division would round twice.
        self.to_plain_text().parse().unwrap_or(f64::NAN)
    }

    /// Formats the number without separators, for machines: `4120.5`.
    pub fn to_plain_text(self) -> String {
        let (sign, whole, fraction) = self.digits();
        match fraction.trim_end_matches('0') {
            "" => format!("{sign}{whole}"),
            fraction => format!("{sign}{whole}.{fraction}"),
        }
    }

    /// Returns the sign, the whole number and 12 digits of the fraction.
    fn digits(self) -> (&'static str, String, String) {
        let sign = if self.0 < 0 { "-" } else { "" };
        let parts = self.0.unsigned_abs();
        let scale = SCALE.unsigned_abs();
        (sign, (parts / scale).to_string(), format!("{:012}", parts % scale))
    }

    /// Formats the JSON number. A fraction that decoding would take for the noise of a float gets
    /// one more zero, which such noise never has.
    fn to_json_text(self) -> String {
        let mut text = self.to_plain_text();
        let significant = text.trim_start_matches(['-', '0', '.']).bytes();
        let significant = significant.filter(u8::is_ascii_digit).count();
        if significant > FLOAT_DIGITS && text.contains('.') {
            text.push('0');
        }
        text
    }
}

/// True if the number is an exact amount of many digits. See [`Amount::to_json_text`].
fn is_marked_exact(text: &str) -> bool {
    text.contains('.') && text.ends_with('0') && !text.contains(['e', 'E'])
}

/// Returns the number of smallest parts in the smallest amount with that many decimals.
const fn parts_of_smallest(decimals: u8) -> i128 {
    10_i128.pow(DECIMALS.saturating_sub(decimals as u32))
}

fn truncated(number: &Number) -> String {
    crate::text::truncate(number.as_str(), 32).to_owned()
}

/// Formats an amount with its unit, for display: `4,120.50 ISK`. The dashboard's twin is
/// `formatAmount` in `web/src/components/format.ts`; both pass `tests/fixtures/amounts.json`.
pub fn format_amount(amount: Amount, unit: impl fmt::Display) -> String {
    format!("{amount} {unit}")
}

/// Formats the amount for display: thousands are separated; a fraction has at least two digits.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, whole, fraction) = self.digits();
        f.write_str(sign)?;
        for (index, digit) in whole.chars().enumerate() {
            if index > 0 && (whole.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        match fraction.trim_end_matches('0') {
            "" => Ok(()),
            significant => write!(f, ".{significant:0<2}"),
        }
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Amount({})", self.to_plain_text())
    }
}

impl From<u32> for Amount {
    fn from(whole: u32) -> Self {
        Self::from_whole(whole.into())
    }
}

impl Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::clamped(self.0.saturating_add(other.0))
    }
}

impl Sub for Amount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::clamped(self.0.saturating_sub(other.0))
    }
}

impl Neg for Amount {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Self::add)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % SCALE == 0
            && let Ok(whole) = i64::try_from(self.0 / SCALE)
        {
            return serializer.serialize_i64(whole);
        }
        let number: Number = self.to_json_text().parse().map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

/// Decodes a recorded amount. Negative numbers become 0 and others saturate, because an amount in a
/// log of version 0.1 had no limit and carries the noise of sums. Use [`Amount::from_number`] for
/// input.
impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // `Number` also accepts the map as which a number arrives in a buffered type.
        Number::deserialize(deserializer).map(|number| Self::from_recorded(&number).at_least_zero())
    }
}

/// Decodes an amount of a configuration file or a request; rejects what is not 0 to [`AMOUNT_MAX`].
/// Use as `#[serde(deserialize_with = "amount::deserialize_input")]`.
pub fn deserialize_input<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
    Amount::from_number(&deserialize_number(deserializer)?).map_err(de::Error::custom)
}

/// Like [`deserialize_input`], for an optional field.
pub fn deserialize_optional_input<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Amount>, D::Error> {
    deserialize_input(deserializer).map(Some)
}

fn deserialize_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
    Number::deserialize(deserializer)
}

impl PartialSchema for Amount {
    fn schema() -> RefOr<Schema> {
        let description = "An exact decimal number; 0 or more";
        ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0.0))
            .description(Some(description))
            .into()
    }
}

impl ToSchema for Amount {}

#[cfg(test)]
#[path = "amount_tests.rs"]
mod tests;
