//! Checks what subscribers received: every event of the log once and in order, and every fragment of
//! an open message once, also across a reconnect inside it.

use super::{Report, Rule, text};
use crate::history::{Frame, History, SubscriberLog};
use serde_json::Value;

pub(super) fn check(history: &History, report: &mut Report) {
    for subscriber in &history.subscriber_logs {
        let log: &[Value] =
            history.sessions.get(&subscriber.session).map_or(&[], |session| &session.events);
        let mut checker = StreamChecker { subscriber_log: subscriber, next: 1, message: None };
        for frame in &subscriber.frames {
            checker.check_frame(frame, log, report);
        }
        let (received, logged) = (checker.next - 1, log.len() as u64);
        report.check(received >= logged, Rule::ReceivedIsComplete, || {
            format!("{} received {received} of {logged} events", subscriber.name)
        });
        for rejection in &subscriber.rejected_cursors {
            report.check(false, Rule::ReceivedIsLogged, || {
                format!("{} was rejected with a cursor of the server: {rejection}", subscriber.name)
            });
        }
    }
}

struct StreamChecker<'a> {
    subscriber_log: &'a SubscriberLog,
    /// The `seq` of the next event.
    next: u64,
    /// The received text of the open message.
    message: Option<String>,
}

impl StreamChecker<'_> {
    fn check_frame(&mut self, frame: &Frame, log: &[Value], report: &mut Report) {
        let name = &self.subscriber_log.name;
        let seq = frame.data["seq"].as_u64();
        let (cursor_seq, offset) = match frame.cursor.split_once('.') {
            Some((cursor_seq, offset)) => (cursor_seq, offset.parse().unwrap_or(usize::MAX)),
            None => (frame.cursor.as_str(), 0),
        };
        let is_consistent = cursor_seq.parse().ok() == seq;
        report.check(is_consistent, Rule::ReceivedIsComplete, || {
            format!("{name}: wrong cursor in {frame:?}")
        });
        if text(&frame.data, "type") == "text" {
            let payload = if frame.is_websocket { &frame.data["payload"] } else { &frame.data };
            let message = self.message.get_or_insert_default();
            message.push_str(text(payload, "text"));
            let is_next = seq == Some(self.next - 1) && message.len() == offset;
            report.check(is_next, Rule::ReceivedIsComplete, || {
                format!("{name} has {} bytes after event {} at {frame:?}", offset, self.next - 1)
            });
            return;
        }
        report.check(seq == Some(self.next), Rule::ReceivedIsComplete, || {
            format!("{name} expects event {} and received {frame:?}", self.next)
        });
        self.next = seq.unwrap_or(self.next) + 1;
        let logged = seq.and_then(|seq| log.get(usize::try_from(seq).ok()?.checked_sub(1)?));
        let is_logged = logged.is_some_and(|event| is_same_event(frame, event));
        report.check(is_logged, Rule::ReceivedIsLogged, || {
            format!(
                "{name} received {} and the log has {}",
                frame.data,
                logged.unwrap_or(&Value::Null)
            )
        });
        self.check_message_text(frame, report);
    }

    /// Checks that the fragments add up to the message.
    fn check_message_text(&mut self, frame: &Frame, report: &mut Report) {
        let payload = if frame.is_websocket { &frame.data["payload"] } else { &frame.data };
        match text(&frame.data, "type") {
            "message_started" => self.message = Some(String::new()),
            "message_discarded" => self.message = None,
            "message_completed" => {
                let received = self.message.take().unwrap_or_default();
                report.check(received == text(payload, "text"), Rule::ReceivedIsComplete, || {
                    format!("{} received {received:?} of {payload}", self.subscriber_log.name)
                });
            }
            _ => {}
        }
    }
}

/// Returns true if a frame equals the event in the log.
fn is_same_event(frame: &Frame, logged: &Value) -> bool {
    if !frame.is_websocket {
        return frame.data == *logged;
    }
    let is_same_field = |key: &str| frame.data[key] == logged[key];
    let payload = frame.data["payload"].as_object();
    let has_value = |(key, value): (&String, &Value)| {
        // Only WebSocket frames repeat these two fields before the plan.
        ["purpose", "tool_count"].contains(&key.as_str()) || logged[key] == *value
    };
    is_same_field("type")
        && is_same_field("seq")
        && is_same_field("session_id")
        && frame.data["timestamp"] == logged["at"]
        && payload.is_some_and(|payload| payload.iter().all(has_value))
}
