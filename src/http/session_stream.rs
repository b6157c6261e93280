//! The WebSockets `/agent/stream/{session_id}` and `/agent/stream`: any number of sessions on one
//! connection, and everything a client does with them.

use super::{
    AppState, Problem, State,
    access_control::Caller,
    answers,
    commands::{self, SubmittedMessage},
    endpoint::Endpoint,
    events::{self, DialectQuery},
    extract,
    frame_encoder::{FrameEncoder, FrameFormat},
    problem_codes::CURSOR_PROBLEMS,
    sse,
    stream_filter::StreamFilter,
    ws,
    ws_frames::{self, ClientFrame, StreamRequest},
    ws_protocol::{WebSocketConnection, WebSocketProtocol},
};
use crate::{auth::Principal, dialect::Dialect};
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use bytestring::ByteString;
use futures::future::{FutureExt as _, LocalBoxFuture};
use greenroom_actors::feed::FeedItem;
use greenroom_core::{approval::Surface, cursor::Cursor, ids::SessionId, session::SessionRow};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let upgraded = "The connection is a WebSocket from here on";
    vec![
        Endpoint::get("/agent/stream", open_stream)
            .operation("stream", "A WebSocket for any number of sessions.")
            .description(PROTOCOL_SUMMARY)
            .query::<DialectQuery>()
            .upgrades_to_websocket(upgraded)
            .problems(&["unknown_dialect"]),
        Endpoint::get("/agent/stream/{session_id}", open_session_stream)
            .operation("stream_session", "A WebSocket that begins with one session.")
            .description(PROTOCOL_SUMMARY)
            .query::<StreamQuery>()
            .query::<DialectQuery>()
            .upgrades_to_websocket(upgraded)
            .problems(CURSOR_PROBLEMS)
            .problems(&["unknown_dialect", "session_not_found", "too_many_subscribers"]),
    ]
}

/// What is said on either.
const PROTOCOL_SUMMARY: &str = "The client sends JSON: `subscribe{session_id, after?}`, `unsubscribe{session_id}`, \
    `send{session_id, message, …}`, `cancel{session_id, run_id?}`, `decide{approval_id, …}`, and \
    administrators `watch` and `unwatch`, each with a `type` and maybe an `id`. The server answers \
    `ack` or `error` with that `id`, and sends frames `{type, session_id, plan_id, step_index, payload, \
    timestamp, seq, cursor}`. `docs/protocol.md` has the details.";

/// `WS /agent/stream`
async fn open_stream(
    state: State,
    caller: Caller,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let talk = SessionStreamProtocol {
        dialect: events::parse_dialect(&request)?,
        path_session_id: None,
        initial: None,
    };
    ws::start_socket(&state, caller.0, talk, &request, payload)
}

#[derive(Deserialize, IntoParams)]
struct StreamQuery {
    /// A cursor: `seq`, or `seq.offset` inside an open message.
    after: Option<String>,
}

/// `WS /agent/stream/{session_id}`
async fn open_session_stream(
    state: State,
    caller: Caller,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let session_id = extract::path_id(&request, "session_id")?;
    let dialect = events::parse_dialect(&request)?;
    let after = extract::parse_query::<StreamQuery>(&request)?.after;
    let cursor = extract::parse_cursor(&request, after.as_deref())?;
    let session = commands::load_visible_session(&state, &caller.0, session_id).await?;
    state.runtime.validate_cursor(session_id, cursor).await?;
    sse::check_subscriber_limit(&state, &session)?;
    let talk = SessionStreamProtocol {
        dialect,
        path_session_id: Some(session_id),
        initial: Some((session, cursor)),
    };
    ws::start_socket(&state, caller.0, talk, &request, payload)
}

/// What is said on one connection.
struct SessionStreamProtocol {
    dialect: Dialect,
    /// The session in the address, meant where a frame names none.
    path_session_id: Option<SessionId>,
    /// What to subscribe to at once.
    initial: Option<(SessionRow, Cursor)>,
}

/// One of the streams on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SubscriptionKey {
    /// A session, whole.
    Session(SessionId),
    /// What all sessions commit from now on.
    AllSessions,
}

/// A frame that was carried out.
enum SessionStreamOutput {
    Subscribe { session: Box<SessionRow>, cursor: Cursor },
    Unsubscribe { session_id: SessionId },
    Watch,
    Unwatch,
    Ack(Value),
}

impl WebSocketProtocol for SessionStreamProtocol {
    type Request = StreamRequest;
    type Output = SessionStreamOutput;
    type Key = SubscriptionKey;

    fn on_open(&mut self, line: &mut WebSocketConnection<SubscriptionKey>) {
        if let Some((session, cursor)) = self.initial.take() {
            self.subscribe(&session, cursor, line);
        }
    }

    fn parse_frame(&self, text: &str) -> ClientFrame<StreamRequest> {
        ClientFrame::parse(text, ws_frames::parse_request)
    }

