//! What is told, as the text of frames. Where many follow one session, a thread encodes what they are
//! told twice and not for each of them: what is asked for again is kept, and who is told the same is
//! told it right after.

use super::AppState;
use crate::{
    dialect::{Dialect, Frame},
    redaction::Redactor,
};
use bytestring::ByteString;
use greenroom_actors::{
    feed::{FeedItem, FeedKind},
    ports::Clock,
};
use greenroom_core::{cursor::Cursor, ids::SessionId};
use std::{cell::RefCell, collections::VecDeque, io::Write as _, sync::Arc};

/// How many of [`Told`] a thread remembers. More than one, since a subscriber with several to tell tells all
/// before the next one has its turn.
const CACHED_ITEMS_MAX: usize = 16;
/// Bytes of all frames of one that are kept.
const CACHED_BYTES_MAX: usize = 64 * 1024;
/// Bytes of most frames.
const FRAME_BYTES: usize = 512;

/// How a frame is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameFormat {
    /// As an event of a stream; its cursor is its `id:`, if that is wanted and it has one.
    SseEvent { with_id: bool },
    /// As a message of a WebSocket.
    WebSocketMessage,
}

/// Encodes for one client.
pub(super) struct FrameEncoder {
    dialect: Dialect,
    format: FrameFormat,
    clock: Arc<dyn Clock>,
    redactor: Arc<Redactor>,
}

/// What a subscriber was told.
struct CachedItem {
    key: (SessionId, Cursor, Dialect, FrameFormat),
    /// Its frames, if they were asked for again. A session that one client follows must not pay for
    /// this: what is held is freed late, and out of the processor's cache.
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
    static REMEMBERED: RefCell<VecDeque<CachedItem>> = const { RefCell::new(VecDeque::new()) };
}

impl FrameEncoder {
    /// One that writes in the words of `dialect`.
    pub(super) fn new(state: &AppState, dialect: Dialect, format: FrameFormat) -> Self {
        let (clock, redactor) = (state.runtime.clock.clone(), state.redactor.clone());
        Self { dialect, format, clock, redactor }
    }

    /// As what an outlet calls.
    pub(super) fn into_fn(self) -> impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static {
        move |item, put| self.encode(item, put)
    }

    /// Puts the frames that tell of `item`.
    fn encode(&self, item: &FeedItem, put: &mut dyn FnMut(ByteString)) {
        let place = (item.session_id, item.cursor, self.dialect, self.format);
        REMEMBERED.with_borrow_mut(|remembered| {
            let Some(told) = remembered.iter_mut().find(|told| told.key == place) else {
                remembered.truncate(CACHED_ITEMS_MAX - 1);
                remembered.push_front(CachedItem { key: place, frames: None });
                return self.encode_uncached(item, put);
            };
            let kept = told.frames.take().filter(|kept| kept.kind.ptr_eq(&item.kind));
            let kept = kept.unwrap_or_else(|| {
                let mut frames = Vec::new();
                self.encode_uncached(item, &mut |frame| frames.push(frame));
                CachedFrames { kind: item.kind.clone(), frames }
            });
            kept.frames.iter().cloned().for_each(put);
            told.frames = Some(kept).filter(|kept| kept.bytes() <= CACHED_BYTES_MAX);
        });
    }

    fn encode_uncached(&self, item: &FeedItem, put: &mut dyn FnMut(ByteString)) {
        self.dialect.encode(item, self.clock.now(), &self.redactor, |frame| {
            put(ByteString::from(self.format.format_frame(&frame)));
        });
    }
}

