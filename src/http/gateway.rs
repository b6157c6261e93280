//! The WebSocket `/gateway`, which speaks the `gateway` dialect. A client's requests become messages
//! of sessions, its decisions become answers to approvals, and each request is one stream on the
//! connection.
//!
//! The client chooses the id of a request, and repeating a request starts nothing (S5), as far as
//! the id can be known ([`targets`]). After a lost connection, the same `chat.send` therefore streams
//! the rest and sends the pending approvals again.

mod answers;
mod approvals;
mod cancel;
mod requests;
mod targets;

use self::{
    answers::{CallAnswer, answer_to_preflight},
    approvals::PreflightSelector,
    requests::{ChatSendRequest, SubmittedRequest},
    targets::{KnownRequest, KnownRequests},
};
use super::{
    Problem, State,
    access_control::{self, Caller, SURFACE_HEADER},
    answers::{AnswerRequest, submit_answer},
    commands,
    endpoint::Endpoint,
    extract,
    stream_filter::StreamFilter,
    ws,
    ws_frames::{self, ClientFrame},
    ws_protocol::{WebSocketConnection, WebSocketProtocol},
};
use crate::dialect::gateway::{
    ClientMessage, ClientMessageError, GatewayFrame, SentText, ServerMessage, decode, encode,
};
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use bytestring::ByteString;
use futures::future::{FutureExt as _, LocalBoxFuture};
use greenroom_actors::feed::FeedItem;
use greenroom_core::{
    approval::{ApprovalSubject, Surface},
    ids::{MessageId, RunId},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use utoipa::IntoParams;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/gateway", gateway)
            .operation("gateway", "Opens a WebSocket in the `gateway` dialect for chat front ends.")
            .description(
                "The client sends `chat.send`, `chat.cancel`, `tool.approval.response`, \
                 `preflight.approval` and `elicitation.response`; the server `chat.stream.*`, `tool.*`, `preflight.checklist`, \
                 `elicitation.request` and `error`. `docs/protocol.md` describes the frames.",
            )
            .query::<GatewayQuery>()
            .header(SURFACE_HEADER, "The surface of the client's answers: `cli` or `rest`")
            .upgrades_to_websocket("The connection becomes a WebSocket")
            .problems(&["surface_invalid"]),
    ]
}

#[derive(Deserialize, IntoParams)]
pub(super) struct GatewayQuery {
    /// True to receive events without a frame in the dialect as `agent.event`.
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
    let protocol = GatewayProtocol {
        include_native: details,
        surface,
        streamed: HashMap::new(),
        known: KnownRequests::default(),
    };
    ws::start_socket(&state, caller.0, protocol, &request, payload)
}

/// The protocol state of one connection.
struct GatewayProtocol {
    /// True if events without a frame in the dialect are sent as `agent.event`.
    include_native: bool,
    surface: Surface,
    /// The run of each request that is streamed.
    streamed: HashMap<MessageId, RunId>,
    /// The newest requests that the connection has submitted.
    known: KnownRequests,
}

