//! Decodes the messages that a client sends in the dialect `gateway`.

use greenroom_core::{
    cursor::Cursor,
    ids::{AgentName, ApprovalId, CallId, MessageId, SessionId},
    policy::Autonomy,
};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// A message of a client. Each has an `id`; the `id` of `chat.send` is the request id.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientMessage {
    /// A user's message. If it is repeated with the same id, the rest of its answer is streamed.
    ChatSend(Box<ChatSend>),
    /// Cancels the run of a request, or the active run of a session.
    ChatCancel {
        /// The id of the request.
        id: Option<MessageId>,
        /// The session.
        session_id: Option<SessionId>,
    },
    /// An answer to a call's approval.
    ToolApproval {
        /// The call.
        call_id: CallId,
        /// True if the call may run.
        approved: bool,
        /// True if the approval also grants later calls of the tool in the session.
        for_session: bool,
    },
    /// An answer to a preflight approval.
    Preflight {
        /// The request that the plan belongs to.
        request_id: MessageId,
        /// The approval, if the client names it.
        approval_id: Option<ApprovalId>,
        /// True if the plan may be carried out.
        approved: bool,
        /// The edited steps: the whole checklist, in its order.
        edited_steps: Option<Vec<EditedStep>>,
    },
    /// An answer to an elicitation of a running tool.
    Elicitation {
        /// The approval.
        approval_id: ApprovalId,
        /// True if the user accepted; false if the user declined.
        accepted: bool,
        /// The values of the form.
        content: Option<Value>,
    },
}

/// A user's message, and the session to create for it unless it names one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChatSend {
    /// The id of the request.
    pub id: MessageId,
    /// The session; `None` creates a session.
    #[serde(default)]
    pub session_id: Option<SessionId>,
    /// The text of the message.
    #[serde(default)]
    pub content: String,
    /// The cursor after which the stream continues.
    #[serde(default, deserialize_with = "deserialize_cursor")]
    pub after: Option<Cursor>,
    /// The workflow to start, with its inputs.
    #[serde(default)]
    pub workflow: Option<Value>,
    /// True if the run starts with a preflight; by default as the session's settings specify.
    #[serde(default)]
    pub preflight: Option<bool>,
    /// The agent of the new session.
    #[serde(default)]
    pub agent: Option<AgentName>,
    /// The autonomy level of the new session.
    #[serde(default)]
    pub autonomy_level: Option<Autonomy>,
}

/// A step of a checklist as edited by the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EditedStep {
    /// The step's description.
    pub description: String,
    /// The tool of the step, which an edit does not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// True if the step is skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip: bool,
}