    fn handle_request(
        &self,
        request: StreamRequest,
        line: &WebSocketConnection<SubscriptionKey>,
    ) -> LocalBoxFuture<'static, Result<SessionStreamOutput, Problem>> {
        let (state, principal) = (line.state.clone(), line.principal.clone());
        let (room, of_address) = (line.check_subscription_limit(), self.path_session_id);
        async move { carry_out(&state, &principal, of_address, room, request).await }.boxed_local()
    }

    fn apply_output(
        &mut self,
        id: Option<&Value>,
        done: SessionStreamOutput,
        line: &mut WebSocketConnection<SubscriptionKey>,
    ) -> Vec<String> {
        let fields = match done {
            SessionStreamOutput::Subscribe { session, cursor } => {
                self.subscribe(&session, cursor, line);
                json!({"session_id": session.session_id, "after": cursor})
            }
            SessionStreamOutput::Unsubscribe { session_id } => {
                json!({"session_id": session_id, "subscribed": line.unsubscribe(&SubscriptionKey::Session(session_id))})
            }
            SessionStreamOutput::Watch => {
                line.subscribe_all(SubscriptionKey::AllSessions, self.encoder(line));
                json!({"watching": true})
            }
            SessionStreamOutput::Unwatch => {
                line.unsubscribe(&SubscriptionKey::AllSessions);
                json!({"watching": false})
            }
            SessionStreamOutput::Ack(fields) => fields,
        };
        vec![ws_frames::ack(id, fields)]
    }

    fn error_frame(&self, id: Option<&Value>, problem: &Problem) -> String {
        ws_frames::error(id, problem)
    }
}

impl SessionStreamProtocol {
    /// Streams that session from there on; a stream of it that was going ends.
    fn subscribe(
        &self,
        session: &SessionRow,
        cursor: Cursor,
        line: &mut WebSocketConnection<SubscriptionKey>,
    ) {
        let encode = self.encoder(line);
        let name = SubscriptionKey::Session(session.session_id);
        line.subscribe(name, session, cursor, StreamFilter::All, encode);
    }

    /// Puts what is told into the words of the connection's dialect.
    fn encoder(
        &self,
        line: &WebSocketConnection<SubscriptionKey>,
    ) -> impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static {
        FrameEncoder::new(&line.state, self.dialect, FrameFormat::WebSocketMessage).into_fn()
    }
}

async fn carry_out(
    state: &AppState,
    principal: &Principal,
    of_address: Option<SessionId>,
    room: Result<(), Problem>,
    request: StreamRequest,
) -> Result<SessionStreamOutput, Problem> {
    let meant = |named: Option<SessionId>| {
        let missing = || Problem::invalid("session_id", "missing field `session_id`");
        named.or(of_address).ok_or_else(missing)
    };
    match request {
        StreamRequest::Subscribe { session_id, after } => {
            room?;
            let session =
                commands::load_visible_session(state, principal, meant(session_id)?).await?;
            state.runtime.validate_cursor(session.session_id, after).await?;
            sse::check_subscriber_limit(state, &session)?;
            Ok(SessionStreamOutput::Subscribe { session: Box::new(session), cursor: after })
        }
        StreamRequest::Unsubscribe { session_id } => {
            Ok(SessionStreamOutput::Unsubscribe { session_id: meant(session_id)? })
        }
        StreamRequest::Watch => {
            room?;
            if !principal.is_admin() {
                return Err(Problem::forbidden("this needs the role `admin`"));
            }
            Ok(SessionStreamOutput::Watch)
        }
        StreamRequest::Unwatch => Ok(SessionStreamOutput::Unwatch),
        StreamRequest::Send { session_id, message } => {
            let session =
                commands::load_visible_session(state, principal, meant(session_id)?).await?;
            let SubmittedMessage { run_id, seq, repeated } =
                commands::submit_message(state, principal, &session, message).await?;
            Ok(SessionStreamOutput::Ack(json!({
                "session_id": session.session_id, "run_id": run_id, "seq": seq,
                "repeated": repeated,
            })))
        }
        StreamRequest::Cancel { session_id, run_id } => {
            let session =
                commands::load_visible_session(state, principal, meant(session_id)?).await?;
            let run_id = commands::cancel_run(state, principal, &session, run_id).await?;
            Ok(SessionStreamOutput::Ack(
                json!({"session_id": session.session_id, "run_id": run_id}),
            ))
        }
        StreamRequest::Decide { approval_id, answer } => {
            let row = commands::load_visible_approval(state, principal, approval_id).await?;
            let decided =
                answers::submit_answer(state, principal, &row, answer, Surface::Websocket).await?;
            Ok(SessionStreamOutput::Ack(json!({
                "session_id": row.session_id, "plan_id": approval_id,
                "closed": decided.closed, "repeated": decided.repeated,
            })))
        }
    }
}
