//! Restores redacted values in an edited value that a user sends back (E7).

use super::{REDACTED, RedactedKeys, Redactor, view_to_value};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap};

impl Redactor {
    /// Returns `edited` with each part that equals the redacted form of `original` replaced by the
    /// original part. Users send the placeholder back for values that they did not change. Also
    /// applies inside text that is JSON, because such text is redacted inside. A placeholder in
    /// any other position remains, so that the caller can reject it.
    pub fn restore(&self, original: &Value, edited: Value) -> Value {
        self.restore_value(original, &view_to_value(&self.redact(original)), edited)
    }

    fn restore_value(&self, original: &Value, shown: &Value, edited: Value) -> Value {
        if edited == *shown {
            return original.clone();
        }
        match (original, shown, edited) {
            (Value::String(original), Value::String(shown), Value::String(edited)) => {
                self.restore_text(original, shown, edited).into()
            }
            (Value::Object(original), Value::Object(shown), Value::Object(edited)) => {
                let mut keys = RedactedKeys::default();
                let known: BTreeMap<Cow<'_, str>, _> = original
                    .iter()
                    .map(|(key, value)| (keys.redact_next(self, key), (key, value)))
                    .collect();
                let restore_member =
                    |(key, value): (String, Value)| match (known.get(&*key), shown.get(&key)) {
                        (Some(&(real_key, original)), Some(shown)) => {
                            (real_key.clone(), self.restore_value(original, shown, value))
                        }
                        _ => (key, value),
                    };
                edited.into_iter().map(restore_member).collect()
            }
            // If the length differs, elements may have moved, so nothing can be restored by index.
            (Value::Array(original), Value::Array(shown), Value::Array(edited))
                if original.len() == edited.len() =>
            {
                let pairs = original.iter().zip(shown);
                pairs
                    .zip(edited)
                    .map(|((original, shown), value)| self.restore_value(original, shown, value))
                    .collect()
            }
            (.., edited) => edited,
        }
    }

    fn restore_text(&self, original: &str, shown: &str, edited: String) -> String {
        if !edited.contains(REDACTED) {
            return edited;
        }
        let (Some(original_value), Some(shown), Some(edited_value)) = (
            parse_json_container(original),
            parse_json_container(shown),
            parse_json_container(&edited),
        ) else {
            return edited;
        };
        let restored = self.restore_value(&original_value, &shown, edited_value);
        // Unchanged JSON keeps its original formatting.
        if restored == original_value { original.to_owned() } else { restored.to_string() }
    }
}

/// Parses `text` if it is a JSON object or array.
fn parse_json_container(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Restores `edited` against `original` with a redactor that has two configured secrets.
    fn restored(original: &Value, edited: Value) -> Value {
        let redactor = Redactor::new(["k3y-k3y-k3y", "s3cr3t-s3cr3t"].map(str::to_owned));
        redactor.restore(original, edited)
    }

    #[test]
    fn e7_values_under_secret_keys_are_restored() {
        let original = json!({"to": "ann", "token": "s3cret", "list": ["a", {"password": ["p"]}]});
        let edited = json!({"to": "bob", "token": REDACTED, "list": ["a", {"password": REDACTED}], "new": 1});
        let expected =
            json!({"to": "bob", "token": "s3cret", "list": ["a", {"password": ["p"]}], "new": 1});
        assert_eq!(restored(&original, edited), expected);
    }

    #[test]
    fn e7_unchanged_redacted_text_is_restored() {
        let original =
            json!({"a": ["use k3y-k3y-k3y now", r#"{"token":"x","#], "b": "k3y-k3y-k3y?"});
        let edited =
            json!({"a": ["use [redacted] now", r#"{"token":"[redacted]","#], "b": "[redacted]!"});
        let expected = json!({"a": original["a"], "b": "[redacted]!"});
        assert_eq!(restored(&original, edited), expected);
    }

    #[test]
    fn e7_placeholder_for_a_visible_value_is_not_restored() {
        let original =
            json!({"say": "to all", "n": 7, "inner": r#"{"n":1,"pin":"p"}"#, "password": null});
        let edited = json!({"say": REDACTED, "n": REDACTED, "inner": r#"{"n":1,"pin":"[redacted]"}"#, "password": REDACTED});
        assert_eq!(restored(&original, edited.clone()), edited);
    }

    #[test]
    fn e7_values_are_not_restored_at_other_positions() {
        let original = json!({"to": [{"token": "1111"}, {"token": "2222"}]});
        let shorter = json!({"to": [{"token": REDACTED}]});
        assert_eq!(restored(&original, shorter.clone()), shorter);
        let renamed = json!({"to": [{"other_token": REDACTED}, {"token": REDACTED}]});
        let expected = json!({"to": [{"other_token": REDACTED}, {"token": "2222"}]});
        assert_eq!(restored(&original, renamed), expected);
    }

    #[test]
    fn e7_redacted_values_in_json_text_are_restored() {
        let inner = r#"{"password": "hunter2", "n": 1, "t": "{\"token\":\"x\"}"}"#;
        let original = json!({"text": inner});
        let shown = |n: u8| json!({"password": REDACTED, "n": n, "t": r#"{"token":"[redacted]"}"#});
        let same = restored(&original, json!({"text": shown(1).to_string()}));
        assert_eq!(same, original, "byte for byte");
        let changed = restored(&original, json!({"text": shown(2).to_string()}));
        let changed: Value = serde_json::from_str(changed["text"].as_str().unwrap()).unwrap();
        assert_eq!(changed, json!({"password": "hunter2", "n": 2, "t": r#"{"token":"x"}"#}));
    }

    #[test]
    fn e7_redacted_keys_are_restored() {
        let original = json!({"a": 1, "k3y-k3y-k3y": 2, "s3cr3t-s3cr3t": {"n": 3}});
        let edited = json!({"a": 1, "[redacted]": 2, "[redacted] (2)": {"n": 4}});
        let expected = json!({"a": 1, "k3y-k3y-k3y": 2, "s3cr3t-s3cr3t": {"n": 4}});
        assert_eq!(restored(&original, edited), expected);
    }
}
