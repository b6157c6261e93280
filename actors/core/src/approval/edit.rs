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

/// `edited`, with what the person saw only redacted put back from `original` (E7): they send the
/// replacement back where they changed nothing.
pub fn restored(original: &Value, edited: Value) -> Value {
    match (original, edited) {
        (original, Value::String(text)) if text == REDACTED => original.clone(),
        (Value::Object(original), Value::Object(edited)) => edited
            .into_iter()
            .map(|(key, value)| match original.get(&key) {
                Some(was) => (key, restored(was, value)),
                None => (key, value),
            })
            .collect(),
        (Value::Array(original), Value::Array(edited)) => {
            let mut was = original.iter();
            let one = |value| match was.next() {
                Some(was) => restored(was, value),
                None => value,
            };
            edited.into_iter().map(one).collect()
        }
        (_, edited) => edited,
    }
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
        assert_eq!(restored(&original, edited), expected);
    }

    #[test]
    fn what_was_never_there_stays_as_it_was_sent() {
        let edited = json!({"token": REDACTED, "list": [REDACTED]});
        assert_eq!(restored(&json!({"list": []}), edited.clone()), edited);
    }
}
