//! The chat for programs: JSON lines in and out, in the words of the gateway.
//!
//! What the server says goes to standard output as it is, a frame a line. A line of standard input that
//! is a JSON object is a frame to be sent, completed where `id` or `sessionId` are missing; any other
//! is a message. Connections that are lost come back by themselves, here too.

use super::{
    ChatSetup, EXIT_APPROVAL_PENDING, EXIT_FAILED, EXIT_INTERRUPTED, ResumedRequest,
    create_session,
    gateway_connection::{ConnectionEvent, chat_send_frame},
    plain::stdin_lines,
};
use crate::{
    cli::terminal::print,
    dialect::gateway::{ClientMessageError, decode},
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, process::ExitCode};
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

/// What is open, and what is known.
struct RequestTracker {
    session: Option<String>,
    /// The open requests, each with its run once it is known.
    open_requests: BTreeMap<String, Option<String>>,
    failed: bool,
}

/// Runs it until standard input is at its end and everything is answered.
pub(super) async fn run(
    setup: ChatSetup,
    once: Option<String>,
    going: Vec<ResumedRequest>,
) -> anyhow::Result<ExitCode> {
    let ChatSetup { client, mut link, conversation, agent, no_wait } = setup;
    let mut ledger = RequestTracker {
        session: conversation.session().map(str::to_owned),
        open_requests: BTreeMap::new(),
        failed: false,
    };
    for (id, content) in going {
        let session = ledger.session.clone();
        link.send(ledger.track_sent(chat_send_frame(&id, session.as_deref(), &content))).await;
    }
    let mut input = match once {
        Some(message) => {
            let (sender, receiver) = tokio::sync::mpsc::channel(1);
            sender.send(message).await?;
            receiver
        }
        None => stdin_lines(),
    };
    let mut is_open = true;
    let mut interrupted = signal(SignalKind::interrupt())?;
    // Interrupted; and that was not told to the server yet, because it has not said what it runs.
    let (mut cancelled, mut is_untold) = (false, false);
    while is_open || !ledger.open_requests.is_empty() {
        if let (true, Some(path)) = (is_untold, ledger.cancel_path()) {
            // That there is nothing to cancel is as good.
            client.post(&path, &json!({})).await.unwrap_or_default();
            is_untold = false;
        }
        tokio::select! {
            line = input.recv(), if is_open => match line {
                Some(line) if line.trim().is_empty() => {}
                Some(line) => match parse_line(&line) {
                    Ok(frame) => {
                        if let (None, Some(agent)) = (&ledger.session, &agent) {
                            ledger.session = Some(create_session(&client, agent).await?);
                        }
                        link.send(ledger.complete_frame(frame)).await;
                    }
                    Err(told) => {
                        print(&format!("{told}\n"))?;
                        ledger.failed = true;
                    }
                },
                None => is_open = false,
            },
            said = link.next() => match said {
                Some(ConnectionEvent::Frame(frame)) => {
                    print(&format!("{frame}\n"))?;
                    let asks = ledger.track_received(&frame);
                    if asks && no_wait {
                        return Ok(ExitCode::from(EXIT_APPROVAL_PENDING));
                    }
                }
                Some(ConnectionEvent::Lost { why, .. }) => {
                    print(&format!("{}\n", json!({"type": "connection.lost", "message": why})))?;
                }
                Some(ConnectionEvent::Reconnected) => print(&format!("{}\n", json!({"type": "connection.back"})))?,
                Some(ConnectionEvent::Refused(why)) => anyhow::bail!("the server refuses: {why}"),
                None => return Ok(ExitCode::from(EXIT_FAILED)),
            },
            _ = interrupted.recv() => {
                if std::mem::replace(&mut cancelled, true) || ledger.open_requests.is_empty() {
                    return Ok(ExitCode::from(EXIT_INTERRUPTED));
                }
                is_untold = true;
            }
        }
    }
    Ok(ExitCode::from(if ledger.failed { EXIT_FAILED } else { 0 }))
}

/// The frame that a line is; or why it is none, as a frame like the server's. Told here: what the server
/// says of what asks for nothing may come when nobody listens any more.
fn parse_line(line: &str) -> Result<Map<String, Value>, Value> {
    let map = serde_json::from_str::<Map<String, Value>>(line);
    let mut frame = map.unwrap_or_else(|_| Map::from_iter([("content".into(), line.into())]));
    if !frame.contains_key("type") {
        frame.insert("type".into(), "chat.send".into());
    }
    if !frame.contains_key("id") {
        frame.insert("id".into(), Uuid::new_v4().to_string().into());
    }
    let understood = decode(frame.clone());
    understood.map(|_| frame.clone()).map_err(|why| {
        let code = match why {
            ClientMessageError::UnknownType(_) => "unknown_type",
            ClientMessageError::MissingType | ClientMessageError::Invalid(_) => "invalid_request",
        };
        json!({"type": "error", "requestId": frame["id"], "code": code, "message": why.to_string()})
    })
}

impl RequestTracker {
    /// The frame, complete, and noted.
    fn complete_frame(&mut self, mut frame: Map<String, Value>) -> Value {
        let is_send = frame.get("type").is_some_and(|kind| kind == "chat.send");
        if let (true, false, Some(session)) =
            (is_send, frame.contains_key("sessionId"), &self.session)
        {
            frame.insert("sessionId".into(), session.clone().into());
        }
        self.track_sent(Value::Object(frame))
    }

