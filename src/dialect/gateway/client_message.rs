//! What a client says in the dialect `gateway`.

use greenroom_core::{
    cursor::Cursor,
    ids::{ApprovalId, CallId, MessageId, SessionId},
};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// A client's message. Each has an `id`; that of `chat.send` names the request.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientMessage {
    /// A user's message; sent again under the same id, what remains of its answer.
    ChatSend {
        /// The request, and the message's id.
        id: MessageId,
        /// The session; a new one if none is named.
        session_id: Option<SessionId>,
        /// What is said.
        content: String,
        /// Go on after this place.
        after: Option<Cursor>,
        /// The workflow to be started, and its inputs.
        workflow: Option<Value>,
    },
    /// A person's word on one call.
    ToolApproval {
        /// The call.
        call_id: CallId,
        /// Whether it may run.
        approved: bool,
        /// Whether that holds for the session.
        for_session: bool,
    },
    /// A person's word on a plan made beforehand.
    Preflight {
        /// The request it was made for.
        request_id: MessageId,
        /// Whether it may be carried out.
        approved: bool,
        /// The steps as they shall be, by position.
        edited_steps: Option<Vec<EditedStep>>,
    },
    /// A person's answer to a running tool.
    Elicitation {
        /// The question.
        approval_id: ApprovalId,
        /// Whether they did what it asked, or would not.
        accepted: bool,
        /// What they filled in.
        content: Option<Value>,
    },
}

/// A step of a plan as a person wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EditedStep {
    /// What is to be done.
    pub description: String,
    /// With which tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Whether it is left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip: bool,
}

