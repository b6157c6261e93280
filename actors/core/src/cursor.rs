//! Cursors: positions in a session's stream (E3).

use crate::ids::Seq;
use serde::{Serialize, Serializer};
use std::{fmt, str::FromStr};

/// A position in a session's stream: after event `seq`, and `offset` bytes into the text of the
/// message that is open at that event. Written as `7` or `7.300`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// Number of the last received event; 0 before the first.
    pub seq: Seq,
    /// Received bytes of the open message's text (UTF-8); always on a character boundary.
    pub offset: u64,
}

impl Cursor {
    /// Returns the position after event `seq`, before any text.
    pub fn after_seq(seq: Seq) -> Self {
        Self { seq, offset: 0 }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => write!(f, "{}", self.seq),
            offset => write!(f, "{}.{offset}", self.seq),
        }
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is not a valid cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cursor is an event number `seq`, or `seq.offset`, such as 7 or 7.300")]
pub struct InvalidCursor;

impl FromStr for Cursor {
    type Err = InvalidCursor;
    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_number {
                digits.parse::<u64>().map_err(|_| InvalidCursor)
            } else {
                Err(InvalidCursor)
            }
        };
        let (seq, offset) = match text.split_once('.') {
            Some((seq, offset)) => (number(seq)?, number(offset)?),
            None => (number(text)?, 0),
        };
        Ok(Self { seq: Seq(seq), offset })
    }
}

/// The start of a stream: a position, or the head of the log when the stream is opened. Written as a
/// cursor or as `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStart {
    /// After a cursor.
    After(Cursor),
    /// After the last event at the time of the request.
    Now,
}

impl Default for StreamStart {
    /// Returns the start before the first event.
    fn default() -> Self {
        Self::After(Cursor::default())
    }
}

impl FromStr for StreamStart {
    type Err = InvalidCursor;
    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        match text {
            "now" => Ok(Self::Now),
            cursor => cursor.parse().map(Self::After),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e3_stream_start_is_a_cursor_or_now() {
        let start = |text: &str| text.parse::<StreamStart>();
        assert_eq!(start("now"), Ok(StreamStart::Now));
        assert_eq!(start("0"), Ok(StreamStart::default()));
        assert_eq!(start("7.3"), Ok(StreamStart::After(Cursor { seq: Seq(7), offset: 3 })));
        for text in ["", "Now", "now ", "now.3", "-1"] {
            assert_eq!(start(text), Err(InvalidCursor), "{text}");
        }
    }

    #[test]
    fn e3_cursor_round_trips_and_invalid_text_is_rejected() {
        for text in ["0", "7", "7.300", "18446744073709551615"] {
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
        for text in ["", "-1", "+1", "7.", ".3", "7.3.1", " 7", "7,3", "99999999999999999999", "é"]
        {
            assert_eq!(text.parse::<Cursor>(), Err(InvalidCursor), "{text}");
        }
    }
}
