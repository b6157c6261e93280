use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn amount(text: &str) -> Amount {
    Amount::parse(text).unwrap()
}

fn decode(text: &str) -> Amount {
    serde_json::from_str(text).unwrap()
}

#[test]
fn g6_numbers_are_read_by_their_digits() {
    for (text, expected) in [
        ("0", "0"),
        ("-0.0", "0"),
        ("4120.0", "4120"),
        ("4120.50", "4120.5"),
        ("1e3", "1000"),
        ("0.1", "0.1"),
        ("0.0000000001", "0.0000000001"),
        ("0.0000000000005", "0"),
        ("0.0000000000015", "0.000000000002"),
        ("0.00000000000051", "0.000000000001"),
        ("1e-400", "0"),
        ("1e-99999999999999999999", "0"),
        ("1000000000000000", "1000000000000000"),
        ("1000000000000000000000000", "1000000000000000000000000"),
        ("100000000000000000000", "100000000000000000000"),
        ("999999999999999.99", "1000000000000000"),
        ("999999999999999.990", "999999999999999.99"),
    ] {
        assert_eq!(amount(text).to_plain_text(), expected, "{text}");
        assert_eq!(decode(text), amount(text), "{text}");
    }
}

#[test]
fn g6_noise_of_recorded_floats_is_removed() {
    for (text, expected) in [
        ("374799.99999999994", "374800"),
        ("6.000000000000001e-05", "0.00006"),
        ("0.30000000000000004", "0.3"),
        ("864197523.8399999", "864197523.84"),
        ("-1.4210854715202004e-14", "0"),
        ("-3.5", "0"),
        ("1e300", "100000000000000000000000000"),
        ("1e99999999999999999999", "100000000000000000000000000"),
    ] {
        assert_eq!(decode(text).to_plain_text(), expected, "{text}");
        // A buffered number arrives as a map.
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::from_value::<Amount>(value).unwrap(), decode(text), "{text}");
    }
}

#[test]
fn g6_input_that_is_no_amount_is_rejected_with_its_limit() {
    for (text, expected) in [
        ("1e400", "must be at most 1,000,000,000,000,000,000,000,000"),
        ("1e99999999999999999999", "must be at most 1,000,000,000,000,000,000,000,000"),
        ("1000000000000000000000001", "must be at most 1,000,000,000,000,000,000,000,000"),
        ("1000000000000000000000000000000", "must be at most 1,000,000,000,000,000,000,000,000"),
        ("-1", "must be 0 or more, not -1"),
        ("-1e400", "must be 0 or more, not -1e+400"),
        ("NaN", "must be a number"),
        ("inf", "must be a number"),
        ("", "must be a number"),
        ("1,000", "must be a number"),
        ("0x10", "must be a number"),
    ] {
        assert_eq!(Amount::parse(text).unwrap_err().to_string(), expected, "{text}");
    }
    for float in [f64::NAN, f64::INFINITY] {
        assert_eq!(Amount::from_f64(float), Err(AmountError::NotANumber));
    }
    for invalid in [json!("5"), json!(null), json!(true), json!([1]), json!({"a": 1})] {
        assert!(serde_json::from_value::<Amount>(invalid.clone()).is_err(), "{invalid}");
    }
}

#[test]
fn g6_amounts_are_rounded_up_to_the_decimals_of_their_unit() {
    for (text, decimals, expected) in [
        ("374800", 2, "374800"),
        ("0.001", 2, "0.01"),
        ("0.0000000001", 2, "0.01"),
        ("41.2", 0, "42"),
        ("41.23456789", 6, "41.234568"),
        ("41.234567", 6, "41.234567"),
        ("0.123456789", 9, "0.123456789"),
    ] {
        assert_eq!(amount(text).rounded_up(decimals), amount(expected), "{text}");
    }
}

