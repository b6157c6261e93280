//! Servers that misbehave: absent, silent, careless, stubborn.

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

/// The server `odd_server.py`, misbehaving in that way.
fn misbehaving_server(how: &str) -> greenroom::tool::ToolServerConfig {
    misbehaving_server_with_env(how, &[])
}

fn misbehaving_server_with_env(
    how: &str,
    env: &[(&str, &str)],
) -> greenroom::tool::ToolServerConfig {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/odd_server.py");
    stdio_env("odd", test_dep("venv/bin/python"), &[script, how], env)
}

/// Why the server could not be started.
fn start_error(rig: &ToolServerFixture, server: &str) -> String {
    let ServerStatus { state, reason, tools, .. } = rig.status(server);
    assert_eq!((state, tools), (ServerState::BackingOff, 0));
    reason.expect("there is a reason")
}

#[test]
fn t2_a_program_that_is_not_there_stops_nobody() {
    run(async {
        let absent = stdio("absent", "/no/such/program", &[]);
        let rig = ToolServerFixture::start([absent, misbehaving_server("changing")]).await;
        let found = start_error(&rig, "absent");
        assert!(found.contains("`/no/such/program`"), "{found}");
        assert!(found.contains("No such file or directory"), "{found}");
        assert_eq!(rig.status("odd").state, ServerState::Ready);
        let seen = rig.board.snapshot("/tools/absent").unwrap();
        assert_eq!(seen.state, "backing off");
        assert!(seen.waiting.unwrap().awaited.starts_with("next start"));
        assert_eq!(seen.last_error, Some(found));
    });
}

#[test]
fn e7_a_failure_is_told_without_the_server_s_secrets() {
    run(async {
        let script = "echo key=$KEY is wrong >&2; exit 3";
        let mut server = stdio_env("odd", "sh", &["-c", script], &[("KEY", "k3y-k3y-k3y")]);
        server.redactor = Arc::new(Redactor::new(["k3y-k3y-k3y".to_owned()]));
        let rig = ToolServerFixture::start([server]).await;
        let found = start_error(&rig, "odd");
        assert!(found.contains("key=[redacted] is wrong"), "{found}");
    });
}

#[test]
fn r1_what_a_program_answers_after_it_was_given_up_is_heard() {
    run(async {
        let rig = ToolServerFixture::start([misbehaving_server("late")]).await;
        for (timeout, is_cancelled) in [(Duration::from_millis(50), false), (TEST_TIMEOUT, true)] {
            let (late, mut heard) = mpsc::channel(1);
            let call = ToolCall {
                timeout: Some(timeout),
                late_result: LateResultHandler::new(move |outcome| late.try_send(outcome).unwrap()),
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
            let outcome = rig.tools.call_tool(call, progress, cancel).await;
            assert!(!matches!(outcome, ToolOutcome::Completed(_)), "{outcome:?}");
            let Some(ToolOutcome::Completed(output)) = heard.recv().await else {
                panic!("nothing is heard")
            };
            assert_eq!(output.text, "it did it all the same");
        }
        assert_eq!(rig.status("odd").state, ServerState::Ready);
    });
}

#[test]
fn t2_a_silent_program_is_unavailable_after_its_start_timeout() {
    run(async {
        let mut silent = stdio("silent", "sleep", &["1000"]);
        silent.start_timeout = Duration::from_millis(200);
        let rig = ToolServerFixture::start([silent]).await;
        let found = start_error(&rig, "silent");
        assert!(found.starts_with("no answer within 200ms"), "{found}");
    });
}

#[test]
fn t2_a_program_that_gives_up_is_quoted() {
    run(async {
        let rig = ToolServerFixture::start([misbehaving_server("talkative")]).await;
        let found = start_error(&rig, "odd");
        assert!(found.contains("exit status: 3"), "{found}");
        assert!(found.ends_with("last line of stderr: I can't work like this"), "{found}");
    });
}

#[test]
fn t2_a_failed_start_is_tried_again() {
    run(async {
        let rig = ToolServerFixture::start([stdio("absent", "/no/such/program", &[])]).await;
        rig.wait_for_status("absent", |status| status.restarts >= 1).await;
    });
}

#[test]
fn t1_a_changed_list_is_read_again() {
    run(async {
        let rig = ToolServerFixture::start([misbehaving_server("changing")]).await;
        assert_eq!(rig.names(), ["first"]);
        let old = rig.tools.tool_registry();
        rig.call_ok("first", json!({})).await;
        rig.wait_for_status("odd", |status| status.tools == 2).await;
        assert_eq!(rig.names(), ["first", "second"]);
        assert_eq!(old.iter().count(), 1, "who holds the old book keeps it");
        rig.call_ok("second", json!({})).await;
        rig.wait_for_status("odd", |status| status.tools == 3).await;
    });
}

#[test]
fn x5_children_get_only_the_environment_named_for_them() {
    run(async {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "there is something to leak");
        let rig = ToolServerFixture::start([misbehaving_server_with_env(
            "environment",
            &[("NAMED", "for it")],
        )])
        .await;
        let output = rig.call_ok("first", json!({})).await;
        let environment: serde_json::Map<String, Value> =
            serde_json::from_str(&output.text).unwrap();
        assert_eq!(environment["NAMED"], json!("for it"));
        let found: BTreeSet<&str> = environment.keys().map(String::as_str).collect();
        // Python sets `LC_CTYPE` for itself.
        let allowed = BTreeSet::from(["HOME", "LANG", "LC_CTYPE", "NAMED", "PATH", "TMPDIR"]);
        assert!(found.is_subset(&allowed), "{found:?}");
    });
}

