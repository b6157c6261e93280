//! The mathematical value of a JSON number, whose text can have any length and notation.
//!
//! `serde_json` keeps the text (`arbitrary_precision`), so that a number reaches a tool with every
//! digit. Code that compares numbers or calculates with them uses these functions.

use serde_json::Number;
use std::fmt;

/// A decimal number. Two numbers are equal exactly if their values are: `1`, `1.0` and `10e-1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// The digits without leading and trailing zeros; empty for 0.
    digits: String,
    /// The power of ten by which `digits` is multiplied; 0 for 0.
    exponent: i64,
}

impl Decimal {
    /// Returns the value of `number`, or `None` if its exponent exceeds 64 bits. Takes time
    /// proportional to the text, whatever the exponent.
    pub fn new(number: &Number) -> Option<Self> {
        let text = number.as_str();
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let (is_negative, whole) = match whole.strip_prefix('-') {
            Some(whole) => (true, whole),
            None => (false, whole),
        };
        let all = format!("{whole}{fraction}");
        let significant = all.trim_end_matches('0');
        let digits = significant.trim_start_matches('0');
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits: String::new(), exponent: 0 });
        }
        let scale = i64::try_from(all.len() - significant.len()).ok()?
            - i64::try_from(fraction.len()).ok()?;
        let exponent = exponent.parse::<i64>().ok()?.checked_add(scale)?;
        Some(Self { is_negative, digits: digits.to_owned(), exponent })
    }

    /// True if the number has no fraction.
    pub fn is_integer(&self) -> bool {
        self.exponent >= 0
    }

    /// Returns the number of digits without leading and trailing zeros.
    pub fn significant_digits(&self) -> usize {
        self.digits.len()
    }

    /// Returns the number rounded half to even to at most `count` significant digits, 0 < `count`
    /// < 38.
    #[must_use]
    pub fn rounded_to_digits(&self, count: usize) -> Self {
        let dropped = self.digits.len().saturating_sub(count);
        if dropped == 0 {
            return self.clone();
        }
        let rounded = rounded_half_even(&self.digits, count).to_string();
        let digits = rounded.trim_end_matches('0');
        let shift = i64::try_from(dropped + rounded.len() - digits.len()).unwrap_or(i64::MAX);
        let exponent = self.exponent.saturating_add(shift);
        Self { is_negative: self.is_negative, digits: digits.to_owned(), exponent }
    }

    /// Returns the number times 10^`decimals`, rounded half to even to an integer.
    pub fn to_scaled_integer(&self, decimals: u32) -> RoundedInteger {
        let is_negative = self.is_negative;
        let too_large = RoundedInteger::TooLarge { is_negative };
        let exponent = self.exponent.saturating_add(decimals.into());
        // The number of digits before the decimal point of the result.
        let length = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        let whole_digits = length.saturating_add(exponent);
        if self.digits.is_empty() || whole_digits < 0 {
            return RoundedInteger::Value(0);
        }
        if whole_digits > INTEGER_DIGITS_MAX {
            return too_large;
        }
        let kept = usize::try_from(whole_digits.min(length)).unwrap_or(0);
        let magnitude = rounded_half_even(&self.digits, kept);
        let zeros = u32::try_from(exponent.max(0)).unwrap_or(u32::MAX);
        let magnitude = 10_i128.checked_pow(zeros).and_then(|power| magnitude.checked_mul(power));
        let signed = |magnitude: i128| if is_negative { -magnitude } else { magnitude };
        magnitude.map_or(too_large, |magnitude| RoundedInteger::Value(signed(magnitude)))
    }
}

/// Digits of the largest result of [`Decimal::to_scaled_integer`]; each integer of so many digits
/// has less than 128 bits.
const INTEGER_DIGITS_MAX: i64 = 38;

/// A number rounded to an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundedInteger {
    /// The integer.
    Value(i128),
    /// The integer has more than 38 digits.
    TooLarge {
        /// True if the number is negative.
        is_negative: bool,
    },
}

