//! A server that is told to stop in the middle of its work (D8): nobody is left without a word, and
//! everything continues after the next start.

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, STALLED_TEXT, STALLS_ONCE, STORY, tool_call_script},
    stream::{Stream, format_frames, last_message_text, frames_of_kind, single_frame},
};
use futures::future::join_all;
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

/// Sessions of each kind.
const SESSIONS: usize = 6;

/// Looks for opportunities for so many seconds.
fn scan(seconds: u32) -> String {
    format!(
        r#"
[[rule]]
user = "scan"
step = 0
[[rule.reply]]
tool_call = {{ name = "scan_opportunities", arguments = {{ region_id = 10000002, seconds = {seconds} }} }}
"#
    )
}

async fn sessions(server: &TestServer) -> Vec<String> {
    join_all((0..SESSIONS).map(|_| server.create_session_at(1))).await
}

async fn chats(server: &TestServer, sessions: &[String], message: &str) -> Vec<Stream> {
    let chats = sessions.iter().enumerate().map(|(number, session)| async move {
        // The scripted model tells conversations apart by what is said in them.
        server.chat(session, &format!("{message} {number}")).await
    });
    join_all(chats).await
}

#[actix_web::test]
async fn d8_sigterm_under_load_drains_and_work_resumes_after_restart() {
    let order = tool_call_script("market_order_create", ORDER);
    let scan = scan(600);
    let script = format!("{STORY}{STALLS_ONCE}{order}{scan}");
    let setup = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script)
        .with_top_level_config("drain = '700ms'");
    let mut server = setup.start().await;
    // Those who wait for a person, whose model says nothing more, whose tool takes ten minutes, who
    // have another message in line, and who are in the middle of a story.
    let asking = sessions(&server).await;
    let mut asked = chats(&server, &asking, "go").await;
    let mut plans = Vec::new();
    for stream in &mut asked {
        let frames = stream.read_until("waiting_for_approval").await;
        plans.push(frames.last().unwrap().data["plan_id"].clone());
    }
    let stalling = sessions(&server).await;
    let mut stalled = chats(&server, &stalling, "stall").await;
    for stream in &mut stalled {
        stream.read_text(10).await;
    }
    let mut queued = chats(&server, &stalling, "again").await;
    let scanning = sessions(&server).await;
    let mut scans = chats(&server, &scanning, "scan").await;
    for stream in &mut scans {
        stream.read_until("tool_call_progress").await;
    }
    let telling = sessions(&server).await;
    let mut told_of = chats(&server, &telling, "story").await;
    let mut socket = server.socket(&format!("/agent/stream/{}", telling[0])).await;
    socket.read_until("text").await;
    let mut gateway = server.socket("/gateway").await;
    let request =
        json!({"type": "chat.send", "id": "g", "sessionId": telling[1], "content": "story"});
    gateway.send(request).await;

    assert!(server.stop().await.success(), "it ends well, although tools and models would go on");
    let all = asked.iter_mut().chain(&mut stalled).chain(&mut queued).chain(&mut scans);
    for stream in all {
        let last = stream.read_to_end().await.pop().expect("it is told");
        assert_eq!((last.kind(), last.cursor.as_str()), ("server_draining", ""), "{last:?}");
    }
    for stream in &mut told_of {
        let last = stream.read_to_end().await.pop().expect("it is told");
        assert!(["server_draining", "done"].contains(&last.kind()), "{last:?}");
    }
    assert_eq!(socket.read_until("server_draining").await.last().unwrap()["cursor"], Value::Null);

    server.start().await;
    for (session, plan_id) in asking.iter().zip(&plans) {
        let body = json!({"session_id": session, "plan_id": plan_id});
        server.post("/agent/execute", body).await.expect_ok();
        let all = server.wait_for_event(session, "done").await;
        assert_eq!(frames_of_kind(&all, "waiting_for_approval").len(), 1, "{}", format_frames(&all));
    }
    assert_eq!(
        server.effects().iter().filter(|it| it["tool"] != "scan_cancelled").count(),
        SESSIONS
    );
    for session in &stalling {
        let mut follow = server.subscribe(session, "0").await;
        let mut all = follow.read_until("done").await;
        assert_eq!(last_message_text(&all), STALLED_TEXT);
        all.extend(follow.read_until("done").await);
        assert_eq!(last_message_text(&all), "Here I am.");
    }
    for session in &telling {
        let all = server.wait_for_event(session, "done").await;
        assert_eq!(single_frame(&all, "done").data["outcome"], "completed");
        assert!(
            last_message_text(&all).ends_with("number 11 of the fleet goes home; "),
            "{}",
            last_message_text(&all)
        );
    }
    for session in &scanning {
        // It reads, and goes on by itself; that it was cut off was no failure of its own.
        let mut follow = server.subscribe(session, "0").await;
        let retrying = follow.read_until("tool_call_retrying").await.pop().unwrap();
        assert_eq!(
            (retrying.text("reason"), &retrying.data["failures"]),
            ("the server restarted", &json!(0))
        );
        let again = follow.read_until("tool_call_attempt_started").await;
        assert_eq!(again.last().unwrap().data["attempt"], 2);
        server.post(&format!("/agent/session/{session}/cancel"), json!({})).await.expect_ok();
        follow.read_until("done").await;
    }
}

