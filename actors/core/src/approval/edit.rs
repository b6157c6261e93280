//! Arguments that a person has edited (G8).

use crate::scrub::REDACTED;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a person changed of a call before it was allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edit {
    /// The arguments as they shall be passed.
    pub arguments: Value,
    /// The person's reason, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A replacement that would be passed to a tool, since nothing is known to put in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place} has `{REDACTED}` where no such value was shown; say what shall be passed there")]
pub struct Unrestorable {
    /// Where: keys and indices, also those in JSON within text.
    place: String,
}

/// `edited`, with what the person saw only redacted put back from `original` (E7): they send the
/// replacement back where they changed nothing. Also in text that is JSON, which is shown redacted
/// inside. An error is a replacement that was not shown there.
pub fn restored(original: &Value, edited: Value) -> Result<Value, Unrestorable> {
    restored_at("arguments", Some(original), edited)
}

fn restored_at(
    place: &str,
    original: Option<&Value>,
    edited: Value,
) -> Result<Value, Unrestorable> {
    match (original, edited) {
        (Some(original), Value::String(text)) if text == REDACTED => Ok(original.clone()),
        (original, Value::String(text)) if text.contains(REDACTED) => {
            restored_text(place, original.and_then(Value::as_str).unwrap_or_default(), text)
        }
        (original, Value::Object(edited)) => {
            let was = original.and_then(Value::as_object);
            let one = |(key, value): (String, Value)| {
                let (place, was) = (format!("{place}.{key}"), was.and_then(|was| was.get(&key)));
                // A secret may even be a key.
                if was.is_none() && key.contains(REDACTED) {
                    return Err(Unrestorable { place });
                }
                Ok((key, restored_at(&place, was, value)?))
            };
            edited.into_iter().map(one).collect()
        }
        (original, Value::Array(edited)) => {
            // Of another length, an element may have another place than it had.
            let was = original.and_then(Value::as_array).filter(|was| was.len() == edited.len());
            let one = |(index, value)| {
                let was = was.and_then(|was| was.get(index));
                restored_at(&format!("{place}[{index}]"), was, value)
            };
            edited.into_iter().enumerate().map(one).collect()
        }
        (_, edited) => Ok(edited),
    }
}

/// The same of a text with a replacement in it, which may be JSON.
fn restored_text(place: &str, original: &str, edited: String) -> Result<Value, Unrestorable> {
    if edited == original {
        return Ok(edited.into());
    }
    if let (Some(was), Some(inner)) = (json_in(original), json_in(&edited)) {
        let inner = restored_at(place, Some(&was), inner)?;
        // As it was written, where nothing was changed.
        let text = if inner == was { original.to_owned() } else { inner.to_string() };
        return Ok(text.into());
    }
    // What a model says may have been scrubbed before anybody saw it.
    if original.contains(REDACTED) {
        return Ok(edited.into());
    }
    Err(Unrestorable { place: place.to_owned() })
}

/// What a text is, if that is a JSON object or array.
fn json_in(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn e7_what_was_only_seen_redacted_is_kept() {
        let original = json!({"to": "ann", "token": "s3cret", "list": ["a", {"password": "p"}]});
        let edited = json!({"to": "bob", "token": REDACTED, "list": ["a", {"password": REDACTED}], "new": 1});
        let expected =
            json!({"to": "bob", "token": "s3cret", "list": ["a", {"password": "p"}], "new": 1});
        assert_eq!(restored(&original, edited), Ok(expected));
    }

    #[test]
    fn e7_no_value_is_put_in_the_place_of_another() {
        let original = json!({"to": [{"pin": "1111"}, {"pin": "2222"}]});
        let shorter = json!({"to": [{"pin": REDACTED}]});
        let error = restored(&original, shorter).unwrap_err();
        assert!(error.to_string().starts_with("arguments.to[0].pin has"), "{error}");
        let plain = json!({"to": [{"pin": "3333"}]});
        assert_eq!(restored(&original, plain.clone()), Ok(plain));
    }

    #[test]
    fn e7_what_was_redacted_in_json_within_text_is_kept() {
        let inner = r#"{"password": "hunter2", "n": 1, "t": "{\"token\":\"x\"}"}"#;
        let original = json!({"text": inner});
        let shown = |n: u8| json!({"password": REDACTED, "n": n, "t": r#"{"token":"[redacted]"}"#});
        let sent = json!({"text": shown(1).to_string()});
        assert_eq!(restored(&original, sent), Ok(original.clone()), "byte for byte");
        let sent = json!({"text": shown(2).to_string()});
        let passed = restored(&original, sent).unwrap();
        let passed: Value = serde_json::from_str(passed["text"].as_str().unwrap()).unwrap();
        assert_eq!(passed, json!({"password": "hunter2", "n": 2, "t": r#"{"token":"x"}"#}));
    }

    #[test]
    fn e7_a_replacement_that_was_not_shown_there_is_never_passed() {
        let original = json!({"list": [], "text": r#"{"n":1}"#, "say": "it"});
        for (edited, place) in [
            (json!({"token": REDACTED}), "arguments.token"),
            (json!({"list": [REDACTED]}), "arguments.list[0]"),
            (json!({"text": r#"{"n":1,"m":["[redacted]"]}"#}), "arguments.text.m[0]"),
            (json!({"text": r#"{"n":"[redacted]"#}), "arguments.text"),
            (json!({"say": "[redacted] it"}), "arguments.say"),
            (json!({"new": {"[redacted]": 1}}), "arguments.new.[redacted]"),
        ] {
            let expected = Unrestorable { place: place.to_owned() };
            assert_eq!(restored(&original, edited), Err(expected));
        }
    }

    #[test]
    fn what_the_model_itself_said_may_be_said() {
        let original = json!({"say": "[redacted] it", "[redacted]": 1});
        let edited = json!({"say": "now [redacted] it", "[redacted]": 2});
        assert_eq!(restored(&original, edited.clone()), Ok(edited));
    }
}