    /// Where to cancel what runs, once the server has said that something does.
    fn cancel_path(&self) -> Option<String> {
        let runs = self.open_requests.values().any(Option::is_some);
        let session = self.session.as_deref().filter(|_| runs)?;
        Some(format!("/agent/session/{session}/cancel"))
    }

    fn track_sent(&mut self, frame: Value) -> Value {
        if frame["type"] == "chat.send"
            && let Some(id) = frame["id"].as_str()
        {
            self.open_requests.insert(id.to_owned(), None);
        }
        frame
    }

    /// Learns where requests stand; whether a person is asked.
    fn track_received(&mut self, frame: &Value) -> bool {
        let id = frame["requestId"].as_str().unwrap_or_default();
        match frame["type"].as_str().unwrap_or_default() {
            "chat.stream.start" => {
                self.session = frame["sessionId"].as_str().map(str::to_owned);
                let run_id = frame["runId"].as_str().unwrap_or_default().to_owned();
                self.open_requests.insert(id.to_owned(), Some(run_id));
            }
            "chat.stream.end" => {
                self.failed |= frame["outcome"] != "completed";
                self.open_requests.remove(id);
            }
            "tool.approval.request" | "preflight.checklist" => return true,
            "error" => {
                let code = frame["code"].as_str().unwrap_or_default();
                let passes = ["server_draining", "draining", "stream_broken"].contains(&code);
                // What was not taken does not come to an end by itself.
                if !passes && self.open_requests.get(id).is_some_and(Option::is_none) {
                    self.open_requests.remove(id);
                    self.failed = true;
                }
                return code == "waiting_for_approval";
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0198c0de-0000-7000-8000-000000000001";

    fn ledger() -> RequestTracker {
        RequestTracker { session: None, open_requests: BTreeMap::new(), failed: false }
    }

    #[test]
    fn lines_are_frames_or_messages() {
        let mut ledger = ledger();
        let said = ledger.complete_frame(parse_line("hello {there}").unwrap());
        assert_eq!(
            (&said["type"], &said["content"]),
            (&json!("chat.send"), &json!("hello {there}"))
        );
        let id = said["id"].as_str().unwrap().to_owned();
        ledger.track_received(
            &json!({"type": "chat.stream.start", "requestId": id, "sessionId": "s", "runId": "r"}),
        );
        let said =
            ledger.complete_frame(parse_line(r#"{"content": "more", "id": "m-1"}"#).unwrap());
        assert_eq!(
            said,
            json!({"type": "chat.send", "content": "more", "id": "m-1", "sessionId": "s"})
        );
        let word = json!({"type": "tool.approval.response", "toolCallId": ID, "approved": true});
        let said = ledger.complete_frame(parse_line(&word.to_string()).unwrap());
        assert_eq!((&said["approved"], said.get("sessionId")), (&json!(true), None));
        assert_eq!(ledger.open_requests.len(), 2);
    }

    #[test]
    fn what_is_no_frame_is_told_as_the_server_would() {
        for (line, code, why) in [
            (r#"{"type": "explode", "id": "a"}"#, "unknown_type", "no frame of type `explode`"),
            (r#"{"content": 1, "id": "a"}"#, "invalid_request", "content: invalid type"),
            (r#"{"type": "preflight.approval", "id": "a"}"#, "invalid_request", "requestId"),
        ] {
            let told = parse_line(line).unwrap_err();
            assert_eq!((&told["requestId"], &told["code"]), (&json!("a"), &json!(code)), "{told}");
            assert!(told["message"].as_str().unwrap().contains(why), "{told}");
        }
    }

    #[test]
    fn s6_there_is_something_to_cancel_once_the_server_has_answered() {
        let mut ledger = RequestTracker { session: Some("s".to_owned()), ..ledger() };
        ledger.complete_frame(parse_line(r#"{"content": "x", "id": "a"}"#).unwrap());
        assert_eq!(ledger.cancel_path(), None);
        ledger.track_received(
            &json!({"type": "chat.stream.start", "requestId": "a", "sessionId": "s", "runId": "r"}),
        );
        assert_eq!(ledger.cancel_path().as_deref(), Some("/agent/session/s/cancel"));
    }

    #[test]
    fn a_request_is_open_until_its_end_or_until_it_is_refused() {
        let mut ledger = ledger();
        for id in ["a", "b"] {
            ledger.complete_frame(
                parse_line(&json!({"content": "x", "id": id}).to_string()).unwrap(),
            );
        }
        assert!(
            !ledger.track_received(
                &json!({"type": "error", "requestId": "a", "code": "session_closed"})
            )
        );
        assert!(ledger.failed && ledger.open_requests.contains_key("b"));
        ledger.track_received(
            &json!({"type": "chat.stream.start", "requestId": "b", "sessionId": "s", "runId": "r"}),
        );
        assert!(ledger.track_received(
            &json!({"type": "error", "requestId": "b", "code": "waiting_for_approval"})
        ));
        ledger.track_received(&json!({"type": "error", "requestId": "b", "code": "run_failed"}));
        ledger.track_received(
            &json!({"type": "chat.stream.end", "requestId": "b", "outcome": "completed"}),
        );
        assert!(ledger.open_requests.is_empty());
    }
}
