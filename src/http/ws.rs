//! The WebSocket transport: one actor a connection, any number of sessions on it. The only file
//! that knows `actix_web_actors`.
//!
//! That crate buffers what is written without bound, so this file bounds it: after every so many
//! bytes a numbered ping is sent, and while too much is unacknowledged nothing more is taken from
//! the pipe, which then refuses subscribers. Clients' frames are carried out one after the other,
//! in their order.

use super::{
    AppState, Problem, State,
    commands::{self, Submitted},
    decisions,
    follow::Follow,
    guard::{self, Caller},
    pipe::{Pipe, Subscription},
    read, sse,
    ws_frames::{self, ClientFrame, Request},
};
use crate::{auth::Principal, dialect::Dialect};
use actix::{
    Actor, ActorContext, ActorFutureExt as _, AsyncContext as _, StreamHandler, WrapFuture as _,
};
use actix_http::ws::Item;
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws;
use futures::stream;
use greenroom_actors::observation::Watch;
use greenroom_core::{approval::Surface, cursor::Cursor, ids::SessionId, session::SessionRow};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

/// Time between two pings.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Without a sign of life for so long the client counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Bytes between two pings that measure how far the client is.
const BYTES_PER_PING: u64 = 64 * 1024;
/// Bytes on their way to the client; beyond, its subscribers wait.
const BYTES_IN_FLIGHT_MAX: u64 = 256 * 1024;
/// Client frames waiting for their turn.
const WAITING_FRAMES_MAX: usize = 64;

/// `WS /agent/stream`
pub(super) async fn many_sessions(
    state: State,
    caller: Caller,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    start(&state, caller.0, None, &request, payload)
}

#[derive(Deserialize)]
struct StreamQuery {
    after: Option<String>,
}

/// `WS /agent/stream/{session_id}`
pub(super) async fn one_session(
    state: State,
    caller: Caller,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let session_id = read::path_id(&request, "session_id")?;
    let after = read::query::<StreamQuery>(&request)?.after;
    let cursor = read::cursor(&request, after.as_deref())?;
    let session = commands::session_for(&state, &caller.0, session_id).await?;
    state.runtime.check_cursor(session_id, cursor).await?;
    sse::check_room(&state, &session)?;
    start(&state, caller.0, Some((session, cursor)), &request, payload)
}

fn start(
    state: &AppState,
    principal: Principal,
    first: Option<(SessionRow, Cursor)>,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let now = Instant::now();
    let path = format!("/sockets/{}", state.runtime.new_id());
    let watch = state.runtime.board.watch(path, "Socket");
    watch.set_state("open", None);
    let socket = Socket {
        state: state.clone(),
        principal,
        of_address: first.as_ref().map(|(session, _)| session.session_id),
        first,
        pipe: Pipe::default(),
        subscriptions: HashMap::new(),
        flow: Flow::default(),
        heard_at: now,
        waiting: VecDeque::new(),
        working: false,
        fragments: None,
        watch,
    };
    let handshake_failed = |error: actix_web::Error| {
        Problem::bad_request("websocket_required", format!("this is a WebSocket: {error}"))
    };
    ws::WsResponseBuilder::new(socket, request, payload)
        .frame_size(state.limits.body_bytes_max)
        .start()
        .map_err(handshake_failed)
}

/// One connection.
struct Socket {
    state: AppState,
    principal: Principal,
    /// The session in the address, meant where a frame names none.
    of_address: Option<SessionId>,
    /// What to subscribe to at once.
    first: Option<(SessionRow, Cursor)>,
    pipe: Pipe,
    subscriptions: HashMap<SessionId, Subscription>,
    flow: Flow,
    heard_at: Instant,
    waiting: VecDeque<ClientFrame>,
    /// A frame is being carried out.
    working: bool,
    /// A message that comes in pieces.
    fragments: Option<Vec<u8>>,
    /// Its entry on the board.
    watch: Watch,
}

