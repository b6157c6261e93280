//! Checks the server's responses against `/openapi.json`: responses of every operation, and of
//! generated requests (schemathesis).

use crate::harness::{ApiResponse, TOKEN, TestServer, TestServerBuilder, send};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};
use tokio::process::Command;

/// The document and the ids of its operations that a test has called.
struct Document {
    content: Value,
    called_operations: BTreeSet<String>,
}

impl Document {
    async fn fetch(server: &TestServer) -> Self {
        let response = send(server.request_without_token(Method::GET, "/openapi.json")).await;
        Self { content: response.expect_ok(), called_operations: BTreeSet::new() }
    }

    /// Returns the most specific path template of the document that matches `path`.
    fn path_template(&self, path: &str) -> String {
        let path = path.split('?').next().unwrap();
        let parts: Vec<_> = path.split('/').collect();
        let matches = |template: &str| {
            let blanks: Vec<_> = template.split('/').collect();
            // An actor's path consists of several segments.
            let same = match blanks.iter().position(|part| *part == "{path}") {
                None => blanks.len() == parts.len(),
                Some(index) => {
                    parts.len() >= blanks.len() && path.ends_with(&blanks[index + 1..].join("/"))
                }
            };
            same && blanks.iter().zip(&parts).all(|(blank, part)| {
                blank.starts_with('{') || blank == part || template.contains("{path}")
            }) && path.starts_with(template.split('{').next().unwrap())
        };
        let templates = self.content["paths"].as_object().unwrap().keys();
        let templates = templates.filter(|template| matches(template));
        let best = templates.min_by_key(|template| {
            (template.matches('{').count(), std::cmp::Reverse(template.len()))
        });
        best.unwrap_or_else(|| panic!("{path}")).clone()
    }

    /// Checks status, content type and body of a response against the document.
    fn check(&mut self, method: &Method, path: &str, response: &ApiResponse) {
        let template = self.path_template(path);
        let operation = &self.content["paths"][&template][method.as_str().to_lowercase()];
        let name =
            operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {template}"));
        let status = response.status.as_u16().to_string();
        let documented = &operation["responses"][&status];
        assert!(documented.is_object(), "{name} does not document {status}: {}", response.body);
        self.called_operations.insert(name.to_owned());
        let Some(contents) = documented["content"].as_object() else {
            assert_eq!(response.body, Value::Null, "{name} {status}");
            return;
        };
        let kind = response.headers["content-type"].to_str().unwrap();
        let kind = kind.split(';').next().unwrap();
        let content = contents.get(kind).or_else(|| contents.get("*/*"));
        let content = content.unwrap_or_else(|| panic!("{name} {status} does not document {kind}"));
        if !kind.ends_with("json") {
            return;
        }
        let schema =
            json!({"components": self.content["components"], "allOf": [content["schema"]]});
        let schema = jsonschema::draft202012::new(&schema).unwrap();
        let errors: Vec<_> = schema
            .iter_errors(&response.body)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name} {status}: {errors:#?}\n{}", response.body);
    }

