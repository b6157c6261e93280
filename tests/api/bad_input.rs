//! Invalid requests: each gets a problem document with a stable code, and the session stays usable.

use crate::{
    harness::{TOKEN, TestServer, TestServerBuilder, send},
    scripts::{STALLS_ONCE, STORY},
    stream::last_message_text,
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const UNKNOWN_ID: &str = "0198c0de-0000-7000-8000-000000000001";

async fn assert_usable(server: &TestServer, session: &str) {
    assert_eq!(last_message_text(&server.chat_to_end(session, "again").await), "Here I am.");
}

#[actix_web::test]
async fn invalid_bodies_are_rejected() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let stream = "/agent/chat/stream";
    let long = "x".repeat(256 * 1024 + 1);
    let chat = |message: &str| json!({"session_id": session, "message": message});
    let with = |key: &str, value: Value| {
        let mut body = chat("again");
        body[key] = value;
        body
    };
    for (path, body, status, code) in [
        (stream, json!([]), 422, "invalid_request"),
        (stream, json!({}), 422, "invalid_request"),
        (stream, json!({"session_id": UNKNOWN_ID, "message": "hi"}), 404, "session_not_found"),
        (stream, json!({"session_id": "nonsense", "message": "hi"}), 422, "invalid_request"),
        (stream, json!({"session_id": session, "message": 5}), 422, "invalid_request"),
        (stream, chat(""), 422, "invalid_request"),
        (stream, chat(" \n\t "), 422, "invalid_request"),
        (stream, chat(&long), 413, "message_too_large"),
        (stream, with("on_busy", json!("explode")), 422, "invalid_request"),
        (stream, with("until", json!("never")), 422, "invalid_request"),
        (stream, with("message_id", json!("")), 422, "invalid_request"),
        (stream, with("message_id", json!("m".repeat(129))), 422, "invalid_request"),
        (stream, with("preflight", json!("yes")), 422, "invalid_request"),
        (stream, with("workflow", json!({"name": "x"})), 422, "unknown_workflow"),
        (stream, with("workflow", json!({"inputs": {}})), 422, "invalid_request"),
        (stream, with("workflow", json!({"name": "x", "input": {}})), 422, "invalid_request"),
        // A session of another user.
        (stream, with("character_id", json!(99)), 404, "session_not_found"),
        ("/agent/chat", with("user_id", json!("somebody")), 404, "session_not_found"),
        ("/agent/chat", with("autonomy_level", json!(1)), 422, "invalid_request"),
        ("/agent/chat", json!({"message": ""}), 422, "invalid_request"),
        ("/agent/chat", json!(["hi"]), 422, "invalid_request"),
        ("/agent/chat", json!({"workflow": {"name": "x"}}), 422, "unknown_workflow"),
        // A repetition would run in another new session (S5).
        ("/agent/chat", json!({"message": "hi", "message_id": "m"}), 422, "invalid_request"),
        ("/agent/session", json!({"autonomy_level": 7}), 422, "invalid_request"),
        ("/agent/session", json!({"autonomy_level": -1}), 422, "invalid_request"),
        ("/agent/session", json!({"autonomy_level": 1.5}), 422, "invalid_request"),
        ("/agent/session", json!({"autonomy_level": "1"}), 422, "invalid_request"),
        ("/agent/session", json!({"agent": "nobody"}), 422, "unknown_agent"),
        ("/agent/session", json!({"title": "x".repeat(201)}), 422, "invalid_request"),
        ("/agent/session", json!({"character_id": true}), 422, "invalid_request"),
        ("/agent/execute", json!({"session_id": session}), 422, "invalid_request"),
        (
            "/agent/execute",
            json!({"session_id": session, "plan_id": UNKNOWN_ID}),
            404,
            "approval_not_found",
        ),
        ("/agent/reject", json!({"session_id": session, "plan_id": 5}), 422, "invalid_request"),
    ] {
        let response = server.post(path, body.clone()).await;
        let request_text = body.to_string();
        let request_text = &request_text[..request_text.len().min(200)];
        assert_eq!(response.body["code"], code, "{path} {request_text}: {}", response.body);
        let problem = response.expect_problem(status, code);
        assert!(!problem["detail"].as_str().unwrap().contains("panicked"));
    }
    assert_usable(&server, &session).await;
    let sessions = server.get("/agent/session").await.expect_ok();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "no session was created");
}

