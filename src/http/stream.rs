//! The WebSockets `/agent/stream/{session_id}` and `/agent/stream`: any number of sessions on one
//! connection, and everything a client does with them.

use super::{
    AppState, Problem, State,
    commands::{self, Submitted},
    decisions,
    encoder::{Encoder, Shape},
    endpoint::Endpoint,
    events::{self, DialectQuery},
    follow::Follow,
    guard::Caller,
    problem_codes::OF_CURSORS,
    read, sse,
    talk::{Line, Talk},
    ws,
    ws_frames::{self, ClientFrame, Request},
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
        Endpoint::get("/agent/stream", many_sessions)
            .named("stream", "A WebSocket for any number of sessions.")
            .explained(FRAMES)
            .query::<DialectQuery>()
            .upgrades(upgraded)
            .problems(&["unknown_dialect"]),
        Endpoint::get("/agent/stream/{session_id}", one_session)
            .named("stream_session", "A WebSocket that begins with one session.")
            .explained(FRAMES)
            .query::<StreamQuery>()
            .query::<DialectQuery>()
            .upgrades(upgraded)
            .problems(OF_CURSORS)
            .problems(&["unknown_dialect", "session_not_found", "too_many_subscribers"]),
    ]
}

/// What is said on either.
const FRAMES: &str = "The client sends JSON: `subscribe{session_id, after?}`, `unsubscribe{session_id}`, \
    `send{session_id, message, …}`, `cancel{session_id, run_id?}`, `decide{approval_id, …}`, and \
    administrators `watch` and `unwatch`, each with a `type` and maybe an `id`. The server answers \
    `ack` or `error` with that `id`, and sends frames `{type, session_id, plan_id, step_index, payload, \
    timestamp, seq, cursor}`. `docs/protocol.md` has the details.";

/// `WS /agent/stream`
async fn many_sessions(
    state: State,
    caller: Caller,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let talk = Sessions { dialect: events::asked_for(&request)?, of_address: None, first: None };
    ws::start(&state, caller.0, talk, &request, payload)
}

#[derive(Deserialize, IntoParams)]
struct StreamQuery {
    /// A cursor: `seq`, or `seq.offset` inside an open message.
    after: Option<String>,
}

/// `WS /agent/stream/{session_id}`
async fn one_session(
    state: State,
    caller: Caller,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let dialect = events::asked_for(&request)?;
    let after = read::query::<StreamQuery>(&request)?.after;
    let cursor = read::cursor(&request, after.as_deref())?;
    let session = commands::session_for(&state, &caller.0, session_id).await?;
    state.runtime.check_cursor(session_id, cursor).await?;
    sse::check_room(&state, &session)?;
    let talk = Sessions { dialect, of_address: Some(session_id), first: Some((session, cursor)) };
    ws::start(&state, caller.0, talk, &request, payload)
}

/// What is said on one connection.
struct Sessions {
    dialect: Dialect,
    /// The session in the address, meant where a frame names none.
    of_address: Option<SessionId>,
    /// What to subscribe to at once.
    first: Option<(SessionRow, Cursor)>,
}

/// One of the streams on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stream {
    /// A session, whole.
    Session(SessionId),
    /// What all sessions commit from now on.
    Everybodys,
}

/// A frame that was carried out.
enum Done {
    Subscribe { session: Box<SessionRow>, cursor: Cursor },
    Unsubscribe { session_id: SessionId },
    Watch,
    Unwatch,
    Told(Value),
}

impl Talk for Sessions {
    type Request = Request;
    type Done = Done;
    type Stream = Stream;

    fn begin(&mut self, line: &mut Line<Stream>) {
        if let Some((session, cursor)) = self.first.take() {
            self.attach(&session, cursor, line);
        }
    }

    fn hear(&self, text: &str) -> ClientFrame<Request> {
        ClientFrame::parse(text, ws_frames::request)
    }