impl FrameFormat {
    fn format_frame(self, frame: &Frame) -> String {
        let mut text = Vec::with_capacity(FRAME_BYTES);
        // Plain data: writing it to memory can't fail. One line: JSON escapes line breaks.
        match self {
            Self::SseEvent { with_id } => {
                if let Some(cursor) = frame.cursor.filter(|_| with_id) {
                    drop(writeln!(text, "id: {cursor}"));
                }
                text.extend_from_slice(b"data: ");
                drop(frame.write_flat(&mut text));
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

    fn encoder(dialect: Dialect, shape: FrameFormat) -> FrameEncoder {
        FrameEncoder {
            dialect,
            format: shape,
            clock: Arc::new(ZeroClock),
            redactor: Arc::default(),
        }
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
    fn e3_an_event_has_its_cursor_and_one_line_of_data_and_no_name() {
        let item = item(text("two\nlines"), 9);
        let told = frame(&encoder(Dialect::Agent, FrameFormat::SseEvent { with_id: true }), &item);
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines.len(), 3, "{told}");
        assert_eq!(lines[0], "id: 7.9");
        assert!(lines[1].starts_with(r#"data: {"type":"text""#), "{told}");
        assert!(lines[1].contains(r"two\nlines"));
        assert_eq!(lines[2], "");
        let told = frame(&encoder(Dialect::Agent, FrameFormat::SseEvent { with_id: false }), &item);
        assert!(told.starts_with("data: "));
    }

    #[test]
    fn frames_are_shared_from_the_second_client_on() {
        let event = FrameFormat::SseEvent { with_id: true };
        let [first, second] = committed([closed(), closed()]);
        for told in [item(text("one"), 3), item(second, 0)] {
            let frame_of = |item: &_, shape| frame(&encoder(Dialect::Agent, shape), item);
            let [_, one, another] = [(); 3].map(|()| frame_of(&told.clone(), event));
            assert_eq!(another.as_ptr(), one.as_ptr(), "who came third is given the second's");
            let [_, task] = [(); 2].map(|()| frame(&encoder(Dialect::Task, event), &told));
            assert_ne!(task.as_ptr(), one.as_ptr(), "in other words");
            assert!(
                frame_of(&told, FrameFormat::WebSocketMessage).starts_with('{'),
                "in another shape"
            );
            let elsewhere = FeedItem { cursor: Cursor { seq: Seq(8), offset: 1 }, ..told.clone() };
            assert!(frame_of(&elsewhere, event).starts_with("id: 8.1\n"), "at another place");
        }
        let told = frame(&encoder(Dialect::Agent, event), &item(first, 0));
        assert!(told.contains(r#""at":"1970"#), "another event of the commit: {told}");
        let (one, other) = (item(text("x"), 1), item(text("y"), 1));
        let told =
            [&one, &one, &one, &other].map(|item| frame(&encoder(Dialect::Agent, event), item));
        assert_ne!(told[2], told[3], "the same place, but another text");
    }

    #[test]
    fn what_takes_several_frames_is_shared_whole() {
        let encoder = encoder(Dialect::Task, FrameFormat::SseEvent { with_id: true });
        let [denied] = committed([SessionEvent::AuthorizationDenied {
            call_id: CallId(Uuid::nil()),
            tool: "buy".to_owned(),
            reason: "not today".to_owned(),
            required_level: None,
        }]);
        let item = item(denied, 0);
        let [_, one, another] = [(); 3].map(|()| frames::<2>(&encoder, &item));
        assert!(one[0].contains("authorization_denied"), "{one:?}");
        assert!(one[1].contains("tool_result"), "{one:?}");
        assert_eq!(another.map(|frame| frame.as_ptr()), one.map(|frame| frame.as_ptr()));
    }

    #[test]
    fn what_is_large_is_not_kept() {
        let encoder = encoder(Dialect::Agent, FrameFormat::SseEvent { with_id: true });
        let item = item(text(&"x".repeat(CACHED_BYTES_MAX)), 0);
        let told = [(); 3].map(|()| frame(&encoder, &item));
        assert_eq!(told[1], told[2]);
        assert_ne!(told[1].as_ptr(), told[2].as_ptr());
    }
}
