//! What a WebSocket client sends, as it may come in: frame by frame, none longer than allowed.
//!
//! The crate that reads frames takes everything there is before it looks at the first of them, and at
//! a frame's length when all of it has come. So this stands before it, knows where each frame ends by
//! its header (RFC 6455 §5.2), hands on one frame at a time, and ends the stream at a header that
//! announces too much.

use actix_web::{error::PayloadError, web::Bytes};
use futures::Stream;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The longest header: two bytes, eight of length, four of mask.
const HEADER_BYTES_MAX: usize = 14;

/// Bytes of a client, cut where its frames end.
pub(super) struct FrameSplitter<S> {
    bytes: S,
    frame_bytes_max: u64,
    /// What has come and is not handed on.
    buffer: Bytes,
    position: FramePosition,
    /// A frame was handed on: whoever reads it comes first.
    is_complete: bool,
}

/// Where in a frame the next byte stands.
enum FramePosition {
    Header { come: [u8; HEADER_BYTES_MAX], length: usize },
    Payload { left: u64 },
}

impl FramePosition {
    const START: Self = Self::Header { come: [0; HEADER_BYTES_MAX], length: 0 };
}

/// The length of the payload after that header; `None` while the header is not complete.
fn payload_length(header: &[u8]) -> Option<u64> {
    let [_, second, more @ ..] = header else { return None };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let (length, of_length) = match second & 0x7F {
        126 => (u64::from(u16::from_be_bytes(more.get(..2)?.try_into().ok()?)), 2),
        127 => (u64::from_be_bytes(more.get(..8)?.try_into().ok()?), 8),
        length => (u64::from(length), 0),
    };
    (more.len() >= of_length + mask).then_some(length)
}

impl<S> FrameSplitter<S> {
    /// Of these bytes, where a frame's payload has at most that many.
    pub(super) fn new(bytes: S, frame_bytes_max: usize) -> Self {
        Self {
            bytes,
            frame_bytes_max: frame_bytes_max as u64,
            buffer: Bytes::new(),
            position: FramePosition::START,
            is_complete: false,
        }
    }

    /// What is held of the frame that is coming: to its end, or all there is.
    fn next_chunk(&mut self) -> Result<Bytes, PayloadError> {
        let mut taken = 0;
        while taken < self.buffer.len() && !self.is_complete {
            match &mut self.position {
                FramePosition::Header { come, length } => {
                    come[*length] = self.buffer[taken];
                    (taken, *length) = (taken + 1, *length + 1);
                    match payload_length(&come[..*length]) {
                        None => {}
                        Some(left) if left > self.frame_bytes_max => {
                            return Err(PayloadError::Overflow);
                        }
                        Some(left) => self.position = FramePosition::Payload { left },
                    }
                }
                FramePosition::Payload { left } => {
                    let here = (self.buffer.len() - taken) as u64;
                    let part = here.min(*left);
                    *left -= part;
                    taken += usize::try_from(part).unwrap_or(usize::MAX);
                }
            }
            if let FramePosition::Payload { left: 0 } = self.position {
                (self.position, self.is_complete) = (FramePosition::START, true);
            }
        }
        Ok(self.buffer.split_to(taken))
    }
}

impl<S: Stream<Item = Result<Bytes, PayloadError>> + Unpin> Stream for FrameSplitter<S> {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let frames = self.get_mut();
        if std::mem::take(&mut frames.is_complete) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if frames.buffer.is_empty() {
            match ready!(Pin::new(&mut frames.bytes).poll_next(cx)) {
                Some(Ok(bytes)) => frames.buffer = bytes,
                end @ (Some(Err(_)) | None) => return Poll::Ready(end),
            }
        }
        Poll::Ready(Some(frames.next_chunk()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, StreamExt, stream};
    use proptest::prelude::*;

    const MAX: usize = 70_000;

    /// A masked frame of a client with that much to say.
    fn frame(payload: usize) -> Vec<u8> {
        let mut bytes = vec![0x81];
        match payload {
            0..=125 => bytes.push(0x80 | u8::try_from(payload).unwrap()),
            126..=0xFFFF => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(payload).unwrap().to_be_bytes());
            }
            _longer => {
                bytes.push(0x80 | 127);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        bytes.extend([1, 2, 3, 4]);
        bytes.extend((0..payload).map(|n| u8::try_from(n % 251).unwrap()));
        bytes
    }

    /// What is handed on between pauses, and whether it ended with a refusal.
    fn read(parts: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, bool) {
        let parts = stream::iter(parts.into_iter().map(|part| Ok(Bytes::from(part))));
        let mut frames = FrameSplitter::new(parts, MAX);
        let mut handed_on = vec![Vec::new()];
        loop {
            match frames.next().now_or_never() {
                Some(Some(Ok(bytes))) => handed_on.last_mut().unwrap().extend(bytes),
                Some(Some(Err(_))) => return (handed_on, true),
                Some(None) => return (handed_on, false),
                None => handed_on.push(Vec::new()),
            }
        }
    }

    proptest! {
        #[test]
        fn x4_frames_are_passed_on_one_by_one(
            lengths in prop::collection::vec(
                prop_oneof![0..130usize, Just(65_535), Just(65_536), Just(MAX)], 1..5),
            cuts in prop::collection::vec(1..70_000usize, 0..8),
        ) {
            let sent: Vec<_> = lengths.into_iter().map(frame).collect();
            let mut rest = sent.concat();
            let mut parts = Vec::new();
            for cut in cuts {
                let cut = cut.min(rest.len());
                parts.push(rest.drain(..cut).collect());
            }
            parts.push(rest);
            let (mut handed_on, refused) = read(parts);
            prop_assert!(!refused);
            prop_assert_eq!(handed_on.pop(), Some(Vec::new()));
            prop_assert_eq!(handed_on, sent);
        }
    }

    #[test]
    fn x4_a_frame_that_announces_too_much_is_refused_by_its_header() {
        let long = frame(MAX + 1);
        let (handed_on, refused) = read(vec![frame(3), long[..14].to_vec()]);
        assert_eq!((handed_on, refused), (vec![frame(3), Vec::new()], true));
        // A length that no memory could hold.
        let (_, refused) =
            read(vec![vec![0x81, 0xFF, 0x7F, 255, 255, 255, 255, 255, 255, 255, 1, 2, 3, 4]]);
        assert!(refused);
    }
}
