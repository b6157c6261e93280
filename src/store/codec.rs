//! The stored form of a commit's events. Must not know what an event means.
//!
//! Every stored commit carries the number of its format, so that the form may change while old
//! logs stay readable (D7). A format, once released, is never changed or dropped.

use greenroom_core::{ids::Seq, session::EventRecord};
use memchr::memchr2;

/// The format that is written: a JSON array of event records, as text.
pub(super) const FORMAT: i64 = 1;

/// Levels of nested arrays and objects that can be read back; a deeper text would be refused by
/// the parser for ever after, so it is never written.
const NESTING_MAX: usize = 127;

/// Why events can't be stored or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum CodecError {
    #[error("the events can't be written as JSON: {0}")]
    Serialize(serde_json::Error),
    #[error("the events are nested {0} levels deep, more than the {NESTING_MAX} that can be read")]
    TooDeep(usize),
    #[error("they are in format {0}, which this version does not know")]
    UnknownFormat(i64),
    #[error("they are not event records: {0}")]
    Deserialize(serde_json::Error),
    #[error("they are not numbered {first} to {last} without gaps")]
    NonContiguous { first: Seq, last: Seq },
}

/// The events in format [`FORMAT`].
pub(super) fn encode(records: &[EventRecord]) -> Result<String, CodecError> {
    let text = serde_json::to_string(records).map_err(CodecError::Serialize)?;
    let levels = nesting_depth(&text);
    if levels > NESTING_MAX {
        return Err(CodecError::TooDeep(levels));
    }
    // Every commit of every test proves that it can be read back; production trusts the tests.
    if cfg!(debug_assertions) {
        let _: Vec<EventRecord> = serde_json::from_str(&text).map_err(CodecError::Deserialize)?;
    }
    Ok(text)
}

/// The events `first` to `last` from the text that [`encode`] made of them, in any format there
/// ever was.
pub(super) fn decode(
    format: i64,
    text: &str,
    first: Seq,
    last: Seq,
) -> Result<Vec<EventRecord>, CodecError> {
    if format != FORMAT {
        return Err(CodecError::UnknownFormat(format));
    }
    let records: Vec<EventRecord> = serde_json::from_str(text).map_err(CodecError::Deserialize)?;
    if are_contiguous(&records, first, last) {
        Ok(records)
    } else {
        Err(CodecError::NonContiguous { first, last })
    }
}

/// Whether the events have the numbers `first` to `last`, each once and in order.
pub(super) fn are_contiguous(records: &[EventRecord], first: Seq, last: Seq) -> bool {
    let mut expected = first.0..=last.0;
    records.iter().all(|record| expected.next() == Some(record.seq.0)) && expected.next().is_none()
}

/// Levels of arrays and objects in a JSON text.
fn nesting_depth(json: &str) -> usize {
    let (mut level, mut deepest) = (0usize, 0);
    let mut rest = json.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = match byte {
            b'"' => skip_string(after),
            b'[' | b'{' => {
                level += 1;
                deepest = deepest.max(level);
                after
            }
            b']' | b'}' => {
                level = level.saturating_sub(1);
                after
            }
            _ => after,
        };
    }
    deepest
}

/// What follows a text that has begun. Texts are most of an event, so they are skipped in strides.
fn skip_string(json: &[u8]) -> &[u8] {
    let mut rest = json;
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        let after = &rest[at + 1..];
        if rest[at] == b'"' {
            return after;
        }
        rest = after.get(1..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;
    use greenroom_core::{Timestamp, call::ToolOutput, ids::CallId, session::SessionEvent};
    use serde_json::{Value, json};

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!("[{\"\\"), |inner, _| json!([inner]))
    }

    fn record(seq: u64, structured: Value) -> EventRecord {
        let output = ToolOutput {
            text: "[[[ \\\" {{{".to_owned(),
            structured: Some(structured),
            truncated: false,
            cached: false,
        };
        let call_id: CallId = "01890000-0000-7000-8000-000000000001".parse().unwrap();
        EventRecord {
            seq: Seq(seq),
            at: Timestamp(1_700_000_000_123),
            run_id: None,
            step: None,
            event: SessionEvent::ToolCallCompleted { call_id, tool: "t".to_owned(), output },
        }
    }

    /// The array, the record, the payload and the output stand around the tool's own levels.
    const WRAPPER_LEVELS: usize = 4;

    #[test]
    fn what_is_nested_too_deep_to_be_read_is_never_written() {
        let deepest = vec![record(1, nested(NESTING_MAX - WRAPPER_LEVELS))];
        let text = encode(&deepest).unwrap();
        assert_eq!(decode(FORMAT, &text, Seq(1), Seq(1)).unwrap(), deepest);

        let deeper = [record(1, nested(NESTING_MAX - WRAPPER_LEVELS + 1))];
        assert!(matches!(encode(&deeper), Err(CodecError::TooDeep(levels)) if levels == 128));
        let unchecked = serde_json::to_string(&deeper).unwrap();
        assert!(serde_json::from_str::<Vec<EventRecord>>(&unchecked).is_err());
    }

    /// D7: a log of format 1, written out by hand. It must be readable for ever.
    #[test]
    fn format_1_stays_readable() {
        let text = r#"[{"seq":7,"at":"2026-01-02T03:04:05.678Z","run_id":"01890000-0000-7000-8000-000000000002","step":1,"type":"message_started","payload":{"message_id":"m-1"}}]"#;
        let records = decode(1, text, Seq(7), Seq(7)).unwrap();
        let message_id = "m-1".parse().unwrap();
        assert_eq!(records[0].event, SessionEvent::MessageStarted { message_id });
        assert_eq!(records[0].at.to_string(), "2026-01-02T03:04:05.678Z");
        assert_eq!(records[0].step, Some(1));
    }

    #[test]
    fn what_does_not_make_sense_is_refused_with_the_reason() {
        let text = encode(&[record(3, json!(1)), record(5, json!(2))]).unwrap();
        let gap = decode(FORMAT, &text, Seq(3), Seq(4)).unwrap_err();
        assert_eq!(gap.to_string(), "they are not numbered 3 to 4 without gaps");
        let short = decode(FORMAT, "[]", Seq(1), Seq(1)).unwrap_err();
        assert!(matches!(short, CodecError::NonContiguous { .. }));
        assert!(matches!(decode(2, "[]", Seq(1), Seq(1)), Err(CodecError::UnknownFormat(2))));
        assert!(matches!(decode(FORMAT, "[{", Seq(1), Seq(1)), Err(CodecError::Deserialize(_))));
    }
}
