//! The compilation of tool schemas.
//!
//! Schemas come from servers that need not be trusted. The compiler fetches nothing, and rejects
//! schemas that would take too long to compile or to validate against.

use crate::limits;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use std::collections::HashMap;

/// Compiles `schema`, or returns the reason why it is not usable.
///
/// Patterns are limited to those that match in linear time (no look-around, no back-references).
/// `$ref` can only refer to the schema itself.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    compile_with(schema, false)
}

/// Compiles the schema of a form that humans fill in (T1). Unlike [`compile`], enforces `format`,
/// for example of an e-mail address.
pub fn compile_form(schema: &Value) -> Result<Validator, String> {
    compile_with(schema, true)
}

fn compile_with(schema: &Value, validate_formats: bool) -> Result<Validator, String> {
    if !schema.is_object() {
        return Err("must be a JSON object".to_owned());
    }
    validate_size(schema)?;
    if SchemaWeigher::weigh_root(schema).nodes > limits::SCHEMA_NODES_MAX {
        return Err(format!(
            "more than {} nodes with references resolved",
            limits::SCHEMA_NODES_MAX
        ));
    }
    let patterns = PatternOptions::regex()
        .size_limit(limits::SCHEMA_PATTERN_BYTES_MAX)
        .dfa_size_limit(limits::SCHEMA_PATTERN_BYTES_MAX);
    let options = jsonschema::options().offline().with_pattern_options(patterns);
    let options = if validate_formats { options.should_validate_formats(true) } else { options };
    options.build(schema).map_err(|error| {
        crate::text::truncate(&error.to_string(), limits::TOOL_ERROR_BYTES_MAX).to_owned()
    })
}

/// Checks the size of the schema as written. Iterative, because the depth is not known to be
/// bounded yet.
fn validate_size(schema: &Value) -> Result<(), String> {
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
            return Err(format!("nested deeper than {} levels", limits::SCHEMA_DEPTH_MAX));
        }
        if nodes > limits::SCHEMA_NODES_MAX {
            return Err(format!("more than {} nodes", limits::SCHEMA_NODES_MAX));
        }
        if bytes > limits::SCHEMA_TEXT_BYTES_MAX {
            return Err(format!("more than {} bytes of text", limits::SCHEMA_TEXT_BYTES_MAX));
        }
    }
    Ok(())
}

/// Returns the maximum nesting of arguments for this schema; `None` means no limit.
///
/// A definition that contains itself several times may be validated that many times at each level
/// of the arguments, so the number of levels is limited.
pub fn arguments_depth_max(schema: &Value) -> Option<u32> {
    let SchemaWeight { recursions, .. } = SchemaWeigher::weigh_root(schema);
    (recursions > 1).then(|| limits::SCHEMA_CHECKS_MAX.ilog(recursions))
}

/// The cost of validating against a schema.
#[derive(Clone, Copy)]
struct SchemaWeight {
    /// The number of nodes with every `$ref` resolved. A schema of a few lines in which each
    /// definition refers to the next one twice takes exponential time to validate.
    nodes: usize,
    /// The number of references among them that lead back to an enclosing definition.
    recursions: usize,
}

impl SchemaWeight {
    const NODE: Self = Self { nodes: 1, recursions: 0 };
    const RECURSION: Self = Self { nodes: 1, recursions: 1 };
    const TOO_MUCH: Self = Self { nodes: usize::MAX, recursions: usize::MAX };

    fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.recursions = self.recursions.saturating_add(other.recursions);
    }
}

/// Computes the weight of a schema.
struct SchemaWeigher<'a> {
    root: &'a Value,
    /// The weights of reference targets, keyed by the text of the reference. `None` while a weight
    /// is being computed.
    weights: HashMap<&'a str, Option<SchemaWeight>>,
}

impl<'a> SchemaWeigher<'a> {
    fn weigh_root(root: &'a Value) -> SchemaWeight {
        // A reference can refer to the root.
        let mut weigher = SchemaWeigher { root, weights: HashMap::from([("#", None)]) };
        let mut weight = SchemaWeight::NODE;
        for (key, member) in root.as_object().into_iter().flatten() {
            // Definitions are counted where they are referenced.
            if key != "$defs" && key != "definitions" {
                weight.add(weigher.weigh_member(key, member, 0));
            }
        }
        weight
    }

