//! The arguments of a call as clients receive them, in every dialect and in responses: always an
//! object. What the model wrote instead of an object stands beside it as text; not redacted yet.

use greenroom_core::message::Arguments;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The arguments of a proposed call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallArguments<'a> {
    /// The arguments; empty if the model wrote no JSON object.
    pub object: Cow<'a, Map<String, Value>>,
    /// The model's text in place of a JSON object.
    pub text: Option<Cow<'a, str>>,
}

impl<'a> From<&'a Arguments> for CallArguments<'a> {
    fn from(arguments: &'a Arguments) -> Self {
        let object = arguments.as_object().map_or_else(Cow::default, Cow::Borrowed);
        Self { object, text: arguments.unparsed_text() }
    }
}

/// Returns the arguments of an approval. Only logs of earlier versions contain other values than
/// objects, for plans of steps that the policy had found invalid.
pub(super) fn object_or_empty(arguments: Value) -> Value {
    if arguments.is_object() { arguments } else { Value::Object(Map::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view(arguments: &Arguments) -> (Value, Option<String>) {
        let CallArguments { object, text } = CallArguments::from(arguments);
        (Value::Object(object.into_owned()), text.map(Cow::into_owned))
    }

    #[test]
    fn m2_arguments_are_always_an_object() {
        assert_eq!(view(&Arguments::Json(json!({"n": 1}))), (json!({"n": 1}), None));
        let (raw, error) = ("{\"n\":".to_owned(), "cut off".to_owned());
        let malformed = Arguments::Malformed { raw: raw.clone(), error };
        assert_eq!(view(&malformed), (json!({}), Some(raw)));
        // As in logs of earlier versions.
        for (value, text) in [(json!([1]), "[1]"), (json!(null), "null"), (json!("a"), "\"a\"")] {
            assert_eq!(view(&Arguments::Json(value)), (json!({}), Some(text.to_owned())));
        }
        assert_eq!(object_or_empty(json!("a")), json!({}));
        assert_eq!(object_or_empty(json!({"n": 1})), json!({"n": 1}));
    }
}