#[test]
fn s8_shares_are_rounded_down() {
    for (text, parts, decimals, expected) in [
        ("50", 3, 2, "16.66"),
        ("0.87", 3, 2, "0.29"),
        ("0.005", 3, 2, "0"),
        ("0.005", 3, 6, "0.001666"),
        ("115", 3, 0, "38"),
        ("7", 0, 2, "7"),
    ] {
        assert_eq!(amount(text).equal_share(parts, decimals), amount(expected), "{text}");
    }
}

#[test]
fn m6_price_per_million_is_exact() {
    assert_eq!(amount("0.3").times_per_million(1), amount("0.0000003"));
    assert_eq!(amount("3").times_per_million(1_234_567), amount("3.703701"));
    // A ten-millionth of the smallest part still counts.
    assert_eq!(amount("0.0000001").times_per_million(1), amount("0.000000000001"));
    assert_eq!(
        Amount::MAX.times_per_million(u64::MAX),
        Amount::from_recorded(&"1e26".parse().unwrap())
    );
}

#[test]
fn g6_sums_saturate() {
    let largest = Amount::from_recorded(&"1e300".parse().unwrap());
    assert_eq!(largest + largest, largest);
    assert_eq!(-largest - largest, -largest);
    assert_eq!([amount("0.1"), amount("0.2")].into_iter().sum::<Amount>(), amount("0.3"));
}

#[test]
fn g6_amounts_are_formatted_for_people_and_for_machines() {
    let cases: Vec<(String, String, String)> =
        serde_json::from_str(include_str!("../../../tests/fixtures/amounts.json")).unwrap();
    assert!(!cases.is_empty());
    for (number, unit, expected) in cases {
        assert_eq!(format_amount(amount(&number), unit), expected, "{number}");
        assert_eq!(serde_json::to_string(&amount(&number)).unwrap(), number);
        assert_eq!(serde_json::to_value(amount(&number)).unwrap().to_string(), number);
    }
    assert_eq!((-amount("1234.5")).to_string(), "-1,234.50");
}

proptest! {
    /// Replay equals live execution: whatever is recorded is read back exactly.
    #[test]
    fn d7_amounts_round_trip(parts in 0..=PARTS_MAX, digits in 0..39_u32) {
        let amount = Amount(parts % 10_i128.pow(digits.min(38)));
        let text = serde_json::to_string(&amount).unwrap();
        prop_assert_eq!(decode(&text), amount);
        prop_assert_eq!(Amount::parse_exact(&amount.to_plain_text()), Ok(amount));
        prop_assert_eq!(Amount::parse_exact(&(-amount).to_plain_text()), Ok(-amount));
        let value = serde_json::to_value(amount).unwrap();
        prop_assert_eq!(serde_json::from_value::<Amount>(value).unwrap(), amount);
    }

    #[test]
    fn g6_any_number_is_read_without_a_panic(text in "-?[0-9]{1,40}(\\.[0-9]{1,40})?(e-?[0-9]{1,22})?") {
        let Ok(number) = text.parse::<Number>() else { return Ok(()) };
        let recorded = serde_json::from_str::<Amount>(number.as_str()).unwrap();
        if let Ok(amount) = Amount::from_number(&number) {
            prop_assert_eq!(amount, recorded);
            prop_assert!(amount <= Amount::MAX);
        }
    }

    #[test]
    fn s8_sum_of_shares_never_exceeds_the_total(parts in 0..10_i128.pow(30), count in 1..70_usize, decimals in 0..10_u8) {
        let total = Amount(parts);
        let shares: Amount = (0..count).map(|_| total.equal_share(count, decimals)).sum();
        prop_assert!(shares <= total);
    }

    #[test]
    fn g6_rounded_amount_is_the_smallest_that_covers_the_cost(parts in 0..10_i128.pow(30), decimals in 0..10_u8) {
        let (amount, unit) = (Amount(parts), parts_of_smallest(decimals));
        let rounded = amount.rounded_up(decimals);
        prop_assert!(rounded >= amount && rounded.0 - amount.0 < unit && rounded.0 % unit == 0);
    }
}
