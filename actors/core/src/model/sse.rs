//! Parses server-sent events from bytes that are split anywhere.
//!
//! Owns the framing only: lines, fields, blank lines. It does not interpret the data and does no I/O.
//! [`super::stream_parser::StreamParser`] calls it. Lines and events are bounded by
//! [`limits::STREAM_LINE_BYTES_MAX`], so that a hostile server cannot exhaust the memory.

use crate::limits;
use memchr::memchr2;
use std::borrow::Cow;

/// One event. Invalid UTF-8 is replaced by U+FFFD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The value of the `event:` field; empty if there is none.
    pub name: Cow<'a, str>,
    /// The values of the `data:` lines, joined by line feeds.
    pub data: Cow<'a, str>,
}

/// A line, or the data of one event, exceeds [`limits::STREAM_LINE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of the stream exceeds {max} bytes", max = limits::STREAM_LINE_BYTES_MAX)]
pub struct LineTooLong;

/// Splits a stream into events. Reuses its buffers, so that an event needs no allocation.
#[derive(Debug, Default)]
pub struct SseParser {
    /// The start of a line whose end has not arrived yet.
    line: Vec<u8>,
    event: PartialEvent,
    /// True if the last byte was a CR that ended a line; a LF right after it belongs to that line end.
    after_cr: bool,
}

#[derive(Debug, Default)]
struct PartialEvent {
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// True after the first line: a byte order mark is only stripped before it.
    has_started: bool,
}

impl SseParser {
    /// Parses the next bytes and passes each event that they complete to `on_event`, until `on_event`
    /// returns an error.
    pub fn push<E: From<LineTooLong>>(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = bytes;
        if self.after_cr
            && let Some(first) = rest.first()
        {
            self.after_cr = false;
            rest = if *first == b'\n' { &rest[1..] } else { rest };
        }
        while let Some(line_end) = memchr2(b'\n', b'\r', rest) {
            let (piece, ending) = (&rest[..line_end], &rest[line_end..]);
            // Most lines arrive complete and are parsed without copying.
            let ended = if self.line.is_empty() {
                check_length(piece.len())?;
                self.event.parse_line(piece)?
            } else {
                self.buffer(piece)?;
                let ended = self.event.parse_line(&self.line)?;
                self.line.clear();
                ended
            };
            rest = match ending {
                [b'\r', b'\n', after @ ..] | [_, after @ ..] => after,
                [] => ending,
            };
            self.after_cr = ending == b"\r";
            if ended {
                self.event.dispatch(&mut on_event)?;
            }
        }
        self.buffer(rest)?;
        Ok(())
    }

    /// Ends the stream. An incomplete event is passed to `on_event` as if a blank line followed: some
    /// servers omit the last blank line.
    pub fn finish<E: From<LineTooLong>>(
        &mut self,
        mut on_event: impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.event.parse_line(&line)?;
        }
        self.event.dispatch(&mut on_event)
    }

    fn buffer(&mut self, piece: &[u8]) -> Result<(), LineTooLong> {
        check_length(self.line.len() + piece.len())?;
        self.line.extend_from_slice(piece);
        Ok(())
    }
}

impl PartialEvent {
    /// Parses one line without its line end. Returns true if the line ends the event.
    fn parse_line(&mut self, line: &[u8]) -> Result<bool, LineTooLong> {
        let mut line = line;
        if !std::mem::replace(&mut self.has_started, true) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(true);
        }
        let colon = line.iter().take(8).position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(position) => (&line[..position], &line[position + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                check_length(self.data.len() + 1 + value.len())?;
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // `id` and `retry` are for clients that reconnect; an empty field name is a comment; the
            // standard requires that unknown fields are ignored.
            _ => {}
        }
        Ok(false)
    }

