//! The front end for programs: JSON lines in and out, in the frames of the gateway dialect.
//!
//! Frames of the server are printed unchanged to standard output, one per line. A line of standard
//! input that is a JSON object is a frame; missing `type`, `id` and `sessionId` are added. Any other
//! line is a message. A lost connection is reconnected automatically.

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

/// The session, the open requests and the overall result.
struct RequestTracker {
    session: Option<String>,
    /// The open requests; each with its run id once the run has started.
    open_requests: BTreeMap<String, Option<String>>,
    failed: bool,
}

/// Runs the front end until standard input has ended and no request is open.
pub(super) async fn run(
    setup: ChatSetup,
    single_message: Option<String>,
    resumed: Vec<ResumedRequest>,
) -> anyhow::Result<ExitCode> {
    let ChatSetup { client, mut connection, machine, agent, no_wait } = setup;
    let mut tracker = RequestTracker {
        session: machine.session().map(str::to_owned),
        open_requests: BTreeMap::new(),
        failed: false,
    };
    for (id, content) in resumed {
        let session = tracker.session.clone();
        connection
            .send(tracker.track_sent(chat_send_frame(&id, session.as_deref(), &content)))
            .await;
    }
    let mut input = match single_message {
        Some(message) => {
            let (sender, receiver) = tokio::sync::mpsc::channel(1);
            sender.send(message).await?;
            receiver
        }
        None => stdin_lines(),
    };
    let mut is_open = true;
    let mut interrupted = signal(SignalKind::interrupt())?;
    // `cancelled`: interrupted once. `cancel_pending`: the cancellation is not sent yet, since no
    // run id is known.
    let (mut cancelled, mut cancel_pending) = (false, false);
    while is_open || !tracker.open_requests.is_empty() {
        if let (true, Some(path)) = (cancel_pending, tracker.cancel_path()) {
            // An error means that there is no run to cancel.
            client.post(&path, &json!({})).await.unwrap_or_default();
            cancel_pending = false;
        }
        tokio::select! {
            line = input.recv(), if is_open => match line {
                Some(line) if line.trim().is_empty() => {}
                Some(line) => match parse_line(&line) {
                    Ok(frame) => {
                        if let (None, Some(agent)) = (&tracker.session, &agent) {
                            tracker.session = Some(create_session(&client, agent).await?);
                        }
                        connection.send(tracker.complete_frame(frame)).await;
                    }
                    Err(error) => {
                        print(&format!("{error}\n"))?;
                        tracker.failed = true;
                    }
                },
                None => is_open = false,
            },
            event = connection.next() => match event {
                Some(ConnectionEvent::Frame(frame)) => {
                    print(&format!("{frame}\n"))?;
                    let needs_approval = tracker.track_received(&frame);
                    if needs_approval && no_wait {
                        return Ok(ExitCode::from(EXIT_APPROVAL_PENDING));
                    }
                }
                Some(ConnectionEvent::Lost { reason, .. }) => {
                    print(&format!("{}\n", json!({"type": "connection.lost", "message": reason})))?;
                }
                Some(ConnectionEvent::Reconnected) => print(&format!("{}\n", json!({"type": "connection.back"})))?,
                Some(ConnectionEvent::Refused(reason)) => {
                    anyhow::bail!("the server refused the connection: {reason}")
                }
                None => return Ok(ExitCode::from(EXIT_FAILED)),
            },
            _ = interrupted.recv() => {
                if std::mem::replace(&mut cancelled, true) || tracker.open_requests.is_empty() {
                    return Ok(ExitCode::from(EXIT_INTERRUPTED));
                }
                cancel_pending = true;
            }
        }
    }
    Ok(ExitCode::from(if tracker.failed { EXIT_FAILED } else { 0 }))
}

/// Parses a line as a frame, or returns an `error` frame like the server's. Invalid frames are
/// rejected here, since they open no request and the command may exit before the server answers.
pub(super) fn parse_line(line: &str) -> Result<Map<String, Value>, Value> {
    let map = serde_json::from_str::<Map<String, Value>>(line);
    let mut frame = map.unwrap_or_else(|_| Map::from_iter([("content".into(), line.into())]));
    if !frame.contains_key("type") {
        frame.insert("type".into(), "chat.send".into());
    }
    // The `id` of `chat.cancel` is that of another request.
    let is_cancel = frame.get("type").is_some_and(|kind| kind == "chat.cancel");
    if !is_cancel && !frame.contains_key("id") {
        frame.insert("id".into(), Uuid::new_v4().to_string().into());
    }
    let decoded = decode(frame.clone());
    decoded.map(|_| frame.clone()).map_err(|error| {
        let code = match error {
            ClientMessageError::UnknownType(_) => "unknown_type",
            ClientMessageError::MissingType
            | ClientMessageError::PositionedStep(_)
            | ClientMessageError::EmptyContent
            | ClientMessageError::Invalid(_) => "invalid_request",
        };
        json!({"type": "error", "requestId": frame.get("id"), "code": code, "message": error.to_string()})
    })
}

