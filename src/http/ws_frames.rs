//! What clients say over the WebSockets of sessions, and how they are answered. Pure.

use super::{Problem, commands::Message, decisions::Answer, read};
use greenroom_core::{
    cursor::Cursor,
    ids::{ApprovalId, RunId, SessionId},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A client's frame, in whatever words.
#[derive(Debug)]
pub(super) struct ClientFrame<R> {
    /// Named in the answer, so that the client knows which it is.
    pub(super) id: Option<Value>,
    /// What is asked.
    pub(super) request: Result<R, Problem>,
}

/// What is asked. A session that is not named is the one of the address.
#[derive(Debug)]
pub(super) enum Request {
    /// Stream this session, too.
    Subscribe { session_id: Option<SessionId>, after: Cursor },
    /// Stop streaming it.
    Unsubscribe { session_id: Option<SessionId> },
    /// Stream the committed events of all sessions from now on (administrators).
    Watch,
    /// Stop that.
    Unwatch,
    /// Submit a message.
    Send { session_id: Option<SessionId>, message: Message },
    /// Cancel a run.
    Cancel { session_id: Option<SessionId>, run_id: Option<RunId> },
    /// Answer a question.
    Decide { approval_id: ApprovalId, answer: Answer },
}

#[derive(Deserialize)]
struct Subscribe {
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(default)]
    after: Option<Value>,
}

#[derive(Deserialize)]
struct Cancel {
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(default)]
    run_id: Option<RunId>,
}

#[derive(Deserialize)]
struct Decide {
    #[serde(alias = "plan_id")]
    approval_id: ApprovalId,
}

#[derive(Deserialize)]
struct OfSession {
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl<R> ClientFrame<R> {
    /// Reads a frame, whose members are read by `request`. Nonsense is a problem to answer with,
    /// never a reason to hang up.
    pub(super) fn parse(
        text: &str,
        request: impl FnOnce(Map<String, Value>) -> Result<R, Problem>,
    ) -> Self {
        let map: Map<String, Value> = match read::parse(text.as_bytes()) {
            Ok(map) => map,
            Err(problem) => return Self { id: None, request: Err(problem) },
        };
        // Only what can't be turned into a way to make us send a lot back.
        let id = map.get("id").filter(|id| match id {
            Value::String(id) => id.len() <= 128,
            Value::Number(_) => true,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        });
        Self { id: id.cloned(), request: request(map) }
    }
}

/// Reads the members of a frame.
pub(super) fn request(map: Map<String, Value>) -> Result<Request, Problem> {
    let kind = map.get("type").and_then(Value::as_str).map(str::to_owned);
    let missing = || Problem::invalid("type", "a frame must have a `type`");
    let kind = kind.ok_or_else(missing)?;
    let frame = Value::Object(map);
    match kind.as_str() {
        "subscribe" => {
            let Subscribe { session_id, after } = read::parse_value(frame)?;
            let after = match after {
                None | Some(Value::Null) => Cursor::default(),
                Some(Value::String(after)) => after.parse()?,
                Some(after @ Value::Number(_)) => after.to_string().parse()?,
                Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                    return Err(greenroom_core::cursor::InvalidCursor.into());
                }
            };
            Ok(Request::Subscribe { session_id, after })
        }
        "unsubscribe" => {
            let OfSession { session_id } = read::parse_value(frame)?;
            Ok(Request::Unsubscribe { session_id })
        }
        "watch" => Ok(Request::Watch),
        "unwatch" => Ok(Request::Unwatch),
        "send" => {
            let OfSession { session_id } = read::parse_value(frame.clone())?;
            Ok(Request::Send { session_id, message: read::parse_value(frame)? })
        }
        "cancel" => {
            let Cancel { session_id, run_id } = read::parse_value(frame)?;
            Ok(Request::Cancel { session_id, run_id })
        }
        "decide" => {
            let Decide { approval_id } = read::parse_value(frame.clone())?;
            Ok(Request::Decide { approval_id, answer: read::parse_value(frame)? })
        }
        other => Err(unknown_type(&other.chars().take(32).collect::<String>())),
    }
}

/// 400: there is no frame of that type.
pub(super) fn unknown_type(kind: &str) -> Problem {
    let detail = format!("there is no frame of type `{kind}`");
    Problem::bad_request("unknown_type", detail).with("field", "type")
}

/// The answer to a frame that was carried out; `fields` must be an object.
pub(super) fn ack(id: Option<&Value>, fields: Value) -> String {
    answer("ack", id, fields)
}

/// The answer to a frame that was not.
pub(super) fn error(id: Option<&Value>, problem: &Problem) -> String {
    answer("error", id, problem.to_json())
}

fn answer(kind: &str, id: Option<&Value>, mut fields: Value) -> String {
    fields["type"] = json!(kind);
    fields["id"] = id.cloned().unwrap_or_default();
    fields.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "0198c0de-0000-7000-8000-000000000001";

    fn read(value: Value) -> ClientFrame<Request> {
        ClientFrame::parse(&value.to_string(), request)
    }

    #[test]
    fn frames_are_read() {
        let session = SESSION.parse().unwrap();
        let frame =
            read(json!({"type": "subscribe", "id": 7, "session_id": SESSION, "after": "7.3"}));
        assert_eq!(frame.id, Some(json!(7)));
        assert!(matches!(frame.request.unwrap(),
            Request::Subscribe { session_id: Some(found), after }
                if found == session && after.to_string() == "7.3"));
        let frame = read(json!({"type": "subscribe", "after": 12}));
        assert!(matches!(frame.request.unwrap(),
            Request::Subscribe { session_id: None, after } if after.seq.0 == 12));
        let frame = read(json!({"type": "send", "session_id": SESSION, "message": "hi",
            "message_id": "m-1", "on_busy": "reject"}));
        assert!(matches!(frame.request.unwrap(),
            Request::Send { message, .. } if message.message == "hi"));
        let frame = read(json!({"type": "decide", "plan_id": SESSION, "decision": "approve"}));
        assert!(matches!(frame.request.unwrap(), Request::Decide { .. }));
        assert!(matches!(read(json!({"type": "watch"})).request.unwrap(), Request::Watch));
        assert!(matches!(read(json!({"type": "unwatch"})).request.unwrap(), Request::Unwatch));
        let frame = read(json!({"type": "cancel"}));
        assert!(matches!(
            frame.request.unwrap(),
            Request::Cancel { session_id: None, run_id: None }
        ));
    }

    #[test]
    fn garbage_is_answered_with_a_code_and_the_frames_own_id() {
        for (text, code, id) in [
            ("{", "malformed_json", json!(null)),
            ("[]", "invalid_request", json!(null)),
            (r#"{"id": "a"}"#, "invalid_request", json!("a")),
            (r#"{"id": "a", "type": "explode"}"#, "unknown_type", json!("a")),
            (r#"{"id": 5, "type": "subscribe", "session_id": "x"}"#, "invalid_request", json!(5)),
            (r#"{"id": 5, "type": "subscribe", "after": -1}"#, "cursor_invalid", json!(5)),
            (r#"{"id": {"a": 1}, "type": "decide"}"#, "invalid_request", json!(null)),
            (r#"{"type": "send", "message": 1}"#, "invalid_request", json!(null)),
        ] {
            let frame = ClientFrame::parse(text, request);
            let problem = frame.request.unwrap_err();
            let answer: Value = serde_json::from_str(&error(frame.id.as_ref(), &problem)).unwrap();
            assert_eq!((&answer["code"], &answer["id"]), (&json!(code), &id), "{text}");
            assert_eq!(answer["type"], "error");
        }
    }
}
