//! Encodes feed items as the text of frames. If several clients of a thread follow one session, an
//! item is encoded at most twice: when an item is requested again, its frames are cached and shared
//! with all further clients.

use super::{AppState, sse_data::escape_unicode_line_breaks};
use crate::{
    dialect::{Dialect, Frame, open_child_calls::OpenChildCalls},
    redaction::Redactor,
};
use bytestring::ByteString;
use greenroom_actors::{
    feed::{FeedItem, FeedKind},
    ports::Clock,
};
use greenroom_core::{cursor::Cursor, ids::SessionId};
use std::{cell::RefCell, collections::VecDeque, io::Write as _, sync::Arc};

/// Maximum items in a thread's cache. More than one, because a subscriber delivers all its pending
/// items before the next subscriber runs.
const CACHED_ITEMS_MAX: usize = 16;
/// Maximum bytes of one item's cached frames.
const CACHED_BYTES_MAX: usize = 64 * 1024;
/// Initial capacity of a frame's buffer; most frames fit.
const FRAME_BYTES: usize = 512;

/// The wire format of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameFormat {
    /// A server-sent event. With `with_id`, its `id:` is the cursor, if the frame has one.
    SseEvent { with_id: bool },
    /// A text message of a WebSocket.
    WebSocketMessage,
}

/// Encodes feed items for one client.
pub(super) struct FrameEncoder {
    dialect: Dialect,
    format: FrameFormat,
    clock: Arc<dyn Clock>,
    redactor: Arc<Redactor>,
}

/// An item that was encoded recently.
struct CachedItem {
    key: (SessionId, Cursor, Dialect, FrameFormat),
    /// The frames, if the item was requested again. A session with a single client does not pay for
    /// caching: cached frames are freed late, when they are no longer in the processor's cache.
    frames: Option<CachedFrames>,
}

struct CachedFrames {
    kind: FeedKind,
    frames: Vec<ByteString>,
}

impl CachedFrames {
    fn bytes(&self) -> usize {
        self.frames.iter().map(|frame| frame.len()).sum()
    }
}

thread_local! {
    static CACHE: RefCell<VecDeque<CachedItem>> = const { RefCell::new(VecDeque::new()) };
}

impl FrameEncoder {
    /// Creates an encoder for `dialect`.
    pub(super) fn new(state: &AppState, dialect: Dialect, format: FrameFormat) -> Self {
        let (clock, redactor) = (state.runtime.clock.clone(), state.redactor.clone());
        Self { dialect, format, clock, redactor }
    }

    /// Returns the encoder as the function that an outlet calls.
    pub(super) fn into_fn(self) -> impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static {
        move |item, emit| self.encode(item, emit)
    }

    /// As [`Self::into_fn`], for the stream of a run whose child sessions have `open_child_calls` at
    /// the start of the stream. In the dialect `task`, calls that are open when the run ends get their
    /// results before its end.
    pub(super) fn into_run_fn(
        self,
        mut open_child_calls: OpenChildCalls,
    ) -> impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static {
        move |item, emit| {
            if self.dialect == Dialect::Task {
                let ended = open_child_calls.take_ended_by(item);
                ended.iter().for_each(|result| self.encode(result, emit));
            }
            self.encode(item, emit);
        }
    }

    /// Passes the frames of `item` to `emit`.
    fn encode(&self, item: &FeedItem, emit: &mut dyn FnMut(ByteString)) {
        let key = (item.session_id, item.cursor, self.dialect, self.format);
        CACHE.with_borrow_mut(|cache| {
            let Some(cached) = cache.iter_mut().find(|cached| cached.key == key) else {
                cache.truncate(CACHED_ITEMS_MAX - 1);
                cache.push_front(CachedItem { key, frames: None });
                return self.encode_uncached(item, emit);
            };
            let frames = cached.frames.take().filter(|frames| frames.kind.ptr_eq(&item.kind));
            let frames = frames.unwrap_or_else(|| {
                let mut frames = Vec::new();
                self.encode_uncached(item, &mut |frame| frames.push(frame));
                CachedFrames { kind: item.kind.clone(), frames }
            });
            frames.frames.iter().cloned().for_each(emit);
            cached.frames = Some(frames).filter(|frames| frames.bytes() <= CACHED_BYTES_MAX);
        });
    }

