//! What a listener must have been told: every event of the log once, in order, as it stands there;
//! and every piece of an open message once, also where it reconnected in its middle.

use super::{Report, Rule, text};
use crate::history::{Frame, Hearing, History};
use serde_json::Value;

pub(super) fn check(history: &History, report: &mut Report) {
    for hearing in &history.heard {
        let log: &[Value] =
            history.sessions.get(&hearing.session).map_or(&[], |session| &session.events);
        let mut ear = Ear { hearing, next: 1, message: None };
        for frame in &hearing.frames {
            ear.hear(frame, log, report);
        }
        let (heard, said) = (ear.next - 1, log.len() as u64);
        report.unless(heard >= said, Rule::HeardIsWhole, || {
            format!("{} heard {heard} of {said} events", hearing.who)
        });
        for refusal in &hearing.refusals {
            report.unless(false, Rule::HeardIsLogged, || {
                format!("{} was refused its own cursor: {refusal}", hearing.who)
            });
        }
    }
}

struct Ear<'a> {
    hearing: &'a Hearing,
    /// The number of the event that must come next.
    next: u64,
    /// The text of the open message, as it was heard.
    message: Option<String>,
}

impl Ear<'_> {
    fn hear(&mut self, frame: &Frame, log: &[Value], report: &mut Report) {
        let who = &self.hearing.who;
        let seq = frame.data["seq"].as_u64();
        let (place, offset) = match frame.cursor.split_once('.') {
            Some((place, offset)) => (place, offset.parse().unwrap_or(usize::MAX)),
            None => (frame.cursor.as_str(), 0),
        };
        let agrees = place.parse().ok() == seq;
        report.unless(agrees, Rule::HeardIsWhole, || format!("{who}: a cursor of {frame:?}"));
        if text(&frame.data, "type") == "text" {
            let piece = if frame.over_socket { &frame.data["payload"] } else { &frame.data };
            let message = self.message.get_or_insert_default();
            message.push_str(text(piece, "text"));
            let whole = seq == Some(self.next - 1) && message.len() == offset;
            report.unless(whole, Rule::HeardIsWhole, || {
                format!("{who} has {} bytes after event {} at {frame:?}", offset, self.next - 1)
            });
            return;
        }
        report.unless(seq == Some(self.next), Rule::HeardIsWhole, || {
            format!("{who} expects event {} and hears {frame:?}", self.next)
        });
        self.next = seq.unwrap_or(self.next) + 1;
        let logged = seq.and_then(|seq| log.get(usize::try_from(seq).ok()?.checked_sub(1)?));
        let same = logged.is_some_and(|logged| is_same(frame, logged));
        report.unless(same, Rule::HeardIsLogged, || {
            format!(
                "{who} heard {} and the log says {}",
                frame.data,
                logged.unwrap_or(&Value::Null)
            )
        });
        self.follow_message(frame, report);
    }

    /// Its pieces add up to the message.
    fn follow_message(&mut self, frame: &Frame, report: &mut Report) {
        let payload = if frame.over_socket { &frame.data["payload"] } else { &frame.data };
        match text(&frame.data, "type") {
            "message_started" => self.message = Some(String::new()),
            "message_discarded" => self.message = None,
            "message_completed" => {
                let heard = self.message.take().unwrap_or_default();
                report.unless(heard == text(payload, "text"), Rule::HeardIsWhole, || {
                    format!("{} heard {heard:?} of {payload}", self.hearing.who)
                });
            }
            _ => {}
        }
    }
}

/// Whether a frame says what the log says.
fn is_same(frame: &Frame, logged: &Value) -> bool {
    if !frame.over_socket {
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