#[test]
fn e6_careless_json_is_understood() {
    run(async {
        let rig = ToolServerFixture::start([misbehaving_server("careless")]).await;
        let output = rig.call_ok("first", json!({})).await;
        assert_eq!(output.text, "a\u{fffd}b\u{fffd}c");
        assert_eq!(output.structured, Some(json!({"nan": null, "huge": null})));
    });
}

#[test]
fn r1_a_protocol_error_is_a_failure() {
    run(async {
        let rig = ToolServerFixture::start([misbehaving_server("strange")]).await;
        let outcome = rig.call("first", json!({})).await;
        let error = "not like this (JSON-RPC error -32602)".to_owned();
        assert_eq!(outcome, ToolOutcome::Failed { error, hint: RetryHint::Unspecified });
    });
}

#[test]
fn x5_a_stubborn_child_and_its_children_are_killed() {
    run(async {
        let rig = ToolServerFixture::start([misbehaving_server("stubborn")]).await;
        let output = rig.call_ok("first", json!({})).await;
        let pids: [u32; 2] = serde_json::from_str(&output.text).unwrap();
        assert!(pids.iter().all(|pid| is_running(*pid)));
        rig.tools.shut_down().await;
        assert!(!Path::new(&format!("/proc/{}", pids[0])).exists(), "nor is it a zombie");
        // Its child was killed, too; whoever inherits it will bury it.
        while is_running(pids[1]) {
            tokio::task::yield_now().await;
        }
    });
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn t1_a_server_of_the_older_lifecycle_is_reached_directly() {
    run(async {
        let mut server = misbehaving_server("changing");
        server.lifecycle = McpLifecycle::Initialize;
        let rig = ToolServerFixture::start([server]).await;
        assert_eq!(rig.names(), ["first"]);
        let mut server = misbehaving_server("changing");
        server.lifecycle = McpLifecycle::Discover;
        let rig = ToolServerFixture::start([server]).await;
        assert!(start_error(&rig, "odd").contains("no such method"));
    });
}

#[test]
fn x5_private_addresses_are_refused() {
    run(async {
        // Nobody may be connected to: neither by address nor by name.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let literal = http("literal", &format!("http://127.0.0.1:{port}/mcp"), false);
        let named = http("named", &format!("http://localhost:{port}/mcp"), false);
        let rig = ToolServerFixture::start([literal, named]).await;
        for (server, host) in [("literal", "127.0.0.1"), ("named", "localhost")] {
            let found = start_error(&rig, server);
            assert!(found.contains(&format!("{host} is a private address")), "{found}");
        }
        let nobody = listener.accept().unwrap_err();
        assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
    });
}
