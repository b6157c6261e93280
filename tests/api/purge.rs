//! Purging a session (S1): everything of it goes, whoever listens is told, its forks live on.

use crate::{
    harness::Setup,
    scripts::{ORDER, STALLS_ONCE, calls},
    stream::{the, told},
};
use greenroom::rehearsal::Wire;
use serde_json::json;

on_both_wires!(s1_a_session_that_is_purged_while_it_works_is_gone_everywhere);

async fn s1_a_session_that_is_purged_while_it_works_is_gone_everywhere(wire: Wire) {
    let script = format!("{}{STALLS_ONCE}", calls("market_order_create", ORDER));
    let mut house = Setup::script(wire, &script).start().await;
    let (waiting, streaming) = (house.session_at(1).await, house.session_at(1).await);
    let mut asked = house.chat(&waiting, "go").await;
    let plan = asked.until("waiting_for_approval").await.last().unwrap().data["plan_id"].clone();
    let mut stalled = house.chat(&streaming, "stall").await;
    stalled.until_text(10).await;
    let fork = house.post(&format!("/agent/session/{waiting}/fork"), json!({})).await.ok();
    let fork = fork["session_id"].as_str().unwrap().to_owned();

    for session in [&waiting, &streaming] {
        let mut listener = house.follow(session, "0").await;
        listener.until("session_created").await;
        let path = format!("/agent/session/{session}?purge=true");
        let purged = house.delete(&path).await.ok();
        assert_eq!(purged, json!({"session_id": session, "status": "purged"}));
        let heard = listener.rest().await;
        let last = heard.last().unwrap();
        assert_eq!((last.kind(), last.cursor.as_str()), ("session_purged", ""), "{}", told(&heard));
        assert_eq!(the(&heard, "done").data["outcome"], "cancelled");
        the(&heard, "session_closed");
        house.delete(&path).await.problem(404, "session_not_found");
    }
    for stream in [&mut asked, &mut stalled] {
        stream.rest().await;
    }
    for restarted in [false, true] {
        for session in [&waiting, &streaming] {
            for path in ["", "/events", "/messages", "/grants"] {
                let path = format!("/agent/session/{session}{path}");
                house.get(&path).await.problem(404, "session_not_found");
            }
            let body = json!({"session_id": session, "message": "hello?"});
            house.post("/agent/chat/stream", body).await.problem(404, "session_not_found");
        }
        let path = format!("/agent/approvals/{}", plan.as_str().unwrap());
        house.get(&path).await.problem(404, "approval_not_found");
        let left = house.get("/agent/session").await.ok();
        let left: Vec<_> = left["sessions"].as_array().unwrap().iter().collect();
        assert!(left.len() == 1 && left[0]["session_id"] == fork.as_str(), "{left:?}");
        let audit = house.get("/admin/audit?action=session_purged").await.ok();
        assert_eq!(audit["rows"].as_array().map(Vec::len), Some(2), "{audit}");
        if !restarted {
            house.crash().await;
        }
    }
    assert!(house.effects().is_empty());
    // The fork has its own copy, and goes on.
    let mut stream = house.chat(&fork, "go").await;
    stream.until("waiting_for_approval").await;
}

/// What was purged is written over at the latest when the server stops.
#[actix_web::test]
async fn s1_the_files_of_a_stopped_server_have_nothing_of_a_purged_session() {
    let mut house = Setup::script(Wire::OpenAi, STALLS_ONCE).start().await;
    let (gone, left) = (house.session_at(1).await, house.session_at(1).await);
    house.say(&gone, "again unforgettable").await;
    house.say(&left, "again remembered").await;
    house.delete(&format!("/agent/session/{gone}?purge=true")).await.ok();
    assert!(house.stop().await.success());
    let has = |word: &str| {
        let files = ["greenroom.db", "greenroom.db-wal"];
        let bytes = files.map(|file| std::fs::read(house.folder().join(file)).unwrap_or_default());
        bytes.concat().windows(word.len()).any(|found| found == word.as_bytes())
    };
    assert!(has("again remembered") && !has("unforgettable"));
}
