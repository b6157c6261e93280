//! The WebSocket `/gateway`: the dialect of that name, spoken. A client's requests become messages of
//! sessions, its words on calls become answers to approvals; each request is one stream on the line.
//!
//! A request is named by the client, and sending it again starts nothing (S5): so after a connection
//! was lost the same `chat.send` streams what remains, and asks again what still waits.

mod requests;

use self::requests::{ApprovalSelector, SubmittedRequest};
use super::{
    Problem, State,
    access_control::{self, Caller, SURFACE_HEADER},
    answers::{self, AnswerRequest},
    commands,
    endpoint::Endpoint,
    extract,
    stream_filter::StreamFilter,
    workflows, ws,
    ws_frames::{self, ClientFrame},
    ws_protocol::{WebSocketConnection, WebSocketProtocol},
};
use crate::dialect::gateway::{
    ClientMessage, ClientMessageError, EditedStep, GatewayFrame, ServerMessage, decode, encode,
};
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use bytestring::ByteString;
use futures::future::{FutureExt as _, LocalBoxFuture};
use greenroom_core::{
    approval::Surface,
    ids::{MessageId, RunId, SessionId},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use utoipa::IntoParams;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/gateway", gateway)
            .operation("gateway", "A WebSocket in the words of a chat front end.")
            .description(
                "The client sends `chat.send`, `tool.approval.response`, `preflight.approval` and \
                 `elicitation.response`; the server `chat.stream.*`, `tool.*`, `preflight.checklist`, \
                 `elicitation.request` and `error`. `docs/protocol.md` has the details.",
            )
            .query::<GatewayQuery>()
            .header(SURFACE_HEADER, "`cli` or `rest`: through what the person answers")
            .upgrades_to_websocket("The connection is a WebSocket from here on")
            .problems(&["surface_invalid"]),
    ]
}

#[derive(Deserialize, IntoParams)]
struct GatewayQuery {
    /// Whether all other events come as `agent.event`.
    #[serde(default)]
    details: bool,
}

/// `WS /gateway`
async fn gateway(
    state: State,
    caller: Caller,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let GatewayQuery { details } = extract::parse_query(&request)?;
    let surface = match access_control::resolve_surface(&request, &caller.0)? {
        Surface::Cli => Surface::Cli,
        Surface::Rest | Surface::Websocket | Surface::Dashboard => Surface::Websocket,
    };
    let talk = GatewayProtocol { include_native: details, surface, requests: HashMap::new() };
    ws::start_socket(&state, caller.0, talk, &request, payload)
}

/// What is said on one connection.
struct GatewayProtocol {
    /// Whether the client wants to hear what the dialect has no word for.
    include_native: bool,
    surface: Surface,
    /// The requests that are streamed.
    requests: HashMap<MessageId, (SessionId, RunId)>,
}

/// A frame that was carried out.
enum GatewayOutput {
    Submitted(Box<SubmittedRequest>),
    Answered,
}

impl WebSocketProtocol for GatewayProtocol {
    type Request = ClientMessage;
    type Output = GatewayOutput;
    type Key = MessageId;

    fn parse_frame(&self, text: &str) -> ClientFrame<ClientMessage> {
        ClientFrame::parse(text, |message| decode(message).map_err(Problem::from))
    }