/// Why a message makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum ClientMessageError {
    /// It says no `type`.
    #[error("a frame must have a `type`")]
    MissingType,
    /// There is no such type; cut.
    #[error("there is no frame of type `{0}`")]
    UnknownType(String),
    /// A member is missing or wrong.
    #[error("{0}")]
    Invalid(#[from] serde_path_to_error::Error<serde_json::Error>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChatSend {
    id: MessageId,
    #[serde(default)]
    session_id: Option<SessionId>,
    #[serde(default)]
    content: String,
    #[serde(default, deserialize_with = "deserialize_cursor")]
    after: Option<Cursor>,
    #[serde(default)]
    workflow: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolApprovalResponse {
    tool_call_id: CallId,
    approved: bool,
    #[serde(default)]
    session_approve: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PreflightApproval {
    request_id: MessageId,
    approved: bool,
    #[serde(default)]
    edited_steps: Option<Vec<EditedStep>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ElicitationResponse {
    approval_id: ApprovalId,
    action: ElicitationAction,
    #[serde(default)]
    content: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum ElicitationAction {
    Accept,
    Decline,
}

/// Reads a message. Members that are not known mean nothing.
pub fn decode(message: Map<String, Value>) -> Result<ClientMessage, ClientMessageError> {
    let kind = message
        .get("type")
        .and_then(Value::as_str)
        .ok_or(ClientMessageError::MissingType)?
        .to_owned();
    let message = Value::Object(message);
    match kind.as_str() {
        "chat.send" => {
            let ChatSend { id, session_id, content, after, workflow } = deserialize(message)?;
            Ok(ClientMessage::ChatSend { id, session_id, content, after, workflow })
        }
        "tool.approval.response" => {
            let ToolApprovalResponse { tool_call_id, approved, session_approve } =
                deserialize(message)?;
            let for_session = approved && session_approve;
            Ok(ClientMessage::ToolApproval { call_id: tool_call_id, approved, for_session })
        }
        "preflight.approval" => {
            let PreflightApproval { request_id, approved, edited_steps } = deserialize(message)?;
            Ok(ClientMessage::Preflight { request_id, approved, edited_steps })
        }
        "elicitation.response" => {
            let ElicitationResponse { approval_id, action, content } = deserialize(message)?;
            let accepted = matches!(action, ElicitationAction::Accept);
            Ok(ClientMessage::Elicitation { approval_id, accepted, content })
        }
        other => Err(ClientMessageError::UnknownType(other.chars().take(32).collect())),
    }
}

fn deserialize<T: DeserializeOwned>(message: Value) -> Result<T, ClientMessageError> {
    Ok(serde_path_to_error::deserialize(message)?)
}

fn deserialize_cursor<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cursor>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "0198c0de-0000-7000-8000-000000000001";

    fn decoded(message: Value) -> Result<ClientMessage, String> {
        let Value::Object(message) = message else { panic!("it is an object") };
        decode(message).map_err(|error| error.to_string())
    }

    #[test]
    fn the_messages_of_the_protocol_are_read() {
        let id = MessageId::parse("m-1").unwrap();
        let send = json!({"type": "chat.send", "id": "m-1", "content": "hi", "other": 1});
        let expected = |session_id, after| ClientMessage::ChatSend {
            id: id.clone(),
            session_id,
            content: "hi".to_owned(),
            after,
            workflow: None,
        };
        assert_eq!(decoded(send.clone()), Ok(expected(None, None)));
        let mut again = send;
        again["sessionId"] = json!(ID);
        again["after"] = json!("7.3");
        let after = Some("7.3".parse().unwrap());
        assert_eq!(decoded(again), Ok(expected(Some(ID.parse().unwrap()), after)));
        for (approved, session, for_session) in
            [(true, true, true), (true, false, false), (false, true, false)]
        {
            let response = json!({
                "type": "tool.approval.response", "id": "a", "toolCallId": ID,
                "approved": approved, "sessionApprove": session,
            });
            let call_id = ID.parse().unwrap();
            let expected = ClientMessage::ToolApproval { call_id, approved, for_session };
            assert_eq!(decoded(response), Ok(expected), "a rejection is for no session");
        }
        let steps = json!([{"description": "look"}, {"description": "buy", "toolName": "buy", "skip": true}]);
        let approval = json!({
            "type": "preflight.approval", "id": "p", "requestId": "m-1", "approved": true,
            "editedSteps": steps,
        });
        for (action, accepted) in [("accept", true), ("decline", false)] {
            let response = json!({
                "type": "elicitation.response", "id": "e", "approvalId": ID, "action": action,
                "content": {"hangar": "north"},
            });
            let (approval_id, content) = (ID.parse().unwrap(), Some(json!({"hangar": "north"})));
            let expected = ClientMessage::Elicitation { approval_id, accepted, content };
            assert_eq!(decoded(response), Ok(expected));
        }
        let Ok(ClientMessage::Preflight { request_id, approved: true, edited_steps: Some(read) }) =
            decoded(approval)
        else {
            panic!("it is an approval with steps");
        };
        assert_eq!((request_id, serde_json::to_value(read).unwrap()), (id, steps));
    }

    #[test]
    fn invalid_messages_name_the_field() {
        for (message, error) in [
            (json!({}), "a frame must have a `type`"),
            (json!({"type": 1}), "a frame must have a `type`"),
            (json!({"type": "chat.shout"}), "there is no frame of type `chat.shout`"),
            (json!({"type": "chat.send", "content": "hi"}), "missing field `id`"),
            (
                json!({"type": "chat.send", "id": "", "content": "hi"}),
                "id: a message's id must have",
            ),
            (json!({"type": "chat.send", "id": "m", "content": 1}), "content: invalid type"),
            (
                json!({"type": "chat.send", "id": "m", "content": "", "after": "x"}),
                "after: a cursor",
            ),
            (
                json!({"type": "tool.approval.response", "toolCallId": "x", "approved": true}),
                "toolCallId: ",
            ),
            (
                json!({"type": "elicitation.response", "approvalId": ID, "action": "maybe"}),
                "action: unknown variant `maybe`",
            ),
            (
                json!({"type": "preflight.approval", "requestId": "m", "approved": true,
                    "editedSteps": [{"skip": true}]}),
                "editedSteps[0]: missing field `description`",
            ),
        ] {
            let found = decoded(message.clone()).unwrap_err();
            assert!(found.contains(error), "{message}: {found}");
        }
    }
}
