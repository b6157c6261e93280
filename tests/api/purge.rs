//! Purging a session (S1): everything of it goes, whoever listens is told, its forks live on.

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
    let (waiting, streaming) = (server.create_session_at(1).await, server.create_session_at(1).await);
    let mut asked = server.chat(&waiting, "go").await;
    let plan =
        asked.read_until("waiting_for_approval").await.last().unwrap().data["plan_id"].clone();
    let mut stalled = server.chat(&streaming, "stall").await;
    stalled.read_text(10).await;
    let fork = server.post(&format!("/agent/session/{waiting}/fork"), json!({})).await.expect_ok();
    let fork = fork["session_id"].as_str().unwrap().to_owned();

    for session in [&waiting, &streaming] {
        let mut listener = server.subscribe(session, "0").await;
        listener.read_until("session_created").await;
        let path = format!("/agent/session/{session}?purge=true");
        let purged = server.delete(&path).await.expect_ok();
        assert_eq!(purged, json!({"session_id": session, "status": "purged"}));
        let heard = listener.read_to_end().await;
        let last = heard.last().unwrap();
        assert_eq!(
            (last.kind(), last.cursor.as_str()),
            ("session_purged", ""),
            "{}",
            format_frames(&heard)
        );
        assert_eq!(single_frame(&heard, "done").data["outcome"], "cancelled");
        single_frame(&heard, "session_closed");
        server.delete(&path).await.expect_problem(404, "session_not_found");
    }
    for stream in [&mut asked, &mut stalled] {
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
        let left = server.get("/agent/session").await.expect_ok();
        let left: Vec<_> = left["sessions"].as_array().unwrap().iter().collect();
        assert!(left.len() == 1 && left[0]["session_id"] == fork.as_str(), "{left:?}");
        let audit = server.get("/admin/audit?action=session_purged").await.expect_ok();
        assert_eq!(audit["rows"].as_array().map(Vec::len), Some(2), "{audit}");
        if !restarted {
            server.kill_and_restart().await;
        }
    }
    assert!(server.effects().is_empty());
    // The fork has its own copy, and goes on.
    let mut stream = server.chat(&fork, "go").await;
    stream.read_until("waiting_for_approval").await;
}

/// What was purged is written over at the latest when the server stops.
#[actix_web::test]
async fn s1_database_files_contain_no_purged_text_after_stop() {
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let (gone, left) = (server.create_session_at(1).await, server.create_session_at(1).await);
    server.chat_to_end(&gone, "again unforgettable").await;
    server.chat_to_end(&left, "again remembered").await;
    server.delete(&format!("/agent/session/{gone}?purge=true")).await.expect_ok();
    assert!(server.stop().await.success());
    let has = |word: &str| {
        let files = ["greenroom.db", "greenroom.db-wal"];
        let bytes = files.map(|file| std::fs::read(server.folder().join(file)).unwrap_or_default());
        bytes.concat().windows(word.len()).any(|found| found == word.as_bytes())
    };
    assert!(has("again remembered") && !has("unforgettable"));
}