type Context = ws::WebsocketContext<Socket>;

/// How far the client is behind: bytes written, and bytes it acknowledged by answering pings.
#[derive(Debug, Default)]
struct Flow {
    written: u64,
    acknowledged: u64,
    /// What was written when each ping that is not answered yet was sent.
    pings: VecDeque<(u64, u64)>,
    pings_sent: u64,
}

impl Flow {
    /// Counts bytes; true if a ping is due.
    fn wrote(&mut self, bytes: usize) -> bool {
        self.written += bytes as u64;
        let pinged = self.pings.back().map_or(self.acknowledged, |(_, written)| *written);
        self.written - pinged >= BYTES_PER_PING
    }

    /// The payload of the next ping.
    fn ping(&mut self) -> u64 {
        self.pings_sent += 1;
        // A client that answers none is gone soon; until then there is no use in remembering.
        if self.pings.len() < WAITING_FRAMES_MAX {
            self.pings.push_back((self.pings_sent, self.written));
        }
        self.pings_sent
    }

    /// The client answered ping `number`, and so has read all that was written before it.
    fn answered(&mut self, number: u64) {
        while let Some((ping, written)) = self.pings.front()
            && *ping <= number
        {
            self.acknowledged = *written;
            self.pings.pop_front();
        }
    }

    fn is_open(&self) -> bool {
        self.written - self.acknowledged < BYTES_IN_FLIGHT_MAX
    }
}

/// What is ready in the pipe.
struct Ready(VecDeque<String>);

impl Actor for Socket {
    type Context = Context;

    fn started(&mut self, ctx: &mut Context) {
        if let Some((session, cursor)) = self.first.take() {
            self.attach(&session, cursor);
        }
        self.read_pipe(ctx);
        ctx.run_interval(HEARTBEAT, |socket, ctx| {
            if socket.heard_at.elapsed() >= SILENCE_MAX {
                // Half-open: a closing frame would never arrive either.
                return ctx.stop();
            }
            socket.ping(ctx);
        });
    }

    fn stopped(&mut self, _: &mut Context) {
        self.pipe.close();
        self.subscriptions.clear();
    }
}

impl StreamHandler<Ready> for Socket {
    fn handle(&mut self, Ready(frames): Ready, ctx: &mut Context) {
        for frame in frames {
            self.write(frame, ctx);
        }
        self.forget_ended();
        for subscription in self.subscriptions.values() {
            subscription.room_again();
        }
        if self.flow.is_open() {
            self.read_pipe(ctx);
        }
    }

    /// Only this round of reading is over.
    fn finished(&mut self, _: &mut Context) {}
}

impl StreamHandler<Result<ws::Message, ws::ProtocolError>> for Socket {
    fn handle(&mut self, item: Result<ws::Message, ws::ProtocolError>, ctx: &mut Context) {
        self.heard_at = Instant::now();
        self.watch.tick();
        match item {
            Ok(ws::Message::Text(text)) => self.take(&text, ctx),
            Ok(ws::Message::Ping(payload)) => ctx.pong(&payload),
            Ok(ws::Message::Pong(payload)) => self.pong(&payload, ctx),
            Ok(ws::Message::Continuation(piece)) => self.take_piece(piece, ctx),
            Ok(ws::Message::Binary(_)) => {
                hang_up(ws::CloseCode::Unsupported, "frames are text", ctx);
            }
            Ok(ws::Message::Close(reason)) => {
                ctx.close(reason);
                ctx.stop();
            }
            Ok(ws::Message::Nop) => {}
            Err(ws::ProtocolError::Overflow) => {
                hang_up(ws::CloseCode::Size, "the frame is too large", ctx);
            }
            Err(error) => hang_up(ws::CloseCode::Protocol, &error.to_string(), ctx),
        }
    }
}

fn hang_up(code: ws::CloseCode, reason: &str, ctx: &mut Context) {
    ctx.close(Some(ws::CloseReason { code, description: Some(reason.to_owned()) }));
    ctx.stop();
}