/// The reason why a client message is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ClientMessageError {
    /// The member `type` is missing or not a string.
    #[error("a frame must have a `type`")]
    MissingType,
    /// The type is unknown. Holds at most 32 characters of it.
    #[error("there is no frame of type `{0}`")]
    UnknownType(String),
    /// The step with this index in `editedSteps` has a `position`, as in an answer over REST. It
    /// could differ from the step's place in the list.
    #[error(
        "`editedSteps[{0}].position`: not allowed; the place in `editedSteps` is the step's position"
    )]
    PositionedStep(usize),
    /// `content` is empty, and there is no workflow.
    #[error("`content`: must not be empty without `workflow`")]
    EmptyContent,
    /// A member is missing or invalid.
    #[error("{0}")]
    Invalid(#[from] serde_path_to_error::Error<serde_json::Error>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChatCancel {
    #[serde(default)]
    id: Option<MessageId>,
    #[serde(default)]
    session_id: Option<SessionId>,
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
    #[serde(default)]
    approval_id: Option<ApprovalId>,
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

/// Decodes a client message. Ignores unknown members.
pub fn decode(message: Map<String, Value>) -> Result<ClientMessage, ClientMessageError> {
    let kind = message
        .get("type")
        .and_then(Value::as_str)
        .ok_or(ClientMessageError::MissingType)?
        .to_owned();
    if kind == "preflight.approval" {
        reject_positions(&message)?;
    }
    let message = Value::Object(message);
    match kind.as_str() {
        "chat.send" => {
            let message: ChatSend = deserialize(message)?;
            if message.content.trim().is_empty() && message.workflow.is_none() {
                return Err(ClientMessageError::EmptyContent);
            }
            Ok(ClientMessage::ChatSend(Box::new(message)))
        }
        "chat.cancel" => {
            let ChatCancel { id, session_id } = deserialize(message)?;
            Ok(ClientMessage::ChatCancel { id, session_id })
        }
        "tool.approval.response" => {
            let ToolApprovalResponse { tool_call_id, approved, session_approve } =
                deserialize(message)?;
            let for_session = approved && session_approve;
            Ok(ClientMessage::ToolApproval { call_id: tool_call_id, approved, for_session })
        }
        "preflight.approval" => {
            let PreflightApproval { request_id, approval_id, approved, edited_steps } =
                deserialize(message)?;
            Ok(ClientMessage::Preflight { request_id, approval_id, approved, edited_steps })
        }
        "elicitation.response" => {
            let ElicitationResponse { approval_id, action, content } = deserialize(message)?;
            let accepted = matches!(action, ElicitationAction::Accept);
            Ok(ClientMessage::Elicitation { approval_id, accepted, content })
        }
        other => Err(ClientMessageError::UnknownType(other.chars().take(32).collect())),
    }
}

/// Rejects edited steps with a `position`.
fn reject_positions(message: &Map<String, Value>) -> Result<(), ClientMessageError> {
    let steps = message.get("editedSteps").and_then(Value::as_array);
    let mut steps = steps.into_iter().flatten();
    match steps.position(|step| step.get("position").is_some()) {
        Some(index) => Err(ClientMessageError::PositionedStep(index)),
        None => Ok(()),
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
        let Value::Object(message) = message else { panic!("not an object") };
        decode(message).map_err(|error| error.to_string())
    }

    #[test]
    fn client_messages_are_decoded() {
        let id = MessageId::parse("m-1").unwrap();
        let send = json!({"type": "chat.send", "id": "m-1", "content": "hi", "other": 1});
        let expected = ChatSend {
            id: id.clone(),
            session_id: None,
            content: "hi".to_owned(),
            after: None,
            workflow: None,
            preflight: None,
            agent: None,
            autonomy_level: None,
        };
        assert_eq!(decoded(send.clone()), Ok(ClientMessage::ChatSend(expected.clone().into())));
        let mut complete = send;
        complete.as_object_mut().unwrap().extend([
            ("sessionId".to_owned(), json!(ID)),
            ("after".to_owned(), json!("7.3")),
            ("preflight".to_owned(), json!(true)),
            ("agent".to_owned(), json!("trader")),
            ("autonomyLevel".to_owned(), json!(2)),
        ]);
        let expected = ChatSend {
            session_id: Some(ID.parse().unwrap()),
            after: Some("7.3".parse().unwrap()),
            preflight: Some(true),
            agent: Some("trader".parse().unwrap()),
            autonomy_level: Some(Autonomy::Assisted),
            ..expected
        };
        assert_eq!(decoded(complete), Ok(ClientMessage::ChatSend(expected.into())));
        let workflow = json!({"type": "chat.send", "id": "m-1", "workflow": {"name": "w"}});
        assert!(
            matches!(decoded(workflow), Ok(ClientMessage::ChatSend(send)) if send.content.is_empty())
        );
        let cancel = json!({"type": "chat.cancel", "id": "m-1", "sessionId": ID});
        let expected = ClientMessage::ChatCancel {
            id: Some(id.clone()),
            session_id: Some(ID.parse().unwrap()),
        };
        assert_eq!(decoded(cancel), Ok(expected));
        for (approved, session, for_session) in
            [(true, true, true), (true, false, false), (false, true, false)]
        {
            let response = json!({
                "type": "tool.approval.response", "id": "a", "toolCallId": ID,
                "approved": approved, "sessionApprove": session,
            });
            let call_id = ID.parse().unwrap();
            let expected = ClientMessage::ToolApproval { call_id, approved, for_session };
            assert_eq!(decoded(response), Ok(expected), "a rejection never covers the session");
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
        let Ok(ClientMessage::Preflight {
            request_id,
            approval_id: None,
            approved: true,
            edited_steps: Some(edited),
        }) = decoded(approval)
        else {
            panic!("not an approval with steps");
        };
        assert_eq!((request_id, serde_json::to_value(edited).unwrap()), (id, steps));
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
            (json!({"type": "chat.send", "id": "m"}), "`content`: must not be empty"),
            (json!({"type": "chat.send", "id": "m", "content": " \n"}), "`content`: must not be"),
            (
                json!({"type": "chat.send", "id": "m", "content": "a", "autonomyLevel": 4}),
                "autonomyLevel: ",
            ),
            (
                json!({"type": "chat.send", "id": "m", "content": "a", "preflight": "yes"}),
                "preflight: invalid type",
            ),
            (json!({"type": "chat.cancel", "sessionId": "x"}), "sessionId: "),
            (
                json!({"type": "chat.send", "id": "m", "content": "a", "after": "x"}),
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
            (
                json!({"type": "preflight.approval", "requestId": "m", "approved": true,
                    "editedSteps": [{"description": "a"}, {"description": "b", "position": 2}]}),
                "`editedSteps[1].position`: not allowed",
            ),
        ] {
            let actual = decoded(message.clone()).unwrap_err();
            assert!(actual.contains(error), "{message}: {actual}");
        }
    }
}
