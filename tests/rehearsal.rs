//! Tests of the rehearsal model over real HTTP (M5), with the providers' SDKs and with raw requests.
//!
//! The SDK tests need Python with the SDKs. `scripts/test-deps.sh` installs it;
//! `GREENROOM_TEST_PYTHON` overrides the path of Python.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use greenroom::rehearsal::{ProviderProtocol, REQUEST_BYTES_MAX, RehearsalServer, Script};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn start_wires() -> RehearsalServer {
    let script = Script::load(&root().join("tests/fidelity/wires.toml")).unwrap();
    RehearsalServer::start(script, ANY_PORT).unwrap()
}

fn start_scripted(script: &str) -> RehearsalServer {
    RehearsalServer::start(Script::parse(script).unwrap(), ANY_PORT).unwrap()
}

/// Runs an SDK script against the rehearsal and returns the JSON that the script prints.
async fn run_sdk(script: &str, url: &str) -> Value {
    let python = std::env::var_os("GREENROOM_TEST_PYTHON")
        .map_or_else(|| root().join("target/test-deps/venv/bin/python"), PathBuf::from);
    let output = tokio::process::Command::new(&python)
        .arg(root().join("tests/fidelity").join(script))
        .arg(url)
        .output()
        .await
        .unwrap_or_else(|error| panic!("{}: {error}; run scripts/test-deps.sh", python.display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(text: &str) -> Value {
    json!({ "text": text })
}

fn call(name: &str, arguments: Value) -> Value {
    json!({"call": name, "arguments": arguments})
}

/// Checks a message that an SDK has received both as a stream and as a whole.
fn check_both(got: &Value, content: &Value, stop: &str) {
    for mode in ["streamed", "whole"] {
        check(&got[mode], content, stop);
    }
    assert_eq!(got["streamed"]["usage"], got["whole"]["usage"]);
}

fn check(got: &Value, content: &Value, stop: &str) {
    assert_eq!(got["content"], *content);
    assert_eq!(got["stop"], stop);
}

/// Checks the replies that are the same for both SDKs, in the order of the script's rules. `end` and
/// `tools` are the stop reasons of the protocol.
fn check_features(got: &Value, end: &str, tools: &str) {
    check_both(&got["text"], &json!([text("Grüße aus Jita: 5.10 ISK, \"sofort\" 🚀\nEnde.")]), end);
    let note = call("note", json!({"text": "ä\n\"🚀\"", "n": 1.5}));
    check(&got["wire split"], &json!([text("Ünïcödé 🚀 at every byte"), note]), tools);
    let calls = json!([
        text("Looking both up."),
        call("lookup", json!({"id": 34, "tags": ["x", "35"]})),
        call("lookup", json!({"id": 35, "deep": {"ok": true}})),
        call("now", json!({})),
    ]);
    check_both(&got["calls"], &calls, tools);
    assert_eq!(got["fixed id"], "fixed_1");
    assert_eq!(got["distinct ids"], 3);
    let answers = "Tritanium and Pyerite, noon, ⟨missing: results[7].x⟩";
    check(&got["answers"], &json!([text(answers)]), end);
    let fan_out = json!([
        text("Failed: no such item."),
        call("lookup", json!({"id": 1, "at": 0})),
        call("lookup", json!({"id": 2, "at": 1})),
    ]);
    check(&got["fan out"], &fan_out, tools);
    assert_eq!(got["malformed"], "{\"id\":1234");
    check_both(&got["forced"], &json!([call("plan", json!({"steps": []}))]), tools);
    check(&got["retried"], &json!([text("Third time lucky.")]), end);
    check(
        &got["after the cut"],
        &json!([text("This sentence is finished at the second try.")]),
        end,
    );
}

fn check_error(got: &Value, expected: Value) {
    let actual: Value = expected
        .as_object()
        .unwrap()
        .keys()
        .map(|key| (key.clone(), got[key].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    assert_eq!(actual, expected);
}

#[actix_web::test]
async fn m5_anthropic_sdk_understands_every_feature() {
    let rehearsal = start_wires();
    let got = run_sdk("anthropic_sdk.py", &rehearsal.url()).await;

    check_features(&got, "end_turn", "tool_use");
    let usage = json!({"input": 20, "output": 7, "cached": 100});
    assert_eq!(got["text"]["streamed"]["usage"], usage);
    assert_eq!(got["text"]["streamed"]["id"], "msg_");
    assert_eq!(got["text"]["streamed"]["model"], "claude-test");
    let events = got["events"].as_array().unwrap();
    let ends = json!(["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!(json!(events[..2]), json!(["message_start", "content_block_start"]));
    assert_eq!(json!(events[events.len() - 3..]), ends);
    let fragments = got["fragments"].as_array().unwrap();
    assert!(fragments.iter().all(|piece| piece.as_str().unwrap().len() <= 3), "{fragments:?}");

    let thought = json!({"thinking": "Let me look at the prices first.", "signed": true});
    let thinking = json!([thought, text("Looking."), call("now", json!({}))]);
    check_both(&got["thinking"], &thinking, "tool_use");
    check(&got["thinking sent back"], &json!([text("Done thinking.")]), "end_turn");
    check_both(&got["refusal"], &json!([text("I can't help with that.")]), "refusal");
    check_both(&got["max tokens"], &json!([text("one two thre")]), "max_tokens");

    let error = |status: u16, class: &str, kind: &str| json!({"class": class, "status": status, "type": kind, "request_id": true});
    let errors = [
        ("thinking changed", error(400, "BadRequestError", "invalid_request_error")),
        ("rate limited", error(429, "RateLimitError", "rate_limit_error")),
        ("overloaded", error(529, "OverloadedError", "overloaded_error")),
        ("broken", error(500, "InternalServerError", "api_error")),
        ("too long", error(400, "BadRequestError", "invalid_request_error")),
        ("error inside", json!({"type": "overloaded_error", "message": "Overloaded"})),
        ("cut", json!({"class": "RemoteProtocolError"})),
        ("stall", json!({"class": "ReadTimeout"})),
        ("bad key", error(401, "AuthenticationError", "authentication_error")),
        ("no result", error(400, "BadRequestError", "invalid_request_error")),
    ];
    for (name, expected) in errors {
        check_error(&got[name], expected);
    }
    assert_eq!(got["rate limited"]["retry_after"], "7");
    assert_eq!(got["broken"]["message"], "scripted breakage");
    rehearsal.stop().await;
}

#[actix_web::test]
async fn m5_openai_sdk_understands_every_feature() {
    let rehearsal = start_wires();
    let got = run_sdk("openai_sdk.py", &rehearsal.url()).await;

    check_features(&got, "stop", "tool_calls");
    let usage = json!({"input": 120, "output": 7, "cached": 100});
    assert_eq!(got["text"]["streamed"]["usage"], usage);
    assert_eq!(got["text"]["streamed"]["model"], "gpt-test");
    let shape = json!({
        "first": {"role": "assistant", "content": "", "refusal": null},
        "ids": 1,
        "objects": ["chat.completion.chunk"],
        "finish": [null, "stop"],
        "last choices": 0,
        "usage before the last": false,
        "usage without request": false,
    });
    assert_eq!(got["shape"], shape);
    let deltas = json!(got["call deltas"].as_array().unwrap()[..6]);
    let interleaved = json!([[0, ""], [1, ""], [2, ""], [0, "{\"i"], [1, "{\"i"], [2, "{}"]]);
    assert_eq!(deltas, interleaved);

    let thought = json!({"thinking": "Let me look at the prices first.", "signed": false});
    let thinking = json!([thought, text("Looking."), call("now", json!({}))]);
    check(&got["thinking"], &thinking, "tool_calls");
    check_both(&got["refusal"], &json!([{"refusal": "I can't help with that."}]), "stop");
    check(&got["max tokens"], &json!([text("one two thre")]), "length");
    let id = json!({"id": 34});
    let legacy = json!({"name": "lookup", "arguments": id, "whole": id, "finish": "function_call"});
    assert_eq!(got["legacy"], legacy);

    let error = |status: u16, class: &str, code: Option<&str>| json!({"class": class, "status": status, "code": code, "request_id": true});
    let errors = [
        ("rate limited", error(429, "RateLimitError", Some("rate_limit_exceeded"))),
        ("overloaded", error(503, "InternalServerError", None)),
        ("broken", error(500, "InternalServerError", None)),
        ("too long", error(400, "BadRequestError", Some("context_length_exceeded"))),
        ("error inside", json!({"class": "APIError", "message": "Overloaded"})),
        ("cut", json!({"class": "APIConnectionError"})),
        ("stall", json!({"class": "APITimeoutError"})),
        ("bad key", error(401, "AuthenticationError", Some("invalid_api_key"))),
        ("no result", error(400, "BadRequestError", None)),
    ];
    for (name, expected) in errors {
        check_error(&got[name], expected);
    }
    assert_eq!(got["rate limited"]["retry_after"], "7");
    rehearsal.stop().await;
}

/// A raw response: the status line with headers, the body's chunks as the server wrote them, and
/// the presence of the last, empty chunk.
struct RawResponse {
    head: String,
    chunks: Vec<Vec<u8>>,
    complete: bool,
}

impl RawResponse {
    fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    fn parse(bytes: &[u8]) -> Self {
        let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
        let (mut rest, mut chunks, mut complete) = (&bytes[head_end + 4..], Vec::new(), false);
        while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
            let size = std::str::from_utf8(&rest[..line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 {
                complete = true;
                break;
            }
            let end = line + 2 + size;
            let Some(chunk) = rest.get(line + 2..end) else { break };
            chunks.push(chunk.to_vec());
            rest = rest.get(end + 2..).unwrap_or_default();
        }
        Self { head, chunks, complete }
    }
}

async fn connect(rehearsal: &RehearsalServer, path: &str, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(rehearsal.address()).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nanthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    socket
}

/// Reads until the server closes or resets the connection.
async fn read_all(mut socket: TcpStream) -> RawResponse {
    let mut bytes = Vec::new();
    let _closed = socket.read_to_end(&mut bytes).await;
    RawResponse::parse(&bytes)
}

fn request_body(message: &str) -> String {
    json!({"model": "m", "max_tokens": 999, "stream": true,
        "messages": [{"role": "user", "content": message}]})
    .to_string()
}

async fn exchange(rehearsal: &RehearsalServer, path: &str, body: &str) -> RawResponse {
    read_all(connect(rehearsal, path, body).await).await
}

const BOTH: [&str; 2] = ["/v1/messages", "/v1/chat/completions"];

#[actix_web::test]
async fn m5_wire_split_writes_single_bytes() {
    let rehearsal = start_wires();
    for path in BOTH {
        let raw = exchange(&rehearsal, path, &request_body("wire split")).await;
        assert!(raw.complete);
        assert!(raw.chunks.iter().all(|chunk| chunk.len() == 1), "{path}");
        assert!(String::from_utf8(raw.body()).unwrap().contains("ping"));
        // Without `wire_split`, each event is one write.
        let raw = exchange(&rehearsal, path, &request_body("text")).await;
        assert!(raw.chunks.iter().all(|chunk| chunk.ends_with(b"\n\n")), "{path}");
    }
}

#[actix_web::test]
async fn m5_cut_ends_stream_inside_an_event_once() {
    let rehearsal = start_wires();
    for path in BOTH {
        let cut = exchange(&rehearsal, path, &request_body("cut once")).await;
        assert!(!cut.complete, "{path}");
        assert!(!cut.body().ends_with(b"\n"), "half an event: {path}");
        let body = String::from_utf8(cut.body()).unwrap();
        assert!(body.contains("\"enc\"") && !body.contains("\"s f\""), "12 characters: {body}");
        let whole = exchange(&rehearsal, path, &request_body("cut once")).await;
        assert!(whole.complete, "{path}");
    }
}

#[actix_web::test]
async fn m5_stalled_stream_stays_open_until_server_stops() {
    let rehearsal = start_wires();
    let mut stalled = connect(&rehearsal, BOTH[0], &request_body("stall")).await;
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains("\"enc\"") {
        assert_ne!(stalled.read_buf(&mut bytes).await.unwrap(), 0, "closed early");
    }
    // Other requests are answered at the same time.
    assert!(exchange(&rehearsal, BOTH[0], &request_body("text")).await.complete);
    rehearsal.stop().await;
    let _closed = stalled.read_to_end(&mut bytes).await;
    let raw = RawResponse::parse(&bytes);
    assert!(!raw.complete);
    assert!(!String::from_utf8(raw.body()).unwrap().contains("\"e f\""), "nothing after 6");
}

#[actix_web::test]
async fn m5_failures_are_counted_per_conversation() {
    let rehearsal = start_scripted(
        "[[rule]]\nuser = '^flaky'\nfail = { status = 429, retry_after = 1, times = 2 }\n\
         reply = [{ text = 'ok' }]",
    );
    let mut statuses = Vec::new();
    for message in ["flaky a", "flaky b", "flaky a", "flaky b", "flaky a", "flaky b", "flaky a"] {
        let raw = exchange(&rehearsal, BOTH[1], &request_body(message)).await;
        statuses.push(raw.head.lines().next().unwrap().split(' ').nth(1).unwrap().to_owned());
        let limited = raw.head.to_lowercase().contains("retry-after: 1");
        assert_eq!(limited, statuses.last().unwrap() == "429");
    }
    assert_eq!(statuses, ["429", "429", "429", "429", "200", "200", "429"]);
}

#[actix_web::test]
async fn m5_invalid_requests_are_answered_in_form_of_provider() {
    let rehearsal = start_scripted("require_key = true");
    let open = start_scripted("");
    let huge = "x".repeat(REQUEST_BYTES_MAX + 1);
    let body = request_body("hi");
    let cases = [
        (&rehearsal, BOTH[0], body.as_str(), "401", "authentication_error"),
        (&rehearsal, BOTH[1], body.as_str(), "401", "invalid_api_key"),
        (&open, BOTH[0], "{", "400", "invalid_request_error"),
        (&open, BOTH[1], "{", "400", "invalid_request_error"),
        (&open, BOTH[0], "{}", "400", "model: Field required"),
        (&open, BOTH[1], "{}", "400", "you must provide a model parameter"),
        (&open, BOTH[0], huge.as_str(), "413", "request_too_large"),
        (&open, BOTH[1], huge.as_str(), "413", "invalid_request_error"),
        (&open, "/v1/other", "{}", "404", "not_found_error"),
    ];
    for (server, path, body, status, text) in cases {
        let mut socket = connect(server, path, body).await;
        let mut bytes = Vec::new();
        let _closed = socket.read_to_end(&mut bytes).await;
        let response = String::from_utf8(bytes).unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {response}");
        let (_, json) = response.split_once("\r\n\r\n").unwrap();
        let json: Value = serde_json::from_str(json).unwrap();
        assert!(json["error"]["message"].is_string(), "{json}");
        assert!(json.to_string().contains(text), "{json}");
    }
}

#[actix_web::test]
async fn m5_requests_are_recorded_for_tests() {
    let rehearsal =
        start_scripted("[[rule]]\nname = 'hi'\nuser = 'hi'\nreply = [{ text = 'yes' }]");
    let body = request_body("hi");
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: k\r\n\
         traceparent: 00-1-2-01\r\nanthropic-version: 1\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(rehearsal.address()).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    assert!(read_all(socket).await.complete);
    assert!(exchange(&rehearsal, BOTH[1], &request_body("else")).await.complete);

    let [first, second] = rehearsal.requests().try_into().unwrap();
    assert_eq!((first.wire, first.path.as_str()), (ProviderProtocol::Anthropic, "/v1/messages"));
    assert_eq!((first.x_api_key, first.authorization), (true, false));
    assert_eq!(first.traceparent.as_deref(), Some("00-1-2-01"));
    assert_eq!(first.body["messages"][0]["content"], "hi");
    assert_eq!((first.rule.as_deref(), first.status), (Some("hi"), 200));
    assert_eq!((second.wire, second.rule), (ProviderProtocol::OpenAi, None));
}

#[actix_web::test]
async fn m5_dropped_rehearsal_stops() {
    let rehearsal = start_wires();
    let mut stalled = connect(&rehearsal, BOTH[0], &request_body("stall")).await;
    let mut bytes = Vec::new();
    stalled.read_buf(&mut bytes).await.unwrap();
    drop(rehearsal);
    let _closed = stalled.read_to_end(&mut bytes).await;
    assert!(!RawResponse::parse(&bytes).complete);
}

/// Checks every script in `examples/rehearsal` and the built-in tour.
#[test]
fn m5_shipped_scripts_are_valid() {
    let mut loaded = 0;
    for entry in std::fs::read_dir(root().join("examples/rehearsal")).unwrap() {
        let path = entry.unwrap().path();
        if let Err(error) = Script::load(&path) {
            panic!("{}: {:#}", path.display(), anyhow::Error::from(error));
        }
        loaded += 1;
    }
    assert!(loaded > 0);
    assert!(!Script::tour().unwrap().rules.is_empty());
}
