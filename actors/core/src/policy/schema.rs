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
    compile_with(schema, false)
}

/// The same for a form that people fill in (T1): there `format`, as of an e-mail address, counts.
pub fn compile_form(schema: &Value) -> Result<Validator, String> {
    compile_with(schema, true)
}

fn compile_with(schema: &Value, formats: bool) -> Result<Validator, String> {
    if !schema.is_object() {
        return Err("it must be a JSON object".to_owned());
    }
    validate_size(schema)?;
    if SchemaWeigher::weigh_root(schema).nodes > limits::SCHEMA_NODES_MAX {
        return Err(format!(
            "with its references followed it has more than {} nodes",
            limits::SCHEMA_NODES_MAX
        ));
    }
    let patterns = PatternOptions::regex()
        .size_limit(limits::SCHEMA_PATTERN_BYTES_MAX)
        .dfa_size_limit(limits::SCHEMA_PATTERN_BYTES_MAX);
    let options = jsonschema::options().offline().with_pattern_options(patterns);
    let options = if formats { options.should_validate_formats(true) } else { options };
    options.build(schema).map_err(|error| {
        crate::text::truncate(&error.to_string(), limits::TOOL_ERROR_BYTES_MAX).to_owned()
    })
}

/// Bounds the schema as it is written. Keeps its own stack, since the depth is what it measures.
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

/// How deep arguments for this schema may be nested; `None` is as deep as they like.
///
/// A definition that contains itself in several places may have to be checked as many times at each
/// level of the arguments, so the levels are what is bounded.
pub fn arguments_depth_max(schema: &Value) -> Option<u32> {
    let SchemaWeight { recursions, .. } = SchemaWeigher::weigh_root(schema);
    (recursions > 1).then(|| limits::SCHEMA_CHECKS_MAX.ilog(recursions))
}

/// What checking a schema costs.
#[derive(Clone, Copy)]
struct SchemaWeight {
    /// Nodes once every `$ref` is followed: a schema of a few lines whose definitions each name
    /// the next one twice takes exponential time to check.
    nodes: usize,
    /// References among them that lead back to what contains them.
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

/// Weighs a schema.
struct SchemaWeigher<'a> {
    root: &'a Value,
    /// By the reference's text; `None` while it is being weighed.
    known: HashMap<&'a str, Option<SchemaWeight>>,
}

impl<'a> SchemaWeigher<'a> {
    fn weigh_root(root: &'a Value) -> SchemaWeight {
        // A reference may name the root itself.
        let mut weights = SchemaWeigher { root, known: HashMap::from([("#", None)]) };
        let mut weight = SchemaWeight::NODE;
        for (key, member) in root.as_object().into_iter().flatten() {
            // Definitions count where they are referred to.
            if key != "$defs" && key != "definitions" {
                weight.add(weights.weigh_member(key, member, 0));
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
        if let Some(known) = self.known.get(target) {
            return known.unwrap_or(SchemaWeight::RECURSION);
        }
        if self.known.len() >= limits::SCHEMA_REFERENCES_MAX {
            return SchemaWeight::TOO_MUCH;
        }
        self.known.insert(target, None);
        let found = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        // A target we don't find is an anchor or leads nowhere: as bad as the whole schema again.
        let weight = self.weigh(found.unwrap_or(self.root), depth);
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
    fn a_definition_that_contains_itself_twice_bounds_the_arguments() {
        let node = |kind: &str| {
            let again = json!({"$ref": "#/$defs/node"});
            let twice = json!({kind: [again, again]});
            json!({
                "properties": {"x": {"$ref": "#/$defs/node"}},
                "$defs": {"node": {"properties": {"x": twice}}},
            })
        };
        for kind in ["allOf", "anyOf"] {
            assert_eq!(arguments_depth_max(&node(kind)), Some(16));
        }
        let through_another = json!({
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"properties": {"x": {"allOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]}}},
                "b": {"properties": {"x": {"$ref": "#/$defs/a"}}},
            },
        });
        assert_eq!(arguments_depth_max(&through_another), Some(16));
        let root = json!({"properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert_eq!(arguments_depth_max(&root), Some(16));
        let list = json!({"properties": {"next": {"$ref": "#"}}});
        assert_eq!(arguments_depth_max(&list), None);
        assert_eq!(arguments_depth_max(&json!({"type": "object"})), None);
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
