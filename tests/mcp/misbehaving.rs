//! Tests against servers that misbehave: they are missing, do not answer, or answer incorrectly.

use greenroom::{redaction::Redactor, tool::McpLifecycle};
use greenroom_actors::{
    ports::{LateResultHandler, ToolCall, ToolHost},
    tool_servers::{ServerState, ServerStatus},
};
use greenroom_core::call::{ToolOutcome, outcome::RetryHint};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    TEST_TIMEOUT, ToolServerFixture, http, run, stdio, stdio_env, test_dep, tool_call,
};

/// Returns the configuration of the server `odd_server.py` in one of its modes.
fn misbehaving_server(mode: &str) -> greenroom::tool::ToolServerConfig {
    misbehaving_server_with_env(mode, &[])
}

fn misbehaving_server_with_env(
    mode: &str,
    env: &[(&str, &str)],
) -> greenroom::tool::ToolServerConfig {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/odd_server.py");
    stdio_env("odd", test_dep("venv/bin/python"), &[script, mode], env)
}

/// Returns the reason for which the server could not be started.
fn start_error(fixture: &ToolServerFixture, server: &str) -> String {
    let ServerStatus { state, reason, tools, .. } = fixture.status(server);
    assert_eq!((state, tools), (ServerState::BackingOff, 0));
    reason.expect("there is a reason")
}

#[test]
fn t2_missing_program_does_not_affect_other_servers() {
    run(async {
        let absent = stdio("absent", "/no/such/program", &[]);
        let fixture = ToolServerFixture::start([absent, misbehaving_server("changing")]).await;
        let reason = start_error(&fixture, "absent");
        assert!(reason.contains("`/no/such/program`"), "{reason}");
        assert!(reason.contains("No such file or directory"), "{reason}");
        assert_eq!(fixture.status("odd").state, ServerState::Ready);
        let snapshot = fixture.board.snapshot("/tools/absent").unwrap();
        assert_eq!(snapshot.state, "backing off");
        assert!(snapshot.waiting.unwrap().awaited.starts_with("next start"));
        assert_eq!(snapshot.last_error, Some(reason));
    });
}

#[test]
fn e7_start_error_does_not_contain_secrets() {
    run(async {
        let script = "echo key=$KEY is wrong >&2; exit 3";
        let mut server = stdio_env("odd", "sh", &["-c", script], &[("KEY", "k3y-k3y-k3y")]);
        server.redactor = Arc::new(Redactor::new(["k3y-k3y-k3y".to_owned()]));
        let fixture = ToolServerFixture::start([server]).await;
        let reason = start_error(&fixture, "odd");
        assert!(reason.contains("key=[redacted] is wrong"), "{reason}");
    });
}

#[test]
fn r1_late_result_is_delivered_after_timeout_or_cancellation() {
    run(async {
        let fixture = ToolServerFixture::start([misbehaving_server("late_result")]).await;
        for (timeout, is_cancelled) in [(Duration::from_millis(50), false), (TEST_TIMEOUT, true)] {
            let (sender, mut late_results) = mpsc::channel(1);
            let call = ToolCall {
                timeout: Some(timeout),
                late_result: LateResultHandler::new(move |outcome| {
                    sender.try_send(outcome).unwrap()
                }),
                ..tool_call("first", json!({}))
            };
            let (progress, cancel) = (mpsc::channel(1).0, CancellationToken::new());
            if is_cancelled {
                let cancel = cancel.clone();
                drop(tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    cancel.cancel();
                }));
            }
            let outcome = fixture.tools.call_tool(call, progress, cancel).await;
            assert!(!matches!(outcome, ToolOutcome::Completed(_)), "{outcome:?}");
            let Some(ToolOutcome::Completed(output)) = late_results.recv().await else {
                panic!("no late result")
            };
            assert_eq!(output.text, "completed after cancellation");
        }
        assert_eq!(fixture.status("odd").state, ServerState::Ready);
    });
}

#[test]
fn t2_silent_program_is_unavailable_after_start_timeout() {
    run(async {
        let mut silent = stdio("silent", "sleep", &["1000"]);
        silent.start_timeout = Duration::from_millis(200);
        let fixture = ToolServerFixture::start([silent]).await;
        let reason = start_error(&fixture, "silent");
        assert!(reason.starts_with("no response within 200ms"), "{reason}");
    });
}

#[test]
fn t2_start_error_quotes_last_line_of_stderr() {
    run(async {
        let fixture = ToolServerFixture::start([misbehaving_server("failed_start")]).await;
        let reason = start_error(&fixture, "odd");
        assert!(reason.contains("exit status: 3"), "{reason}");
        assert!(reason.ends_with("last line of stderr: configuration missing"), "{reason}");
    });
}

