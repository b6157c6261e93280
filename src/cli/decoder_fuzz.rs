//! Fuzz tests of the command line's arguments. No text causes a panic.

use super::{audit::AnchorArg, partial_id::PartialId, policy::SinceArg, schema_form, terminal};
use crate::hostile_input;
use proptest::prelude::*;

const ARGUMENTS: &[&str] = &[
    "0198c0de-0000-7000-8000-000000000001",
    "…00A11CE",
    "12h",
    "2026-09-21T14:13:20Z",
    "10:88a4fe96099c49af8fbab3abcd3ae9741bef30a75746d2f5120c9459bdd9d3ed",
    "list=[1,2]",
    "when=yes",
];

const SCHEMAS: &[&str] = &[
    r#"{"type":"object","properties":{"list":{"type":"array","items":{"type":"integer","enum":[1,2]}},"when":{"type":"boolean","default":true},"n":{"oneOf":[{"const":"a","title":"A"}]}},"required":["when","list"]}"#,
];

proptest! {
    #[test]
    fn g11_arguments_are_parsed_or_rejected(
        text in hostile_input::text(ARGUMENTS),
        schema in hostile_input::json(SCHEMAS),
    ) {
        if let Ok(id) = text.parse::<PartialId>() {
            prop_assert!(id.matches(id.as_full().unwrap_or_default()) || id.as_full().is_none());
            id.resolve([text.clone()], "session").ok();
        }
        text.parse::<SinceArg>().ok();
        text.parse::<AnchorArg>().ok();
        schema_form::parse_form(&schema, std::slice::from_ref(&text)).ok();
        for name in schema_form::field_names(&schema) {
            let field = &schema["properties"][&name];
            schema_form::parse_field_value(field, &text);
            schema_form::field_choices(field);
            schema_form::describe_field(field);
            schema_form::is_required(&schema, &name);
        }
    }

    #[test]
    fn g11_text_is_escaped_and_wrapped_within_its_columns(text in hostile_input::text(ARGUMENTS)) {
        let escaped = terminal::escape_unsafe(&text);
        let is_escaped = !escaped.contains(char::is_control);
        prop_assert!(is_escaped, "{:?}", escaped);
        terminal::truncate(&escaped, 12);
        prop_assert!(!terminal::wrap(&escaped, 12).is_empty());
    }
}
