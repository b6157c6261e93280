//! What clients say over the WebSockets of sessions, and how they are answered. Pure.

use super::{Problem, answers::AnswerRequest, commands::MessageRequest, extract};
use greenroom_core::{
    cursor::Cursor,
    ids::{ApprovalId, RunId, SessionId},
};
use serde::{Deserialize, de::DeserializeOwned};
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
pub(super) enum StreamRequest {
    /// Stream this session, too.
    Subscribe { session_id: Option<SessionId>, after: Cursor },
    /// Stop streaming it.
    Unsubscribe { session_id: Option<SessionId> },
    /// Stream the committed events of all sessions from now on (administrators).
    Watch,
    /// Stop that.
    Unwatch,
    /// Submit a message.
    Send { session_id: Option<SessionId>, message: MessageRequest },
    /// Cancel a run.
    Cancel { session_id: Option<SessionId>, run_id: Option<RunId> },
    /// Answer a question.
    Decide { approval_id: ApprovalId, answer: AnswerRequest },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subscribe {
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(default)]
    after: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel {
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(default)]
    run_id: Option<RunId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decide {
    #[serde(alias = "plan_id")]
    approval_id: ApprovalId,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionParam {
    #[serde(default)]
    session_id: Option<SessionId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

impl<R> ClientFrame<R> {
    /// Reads a frame, whose members are read by `request`. Nonsense is a problem to answer with,
    /// never a reason to hang up.
    pub(super) fn parse(
        text: &str,
        request: impl FnOnce(Map<String, Value>) -> Result<R, Problem>,
    ) -> Self {
        let map: Map<String, Value> = match extract::parse_json(text.as_bytes()) {
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

/// Reads the members of a frame. One that is not known is a problem: it may be a misspelt other.
pub(super) fn parse_request(mut map: Map<String, Value>) -> Result<StreamRequest, Problem> {
    map.remove("id");
    let Some(Value::String(kind)) = map.remove("type") else {
        return Err(Problem::invalid("type", "a frame must have a `type`"));
    };
    match kind.as_str() {
        "subscribe" => {
            let Subscribe { session_id, after } = members(map)?;
            let after = match after {
                None | Some(Value::Null) => Cursor::default(),
                Some(Value::String(after)) => after.parse()?,
                Some(Value::Number(after)) if after.is_u64() => after.to_string().parse()?,
                // 5.10 is 5.1 as a number.
                Some(Value::Number(_) | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
                    return Err(greenroom_core::cursor::InvalidCursor.into());
                }
            };
            Ok(StreamRequest::Subscribe { session_id, after })
        }
        "unsubscribe" => {
            let SessionParam { session_id } = members(map)?;
            Ok(StreamRequest::Unsubscribe { session_id })
        }
        "watch" => members(map).map(|NoParams {}| StreamRequest::Watch),
        "unwatch" => members(map).map(|NoParams {}| StreamRequest::Unwatch),
        "send" => {
            let SessionParam { session_id } = members(split_members(&mut map, &["session_id"]))?;
            Ok(StreamRequest::Send { session_id, message: members(map)? })
        }
        "cancel" => {
            let Cancel { session_id, run_id } = members(map)?;
            Ok(StreamRequest::Cancel { session_id, run_id })
        }
        "decide" => {
            let own = split_members(&mut map, &["approval_id", "plan_id"]);
            let Decide { approval_id } = members(own)?;
            Ok(StreamRequest::Decide { approval_id, answer: members(map)? })
        }
        other => Err(unknown_type(&other.chars().take(32).collect::<String>())),
    }
}

fn members<T: DeserializeOwned>(map: Map<String, Value>) -> Result<T, Problem> {
    extract::deserialize_value(Value::Object(map))
}

/// The members of those names, taken out of `map`.
fn split_members(map: &mut Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    names.iter().filter_map(|name| map.remove_entry(*name)).collect()
}

/// 400: there is no frame of that type.
pub(super) fn unknown_type(kind: &str) -> Problem {
    let detail = format!("there is no frame of type `{kind}`");
    Problem::bad_request("unknown_type", detail).with("field", "type")
}

/// The answer to a frame that was carried out; `fields` must be an object.
pub(super) fn ack(id: Option<&Value>, fields: Value) -> String {
    answer_frame("ack", id, fields)
}

/// The answer to a frame that was not.
pub(super) fn error(id: Option<&Value>, problem: &Problem) -> String {
    answer_frame("error", id, problem.to_json())
}

fn answer_frame(kind: &str, id: Option<&Value>, mut fields: Value) -> String {
    fields["type"] = json!(kind);
    fields["id"] = id.cloned().unwrap_or_default();
    fields.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "0198c0de-0000-7000-8000-000000000001";

    fn read(value: Value) -> ClientFrame<StreamRequest> {
        ClientFrame::parse(&value.to_string(), parse_request)
    }

    #[test]
    fn frames_are_read() {
        let session = SESSION.parse().unwrap();
        let frame =
            read(json!({"type": "subscribe", "id": 7, "session_id": SESSION, "after": "7.3"}));
        assert_eq!(frame.id, Some(json!(7)));
        assert!(matches!(frame.request.unwrap(),
            StreamRequest::Subscribe { session_id: Some(found), after }
                if found == session && after.to_string() == "7.3"));
        let frame = read(json!({"type": "subscribe", "after": 12}));
        assert!(matches!(frame.request.unwrap(),
            StreamRequest::Subscribe { session_id: None, after } if after.seq.0 == 12));
        let frame = read(json!({"type": "send", "session_id": SESSION, "message": "hi",
            "message_id": "m-1", "on_busy": "reject"}));
        assert!(matches!(frame.request.unwrap(),
            StreamRequest::Send { message, .. } if message.message == "hi"));
        let frame = read(json!({"type": "decide", "plan_id": SESSION, "decision": "approve"}));
        assert!(matches!(frame.request.unwrap(), StreamRequest::Decide { .. }));
        assert!(matches!(read(json!({"type": "watch"})).request.unwrap(), StreamRequest::Watch));
        assert!(matches!(
            read(json!({"type": "unwatch"})).request.unwrap(),
            StreamRequest::Unwatch
        ));
        let frame = read(json!({"type": "cancel"}));
        assert!(matches!(
            frame.request.unwrap(),
            StreamRequest::Cancel { session_id: None, run_id: None }
        ));
    }

    #[test]
    fn what_a_frame_has_not_is_named() {
        for (frame, field) in [
            (json!({"type": "subscribe", "afterr": 7}), "afterr"),
            (json!({"type": "unsubscribe", "sesion_id": SESSION}), "sesion_id"),
            (json!({"type": "watch", "session_id": SESSION}), "session_id"),
            (json!({"type": "unwatch", "all": true}), "all"),
            (json!({"type": "send", "message": "hi", "preflite": true}), "preflite"),
            (json!({"type": "cancel", "run": SESSION}), "run"),
            (json!({"type": "decide", "plan_id": SESSION, "decison": "reject"}), "decison"),
            (
                json!({"type": "decide", "plan_id": SESSION, "steps": [{"call_id": SESSION, "argumnets": {}}]}),
                "steps[0].argumnets",
            ),
        ] {
            let problem = read(frame.clone()).request.unwrap_err().to_json();
            let found = (&problem["status"], &problem["field"]);
            assert_eq!(found, (&json!(422), &json!(field)), "{frame}: {problem}");
        }
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
            (r#"{"id": 5, "type": "subscribe", "after": 5.10}"#, "cursor_invalid", json!(5)),
            (r#"{"id": {"a": 1}, "type": "decide"}"#, "invalid_request", json!(null)),
            (r#"{"type": "send", "message": 1}"#, "invalid_request", json!(null)),
            (r#"{"type": "watch", "id": 6, "all": true}"#, "invalid_request", json!(6)),
        ] {
            let frame = ClientFrame::parse(text, parse_request);
            let problem = frame.request.unwrap_err();
            let answer: Value = serde_json::from_str(&error(frame.id.as_ref(), &problem)).unwrap();
            assert_eq!((&answer["code"], &answer["id"]), (&json!(code), &id), "{text}");
            assert_eq!(answer["type"], "error");
        }
    }
}