#[actix_web::test]
async fn d8_while_it_drains_nothing_new_begins_and_what_streams_comes_to_its_end() {
    let script = format!("{STORY}{STALLS_ONCE}");
    let mut server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script)
        .with_top_level_config("drain = '60s'")
        .start()
        .await;
    let (telling, other) = (server.create_session_at(1).await, server.create_session_at(1).await);
    let mut story = server.chat(&telling, "story").await;
    story.read_text(10).await;
    server.send_sigterm();
    story.read_until("server_draining").await;
    // Its listener has left; the story goes on.
    let wish = json!({"session_id": other, "message": "again"});
    server.post("/agent/chat/stream", wish).await.expect_problem(503, "draining");
    server.post("/agent/session", json!({})).await.expect_problem(503, "draining");
    assert!(server.wait_for_exit().await.success());
    server.start().await;
    let all = server.wait_for_event(&telling, "done").await;
    assert!(frames_of_kind(&all, "message_discarded").is_empty(), "{}", format_frames(&all));
    assert_eq!(last_message_text(&server.chat_to_end(&other, "again").await), "Here I am.");
}

#[actix_web::test]
async fn d8_a_tool_that_comes_to_its_end_is_waited_for_and_the_next_step_is_not_begun() {
    let scan = scan(2);
    let setup =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, &format!("{scan}{STALLS_ONCE}"))
            .with_top_level_config("drain = '60s'");
    let mut server = setup.start().await;
    let session = server.create_session_at(1).await;
    let mut chat = server.chat(&session, "scan").await;
    chat.read_until("tool_call_progress").await;
    assert!(server.stop().await.success());
    server.start().await;
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(frames_of_kind(&all, "tool_call_attempt_started").len(), 1, "{}", format_frames(&all));
    assert_eq!(frames_of_kind(&all, "tool_call_completed").len(), 1, "{}", format_frames(&all));
    assert_eq!(frames_of_kind(&all, "thinking").len(), 2, "{}", format_frames(&all));
    assert!(frames_of_kind(&all, "message_discarded").is_empty(), "{}", format_frames(&all));
}

#[actix_web::test]
async fn d8_told_twice_it_waits_for_no_tool() {
    let mut server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &scan(600))
        .with_top_level_config("drain = '10m'")
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let mut chat = server.chat(&session, "scan").await;
    chat.read_until("tool_call_progress").await;
    server.send_sigterm();
    chat.read_until("server_draining").await;
    assert!(server.stop().await.success());
    server.start().await;
    // It reads, and goes on.
    let mut follow = server.subscribe(&session, "0").await;
    follow.read_until("tool_call_retrying").await;
    server.send_sigterm();
    follow.read_until("server_draining").await;
    assert!(server.stop().await.success());
}
