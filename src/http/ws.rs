//! The WebSocket transport: one actor a connection. The only file that knows `actix_web_actors`, and
//! it knows nothing of what is said: that is a [`Talk`], of which there are two, [`super::stream`] and
//! [`super::gateway`].
//!
//! That crate buffers what is written without bound, so this file bounds it: after every so many
//! bytes a numbered ping is sent, and while too much is unacknowledged nothing more is taken from
//! the pipe, which then refuses subscribers. Clients' frames are carried out one after the other,
//! in their order.

use super::{
    AppState, Problem, SILENT_HEARTBEATS_MAX, guard,
    pipe::Pipe,
    talk::{Line, Talk},
    ws_frames::ClientFrame,
    ws_input::Frames,
};
use crate::auth::Principal;
use actix::{
    Actor, ActorContext, ActorFutureExt as _, AsyncContext as _, StreamHandler, WrapFuture as _,
};
use actix_http::ws::Item;
use actix_web::{HttpRequest, HttpResponse, error::PayloadError, web::Payload};
use actix_web_actors::ws;
use bytestring::ByteString;
use futures::stream;
use greenroom_actors::{
    observation::Watch,
    order::{Obey, Order},
};
use std::{collections::VecDeque, time::Instant};

/// Bytes between two pings that measure how far the client is.
const BYTES_PER_PING: u64 = 64 * 1024;
/// Bytes on their way to the client; beyond, its subscribers wait.
const BYTES_IN_FLIGHT_MAX: u64 = 256 * 1024;
/// Client frames waiting for their turn.
const WAITING_FRAMES_MAX: usize = 64;

/// Opens the connection on which `talk` is led.
pub(super) fn start<T: Talk>(
    state: &AppState,
    principal: Principal,
    talk: T,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let path = format!("/sockets/{}", state.runtime.new_id());
    let watch = state.runtime.board.watch(path, "Socket");
    watch.set_state("open", None);
    let pipe = Pipe::default();
    let socket = Socket {
        talk,
        line: Line::new(state.clone(), principal, pipe.clone()),
        pipe,
        flow: Flow::default(),
        heard_at: Instant::now(),
        waiting: VecDeque::new(),
        working: false,
        fragments: None,
        watch,
    };
    let handshake_failed = |error: actix_web::Error| {
        Problem::bad_request("websocket_required", format!("this is a WebSocket: {error}"))
    };
    let frames = Frames::of(payload, state.limits.body_bytes_max);
    ws::WsResponseBuilder::new(socket, request, frames)
        .frame_size(state.limits.body_bytes_max)
        .start()
        .map_err(handshake_failed)
}

/// One connection.
struct Socket<T: Talk> {
    talk: T,
    line: Line<T::Stream>,
    pipe: Pipe,
    flow: Flow,
    heard_at: Instant,
    waiting: VecDeque<ClientFrame<T::Request>>,
    /// A frame is being carried out.
    working: bool,
    /// A message that comes in pieces.
    fragments: Option<Vec<u8>>,
    /// Its entry on the board.
    watch: Watch,
}

type Context<T> = ws::WebsocketContext<Socket<T>>;

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
struct Ready(VecDeque<ByteString>);

impl<T: Talk> Actor for Socket<T> {
    type Context = Context<T>;

    fn started(&mut self, ctx: &mut Context<T>) {
        self.watch.obeys(&[Order::Stop], ctx.address().downgrade().recipient());
        self.talk.begin(&mut self.line);
        self.read_pipe(ctx);
        let heartbeat = self.line.state.limits.heartbeat;
        ctx.run_interval(heartbeat, move |socket, ctx| {
            if socket.heard_at.elapsed() >= heartbeat * SILENT_HEARTBEATS_MAX {
                // Half-open: a closing frame would never arrive either.
                return ctx.stop();
            }
            socket.ping(ctx);
        });
    }

    fn stopped(&mut self, _: &mut Context<T>) {
        self.pipe.close();
        self.line.hang_up();
    }
}

impl<T: Talk> StreamHandler<Ready> for Socket<T> {
    fn handle(&mut self, Ready(frames): Ready, ctx: &mut Context<T>) {
        for frame in frames {
            self.write(frame, ctx);
        }
        self.line.room_again();
        if self.flow.is_open() {
            self.read_pipe(ctx);
        }
    }

