//! The server-sent-events transport: a response body that is fed by one subscriber.
//!
//! `id:` is the cursor, `data:` is one line of JSON. All ready frames are sent in one write. A
//! disconnected client is detected by the next write, at the latest by the heartbeat; its subscriber
//! then stops.

use super::{
    AppState, Problem,
    frame_encoder::{FrameEncoder, FrameFormat},
    pipe::{Pipe, Subscription},
    stream_filter::StreamFilter,
};
use crate::dialect::{Dialect, open_child_calls::OpenChildCalls};
use actix_web::{
    HttpResponse,
    http::header,
    rt::time::{Instant, Interval, interval_at},
    web::Bytes,
};
use bytestring::ByteString;
use futures::Stream;
use greenroom_actors::feed::FeedItem;
use greenroom_core::{cursor::Cursor, ids::RunId, session::SessionRow};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

/// Delay before a browser reconnects, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// Streams one session from `cursor`, which must have been validated. The stream begins with the
/// cursor as its `id:`, so that a browser that reconnects before the first frame misses nothing.
pub(super) fn stream_session(
    state: &AppState,
    session: &SessionRow,
    cursor: Cursor,
    dialect: Dialect,
) -> HttpResponse {
    let encoder = FrameEncoder::new(state, dialect, FrameFormat::SseEvent { with_id: true });
    let mut body = stream_filtered(state, session, cursor, StreamFilter::All, encoder.into_fn());
    body.first_id = Some(cursor);
    event_stream_response(body)
}

/// A run to stream.
pub(super) struct RunStream {
    /// The run.
    pub(super) run_id: RunId,
    /// True if the stream also ends at a request for approval.
    pub(super) until_pause: bool,
    /// The start of the stream.
    pub(super) cursor: Cursor,
    /// The calls of the run's child sessions that are open at the cursor.
    pub(super) open_child_calls: OpenChildCalls,
}

/// Streams one run.
pub(super) fn stream_run(
    state: &AppState,
    session: &SessionRow,
    run: RunStream,
    dialect: Dialect,
) -> HttpResponse {
    let RunStream { run_id, until_pause, cursor, open_child_calls } = run;
    let encoder = FrameEncoder::new(state, dialect, FrameFormat::SseEvent { with_id: true });
    let encode = encoder.into_run_fn(open_child_calls);
    let filter = StreamFilter::Run { run_id, until_pause };
    event_stream_response(stream_filtered(state, session, cursor, filter, encode))
}

fn stream_filtered(
    state: &AppState,
    session: &SessionRow,
    cursor: Cursor,
    filter: StreamFilter,
    encode: impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static,
) -> EventStreamBody {
    let pipe = Pipe::default();
    let subscription = pipe.attach(filter, "sse", encode, |outlet| {
        let agent = session.agent.clone();
        state.runtime.subscribe(session.session_id, agent, cursor, outlet)
    });
    EventStreamBody::new(pipe, subscription, state.limits.heartbeat)
}

/// Streams the events of all sessions from now on. Frames have no `id:`, since there is no single
/// log from which a client could resume.
pub(super) fn stream_all(state: &AppState, dialect: Dialect) -> HttpResponse {
    let pipe = Pipe::default();
    let encoder = FrameEncoder::new(state, dialect, FrameFormat::SseEvent { with_id: false });
    let subscription = pipe.attach(StreamFilter::All, "sse", encoder.into_fn(), |outlet| {
        state.runtime.subscribe_all(outlet)
    });
    event_stream_response(EventStreamBody::new(pipe, subscription, state.limits.heartbeat))
}

/// Returns an error if the session has the maximum number of subscribers (X4).
pub(super) fn check_subscriber_limit(
    state: &AppState,
    session: &SessionRow,
) -> Result<(), Problem> {
    let max = state.limits.subscribers_per_session_max;
    if state.runtime.subscriber_count(session.session_id) < max {
        return Ok(());
    }
    let detail = format!("the session has {max} subscribers, the maximum");
    Err(Problem::too_many("too_many_subscribers", detail, max as u64).retry_after(1))
}

fn event_stream_response(body: EventStreamBody) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(body)
}

/// The response body.
struct EventStreamBody {
    pipe: Pipe,
    subscription: Subscription,
    /// Ticks when the connection may have been silent for one period.
    heartbeat: Interval,
    wrote_at: Instant,
    has_sent_retry: bool,
    /// The `id:` that is sent before the first frame.
    first_id: Option<Cursor>,
}

impl EventStreamBody {
    fn new(pipe: Pipe, subscription: Subscription, heartbeat: Duration) -> Self {
        let wrote_at = Instant::now();
        let heartbeat = interval_at(wrote_at + heartbeat, heartbeat);
        let (has_sent_retry, first_id) = (false, None);
        Self { pipe, subscription, heartbeat, wrote_at, has_sent_retry, first_id }
    }
}

impl Stream for EventStreamBody {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.has_sent_retry {
            // Sent immediately, so that the client knows that it is connected.
            self.has_sent_retry = true;
            let id = self.first_id.map(|cursor| format!("id: {cursor}\n")).unwrap_or_default();
            return Poll::Ready(Some(Ok(Bytes::from(format!("retry: {RETRY_MS}\n{id}\n")))));
        }
        if let Poll::Ready(mut frames) = self.pipe.poll_frames(cx) {
            self.subscription.notify_pipe_drained();
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
                // Resetting the timer at each write would cost more than writing a frame.
                self.heartbeat.reset_at(due);
                continue;
            }
            // Covers the case that an earlier notification was lost.
            self.subscription.notify_pipe_drained();
            return Poll::Ready(Some(Ok(Bytes::from_static(b": alive\n\n"))));
        }
        Poll::Pending
    }
}

impl Drop for EventStreamBody {
    fn drop(&mut self) {
        self.pipe.close();
    }
}
