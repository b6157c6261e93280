//! The reference servers: npm's "everything" over both transports, PyPI's time server in the
//! current revision.

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

/// "Everything" over HTTP, at a port; ends with the value.
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
        let line = lines.next_line().await.expect("it can be read").expect("it starts");
        if line.contains(&port.to_string()) {
            break;
        }
    }
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    child
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it has an address").port()
}

fn everything_server(port: u16) -> ToolServerConfig {
    http("everything", &format!("http://127.0.0.1:{port}/mcp"), true)
}

/// What "everything" is good for, over whatever transport.
async fn check_everything(rig: &ToolServerFixture) {
    assert_eq!(rig.status("everything").state, ServerState::Ready, "{:?}", rig.tools.statuses());
    let names = rig.names();
    assert!(names.len() >= 10 && names.contains(&"echo".to_owned()), "{names:?}");
    let output = rig.call_ok("echo", json!({"message": "hello"})).await;
    assert_eq!(output.text, "Echo: hello");
    let output = rig.call_ok("get-structured-content", json!({"location": "Chicago"})).await;
    assert!(output.structured.unwrap()["temperature"].is_number());
    let output = rig.call_ok("get-tiny-image", json!({})).await;
    assert!(output.text.contains("[image image/png, "), "{}", output.text);

    let resources = rig.tools.list_resources().await;
    let of_kind = |is_template| resources.iter().filter(move |it| it.is_template == is_template);
    assert!(of_kind(false).count() >= 2 && of_kind(true).count() >= 2, "{resources:?}");
    assert!(resources.iter().all(|it| it.server == "everything"), "{resources:?}");
    let read =
        async |uri: &str, bytes_max| rig.tools.read_resource("everything", uri, bytes_max).await;
    let long = &of_kind(false).next().unwrap().uri;
    let output = read(long, 200).await.unwrap();
    assert!(output.truncated && output.text.len() <= 200, "{output:?}");
    let output = read("demo://resource/dynamic/blob/1", 1_000).await.unwrap();
    assert!(output.text.starts_with("[resource demo://") && !output.truncated, "{output:?}");
    assert!(read("demo://resource/none", 1_000).await.is_err());

    let outcome = rig.call("echo", json!({"message": 7})).await;
    assert!(matches!(&outcome, ToolOutcome::Failed { error, .. } if error.contains("message")));

    let (sender, mut progress) = channel();
    let long = tool_call("trigger-long-running-operation", json!({"duration": 0.4, "steps": 4}));
    let outcome = rig.tools.call_tool(long, sender, CancellationToken::new()).await;
    assert!(matches!(outcome, ToolOutcome::Completed(_)), "{outcome:?}");
    let seen = progress.recv().await.unwrap();
    assert_eq!((seen.progress, seen.total), (1.0, Some(4.0)));

    let (sender, mut progress) = channel();
    let cancel = CancellationToken::new();
    let long =
        tool_call("trigger-long-running-operation", json!({"duration": 3000, "steps": 30000}));
    let calling = tokio::spawn(rig.tools.call_tool(long, sender, cancel.clone()));
    progress.recv().await.unwrap();
    cancel.cancel();
    let hint = RetryHint::Unspecified;
    let expected = ToolOutcome::Failed { error: "cancelled".to_owned(), hint };
    assert_eq!(calling.await.unwrap(), expected);
    let output = rig.call_ok("echo", json!({"message": "still there"})).await;
    assert_eq!(output.text, "Echo: still there");
}

#[test]
fn t1_everything_over_stdio() {
    run(async {
        let rig = ToolServerFixture::start([stdio("everything", everything(), &["stdio"])]).await;
        check_everything(&rig).await;
        rig.tools.shut_down().await;
    });
}

#[test]
fn t1_everything_over_http_and_t2_back_after_an_outage() {
    run(async {
        let port = free_port();
        let mut server = start_everything(port).await;
        let rig = ToolServerFixture::start([everything_server(port)]).await;
        check_everything(&rig).await;

        let (sender, mut progress) = channel();
        let long =
            tool_call("trigger-long-running-operation", json!({"duration": 3000, "steps": 30000}));
        let calling = tokio::spawn(rig.tools.call_tool(long, sender, CancellationToken::new()));
        progress.recv().await.unwrap();
        server.kill().await.unwrap();
        let outcome = calling.await.unwrap();
        assert!(matches!(outcome, ToolOutcome::Crashed { .. }), "{outcome:?}");
        let outcome = rig.call("echo", json!({"message": "anybody?"})).await;
        assert!(matches!(outcome, ToolOutcome::NotSent { .. }), "{outcome:?}");
        rig.wait_for_status("everything", |status| status.state != ServerState::Ready).await;
        let _server = start_everything(port).await;
        rig.wait_for_restart("everything", 1).await;
        let output = rig.call_ok("echo", json!({"message": "again"})).await;
        assert_eq!(output.text, "Echo: again");
        rig.tools.shut_down().await;
    });
}

#[test]
fn t1_the_current_revision() {
    run(async {
        let server = stdio("time", test_dep("venv/bin/mcp-server-time"), &["--local-timezone=UTC"]);
        let rig = ToolServerFixture::start([server]).await;
        assert_eq!(rig.names(), ["convert_time", "get_current_time"]);
        let noon =
            json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
        let output = rig.call_ok("convert_time", noon).await;
        assert!(output.text.contains("T21:00:00+09:00"), "{}", output.text);
        let outcome = rig.call("get_current_time", json!({"timezone": "No/Where"})).await;
        assert!(matches!(outcome, ToolOutcome::Failed { .. }), "{outcome:?}");
    });
}
