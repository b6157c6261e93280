//! The WebSocket `/gateway`: the dialect of that name, spoken. A client's requests become messages of
//! sessions, its words on calls become answers to approvals; each request is one stream on the line.
//!
//! A request is named by the client, and sending it again starts nothing (S5): so after a connection
//! was lost the same `chat.send` streams what remains, and asks again what still waits.

mod requests;

use self::requests::{Question, Sent};
use super::{
    Problem, State, commands,
    decisions::{self, Answer},
    endpoint::Endpoint,
    follow::Follow,
    guard::{self, Caller, SURFACE},
    read,
    talk::{Line, Talk},
    workflows, ws,
    ws_frames::{self, ClientFrame},
};
use crate::dialect::gateway::{
    ClientMessage, EditedStep, Frame, NotUnderstood, ServerMessage, decode, encode,
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
            .named("gateway", "A WebSocket in the words of a chat front end.")
            .explained(
                "The client sends `chat.send`, `tool.approval.response`, `preflight.approval` and \
                 `elicitation.response`; the server `chat.stream.*`, `tool.*`, `preflight.checklist`, \
                 `elicitation.request` and `error`. `docs/protocol.md` has the details.",
            )
            .query::<GatewayQuery>()
            .header(SURFACE, "`cli` or `rest`: through what the person answers")
            .upgrades("The connection is a WebSocket from here on")
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
    let GatewayQuery { details } = read::query(&request)?;
    let surface = match guard::surface(&request, &caller.0)? {
        Surface::Cli => Surface::Cli,
        Surface::Rest | Surface::Websocket | Surface::Dashboard => Surface::Websocket,
    };
    let talk = Gateway { details, surface, requests: HashMap::new() };
    ws::start(&state, caller.0, talk, &request, payload)
}

/// What is said on one connection.
struct Gateway {
    /// Whether the client wants to hear what the dialect has no word for.
    details: bool,
    surface: Surface,
    /// The requests that are streamed.
    requests: HashMap<MessageId, (SessionId, RunId)>,
}

/// A frame that was carried out.
enum Done {
    Sent(Box<Sent>),
    Answered,
}

impl Talk for Gateway {
    type Request = ClientMessage;
    type Done = Done;
    type Stream = MessageId;

    fn hear(&self, text: &str) -> ClientFrame<ClientMessage> {
        ClientFrame::parse(text, |message| decode(message).map_err(Problem::from))
    }

    fn carry_out(
        &self,
        request: ClientMessage,
        line: &Line<MessageId>,
    ) -> LocalBoxFuture<'static, Result<Done, Problem>> {
        let (state, principal) = (line.state.clone(), line.principal.clone());
        let (surface, details) = (self.surface, self.details);
        match request {
            ClientMessage::ChatSend { id, session_id, content, after, workflow } => {
                let room = if line.has(&id) { Ok(()) } else { line.check_room() };
                let workflow = workflow.map(workflows::wish).transpose();
                let streamed = self.requests.values().map(|(_, run_id)| *run_id).collect();
                async move {
                    room?;
                    let workflow = workflow?;
                    let wish = requests::Wish { id, session_id, content, after, details, workflow };
                    let sent = requests::send(&state, &principal, wish, streamed).await?;
                    Ok(Done::Sent(Box::new(sent)))
                }
                .boxed_local()
            }
            ClientMessage::ToolApproval { call_id, approved, for_session } => async move {
                let question = Question::OfCall(call_id);
                let row = requests::asked(&state, &principal, question).await?;
                let answer = answer_to_call(&call_id.to_string(), approved, for_session)?;
                decisions::decide(&state, &principal, &row, answer, surface).await?;
                Ok(Done::Answered)
            }
            .boxed_local(),
            ClientMessage::Elicitation { approval_id, accepted, content } => async move {
                let row = commands::approval_for(&state, &principal, approval_id).await?;
                let answer = Answer::to_a_tool(accepted, content);
                decisions::decide(&state, &principal, &row, answer, surface).await?;
                Ok(Done::Answered)
            }
            .boxed_local(),
            ClientMessage::Preflight { request_id, approved, edited_steps } => {
                let found = self.requests.get(&request_id).copied();
                async move {
                    let (session_id, run_id) = found.ok_or_else(|| {
                        Problem::invalid("requestId", "there is no such request on this connection")
                    })?;
                    let question = Question::Preflight { session_id, run_id };
                    let row = requests::asked(&state, &principal, question).await?;
                    let answer = answer_to_preflight(approved, edited_steps)?;
                    decisions::decide(&state, &principal, &row, answer, surface).await?;
                    Ok(Done::Answered)
                }
                .boxed_local()
            }
        }
    }

    fn done(&mut self, _: Option<&Value>, done: Done, line: &mut Line<MessageId>) -> Vec<String> {
        match done {
            Done::Sent(sent) => self.follow(*sent, line),
            // What it leads to is told on the stream.
            Done::Answered => Vec::new(),
        }
    }

    fn refusal(&self, id: Option<&Value>, problem: &Problem) -> String {
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
        text(&Frame {
            cursor: None,
            session_id: None,
            message: ServerMessage::Error { request_id: id, code, message, extra },
        })
    }
}

impl Gateway {
    /// Streams the request that was sent; what was asked before comes at once.
    fn follow(&mut self, sent: Sent, line: &mut Line<MessageId>) -> Vec<String> {
        let Sent { session, run_id, following, cursor, asked_again } = sent;
        self.requests.retain(|id, _| line.has(id));
        let request_id = following.request_id.clone();
        self.requests.insert(request_id.clone(), (session.session_id, run_id));
        let (clock, redactor) = (line.state.runtime.clock.clone(), line.state.redactor.clone());
        let encode = move |item: &_, put: &mut dyn FnMut(ByteString)| {
            encode(item, &following, clock.now(), &redactor, &mut |frame| put(text(&frame).into()));
        };
        let follow = Follow::Run { run_id, until_pause: false };
        line.attach(request_id, &session, cursor, follow, encode);
        asked_again.iter().map(text).collect()
    }
}

fn text(frame: &Frame) -> String {
    // Plain data: serialising it can't fail.
    serde_json::to_string(frame).unwrap_or_default()
}

/// The word on one call, as every surface takes it.
fn answer_to_call(call_id: &str, approved: bool, for_session: bool) -> Result<Answer, Problem> {
    let decision = if approved { "approve" } else { "reject" };
    let mut answer = json!({"decision": decision, "steps": [{"call_id": call_id}]});
    if for_session {
        answer["for_session"] = json!({});
    }
    read::parse_value(answer)
}

/// The word on a plan made beforehand, as every surface takes it.
fn answer_to_preflight(approved: bool, steps: Option<Vec<EditedStep>>) -> Result<Answer, Problem> {
    let mut answer = json!({"decision": if approved { "approve" } else { "reject" }});
    if let Some(steps) = steps {
        answer["steps"] = json!(steps);
    }
    read::parse_value(answer)
}

impl From<NotUnderstood> for Problem {
    fn from(error: NotUnderstood) -> Self {
        match error {
            NotUnderstood::NoType => Self::invalid("type", error.to_string()),
            NotUnderstood::UnknownType(kind) => ws_frames::unknown_type(&kind),
            NotUnderstood::Invalid(error) => read::wrong_value(error),
        }
    }
}
