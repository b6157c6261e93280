//! Compiles the schemas of tools. They come from servers we need not trust, so nothing here
//! fetches anything, and what would take too long to compile or to check is refused.

use crate::limits;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use std::collections::HashMap;

/// Compiles `schema` once; the error says why it is no usable schema.
///
/// Patterns are of the kind that takes linear time (no look-around, no back-references), and
/// `$ref` reaches only into the schema itself.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    if !schema.is_object() {
        return Err("it must be a JSON object".to_owned());
    }
    check_size(schema)?;
    let weight = Weights { root: schema, known: HashMap::new() }.of(schema, 0);
    if weight > limits::SCHEMA_NODES_MAX {
        return Err(format!(
            "with its references followed it has more than {} nodes",
            limits::SCHEMA_NODES_MAX
        ));
    }
    let patterns = PatternOptions::regex()
        .size_limit(limits::SCHEMA_PATTERN_BYTES_MAX)
        .dfa_size_limit(limits::SCHEMA_PATTERN_BYTES_MAX);
    jsonschema::options().offline().with_pattern_options(patterns).build(schema).map_err(|error| {
        crate::text::cut(&error.to_string(), limits::TOOL_ERROR_BYTES_MAX).to_owned()
    })
}

/// Bounds the schema as it is written. Keeps its own stack, since the depth is what it measures.
fn check_size(schema: &Value) -> Result<(), String> {
    let mut open = vec![(schema, 1)];
    let (mut nodes, mut bytes) = (0, 0);
    while let Some((value, depth)) = open.pop() {
        nodes += 1;
        match value {
            Value::Object(members) => {
                bytes += members.keys().map(String::len).sum::<usize>();
                open.extend(members.values().map(|member| (member, depth + 1)));
            }
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::String(text) => bytes += text.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        if depth > limits::SCHEMA_DEPTH_MAX {
            return Err(format!("it is nested deeper than {} levels", limits::SCHEMA_DEPTH_MAX));
        }
        if nodes > limits::SCHEMA_NODES_MAX {
            return Err(format!("it has more than {} nodes", limits::SCHEMA_NODES_MAX));
        }
        if bytes > limits::SCHEMA_TEXT_BYTES_MAX {
            return Err(format!("it has more than {} bytes", limits::SCHEMA_TEXT_BYTES_MAX));
        }
    }
    Ok(())
}

/// How many nodes there are once every `$ref` is followed: a schema of a few lines whose
/// definitions each name the next one twice takes exponential time to check.
struct Weights<'a> {
    root: &'a Value,
    /// By the reference's text; `None` while it is being measured, so that a definition that
    /// contains itself counts once (its instance ends the recursion).
    known: HashMap<&'a str, Option<usize>>,
}

impl<'a> Weights<'a> {
    fn of(&mut self, value: &'a Value, depth: usize) -> usize {
        if depth > 4 * limits::SCHEMA_DEPTH_MAX {
            return limits::SCHEMA_NODES_MAX;
        }
        let mut weight = 1usize;
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    weight = weight.saturating_add(self.of(member, depth + 1));
                    if let ("$ref" | "$dynamicRef" | "$recursiveRef", Some(target)) =
                        (key.as_str(), member.as_str())
                    {
                        weight = weight.saturating_add(self.of_reference(target, depth + 1));
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    weight = weight.saturating_add(self.of(item, depth + 1));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        weight
    }

    fn of_reference(&mut self, target: &'a str, depth: usize) -> usize {
        if let Some(known) = self.known.get(target) {
            return known.unwrap_or(1);
        }
        if self.known.len() >= limits::SCHEMA_REFERENCES_MAX {
            return limits::SCHEMA_NODES_MAX;
        }
        self.known.insert(target, None);
        let found = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        // A target we don't find is an anchor or leads nowhere: as bad as the whole schema again.
        let weight = self.of(found.unwrap_or(self.root), depth);
        self.known.insert(target, Some(weight));
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(schema: Value) -> String {
        compile(&schema).expect_err("the schema should be refused")
    }

    #[test]
    fn a_good_schema_checks_arguments() {
        let schema = json!({
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/tree"}},
            "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        });
        let validator = compile(&schema).unwrap();
        assert!(validator.is_valid(&json!({"tree": [[], [[]]]})));
        assert!(!validator.is_valid(&json!({"tree": [[], [1]]})));
    }

    #[test]
    fn what_is_no_schema_is_an_error_and_not_a_panic() {
        for schema in [json!(true), json!([]), json!({"type": 7}), json!({"type": "objekt"})] {
            compile(&schema).unwrap_err();
        }
        refused(json!({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}));
        refused(json!({"properties": {"a": {"pattern": "(unclosed"}}}));
    }

    #[test]
    fn nothing_is_fetched() {
        refused(json!({"$ref": "http://127.0.0.1:9/schema.json"}));
        refused(json!({"$ref": "file:///etc/passwd"}));
    }

    #[test]
    fn patterns_take_linear_time() {
        assert!(!refused(json!({"properties": {"a": {"pattern": "(?=a)b"}}})).is_empty());
        refused(json!({"properties": {"a": {"pattern": "((a{1,900}){1,900}){1,900}"}}}));
    }

    #[test]
    fn a_schema_that_only_names_itself_ends() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        ] {
            if let Ok(validator) = compile(&schema) {
                std::hint::black_box(validator.is_valid(&json!({})));
            }
        }
    }

    #[test]
    fn a_schema_that_is_too_deep_or_too_large_is_refused() {
        let mut deep = json!({});
        for _ in 0..200 {
            deep = json!({"not": deep});
        }
        assert!(refused(deep).contains("deeper"));
        assert!(refused(json!({"enum": vec![0; 200_000]})).contains("nodes"));
        assert!(refused(json!({"description": "x".repeat(1 << 20)})).contains("bytes"));
    }

    #[test]
    fn a_schema_that_doubles_at_each_reference_is_refused() {
        let mut definitions = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        definitions.insert("d40".into(), json!({"type": "object"}));
        let schema = json!({"$ref": "#/$defs/d0", "$defs": definitions});
        assert!(refused(schema).contains("references followed"));
    }
}
