//! Tests of commands whose standard output is full or closed.

use crate::harness::{TEST_TIMEOUT, TestWorkspace};
use serde_json::json;
use std::{fs::File, process::Stdio};

#[tokio::test]
async fn output_that_cannot_be_written_is_an_error() {
    let server = TestWorkspace::new().start_server().await;
    let answer = server.post("/agent/chat", json!({"message": "stock up"})).await;
    let session = answer["session_id"].as_str().unwrap();
    for args in [
        &["events", "--session", session][..],
        &["events", "--session", session, "--follow"],
        &["key", "create", "--user", "ada"],
        &["key", "list"],
        &["key", "list", "--json"],
        &["approvals", "list"],
        &["workflows"],
        &["tools"],
        &["audit", "verify"],
        &["doctor"],
        &["rehearse", "--check"],
        &["migrate", "--database", "other.db"],
    ] {
        let full = File::create("/dev/full").unwrap().into();
        let child = server.workspace.spawn(&server.address, args, full);
        let output =
            tokio::time::timeout(TEST_TIMEOUT, child.wait_with_output()).await.unwrap().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains("No space left on device"), "{args:?}: {stderr}");
    }
}

#[tokio::test]
async fn events_follow_ends_when_its_output_is_closed() {
    let server = TestWorkspace::new().start_server().await;
    let follow = ["events", "--follow"];
    let mut child = server.workspace.spawn(&server.address, &follow, Stdio::piped());
    drop(child.stdout.take());
    let exit_status = async {
        loop {
            // Each new session is an event; the command may not be connected yet.
            server.post("/agent/session", json!({})).await;
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
        }
    };
    let exit_status = tokio::time::timeout(TEST_TIMEOUT, exit_status).await.unwrap();
    assert_eq!(exit_status.code(), Some(0));
}