    async fn send(
        &mut self,
        server: &TestServer,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> ApiResponse {
        let request = server.request(method.clone(), path);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let response = send(request).await;
        self.check(&method, path, &response);
        response
    }

    async fn get(&mut self, server: &TestServer, path: &str) -> Value {
        let response = self.send(server, Method::GET, path, None).await;
        assert!(response.status.is_success(), "{path}: {}", response.body);
        response.body
    }

    async fn post(&mut self, server: &TestServer, path: &str, body: Value) -> Value {
        let response = self.send(server, Method::POST, path, Some(body)).await;
        assert!(response.status.is_success(), "{path}: {}", response.body);
        response.body
    }

    async fn expect_error(
        &mut self,
        server: &TestServer,
        path: &str,
        body: Option<Value>,
        code: &str,
    ) {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let response = self.send(server, method, path, body).await;
        assert_eq!(response.body["code"], code, "{path}");
    }
}

#[actix_web::test]
async fn every_operation_conforms_to_the_openapi_document() {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let mut document = Document::fetch(&server).await;
    let doc = &mut document;
    doc.get(&server, "/openapi.json").await;
    doc.get(&server, "/healthz").await;
    doc.get(&server, "/readyz").await;
    doc.get(&server, "/agent/me").await;
    doc.get(&server, "/agent/tools").await;
    doc.get(&server, "/agent/workflows").await;
    doc.get(&server, "/agent/resources").await;
    doc.get(&server, "/agent/policy").await;
    doc.get(&server, "/agent/settings").await;
    let settings = json!({"autonomy_level": 2, "budget_limit": 5, "allowed_regions": null});
    let changed = doc.send(&server, Method::PATCH, "/agent/settings", Some(settings)).await;
    assert_eq!(changed.status, 200);
    doc.expect_error(&server, "/agent/settings?user_id=", None, "invalid_id").await;
    let call = json!({"tool": "create_shopping_list", "arguments": {"name": "a"}});
    doc.post(&server, "/agent/judge", call).await;
    doc.expect_error(&server, "/agent/judge", Some(json!({"tool": "nothing"})), "invalid_request")
        .await;

    // A session, its messages, and an approval.
    let created =
        doc.post(&server, "/agent/session", json!({"title": "t", "autonomy_level": 1})).await;
    let session = created["session_id"].as_str().unwrap().to_owned();
    let session_path = |rest: &str| format!("/agent/session/{session}{rest}");
    doc.expect_error(&server, "/agent/session", Some(json!({"agent": "nobody"})), "unknown_agent")
        .await;
    let message = json!({"session_id": session, "message": "Stock up"});
    let paused = doc.post(&server, "/agent/chat", message).await;
    assert_eq!(paused["outcome"], "waiting_for_approval");
    let plan = paused["plan_id"].as_str().unwrap();
    let queued = json!({"session_id": session, "message": "And then", "message_id": "m-2"});
    drop(server.chat_with(queued).await);
    let queued = doc.get(&server, &session_path("/queue")).await;
    assert_eq!(queued["queued"][0]["message_id"], "m-2");
    let (path, change) = (session_path("/queue/m-2"), json!({"message": "And less"}));
    for (method, body) in [(Method::PATCH, Some(change)), (Method::DELETE, None)] {
        let response = doc.send(&server, method, &path, body).await;
        assert_eq!(response.status, 200, "{}", response.body);
    }
    doc.get(&server, "/agent/approvals?state=pending").await;
    doc.get(&server, &format!("/agent/approvals/{plan}")).await;
    let call_id = &paused["plan"]["steps"][0]["call_id"];
    let step = json!({"steps": [{"call_id": call_id, "decision": "approve"}], "for_session": {}});
    doc.post(&server, &format!("/agent/approvals/{plan}"), step).await;
    let whole = json!({"session_id": session, "plan_id": plan, "reason": "enough"});
    doc.post(&server, "/agent/reject", whole.clone()).await;
    doc.expect_error(&server, "/agent/execute", Some(whole), "already_decided").await;
    server.wait_for_event(&session, "done").await;
    doc.get(&server, &session_path("")).await;
    doc.get(&server, "/agent/session?limit=1").await;
    doc.get(&server, &session_path("/events?limit=500")).await;
    doc.get(&server, &session_path("/events?limit=500&dialect=task")).await;
    let messages = doc.get(&server, &session_path("/messages")).await;
    doc.get(&server, &session_path("/context")).await;
    doc.get(&server, &session_path("/grants")).await;
    let mut messages = messages["messages"].as_array().unwrap().iter().rev();
    let message = messages.find(|message| message["role"] == "assistant").unwrap();
    let rated = json!({"session_id": session, "message_id": message["message_id"], "rating": 4});
    doc.post(&server, "/agent/feedback", rated).await;
    doc.get(&server, "/agent/statistics").await;
    doc.get(&server, "/agent/export").await;
    doc.expect_error(&server, &session_path("/cancel"), Some(json!({})), "no_run").await;
    let fork = doc.post(&server, &session_path("/fork"), json!({})).await;
    let fork = format!("/agent/session/{}", fork["session_id"].as_str().unwrap());
    doc.get(&server, &format!("{fork}/messages")).await;
    let patch = Some(json!({"title": null, "autonomy_level": 0}));
    doc.send(&server, Method::PATCH, &format!("{fork}/settings"), patch).await;
    for (path, status) in [
        (session_path("/grants"), 204),
        (session_path("/grants/0198c0de-0000-7000-8000-000000000001"), 404),
        (session_path(""), 200),
        (format!("{fork}?purge=true"), 200),
        (fork, 404),
    ] {
        let response = doc.send(&server, Method::DELETE, &path, None).await;
        assert_eq!(response.status, status, "{path}: {}", response.body);
    }

    // Operations for administrators and operators.
    let actors = doc.get(&server, "/admin/actors").await;
    let tools = actors["actors"].as_array().unwrap().iter();
    let path = tools
        .map(|actor| actor["path"].as_str().unwrap())
        .find(|path| path.starts_with("/tools/"))
        .unwrap();
    doc.get(&server, &format!("/admin/actors{path}")).await;
    doc.post(&server, &format!("/admin/actors{path}/restart"), json!({})).await;
    doc.expect_error(&server, "/admin/actors/nobody/stop", Some(json!({})), "actor_not_found")
        .await;
    let key = doc.post(&server, "/admin/keys", json!({"user_id": "ann", "role": "user"})).await;
    doc.get(&server, "/admin/keys").await;
    let ceilings = doc.get(&server, "/admin/ceilings").await;
    let change = json!({"version": ceilings["version"], "ceilings": {"users": {"eve": {}}}});
    doc.send(&server, Method::PUT, "/admin/ceilings", Some(change.clone())).await;
    let conflict = doc.send(&server, Method::PUT, "/admin/ceilings", Some(change)).await;
    assert_eq!(conflict.body["code"], "version_conflict");
    let key = format!("/admin/keys/{}", key["key_id"].as_str().unwrap());
    doc.send(&server, Method::DELETE, &key, None).await;
    doc.get(&server, "/admin/audit").await;
    doc.get(&server, "/admin/audit?format=jsonl").await;
    doc.get(&server, "/metrics").await;
    doc.get(&server, "/docs").await;
    doc.get(&server, "/docs/start.js").await;
    doc.get(&server, "/").await;
    doc.expect_error(&server, "/sign-in", Some(json!({"token": TOKEN})), "origin_forbidden").await;
    doc.expect_error(&server, "/assets/nothing.js", None, "not_found").await;
    doc.expect_error(&server, "/gateway", None, "websocket_required").await;
    doc.expect_error(&server, "/agent/stream", None, "websocket_required").await;
    doc.expect_error(&server, &format!("/agent/stream/{session}"), None, "websocket_required")
        .await;

    let missing: Vec<_> = operation_ids(&document.content)
        .filter(|name| !STREAMS.contains(name) && !document.called_operations.contains(*name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "this test calls every operation");
}

/// Returns the ids of all operations.
fn operation_ids(document: &Value) -> impl Iterator<Item = &str> {
    let items = document["paths"].as_object().unwrap().values();
    let operations = items.flat_map(|item| item.as_object().unwrap().values());
    operations.map(|operation| operation["operationId"].as_str().unwrap())
}

#[actix_web::test]
async fn openapi_pages_are_public_and_load_no_foreign_content() {
    let server = TestServerBuilder::tour(ProviderProtocol::OpenAi).start().await;
    for (path, kind) in [
        ("/docs", "text/html; charset=utf-8"),
        ("/docs/start.js", "text/javascript; charset=utf-8"),
        ("/docs/swagger-ui.css", "text/css"),
        ("/docs/swagger-ui-bundle.js", "text/javascript"),
        ("/openapi.json", "application/json"),
    ] {
        let response = send(server.request_without_token(Method::GET, path)).await;
        assert_eq!(
            (response.status.as_u16(), &response.headers["content-type"]),
            (200, &kind.parse().unwrap())
        );
        if path != "/openapi.json" {
            let policy = response.headers["content-security-policy"].to_str().unwrap();
            assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
            assert_eq!(response.headers["x-content-type-options"], "nosniff");
        }
        assert!(!response.body.to_string().contains(TOKEN));
    }
    // Only files that the page needs are served.
    for path in ["/docs/index.html", "/docs/swagger-initializer.js", "/docs/..%2f..%2fCargo.toml"] {
        send(server.request_without_token(Method::GET, path))
            .await
            .expect_problem(404, "not_found");
    }
}

/// Maximum number of random examples per operation, beside the bounds of every schema.
const EXAMPLES: &str = "20";
/// The checks that every response must pass.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance";
/// Operations that answer only with streams, which may never end.
const STREAMS: [&str; 2] = ["all_events", "chat_stream"];

/// Sends thousands of valid and almost valid requests. Operations that answer with JSON or a stream
/// are requested as JSON.
#[actix_web::test]
async fn generated_requests_conform_to_the_openapi_document() {
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-deps/venv/bin/schemathesis");
    assert!(program.exists(), "{} is missing: run scripts/test-deps.sh", program.display());
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(1).await;
    let message = json!({"session_id": session, "message": "Stock up"});
    let paused = server.post("/agent/chat", message).await;
    let plan = paused.body["plan_id"].as_str().unwrap();
    // Most requests use this session and its approval; `close_session` uses another session.
    let other = server.create_session_at(1).await;
    let configuration = format!(
        "[parameters]\nsession_id = '{session}'\napproval_id = '{plan}'\n\
         [[operations]]\ninclude-operation-id = 'close_session'\n\
         parameters = {{ session_id = '{other}' }}\n"
    );
    let file = server.folder().join("schemathesis.toml");
    std::fs::write(&file, configuration).unwrap();
    let mut run = Command::new(program);
    run.arg("--config-file").arg(file).arg("run").arg(format!("{}/openapi.json", server.url()));
    run.args(["--header", &format!("Authorization: Bearer {TOKEN}"), "--checks", CHECKS]);
    run.args(["--phases", "coverage,fuzzing", "--max-examples", EXAMPLES, "--seed", "1"]);
    run.args(["--request-timeout", "20", "--continue-on-failure", "--no-color"]);
    for name in STREAMS {
        run.args(["--exclude-operation-id", name]);
    }
    let run = run.current_dir(server.folder()).kill_on_drop(true).output().await.unwrap();
    let stdout = String::from_utf8_lossy(&run.stdout);
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("Tested: "), "{stdout}{stderr}");
}
