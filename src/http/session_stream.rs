//! The WebSockets `/agent/stream/{session_id}` and `/agent/stream`: event streams of any number of
//! sessions and all commands to them, on one connection.

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
    queue, sse,
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
use greenroom_core::{
    approval::Surface,
    cursor::{Cursor, StreamStart},
    ids::SessionId,
    session::SessionRow,
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let upgraded = "The connection becomes a WebSocket";
    vec![
        Endpoint::get("/agent/stream", open_stream)
            .operation("stream", "Opens a WebSocket for any number of sessions.")
            .description(PROTOCOL_SUMMARY)
            .query::<DialectQuery>()
            .upgrades_to_websocket(upgraded)
            .problems(&["unknown_dialect"]),
        Endpoint::get("/agent/stream/{session_id}", open_session_stream)
            .operation(
                "stream_session",
                "Opens a WebSocket that is subscribed to one session from the start.",
            )
            .description(PROTOCOL_SUMMARY)
            .query::<StreamQuery>()
            .query::<DialectQuery>()
            .upgrades_to_websocket(upgraded)
            .problems(CURSOR_PROBLEMS)
            .problems(&["unknown_dialect", "session_not_found", "too_many_subscribers"]),
    ]
}

/// The description of both endpoints.
const PROTOCOL_SUMMARY: &str = "The client sends JSON: `subscribe{session_id, after?}`, `unsubscribe{session_id}`, \
    `send{session_id, message, …}`, `queue{session_id}`, \
    `queue_change{session_id, message_id, message}`, `queue_withdraw{session_id, message_id}`, \
    `cancel{session_id, run_id?}`, `decide{approval_id, …}`, and administrators `watch` and `unwatch`. Each frame has a `type` and an optional `id`. The server \
    responds with `ack` or `error` and the same `id`, and sends frames `{type, session_id, plan_id, \
    step_index, payload, timestamp, seq, cursor}`. `docs/protocol.md` describes the frames.";

/// `WS /agent/stream`
async fn open_stream(
    state: State,
    caller: Caller,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let protocol = SessionStreamProtocol {
        dialect: events::parse_dialect(&request)?,
        path_session_id: None,
        initial: None,
    };
    ws::start_socket(&state, caller.0, protocol, &request, payload)
}

#[derive(Deserialize, IntoParams)]
struct StreamQuery {
    /// A cursor: `seq`, or `seq.offset` inside an open message; or `now`, the last event, which an
    /// `ack` states.
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
    let start = extract::parse_stream_start(&request, after.as_deref())?;
    let session = commands::load_visible_session(&state, &caller.0, session_id).await?;
    let cursor = state.runtime.resolve_stream_start(session_id, start).await?;
    sse::check_subscriber_limit(&state, &session)?;
    let protocol = SessionStreamProtocol {
        dialect,
        path_session_id: Some(session_id),
        initial: Some(InitialSubscription { session, cursor, start }),
    };
    ws::start_socket(&state, caller.0, protocol, &request, payload)
}

/// The protocol state of one connection.
struct SessionStreamProtocol {
    dialect: Dialect,
    /// The session in the path, used for frames that name no session.
    path_session_id: Option<SessionId>,
    /// The first subscription, started when the connection opens.
    initial: Option<InitialSubscription>,
}

/// The subscription that a connection to the path of a session starts with.
struct InitialSubscription {
    session: SessionRow,
    cursor: Cursor,
    /// The start that the client requested.
    start: StreamStart,
}

/// The key of a stream on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SubscriptionKey {
    /// The stream of one session.
    Session(SessionId),
    /// The events that all sessions commit from now on.
    AllSessions,
}

