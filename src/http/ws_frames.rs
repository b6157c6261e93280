//! The client frames of the session WebSockets, and their `ack` and `error` frames. Pure.

use super::{
    Problem, answers::AnswerRequest, commands::MessageRequest, extract, queue::ChangeBody,
};
use greenroom_core::{
    cursor::StreamStart,
    ids::{ApprovalId, MessageId, RunId, SessionId},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

/// A client frame of any protocol.
#[derive(Debug)]
pub(super) struct ClientFrame<R> {
    /// The client's id of the frame, repeated in the response.
    pub(super) id: Option<Value>,
    /// The parsed request, or the problem to respond with.
    pub(super) request: Result<R, Problem>,
}

/// A request of a client. A frame without `session_id` refers to the session in the path.
#[derive(Debug)]
pub(super) enum StreamRequest {
    /// Streams the session.
    Subscribe { session_id: Option<SessionId>, after: StreamStart },
    /// Stops streaming the session.
    Unsubscribe { session_id: Option<SessionId> },
    /// Streams the committed events of all sessions from now on (administrators only).
    Watch,
    /// Stops streaming the events of all sessions.
    Unwatch,
    /// Submits a message.
    Send { session_id: Option<SessionId>, message: MessageRequest },
    /// Lists the queued messages.
    Queue { session_id: Option<SessionId> },
    /// Replaces the text of a queued message.
    QueueChange { session_id: Option<SessionId>, message_id: MessageId, change: ChangeBody },
    /// Withdraws a queued message.
    QueueWithdraw { session_id: Option<SessionId>, message_id: MessageId },
    /// Cancels a run.
    Cancel { session_id: Option<SessionId>, run_id: Option<RunId> },
    /// Answers an approval.
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
struct QueuedMessageParams {
    #[serde(default)]
    session_id: Option<SessionId>,
    message_id: MessageId,
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
    /// Parses a frame; `parse_members` parses its members. An invalid frame yields a problem to
    /// respond with and does not close the connection.
    pub(super) fn parse(
        text: &str,
        parse_members: impl FnOnce(Map<String, Value>) -> Result<R, Problem>,
    ) -> Self {
        let map: Map<String, Value> = match extract::parse_json(text.as_bytes()) {
            Ok(map) => map,
            Err(problem) => return Self { id: None, request: Err(problem) },
        };
        // Only short ids are repeated, so that small frames cannot cause large responses.
        let id = map.get("id").filter(|id| match id {
            Value::String(id) => id.len() <= 128,
            Value::Number(_) => true,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        });
        Self { id: id.cloned(), request: parse_members(map) }
    }
}

/// Parses the members of a frame. An unknown member is a problem, since it may be a misspelt one.
pub(super) fn parse_request(mut map: Map<String, Value>) -> Result<StreamRequest, Problem> {
    map.remove("id");
    let Some(Value::String(kind)) = map.remove("type") else {
        return Err(Problem::invalid("type", "missing field `type`"));
    };
    match kind.as_str() {
        "subscribe" => {
            let Subscribe { session_id, after } = members(map)?;
            let after = match after {
                None | Some(Value::Null) => StreamStart::default(),
                Some(Value::String(after)) => after.parse()?,
                Some(Value::Number(after)) if after.is_u64() => after.to_string().parse()?,
                // As a number, 5.10 equals 5.1.
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
        "queue" => {
            let SessionParam { session_id } = members(map)?;
            Ok(StreamRequest::Queue { session_id })
        }
        "queue_change" => {
            let own = split_members(&mut map, &["session_id", "message_id"]);
            let QueuedMessageParams { session_id, message_id } = members(own)?;
            Ok(StreamRequest::QueueChange { session_id, message_id, change: members(map)? })
        }
        "queue_withdraw" => {
            let QueuedMessageParams { session_id, message_id } = members(map)?;
            Ok(StreamRequest::QueueWithdraw { session_id, message_id })
        }
        "cancel" => {
            let Cancel { session_id, run_id } = members(map)?;
            Ok(StreamRequest::Cancel { session_id, run_id })
        }
        "decide" => {
            let approval_members = split_members(&mut map, &["approval_id", "plan_id"]);
            let Decide { approval_id } = members(approval_members)?;
            Ok(StreamRequest::Decide { approval_id, answer: members(map)? })
        }
        other => Err(unknown_type(&other.chars().take(32).collect::<String>())),
    }
}

fn members<T: DeserializeOwned>(map: Map<String, Value>) -> Result<T, Problem> {
    extract::deserialize_value(Value::Object(map))
}

/// Removes the members `names` from `map` and returns them.
fn split_members(map: &mut Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    names.iter().filter_map(|name| map.remove_entry(*name)).collect()
}

/// 400: unknown frame type.
pub(super) fn unknown_type(kind: &str) -> Problem {
    let detail = format!("unknown frame type `{kind}`");
    Problem::bad_request("unknown_type", detail).with_member("field", "type")
}

/// Returns the response to a frame that was handled; `fields` must be an object.
pub(super) fn ack(id: Option<&Value>, fields: Value) -> String {
    response_frame("ack", id, fields)
}

/// Returns the response to a frame that failed.
pub(super) fn error(id: Option<&Value>, problem: &Problem) -> String {
    response_frame("error", id, problem.to_json())
}

fn response_frame(kind: &str, id: Option<&Value>, mut fields: Value) -> String {
    fields["type"] = json!(kind);
    fields["id"] = id.cloned().unwrap_or_default();
    fields.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: &str = "0198c0de-0000-7000-8000-000000000001";

    fn parse(value: Value) -> ClientFrame<StreamRequest> {
        ClientFrame::parse(&value.to_string(), parse_request)
    }

    #[test]
    fn frames_are_parsed() {
        let session = SESSION.parse().unwrap();
        let frame =
            parse(json!({"type": "subscribe", "id": 7, "session_id": SESSION, "after": "7.3"}));
        assert_eq!(frame.id, Some(json!(7)));
        assert!(matches!(frame.request.unwrap(),
            StreamRequest::Subscribe { session_id: Some(found), after }
                if found == session && after == StreamStart::After("7.3".parse().unwrap())));
        let frame = parse(json!({"type": "subscribe", "after": 12}));
        assert!(matches!(frame.request.unwrap(),
            StreamRequest::Subscribe { session_id: None, after }
                if after == StreamStart::After("12".parse().unwrap())));
        let frame = parse(json!({"type": "subscribe", "after": "now"}));
        assert!(matches!(
            frame.request.unwrap(),
            StreamRequest::Subscribe { session_id: None, after: StreamStart::Now }
        ));
        let frame = parse(json!({"type": "send", "session_id": SESSION, "message": "hi",
            "message_id": "m-1", "on_busy": "reject"}));
        assert!(matches!(frame.request.unwrap(),
            StreamRequest::Send { message, .. } if message.message == "hi"));
        let frame = parse(json!({"type": "decide", "plan_id": SESSION, "decision": "approve"}));
        assert!(matches!(frame.request.unwrap(), StreamRequest::Decide { .. }));
        assert!(matches!(parse(json!({"type": "watch"})).request.unwrap(), StreamRequest::Watch));
        assert!(matches!(
            parse(json!({"type": "unwatch"})).request.unwrap(),
            StreamRequest::Unwatch
        ));
        let frame = parse(json!({"type": "queue_change", "message_id": "m", "message": "hi"}));
        assert!(matches!(
            frame.request.unwrap(),
            StreamRequest::QueueChange { session_id: None, message_id, .. }
                if message_id.as_str() == "m"
        ));
        let frame = parse(json!({"type": "cancel"}));
        assert!(matches!(
            frame.request.unwrap(),
            StreamRequest::Cancel { session_id: None, run_id: None }
        ));
    }

    #[test]
    fn unknown_member_is_named() {
        for (frame, field) in [
            (json!({"type": "subscribe", "afterr": 7}), "afterr"),
            (json!({"type": "unsubscribe", "sesion_id": SESSION}), "sesion_id"),
            (json!({"type": "watch", "session_id": SESSION}), "session_id"),
            (json!({"type": "unwatch", "all": true}), "all"),
            (json!({"type": "send", "message": "hi", "preflite": true}), "preflite"),
            (json!({"type": "cancel", "run": SESSION}), "run"),
            (json!({"type": "queue", "message_id": "m"}), "message_id"),
            (json!({"type": "queue_change", "message_id": "m", "text": "hi"}), "text"),
            (json!({"type": "queue_change", "message": "hi"}), "message_id"),
            (json!({"type": "queue_withdraw", "message_id": "m", "run_id": SESSION}), "run_id"),
            (json!({"type": "decide", "plan_id": SESSION, "decison": "reject"}), "decison"),
            // Two forms of one field.
            (json!({"type": "decide", "plan_id": SESSION, "approval_id": SESSION}), "approval_id"),
            (
                json!({"type": "decide", "plan_id": SESSION, "steps": [{"position": 1, "toolName": "t", "tool_name": "t"}]}),
                "steps[0].toolName",
            ),
            (
                json!({"type": "decide", "plan_id": SESSION, "steps": [{"call_id": SESSION, "argumnets": {}}]}),
                "steps[0].argumnets",
            ),
        ] {
            let problem = parse(frame.clone()).request.unwrap_err().to_json();
            let actual = (&problem["status"], &problem["field"]);
            assert_eq!(actual, (&json!(422), &json!(field)), "{frame}: {problem}");
        }
    }

    #[test]
    fn invalid_frame_gets_an_error_with_its_id() {
        for (text, code, id) in [
            ("{", "malformed_json", json!(null)),
            ("[]", "invalid_request", json!(null)),
            (r#"{"id": "a"}"#, "invalid_request", json!("a")),
            (r#"{"id": "a", "type": "explode"}"#, "unknown_type", json!("a")),
            (r#"{"id": 5, "type": "subscribe", "session_id": "x"}"#, "invalid_request", json!(5)),
            (r#"{"id": 5, "type": "subscribe", "after": -1}"#, "cursor_invalid", json!(5)),
            (r#"{"id": 5, "type": "subscribe", "after": 5.10}"#, "cursor_invalid", json!(5)),
            (r#"{"id": 5, "type": "subscribe", "after": "NOW"}"#, "cursor_invalid", json!(5)),
            (r#"{"id": {"a": 1}, "type": "decide"}"#, "invalid_request", json!(null)),
            (r#"{"type": "send", "message": 1}"#, "invalid_request", json!(null)),
            (r#"{"type": "watch", "id": 6, "all": true}"#, "invalid_request", json!(6)),
        ] {
            let frame = ClientFrame::parse(text, parse_request);
            let problem = frame.request.unwrap_err();
            let response: Value =
                serde_json::from_str(&error(frame.id.as_ref(), &problem)).unwrap();
            assert_eq!((&response["code"], &response["id"]), (&json!(code), &id), "{text}");
            assert_eq!(response["type"], "error");
        }
    }
}
