//! Following a session: the same from any cursor, over any transport (E2, E3).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{STORY, tool_call_script},
    stream::{Frame, format_frames, last_message_text, streamed_text},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::Value;

on_both_wires!(e3_two_clients_hear_the_same_also_when_one_is_cut_off);

/// Text of the frames of a socket, of one message.
fn socket_text(frames: &[Value]) -> String {
    let texts = frames.iter().filter(|frame| frame["type"] == "text");
    texts.map(|frame| frame["payload"]["text"].as_str().unwrap()).collect()
}

async fn e3_two_clients_hear_the_same_also_when_one_is_cut_off(wire: ProviderProtocol) {
    let house = TestServerBuilder::with_script(wire, STORY).start().await;
    let session = house.create_session_at(1).await;
    let mut cut = house.subscribe(&session, "0").await;
    let mut steady = house.subscribe(&session, "0").await;
    let run = house.chat(&session, "tell me a story").await;
    let mut before = cut.read_text(70).await;
    drop((cut, run));
    let place = before.last().unwrap().cursor.clone();
    assert!(place.contains('.'), "inside the message: {place}");
    let mut resumed = house.subscribe_with_last_event_id(&session, &place).await;
    before.extend(resumed.read_until("done").await);
    let steady = steady.read_until("done").await;

    let text = last_message_text(&steady);
    assert!(text.len() > 600, "{text}");
    assert_eq!(streamed_text(&steady), text);
    assert_eq!(streamed_text(&before), text, "nothing twice, nothing missing");
    let events = |frames: &[Frame]| -> Vec<Value> {
        let whole = frames.iter().filter(|frame| frame.kind() != "text");
        whole.map(|frame| frame.data.clone()).collect()
    };
    assert_eq!(events(&before), events(&steady));
    let offsets = steady.iter().filter(|frame| frame.kind() == "text");
    let mut spoken = 0;
    for frame in offsets {
        spoken += frame.text("text").len();
        assert_eq!(frame.cursor.split_once('.').unwrap().1, spoken.to_string(), "UTF-8 bytes");
    }
    // Once more from the same place, now that the message is finished; and over a WebSocket.
    let rest = text.strip_prefix(&text_up_to(&steady, &place)).unwrap().to_owned();
    let again = house.subscribe_with_last_event_id(&session, &place).await.read_until("done").await;
    assert_eq!(streamed_text(&again), rest);
    let path = format!("/agent/stream/{session}?after={place}");
    let over = house.socket(&path).await.read_until("done").await;
    assert_eq!(socket_text(&over), rest);
    assert_eq!(socket_text(&over[..1]).is_empty(), over[0]["type"] != "text");
}

/// What had been said at that cursor.
fn text_up_to(frames: &[Frame], place: &str) -> String {
    let offset: usize = place.split_once('.').unwrap().1.parse().unwrap();
    streamed_text(frames)[..offset].to_owned()
}

#[actix_web::test]
async fn e3_a_live_message_is_resumed_over_a_websocket() {
    let house = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STORY).start().await;
    let session = house.create_session_at(1).await;
    let mut run = house.chat(&session, "story").await;
    let heard = run.read_text(50).await;
    let place = &heard.last().unwrap().cursor;
    let mut socket = house.socket(&format!("/agent/stream/{session}?after={place}")).await;
    let rest = socket.read_until("done").await;
    let text = rest.iter().find(|frame| frame["type"] == "message_completed").unwrap();
    let text = text["payload"]["text"].as_str().unwrap();
    assert_eq!(format!("{}{}", streamed_text(&heard), socket_text(&rest)), text);
    for frame in &rest {
        for key in
            ["type", "session_id", "plan_id", "step_index", "payload", "timestamp", "seq", "cursor"]
        {
            assert!(frame.get(key).is_some(), "{key} of {frame}");
        }
    }
}

/// Text aside, since it is not stored.
async fn replayed(house: &TestServer, session: &str) -> Vec<Value> {
    let frames = house.subscribe(session, "0").await.read_until("done").await;
    assert!(frames.iter().all(|frame| !frame.cursor.is_empty()), "{}", format_frames(&frames));
    frames.into_iter().filter(|frame| frame.kind() != "text").map(|frame| frame.data).collect()
}

#[actix_web::test]
async fn e2_pages_and_both_transports_tell_the_same() {
    let house = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("list_bookmarks", "{}"),
    )
    .start()
    .await;
    let session = house.create_session_at(1).await;
    house.chat_to_end(&session, "go").await;
    let pages = house.events(&session).await;
    let seqs: Vec<_> = pages.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=pages.len() as u64).collect::<Vec<_>>());
    assert_eq!(replayed(&house, &session).await, pages);
    let over = house.socket(&format!("/agent/stream/{session}")).await.read_until("done").await;
    let over: Vec<_> = over.iter().filter(|frame| frame["type"] != "text").collect();
    assert_eq!(over.len(), pages.len());
    for (frame, event) in over.iter().zip(&pages) {
        assert_eq!((&frame["type"], &frame["seq"]), (&event["type"], &event["seq"]));
        assert_eq!(frame["timestamp"], event["at"]);
        for (key, value) in frame["payload"].as_object().unwrap() {
            // These two stand before a plan in a frame only.
            if !["purpose", "tool_count"].contains(&key.as_str()) {
                assert_eq!(event[key], *value, "{key} of {event}");
            }
        }
    }
    // From each place on, each hears the rest.
    for (after, expected) in pages.iter().enumerate() {
        let rest = house.subscribe(&session, &after.to_string()).await.read_until("done").await;
        let first = rest.iter().find(|frame| frame.kind() != "text").unwrap();
        assert_eq!(first.data, *expected);
    }
}

#[actix_web::test]
async fn e2_an_administrator_hears_all_sessions() {
    let house = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let request = house.request(reqwest::Method::GET, "/admin/events");
    let mut all = house.stream(request).await;
    let (one, two) = (house.create_session_at(1).await, house.create_session_at(1).await);
    house.chat_to_end(&one, "hello").await;
    house.chat_to_end(&two, "hello").await;
    let mut frames = all.read_until("done").await;
    frames.extend(all.read_until("done").await);
    for session in [one, two] {
        assert!(frames.iter().any(|frame| frame.text("session_id") == session), "{session}");
    }
}