    fn carry_out(
        &self,
        request: Request,
        line: &Line<Stream>,
    ) -> LocalBoxFuture<'static, Result<Done, Problem>> {
        let (state, principal) = (line.state.clone(), line.principal.clone());
        let (room, of_address) = (line.check_room(), self.of_address);
        async move { carry_out(&state, &principal, of_address, room, request).await }.boxed_local()
    }

    fn done(&mut self, id: Option<&Value>, done: Done, line: &mut Line<Stream>) -> Vec<String> {
        let fields = match done {
            Done::Subscribe { session, cursor } => {
                self.attach(&session, cursor, line);
                json!({"session_id": session.session_id, "after": cursor})
            }
            Done::Unsubscribe { session_id } => {
                json!({"session_id": session_id, "subscribed": line.detach(&Stream::Session(session_id))})
            }
            Done::Watch => {
                line.attach_to_all(Stream::Everybodys, self.encode(line));
                json!({"watching": true})
            }
            Done::Unwatch => {
                line.detach(&Stream::Everybodys);
                json!({"watching": false})
            }
            Done::Told(fields) => fields,
        };
        vec![ws_frames::ack(id, fields)]
    }

    fn refusal(&self, id: Option<&Value>, problem: &Problem) -> String {
        ws_frames::error(id, problem)
    }
}

impl Sessions {
    /// Streams that session from there on; a stream of it that was going ends.
    fn attach(&self, session: &SessionRow, cursor: Cursor, line: &mut Line<Stream>) {
        let encode = self.encode(line);
        let name = Stream::Session(session.session_id);
        line.attach(name, session, cursor, Follow::Everything, encode);
    }

    /// Puts what is told into the words of the connection's dialect.
    fn encode(
        &self,
        line: &Line<Stream>,
    ) -> impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static {
        Encoder::new(&line.state, self.dialect, Shape::Message).into_encode()
    }
}

async fn carry_out(
    state: &AppState,
    principal: &Principal,
    of_address: Option<SessionId>,
    room: Result<(), Problem>,
    request: Request,
) -> Result<Done, Problem> {
    let meant = |named: Option<SessionId>| {
        let missing = || Problem::invalid("session_id", "missing field `session_id`");
        named.or(of_address).ok_or_else(missing)
    };
    match request {
        Request::Subscribe { session_id, after } => {
            room?;
            let session = commands::session_for(state, principal, meant(session_id)?).await?;
            state.runtime.check_cursor(session.session_id, after).await?;
            sse::check_room(state, &session)?;
            Ok(Done::Subscribe { session: Box::new(session), cursor: after })
        }
        Request::Unsubscribe { session_id } => {
            Ok(Done::Unsubscribe { session_id: meant(session_id)? })
        }
        Request::Watch => {
            room?;
            if !principal.is_admin() {
                return Err(Problem::forbidden("this needs the role `admin`"));
            }
            Ok(Done::Watch)
        }
        Request::Unwatch => Ok(Done::Unwatch),
        Request::Send { session_id, message } => {
            let session = commands::session_for(state, principal, meant(session_id)?).await?;
            let Submitted { run_id, seq, repeated } =
                commands::submit(state, principal, &session, message).await?;
            Ok(Done::Told(json!({
                "session_id": session.session_id, "run_id": run_id, "seq": seq,
                "repeated": repeated,
            })))
        }
        Request::Cancel { session_id, run_id } => {
            let session = commands::session_for(state, principal, meant(session_id)?).await?;
            let run_id = commands::cancel(state, principal, &session, run_id).await?;
            Ok(Done::Told(json!({"session_id": session.session_id, "run_id": run_id})))
        }
        Request::Decide { approval_id, answer } => {
            let row = commands::approval_for(state, principal, approval_id).await?;
            let decided =
                decisions::decide(state, principal, &row, answer, Surface::Websocket).await?;
            Ok(Done::Told(json!({
                "session_id": row.session_id, "plan_id": approval_id,
                "closed": decided.closed, "repeated": decided.repeated,
            })))
        }
    }
}