/// Returns the first `kept` digits as an integer, at most 38; the other digits round it half to
/// even.
fn rounded_half_even(digits: &str, kept: usize) -> i128 {
    let (kept, dropped) = digits.split_at(kept);
    let truncated =
        kept.bytes().fold(0, |value: i128, digit| value * 10 + i128::from(digit - b'0'));
    let is_above_half = match dropped.as_bytes() {
        [b'5', rest @ ..] => rest.iter().any(|digit| *digit != b'0') || truncated % 2 == 1,
        [first, ..] => *first > b'5',
        [] => false,
    };
    truncated + i128::from(is_above_half)
}

/// Formats the number as its digits and exponent, for example `-12e3`; 0 as `0`.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_negative, digits, exponent } = self;
        let sign = if *is_negative { "-" } else { "" };
        match digits.as_str() {
            "" => f.write_str("0"),
            digits => write!(f, "{sign}{digits}e{exponent}"),
        }
    }
}

/// True if both numbers have the same value.
pub fn are_equal(left: &Number, right: &Number) -> bool {
    match (Decimal::new(left), Decimal::new(right)) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

/// Returns the number as floating point, if that has the same value: as an integer, or in its
/// shortest notation. `0.1` and 2⁶⁴ have, `0.10000000000000000001` and 2⁶⁴ − 1 have not.
#[expect(clippy::cast_possible_truncation, reason = "compared with the integer before the cast")]
pub fn to_exact_f64(number: &Number) -> Option<f64> {
    let float = number.as_f64()?;
    let is_same_integer = number.as_i128().is_some_and(|whole| float as i128 == whole);
    let is_exact = is_same_integer || are_equal(&Number::from_f64(float)?, number);
    is_exact.then_some(float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn m2_numbers_of_one_value_are_equal_in_every_notation() {
        for (text, value) in [
            ("0", "0"),
            ("-0", "0"),
            ("0.00", "0"),
            ("-0e99999999999999999999", "0"),
            ("1", "1e0"),
            ("1.0", "1e0"),
            ("10e-1", "1e0"),
            ("0.01E+2", "1e0"),
            ("-1200", "-12e2"),
            ("-1.2e3", "-12e2"),
            ("1e400", "1e400"),
            ("0.001e-999999999999", "1e-1000000000002"),
            ("123456789012345678901234567890", "12345678901234567890123456789e1"),
            ("0.1000000000000000055511151231257827", "1000000000000000055511151231257827e-34"),
        ] {
            assert_eq!(Decimal::new(&number(text)).unwrap().to_string(), value, "{text}");
        }
        assert_eq!(Decimal::new(&number("1e9223372036854775808")), None);
        assert_eq!(Decimal::new(&number("10e9223372036854775807")), None);
        assert!(are_equal(&number("1"), &number("1.0")));
        assert!(!are_equal(&number("1e9223372036854775808"), &number("1e9223372036854775809")));
    }

    proptest! {
        #[test]
        fn m2_notation_does_not_change_the_value(
            digits in any::<i64>(), zeros in 0..30_u32, exponent in -500..500_i32,
        ) {
            let plain = number(&format!("{digits}e{exponent}"));
            let zeros_text = "0".repeat(zeros as usize);
            let longer = format!("{digits}{zeros_text}e{}", exponent - zeros.cast_signed());
            let with_point = number(&format!("{digits}.0{zeros_text}E{exponent}"));
            let greater = number(&format!("{digits}.{zeros_text}1e{exponent}"));
            prop_assert!(digits == 0 || are_equal(&plain, &number(&longer)));
            prop_assert!(are_equal(&plain, &with_point));
            prop_assert!(!are_equal(&plain, &greater));
        }
    }

    #[test]
    fn g5_only_numbers_that_are_exact_are_floating_point() {
        for (text, expected) in [
            ("0.1", Some(0.1)),
            ("1E5", Some(1e5)),
            ("-0", Some(-0.0)),
            ("100000000000000000000", Some(1e20)),
            ("0.30000000000000004", Some(0.30000000000000004)),
            ("18446744073709551616", Some(18446744073709551616.0)),
            ("18446744073709549568", Some(18446744073709549568.0)),
            ("18446744073709551615", None),
            ("123456789012345678901234567890", None),
            ("0.1000000000000000055511151231257827", None),
            ("1e400", None),
            ("1e-400", None),
        ] {
            assert_eq!(to_exact_f64(&number(text)), expected, "{text}");
        }
    }
}
