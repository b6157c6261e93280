//! Draining (D8): a server that is stopped during its work notifies every client, and all work
//! resumes after the next start.

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, STALLED_TEXT, STALLS_ONCE, STORY, tool_call_script},
    stream::{Stream, format_frames, frames_of_kind, last_message_text, single_frame},
};
use futures::future::join_all;
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

/// Number of sessions of each kind.
const SESSIONS: usize = 6;

/// Returns a script whose tool call takes `seconds`.
fn scan_script(seconds: u32) -> String {
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

async fn create_sessions(server: &TestServer) -> Vec<String> {
    join_all((0..SESSIONS).map(|_| server.create_session_at(1))).await
}

async fn start_runs(server: &TestServer, sessions: &[String], message: &str) -> Vec<Stream> {
    let chats = sessions.iter().enumerate().map(|(number, session)| async move {
        // The scripted model distinguishes sessions by their messages.
        server.chat(session, &format!("{message} {number}")).await
    });
    join_all(chats).await
}

#[actix_web::test]
async fn d8_sigterm_under_load_drains_and_work_resumes_after_restart() {
    let order = tool_call_script("market_order_create", ORDER);
    let scan = scan_script(600);
    let script = format!("{STORY}{STALLS_ONCE}{order}{scan}");
    let setup = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script)
        .with_top_level_config("drain = '700ms'");
    let mut server = setup.start().await;
    // Sessions that wait for approval, have a stalled model stream and a queued message, have a tool
    // call that takes ten minutes, or are in the middle of a story.
    let approving = create_sessions(&server).await;
    let mut waiting = start_runs(&server, &approving, "go").await;
    let mut plans = Vec::new();
    for stream in &mut waiting {
        let frames = stream.read_until("waiting_for_approval").await;
        plans.push(frames.last().unwrap().data["plan_id"].clone());
    }
    let stalling = create_sessions(&server).await;
    let mut stalled = start_runs(&server, &stalling, "stall").await;
    for stream in &mut stalled {
        stream.read_text(10).await;
    }
    let mut queued = start_runs(&server, &stalling, "again").await;
    let scanning = create_sessions(&server).await;
    let mut scans = start_runs(&server, &scanning, "scan").await;
    for stream in &mut scans {
        stream.read_until("tool_call_progress").await;
    }
    let streaming = create_sessions(&server).await;
    let mut stories = start_runs(&server, &streaming, "story").await;
    let mut socket = server.socket(&format!("/agent/stream/{}", streaming[0])).await;
    socket.read_until("text").await;
    let mut gateway = server.socket("/gateway").await;
    let request =
        json!({"type": "chat.send", "id": "g", "sessionId": streaming[1], "content": "story"});
    gateway.send(request).await;

    assert!(server.stop().await.success(), "the server exits despite open tool and model calls");
    let all = waiting.iter_mut().chain(&mut stalled).chain(&mut queued).chain(&mut scans);
    for stream in all {
        let last = stream.read_to_end().await.pop().expect("the stream has a last frame");
        assert_eq!((last.kind(), last.cursor.as_str()), ("server_draining", ""), "{last:?}");
    }
    for stream in &mut stories {
        let last = stream.read_to_end().await.pop().expect("the stream has a last frame");
        assert!(["server_draining", "done"].contains(&last.kind()), "{last:?}");
    }
    assert_eq!(socket.read_until("server_draining").await.last().unwrap()["cursor"], Value::Null);

    server.start().await;
    for (session, plan_id) in approving.iter().zip(&plans) {
        let body = json!({"session_id": session, "plan_id": plan_id});
        server.post("/agent/execute", body).await.expect_ok();
        let all = server.wait_for_event(session, "done").await;
        assert_eq!(
            frames_of_kind(&all, "waiting_for_approval").len(),
            1,
            "{}",
            format_frames(&all)
        );
    }
    assert_eq!(
        server.effects().iter().filter(|effect| effect["tool"] != "scan_cancelled").count(),
        SESSIONS
    );
    for session in &stalling {
        let mut subscription = server.subscribe(session, "0").await;
        let mut all = subscription.read_until("done").await;
        assert_eq!(last_message_text(&all), STALLED_TEXT);
        all.extend(subscription.read_until("done").await);
        assert_eq!(last_message_text(&all), "Here I am.");
    }
    for session in &streaming {
        let all = server.wait_for_event(session, "done").await;
        assert_eq!(single_frame(&all, "done").data["outcome"], "completed");
        assert!(
            last_message_text(&all).ends_with("number 11 of the fleet goes home; "),
            "{}",
            last_message_text(&all)
        );
    }
    for session in &scanning {
        // The tool is read-only, so its call is repeated; the interruption counts as no failure.
        let mut subscription = server.subscribe(session, "0").await;
        let retrying = subscription.read_until("tool_call_retrying").await.pop().unwrap();
        assert_eq!(
            (retrying.text("reason"), &retrying.data["failures"]),
            ("the server restarted", &json!(0))
        );
        let second_attempt = subscription.read_until("tool_call_attempt_started").await;
        assert_eq!(second_attempt.last().unwrap().data["attempt"], 2);
        server.post(&format!("/agent/session/{session}/cancel"), json!({})).await.expect_ok();
        subscription.read_until("done").await;
    }
}

#[actix_web::test]
async fn d8_draining_server_refuses_new_work_and_finishes_open_streams() {
    let script = format!("{STORY}{STALLS_ONCE}");
    let mut server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script)
        .with_top_level_config("drain = '60s'")
        .start()
        .await;
    let (streaming, other) = (server.create_session_at(1).await, server.create_session_at(1).await);
    let mut story = server.chat(&streaming, "story").await;
    story.read_text(10).await;
    server.send_sigterm();
    story.read_until("server_draining").await;
    // The stream is closed, but its run continues.
    let body = json!({"session_id": other, "message": "again"});
    server.post("/agent/chat/stream", body).await.expect_problem(503, "draining");
    server.post("/agent/session", json!({})).await.expect_problem(503, "draining");
    assert!(server.wait_for_exit().await.success());
    server.start().await;
    let all = server.wait_for_event(&streaming, "done").await;
    assert!(frames_of_kind(&all, "message_discarded").is_empty(), "{}", format_frames(&all));
    assert_eq!(last_message_text(&server.chat_to_end(&other, "again").await), "Here I am.");
}

#[actix_web::test]
async fn d8_draining_server_waits_for_a_tool_and_starts_no_further_step() {
    let scan = scan_script(2);
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
    assert_eq!(
        frames_of_kind(&all, "tool_call_attempt_started").len(),
        1,
        "{}",
        format_frames(&all)
    );
    assert_eq!(frames_of_kind(&all, "tool_call_completed").len(), 1, "{}", format_frames(&all));
    assert_eq!(frames_of_kind(&all, "thinking").len(), 2, "{}", format_frames(&all));
    assert!(frames_of_kind(&all, "message_discarded").is_empty(), "{}", format_frames(&all));
}

#[actix_web::test]
async fn d8_second_sigterm_stops_waiting_for_tools() {
    let mut server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &scan_script(600))
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
    // The tool is read-only, so its call is repeated.
    let mut subscription = server.subscribe(&session, "0").await;
    subscription.read_until("tool_call_retrying").await;
    server.send_sigterm();
    subscription.read_until("server_draining").await;
    assert!(server.stop().await.success());
}