    fn handle_request(
        &self,
        request: ClientMessage,
        line: &WebSocketConnection<MessageId>,
    ) -> LocalBoxFuture<'static, Result<GatewayOutput, Problem>> {
        let (state, principal) = (line.state.clone(), line.principal.clone());
        let (surface, details) = (self.surface, self.include_native);
        match request {
            ClientMessage::ChatSend { id, session_id, content, after, workflow } => {
                let room =
                    if line.is_subscribed(&id) { Ok(()) } else { line.check_subscription_limit() };
                let workflow = workflow.map(workflows::parse_workflow).transpose();
                let streamed = self.requests.values().map(|(_, run_id)| *run_id).collect();
                async move {
                    room?;
                    let workflow = workflow?;
                    let wish = requests::ChatSendRequest {
                        id,
                        session_id,
                        content,
                        after,
                        include_native: details,
                        workflow,
                    };
                    let sent = requests::submit_request(&state, &principal, wish, streamed).await?;
                    Ok(GatewayOutput::Submitted(Box::new(sent)))
                }
                .boxed_local()
            }
            ClientMessage::ToolApproval { call_id, approved, for_session } => async move {
                let question = ApprovalSelector::Call(call_id);
                let row = requests::find_approval(&state, &principal, question).await?;
                let answer = answer_to_call(&call_id.to_string(), approved, for_session)?;
                answers::submit_answer(&state, &principal, &row, answer, surface).await?;
                Ok(GatewayOutput::Answered)
            }
            .boxed_local(),
            ClientMessage::Elicitation { approval_id, accepted, content } => async move {
                let row = commands::load_visible_approval(&state, &principal, approval_id).await?;
                let answer = AnswerRequest::for_elicitation(accepted, content);
                answers::submit_answer(&state, &principal, &row, answer, surface).await?;
                Ok(GatewayOutput::Answered)
            }
            .boxed_local(),
            ClientMessage::Preflight { request_id, approved, edited_steps } => {
                let found = self.requests.get(&request_id).copied();
                async move {
                    let (session_id, run_id) = found.ok_or_else(|| {
                        Problem::invalid("requestId", "there is no such request on this connection")
                    })?;
                    let question = ApprovalSelector::Preflight { session_id, run_id };
                    let row = requests::find_approval(&state, &principal, question).await?;
                    let answer = answer_to_preflight(approved, edited_steps)?;
                    answers::submit_answer(&state, &principal, &row, answer, surface).await?;
                    Ok(GatewayOutput::Answered)
                }
                .boxed_local()
            }
        }
    }

    fn apply_output(
        &mut self,
        _: Option<&Value>,
        done: GatewayOutput,
        line: &mut WebSocketConnection<MessageId>,
    ) -> Vec<String> {
        match done {
            GatewayOutput::Submitted(sent) => self.stream_request(*sent, line),
            // What it leads to is told on the stream.
            GatewayOutput::Answered => Vec::new(),
        }
    }

    fn error_frame(&self, id: Option<&Value>, problem: &Problem) -> String {
        let id = match id {
            Some(Value::String(id)) => MessageId::parse(id).ok(),
            Some(Value::Number(id)) => MessageId::parse(&id.to_string()).ok(),
            Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
        };
        let mut extra = Map::from_iter([("status".to_owned(), problem.status.as_u16().into())]);
        extra.extend(problem.extra.clone());
        let (code, message) = (problem.code, problem.detail.clone());
        // These are the frame's own.
        extra.retain(|name, _| !["type", "requestId", "code", "message"].contains(&name.as_str()));
        to_json(&GatewayFrame {
            cursor: None,
            session_id: None,
            message: ServerMessage::Error { request_id: id, code, message, extra },
        })
    }
}

impl GatewayProtocol {
    /// Streams the request that was sent; what was asked before comes at once.
    fn stream_request(
        &mut self,
        sent: SubmittedRequest,
        line: &mut WebSocketConnection<MessageId>,
    ) -> Vec<String> {
        let SubmittedRequest {
            session,
            run_id,
            followed_run: following,
            cursor,
            resent_approvals: asked_again,
        } = sent;
        self.requests.retain(|id, _| line.is_subscribed(id));
        let request_id = following.request_id.clone();
        self.requests.insert(request_id.clone(), (session.session_id, run_id));
        let (clock, redactor) = (line.state.runtime.clock.clone(), line.state.redactor.clone());
        let encode = move |item: &_, put: &mut dyn FnMut(ByteString)| {
            encode(item, &following, clock.now(), &redactor, &mut |frame| {
                put(to_json(&frame).into())
            });
        };
        let follow = StreamFilter::Run { run_id, until_pause: false };
        line.subscribe(request_id, &session, cursor, follow, encode);
        asked_again.iter().map(to_json).collect()
    }
}

fn to_json(frame: &GatewayFrame) -> String {
    // Plain data: serialising it can't fail.
    serde_json::to_string(frame).unwrap_or_default()
}

/// The word on one call, as every surface takes it.
fn answer_to_call(
    call_id: &str,
    approved: bool,
    for_session: bool,
) -> Result<AnswerRequest, Problem> {
    let decision = if approved { "approve" } else { "reject" };
    let mut answer = json!({"decision": decision, "steps": [{"call_id": call_id}]});
    if for_session {
        answer["for_session"] = json!({});
    }
    extract::deserialize_value(answer)
}

/// The word on a plan made beforehand, as every surface takes it.
fn answer_to_preflight(
    approved: bool,
    steps: Option<Vec<EditedStep>>,
) -> Result<AnswerRequest, Problem> {
    let mut answer = json!({"decision": if approved { "approve" } else { "reject" }});
    if let Some(steps) = steps {
        answer["steps"] = json!(steps);
    }
    extract::deserialize_value(answer)
}

impl From<ClientMessageError> for Problem {
    fn from(error: ClientMessageError) -> Self {
        match error {
            ClientMessageError::MissingType => Self::invalid("type", error.to_string()),
            ClientMessageError::UnknownType(kind) => ws_frames::unknown_type(&kind),
            ClientMessageError::Invalid(error) => extract::invalid_value(error),
        }
    }
}
