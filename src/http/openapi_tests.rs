//! Checks `/openapi.json` against the routes, the problem codes and the schemas.

use super::{AppState, configure, endpoints, openapi, problem_codes};
use crate::{
    auth::{AdminToken, Authenticator},
    redaction::Redactor,
};
use actix_web::{App, http::Method, test as probe};
use greenroom_actors::testing::{FakeTools, ScriptedModel, TestRuntime};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn document() -> Value {
    json!(openapi::document())
}

/// Returns all operations, by path and method.
fn operations(document: &Value) -> BTreeMap<(String, String), Value> {
    let mut operations = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations.insert((path.clone(), method.to_uppercase()), operation.clone());
        }
    }
    operations
}

#[test]
fn every_route_is_documented_and_every_operation_is_a_route() {
    let routed: Vec<_> = endpoints()
        .into_iter()
        .map(|(_, endpoint)| (endpoint.documented_path(), endpoint.method.to_string()))
        .collect();
    let documented: BTreeSet<_> = operations(&document()).into_keys().collect();
    assert_eq!(routed.len(), documented.len(), "one operation for each route");
    assert_eq!(routed.into_iter().collect::<BTreeSet<_>>(), documented);
}

#[actix_web::test]
async fn every_documented_operation_is_routed() {
    let test_runtime = TestRuntime::start(ScriptedModel::with_replies([]), FakeTools::new()).await;
    let auth = Authenticator::new(AdminToken::parse("0123456789abcdef").unwrap());
    let state = AppState::new(test_runtime.runtime.clone(), auth, TestRuntime::agent());
    let app = probe::init_service(App::new().configure(|cfg| configure(cfg, state))).await;
    for (path, method) in operations(&document()).into_keys() {
        let id = "0198c0de-0000-7000-8000-000000000001";
        let filled: Vec<_> =
            path.split('/').map(|part| if part.starts_with('{') { id } else { part }).collect();
        let request = probe::TestRequest::default()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(&filled.join("/"))
            .insert_header(("authorization", "Bearer 0123456789abcdef"))
            .insert_header(("host", "greenroom.test"))
            .insert_header(("origin", "http://greenroom.test"));
        let response = probe::call_service(&app, request.to_request()).await;
        // The document omits the pattern of a parameter that matches the rest of the path.
        let pattern = response.request().match_pattern().unwrap_or_default();
        assert_eq!(pattern.replace(":.+}", "}"), path, "{method}");
        assert_ne!(response.status(), 405, "{method} {path}");
    }
}

#[test]
fn operations_have_unique_id_summary_tag_and_responses() {
    let document = document();
    let mut names = BTreeSet::new();
    let tags: BTreeSet<_> = document["tags"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tag| tag["name"].clone())
        .map(|name| name.to_string())
        .collect();
    for ((path, method), operation) in operations(&document) {
        let name = operation["operationId"].as_str().unwrap().to_owned();
        assert!(names.insert(name), "{method} {path}: duplicate operation id");
        assert!(operation["summary"].as_str().is_some_and(|text| text.ends_with('.')), "{path}");
        assert!(tags.contains(&operation["tags"][0].to_string()), "{path}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.as_str() < "400"), "{method} {path}");
        for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
            let schema = &response["content"]["application/problem+json"]["schema"];
            assert!(schema["allOf"][1]["properties"]["code"]["enum"][0].is_string(), "{status}");
        }
    }
}

#[test]
fn references_are_resolvable_and_schema_names_are_unique() {
    let document = document();
    let known = document["components"]["schemas"].as_object().unwrap();
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let name = reference.strip_prefix("#/components/schemas/").unwrap();
                    assert!(known.contains_key(name), "{reference}");
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    let schemas_of_endpoints =
        endpoints().into_iter().flat_map(|(_, endpoint)| endpoint.describe().schemas);
    for (name, schema) in schemas_of_endpoints {
        let schema = json!(schema);
        let first = schemas.entry(name.clone()).or_insert_with(|| schema.clone());
        assert_eq!(*first, schema, "two different schemas are named {name}");
    }
}

