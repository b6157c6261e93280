//! The server-sent-events transport: a response whose body is fed by one subscriber.
//!
//! `id:` is the cursor, `data:` one line of JSON. What is ready leaves in one write. A client
//! that went away is noticed at the next write, at the latest by the heartbeat, and its
//! subscriber stops.

use super::{
    AppState, Problem,
    encoder::{Encoder, Shape},
    follow::Follow,
    pipe::{Pipe, Subscription},
};
use crate::dialect::Dialect;
use actix_web::{
    HttpResponse,
    http::header,
    rt::time::{Instant, Interval, interval_at},
    web::Bytes,
};
use futures::Stream;
use greenroom_core::{cursor::Cursor, session::SessionRow};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

/// How long a browser waits before it reconnects, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// The stream of one session from `cursor`, which was checked.
pub(super) fn of_session(
    state: &AppState,
    session: &SessionRow,
    cursor: Cursor,
    follow: Follow,
    dialect: Dialect,
) -> HttpResponse {
    let pipe = Pipe::default();
    let encoder = Encoder::new(state, dialect, Shape::Event { with_id: true });
    let subscription = pipe.attach(follow, "sse", encoder.into_encode(), |outlet| {
        let agent = session.agent.clone();
        state.runtime.subscribe(session.session_id, agent, cursor, outlet)
    });
    respond(Body::new(pipe, subscription, state.limits.heartbeat))
}

/// The stream of all sessions from now on. Its frames have no `id:`: there is no one log to
/// resume from.
pub(super) fn of_all(state: &AppState, dialect: Dialect) -> HttpResponse {
    let pipe = Pipe::default();
    let encoder = Encoder::new(state, dialect, Shape::Event { with_id: false });
    let subscription = pipe.attach(Follow::Everything, "sse", encoder.into_encode(), |outlet| {
        state.runtime.subscribe_all(outlet)
    });
    respond(Body::new(pipe, subscription, state.limits.heartbeat))
}

/// Whether the session has room for one more subscriber (X4).
pub(super) fn check_room(state: &AppState, session: &SessionRow) -> Result<(), Problem> {
    let max = state.limits.subscribers_per_session_max;
    if state.runtime.subscribers(session.session_id) < max {
        return Ok(());
    }
    let detail = format!("the session has {max} subscribers already");
    Err(Problem::too_many("too_many_subscribers", detail, max as u64).retry_after(1))
}

fn respond(body: Body) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(body)
}

/// The response's body.
struct Body {
    pipe: Pipe,
    subscription: Subscription,
    /// Ticks at the earliest when the connection has been silent for its period.
    heartbeat: Interval,
    wrote_at: Instant,
    greeted: bool,
}

impl Body {
    fn new(pipe: Pipe, subscription: Subscription, heartbeat: Duration) -> Self {
        let wrote_at = Instant::now();
        let heartbeat = interval_at(wrote_at + heartbeat, heartbeat);
        Self { pipe, subscription, heartbeat, wrote_at, greeted: false }
    }
}

impl Stream for Body {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.greeted {
            // At once, so that the client knows that it is connected.
            self.greeted = true;
            return Poll::Ready(Some(Ok(Bytes::from(format!("retry: {RETRY_MS}\n\n")))));
        }
        if let Poll::Ready(mut frames) = self.pipe.poll_frames(cx) {
            self.subscription.room_again();
            self.wrote_at = Instant::now();
            let bytes = match frames.len() {
                1 => frames.pop_front().unwrap_or_default().into_bytes(),
                _ => frames.iter().map(|frame| &**frame).collect::<String>().into(),
            };
            return Poll::Ready(Some(Ok(bytes)));
        }
        if self.subscription.has_ended() {
            return Poll::Ready(None);
        }
        while self.heartbeat.poll_tick(cx).is_ready() {
            let due = self.wrote_at + self.heartbeat.period();
            if Instant::now() < due {
                // A timer that is put off with every write would cost more than the write's frame.
                self.heartbeat.reset_at(due);
                continue;
            }
            // Also in case the word that there is room was lost.
            self.subscription.room_again();
            return Poll::Ready(Some(Ok(Bytes::from_static(b": alive\n\n"))));
        }
        Poll::Pending
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.pipe.close();
    }
}
