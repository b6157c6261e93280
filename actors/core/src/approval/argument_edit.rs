//! Arguments that a person has edited (G8).

use crate::scrub::REDACTED;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a person changed of a call before it was allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArgumentEdit {
    /// The arguments as they shall be passed.
    pub arguments: Value,
    /// The person's reason, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A replacement that would be passed to a tool, though the model itself said none there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} has `{REDACTED}` where no such value was shown; say what shall be passed there")]
pub struct RedactionPlaceholderError {
    /// Where: keys and indices, also those in JSON within text.
    path: String,
}

/// Refuses arguments in which a replacement would be passed (E7). Who shows a value redacted puts
/// the real one back before it comes here, so what is left was put there by a person.
pub fn validate_no_placeholders(
    original: &Value,
    edited: &Value,
) -> Result<(), RedactionPlaceholderError> {
    validate_value("arguments", Some(original), edited)
}

fn validate_value(
    place: &str,
    original: Option<&Value>,
    edited: &Value,
) -> Result<(), RedactionPlaceholderError> {
    match edited {
        Value::String(text) if text.contains(REDACTED) => {
            validate_text(place, original.and_then(Value::as_str).unwrap_or_default(), text)
        }
        Value::Object(edited) => {
            let was = original.and_then(Value::as_object);
            edited.iter().try_for_each(|(key, value)| {
                let (place, was) = (format!("{place}.{key}"), was.and_then(|was| was.get(key)));
                // A secret may even be a key.
                if was.is_none() && key.contains(REDACTED) {
                    return Err(RedactionPlaceholderError { path: place });
                }
                validate_value(&place, was, value)
            })
        }
        Value::Array(edited) => {
            // Of another length, an element may have another place than it had.
            let was = original.and_then(Value::as_array).filter(|was| was.len() == edited.len());
            edited.iter().enumerate().try_for_each(|(index, value)| {
                let was = was.and_then(|was| was.get(index));
                validate_value(&format!("{place}[{index}]"), was, value)
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// The same of a text with a replacement in it, which may be JSON.
fn validate_text(
    place: &str,
    original: &str,
    edited: &str,
) -> Result<(), RedactionPlaceholderError> {
    if let (Some(was), Some(inner)) = (parse_embedded_json(original), parse_embedded_json(edited)) {
        return validate_value(place, Some(&was), &inner);
    }
    // What a model says may have been scrubbed before anybody saw it.
    if original.contains(REDACTED) {
        return Ok(());
    }
    Err(RedactionPlaceholderError { path: place.to_owned() })
}

/// What a text is, if that is a JSON object or array.
fn parse_embedded_json(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e7_placeholders_in_edited_arguments_are_rejected() {
        let original = json!({"list": [], "text": r#"{"n":1}"#, "say": "it", "n": 7});
        for (edited, place) in [
            (json!({"n": REDACTED}), "arguments.n"),
            (json!({"say": REDACTED}), "arguments.say"),
            (json!({"token": REDACTED}), "arguments.token"),
            (json!({"list": [REDACTED]}), "arguments.list[0]"),
            (json!({"text": r#"{"n":1,"m":["[redacted]"]}"#}), "arguments.text.m[0]"),
            (json!({"text": r#"{"n":"[redacted]"#}), "arguments.text"),
            (json!({"say": "[redacted] it"}), "arguments.say"),
            (json!({"new": {"[redacted]": 1}}), "arguments.new.[redacted]"),
        ] {
            let expected = RedactionPlaceholderError { path: place.to_owned() };
            assert_eq!(validate_no_placeholders(&original, &edited), Err(expected));
        }
    }

    #[test]
    fn placeholders_of_the_original_arguments_are_accepted() {
        let original = json!({"say": "[redacted] it", "[redacted]": 1});
        let edited = json!({"say": "now [redacted] it", "[redacted]": 2});
        assert_eq!(validate_no_placeholders(&original, &edited), Ok(()));
        let longer = json!({"list": ["a", "b"]});
        assert_eq!(validate_no_placeholders(&json!({"list": ["[redacted]"]}), &longer), Ok(()));
    }
}
