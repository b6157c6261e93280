//! What a listener must have been told: every event of the log once, in order, as it stands there;
//! and every piece of an open message once, also where it reconnected in its middle.

use super::{Report, Rule, text};
use crate::history::{Frame, History, SubscriberLog};
use serde_json::Value;

pub(super) fn check(history: &History, report: &mut Report) {
    for hearing in &history.subscriber_logs {
        let log: &[Value] =
            history.sessions.get(&hearing.session).map_or(&[], |session| &session.events);
        let mut ear = StreamChecker { subscriber_log: hearing, next: 1, message: None };
        for frame in &hearing.frames {
            ear.check_frame(frame, log, report);
        }
        let (heard, said) = (ear.next - 1, log.len() as u64);
        report.check(heard >= said, Rule::ReceivedIsComplete, || {
            format!("{} heard {heard} of {said} events", hearing.who)
        });
        for refusal in &hearing.rejected_cursors {
            report.check(false, Rule::ReceivedIsLogged, || {
                format!("{} was refused its own cursor: {refusal}", hearing.who)
            });
        }
    }
}

struct StreamChecker<'a> {
    subscriber_log: &'a SubscriberLog,
    /// The number of the event that must come next.
    next: u64,
    /// The text of the open message, as it was heard.
    message: Option<String>,
}

impl StreamChecker<'_> {
    fn check_frame(&mut self, frame: &Frame, log: &[Value], report: &mut Report) {
        let who = &self.subscriber_log.who;
        let seq = frame.data["seq"].as_u64();
        let (place, offset) = match frame.cursor.split_once('.') {
            Some((place, offset)) => (place, offset.parse().unwrap_or(usize::MAX)),
            None => (frame.cursor.as_str(), 0),
        };
        let agrees = place.parse().ok() == seq;
        report.check(agrees, Rule::ReceivedIsComplete, || format!("{who}: a cursor of {frame:?}"));
        if text(&frame.data, "type") == "text" {
            let piece = if frame.is_websocket { &frame.data["payload"] } else { &frame.data };
            let message = self.message.get_or_insert_default();
            message.push_str(text(piece, "text"));
            let whole = seq == Some(self.next - 1) && message.len() == offset;
            report.check(whole, Rule::ReceivedIsComplete, || {
                format!("{who} has {} bytes after event {} at {frame:?}", offset, self.next - 1)
            });
            return;
        }
        report.check(seq == Some(self.next), Rule::ReceivedIsComplete, || {
            format!("{who} expects event {} and hears {frame:?}", self.next)
        });
        self.next = seq.unwrap_or(self.next) + 1;
        let logged = seq.and_then(|seq| log.get(usize::try_from(seq).ok()?.checked_sub(1)?));
        let same = logged.is_some_and(|logged| is_same(frame, logged));
        report.check(same, Rule::ReceivedIsLogged, || {
            format!(
                "{who} heard {} and the log says {}",
                frame.data,
                logged.unwrap_or(&Value::Null)
            )
        });
        self.check_message_text(frame, report);
    }

    /// Its pieces add up to the message.
    fn check_message_text(&mut self, frame: &Frame, report: &mut Report) {
        let payload = if frame.is_websocket { &frame.data["payload"] } else { &frame.data };
        match text(&frame.data, "type") {
            "message_started" => self.message = Some(String::new()),
            "message_discarded" => self.message = None,
            "message_completed" => {
                let heard = self.message.take().unwrap_or_default();
                report.check(heard == text(payload, "text"), Rule::ReceivedIsComplete, || {
                    format!("{} heard {heard:?} of {payload}", self.subscriber_log.who)
                });
            }
            _ => {}
        }
    }
}

/// Whether a frame says what the log says.
fn is_same(frame: &Frame, logged: &Value) -> bool {
    if !frame.is_websocket {
        return frame.data == *logged;
    }
    let same = |key: &str| frame.data[key] == logged[key];
    let payload = frame.data["payload"].as_object();
    let says_it = |(key, value): (&String, &Value)| {
        // These two stand before a plan in a frame only.
        ["purpose", "tool_count"].contains(&key.as_str()) || logged[key] == *value
    };
    same("type")
        && same("seq")
        && same("session_id")
        && frame.data["timestamp"] == logged["at"]
        && payload.is_some_and(|payload| payload.iter().all(says_it))
}
