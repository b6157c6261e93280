//! Forms of elicitations (T1), filled in at a terminal. Text is parsed according to the field's
//! schema. Pure.

use super::UsageError;
use serde_json::{Map, Value};

/// Parses `FIELD=VALUE` texts into the form value of `schema`; null if the schema is null.
pub(in crate::cli) fn parse_form(schema: &Value, fields: &[String]) -> Result<Value, UsageError> {
    if schema.is_null() {
        return match fields.first() {
            None => Ok(Value::Null),
            Some(_) => {
                Err(UsageError("this elicitation has no form: use `answer` without fields".into()))
            }
        };
    }
    let mut form = Map::new();
    for field in fields {
        let (name, text) = field
            .split_once('=')
            .ok_or_else(|| UsageError(format!("`{field}` must be FIELD=VALUE")))?;
        if form
            .insert(name.to_owned(), parse_field_value(&schema["properties"][name], text))
            .is_some()
        {
            return Err(UsageError(format!("field `{name}` is given twice")));
        }
    }
    Ok(Value::Object(form))
}

/// Parses a field's value. Text that does not fit the field's type stays a string; the server
/// rejects it.
pub(in crate::cli) fn parse_field_value(field: &Value, text: &str) -> Value {
    match field["type"].as_str() {
        Some("string") => text.into(),
        Some("boolean") => match text {
            "yes" | "y" | "true" => true.into(),
            "no" | "n" | "false" => false.into(),
            _ => text.into(),
        },
        Some("array") if !text.trim_start().starts_with('[') => {
            text.split(',').map(|item| parse_field_value(&field["items"], item.trim())).collect()
        }
        Some(_) | None => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

/// Returns the names of a form's fields, required fields first.
pub(in crate::cli) fn field_names(schema: &Value) -> Vec<String> {
    let known = schema["properties"].as_object();
    let required = schema["required"].as_array().into_iter().flatten();
    let required = required.filter_map(Value::as_str);
    let mut names: Vec<String> = Vec::new();
    let all = required.chain(known.into_iter().flat_map(|known| known.keys().map(String::as_str)));
    for name in all {
        if known.is_some_and(|known| known.contains_key(name))
            && !names.iter().any(|listed| listed == name)
        {
            names.push(name.to_owned());
        }
    }
    names
}

/// True if the field is required.
pub(in crate::cli) fn is_required(schema: &Value, name: &str) -> bool {
    let required = schema["required"].as_array();
    required.is_some_and(|names| names.iter().any(|required| required == name))
}

/// Returns the values that the field's schema enumerates, if any.
pub(in crate::cli) fn field_choices(field: &Value) -> Option<Vec<String>> {
    let text = |choice: &Value| match choice.as_str() {
        Some(text) => text.to_owned(),
        None => choice.to_string(),
    };
    let listed = field["enum"].as_array().or(field["items"]["enum"].as_array());
    let titled = || field["oneOf"].as_array().or(field["items"]["anyOf"].as_array());
    match listed {
        Some(listed) => Some(listed.iter().map(text).collect()),
        None => Some(titled()?.iter().map(|choice| text(&choice["const"])).collect()),
    }
}

/// Describes a field: its title, its description, its choices or type, and its default.
pub(in crate::cli) fn describe_field(field: &Value) -> String {
    let mut parts: Vec<String> = Vec::new();
    for name in ["title", "description"] {
        parts.extend(field[name].as_str().map(str::to_owned));
    }
    match field_choices(field) {
        Some(choices) => parts.push(choices.join(" | ")),
        None => parts.extend(field["type"].as_str().map(str::to_owned)),
    }
    if !field["default"].is_null() {
        parts.push(format!("default {}", field["default"]));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn t1_fields_are_parsed_by_schema_type() {
        let schema = json!({"properties": {
            "name": {"type": "string"}, "count": {"type": "integer"}, "sure": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
        }});
        let fields = ["name=7", "count=7", "sure=yes", "tags=a, b", "other=x=y"].map(str::to_owned);
        let expected =
            json!({"name": "7", "count": 7, "sure": true, "tags": ["a", "b"], "other": "x=y"});
        assert_eq!(parse_form(&schema, &fields).unwrap(), expected);
        let list = ["tags=[\"a, b\"]".to_owned()];
        assert_eq!(parse_form(&schema, &list).unwrap(), json!({"tags": ["a, b"]}));
    }

    #[test]
    fn t1_fields_are_described() {
        let schema = json!({"required": ["z"], "properties": {
            "a": {"type": "integer", "default": 3}, "z": {"title": "Zone", "enum": ["n", "s"]},
            "m": {"oneOf": [{"const": "x", "title": "Ex"}]},
        }});
        assert_eq!(field_names(&schema), ["z", "a", "m"]);
        assert!(is_required(&schema, "z") && !is_required(&schema, "a"));
        let text = |name: &str| describe_field(&schema["properties"][name]);
        assert_eq!((text("z"), text("a")), ("Zone, n | s".into(), "integer, default 3".into()));
        assert_eq!(text("m"), "x");
    }

    #[test]
    fn t1_fields_without_form_or_malformed_are_rejected() {
        assert_eq!(parse_form(&Value::Null, &[]).unwrap(), Value::Null);
        for (schema, fields) in [
            (Value::Null, vec!["a=1"]),
            (json!({"type": "object"}), vec!["a"]),
            (json!({"type": "object"}), vec!["a=1", "a=2"]),
        ] {
            let fields: Vec<_> = fields.into_iter().map(str::to_owned).collect();
            assert!(parse_form(&schema, &fields).is_err(), "{schema} {fields:?}");
        }
    }
}
