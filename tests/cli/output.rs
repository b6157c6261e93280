//! What becomes of commands whose output nobody takes.

use crate::harness::{TEST_TIMEOUT, TestWorkspace};
use serde_json::json;
use std::{fs::File, process::Stdio};

#[tokio::test]
async fn what_cannot_be_written_is_an_error_and_no_panic() {
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
        let ended =
            tokio::time::timeout(TEST_TIMEOUT, child.wait_with_output()).await.unwrap().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("No space left on device"), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn events_that_nobody_reads_any_more_are_not_followed() {
    let server = TestWorkspace::new().start_server().await;
    let follow = ["events", "--follow"];
    let mut child = server.workspace.spawn(&server.address, &follow, Stdio::piped());
    drop(child.stdout.take());
    let ended = async {
        loop {
            // It may not be listening yet.
            server.post("/agent/session", json!({})).await;
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
        }
    };
    let ended = tokio::time::timeout(TEST_TIMEOUT, ended).await.unwrap();
    assert_eq!(ended.code(), Some(0));
}