impl Socket {
    /// Waits for the next frames in the pipe, once.
    fn read_pipe(&mut self, ctx: &mut Context) {
        let pipe = self.pipe.clone();
        let ready = stream::once(std::future::poll_fn(move |cx| pipe.poll_frames(cx)));
        ctx.add_stream(futures::StreamExt::map(ready, Ready));
    }

    fn write(&mut self, frame: String, ctx: &mut Context) {
        let due = self.flow.wrote(frame.len());
        ctx.text(frame);
        if due {
            self.ping(ctx);
        }
    }

    fn ping(&mut self, ctx: &mut Context) {
        let number = self.flow.ping();
        ctx.ping(number.to_string().as_bytes());
    }

    fn pong(&mut self, payload: &[u8], ctx: &mut Context) {
        let number = std::str::from_utf8(payload).ok().and_then(|number| number.parse().ok());
        let was_open = self.flow.is_open();
        // No client can answer what was not sent yet.
        if let Some(number) = number.filter(|number| *number <= self.flow.pings_sent) {
            self.flow.answered(number);
        }
        if !was_open && self.flow.is_open() {
            self.read_pipe(ctx);
        }
    }

    fn take_piece(&mut self, piece: Item, ctx: &mut Context) {
        let (bytes, last) = match piece {
            Item::FirstText(bytes) => {
                self.fragments = Some(Vec::new());
                (bytes, false)
            }
            Item::FirstBinary(_) => {
                return hang_up(ws::CloseCode::Unsupported, "frames are text", ctx);
            }
            Item::Continue(bytes) => (bytes, false),
            Item::Last(bytes) => (bytes, true),
        };
        let Some(mut fragments) = self.fragments.take() else { return };
        if fragments.len() + bytes.len() > self.state.limits.body_bytes_max {
            return hang_up(ws::CloseCode::Size, "the message is too large", ctx);
        }
        fragments.extend_from_slice(&bytes);
        if !last {
            self.fragments = Some(fragments);
            return;
        }
        match String::from_utf8(fragments) {
            Ok(text) => self.take(&text, ctx),
            Err(_) => hang_up(ws::CloseCode::Invalid, "text must be UTF-8", ctx),
        }
    }

    /// Puts a client's frame in line.
    fn take(&mut self, text: &str, ctx: &mut Context) {
        let mut frame = ClientFrame::parse(text);
        if frame.request.is_ok()
            && let Err(problem) = guard::admit_one(&self.state.throttle, &self.principal)
        {
            frame.request = Err(problem);
        }
        if self.waiting.len() >= WAITING_FRAMES_MAX {
            let max = WAITING_FRAMES_MAX as u64;
            let problem = Problem::too_many("too_many_frames", "wait for answers", max);
            return self.write(ws_frames::error(frame.id.as_ref(), &problem), ctx);
        }
        self.waiting.push_back(frame);
        self.work(ctx);
    }

    /// Carries out the next frame, unless one is being carried out.
    fn work(&mut self, ctx: &mut Context) {
        if self.working {
            return;
        }
        let Some(ClientFrame { id, request }) = self.waiting.pop_front() else { return };
        self.working = true;
        let (state, principal, of_address) =
            (self.state.clone(), self.principal.clone(), self.of_address);
        let known = self.subscriptions.len();
        let work = async move { carry_out(&state, &principal, of_address, known, request?).await };
        ctx.spawn(work.into_actor(self).map(move |done, socket, ctx| {
            let answer = match done {
                Ok(done) => socket.done(id.as_ref(), done),
                Err(problem) => ws_frames::error(id.as_ref(), &problem),
            };
            socket.write(answer, ctx);
            socket.working = false;
            socket.work(ctx);
        }));
    }