/// The output of a handled frame.
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

    /// Starts the first subscription. A client that starts from now does not know its position, so it
    /// receives an `ack` with the cursor.
    fn on_open(&mut self, connection: &mut WebSocketConnection<SubscriptionKey>) -> Vec<String> {
        let Some(InitialSubscription { session, cursor, start }) = self.initial.take() else {
            return Vec::new();
        };
        self.subscribe(&session, cursor, connection);
        match start {
            StreamStart::After(_) => Vec::new(),
            StreamStart::Now => vec![ws_frames::ack(None, subscribe_ack(&session, cursor))],
        }
    }

    fn parse_frame(&self, text: &str) -> ClientFrame<StreamRequest> {
        ClientFrame::parse(text, ws_frames::parse_request)
    }

    fn handle_request(
        &self,
        request: StreamRequest,
        connection: &WebSocketConnection<SubscriptionKey>,
    ) -> LocalBoxFuture<'static, Result<SessionStreamOutput, Problem>> {
        let (state, principal) = (connection.state.clone(), connection.principal.clone());
        let limit_check = connection.check_subscription_limit();
        let path_session_id = self.path_session_id;
        async move { execute(&state, &principal, path_session_id, limit_check, request).await }
            .boxed_local()
    }

    fn apply_output(
        &mut self,
        id: Option<&Value>,
        output: SessionStreamOutput,
        connection: &mut WebSocketConnection<SubscriptionKey>,
    ) -> Vec<String> {
        let fields = match output {
            SessionStreamOutput::Subscribe { session, cursor } => {
                self.subscribe(&session, cursor, connection);
                subscribe_ack(&session, cursor)
            }
            SessionStreamOutput::Unsubscribe { session_id } => {
                let key = SubscriptionKey::Session(session_id);
                json!({"session_id": session_id, "subscribed": connection.unsubscribe(&key)})
            }
            SessionStreamOutput::Watch => {
                connection.subscribe_all(SubscriptionKey::AllSessions, self.encoder(connection));
                json!({"watching": true})
            }
            SessionStreamOutput::Unwatch => {
                connection.unsubscribe(&SubscriptionKey::AllSessions);
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
    /// Streams the session from `cursor`. Replaces an existing stream of the session.
    fn subscribe(
        &self,
        session: &SessionRow,
        cursor: Cursor,
        connection: &mut WebSocketConnection<SubscriptionKey>,
    ) {
        let encode = self.encoder(connection);
        let key = SubscriptionKey::Session(session.session_id);
        connection.subscribe(key, session, cursor, StreamFilter::All, encode);
    }

    /// Returns the function that encodes feed items in the dialect of the connection.
    fn encoder(
        &self,
        connection: &WebSocketConnection<SubscriptionKey>,
    ) -> impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static {
        FrameEncoder::new(&connection.state, self.dialect, FrameFormat::WebSocketMessage).into_fn()
    }
}

/// Returns the fields of the response to a subscription: the session, and the cursor from which it is
/// streamed.
fn subscribe_ack(session: &SessionRow, cursor: Cursor) -> Value {
    json!({"session_id": session.session_id, "after": cursor})
}

/// Executes a request. `limit_check` is the result of checking the limit of subscriptions.
async fn execute(
    state: &AppState,
    principal: &Principal,
    path_session_id: Option<SessionId>,
    limit_check: Result<(), Problem>,
    request: StreamRequest,
) -> Result<SessionStreamOutput, Problem> {
    let target = |session_id: Option<SessionId>| {
        let missing = || Problem::invalid("session_id", "missing field `session_id`");
        session_id.or(path_session_id).ok_or_else(missing)
    };
    match request {
        StreamRequest::Subscribe { session_id, after } => {
            limit_check?;
            let session =
                commands::load_visible_session(state, principal, target(session_id)?).await?;
            let cursor = state.runtime.resolve_stream_start(session.session_id, after).await?;
            sse::check_subscriber_limit(state, &session)?;
            Ok(SessionStreamOutput::Subscribe { session: Box::new(session), cursor })
        }
        StreamRequest::Unsubscribe { session_id } => {
            Ok(SessionStreamOutput::Unsubscribe { session_id: target(session_id)? })
        }
        StreamRequest::Watch => {
            limit_check?;
            if !principal.is_admin() {
                return Err(Problem::forbidden("requires the role `admin`"));
            }
            Ok(SessionStreamOutput::Watch)
        }
        StreamRequest::Unwatch => Ok(SessionStreamOutput::Unwatch),
        StreamRequest::Send { session_id, message } => {
            let session =
                commands::load_visible_session(state, principal, target(session_id)?).await?;
            let SubmittedMessage { run_id, seq, repeated, queued_status, .. } =
                commands::submit_message(state, principal, &session, message).await?;
            let mut fields = json!({
                "session_id": session.session_id, "run_id": run_id, "seq": seq,
                "repeated": repeated,
            });
            if let Some(status) = queued_status {
                fields["message_status"] = json!(status);
            }
            Ok(SessionStreamOutput::Ack(fields))
        }
        StreamRequest::Queue { session_id } => {
            let session =
                commands::load_visible_session(state, principal, target(session_id)?).await?;
            let mut fields = queue::list_queue(state, &session).await?;
            fields["session_id"] = json!(session.session_id);
            Ok(SessionStreamOutput::Ack(fields))
        }
        StreamRequest::QueueChange { session_id, message_id, change } => {
            let session =
                commands::load_visible_session(state, principal, target(session_id)?).await?;
            let update =
                queue::change_message(state, principal, &session, message_id, change).await?;
            Ok(SessionStreamOutput::Ack(json!(update)))
        }
        StreamRequest::QueueWithdraw { session_id, message_id } => {
            let session =
                commands::load_visible_session(state, principal, target(session_id)?).await?;
            let update = queue::withdraw_message(state, principal, &session, message_id).await?;
            Ok(SessionStreamOutput::Ack(json!(update)))
        }
        StreamRequest::Cancel { session_id, run_id } => {
            let session =
                commands::load_visible_session(state, principal, target(session_id)?).await?;
            let run_id = commands::cancel_run(state, principal, &session, run_id).await?;
            Ok(SessionStreamOutput::Ack(
                json!({"session_id": session.session_id, "run_id": run_id}),
            ))
        }
        StreamRequest::Decide { approval_id, answer } => {
            let row = commands::load_visible_approval(state, principal, approval_id).await?;
            let outcome =
                answers::submit_answer(state, principal, &row, answer, Surface::Websocket).await?;
            Ok(SessionStreamOutput::Ack(json!({
                "session_id": row.session_id, "plan_id": approval_id,
                "closed": outcome.closed, "repeated": outcome.repeated,
            })))
        }
    }
}