/// Collects all schemas to which `schema` refers, directly or indirectly.
fn collect_references<'a>(
    schema: &'a Value,
    document: &'a Value,
    schemas: &mut BTreeMap<String, &'a Value>,
) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let referred = document.pointer(&reference[1..]).unwrap();
                if schemas.insert(reference.clone(), referred).is_none() {
                    collect_references(referred, document, schemas);
                }
            }
            members.values().for_each(|member| collect_references(member, document, schemas));
        }
        Value::Array(items) => {
            items.iter().for_each(|item| collect_references(item, document, schemas));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An unknown field must be rejected: it may be a misspelt limit or refusal.
#[test]
fn request_bodies_accept_only_documented_fields() {
    let document = document();
    let operations = operations(&document);
    let mut schemas = BTreeMap::new();
    for operation in operations.values() {
        collect_references(&operation["requestBody"], &document, &mut schemas);
    }
    assert!(schemas.len() > 10, "{:?}", schemas.keys());
    for (name, schema) in schemas {
        let open = schema["properties"].is_object() && schema["additionalProperties"] != false;
        assert!(!open, "{name} accepts undocumented fields: {schema}");
    }
}

#[test]
fn problem_codes_match_the_protocol_document() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/protocol.md");
    let text = std::fs::read_to_string(root).unwrap();
    let table = text.split("## Problems").nth(1).unwrap();
    let mut listed = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let Ok(status) = cells.next().unwrap().parse::<u16>() else { continue };
        // Names in parentheses are members, not codes.
        let mut codes = String::new();
        let mut depth = 0;
        for c in cells.next().unwrap().chars() {
            depth += i32::from(c == '(') - i32::from(c == ')');
            if depth == 0 {
                codes.push(c);
            }
        }
        let codes = codes.split('`').skip(1).step_by(2).map(|code| (code.to_owned(), status));
        listed.extend(codes);
    }
    let known = problem_codes::ALL.map(|(code, status)| (code.to_owned(), status));
    assert_eq!(listed, known.into_iter().collect());
}

#[test]
fn every_problem_code_is_documented_by_an_operation() {
    // The first belongs to no operation; the others occur only on WebSockets.
    let undocumented = [
        "method_not_allowed",
        "session_exists",
        "unknown_type",
        "too_many_subscriptions",
        "too_many_frames",
    ];
    let text = document().to_string();
    for (code, _) in problem_codes::ALL {
        let is_documented = text.contains(&format!("\"{code}\""));
        assert_eq!(is_documented, !undocumented.contains(&code), "{code}");
    }
}

/// Adds the names of all properties and parameters in `value`, with their schemas.
fn find_members<'a>(value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(members) => {
            if let Some(properties) = members.get("properties").and_then(Value::as_object) {
                found.extend(properties.iter().map(|(name, schema)| (name.clone(), schema)));
            }
            members.values().for_each(|member| find_members(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| find_members(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Redaction by key hides no member of our own responses, except secrets.
#[test]
fn e7_documented_members_are_not_hidden_unless_they_are_secrets() {
    let (document, redactor) = (document(), Redactor::default());
    let mut members = Vec::new();
    find_members(&document, &mut members);
    assert!(members.len() > 100, "{}", members.len());
    let is_hidden = |(name, schema): &(String, &Value)| {
        let is_count = json!(schema).to_string().contains("\"integer\"")
            || json!(schema).to_string().contains("\"number\"");
        let sample = if is_count { json!(1) } else { json!("text") };
        redactor.redact_value(json!({ name: sample }))[name] != sample
    };
    let hidden = members.iter().filter(|member| is_hidden(member)).map(|(name, _)| name.as_str());
    assert_eq!(hidden.collect::<BTreeSet<_>>(), SECRET_MEMBERS.into());
}

/// Members that contain a credential: of the request that signs a browser in.
const SECRET_MEMBERS: [&str; 1] = ["token"];
