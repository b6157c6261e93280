//! The WebSocket transport: one actor per connection. The only module that uses `actix_web_actors`.
//! It does not know the content of frames: that is the task of a [`WebSocketProtocol`], which
//! [`super::session_stream`] and [`super::gateway`] implement.
//!
//! `actix_web_actors` buffers written frames without a bound, so this module applies flow control: it
//! sends a numbered ping after every [`BYTES_PER_PING`] bytes, and while too many bytes are
//! unacknowledged it takes no frames from the pipe, which then refuses items of subscribers. The
//! frames of a client are handled one at a time, in their order.

use super::{
    AppState, MISSED_HEARTBEATS_MAX, Problem, access_control,
    pipe::Pipe,
    ws_frame_splitter::FrameSplitter,
    ws_frames::ClientFrame,
    ws_protocol::{WebSocketConnection, WebSocketProtocol},
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
    order::{ActorOrder, ExecuteOrder},
    status_board::StatusEntry,
};
use std::{collections::VecDeque, time::Instant};

/// Number of bytes after which a ping measures the client's progress.
const BYTES_PER_PING: u64 = 64 * 1024;
/// Maximum unacknowledged bytes; above it, the subscribers of the connection wait.
const BYTES_IN_FLIGHT_MAX: u64 = 256 * 1024;
/// Maximum client frames that wait to be handled.
const QUEUED_FRAMES_MAX: usize = 64;