    /// What carrying out changes here; and the answer.
    fn done(&mut self, id: Option<&Value>, done: Done) -> String {
        match done {
            Done::Subscribe { session, cursor } => {
                let session_id = session.session_id;
                self.attach(&session, cursor);
                ws_frames::ack(id, json!({"session_id": session_id, "after": cursor}))
            }
            Done::Unsubscribe { session_id } => {
                let was = self.subscriptions.remove(&session_id).is_some();
                ws_frames::ack(id, json!({"session_id": session_id, "subscribed": was}))
            }
            Done::Told(fields) => ws_frames::ack(id, fields),
        }
    }

    /// Streams that session from there on; a stream of it that was going ends.
    fn attach(&mut self, session: &SessionRow, cursor: Cursor) {
        self.forget_ended();
        let runtime = &self.state.runtime;
        let (clock, redactor) = (runtime.clock.clone(), self.state.redactor.clone());
        let encode = move |item: &_| {
            let frame = Dialect::Agent.encode(item, clock.now(), &redactor)?;
            // Plain data: serialising it can't fail.
            Some(serde_json::to_string(&frame.nested()).unwrap_or_default())
        };
        let (session_id, agent) = (session.session_id, session.agent.clone());
        drop(self.subscriptions.remove(&session_id));
        let subscription = self.pipe.attach(Follow::Everything, "websocket", encode, |outlet| {
            runtime.subscribe(session_id, agent, cursor, outlet)
        });
        self.subscriptions.insert(session_id, subscription);
    }

    fn forget_ended(&mut self) {
        self.subscriptions.retain(|_, subscription| !subscription.has_ended());
    }
}

/// A frame that was carried out.
enum Done {
    Subscribe { session: Box<SessionRow>, cursor: Cursor },
    Unsubscribe { session_id: SessionId },
    Told(Value),
}

async fn carry_out(
    state: &AppState,
    principal: &Principal,
    of_address: Option<SessionId>,
    subscriptions: usize,
    request: Request,
) -> Result<Done, Problem> {
    let meant = |named: Option<SessionId>| {
        let missing = || Problem::invalid("session_id", "missing field `session_id`");
        named.or(of_address).ok_or_else(missing)
    };
    if !state.auth.still_holds(principal) {
        return Err(Problem::unauthorized("the key was revoked"));
    }
    match request {
        Request::Subscribe { session_id, after } => {
            let max = state.limits.subscriptions_per_socket_max;
            if subscriptions >= max {
                let detail = format!("this connection has {max} subscriptions already");
                return Err(Problem::too_many("too_many_subscriptions", detail, max as u64));
            }
            let session = commands::session_for(state, principal, meant(session_id)?).await?;
            state.runtime.check_cursor(session.session_id, after).await?;
            sse::check_room(state, &session)?;
            Ok(Done::Subscribe { session: Box::new(session), cursor: after })
        }
        Request::Unsubscribe { session_id } => {
            Ok(Done::Unsubscribe { session_id: meant(session_id)? })
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4_the_flow_stops_at_the_limit_and_goes_on_when_the_client_has_read() {
        let mut flow = Flow::default();
        let mut pings = Vec::new();
        while flow.is_open() {
            if flow.wrote(1000) {
                pings.push(flow.ping());
            }
        }
        assert_eq!(flow.written, BYTES_IN_FLIGHT_MAX.next_multiple_of(1000));
        assert_eq!(pings, [1, 2, 3], "one ping for each 64 KiB, but the last not yet full");
        flow.answered(1);
        assert!(flow.is_open());
        assert_eq!(flow.written - flow.acknowledged, flow.written - 66_000);
        flow.answered(3);
        assert_eq!(flow.acknowledged, 198_000);
        assert!(flow.pings.is_empty());
    }

    #[test]
    fn a_client_that_never_answers_costs_a_bounded_memory() {
        let mut flow = Flow::default();
        for _ in 0..10_000 {
            flow.ping();
        }
        assert_eq!(flow.pings.len(), WAITING_FRAMES_MAX);
        flow.answered(10_000);
        assert!(flow.pings.is_empty());
    }
}
