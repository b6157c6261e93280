//! Session streams: the same content from any cursor and over any transport (E2, E3).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{STORY, tool_call_script},
    stream::{Frame, format_frames, last_message_text, streamed_text},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::Value;

on_both_wires!(e3_two_clients_receive_the_same_stream_after_a_disconnect);

/// Returns the concatenated text deltas of a socket's frames.
fn socket_text(frames: &[Value]) -> String {
    let texts = frames.iter().filter(|frame| frame["type"] == "text");
    texts.map(|frame| frame["payload"]["text"].as_str().unwrap()).collect()
}

async fn e3_two_clients_receive_the_same_stream_after_a_disconnect(wire: ProviderProtocol) {
    let server = TestServerBuilder::with_script(wire, STORY).start().await;
    let session = server.create_session_at(1).await;
    let mut interrupted = server.subscribe(&session, "0").await;
    let mut steady = server.subscribe(&session, "0").await;
    let run = server.chat(&session, "tell me a story").await;
    let mut received = interrupted.read_text(70).await;
    drop((interrupted, run));
    let cursor = received.last().unwrap().cursor.clone();
    assert!(cursor.contains('.'), "inside the message: {cursor}");
    let mut resumed = server.subscribe_with_last_event_id(&session, &cursor).await;
    received.extend(resumed.read_until("done").await);
    let steady = steady.read_until("done").await;

    let text = last_message_text(&steady);
    assert!(text.len() > 600, "{text}");
    assert_eq!(streamed_text(&steady), text);
    assert_eq!(streamed_text(&received), text, "no gap and no repetition");
    let events = |frames: &[Frame]| -> Vec<Value> {
        let complete = frames.iter().filter(|frame| frame.kind() != "text");
        complete.map(|frame| frame.data.clone()).collect()
    };
    assert_eq!(events(&received), events(&steady));
    let deltas = steady.iter().filter(|frame| frame.kind() == "text");
    let mut offset = 0;
    for frame in deltas {
        offset += frame.text("text").len();
        assert_eq!(frame.cursor.split_once('.').unwrap().1, offset.to_string(), "UTF-8 bytes");
    }
    // Resumes from the same cursor after the message is complete, over both transports.
    let rest = text.strip_prefix(&text_up_to(&steady, &cursor)).unwrap().to_owned();
    let repeated =
        server.subscribe_with_last_event_id(&session, &cursor).await.read_until("done").await;
    assert_eq!(streamed_text(&repeated), rest);
    let path = format!("/agent/stream/{session}?after={cursor}");
    let socket_frames = server.socket(&path).await.read_until("done").await;
    assert_eq!(socket_text(&socket_frames), rest);
    let starts_with_text = socket_frames[0]["type"] == "text";
    assert_eq!(socket_text(&socket_frames[..1]).is_empty(), !starts_with_text);
}

/// Returns the text streamed up to `cursor`.
fn text_up_to(frames: &[Frame], cursor: &str) -> String {
    let offset: usize = cursor.split_once('.').unwrap().1.parse().unwrap();
    streamed_text(frames)[..offset].to_owned()
}

#[actix_web::test]
async fn e3_websocket_resumes_an_open_message() {
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STORY).start().await;
    let session = server.create_session_at(1).await;
    let mut run = server.chat(&session, "story").await;
    let received = run.read_text(50).await;
    let cursor = &received.last().unwrap().cursor;
    let mut socket = server.socket(&format!("/agent/stream/{session}?after={cursor}")).await;
    let rest = socket.read_until("done").await;
    let text = rest.iter().find(|frame| frame["type"] == "message_completed").unwrap();
    let text = text["payload"]["text"].as_str().unwrap();
    assert_eq!(format!("{}{}", streamed_text(&received), socket_text(&rest)), text);
    for frame in &rest {
        for key in
            ["type", "session_id", "plan_id", "step_index", "payload", "timestamp", "seq", "cursor"]
        {
            assert!(frame.get(key).is_some(), "{key} of {frame}");
        }
    }
}

/// Returns the replayed events of a session, without text deltas, which are not stored.
async fn replayed_events(server: &TestServer, session: &str) -> Vec<Value> {
    let frames = server.subscribe(session, "0").await.read_until("done").await;
    assert!(frames.iter().all(|frame| !frame.cursor.is_empty()), "{}", format_frames(&frames));
    frames.into_iter().filter(|frame| frame.kind() != "text").map(|frame| frame.data).collect()
}

#[actix_web::test]
async fn e2_pages_and_both_transports_return_the_same_events() {
    let server = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("list_bookmarks", "{}"),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "go").await;
    let pages = server.events(&session).await;
    let seqs: Vec<_> = pages.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=pages.len() as u64).collect::<Vec<_>>());
    assert_eq!(replayed_events(&server, &session).await, pages);
    let socket_frames =
        server.socket(&format!("/agent/stream/{session}")).await.read_until("done").await;
    let socket_frames: Vec<_> =
        socket_frames.iter().filter(|frame| frame["type"] != "text").collect();
    assert_eq!(socket_frames.len(), pages.len());
    for (frame, event) in socket_frames.iter().zip(&pages) {
        assert_eq!((&frame["type"], &frame["seq"]), (&event["type"], &event["seq"]));
        assert_eq!(frame["timestamp"], event["at"]);
        for (key, value) in frame["payload"].as_object().unwrap() {
            // Only frames have these two keys beside the plan.
            if !["purpose", "tool_count"].contains(&key.as_str()) {
                assert_eq!(event[key], *value, "{key} of {event}");
            }
        }
    }
    // A subscription from each cursor starts with the next event.
    for (after, expected) in pages.iter().enumerate() {
        let rest = server.subscribe(&session, &after.to_string()).await.read_until("done").await;
        let first = rest.iter().find(|frame| frame.kind() != "text").unwrap();
        assert_eq!(first.data, *expected);
    }
}

#[actix_web::test]
async fn e2_administrator_receives_events_of_all_sessions() {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let request = server.request(reqwest::Method::GET, "/admin/events");
    let mut all = server.stream(request).await;
    let (first, second) = (server.create_session_at(1).await, server.create_session_at(1).await);
    server.chat_to_end(&first, "hello").await;
    server.chat_to_end(&second, "hello").await;
    let mut frames = all.read_until("done").await;
    frames.extend(all.read_until("done").await);
    for session in [first, second] {
        assert!(frames.iter().any(|frame| frame.text("session_id") == session), "{session}");
    }
}