    fn weigh(&mut self, value: &'a Value, depth: usize) -> SchemaWeight {
        if depth > 4 * limits::SCHEMA_DEPTH_MAX {
            return SchemaWeight::TOO_MUCH;
        }
        let mut weight = SchemaWeight::NODE;
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    weight.add(self.weigh_member(key, member, depth));
                }
            }
            Value::Array(items) => {
                for item in items {
                    weight.add(self.weigh(item, depth + 1));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        weight
    }

    fn weigh_member(&mut self, key: &str, member: &'a Value, depth: usize) -> SchemaWeight {
        match (key, member.as_str()) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Some(target)) => {
                self.weigh_reference(target, depth + 1)
            }
            _ => self.weigh(member, depth + 1),
        }
    }

    fn weigh_reference(&mut self, target: &'a str, depth: usize) -> SchemaWeight {
        if let Some(weight) = self.weights.get(target) {
            return weight.unwrap_or(SchemaWeight::RECURSION);
        }
        if self.weights.len() >= limits::SCHEMA_DISTINCT_REFERENCES_MAX {
            return SchemaWeight::TOO_MUCH;
        }
        self.weights.insert(target, None);
        let found = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        // A target that is not found is an anchor or does not exist. It counts like the whole
        // schema.
        let weight = self.weigh(found.unwrap_or(self.root), depth);
        self.weights.insert(target, Some(weight));
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compile_error(schema: Value) -> String {
        compile(&schema).expect_err("the schema should be rejected")
    }

    #[test]
    fn t3_valid_schema_validates_arguments() {
        let schema = json!({
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/tree"}},
            "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        });
        let validator = compile(&schema).unwrap();
        assert!(validator.is_valid(&json!({"tree": [[], [[]]]})));
        assert!(!validator.is_valid(&json!({"tree": [[], [1]]})));
    }

    /// Numbers are compared exactly, and a huge exponent costs nothing.
    #[test]
    fn t3_schema_validates_numbers_of_any_length() {
        let forty = "1".repeat(40);
        for (schema, number, is_valid) in [
            (json!({"type": "integer"}), "1.0", true),
            (json!({"type": "integer"}), forty.as_str(), true),
            (json!({"type": "integer"}), "1.5", false),
            (json!({"type": "number", "maximum": 10}), forty.as_str(), false),
            (json!({"maximum": 18446744073709551615_u64}), "18446744073709551616", false),
            (json!({"maximum": 18446744073709551615_u64}), "18446744073709551615", true),
            (json!({"minimum": 0}), "-0", true),
            (json!({"minimum": 0}), "-1e-400", false),
            (json!({"maximum": 10}), "1e999999999", false),
            (json!({"maximum": 10}), "1e-999999999", true),
            (json!({"multipleOf": 1}), forty.as_str(), true),
            (json!({"multipleOf": 2}), forty.as_str(), false),
            (json!({"multipleOf": 0.01}), "0.07", true),
            (json!({"multipleOf": 3}), "1e999999999", false),
            (json!({"enum": [1]}), "1.0", true),
            (json!({"const": 100000}), "1E5", true),
        ] {
            let arguments = serde_json::from_str(&format!("{{\"n\":{number}}}")).unwrap();
            let schema = json!({"type": "object", "properties": {"n": schema}});
            let validator = compile(&schema).unwrap();
            assert_eq!(validator.is_valid(&arguments), is_valid, "{schema} {number}");
        }
    }

    #[test]
    fn t3_invalid_schema_is_error_and_not_panic() {
        for schema in [json!(true), json!([]), json!({"type": 7}), json!({"type": "objekt"})] {
            compile(&schema).unwrap_err();
        }
        compile_error(json!({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}));
        compile_error(json!({"properties": {"a": {"pattern": "(unclosed"}}}));
    }

    #[test]
    fn t3_external_reference_is_not_fetched() {
        compile_error(json!({"$ref": "http://127.0.0.1:9/schema.json"}));
        compile_error(json!({"$ref": "file:///etc/passwd"}));
    }

    #[test]
    fn t3_pattern_without_linear_time_is_rejected() {
        assert!(!compile_error(json!({"properties": {"a": {"pattern": "(?=a)b"}}})).is_empty());
        compile_error(json!({"properties": {"a": {"pattern": "((a{1,900}){1,900}){1,900}"}}}));
    }

    #[test]
    fn t3_self_referencing_schema_terminates() {
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
    fn t3_too_deep_or_too_large_schema_is_rejected() {
        let mut deep = json!({});
        for _ in 0..200 {
            deep = json!({"not": deep});
        }
        assert!(compile_error(deep).contains("deeper"));
        assert!(compile_error(json!({"enum": vec![0; 200_000]})).contains("nodes"));
        assert!(compile_error(json!({"description": "x".repeat(1 << 20)})).contains("bytes"));
    }

    #[test]
    fn t3_definition_with_double_recursion_limits_argument_depth() {
        let node = |kind: &str| {
            let reference = json!({"$ref": "#/$defs/node"});
            let twice = json!({kind: [reference, reference]});
            json!({
                "properties": {"x": {"$ref": "#/$defs/node"}},
                "$defs": {"node": {"properties": {"x": twice}}},
            })
        };
        for kind in ["allOf", "anyOf"] {
            assert_eq!(arguments_depth_max(&node(kind)), Some(16));
        }
        let mutual_recursion = json!({
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"properties": {"x": {"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]}}},
                "b": {"properties": {"x": {"$ref": "#/$defs/a"}}},
            },
        });
        assert_eq!(arguments_depth_max(&mutual_recursion), Some(16));
        let root = json!({"properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert_eq!(arguments_depth_max(&root), Some(16));
        let list = json!({"properties": {"next": {"$ref": "#"}}});
        assert_eq!(arguments_depth_max(&list), None);
        assert_eq!(arguments_depth_max(&json!({"type": "object"})), None);
    }

    #[test]
    fn t3_schema_with_exponential_references_is_rejected() {
        let mut definitions = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        definitions.insert("d40".into(), json!({"type": "object"}));
        let schema = json!({"$ref": "#/$defs/d0", "$defs": definitions});
        assert!(compile_error(schema).contains("references resolved"));
    }
}
