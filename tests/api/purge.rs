//! Purging a session (S1): its data is removed, its subscribers are notified, its forks remain.

use crate::{
    harness::TestServerBuilder,
    scripts::{ORDER, STALLS_ONCE, tool_call_script},
    stream::{format_frames, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::json;

on_both_wires!(s1_session_purged_while_running_is_removed_everywhere);

async fn s1_session_purged_while_running_is_removed_everywhere(wire: ProviderProtocol) {
    let script = format!("{}{STALLS_ONCE}", tool_call_script("market_order_create", ORDER));
    let mut server = TestServerBuilder::with_script(wire, &script).start().await;
    let (waiting, streaming) =
        (server.create_session_at(1).await, server.create_session_at(1).await);
    let mut paused = server.chat(&waiting, "go").await;
    let plan =
        paused.read_until("waiting_for_approval").await.last().unwrap().data["plan_id"].clone();
    let mut stalled = server.chat(&streaming, "stall").await;
    stalled.read_text(10).await;
    let fork = server.post(&format!("/agent/session/{waiting}/fork"), json!({})).await.expect_ok();
    let fork = fork["session_id"].as_str().unwrap().to_owned();

    for session in [&waiting, &streaming] {
        let mut subscription = server.subscribe(session, "0").await;
        subscription.read_until("session_created").await;
        let path = format!("/agent/session/{session}?purge=true");
        let purged = server.delete(&path).await.expect_ok();
        assert_eq!(purged, json!({"session_id": session, "status": "purged"}));
        let frames = subscription.read_to_end().await;
        let last = frames.last().unwrap();
        assert_eq!(
            (last.kind(), last.cursor.as_str()),
            ("session_purged", ""),
            "{}",
            format_frames(&frames)
        );
        assert_eq!(single_frame(&frames, "done").data["outcome"], "cancelled");
        single_frame(&frames, "session_closed");
        server.delete(&path).await.expect_problem(404, "session_not_found");
    }
    for stream in [&mut paused, &mut stalled] {
        stream.read_to_end().await;
    }
    for restarted in [false, true] {
        for session in [&waiting, &streaming] {
            for path in ["", "/events", "/messages", "/grants"] {
                let path = format!("/agent/session/{session}{path}");
                server.get(&path).await.expect_problem(404, "session_not_found");
            }
            let body = json!({"session_id": session, "message": "hello?"});
            server.post("/agent/chat/stream", body).await.expect_problem(404, "session_not_found");
        }
        let path = format!("/agent/approvals/{}", plan.as_str().unwrap());
        server.get(&path).await.expect_problem(404, "approval_not_found");
        let remaining = server.get("/agent/session").await.expect_ok();
        let remaining: Vec<_> = remaining["sessions"].as_array().unwrap().iter().collect();
        assert!(
            remaining.len() == 1 && remaining[0]["session_id"] == fork.as_str(),
            "{remaining:?}"
        );
        let audit = server.get("/admin/audit?action=session_purged").await.expect_ok();
        assert_eq!(audit["rows"].as_array().map(Vec::len), Some(2), "{audit}");
        if !restarted {
            server.kill_and_restart().await;
        }
    }
    assert!(server.effects().is_empty());
    // The fork has its own copy of the log and stays usable.
    let mut stream = server.chat(&fork, "go").await;
    stream.read_until("waiting_for_approval").await;
}

/// Purged data is overwritten when the server stops, at the latest.
#[actix_web::test]
async fn s1_database_files_contain_no_purged_text_after_stop() {
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let (purged, retained) = (server.create_session_at(1).await, server.create_session_at(1).await);
    server.chat_to_end(&purged, "again unforgettable").await;
    server.chat_to_end(&retained, "again remembered").await;
    server.delete(&format!("/agent/session/{purged}?purge=true")).await.expect_ok();
    assert!(server.stop().await.success());
    let files_contain = |text: &str| {
        let files = ["greenroom.db", "greenroom.db-wal"];
        let bytes = files.map(|file| std::fs::read(server.folder().join(file)).unwrap_or_default());
        bytes.concat().windows(text.len()).any(|window| window == text.as_bytes())
    };
    assert!(files_contain("again remembered") && !files_contain("unforgettable"));
}