impl RequestTracker {
    /// Adds the session id to a `chat.send` frame and tracks the frame.
    fn complete_frame(&mut self, mut frame: Map<String, Value>) -> Value {
        let is_send = frame.get("type").is_some_and(|kind| kind == "chat.send");
        if let (true, false, Some(session)) =
            (is_send, frame.contains_key("sessionId"), &self.session)
        {
            frame.insert("sessionId".into(), session.clone().into());
        }
        self.track_sent(Value::Object(frame))
    }

    /// Returns the path that cancels the run, once a run is known.
    fn cancel_path(&self) -> Option<String> {
        let has_run = self.open_requests.values().any(Option::is_some);
        let session = self.session.as_deref().filter(|_| has_run)?;
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

    /// Updates the open requests from a frame. Returns true if the frame requests an approval.
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
                let is_temporary = ["server_draining", "draining", "stream_broken"].contains(&code);
                // A rejected request gets no `chat.stream.end`.
                if !is_temporary && self.open_requests.get(id).is_some_and(Option::is_none) {
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

    fn tracker() -> RequestTracker {
        RequestTracker { session: None, open_requests: BTreeMap::new(), failed: false }
    }

    #[test]
    fn lines_become_frames() {
        let mut tracker = tracker();
        let frame = tracker.complete_frame(parse_line("hello {there}").unwrap());
        assert_eq!(
            (&frame["type"], &frame["content"]),
            (&json!("chat.send"), &json!("hello {there}"))
        );
        let id = frame["id"].as_str().unwrap().to_owned();
        tracker.track_received(
            &json!({"type": "chat.stream.start", "requestId": id, "sessionId": "s", "runId": "r"}),
        );
        let frame =
            tracker.complete_frame(parse_line(r#"{"content": "more", "id": "m-1"}"#).unwrap());
        assert_eq!(
            frame,
            json!({"type": "chat.send", "content": "more", "id": "m-1", "sessionId": "s"})
        );
        let answer = json!({"type": "tool.approval.response", "toolCallId": ID, "approved": true});
        let frame = tracker.complete_frame(parse_line(&answer.to_string()).unwrap());
        assert_eq!((&frame["approved"], frame.get("sessionId")), (&json!(true), None));
        assert_eq!(tracker.open_requests.len(), 2);
        let cancel = json!({"type": "chat.cancel", "sessionId": ID});
        assert_eq!(Value::Object(parse_line(&cancel.to_string()).unwrap()), cancel);
    }

    #[test]
    fn invalid_frames_are_rejected_with_an_error_frame() {
        for (line, code, message) in [
            (r#"{"type": "explode", "id": "a"}"#, "unknown_type", "no frame of type `explode`"),
            (r#"{"content": 1, "id": "a"}"#, "invalid_request", "content: invalid type"),
            (r#"{"content": " ", "id": "a"}"#, "invalid_request", "`content`: must not be empty"),
            (r#"{"type": "preflight.approval", "id": "a"}"#, "invalid_request", "requestId"),
        ] {
            let error = parse_line(line).unwrap_err();
            assert_eq!(
                (&error["requestId"], &error["code"]),
                (&json!("a"), &json!(code)),
                "{error}"
            );
            assert!(error["message"].as_str().unwrap().contains(message), "{error}");
        }
    }

    #[test]
    fn s6_cancel_path_is_known_once_the_run_has_started() {
        let mut tracker = RequestTracker { session: Some("s".to_owned()), ..tracker() };
        tracker.complete_frame(parse_line(r#"{"content": "x", "id": "a"}"#).unwrap());
        assert_eq!(tracker.cancel_path(), None);
        tracker.track_received(
            &json!({"type": "chat.stream.start", "requestId": "a", "sessionId": "s", "runId": "r"}),
        );
        assert_eq!(tracker.cancel_path().as_deref(), Some("/agent/session/s/cancel"));
    }

    #[test]
    fn request_is_open_until_its_end_or_rejection() {
        let mut tracker = tracker();
        for id in ["a", "b"] {
            tracker.complete_frame(
                parse_line(&json!({"content": "x", "id": id}).to_string()).unwrap(),
            );
        }
        assert!(
            !tracker.track_received(
                &json!({"type": "error", "requestId": "a", "code": "session_closed"})
            )
        );
        assert!(tracker.failed && tracker.open_requests.contains_key("b"));
        tracker.track_received(
            &json!({"type": "chat.stream.start", "requestId": "b", "sessionId": "s", "runId": "r"}),
        );
        assert!(tracker.track_received(
            &json!({"type": "error", "requestId": "b", "code": "waiting_for_approval"})
        ));
        tracker.track_received(&json!({"type": "error", "requestId": "b", "code": "run_failed"}));
        tracker.track_received(
            &json!({"type": "chat.stream.end", "requestId": "b", "outcome": "completed"}),
        );
        assert!(tracker.open_requests.is_empty());
    }
}
