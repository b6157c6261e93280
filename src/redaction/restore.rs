//! What a person who saw a value redacted means by what they send back (E7).

use super::{REDACTED, RedactedKeys, Redactor, view_to_value};
use serde_json::Value;
use std::{borrow::Cow, collections::BTreeMap};

impl Redactor {
    /// `edited`, in which all that is as it was shown of `original` is what it was: they send the
    /// replacement back where they changed nothing. Also in text that is JSON, which is shown
    /// redacted inside. A replacement that was not shown there stays, for who refuses it.
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
                    .map(|(key, was)| (keys.redact_next(self, key), (key, was)))
                    .collect();
                let one = |(key, value): (String, Value)| match (known.get(&*key), shown.get(&key))
                {
                    (Some(&(real, was)), Some(shown)) => {
                        (real.clone(), self.restore_value(was, shown, value))
                    }
                    _ => (key, value),
                };
                edited.into_iter().map(one).collect()
            }
            // Of another length, an element may have another place than it had.
            (Value::Array(original), Value::Array(shown), Value::Array(edited))
                if original.len() == edited.len() =>
            {
                let seen = original.iter().zip(shown);
                seen.zip(edited)
                    .map(|((was, shown), value)| self.restore_value(was, shown, value))
                    .collect()
            }
            (.., edited) => edited,
        }
    }

    fn restore_text(&self, original: &str, shown: &str, edited: String) -> String {
        if !edited.contains(REDACTED) {
            return edited;
        }
        let (Some(was), Some(shown), Some(inner)) = (
            parse_json_container(original),
            parse_json_container(shown),
            parse_json_container(&edited),
        ) else {
            return edited;
        };
        let inner = self.restore_value(&was, &shown, inner);
        // As it was written, where nothing was changed.
        if inner == was { original.to_owned() } else { inner.to_string() }
    }
}

/// What a text is, if that is a JSON object or array.
fn parse_json_container(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() || value.is_array()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is passed where `edited` is sent back for `original`.
    fn restored(original: &Value, edited: Value) -> Value {
        let redactor = Redactor::new(["k3y-k3y-k3y", "s3cr3t-s3cr3t"].map(str::to_owned));
        redactor.restore(original, edited)
    }

    #[test]
    fn e7_what_was_only_seen_redacted_is_kept() {
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
    fn e7_a_value_that_was_shown_is_not_kept_by_the_replacement() {
        let original =
            json!({"say": "to all", "n": 7, "inner": r#"{"n":1,"pin":"p"}"#, "password": null});
        let edited = json!({"say": REDACTED, "n": REDACTED, "inner": r#"{"n":1,"pin":"[redacted]"}"#, "password": REDACTED});
        assert_eq!(restored(&original, edited.clone()), edited);
    }

    #[test]
    fn e7_no_value_is_put_in_the_place_of_another() {
        let original = json!({"to": [{"token": "1111"}, {"token": "2222"}]});
        let shorter = json!({"to": [{"token": REDACTED}]});
        assert_eq!(restored(&original, shorter.clone()), shorter);
        let renamed = json!({"to": [{"other_token": REDACTED}, {"token": REDACTED}]});
        let expected = json!({"to": [{"other_token": REDACTED}, {"token": "2222"}]});
        assert_eq!(restored(&original, renamed), expected);
    }

    #[test]
    fn e7_what_was_redacted_in_json_within_text_is_kept() {
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