#[actix_web::test]
async fn unknown_fields_are_rejected_and_named() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let session_path = |path: &str| format!("/agent/session/{session}/{path}");
    let message = |field: &str| json!({"session_id": session, "message": "hi", field: 0});
    let plan = |field: &str| json!({"session_id": session, "plan_id": UNKNOWN_ID, field: 0});
    let step = json!({"decision": "approve", "steps": [{"call_id": UNKNOWN_ID, "argumnets": {}}]});
    for (path, body, field) in [
        ("/agent/session".to_owned(), json!({"autonmy_level": 0}), "autonmy_level"),
        ("/agent/session".to_owned(), json!({"preflite": true}), "preflite"),
        ("/agent/session".to_owned(), json!({"settings": {"autonomy": 0}}), "settings.autonomy"),
        ("/agent/chat".to_owned(), json!({"message": "hi", "autonomy_levl": 0}), "autonomy_levl"),
        ("/agent/chat/stream".to_owned(), message("on_bussy"), "on_bussy"),
        (format!("/agent/approvals/{UNKNOWN_ID}"), json!({"decison": "reject"}), "decison"),
        (format!("/agent/approvals/{UNKNOWN_ID}"), step, "steps[0].argumnets"),
        ("/agent/execute".to_owned(), plan("steps"), "steps"),
        ("/agent/reject".to_owned(), plan("why"), "why"),
        (session_path("fork"), json!({"at": 1}), "at"),
        (session_path("cancel"), json!({"run": UNKNOWN_ID}), "run"),
        ("/agent/feedback".to_owned(), json!({"session_id": session, "stars": 1}), "stars"),
        ("/agent/judge".to_owned(), json!({"tool": "find", "args": {}}), "args"),
        ("/admin/keys".to_owned(), json!({"user_id": "u", "role": "user", "roles": []}), "roles"),
    ] {
        let refused = server.post(&path, body.clone()).await.expect_problem(422, "invalid_request");
        assert_eq!(refused["field"], field, "{path} {body}: {refused}");
    }
    assert_usable(&server, &session).await;
    let sessions = server.get("/agent/session").await.expect_ok();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "no session was created");
}

#[actix_web::test]
async fn malformed_requests_are_rejected() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let post = |path: &str| server.request(Method::POST, path);
    let json_type = ("content-type", "application/json");
    let malformed =
        post("/agent/chat/stream").header(json_type.0, json_type.1).body("{\"session_id\": ");
    let problem = send(malformed).await.expect_problem(400, "malformed_json");
    assert_eq!(problem["line"], 1);
    let deep = "[".repeat(100_000);
    let deep = post("/agent/session").header(json_type.0, json_type.1).body(deep);
    send(deep).await.expect_problem(400, "malformed_json");
    let form = post("/agent/session").header("content-type", "text/plain").body("hello");
    send(form).await.expect_problem(415, "unsupported_media_type");
    let large = json!({"message": "x".repeat(1024 * 1024)}).to_string();
    let large = post("/agent/chat").header(json_type.0, json_type.1).body(large);
    send(large).await.expect_problem(413, "body_too_large");

    let events = format!("/agent/session/{session}/events");
    for (path, status, code) in [
        (format!("{events}?after=nonsense"), 400, "cursor_invalid"),
        (format!("{events}?after=-1"), 400, "cursor_invalid"),
        (format!("{events}?after=1.5"), 400, "cursor_invalid"),
        (format!("{events}?after=99999"), 409, "cursor_ahead"),
        (format!("{events}?limit=0"), 400, "invalid_query"),
        (format!("{events}?limit=many"), 400, "invalid_query"),
        (format!("{events}?dialect=klingon"), 400, "unknown_dialect"),
        (format!("/agent/session/{UNKNOWN_ID}"), 404, "session_not_found"),
        (format!("/agent/session/{UNKNOWN_ID}/events"), 404, "session_not_found"),
        ("/agent/session/nonsense".to_owned(), 400, "invalid_id"),
        ("/agent/policy?agent=nobody".to_owned(), 422, "unknown_agent"),
        (format!("/agent/approvals/{UNKNOWN_ID}"), 404, "approval_not_found"),
        ("/agent/approvals?state=maybe".to_owned(), 400, "invalid_query"),
        ("/agent/nothing".to_owned(), 404, "not_found"),
        ("/agent/chat".to_owned(), 405, "method_not_allowed"),
        ("/admin/actors/nobody/here".to_owned(), 404, "actor_not_found"),
        (format!("/agent/stream/{session}"), 400, "websocket_required"),
    ] {
        let response = server.get(&path).await;
        assert_eq!(response.body["code"], code, "{path}: {}", response.body);
        response.expect_problem(status, code);
    }
    for limit in ["0", "-1", "many"] {
        let response = server.get(&format!("{events}?limit={limit}")).await;
        assert_eq!(response.expect_problem(400, "invalid_query")["field"], "limit", "{limit}");
    }
    let wrong = server.delete("/agent/chat").await;
    assert!(wrong.headers.contains_key("allow"));
    wrong.expect_problem(405, "method_not_allowed");
    let resumed = server.request(Method::GET, &events).header("last-event-id", "??");
    send(resumed).await.expect_problem(400, "cursor_invalid");
    assert_usable(&server, &session).await;
}

