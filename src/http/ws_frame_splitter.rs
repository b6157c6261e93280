//! Splits the bytes of a WebSocket client into frames and bounds their length.
//!
//! `actix_web_actors` reads all available bytes before it handles the first frame, and checks a
//! frame's length only when the frame is complete. This stream precedes it: it finds the end of each
//! frame by its header (RFC 6455 §5.2), passes on one frame at a time, and ends with an error at a
//! header that announces too many bytes.

use actix_web::{error::PayloadError, web::Bytes};
use futures::Stream;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

/// Maximum bytes of a header: 2, 8 of the length, 4 of the mask.
const HEADER_BYTES_MAX: usize = 14;

/// A stream of the client's bytes that pauses at the end of each frame.
pub(super) struct FrameSplitter<S> {
    bytes: S,
    frame_bytes_max: u64,
    /// Bytes that were received and not passed on.
    buffer: Bytes,
    position: FramePosition,
    /// True if a frame was passed on completely: the reader handles it before more bytes follow.
    is_complete: bool,
}

/// The position of the next byte within a frame.
enum FramePosition {
    Header { bytes: [u8; HEADER_BYTES_MAX], length: usize },
    Payload { remaining: u64 },
}

impl FramePosition {
    const START: Self = Self::Header { bytes: [0; HEADER_BYTES_MAX], length: 0 };
}

/// Returns the payload length of a header; `None` while the header is incomplete.
fn payload_length(header: &[u8]) -> Option<u64> {
    let [_, second, rest @ ..] = header else { return None };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let (length, length_bytes) = match second & 0x7F {
        126 => (u64::from(u16::from_be_bytes(rest.get(..2)?.try_into().ok()?)), 2),
        127 => (u64::from_be_bytes(rest.get(..8)?.try_into().ok()?), 8),
        length => (u64::from(length), 0),
    };
    (rest.len() >= length_bytes + mask).then_some(length)
}

impl<S> FrameSplitter<S> {
    /// Creates the stream. A frame's payload has at most `frame_bytes_max` bytes.
    pub(super) fn new(bytes: S, frame_bytes_max: usize) -> Self {
        Self {
            bytes,
            frame_bytes_max: frame_bytes_max as u64,
            buffer: Bytes::new(),
            position: FramePosition::START,
            is_complete: false,
        }
    }

    /// Returns the buffered bytes up to the end of the current frame.
    fn next_chunk(&mut self) -> Result<Bytes, PayloadError> {
        let mut chunk_bytes = 0;
        while chunk_bytes < self.buffer.len() && !self.is_complete {
            match &mut self.position {
                FramePosition::Header { bytes, length } => {
                    bytes[*length] = self.buffer[chunk_bytes];
                    chunk_bytes += 1;
                    *length += 1;
                    match payload_length(&bytes[..*length]) {
                        None => {}
                        Some(payload) if payload > self.frame_bytes_max => {
                            return Err(PayloadError::Overflow);
                        }
                        Some(remaining) => self.position = FramePosition::Payload { remaining },
                    }
                }
                FramePosition::Payload { remaining } => {
                    let buffered = (self.buffer.len() - chunk_bytes) as u64;
                    let part = buffered.min(*remaining);
                    *remaining -= part;
                    chunk_bytes += usize::try_from(part).unwrap_or(usize::MAX);
                }
            }
            if let FramePosition::Payload { remaining: 0 } = self.position {
                (self.position, self.is_complete) = (FramePosition::START, true);
            }
        }
        Ok(self.buffer.split_to(chunk_bytes))
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

    /// Returns a masked client frame with a payload of that many bytes.
    fn frame(payload: usize) -> Vec<u8> {
        let mut bytes = vec![0x81];
        match payload {
            0..=125 => bytes.push(0x80 | u8::try_from(payload).unwrap()),
            126..=0xFFFF => {
                bytes.push(0x80 | 126);
                bytes.extend(u16::try_from(payload).unwrap().to_be_bytes());
            }
            _ => {
                bytes.push(0x80 | 127);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        bytes.extend([1, 2, 3, 4]);
        bytes.extend((0..payload).map(|n| u8::try_from(n % 251).unwrap()));
        bytes
    }

    /// Returns the bytes that were passed on between pauses, and true if the stream ended with an
    /// error.
    fn read(parts: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, bool) {
        let parts = stream::iter(parts.into_iter().map(|part| Ok(Bytes::from(part))));
        let mut frames = FrameSplitter::new(parts, MAX);
        let mut chunks = vec![Vec::new()];
        loop {
            match frames.next().now_or_never() {
                Some(Some(Ok(bytes))) => chunks.last_mut().unwrap().extend(bytes),
                Some(Some(Err(_))) => return (chunks, true),
                Some(None) => return (chunks, false),
                None => chunks.push(Vec::new()),
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
            let (mut chunks, is_error) = read(parts);
            prop_assert!(!is_error);
            prop_assert_eq!(chunks.pop(), Some(Vec::new()));
            prop_assert_eq!(chunks, sent);
        }
    }

    #[test]
    fn x4_frame_that_is_too_long_is_refused_by_its_header() {
        let long = frame(MAX + 1);
        let (chunks, is_error) = read(vec![frame(3), long[..14].to_vec()]);
        assert_eq!((chunks, is_error), (vec![frame(3), Vec::new()], true));
        // A length that exceeds any memory.
        let (_, is_error) =
            read(vec![vec![0x81, 0xFF, 0x7F, 255, 255, 255, 255, 255, 255, 255, 1, 2, 3, 4]]);
        assert!(is_error);
    }
}