    fn dispatch<E>(
        &mut self,
        on_event: &mut impl FnMut(SseEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let result = if self.has_data {
            on_event(SseEvent { name: decode_lossy(&self.name), data: decode_lossy(&self.data) })
        } else {
            Ok(())
        };
        self.name.clear();
        self.data.clear();
        self.has_data = false;
        result
    }
}

/// Decodes UTF-8. Validates first, because nearly all input is valid and validation is much faster
/// than the lossy conversion.
fn decode_lossy(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

fn check_length(length: usize) -> Result<(), LineTooLong> {
    if length <= limits::STREAM_LINE_BYTES_MAX { Ok(()) } else { Err(LineTooLong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        let mut collect = |event: SseEvent<'_>| {
            events.push((event.name.into_owned(), event.data.into_owned()));
            Ok::<(), LineTooLong>(())
        };
        for piece in pieces {
            parser.push(piece, &mut collect).unwrap();
        }
        parser.finish(&mut collect).unwrap();
        events
    }

    /// Asserts the events for every split of the stream into two pieces and into single bytes.
    fn check(stream: &[u8], expected: &[(&str, &str)]) {
        let expected: Vec<_> =
            expected.iter().map(|(name, data)| ((*name).to_owned(), (*data).to_owned())).collect();
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(events(&single), expected);
        for split in 0..=stream.len() {
            assert_eq!(
                events(&[&stream[..split], b"", &stream[split..]]),
                expected,
                "split at {split}"
            );
        }
    }

    #[test]
    fn line_ends_are_lf_cr_or_crlf() {
        let expected = [("a", "1"), ("", "2"), ("", "3")];
        check(b"event: a\ndata: 1\n\ndata: 2\n\ndata: 3\n\n", &expected);
        check(b"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\ndata: 3\r\n\r\n", &expected);
        check(b"event: a\rdata: 1\r\rdata: 2\r\rdata: 3\r\r", &expected);
        check(b"event: a\r\ndata: 1\n\rdata: 2\r\n\ndata: 3\n\n", &expected);
    }

    #[test]
    fn fields_are_parsed_by_the_standard() {
        check("\u{FEFF}data: first\n\n\u{FEFF}data: no field\n\n".as_bytes(), &[("", "first")]);
        check(
            b": comment\nid: 7\nretry: 9\ndata:no space\ndata:  two\ndata\n\n",
            &[("", "no space\n two\n")],
        );
        check(b"event: nothing\n\ndata: x\n\n", &[("", "x")]);
        check(b"datax: 1\ndata : 2\nDATA: 3\ndata: {\"a:\": 4}\n\n", &[("", "{\"a:\": 4}")]);
    }

    #[test]
    fn split_and_invalid_characters_are_decoded() {
        check("data: é€😀\n\n".as_bytes(), &[("", "é€😀")]);
        check(b"data: \xC3\xC3\xA9\xFF\n\n", &[("", "\u{FFFD}é\u{FFFD}")]);
    }

    #[test]
    fn missing_last_blank_line_is_tolerated() {
        check(b"data: 1\n\ndata: [DONE]", &[("", "1"), ("", "[DONE]")]);
        check(b"data: 1\n\ndata: [DONE]\r", &[("", "1"), ("", "[DONE]")]);
    }

    #[test]
    fn lines_and_events_are_bounded() {
        let ignore = |_: SseEvent<'_>| Ok::<(), LineTooLong>(());
        let block = vec![b'x'; 64 * 1024];
        let mut parser = SseParser::default();
        let fitting = limits::STREAM_LINE_BYTES_MAX / block.len();
        (0..fitting).for_each(|_| parser.push(&block, ignore).unwrap());
        assert_eq!(parser.push(b"y", ignore), Err(LineTooLong));
        assert_eq!(parser.line.len(), limits::STREAM_LINE_BYTES_MAX);

        let mut parser = SseParser::default();
        let line = [b"data: ".as_slice(), &block, b"\n"].concat();
        let outcome = (0..=fitting).try_for_each(|_| parser.push(&line, ignore));
        assert_eq!(outcome, Err(LineTooLong));
        assert!(parser.event.data.len() <= limits::STREAM_LINE_BYTES_MAX);
    }
}
