//! Following a session: the same from any cursor, over any transport (E2, E3).

use crate::{
    harness::{House, Setup},
    scripts::{STORY, calls},
    stream::{Frame, answer, said, told},
};
use greenroom::rehearsal::Wire;
use serde_json::Value;

on_both_wires!(e3_two_clients_hear_the_same_also_when_one_is_cut_off);

/// Text of the frames of a socket, of one message.
fn said_over(frames: &[Value]) -> String {
    let texts = frames.iter().filter(|frame| frame["type"] == "text");
    texts.map(|frame| frame["payload"]["text"].as_str().unwrap()).collect()
}

async fn e3_two_clients_hear_the_same_also_when_one_is_cut_off(wire: Wire) {
    let house = Setup::script(wire, STORY).start().await;
    let session = house.session_at(1).await;
    let mut cut = house.follow(&session, "0").await;
    let mut steady = house.follow(&session, "0").await;
    let run = house.chat(&session, "tell me a story").await;
    let mut before = cut.until_text(70).await;
    drop((cut, run));
    let place = before.last().unwrap().cursor.clone();
    assert!(place.contains('.'), "inside the message: {place}");
    let mut resumed = house.resume(&session, &place).await;
    before.extend(resumed.until("done").await);
    let steady = steady.until("done").await;

    let text = answer(&steady);
    assert!(text.len() > 600, "{text}");
    assert_eq!(said(&steady), text);
    assert_eq!(said(&before), text, "nothing twice, nothing missing");
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
    let rest = text.strip_prefix(&said_until(&steady, &place)).unwrap().to_owned();
    let again = house.resume(&session, &place).await.until("done").await;
    assert_eq!(said(&again), rest);
    let path = format!("/agent/stream/{session}?after={place}");
    let over = house.socket(&path).await.until("done").await;
    assert_eq!(said_over(&over), rest);
    assert_eq!(said_over(&over[..1]).is_empty(), over[0]["type"] != "text");
}

/// What had been said at that cursor.
fn said_until(frames: &[Frame], place: &str) -> String {
    let offset: usize = place.split_once('.').unwrap().1.parse().unwrap();
    said(frames)[..offset].to_owned()
}

#[actix_web::test]
async fn e3_a_live_message_is_resumed_over_a_websocket() {
    let house = Setup::script(Wire::OpenAi, STORY).start().await;
    let session = house.session_at(1).await;
    let mut run = house.chat(&session, "story").await;
    let heard = run.until_text(50).await;
    let place = &heard.last().unwrap().cursor;
    let mut socket = house.socket(&format!("/agent/stream/{session}?after={place}")).await;
    let rest = socket.until("done").await;
    let text = rest.iter().find(|frame| frame["type"] == "message_completed").unwrap();
    let text = text["payload"]["text"].as_str().unwrap();
    assert_eq!(format!("{}{}", said(&heard), said_over(&rest)), text);
    for frame in &rest {
        for key in
            ["type", "session_id", "plan_id", "step_index", "payload", "timestamp", "seq", "cursor"]
        {
            assert!(frame.get(key).is_some(), "{key} of {frame}");
        }
    }
}

/// Text aside, since it is not stored.
async fn replayed(house: &House, session: &str) -> Vec<Value> {
    let frames = house.follow(session, "0").await.until("done").await;
    assert!(frames.iter().all(|frame| !frame.cursor.is_empty()), "{}", told(&frames));
    frames.into_iter().filter(|frame| frame.kind() != "text").map(|frame| frame.data).collect()
}

#[actix_web::test]
async fn e2_pages_and_both_transports_tell_the_same() {
    let house = Setup::script(Wire::Anthropic, &calls("list_bookmarks", "{}")).start().await;
    let session = house.session_at(1).await;
    house.say(&session, "go").await;
    let pages = house.events(&session).await;
    let seqs: Vec<_> = pages.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=pages.len() as u64).collect::<Vec<_>>());
    assert_eq!(replayed(&house, &session).await, pages);
    let over = house.socket(&format!("/agent/stream/{session}")).await.until("done").await;
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
        let rest = house.follow(&session, &after.to_string()).await.until("done").await;
        let first = rest.iter().find(|frame| frame.kind() != "text").unwrap();
        assert_eq!(first.data, *expected);
    }
}

#[actix_web::test]
async fn e2_an_administrator_hears_all_sessions() {
    let house = Setup::tour(Wire::Anthropic).start().await;
    let request = house.request(reqwest::Method::GET, "/admin/events");
    let mut all = house.stream(request).await;
    let (one, two) = (house.session_at(1).await, house.session_at(1).await);
    house.say(&one, "hello").await;
    house.say(&two, "hello").await;
    let mut frames = all.until("done").await;
    frames.extend(all.until("done").await);
    for session in [one, two] {
        assert!(frames.iter().any(|frame| frame.text("session_id") == session), "{session}");
    }
}