#[actix_web::test]
async fn x1_x3_requests_require_authentication_and_own_origin() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    for path in ["/agent/session", "/agent/tools", "/admin/actors", "/metrics", "/agent/nothing"] {
        let response = send(server.request_without_token(Method::GET, path)).await;
        assert!(response.headers.contains_key("www-authenticate"), "{path}");
        response.expect_problem(401, "unauthorized");
        let wrong = server.request_without_token(Method::GET, path).bearer_auth("guess");
        send(wrong).await.expect_problem(401, "unauthorized");
    }
    let foreign =
        server.request(Method::POST, "/agent/session").header("origin", "http://evil.test");
    send(foreign.json(&json!({}))).await.expect_problem(403, "origin_forbidden");
    let own_origin_request =
        server.request(Method::POST, "/agent/session").header("origin", server.url());
    send(own_origin_request.json(&json!({}))).await.expect_ok();
    // The sign-in link sets a cookie; requests with the cookie need the page's own origin.
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    let link = client.unwrap().get(format!("{}/?token={TOKEN}", server.url()));
    let link = link.send().await.unwrap();
    let cookie = link.headers()["set-cookie"].to_str().unwrap().to_owned();
    // An outdated link: API clients get a problem document, browsers get the page with its form.
    let outdated = || server.request_without_token(Method::GET, "/?token=old");
    send(outdated()).await.expect_problem(401, "unauthorized");
    let page = outdated().header("accept", "text/html,*/*;q=0.8").send().await.unwrap();
    assert_eq!(page.status(), 401);
    assert!(page.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    for attribute in ["HttpOnly", "SameSite=Strict"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains(TOKEN), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let read = server.request_without_token(Method::GET, "/agent/session").header("cookie", pair);
    send(read).await.expect_ok();
    let write =
        || server.request_without_token(Method::POST, "/agent/session").header("cookie", pair);
    send(write().json(&json!({}))).await.expect_problem(403, "origin_forbidden");
    send(write().header("origin", server.url()).json(&json!({}))).await.expect_ok();
    // The page's sign-in form: the URL contains no secret, and other origins are rejected.
    let sign_in = |token: &str| {
        server.request_without_token(Method::POST, "/sign-in").json(&json!({"token": token}))
    };
    send(sign_in(TOKEN)).await.expect_problem(403, "origin_forbidden");
    let foreign = sign_in(TOKEN).header("origin", "http://evil.test");
    send(foreign).await.expect_problem(403, "origin_forbidden");
    let wrong = send(sign_in("guess").header("origin", server.url())).await;
    assert!(!wrong.headers.contains_key("set-cookie"));
    wrong.expect_problem(401, "unauthorized");
    let empty =
        server.request_without_token(Method::POST, "/sign-in").header("origin", server.url());
    send(empty).await.expect_problem(422, "invalid_request");
    let signed_in = send(sign_in(&format!(" {TOKEN}\n")).header("origin", server.url())).await;
    assert_eq!(signed_in.status, 204);
    let form_cookie = signed_in.headers["set-cookie"].to_str().unwrap();
    let (form_cookie, attributes) = form_cookie.split_once(';').unwrap();
    assert_eq!(attributes, cookie.split_once(';').unwrap().1, "the same as the link's");
    let read =
        server.request_without_token(Method::GET, "/agent/session").header("cookie", form_cookie);
    send(read).await.expect_ok();
    assert_eq!(send(server.request_without_token(Method::GET, "/healthz")).await.status, 200);
    assert_eq!(send(server.request_without_token(Method::GET, "/readyz")).await.status, 200);
    assert_usable(&server, &session).await;
}

#[actix_web::test]
async fn malformed_request_heads_return_400_and_log_no_error() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let host = server.url().replace("http://", "");
    for head in
        ["nonsense\r\n\r\n", "GET / HTTP/1.1\r\nx\u{0}: 1\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"]
    {
        let mut socket = TcpStream::connect(&host).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    assert_usable(&server, &session).await;
    let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
    assert!(!log.contains("ERROR"), "{log}");
}

#[actix_web::test]
async fn e3_cursor_inside_a_character_or_beyond_the_text_is_rejected() {
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STORY).start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "story").await;
    let opened = frames.iter().find(|frame| frame.kind() == "message_started").unwrap();
    let seq = &opened.data["seq"];
    // In "Zoë", the third character consists of bytes 2 and 3.
    let path_at = |offset: u64| format!("/agent/session/{session}/events?after={seq}.{offset}");
    for offset in [0, 1, 2, 4] {
        server.get(&path_at(offset)).await.expect_ok();
    }
    server.get(&path_at(3)).await.expect_problem(400, "cursor_invalid");
    server.get(&path_at(1_000_000)).await.expect_problem(409, "cursor_ahead");
}