/// The output of a handled frame.
enum GatewayOutput {
    Submitted(Box<SubmittedRequest>),
    /// Nothing to send: the stream reports the result.
    Done,
    /// The approval of a call could not cover the session; the call runs once.
    NotGranted {
        request_id: MessageId,
        notice: String,
    },
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
        connection: &WebSocketConnection<MessageId>,
    ) -> LocalBoxFuture<'static, Result<GatewayOutput, Problem>> {
        let (state, principal) = (connection.state.clone(), connection.principal.clone());
        let surface = self.surface;
        match request {
            ClientMessage::ChatSend(send) => {
                let limit_check = if connection.is_subscribed(&send.id) {
                    Ok(())
                } else {
                    connection.check_subscription_limit()
                };
                let request = ChatSendRequest {
                    known: self.known.get(&send.id).cloned(),
                    streamed: self.streamed.values().copied().collect(),
                    include_native: self.include_native,
                    send,
                };
                async move {
                    limit_check?;
                    let submitted = requests::submit_request(&state, &principal, request).await?;
                    Ok(GatewayOutput::Submitted(Box::new(submitted)))
                }
                .boxed_local()
            }
            ClientMessage::ChatCancel { id, session_id } => {
                let known = id.as_ref().and_then(|id| self.known.get(id)).map(KnownRequest::run);
                async move {
                    cancel::cancel_request(&state, &principal, id, session_id, known).await?;
                    Ok(GatewayOutput::Done)
                }
                .boxed_local()
            }
            ClientMessage::ToolApproval { call_id, approved, for_session } => {
                let answer = CallAnswer { call_id, approved, for_session };
                let streamed = self.streamed.clone();
                async move {
                    let notice = answers::answer_call(&state, &principal, answer, surface).await?;
                    let Some((run, notice)) = notice else { return Ok(GatewayOutput::Done) };
                    let request_id =
                        streamed.into_iter().find(|(_, streamed)| *streamed == run.run_id);
                    let request_id = match request_id {
                        Some((request_id, _)) => request_id,
                        None => requests::find_request_id(&state, run).await?,
                    };
                    Ok(GatewayOutput::NotGranted { request_id, notice })
                }
                .boxed_local()
            }
            ClientMessage::Elicitation { approval_id, accepted, content } => async move {
                let row = commands::load_visible_approval(&state, &principal, approval_id).await?;
                let answer = AnswerRequest::for_elicitation(accepted, content);
                submit_answer(&state, &principal, &row, answer, surface).await?;
                Ok(GatewayOutput::Done)
            }
            .boxed_local(),
            ClientMessage::Preflight { request_id, approval_id, approved, edited_steps } => {
                let run = self.known.get(&request_id).map(KnownRequest::run);
                let sessions = self.known.sessions();
                let selector = PreflightSelector { request_id, approval_id, run, sessions };
                async move {
                    let row = approvals::find_preflight(&state, &principal, selector).await?;
                    let ApprovalSubject::Preflight(checklist) = &row.approval.subject else {
                        return Err(Problem::approval_not_found());
                    };
                    let redactor = &state.redactor;
                    let answer = answer_to_preflight(approved, edited_steps, checklist, redactor)?;
                    submit_answer(&state, &principal, &row, answer, surface).await?;
                    Ok(GatewayOutput::Done)
                }
                .boxed_local()
            }
        }
    }

    fn apply_output(
        &mut self,
        _: Option<&Value>,
        output: GatewayOutput,
        connection: &mut WebSocketConnection<MessageId>,
    ) -> Vec<String> {
        match output {
            GatewayOutput::Submitted(submitted) => self.stream_request(*submitted, connection),
            GatewayOutput::Done => Vec::new(),
            GatewayOutput::NotGranted { request_id, notice } => {
                let message = ServerMessage::ChatStreamDelta {
                    request_id,
                    delta: format!("\n[{notice}]\n"),
                    message_id: None,
                    discarded: false,
                    notice: true,
                };
                vec![to_json(&GatewayFrame { cursor: None, session_id: None, message })]
            }
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
        // Extras must not overwrite the frame's own members.
        extra.retain(|name, _| !["type", "requestId", "code", "message"].contains(&name.as_str()));
        to_json(&GatewayFrame {
            cursor: None,
            session_id: None,
            message: ServerMessage::Error { request_id: id, code, message, extra },
        })
    }
}

impl GatewayProtocol {
    /// Streams a submitted request. Returns the frames of the approvals that are sent again.
    fn stream_request(
        &mut self,
        submitted: SubmittedRequest,
        connection: &mut WebSocketConnection<MessageId>,
    ) -> Vec<String> {
        let SubmittedRequest {
            session,
            request,
            followed_run,
            mut open_child_calls,
            cursor,
            resent_approvals,
        } = submitted;
        let run_id = request.run_id;
        self.streamed.retain(|id, _| connection.is_subscribed(id));
        let request_id = followed_run.request_id.clone();
        self.streamed.insert(request_id.clone(), run_id);
        self.known.insert(request_id.clone(), request);
        let runtime = &connection.state.runtime;
        let (clock, redactor) = (runtime.clock.clone(), connection.state.redactor.clone());
        let mut sent_text = SentText::from_cursor(cursor);
        let encode = move |item: &FeedItem, emit: &mut dyn FnMut(ByteString)| {
            let ended = open_child_calls.take_ended_by(item);
            for item in ended.iter().chain([item]) {
                encode(item, &followed_run, clock.now(), &redactor, &mut |mut frame| {
                    sent_text.apply(&mut frame.message);
                    emit(to_json(&frame).into())
                });
            }
        };
        let filter = StreamFilter::Run { run_id, until_pause: false };
        connection.subscribe(request_id, &session, cursor, filter, encode);
        resent_approvals.iter().map(to_json).collect()
    }
}

fn to_json(frame: &GatewayFrame) -> String {
    // Plain data: serialization can't fail.
    serde_json::to_string(frame).unwrap_or_default()
}

impl From<ClientMessageError> for Problem {
    fn from(error: ClientMessageError) -> Self {
        match error {
            ClientMessageError::MissingType => Self::invalid("type", error.to_string()),
            ClientMessageError::UnknownType(kind) => ws_frames::unknown_type(&kind),
            ClientMessageError::PositionedStep(index) => {
                Self::invalid(&format!("editedSteps[{index}].position"), error.to_string())
            }
            ClientMessageError::EmptyContent => Self::invalid("content", error.to_string()),
            ClientMessageError::Invalid(error) => extract::invalid_value(error),
        }
    }
}
