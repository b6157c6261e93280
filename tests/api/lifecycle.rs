//! The server process: draining, crashes with many sessions, a second server, rate limits, and
//! secrets (D1, D8, E7, X4).

use crate::{
    harness::{MODEL_KEY, TOKEN, TestServer, TestServerBuilder, run, send},
    scripts::{ORDER, STALLED_TEXT, STALLS_ONCE, tool_call_script},
    stream::{
        format_frames, frames_of_kind, kinds_of, last_message_text, single_frame, streamed_text,
    },
};
use futures::future::join_all;
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

#[actix_web::test]
async fn d8_stopping_server_notifies_its_clients() {
    let script = format!("{}{STALLS_ONCE}", tool_call_script("market_order_create", ORDER));
    let setup = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script)
        .with_top_level_config("drain = '100ms'");
    let mut server = setup.start().await;
    let (waiting, streaming) =
        (server.create_session_at(1).await, server.create_session_at(1).await);
    let mut paused = server.chat(&waiting, "go").await;
    let plan = paused.read_until("waiting_for_approval").await.last().unwrap().data["plan"].clone();
    let mut stalled = server.chat(&streaming, "stall").await;
    stalled.read_text(10).await;
    assert!(server.stop().await.success(), "the exit status is 0");
    for stream in [&mut paused, &mut stalled] {
        let last = stream.read_to_end().await.pop().unwrap();
        assert_eq!((last.kind(), last.cursor.as_str()), ("server_draining", ""), "{last:?}");
    }
    server.start().await;
    let all = server.wait_for_event(&streaming, "done").await;
    assert_eq!(last_message_text(&all), STALLED_TEXT);
    let body = json!({"session_id": waiting, "plan_id": plan["plan_id"]});
    server.post("/agent/execute", body).await.expect_ok();
    let all = server.wait_for_event(&waiting, "done").await;
    assert_eq!(single_frame(&all, "waiting_for_approval").data["plan"], plan);
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn d2_many_sessions_survive_crashes() {
    const SESSIONS: usize = 24;
    let script = tool_call_script("market_order_create", ORDER);
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).start().await;
    let sessions = join_all((0..SESSIONS).map(|_| server.create_session_at(1))).await;
    let mut streams = join_all(sessions.iter().map(|session| server.chat(session, "go"))).await;
    // A quarter of the runs wait for approval; the others may still be running.
    for stream in &mut streams[..SESSIONS / 4] {
        stream.read_until("waiting_for_approval").await;
    }
    server.kill_and_restart().await;
    let decide = async |server: &TestServer, session: &String| {
        let frames = server.wait_for_event(session, "waiting_for_approval").await;
        let plan_id = frames.last().unwrap().data["plan_id"].clone();
        server
            .post("/agent/execute", json!({"session_id": session, "plan_id": plan_id}))
            .await
            .expect_ok();
    };
    join_all(sessions.iter().map(|session| decide(&server, session))).await;
    server.kill_and_restart().await;
    for session in &sessions {
        let all = server.wait_for_event(session, "done").await;
        assert_eq!(single_frame(&all, "done").data["outcome"], "completed");
        assert_eq!(
            frames_of_kind(&all, "waiting_for_approval").len(),
            1,
            "{}",
            format_frames(&all)
        );
        assert!(last_message_text(&all).contains("order_id"), "{}", last_message_text(&all));
    }
    assert_eq!(server.effects().len(), SESSIONS, "each order once");
}

#[actix_web::test]
async fn d1_second_server_on_the_same_database_is_refused() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE).start().await;
    let env = [("GREENROOM_LISTEN", "127.0.0.1:0"), ("GREENROOM_TOKEN", TOKEN)];
    let second = run(server.folder(), &["serve"], &env).await;
    assert!(!second.status.success());
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(error.contains("greenroom.db"), "{error}");
    let session = server.create_session_at(1).await;
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

#[actix_web::test]
async fn x4_rate_limit_answers_429_with_retry_after() {
    let limits = "[limits]\nrequests_per_second = 3";
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config(limits)
        .start()
        .await;
    let responses = join_all((0..40).map(|_| server.get("/agent/settings"))).await;
    let (served, refused): (Vec<_>, Vec<_>) =
        responses.into_iter().partition(|response| response.status == 200);
    assert!(!served.is_empty() && !refused.is_empty());
    for response in refused {
        assert!(response.headers.contains_key("retry-after"));
        assert_eq!(response.expect_problem(429, "rate_limited")["limit"], 3);
    }
    // Requests that need no token are not counted.
    assert_eq!(send(server.request_without_token(Method::GET, "/healthz")).await.status, 200);
}

#[actix_web::test]
async fn x4_subscribers_per_session_are_limited() {
    let limits = "[limits]\nsubscribers_per_session = 2";
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config(limits)
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let _first = server.subscribe(&session, "0").await;
    let _second = server.subscribe(&session, "0").await;
    let path = format!("/agent/session/{session}/events");
    let third = server.request(Method::GET, &path).header("accept", "text/event-stream");
    send(third).await.expect_problem(429, "too_many_subscribers");
}

#[actix_web::test]
async fn e7_secrets_appear_in_no_event_and_no_log() {
    let arguments = r#"{ name = "Home", system = "Jita", password = "hunter2", note = "KEY" }"#;
    let script = tool_call_script("create_bookmark", &arguments.replace("KEY", MODEL_KEY));
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    // The tool's schema has neither argument; the validation error must not quote them either.
    let shown = format!("{}{}", format_frames(&frames), json!(server.events(&session).await));
    let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
    for secret in [MODEL_KEY, TOKEN, "hunter2"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
        assert!(!log.contains(secret), "{secret} in {log}");
    }
    assert_eq!(kinds_of(&frames, &["tool_call_failed", "done"]), ["tool_call_failed", "done"]);
}

#[actix_web::test]
async fn s1_e7_session_title_is_its_redacted_first_message() {
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, "").start().await;
    let session = server.create_session(json!({})).await;
    assert_eq!(server.get("/agent/session").await.expect_ok()["sessions"][0]["title"], Value::Null);
    let frames = server.chat_to_end(&session, &format!("Is {MODEL_KEY} a key?\nTell me.")).await;
    let title = "Is [redacted] a key?";
    assert_eq!(single_frame(&frames, "run_started").data["title"], title);
    let path = format!("/agent/session/{session}");
    assert_eq!(server.get(&path).await.expect_ok()["title"], title);
    assert_eq!(server.get("/agent/session").await.expect_ok()["sessions"][0]["title"], title);
    let patched = server.patch(&format!("{path}/settings"), json!({"autonomy_level": 0})).await;
    assert_eq!(patched.expect_ok()["title"], title);
    let fork = server.post(&format!("{path}/fork"), json!({})).await.expect_ok();
    assert_eq!(fork["title"], title);
    assert_eq!(server.delete(&path).await.expect_ok()["title"], title);
}

#[actix_web::test]
async fn e7_secret_split_over_deltas_is_redacted() {
    let script = format!(
        "[[rule]]\nuser = 'go'\nchunk = {{ text = 5 }}\n[[rule.reply]]\ntext = 'The key is {MODEL_KEY}, they say.'"
    );
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    assert!(!last_message_text(&frames).contains(MODEL_KEY), "{}", last_message_text(&frames));
    assert!(!streamed_text(&frames).contains(MODEL_KEY), "{}", streamed_text(&frames));
}