/// Opens a connection that speaks `protocol`.
pub(super) fn start_socket<T: WebSocketProtocol>(
    state: &AppState,
    principal: Principal,
    protocol: T,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Problem> {
    let path = format!("/sockets/{}", state.runtime.new_id());
    let status_entry = state.runtime.status_board.register(path, "Socket");
    status_entry.set_state("open", None);
    let pipe = Pipe::default();
    let socket = WebSocketActor {
        protocol,
        connection: WebSocketConnection::new(state.clone(), principal, pipe.clone()),
        pipe,
        flow_control: FlowControl::default(),
        last_received_at: Instant::now(),
        queued_frames: VecDeque::new(),
        is_handling: false,
        fragments: None,
        status_entry,
    };
    let handshake_failed = |error: actix_web::Error| {
        Problem::bad_request("websocket_required", format!("requires a WebSocket: {error}"))
    };
    let frames = FrameSplitter::new(payload, state.limits.body_bytes_max);
    ws::WsResponseBuilder::new(socket, request, frames)
        .frame_size(state.limits.body_bytes_max)
        .start()
        .map_err(handshake_failed)
}

/// The actor of one connection.
struct WebSocketActor<T: WebSocketProtocol> {
    protocol: T,
    connection: WebSocketConnection<T::Key>,
    pipe: Pipe,
    flow_control: FlowControl,
    last_received_at: Instant,
    queued_frames: VecDeque<ClientFrame<T::Request>>,
    /// True while a client frame is being handled.
    is_handling: bool,
    /// The fragments of an incomplete message.
    fragments: Option<Vec<u8>>,
    /// The actor's entry on the status board.
    status_entry: StatusEntry,
}

type SocketContext<T> = ws::WebsocketContext<WebSocketActor<T>>;

/// Counts the bytes that were written and the bytes that the client acknowledged by pongs.
#[derive(Debug, Default)]
struct FlowControl {
    written: u64,
    acknowledged: u64,
    /// Unanswered pings: number, and bytes written before the ping.
    pings: VecDeque<(u64, u64)>,
    pings_sent: u64,
}

impl FlowControl {
    /// Counts written bytes. Returns true if a ping is due.
    fn record_write(&mut self, bytes: usize) -> bool {
        self.written += bytes as u64;
        let pinged = self.pings.back().map_or(self.acknowledged, |(_, written)| *written);
        self.written - pinged >= BYTES_PER_PING
    }

    /// Returns the payload of the next ping.
    fn next_ping(&mut self) -> u64 {
        self.pings_sent += 1;
        // A client that answers no pings is disconnected soon; further pings are not tracked.
        if self.pings.len() < QUEUED_FRAMES_MAX {
            self.pings.push_back((self.pings_sent, self.written));
        }
        self.pings_sent
    }

    /// Handles the pong of ping `number`: the client has read all bytes written before the ping.
    fn acknowledge(&mut self, number: u64) {
        while let Some((ping, written)) = self.pings.front()
            && *ping <= number
        {
            self.acknowledged = *written;
            self.pings.pop_front();
        }
    }

    fn has_capacity(&self) -> bool {
        self.written - self.acknowledged < BYTES_IN_FLIGHT_MAX
    }
}

/// The frames that are ready in the pipe.
struct ReadyFrames(VecDeque<ByteString>);

impl<T: WebSocketProtocol> Actor for WebSocketActor<T> {
    type Context = SocketContext<T>;

    fn started(&mut self, ctx: &mut SocketContext<T>) {
        self.status_entry.accept_orders(&[ActorOrder::Stop], ctx.address().downgrade().recipient());
        self.protocol.on_open(&mut self.connection);
        self.read_pipe(ctx);
        let heartbeat = self.connection.state.limits.heartbeat;
        ctx.run_interval(heartbeat, move |socket, ctx| {
            if socket.last_received_at.elapsed() >= heartbeat * MISSED_HEARTBEATS_MAX {
                // The connection is half-open: a close frame would not arrive either.
                return ctx.stop();
            }
            socket.send_ping(ctx);
        });
    }

    fn stopped(&mut self, _: &mut SocketContext<T>) {
        self.pipe.close();
        self.connection.unsubscribe_all();
    }
}

impl<T: WebSocketProtocol> StreamHandler<ReadyFrames> for WebSocketActor<T> {
    fn handle(&mut self, ReadyFrames(frames): ReadyFrames, ctx: &mut SocketContext<T>) {
        for frame in frames {
            self.send_frame(frame, ctx);
        }
        self.connection.notify_pipe_drained();
        if self.flow_control.has_capacity() {
            self.read_pipe(ctx);
        }
    }

    /// Does nothing: each read of the pipe is a stream of its own.
    fn finished(&mut self, _: &mut SocketContext<T>) {}
}

impl<T: WebSocketProtocol> StreamHandler<Result<ws::Message, ws::ProtocolError>>
    for WebSocketActor<T>
{
    fn handle(&mut self, item: Result<ws::Message, ws::ProtocolError>, ctx: &mut SocketContext<T>) {
        self.last_received_at = Instant::now();
        self.status_entry.record_handled();
        match item {
            Ok(ws::Message::Text(text)) => self.enqueue_frame(&text, ctx),
            Ok(ws::Message::Ping(payload)) => ctx.pong(&payload),
            Ok(ws::Message::Pong(payload)) => self.handle_pong(&payload, ctx),
            Ok(ws::Message::Continuation(fragment)) => self.handle_fragment(fragment, ctx),
            Ok(ws::Message::Binary(_)) => {
                close_socket(ws::CloseCode::Unsupported, "binary frames are not supported", ctx);
            }
            Ok(ws::Message::Close(reason)) => {
                ctx.close(reason);
                ctx.stop();
            }
            Ok(ws::Message::Nop) => {}
            Err(error) if is_frame_too_long(&error) => {
                self.close_oversized(ctx);
            }
            Err(error) => close_socket(ws::CloseCode::Protocol, &error.to_string(), ctx),
        }
    }
}

/// Closes the connection; its client may reconnect (A2).
impl<T: WebSocketProtocol> actix::Handler<ExecuteOrder> for WebSocketActor<T> {
    type Result = ();

    fn handle(&mut self, _: ExecuteOrder, ctx: &mut SocketContext<T>) {
        self.status_entry.record_handled();
        close_socket(ws::CloseCode::Again, "closed by an administrator", ctx);
    }
}

/// True if the client announced a frame that is too long. [`FrameSplitter`] reports it, but
/// `actix_web_actors` passes on only the text of its error.
fn is_frame_too_long(error: &ws::ProtocolError) -> bool {
    if let ws::ProtocolError::Io(error) = error {
        return error.to_string() == PayloadError::Overflow.to_string();
    }
    matches!(error, ws::ProtocolError::Overflow)
}

fn close_socket<T: WebSocketProtocol>(
    code: ws::CloseCode,
    reason: &str,
    ctx: &mut SocketContext<T>,
) {
    ctx.close(Some(ws::CloseReason { code, description: Some(reason.to_owned()) }));
    ctx.stop();
}

impl<T: WebSocketProtocol> WebSocketActor<T> {
    /// Closes the connection of a client whose message is too long.
    fn close_oversized(&self, ctx: &mut SocketContext<T>) {
        let max = self.connection.state.limits.body_bytes_max;
        let reason = format!("message exceeds the limit of {max} bytes");
        close_socket(ws::CloseCode::Size, &reason, ctx);
    }

    /// Waits for the next frames in the pipe, once.
    fn read_pipe(&mut self, ctx: &mut SocketContext<T>) {
        let pipe = self.pipe.clone();
        let ready = stream::once(std::future::poll_fn(move |cx| pipe.poll_frames(cx)));
        ctx.add_stream(futures::StreamExt::map(ready, ReadyFrames));
    }

    fn send_frame(&mut self, frame: ByteString, ctx: &mut SocketContext<T>) {
        let due = self.flow_control.record_write(frame.len());
        ctx.text(frame);
        if due {
            self.send_ping(ctx);
        }
    }

    fn send_ping(&mut self, ctx: &mut SocketContext<T>) {
        let number = self.flow_control.next_ping();
        ctx.ping(number.to_string().as_bytes());
    }

    fn handle_pong(&mut self, payload: &[u8], ctx: &mut SocketContext<T>) {
        let number = std::str::from_utf8(payload).ok().and_then(|number| number.parse().ok());
        let was_open = self.flow_control.has_capacity();
        // No client can answer what was not sent yet.
        if let Some(number) = number.filter(|number| *number <= self.flow_control.pings_sent) {
            self.flow_control.acknowledge(number);
        }
        if !was_open && self.flow_control.has_capacity() {
            self.read_pipe(ctx);
        }
    }

    fn handle_fragment(&mut self, fragment: Item, ctx: &mut SocketContext<T>) {
        let (bytes, is_last) = match fragment {
            Item::FirstText(bytes) => {
                self.fragments = Some(Vec::new());
                (bytes, false)
            }
            Item::FirstBinary(_) => {
                return close_socket(
                    ws::CloseCode::Unsupported,
                    "binary frames are not supported",
                    ctx,
                );
            }
            Item::Continue(bytes) => (bytes, false),
            Item::Last(bytes) => (bytes, true),
        };
        let Some(mut fragments) = self.fragments.take() else { return };
        if fragments.len() + bytes.len() > self.connection.state.limits.body_bytes_max {
            return self.close_oversized(ctx);
        }
        fragments.extend_from_slice(&bytes);
        if !is_last {
            self.fragments = Some(fragments);
            return;
        }
        match String::from_utf8(fragments) {
            Ok(text) => self.enqueue_frame(&text, ctx),
            Err(_) => close_socket(ws::CloseCode::Invalid, "text is not valid UTF-8", ctx),
        }
    }

    /// Appends a client frame to the queue.
    fn enqueue_frame(&mut self, text: &str, ctx: &mut SocketContext<T>) {
        let mut frame = self.protocol.parse_frame(text);
        // An invalid frame also counts as a request (X4).
        if let Err(problem) = access_control::check_rate_limit(
            &self.connection.state.request_limiter,
            &self.connection.principal,
        ) {
            frame.request = Err(problem);
        }
        if self.queued_frames.len() >= QUEUED_FRAMES_MAX {
            let max = QUEUED_FRAMES_MAX as u64;
            let detail = format!("{max} frames are waiting, the maximum; wait for responses");
            let problem = Problem::too_many("too_many_frames", detail, max);
            let error = self.protocol.error_frame(frame.id.as_ref(), &problem);
            return self.send_frame(error.into(), ctx);
        }
        self.queued_frames.push_back(frame);
        self.handle_next(ctx);
    }

    /// Handles the next queued frame, unless a frame is being handled.
    fn handle_next(&mut self, ctx: &mut SocketContext<T>) {
        if self.is_handling {
            return;
        }
        let Some(ClientFrame { id, request }) = self.queued_frames.pop_front() else { return };
        self.is_handling = true;
        self.connection.remove_ended();
        let (auth, principal) =
            (self.connection.state.auth.clone(), self.connection.principal.clone());
        let work = request.map(|request| self.protocol.handle_request(request, &self.connection));
        let work = async move {
            if !auth.is_still_valid(&principal) {
                return Err(Problem::unauthorized("the API key was revoked"));
            }
            work?.await
        };
        ctx.spawn(work.into_actor(self).map(move |result, socket, ctx| {
            let frames = match result {
                Ok(output) => {
                    socket.protocol.apply_output(id.as_ref(), output, &mut socket.connection)
                }
                Err(problem) => vec![socket.protocol.error_frame(id.as_ref(), &problem)],
            };
            for frame in frames {
                socket.send_frame(frame.into(), ctx);
            }
            socket.is_handling = false;
            socket.handle_next(ctx);
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4_flow_stops_at_the_limit_and_resumes_after_acknowledgement() {
        let mut flow = FlowControl::default();
        let mut pings = Vec::new();
        while flow.has_capacity() {
            if flow.record_write(1000) {
                pings.push(flow.next_ping());
            }
        }
        assert_eq!(flow.written, BYTES_IN_FLIGHT_MAX.next_multiple_of(1000));
        assert_eq!(pings, [1, 2, 3], "one ping for each 64 KiB, but the last not yet full");
        flow.acknowledge(1);
        assert!(flow.has_capacity());
        assert_eq!(flow.written - flow.acknowledged, flow.written - 66_000);
        flow.acknowledge(3);
        assert_eq!(flow.acknowledged, 198_000);
        assert!(flow.pings.is_empty());
    }

    #[test]
    fn client_without_pongs_uses_bounded_memory() {
        let mut flow = FlowControl::default();
        for _ in 0..10_000 {
            flow.next_ping();
        }
        assert_eq!(flow.pings.len(), QUEUED_FRAMES_MAX);
        flow.acknowledge(10_000);
        assert!(flow.pings.is_empty());
    }
}