#[test]
fn t2_failed_start_is_retried() {
    run(async {
        let fixture = ToolServerFixture::start([stdio("absent", "/no/such/program", &[])]).await;
        fixture.wait_for_status("absent", |status| status.restarts >= 1).await;
    });
}

#[test]
fn t1_changed_tool_list_is_loaded_again() {
    run(async {
        let fixture = ToolServerFixture::start([misbehaving_server("changing")]).await;
        assert_eq!(fixture.names(), ["first"]);
        let old = fixture.tools.tool_registry();
        fixture.call_ok("first", json!({})).await;
        fixture.wait_for_status("odd", |status| status.tools == 2).await;
        assert_eq!(fixture.names(), ["first", "second"]);
        assert_eq!(old.iter().count(), 1, "a held registry does not change");
        fixture.call_ok("second", json!({})).await;
        fixture.wait_for_status("odd", |status| status.tools == 3).await;
    });
}

#[test]
fn x5_servers_get_only_their_configured_environment() {
    run(async {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "there is a variable to leak");
        let fixture = ToolServerFixture::start([misbehaving_server_with_env(
            "environment",
            &[("CONFIGURED", "for it")],
        )])
        .await;
        let output = fixture.call_ok("first", json!({})).await;
        let environment: serde_json::Map<String, Value> =
            serde_json::from_str(&output.text).unwrap();
        assert_eq!(environment["CONFIGURED"], json!("for it"));
        let names: BTreeSet<&str> = environment.keys().map(String::as_str).collect();
        // Python itself sets `LC_CTYPE`.
        let allowed = BTreeSet::from(["CONFIGURED", "HOME", "LANG", "LC_CTYPE", "PATH", "TMPDIR"]);
        assert!(names.is_subset(&allowed), "{names:?}");
    });
}

#[test]
fn e6_invalid_json_is_repaired() {
    run(async {
        let fixture = ToolServerFixture::start([misbehaving_server("invalid_json")]).await;
        let output = fixture.call_ok("first", json!({})).await;
        assert_eq!(output.text, "a\u{fffd}b\u{fffd}c");
        let structured = output.structured.unwrap();
        assert_eq!(structured.to_string(), r#"{"huge":1e+999,"nan":null}"#);
    });
}

#[test]
fn r1_protocol_error_is_a_failure() {
    run(async {
        let fixture = ToolServerFixture::start([misbehaving_server("protocol_error")]).await;
        let outcome = fixture.call("first", json!({})).await;
        let error = "invalid arguments (JSON-RPC error -32602)".to_owned();
        assert_eq!(outcome, ToolOutcome::Failed { error, hint: RetryHint::Unspecified });
    });
}

#[test]
fn x5_server_that_ignores_sigterm_is_killed_with_its_children() {
    run(async {
        let fixture = ToolServerFixture::start([misbehaving_server("ignored_sigterm")]).await;
        let output = fixture.call_ok("first", json!({})).await;
        let pids: [u32; 2] = serde_json::from_str(&output.text).unwrap();
        assert!(pids.iter().all(|pid| is_running(*pid)));
        fixture.tools.shut_down().await;
        assert!(!Path::new(&format!("/proc/{}", pids[0])).exists(), "not even a zombie is left");
        // The server's child was killed, too. Another process reaps it.
        while is_running(pids[1]) {
            tokio::task::yield_now().await;
        }
    });
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|state| !state.is_empty() && !state.starts_with('Z'))
}

#[test]
fn t1_configured_lifecycle_is_used_without_probing() {
    run(async {
        let mut server = misbehaving_server("changing");
        server.lifecycle = McpLifecycle::Initialize;
        let fixture = ToolServerFixture::start([server]).await;
        assert_eq!(fixture.names(), ["first"]);
        let mut server = misbehaving_server("changing");
        server.lifecycle = McpLifecycle::Discover;
        let fixture = ToolServerFixture::start([server]).await;
        assert!(start_error(&fixture, "odd").contains("no such method"));
    });
}

#[test]
fn x5_private_addresses_are_rejected() {
    run(async {
        // No connection may be opened, neither by address nor by name.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let literal = http("literal", &format!("http://127.0.0.1:{port}/mcp"), false);
        let named = http("named", &format!("http://localhost:{port}/mcp"), false);
        let fixture = ToolServerFixture::start([literal, named]).await;
        for (server, host) in [("literal", "127.0.0.1"), ("named", "localhost")] {
            let reason = start_error(&fixture, server);
            assert!(reason.contains(&format!("{host} is a private address")), "{reason}");
        }
        let error = listener.accept().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    });
}
