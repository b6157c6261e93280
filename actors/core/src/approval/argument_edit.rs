//! Arguments of a call that a human edited before approving it (G8).

use crate::scrub::REDACTED;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An edit of a call's arguments, made before the call was allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArgumentEdit {
    /// The complete arguments to pass instead of the proposed ones.
    pub arguments: Value,
    /// The approver's reason, which the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An edited value contains a redaction placeholder that the original value does not contain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{path}`: contains `{REDACTED}`, but the original value does not; enter the value itself")]
pub struct RedactionPlaceholderError {
    /// The position: keys and indices, including those inside JSON that is embedded in a string.
    path: String,
}

/// Rejects edited arguments that would pass a redaction placeholder to the tool (E7).
///
/// A caller that shows values redacted restores the real values first. A placeholder that remains
/// and that the original does not contain was entered by a human.
pub fn validate_no_placeholders(
    original: &Value,
    edited: &Value,
) -> Result<(), RedactionPlaceholderError> {
    validate_value("arguments", Some(original), edited)
}

fn validate_value(
    path: &str,
    original: Option<&Value>,
    edited: &Value,
) -> Result<(), RedactionPlaceholderError> {
    match edited {
        Value::String(text) if text.contains(REDACTED) => {
            validate_text(path, original.and_then(Value::as_str).unwrap_or_default(), text)
        }
        Value::Object(edited) => {
            let original = original.and_then(Value::as_object);
            edited.iter().try_for_each(|(key, value)| {
                let path = format!("{path}.{key}");
                let original = original.and_then(|original| original.get(key));
                // A key can be a secret too.
                if original.is_none() && key.contains(REDACTED) {
                    return Err(RedactionPlaceholderError { path });
                }
                validate_value(&path, original, value)
            })
        }
        Value::Array(edited) => {
            // If the length differs, elements may have moved, so positions don't correspond.
            let original =
                original.and_then(Value::as_array).filter(|items| items.len() == edited.len());
            edited.iter().enumerate().try_for_each(|(index, value)| {
                let original = original.and_then(|items| items.get(index));
                validate_value(&format!("{path}[{index}]"), original, value)
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

/// Validates an edited string that contains a placeholder. The string may be embedded JSON.
fn validate_text(
    path: &str,
    original: &str,
    edited: &str,
) -> Result<(), RedactionPlaceholderError> {
    if let (Some(original), Some(edited)) =
        (parse_embedded_json(original), parse_embedded_json(edited))
    {
        return validate_value(path, Some(&original), &edited);
    }
    // The model's own text can contain a placeholder, because it may have been scrubbed.
    if original.contains(REDACTED) {
        return Ok(());
    }
    Err(RedactionPlaceholderError { path: path.to_owned() })
}

/// Parses a string that contains a JSON object or array.
fn parse_embedded_json(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e7_edited_arguments_with_new_placeholder_are_rejected() {
        let original = json!({"list": [], "text": r#"{"n":1}"#, "say": "it", "n": 7});
        for (edited, path) in [
            (json!({"n": REDACTED}), "arguments.n"),
            (json!({"say": REDACTED}), "arguments.say"),
            (json!({"token": REDACTED}), "arguments.token"),
            (json!({"list": [REDACTED]}), "arguments.list[0]"),
            (json!({"text": r#"{"n":1,"m":["[redacted]"]}"#}), "arguments.text.m[0]"),
            (json!({"text": r#"{"n":"[redacted]"#}), "arguments.text"),
            (json!({"say": "[redacted] it"}), "arguments.say"),
            (json!({"new": {"[redacted]": 1}}), "arguments.new.[redacted]"),
        ] {
            let expected = RedactionPlaceholderError { path: path.to_owned() };
            assert_eq!(validate_no_placeholders(&original, &edited), Err(expected));
        }
    }

    #[test]
    fn e7_edited_arguments_with_original_placeholder_are_accepted() {
        let original = json!({"say": "[redacted] it", "[redacted]": 1});
        let edited = json!({"say": "now [redacted] it", "[redacted]": 2});
        assert_eq!(validate_no_placeholders(&original, &edited), Ok(()));
        let longer = json!({"list": ["a", "b"]});
        assert_eq!(validate_no_placeholders(&json!({"list": ["[redacted]"]}), &longer), Ok(()));
    }
}