    /// Only this round of reading is over.
    fn finished(&mut self, _: &mut Context<T>) {}
}

impl<T: Talk> StreamHandler<Result<ws::Message, ws::ProtocolError>> for Socket<T> {
    fn handle(&mut self, item: Result<ws::Message, ws::ProtocolError>, ctx: &mut Context<T>) {
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
            Err(error) if is_too_long(&error) => {
                hang_up(ws::CloseCode::Size, "the frame is too large", ctx);
            }
            Err(error) => hang_up(ws::CloseCode::Protocol, &error.to_string(), ctx),
        }
    }
}

/// Its client may connect again (A2).
impl<T: Talk> actix::Handler<Obey> for Socket<T> {
    type Result = ();

    fn handle(&mut self, _: Obey, ctx: &mut Context<T>) {
        self.watch.tick();
        hang_up(ws::CloseCode::Again, "an administrator closed the connection", ctx);
    }
}

/// Whether the client announced a frame that is too long; [`Frames`] says so, and the crate that reads
/// from it keeps of its word only the text.
fn is_too_long(error: &ws::ProtocolError) -> bool {
    if let ws::ProtocolError::Io(error) = error {
        return error.to_string() == PayloadError::Overflow.to_string();
    }
    matches!(error, ws::ProtocolError::Overflow)
}

fn hang_up<T: Talk>(code: ws::CloseCode, reason: &str, ctx: &mut Context<T>) {
    ctx.close(Some(ws::CloseReason { code, description: Some(reason.to_owned()) }));
    ctx.stop();
}

impl<T: Talk> Socket<T> {
    /// Waits for the next frames in the pipe, once.
    fn read_pipe(&mut self, ctx: &mut Context<T>) {
        let pipe = self.pipe.clone();
        let ready = stream::once(std::future::poll_fn(move |cx| pipe.poll_frames(cx)));
        ctx.add_stream(futures::StreamExt::map(ready, Ready));
    }

    fn write(&mut self, frame: ByteString, ctx: &mut Context<T>) {
        let due = self.flow.wrote(frame.len());
        ctx.text(frame);
        if due {
            self.ping(ctx);
        }
    }

    fn ping(&mut self, ctx: &mut Context<T>) {
        let number = self.flow.ping();
        ctx.ping(number.to_string().as_bytes());
    }

    fn pong(&mut self, payload: &[u8], ctx: &mut Context<T>) {
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

    fn take_piece(&mut self, piece: Item, ctx: &mut Context<T>) {
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
        if fragments.len() + bytes.len() > self.line.state.limits.body_bytes_max {
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
    fn take(&mut self, text: &str, ctx: &mut Context<T>) {
        let mut frame = self.talk.hear(text);
        // Also one that says nothing sensible (X4).
        if let Err(problem) = guard::admit_one(&self.line.state.throttle, &self.line.principal) {
            frame.request = Err(problem);
        }
        if self.waiting.len() >= WAITING_FRAMES_MAX {
            let max = WAITING_FRAMES_MAX as u64;
            let problem = Problem::too_many("too_many_frames", "wait for answers", max);
            let refusal = self.talk.refusal(frame.id.as_ref(), &problem);
            return self.write(refusal.into(), ctx);
        }
        self.waiting.push_back(frame);
        self.work(ctx);
    }

    /// Carries out the next frame, unless one is being carried out.
    fn work(&mut self, ctx: &mut Context<T>) {
        if self.working {
            return;
        }
        let Some(ClientFrame { id, request }) = self.waiting.pop_front() else { return };
        self.working = true;
        self.line.forget_ended();
        let (auth, principal) = (self.line.state.auth.clone(), self.line.principal.clone());
        let work = request.map(|request| self.talk.carry_out(request, &self.line));
        let work = async move {
            if !auth.still_holds(&principal) {
                return Err(Problem::unauthorized("the key was revoked"));
            }
            work?.await
        };
        ctx.spawn(work.into_actor(self).map(move |done, socket, ctx| {
            let answers = match done {
                Ok(done) => socket.talk.done(id.as_ref(), done, &mut socket.line),
                Err(problem) => vec![socket.talk.refusal(id.as_ref(), &problem)],
            };
            for answer in answers {
                socket.write(answer.into(), ctx);
            }
            socket.working = false;
            socket.work(ctx);
        }));
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
