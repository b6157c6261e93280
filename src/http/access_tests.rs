//! Tests of access rights over real sockets (X2, X6, G4, G12).

use super::{AppState, configure};
use crate::{
    audit::ChainHead,
    auth::{AdminToken, Authenticator, Role},
    store::{Store, StoreOptions, verify_audit},
};
use actix_web::{App, HttpServer, dev::ServerHandle};
use futures::StreamExt as _;
use greenroom_actors::testing::{
    FakeTools, ModelReply, ScriptedModel, TestRuntime, ToolScript, with_timeout,
};
use greenroom_core::{
    ids::SessionId,
    policy::{Autonomy, CriticalRule, Risk, Settings},
    session::SessionEvent,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

const TOKEN: &str = "0123456789abcdef";

/// A server with API keys and an audit log; sessions belong to `ada`.
struct AccessTestServer {
    runtime: TestRuntime,
    address: SocketAddr,
    server: ServerHandle,
    http: reqwest::Client,
    folder: TempDir,
}

impl AccessTestServer {
    async fn start(critical: CriticalRule) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let calls = [("wire", json!({"password": "hunter2"})), ("note", json!({}))];
        let model = ScriptedModel::with_handler(move |request| {
            let answered = request.messages.len() > 1;
            if answered { ModelReply::text("done") } else { ModelReply::with_calls(calls.clone()) }
        });
        let tools = FakeTools::new()
            .with_tool("wire", Risk::Critical, |_| ToolScript::new().finished("wired"))
            .with_tool("note", Risk::WriteHighRisk, |_| ToolScript::new().finished("noted"));
        let runtime = TestRuntime::builder().model(model).tools(tools);
        let runtime = runtime.governance(|governance| governance.critical = critical);
        let runtime = runtime.start().await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("green.db");
        let store = Arc::new(Store::open(&path, StoreOptions::default()).await.unwrap());
        let auth =
            Authenticator::new(AdminToken::parse(TOKEN).unwrap()).with_key_store(store.clone());
        let mut state = AppState::new(runtime.runtime.clone(), auth, TestRuntime::agent());
        state.audit_log = Some(store);
        let app = move || {
            let state = state.clone();
            App::new().configure(|cfg| configure(cfg, state))
        };
        let server = HttpServer::new(app).workers(1).disable_signals();
        let server = server.bind("127.0.0.1:0").unwrap();
        let address = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Self { runtime, address, server: handle, http: reqwest::Client::new(), folder }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("green.db")
    }

    fn request(&self, key: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("http://{}{path}", self.address)).bearer_auth(key)
    }

    async fn send_json(
        &self,
        key: &str,
        method: Method,
        path: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let request = self.request(key, method, path);
        let request = if body.is_null() { request } else { request.json(&body) };
        let response = with_timeout("a response", request.send()).await.unwrap();
        let status = response.status();
        (status, response.json().await.unwrap_or_default())
    }

    async fn get(&self, key: &str, path: &str) -> (StatusCode, Value) {
        self.send_json(key, Method::GET, path, Value::Null).await
    }

    async fn key(&self, user: &str, role: Role) -> (String, String) {
        let body = json!({"user_id": user, "role": role, "name": "a key"});
        let (status, key) = self.send_json(TOKEN, Method::POST, "/admin/keys", body).await;
        assert_eq!(status, StatusCode::CREATED, "{key}");
        let text = |field: &str| key[field].as_str().unwrap().to_owned();
        (text("key"), text("key_id"))
    }

    /// Creates a session of `ada` that waits for the approval of `wire` (critical) and `note`.
    async fn pending_approval(&self) -> (SessionId, Value) {
        let settings = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
        let session_id = self.runtime.create_session_with(settings).await;
        self.runtime.submit(session_id, "hi").await;
        let approval = self.runtime.wait_for(session_id, "the approval", |events| {
            events.iter().find_map(|record| {
                let SessionEvent::ApprovalRequested { approval } = &record.event else {
                    return None;
                };
                Some(json!(approval))
            })
        });
        (session_id, approval.await)
    }

    async fn audit(&self, query: &str) -> Vec<Value> {
        let (status, page) = self.get(TOKEN, &format!("/admin/audit{query}")).await;
        assert_eq!(status, 200, "{page}");
        page["rows"].as_array().unwrap().clone()
    }

    async fn stop(self) {
        self.server.stop(false).await;
    }
}

