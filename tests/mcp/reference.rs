//! Tests against the reference servers: npm's "everything" over both transports, and PyPI's time
//! server in the current revision.

use greenroom::tool::ToolServerConfig;
use greenroom_actors::{ports::ToolHost, tool_servers::ServerState};
use greenroom_core::call::{ToolOutcome, outcome::RetryHint};
use serde_json::json;
use std::{path::PathBuf, process::Stdio};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use tokio_util::sync::CancellationToken;

use crate::harness::{ToolServerFixture, channel, http, run, stdio, test_dep, tool_call};

fn everything() -> PathBuf {
    test_dep("npm/node_modules/.bin/mcp-server-everything")
}

/// Starts "everything" over HTTP at `port`. It is killed when the returned value is dropped.
async fn start_everything(port: u16) -> Child {
    let mut child = Command::new(everything())
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node can be run");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    loop {
        let line = lines.next_line().await.expect("stderr can be read").expect("node starts");
        if line.contains(&port.to_string()) {
            break;
        }
    }
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    child
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("the listener has an address").port()
}

fn everything_server(port: u16) -> ToolServerConfig {
    http("everything", &format!("http://127.0.0.1:{port}/mcp"), true)
}

/// Checks tools, resources, progress and cancellation of "everything", over any transport.
async fn check_everything(fixture: &ToolServerFixture) {
    assert_eq!(
        fixture.status("everything").state,
        ServerState::Ready,
        "{:?}",
        fixture.tools.statuses()
    );
    let names = fixture.names();
    assert!(names.len() >= 10 && names.contains(&"echo".to_owned()), "{names:?}");
    let output = fixture.call_ok("echo", json!({"message": "hello"})).await;
    assert_eq!(output.text, "Echo: hello");
    let output = fixture.call_ok("get-structured-content", json!({"location": "Chicago"})).await;
    assert!(output.structured.unwrap()["temperature"].is_number());
    let output = fixture.call_ok("get-tiny-image", json!({})).await;
    assert!(output.text.contains("[image image/png, "), "{}", output.text);

    let resources = fixture.tools.list_resources().await;
    let filter_templates =
        |is_template| resources.iter().filter(move |info| info.is_template == is_template);
    let counts = (filter_templates(false).count(), filter_templates(true).count());
    assert!(counts.0 >= 2 && counts.1 >= 2, "{resources:?}");
    assert!(resources.iter().all(|info| info.server == "everything"), "{resources:?}");
    let read = async |uri: &str, bytes_max| {
        fixture.tools.read_resource("everything", uri, bytes_max).await
    };
    let long = &filter_templates(false).next().unwrap().uri;
    let output = read(long, 200).await.unwrap();
    assert!(output.truncated && output.text.len() <= 200, "{output:?}");
    let output = read("demo://resource/dynamic/blob/1", 1_000).await.unwrap();
    assert!(output.text.starts_with("[resource demo://") && !output.truncated, "{output:?}");
    assert!(read("demo://resource/none", 1_000).await.is_err());

    let outcome = fixture.call("echo", json!({"message": 7})).await;
    assert!(matches!(&outcome, ToolOutcome::Failed { error, .. } if error.contains("message")));

    let (sender, mut progress) = channel();
    let long = tool_call("trigger-long-running-operation", json!({"duration": 0.4, "steps": 4}));
    let outcome = fixture.tools.call_tool(long, sender, CancellationToken::new()).await;
    assert!(matches!(outcome, ToolOutcome::Completed(_)), "{outcome:?}");
    let first = progress.recv().await.unwrap();
    assert_eq!((first.progress, first.total), (1.0, Some(4.0)));

    let (sender, mut progress) = channel();
    let cancel = CancellationToken::new();
    let long =
        tool_call("trigger-long-running-operation", json!({"duration": 3000, "steps": 30000}));
    let call_task = tokio::spawn(fixture.tools.call_tool(long, sender, cancel.clone()));
    progress.recv().await.unwrap();
    cancel.cancel();
    let hint = RetryHint::Unspecified;
    let expected = ToolOutcome::Failed { error: "cancelled".to_owned(), hint };
    assert_eq!(call_task.await.unwrap(), expected);
    let output = fixture.call_ok("echo", json!({"message": "still there"})).await;
    assert_eq!(output.text, "Echo: still there");
}

#[test]
fn t1_everything_works_over_stdio() {
    run(async {
        let fixture =
            ToolServerFixture::start([stdio("everything", everything(), &["stdio"])]).await;
        check_everything(&fixture).await;
        fixture.tools.shut_down().await;
    });
}

#[test]
fn t1_t2_everything_works_over_http_and_recovers_from_outage() {
    run(async {
        let port = free_port();
        let mut server = start_everything(port).await;
        let fixture = ToolServerFixture::start([everything_server(port)]).await;
        check_everything(&fixture).await;

        let (sender, mut progress) = channel();
        let long =
            tool_call("trigger-long-running-operation", json!({"duration": 3000, "steps": 30000}));
        let call_task =
            tokio::spawn(fixture.tools.call_tool(long, sender, CancellationToken::new()));
        progress.recv().await.unwrap();
        server.kill().await.unwrap();
        let outcome = call_task.await.unwrap();
        assert!(matches!(outcome, ToolOutcome::Crashed { .. }), "{outcome:?}");
        let outcome = fixture.call("echo", json!({"message": "anybody?"})).await;
        assert!(matches!(outcome, ToolOutcome::NotSent { .. }), "{outcome:?}");
        fixture.wait_for_status("everything", |status| status.state != ServerState::Ready).await;
        let _server = start_everything(port).await;
        fixture.wait_for_restart("everything", 1).await;
        let output = fixture.call_ok("echo", json!({"message": "again"})).await;
        assert_eq!(output.text, "Echo: again");
        fixture.tools.shut_down().await;
    });
}

#[test]
fn t1_time_server_works_in_current_revision() {
    run(async {
        let server = stdio("time", test_dep("venv/bin/mcp-server-time"), &["--local-timezone=UTC"]);
        let fixture = ToolServerFixture::start([server]).await;
        assert_eq!(fixture.names(), ["convert_time", "get_current_time"]);
        let noon =
            json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
        let output = fixture.call_ok("convert_time", noon).await;
        assert!(output.text.contains("T21:00:00+09:00"), "{}", output.text);
        let outcome = fixture.call("get_current_time", json!({"timezone": "No/Where"})).await;
        assert!(matches!(outcome, ToolOutcome::Failed { .. }), "{outcome:?}");
    });
}
