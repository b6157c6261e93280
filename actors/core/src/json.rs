//! The canonical text of JSON values, their digest, and the limits of values from outside.

use crate::limits::{NUMBER_BYTES_MAX, VALUE_LEVELS_MAX};
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use std::collections::BTreeMap;

pub mod decimal;
mod digest;
pub mod float;

pub use digest::Digest;

/// The key by which `serde_json` passes a number with its text. An object whose first key it is
/// can't be decoded, so no value that is stored may contain it.
pub const NUMBER_KEY: &str = "$serde_json::private::Number";

/// Formats `value` with object keys sorted by their bytes and without white space.
///
/// Numbers keep their notation, so `1` and `1.0` differ; see [`Digest::hash_json`].
pub fn to_canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text, &|number, out| out.push_str(number.as_str()));
    text
}

fn write_canonical(value: &Value, out: &mut String, write_number: &impl Fn(&Number, &mut String)) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out, write_number);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out, write_number);
            }
            out.push(']');
        }
        Value::Number(number) => write_number(number, out),
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&value.to_string()),
    }
}

/// True if `value` is nested deeper than `levels_max` levels. A scalar has no levels.
pub fn is_deeper(value: &Value, levels_max: u32) -> bool {
    let deeper = |member: &Value| is_deeper(member, levels_max - 1);
    match value {
        Value::Object(members) => levels_max == 0 || members.values().any(deeper),
        Value::Array(items) => levels_max == 0 || items.iter().any(deeper),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Checks that `value` is an object; the error states what it is instead.
pub fn validate_object(value: &Value) -> Result<(), String> {
    let kind = match value {
        Value::Object(_) => return Ok(()),
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
    };
    Err(format!("not a JSON object but {kind}"))
}

/// Validates a value from outside: its nesting, the length of its numbers, and that it can be decoded
/// from the log. The error describes the problem. Events wrap the value in further levels, and the
/// number of levels in the log is limited.
pub fn validate_value(value: &Value) -> Result<(), String> {
    if is_deeper(value, VALUE_LEVELS_MAX) {
        return Err(format!("nested deeper than {VALUE_LEVELS_MAX} levels"));
    }
    validate_members(value).map_err(|problem| format!("not supported: {problem}"))
}

fn validate_members(value: &Value) -> Result<(), String> {
    match value {
        Value::Object(members) if members.contains_key(NUMBER_KEY) => {
            Err(format!("the key `{NUMBER_KEY}` is reserved"))
        }
        Value::Object(members) => members.values().try_for_each(validate_members),
        Value::Array(items) => items.iter().try_for_each(validate_members),
        Value::Number(number) if number.as_str().len() > NUMBER_BYTES_MAX => {
            let bytes = number.as_str().len();
            Err(format!("a number has {bytes} characters; the limit is {NUMBER_BYTES_MAX}"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// True if an object in a JSON text has the reserved key of [`validate_value`]. Within a string, the
/// quotes of the key are escaped.
pub fn has_reserved_key(text: &str) -> bool {
    text.contains("\"$serde_json::private::Number\":")
}

/// Deserializes a type from a value, by way of its text. `serde_json::from_value` loses digits in
/// types that serde buffers ([`float`]), or fails.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> serde_json::Result<T> {
    serde_json::from_str(&value.to_string())
}

/// Converts a value for a template. A number that neither an integer nor a floating point number
/// represents exactly becomes its text.
pub fn to_template_value(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(truth) => (*truth).into(),
        Value::Number(number) => match (number.as_i128(), decimal::to_exact_f64(number)) {
            (Some(whole), _) => whole.into(),
            (None, Some(float)) => float.into(),
            (None, None) => number.as_str().into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(to_template_value).collect(),
        Value::Object(members) => {
            let members =
                members.iter().map(|(key, member)| (key.clone(), to_template_value(member)));
            members.collect::<BTreeMap<_, _>>().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn canonical_text_sorts_keys_and_keeps_numbers() {
        let value = value(r#"{"b":[1.0,{"y":2,"x":1}],"a":"é"}"#);
        assert_eq!(to_canonical_json(&value), r#"{"a":"é","b":[1.0,{"x":1,"y":2}]}"#);
    }

    #[test]
    fn nesting_is_counted_in_levels() {
        for (value, depth) in [(json!(1), 0), (json!({}), 1), (json!({"a": [1]}), 2)] {
            assert!(!is_deeper(&value, depth));
            assert!(depth == 0 || is_deeper(&value, depth - 1));
        }
    }

    #[test]
    fn m2_numbers_keep_every_digit() {
        for number in [
            "1e+400",
            "123456789012345678901234567890",
            "0.1000000000000000055511151231257827",
            "-0",
            "1e+5",
            "1.0",
            "-18446744073709551616",
        ] {
            let text = format!(r#"{{"n":[{number}]}}"#);
            assert_eq!(value(&text).to_string(), text);
            assert_eq!(from_value::<Value>(&value(&text)).unwrap().to_string(), text);
        }
    }

    #[test]
    fn x4_long_numbers_and_reserved_keys_are_rejected() {
        let digits = "1".repeat(NUMBER_BYTES_MAX);
        assert_eq!(validate_value(&value(&format!(r#"{{"n":[{digits}]}}"#))), Ok(()));
        assert_eq!(
            validate_value(&value(&format!(r#"{{"n":[{digits}1]}}"#))).unwrap_err(),
            "not supported: a number has 1001 characters; the limit is 1000"
        );
        let hostile = value(r#"{"a":1,"$serde_json::private::Number":{}}"#);
        assert!(has_reserved_key(&hostile.to_string()));
        assert!(!has_reserved_key(&json!(hostile.to_string()).to_string()));
        assert_eq!(
            validate_value(&json!([hostile])).unwrap_err(),
            "not supported: the key `$serde_json::private::Number` is reserved"
        );
    }

    #[test]
    fn m2_numbers_in_templates_keep_their_digits() {
        let environment = minijinja::Environment::new();
        for (text, rendered) in [
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
            ("2.50", "2.5"),
            ("7", "7"),
        ] {
            let value = to_template_value(&value(&format!(r#"{{"n":[{text}]}}"#)));
            assert_eq!(environment.render_str("{{ n[0] }}", value).unwrap(), rendered);
        }
    }
}