fn id(approval: &Value) -> &str {
    approval["approval_id"].as_str().unwrap()
}

#[actix_web::test]
async fn w5_policy_returns_verdicts_with_reasons() {
    let server = AccessTestServer::start(CriticalRule::default()).await;
    let (ada, _) = server.key("ada", Role::User).await;
    let (status, me) = server.get(&ada, "/agent/me").await;
    assert_eq!(
        (status.as_u16(), &me["user_id"], &me["role"]),
        (200, &json!("ada"), &json!("user"))
    );
    let (status, policy) = server.get(&ada, "/agent/policy").await;
    assert_eq!(status, 200, "{policy}");
    assert_eq!(policy["matrix"][1], json!(["allow", "allow", "ask", "deny"]));
    let verdicts = |name: &str| {
        let tools = policy["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        let levels = tool["levels"].as_array().unwrap();
        levels.iter().map(|level| level["verdict"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts("wire"), ["deny", "deny", "ask", "ask"]);
    assert_eq!(verdicts("note"), ["deny", "ask", "ask", "allow"]);
    let judge = async |call: Value| {
        let (status, verdict) = server.send_json(&ada, Method::POST, "/agent/judge", call).await;
        assert_eq!(status, 200, "{verdict}");
        verdict
    };
    let denied = judge(json!({"tool": "wire", "arguments": {}})).await;
    assert_eq!((&denied["verdict"], &denied["required_level"]), (&json!("deny"), &json!(2)));
    let ask = judge(json!({"tool": "wire", "autonomy_level": 2})).await;
    assert_eq!(ask["verdict"], "ask");
    let unknown = json!({"tool": "teleport"});
    let (status, problem) = server.send_json(&ada, Method::POST, "/agent/judge", unknown).await;
    assert_eq!((status.as_u16(), &problem["field"]), (422, &json!("tool")));
    server.stop().await;
}

#[actix_web::test]
async fn x2_role_limits_what_a_caller_reads() {
    let server = AccessTestServer::start(CriticalRule::default()).await;
    let (session_id, approval) = server.pending_approval().await;
    let (ada, _) = server.key("ada", Role::User).await;
    let (bob, _) = server.key("bob", Role::User).await;
    let (eve, _) = server.key("eve", Role::Approver).await;
    let (root, _) = server.key("root", Role::Admin).await;
    let session = format!("/agent/session/{session_id}");
    let events = format!("{session}/events");
    let approval_path = format!("/agent/approvals/{}", id(&approval));
    let settings = "/agent/settings?user_id=ada";
    for (path, expected) in [
        (session.as_str(), [200, 404, 404, 200]),
        (&events, [200, 404, 404, 200]),
        (&approval_path, [200, 404, 200, 200]),
        (settings, [200, 403, 403, 200]),
        ("/agent/settings", [200, 200, 200, 200]),
        ("/agent/tools", [200, 200, 200, 200]),
        ("/agent/session?user_id=ada", [200, 403, 403, 200]),
        ("/admin/actors", [403, 403, 403, 200]),
        ("/admin/actors/sessions", [403, 403, 403, 200]),
        ("/admin/keys", [403, 403, 403, 200]),
        ("/admin/audit", [403, 403, 403, 200]),
        ("/admin/events", [403, 403, 403, 200]),
        // Metrics are disabled here; a caller without the role gets 403 before that is checked.
        ("/metrics", [403, 403, 403, 404]),
    ] {
        for (key, expected) in [&ada, &bob, &eve, &root].into_iter().zip(expected) {
            let request = server.request(key, Method::GET, path).send();
            let response = with_timeout("a response", request).await.unwrap();
            assert_eq!(response.status(), expected, "{path}");
            if expected == 403 {
                let problem: Value = response.json().await.unwrap();
                assert_eq!(problem["code"], "forbidden", "{path}");
            }
        }
    }
    for (key, sessions, approvals) in [(&ada, 1, 1), (&bob, 0, 0), (&eve, 0, 1), (&root, 1, 1)] {
        let (_, listed) = server.get(key, "/agent/session").await;
        assert_eq!(listed["sessions"].as_array().unwrap().len(), sessions);
        let (_, listed) = server.get(key, "/agent/approvals?state=pending").await;
        assert_eq!(listed["approvals"].as_array().unwrap().len(), approvals);
    }
    server.stop().await;
}

#[actix_web::test]
async fn x2_role_limits_what_a_caller_changes() {
    let server = AccessTestServer::start(CriticalRule::default()).await;
    let (session_id, approval) = server.pending_approval().await;
    let (ada, _) = server.key("ada", Role::User).await;
    let (bob, _) = server.key("bob", Role::User).await;
    let (eve, _) = server.key("eve", Role::Approver).await;
    let session = format!("/agent/session/{session_id}");
    let approval_path = format!("/agent/approvals/{}", id(&approval));
    let key_body = json!({"user_id": "bob", "role": "admin"});
    let chat_body = json!({"session_id": session_id, "message": "hi"});
    let patch = json!({"autonomy_level": 3});
    let approve = json!({"decision": "approve"});
    for (method, path, body, expected) in [
        (Method::POST, "/agent/chat", &chat_body, [404, 404]),
        (Method::POST, &format!("{session}/cancel"), &json!({}), [404, 404]),
        (Method::DELETE, &session, &Value::Null, [404, 404]),
        (Method::PATCH, &format!("{session}/settings"), &json!({"title": "t"}), [404, 404]),
        (Method::PATCH, "/agent/settings?user_id=ada", &patch, [403, 403]),
        (Method::POST, "/agent/session", &json!({"user_id": "ada"}), [403, 403]),
        (Method::POST, "/admin/keys", &key_body, [403, 403]),
        (Method::POST, &approval_path, &approve, [404, 200]),
    ] {
        for (key, expected) in [&bob, &eve].into_iter().zip(expected) {
            let (status, response) =
                server.send_json(key, method.clone(), path, body.clone()).await;
            assert_eq!(status, expected, "{method} {path}: {response}");
        }
    }
    let (status, settings) = server.send_json(&ada, Method::PATCH, "/agent/settings", patch).await;
    assert_eq!((status, &settings["user_id"]), (StatusCode::OK, &json!("ada")));
    let (status, session) = server.send_json(&bob, Method::POST, "/agent/session", json!({})).await;
    assert_eq!((status, &session["user_id"]), (StatusCode::OK, &json!("bob")));
    server.stop().await;
}

#[actix_web::test]
async fn x2_key_is_shown_once_and_rejected_after_revocation() {
    let server = AccessTestServer::start(CriticalRule::default()).await;
    let session_id = server.runtime.create_session().await;
    let (ada, key_id) = server.key("ada", Role::User).await;
    let (_, listed) = server.get(TOKEN, "/admin/keys").await;
    assert_eq!(listed["keys"][0]["key_id"], key_id);
    assert!(!listed.to_string().contains(&ada), "the list contains no secret");
    let file = std::fs::read(format!("{}-wal", server.database().display())).unwrap();
    assert!(!file.windows(ada.len()).any(|bytes| bytes == ada.as_bytes()));

    let link = server.http.get(format!("http://{}/?token={ada}", server.address)).send();
    assert_eq!(link.await.unwrap().status(), 200, "a key also signs a browser in");
    let stream = format!("/agent/session/{session_id}/events");
    let stream = server.request(&ada, Method::GET, &stream).header("accept", "text/event-stream");
    let mut stream = stream.send().await.unwrap();
    let mut socket = format!("ws://{}/agent/stream", server.address).into_client_request().unwrap();
    socket.headers_mut().insert("authorization", format!("Bearer {ada}").parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(socket).await.unwrap();

    let path = format!("/admin/keys/{key_id}");
    for _ in 0..2 {
        let (status, revoked) = server.send_json(TOKEN, Method::DELETE, &path, Value::Null).await;
        assert_eq!(status, 200);
        assert!(revoked["revoked_at"].is_string());
    }
    let (status, problem) = server.get(&ada, "/agent/session").await;
    assert_eq!((status, &problem["code"]), (StatusCode::UNAUTHORIZED, &json!("unauthorized")));
    // An event of the session wakes the stream, which then ends without sending the event.
    server.runtime.submit(session_id, "later").await;
    let mut body = String::new();
    while let Some(bytes) = with_timeout("the end", stream.chunk()).await.unwrap() {
        body.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert!(!body.contains("later"), "{body}");
    let cancel = json!({"type": "cancel", "id": 1, "session_id": session_id}).to_string();
    let sent =
        futures::SinkExt::send(&mut socket, tokio_tungstenite::tungstenite::Message::text(cancel));
    drop(sent.await);
    while let Some(Ok(frame)) = with_timeout("the end", socket.next()).await {
        assert!(!frame.is_text(), "{frame}");
    }
    let unknown = "/admin/keys/0198c0de-0000-7000-8000-000000000001";
    let (status, problem) = server.send_json(TOKEN, Method::DELETE, unknown, Value::Null).await;
    assert_eq!((status, &problem["code"]), (StatusCode::NOT_FOUND, &json!("key_not_found")));
    let rows = server.audit("?action=key_revoked").await;
    assert_eq!(rows.len(), 1, "only the first request revoked the key");
    assert_eq!(rows[0]["details"]["key_id"], key_id);
    server.stop().await;
}

#[actix_web::test]
async fn g12_critical_step_requires_approver_other_than_owner() {
    let min_role = Some(Role::Approver);
    let server = AccessTestServer::start(CriticalRule { min_role, four_eyes: true }).await;
    let (_, approval) = server.pending_approval().await;
    let (ada, _) = server.key("ada", Role::User).await;
    let (ada_as_admin, _) = server.key("ada", Role::Admin).await;
    let (eve, eve_id) = server.key("eve", Role::Approver).await;
    let approval_path = format!("/agent/approvals/{}", id(&approval));
    let step = |index: usize| json!({"steps": [{"call_id": approval["steps"][index]["call_id"], "decision": "approve"}]});
    let overall = json!({"decision": "approve"});
    for (key, answer, code) in [
        (&ada, &overall, "approver_required"),
        (&ada, &step(0), "approver_required"),
        (&ada_as_admin, &overall, "four_eyes"),
        (&ada_as_admin, &step(0), "four_eyes"),
    ] {
        let (status, problem) =
            server.send_json(key, Method::POST, &approval_path, answer.clone()).await;
        assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!(code)), "{answer}");
        assert!(problem["detail"].as_str().unwrap().contains("`wire` is critical"), "{problem}");
    }
    let execute = json!({"session_id": "x", "plan_id": id(&approval)});
    let (_, view) = server.get(&ada, &approval_path).await;
    let execute = json!({"session_id": view["session_id"], "plan_id": execute["plan_id"]});
    let (status, _) = server.send_json(&ada, Method::POST, "/agent/execute", execute).await;
    assert_eq!(status, 403, "`execute` is subject to the same rule");
    assert_eq!(approve_over_websocket(&server, &ada, id(&approval)).await, "approver_required");
    assert_eq!(view["decisions"], json!([]), "no step is decided");

    let (status, decided) = server.send_json(&ada, Method::POST, &approval_path, step(1)).await;
    assert_eq!((status, &decided["closed"]), (StatusCode::OK, &json!(false)), "not critical");
    let (status, decided) = server.send_json(&eve, Method::POST, &approval_path, step(0)).await;
    assert_eq!((status, &decided["closed"]), (StatusCode::OK, &json!(true)));

    let rows = server.audit("?action=approval_answered").await;
    let answers: Vec<_> = rows.iter().map(|row| (&row["user"], &row["outcome"])).collect();
    let (ada, eve) = (json!("ada"), json!("eve"));
    let (refused, accepted) = (json!("refused"), json!("accepted"));
    let mut expected = vec![(&ada, &refused); 6];
    expected.extend([(&ada, &accepted), (&eve, &accepted)]);
    assert_eq!(answers, expected);
    let last = server.audit("?user=eve").await.pop().unwrap();
    let actor = [&last["role"], &last["signed_in_by"], &last["surface"]];
    assert_eq!(actor, [&json!("approver"), &json!(format!("key:{eve_id}")), &json!("rest")]);
    server.stop().await;
}

/// Approves the whole plan over a WebSocket and returns the code of the error.
async fn approve_over_websocket(server: &AccessTestServer, key: &str, approval_id: &str) -> String {
    let url = format!("ws://{}/agent/stream", server.address);
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let decide =
        json!({"type": "decide", "id": 1, "approval_id": approval_id, "decision": "approve"});
    let frame = tokio_tungstenite::tungstenite::Message::text(decide.to_string());
    futures::SinkExt::send(&mut socket, frame).await.unwrap();
    loop {
        let frame = with_timeout("the response", socket.next()).await.unwrap().unwrap();
        let Ok(text) = frame.to_text() else { continue };
        let Ok(frame) = serde_json::from_str::<Value>(text) else { continue };
        if frame["id"] == 1 {
            return frame["code"].as_str().unwrap_or_default().to_owned();
        }
    }
}

#[actix_web::test]
async fn g12_owner_approves_without_a_rule_and_may_always_reject() {
    for (critical, answer) in [
        (CriticalRule::default(), "approve"),
        (CriticalRule { min_role: Some(Role::Admin), four_eyes: true }, "reject"),
    ] {
        let server = AccessTestServer::start(critical).await;
        let (_, approval) = server.pending_approval().await;
        let (ada, _) = server.key("ada", Role::User).await;
        let approval_path = format!("/agent/approvals/{}", id(&approval));
        let answer = json!({"decision": answer});
        let (status, decided) = server.send_json(&ada, Method::POST, &approval_path, answer).await;
        assert_eq!((status, &decided["closed"]), (StatusCode::OK, &json!(true)));
        server.stop().await;
    }
}

#[actix_web::test]
async fn x6_changes_are_audited_and_the_export_verifies() {
    let server = AccessTestServer::start(CriticalRule::default()).await;
    let (ada, key_id) = server.key("ada", Role::User).await;
    let patch = json!({"autonomy_level": 2});
    server.send_json(&ada, Method::PATCH, "/agent/settings", patch.clone()).await;
    server.send_json(TOKEN, Method::PATCH, "/agent/settings?user_id=ada", patch).await;
    let rows = server.audit("").await;
    let summary = |row: &Value| json!([row["n"], row["action"], row["user"], row["signed_in_by"]]);
    let summaries: Vec<_> = rows.iter().map(summary).collect();
    assert_eq!(
        json!(summaries),
        json!([
            [1, "key_created", "admin", "admin_token"],
            [2, "user_settings_changed", "ada", format!("key:{key_id}")],
            [3, "user_settings_changed", "admin", "admin_token"],
        ])
    );
    let (_, page) = server.get(TOKEN, "/admin/audit?limit=2").await;
    assert_eq!((page["rows"].as_array().unwrap().len(), &page["next"]), (2, &json!(2)));
    let (_, page) = server.get(TOKEN, "/admin/audit?limit=2&after=2").await;
    assert_eq!((&page["rows"][0]["n"], &page["next"]), (&json!(3), &Value::Null));
    let (_, page) = server.get(TOKEN, "/admin/audit?order=newest&limit=2").await;
    assert_eq!((&page["rows"][0]["n"], &page["next"]), (&json!(3), &json!(2)));
    let (_, page) = server.get(TOKEN, "/admin/audit?order=newest&limit=2&before=2").await;
    assert_eq!((&page["rows"][0]["n"], &page["next"]), (&json!(1), &Value::Null));
    for invalid in ["action=nonsense", "format=csv", "limit=0", "session_id=x", "order=best"] {
        let (status, _) = server.get(TOKEN, &format!("/admin/audit?{invalid}")).await;
        assert_eq!(status, 400, "{invalid}");
    }

    let lines = server.request(TOKEN, Method::GET, "/admin/audit");
    let lines = lines.header("accept", "application/jsonl").send().await.unwrap();
    assert_eq!(lines.headers()["content-type"], "application/jsonl");
    let lines = lines.text().await.unwrap();
    let exported: Vec<Value> =
        lines.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let second = server.request(TOKEN, Method::GET, "/admin/audit?format=jsonl&after=1&limit=1");
    let second = second.send().await.unwrap().text().await.unwrap();
    assert_eq!(second.lines().collect::<Vec<_>>(), [lines.lines().nth(1).unwrap()]);
    let reversed = server.request(TOKEN, Method::GET, "/admin/audit?format=jsonl&order=newest");
    let reversed = reversed.send().await.unwrap().text().await.unwrap();
    assert!(reversed.lines().rev().eq(lines.lines()));
    // The exported rows are those of the chain. The verification runs beside the server.
    let head = verify_audit(&server.database(), None).await.unwrap();
    let last = exported.last().unwrap();
    let hash = serde_json::from_value(last["hash"].clone()).unwrap();
    assert_eq!(head, ChainHead { n: last["n"].as_u64().unwrap(), hash });
    server.stop().await;
}
