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
const REMEMBERED_MAX: usize = 16;
/// Bytes of all frames of one that are kept.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of most frames.
const FRAME_BYTES: usize = 512;

/// How a frame is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// As an event of a stream; its cursor is its `id:`, if that is wanted and it has one.
    Event { with_id: bool },
    /// As a message of a WebSocket.
    Message,
}

/// Encodes for one client.
pub(super) struct Encoder {
    dialect: Dialect,
    shape: Shape,
    clock: Arc<dyn Clock>,
    redactor: Arc<Redactor>,
}

/// What a subscriber was told.
struct Told {
    place: (SessionId, Cursor, Dialect, Shape),
    /// Its frames, if they were asked for again. A session that one client follows must not pay for
    /// this: what is held is freed late, and out of the processor's cache.
    kept: Option<Kept>,
}

struct Kept {
    kind: FeedKind,
    frames: Vec<ByteString>,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.frames.iter().map(|frame| frame.len()).sum()
    }
}

thread_local! {
    static REMEMBERED: RefCell<VecDeque<Told>> = const { RefCell::new(VecDeque::new()) };
}

impl Encoder {
    /// One that writes in the words of `dialect`.
    pub(super) fn new(state: &AppState, dialect: Dialect, shape: Shape) -> Self {
        let (clock, redactor) = (state.runtime.clock.clone(), state.redactor.clone());
        Self { dialect, shape, clock, redactor }
    }

    /// As what an outlet calls.
    pub(super) fn into_encode(self) -> impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static {
        move |item, put| self.encode(item, put)
    }

    /// Puts the frames that tell of `item`.
    fn encode(&self, item: &FeedItem, put: &mut dyn FnMut(ByteString)) {
        let place = (item.session_id, item.cursor, self.dialect, self.shape);
        REMEMBERED.with_borrow_mut(|remembered| {
            let Some(told) = remembered.iter_mut().find(|told| told.place == place) else {
                remembered.truncate(REMEMBERED_MAX - 1);
                remembered.push_front(Told { place, kept: None });
                return self.write(item, put);
            };
            let kept = told.kept.take().filter(|kept| kept.kind.is_shared_with(&item.kind));
            let kept = kept.unwrap_or_else(|| {
                let mut frames = Vec::new();
                self.write(item, &mut |frame| frames.push(frame));
                Kept { kind: item.kind.clone(), frames }
            });
            kept.frames.iter().cloned().for_each(put);
            told.kept = Some(kept).filter(|kept| kept.bytes() <= KEPT_BYTES_MAX);
        });
    }

    fn write(&self, item: &FeedItem, put: &mut dyn FnMut(ByteString)) {
        self.dialect.encode(item, self.clock.now(), &self.redactor, |frame| {
            put(ByteString::from(self.shape.write(&frame)));
        });
    }
}

impl Shape {
    fn write(self, frame: &Frame) -> String {
        let mut text = Vec::with_capacity(FRAME_BYTES);
        // Plain data: writing it to memory can't fail. One line: JSON escapes line breaks.
        match self {
            Self::Event { with_id } => {
                if let Some(cursor) = frame.cursor.filter(|_| with_id) {
                    drop(writeln!(text, "id: {cursor}"));
                }
                text.extend_from_slice(b"data: ");
                drop(frame.write_flat(&mut text));
                text.extend_from_slice(b"\n\n");
            }
            Self::Message => drop(serde_json::to_writer(&mut text, &frame.nested())),
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

    struct AtOnce;

    impl Clock for AtOnce {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }

        fn seed(&self) -> u64 {
            0
        }
    }

    fn encoder(dialect: Dialect, shape: Shape) -> Encoder {
        Encoder { dialect, shape, clock: Arc::new(AtOnce), redactor: Arc::default() }
    }

    fn frames<const N: usize>(encoder: &Encoder, item: &FeedItem) -> [ByteString; N] {
        let mut frames = Vec::new();
        encoder.encode(item, &mut |frame| frames.push(frame));
        frames.try_into().unwrap()
    }

    fn frame(encoder: &Encoder, item: &FeedItem) -> ByteString {
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
        Vec::from_iter(CommittedEvent::all_of(&records).map(FeedKind::Event)).try_into().unwrap()
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
        let told = frame(&encoder(Dialect::Agent, Shape::Event { with_id: true }), &item);
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines.len(), 3, "{told}");
        assert_eq!(lines[0], "id: 7.9");
        assert!(lines[1].starts_with(r#"data: {"type":"text""#), "{told}");
        assert!(lines[1].contains(r"two\nlines"));
        assert_eq!(lines[2], "");
        let told = frame(&encoder(Dialect::Agent, Shape::Event { with_id: false }), &item);
        assert!(told.starts_with("data: "));
    }

    #[test]
    fn who_is_told_the_same_is_given_the_same_frame() {
        let event = Shape::Event { with_id: true };
        let [first, second] = committed([closed(), closed()]);
        for told in [item(text("one"), 3), item(second, 0)] {
            let frame_of = |item: &_, shape| frame(&encoder(Dialect::Agent, shape), item);
            let [_, one, another] = [(); 3].map(|()| frame_of(&told.clone(), event));
            assert_eq!(another.as_ptr(), one.as_ptr(), "who came third is given the second's");
            let [_, task] = [(); 2].map(|()| frame(&encoder(Dialect::Task, event), &told));
            assert_ne!(task.as_ptr(), one.as_ptr(), "in other words");
            assert!(frame_of(&told, Shape::Message).starts_with('{'), "in another shape");
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
        let encoder = encoder(Dialect::Task, Shape::Event { with_id: true });
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
        let encoder = encoder(Dialect::Agent, Shape::Event { with_id: true });
        let item = item(text(&"x".repeat(KEPT_BYTES_MAX)), 0);
        let told = [(); 3].map(|()| frame(&encoder, &item));
        assert_eq!(told[1], told[2]);
        assert_ne!(told[1].as_ptr(), told[2].as_ptr());
    }
}