    fn encode_uncached(&self, item: &FeedItem, emit: &mut dyn FnMut(ByteString)) {
        self.dialect.encode(item, self.clock.now(), &self.redactor, |frame| {
            emit(ByteString::from(self.format.format_frame(&frame)));
        });
    }
}

impl FrameFormat {
    fn format_frame(self, frame: &Frame) -> String {
        let mut text = Vec::with_capacity(FRAME_BYTES);
        // Writing plain data to memory can't fail. JSON escapes CR and LF, so it is one line.
        match self {
            Self::SseEvent { with_id } => {
                if let Some(cursor) = frame.cursor.filter(|_| with_id) {
                    drop(writeln!(text, "id: {cursor}"));
                }
                text.extend_from_slice(b"data: ");
                let data = text.len();
                drop(frame.write_flat(&mut text));
                escape_unicode_line_breaks(&mut text, data);
                text.extend_from_slice(b"\n\n");
            }
            Self::WebSocketMessage => drop(serde_json::to_writer(&mut text, &frame.nested())),
        }
        String::from_utf8(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use greenroom_actors::feed::CommittedEvent;
    use greenroom_core::{
        Timestamp,
        ids::{AgentName, CallId, MessageId, RunId, Seq},
        session::{EventRecord, SessionEvent},
    };
    use uuid::Uuid;

    struct ZeroClock;

    impl Clock for ZeroClock {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }

        fn seed(&self) -> u64 {
            0
        }
    }

    fn encoder(dialect: Dialect, format: FrameFormat) -> FrameEncoder {
        FrameEncoder { dialect, format, clock: Arc::new(ZeroClock), redactor: Arc::default() }
    }

    fn frames<const N: usize>(encoder: &FrameEncoder, item: &FeedItem) -> [ByteString; N] {
        let mut frames = Vec::new();
        encoder.encode(item, &mut |frame| frames.push(frame));
        frames.try_into().unwrap()
    }

    fn frame(encoder: &FrameEncoder, item: &FeedItem) -> ByteString {
        let [frame] = frames(encoder, item);
        frame
    }

    fn committed<const N: usize>(events: [SessionEvent; N]) -> [FeedKind; N] {
        let record = |(seq, event)| EventRecord {
            seq: Seq(seq),
            at: Timestamp(0),
            run_id: None,
            step: None,
            event,
        };
        let records: Arc<[_]> = (6..).zip(events).map(record).collect();
        Vec::from_iter(CommittedEvent::iter_commit(&records).map(FeedKind::Event))
            .try_into()
            .unwrap()
    }

    fn closed() -> SessionEvent {
        SessionEvent::SessionClosed { by: "ann".parse().unwrap() }
    }

    fn item(kind: FeedKind, offset: u64) -> FeedItem {
        FeedItem {
            session_id: SessionId(Uuid::nil()),
            agent: AgentName::parse("a").unwrap(),
            cursor: Cursor { seq: Seq(7), offset },
            kind,
        }
    }

    fn text(text: &str) -> FeedKind {
        FeedKind::Delta {
            run_id: RunId(Uuid::nil()),
            step: 1,
            message_id: MessageId::parse("m").unwrap(),
            text: text.into(),
        }
    }

    #[test]
    fn e3_sse_frame_has_cursor_and_one_data_line() {
        let item = item(text("two\nlines"), 9);
        let text = frame(&encoder(Dialect::Agent, FrameFormat::SseEvent { with_id: true }), &item);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "id: 7.9");
        assert!(lines[1].starts_with(r#"data: {"type":"text""#), "{text}");
        assert!(lines[1].contains(r"two\nlines"));
        assert_eq!(lines[2], "");
        let text = frame(&encoder(Dialect::Agent, FrameFormat::SseEvent { with_id: false }), &item);
        assert!(text.starts_with("data: "));
    }

    /// E1: clients that split lines at every Unicode line break read each frame as one line.
    #[test]
    fn e1_sse_frame_has_no_unicode_line_breaks() {
        let item = item(text("a\u{2028}b\u{2029}c\u{85}d\u{2014}é"), 9);
        let sse = frame(&encoder(Dialect::Agent, FrameFormat::SseEvent { with_id: true }), &item);
        assert!(sse.contains(r#""text":"a\u2028b\u2029c\u0085d—é""#), "{sse}");
        let data = sse.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let decoded: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(decoded["text"], "a\u{2028}b\u{2029}c\u{85}d\u{2014}é");
        let message = frame(&encoder(Dialect::Agent, FrameFormat::WebSocketMessage), &item);
        assert!(message.contains("a\u{2028}b\u{2029}c\u{85}d"), "{message}");
    }

    #[test]
    fn frames_are_shared_from_the_second_client_on() {
        let sse = FrameFormat::SseEvent { with_id: true };
        let [first, second] = committed([closed(), closed()]);
        for sent in [item(text("one"), 3), item(second, 0)] {
            let encode = |item: &_, format| frame(&encoder(Dialect::Agent, format), item);
            let [_, second, third] = [(); 3].map(|()| encode(&sent.clone(), sse));
            assert_eq!(third.as_ptr(), second.as_ptr(), "the third client shares the frame");
            let [_, task] = [(); 2].map(|()| frame(&encoder(Dialect::Task, sse), &sent));
            assert_ne!(task.as_ptr(), second.as_ptr(), "another dialect");
            assert!(
                encode(&sent, FrameFormat::WebSocketMessage).starts_with('{'),
                "another format"
            );
            let moved = FeedItem { cursor: Cursor { seq: Seq(8), offset: 1 }, ..sent.clone() };
            assert!(encode(&moved, sse).starts_with("id: 8.1\n"), "another cursor");
        }
        let frame_text = frame(&encoder(Dialect::Agent, sse), &item(first, 0));
        assert!(frame_text.contains(r#""at":"1970"#), "another event of the commit: {frame_text}");
        let (x, y) = (item(text("x"), 1), item(text("y"), 1));
        let frames = [&x, &x, &x, &y].map(|item| frame(&encoder(Dialect::Agent, sse), item));
        assert_ne!(frames[2], frames[3], "the same cursor, but another text");
    }

    #[test]
    fn all_frames_of_an_item_are_shared() {
        let encoder = encoder(Dialect::Task, FrameFormat::SseEvent { with_id: true });
        let [denied] = committed([SessionEvent::AuthorizationDenied {
            call_id: CallId(Uuid::nil()),
            tool: "buy".to_owned(),
            reason: "not today".to_owned(),
            required_level: None,
        }]);
        let item = item(denied, 0);
        let [_, second, third] = [(); 3].map(|()| frames::<2>(&encoder, &item));
        assert!(second[0].contains("authorization_denied"), "{second:?}");
        assert!(second[1].contains("tool_result"), "{second:?}");
        assert_eq!(third.map(|frame| frame.as_ptr()), second.map(|frame| frame.as_ptr()));
    }

    #[test]
    fn large_frames_are_not_cached() {
        let encoder = encoder(Dialect::Agent, FrameFormat::SseEvent { with_id: true });
        let item = item(text(&"x".repeat(CACHED_BYTES_MAX)), 0);
        let frames = [(); 3].map(|()| frame(&encoder, &item));
        assert_eq!(frames[1], frames[2]);
        assert_ne!(frames[1].as_ptr(), frames[2].as_ptr());
    }
}
