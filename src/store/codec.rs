//! The stored form of a commit's events. Must not know the meaning of an event.
//!
//! Every stored commit has a format number, so that the form can change while old logs stay
//! readable (D7). A released format is never changed or removed.

use greenroom_core::{ids::Seq, json::has_reserved_key, session::EventRecord};
use memchr::memchr2;

/// The format in use: a JSON array of event records, as text.
pub(super) const FORMAT: i64 = 1;

/// Maximum nesting depth of arrays and objects. The JSON parser rejects a deeper text, so it must
/// never be stored.
const NESTING_MAX: usize = 127;

/// The reason why events can't be encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum CodecError {
    #[error("the events can't be encoded as JSON: {0}")]
    Serialize(serde_json::Error),
    #[error("the events are nested {0} levels deep; the limit is {NESTING_MAX}")]
    TooDeep(usize),
    #[error("an object has a key that is reserved for numbers")]
    ReservedKey,
    #[error("unknown format {0}")]
    UnknownFormat(i64),
    #[error("not event records: {0}")]
    Deserialize(serde_json::Error),
    #[error("not numbered {first} to {last} without gaps")]
    NonContiguous { first: Seq, last: Seq },
}

/// Encodes events in format [`FORMAT`].
pub(super) fn encode(records: &[EventRecord]) -> Result<String, CodecError> {
    let text = serde_json::to_string(records).map_err(CodecError::Serialize)?;
    let levels = nesting_depth(&text);
    if levels > NESTING_MAX {
        return Err(CodecError::TooDeep(levels));
    }
    if has_reserved_key(&text) {
        return Err(CodecError::ReservedKey);
    }
    // Debug builds verify that every commit can be decoded; release builds rely on the tests.
    if cfg!(debug_assertions) {
        let _: Vec<EventRecord> = serde_json::from_str(&text).map_err(CodecError::Deserialize)?;
    }
    Ok(text)
}

/// Decodes the events `first` to `last` from a text created by [`encode`], in any released format.
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

/// True if the events have the numbers `first` to `last`, each once and in order.
pub(super) fn are_contiguous(records: &[EventRecord], first: Seq, last: Seq) -> bool {
    let mut expected = first.0..=last.0;
    records.iter().all(|record| expected.next() == Some(record.seq.0)) && expected.next().is_none()
}

/// Returns the nesting depth of arrays and objects in a JSON text.
fn nesting_depth(json: &str) -> usize {
    let (mut depth, mut max_depth) = (0usize, 0);
    let mut rest = json.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = match byte {
            b'"' => skip_string(tail),
            b'[' | b'{' => {
                depth += 1;
                max_depth = max_depth.max(depth);
                tail
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                tail
            }
            _ => tail,
        };
    }
    max_depth
}

/// Returns the rest of `json` after a string literal whose opening quote was consumed. Strings are
/// most of an event, so they are skipped with `memchr`.
fn skip_string(json: &[u8]) -> &[u8] {
    let mut rest = json;
    while let Some(index) = memchr2(b'"', b'\\', rest) {
        let tail = &rest[index + 1..];
        if rest[index] == b'"' {
            return tail;
        }
        rest = tail.get(1..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;
    use greenroom_core::{Timestamp, call::ToolOutput, ids::CallId, session::SessionEvent};
    use serde_json::{Value, json};

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!("[{\"\\"), |value, _| json!([value]))
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

    /// Levels around the tool's own: the array, the record, the payload and the output.
    const WRAPPER_LEVELS: usize = 4;

    #[test]
    fn events_nested_too_deep_to_decode_are_not_encoded() {
        let deepest = vec![record(1, nested(NESTING_MAX - WRAPPER_LEVELS))];
        let text = encode(&deepest).unwrap();
        assert_eq!(decode(FORMAT, &text, Seq(1), Seq(1)).unwrap(), deepest);

        let deeper = [record(1, nested(NESTING_MAX - WRAPPER_LEVELS + 1))];
        assert!(matches!(encode(&deeper), Err(CodecError::TooDeep(levels)) if levels == 128));
        let unchecked = serde_json::to_string(&deeper).unwrap();
        assert!(serde_json::from_str::<Vec<EventRecord>>(&unchecked).is_err());
    }

    /// Approvals and answers contain parts that serde buffers.
    #[test]
    fn m2_stored_numbers_keep_every_digit() {
        let numbers = r#"[123456789012345678901234567890,0.1000000000000000055511151231257827,1e+400,-0,0.5]"#;
        let ids = r#""call_id":"01890000-0000-7000-8000-000000000002","tool":"t""#;
        let digest = "0".repeat(64);
        for payload in [
            format!(
                r#"{{"type":"approval_requested","payload":{{"approval":{{"approval_id":"01890000-0000-7000-8000-000000000003","kind":"plan","steps":[{{{ids},"arguments":{{"n":{numbers}}},"digest":"{digest}","risk":"read_only","description":"","why":"","cost":{{"amount":0.5,"unit":"ISK"}}}}],"purpose":"p","max_risk_level":"read_only","requested_at":"2026-01-02T03:04:05.678Z","deadline":null,"on_deadline":"deny"}}}}}}"#
            ),
            format!(
                r#"{{"type":"approval_decided","payload":{{"approval_id":"01890000-0000-7000-8000-000000000003","answer":{{"decision":"done","value":{{"n":{numbers}}},"by":"ann","surface":"rest","at":"2026-01-02T03:04:05.678Z"}},"closed":true}}}}"#
            ),
            r#"{"type":"approval_decided","payload":{"approval_id":"01890000-0000-7000-8000-000000000003","answer":{"decision":"raise","value":0.25,"by":"ann","surface":"rest","at":"2026-01-02T03:04:05.678Z"},"closed":true}}"#.to_owned(),
            format!(
                r#"{{"type":"tool_call_completed","payload":{{{ids},"output":{{"text":"","structured":{numbers}}}}}}}"#
            ),
        ] {
            let event = payload.trim_start_matches('{');
            let text = format!(r#"[{{"seq":1,"at":"2026-01-02T03:04:05.678Z",{event}]"#);
            let records = decode(FORMAT, &text, Seq(1), Seq(1)).unwrap();
            assert_eq!(encode(&records).unwrap(), text);
            // The payload comes before the type, because a value sorts its keys.
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(decode(FORMAT, &value.to_string(), Seq(1), Seq(1)).unwrap(), records);
        }
    }

    /// D7: a log in format 1, written by hand. It must stay readable.
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
    fn invalid_events_are_rejected_with_the_reason() {
        let text = encode(&[record(3, json!(1)), record(5, json!(2))]).unwrap();
        let gap = decode(FORMAT, &text, Seq(3), Seq(4)).unwrap_err();
        assert_eq!(gap.to_string(), "not numbered 3 to 4 without gaps");
        let short = decode(FORMAT, "[]", Seq(1), Seq(1)).unwrap_err();
        assert!(matches!(short, CodecError::NonContiguous { .. }));
        assert!(matches!(decode(2, "[]", Seq(1), Seq(1)), Err(CodecError::UnknownFormat(2))));
        assert!(matches!(decode(FORMAT, "[{", Seq(1), Seq(1)), Err(CodecError::Deserialize(_))));
    }
}
