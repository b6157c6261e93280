//! Events that repeat the one before but for their text, as nearly all of a stream do: they are told
//! by comparing, and not parsed (docs/performance.md).
//!
//! What lies around the text is the same, byte for byte, so another text that needs no escapes in
//! JSON is all the difference there can be. Whatever is not like that is left to the parser.

use super::sse::SseEvent;
use memchr::memmem;

/// Events that are learnt in vain before no more are: some providers put something else into each.
const UNUSED_TEMPLATES_MAX: u32 = 4;

/// What the last event had around its text. It keeps its buffer, one for all: there is one of these
/// for each stream.
#[derive(Debug, Default)]
pub(super) struct EventTemplate {
    /// The event's name, then its data without the text; empty where nothing is known.
    template: String,
    /// Where the data begins.
    data_start: usize,
    /// Where the text was: after its opening quote, and before its closing one.
    text_start: usize,
    unused_templates: u32,
}

impl EventTemplate {
    /// The text of an event that is the last one's but for this.
    pub(super) fn match_text<'e>(&mut self, event: &'e SseEvent<'_>) -> Option<&'e str> {
        let (before, after) = self.template.split_at(self.text_start);
        let (name, before) = before.split_at(self.data_start);
        if after.is_empty() || event.name != name {
            return None;
        }
        let text = event.data.strip_prefix(before)?.strip_suffix(after)?;
        if text.is_empty() || !text.bytes().all(needs_no_escape) {
            return None;
        }
        self.unused_templates = 0;
        Some(text)
    }

    /// Remembers an event that told of this text and of nothing else.
    pub(super) fn set(&mut self, event: &SseEvent<'_>, text: &str) {
        self.clear();
        if self.unused_templates == UNUSED_TEMPLATES_MAX {
            return;
        }
        self.unused_templates += 1;
        let Some((before, after)) = split_around(&event.data, text) else { return };
        self.data_start = event.name.len();
        self.text_start = self.data_start + before.len();
        self.template.reserve_exact(self.text_start + after.len());
        for part in [&*event.name, before, after] {
            self.template.push_str(part);
        }
    }

    /// The next event is another one.
    pub(super) fn clear(&mut self) {
        self.template.clear();
        (self.data_start, self.text_start) = (0, 0);
    }
}

/// What is around the string `text` in `json`, quotes included; `None` where it can't be told which
/// string it is. Without escapes a quote is always the start or the end of a string.
fn split_around<'j>(json: &'j str, text: &str) -> Option<(&'j str, &'j str)> {
    if json.contains('\\') || !text.bytes().all(needs_no_escape) {
        return None;
    }
    let quoted = format!("\"{text}\"");
    let finder = memmem::Finder::new(&quoted);
    let at = finder.find(json.as_bytes())?;
    // One that begins within the first would share a quote with it.
    let is_another = finder.find(&json.as_bytes()[at + 1..]).is_some();
    let (before, after) = (json.get(..=at)?, json.get(at + quoted.len() - 1..)?);
    (!is_another).then_some((before, after))
}

/// Whether JSON has the byte in a string as it is.
fn needs_no_escape(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        anthropic,
        delta::Delta,
        openai,
        stream_parser::{EventDecoder, StreamParser},
    };
    use proptest::prelude::*;
    use std::borrow::Cow;

    fn event(data: &str) -> SseEvent<'_> {
        SseEvent { name: Cow::Borrowed(""), data: Cow::Borrowed(data) }
    }

    #[test]
    fn only_events_that_differ_in_text_match() {
        let mut repetition = EventTemplate::default();
        let chunk = |text: &str| format!(r#"{{"i":0,"delta":{{"content":"{text}"}},"end":null}}"#);
        assert_eq!(repetition.match_text(&event(&chunk("a"))), None, "nothing is known");
        repetition.set(&event(&chunk("Hello")), "Hello");
        for text in [" world", "a", "né €", "{}[],:'", "content"] {
            assert_eq!(repetition.match_text(&event(&chunk(text))), Some(text));
        }
        for text in ["", r"a\n", r#"a","b":"c"#, "a\u{1}"] {
            assert_eq!(repetition.match_text(&event(&chunk(text))), None, "{text:?}");
        }
        for other in [
            r#"{"i":1,"delta":{"content":"a"},"end":null}"#,
            r#"{"i":0,"delta":{"content":"a"},"end":"stop"}"#,
            r#"{"i":0,"delta":{"content":""#,
            "",
        ] {
            assert_eq!(repetition.match_text(&event(other)), None, "{other}");
        }
        let named = SseEvent { name: Cow::Borrowed("ping"), ..event("") };
        assert_eq!(
            repetition.match_text(&SseEvent { data: Cow::Owned(chunk("a")), ..named }),
            None
        );
        repetition.clear();
        assert_eq!(repetition.match_text(&event(&chunk("a"))), None);
    }

    #[test]
    fn ambiguous_text_positions_set_no_template() {
        for (json, text) in [
            (r#"{"role":"content","content":"role"}"#, "role"),
            (r#"{"a":"b","content":","}"#, ","),
            (r#"{"a":"\n","content":"x"}"#, "x"),
            (r#"{"content":"\u0041","model":"A"}"#, "A"),
            (r#"{"content":["x","y"]}"#, "xy"),
            (r#"{"content":"aa","b":"aa"}"#, "aa"),
        ] {
            assert_eq!(split_around(json, text), None, "{json}");
        }
    }

    #[test]
    fn templates_are_switched_off_after_repeated_misses() {
        let mut repetition = EventTemplate::default();
        let chunk = |n: u32| format!(r#"{{"n":{n},"content":"x"}}"#);
        for n in 0..UNUSED_TEMPLATES_MAX {
            repetition.set(&event(&chunk(n)), "x");
            assert!(repetition.match_text(&event(&chunk(n))).is_some());
        }
        for n in 0..=UNUSED_TEMPLATES_MAX {
            assert_eq!(repetition.match_text(&event(&chunk(100 + n))), None);
            repetition.set(&event(&chunk(n)), "x");
        }
        assert_eq!(repetition.match_text(&event(&chunk(UNUSED_TEMPLATES_MAX))), None);
    }

    /// The deltas, with each text in one piece.
    fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
        let mut joined: Vec<Delta> = Vec::new();
        for delta in deltas {
            match (joined.last_mut(), &delta) {
                (Some(Delta::Text(text)), Delta::Text(more)) => text.push_str(more),
                _ => joined.push(delta),
            }
        }
        joined
    }

    /// What a stream makes of the events, and what a reader does that parses each.
    fn parse_both_ways<W: EventDecoder>(
        mut parser: StreamParser<W>,
        events: &[String],
    ) -> [Vec<Delta>; 2] {
        let (mut wire, mut streamed, mut parsed) = (W::default(), Vec::new(), Vec::new());
        for data in events {
            if parser.push(format!("data: {data}\n\n").as_bytes(), &mut streamed).is_err() {
                break;
            }
        }
        for data in events {
            if wire.decode(&event(data), &mut parsed).is_err() || parsed.contains(&Delta::Finished)
            {
                break;
            }
        }
        [streamed, parsed].map(joined)
    }

    fn chunks() -> impl Strategy<Value = String> {
        let text = prop_oneof![
            Just(r#"a"#.to_owned()),
            Just("content".to_owned()),
            Just("text".to_owned()),
            Just("index".to_owned()),
            Just(r"\n".to_owned()),
            Just(r"\u20ac".to_owned()),
            Just(String::new()),
            Just(",".to_owned()),
            "[a-z €:,{}]{0,6}",
        ];
        let shape = prop::sample::select(vec![
            r#"{"choices":[{"index":0,"delta":{"content":"@"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"@"}}],"usage":null}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"@"}}]}"#,
            r#"{"choices":[{"delta":{"refusal":"@"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"@"}}]}"#,
            r#"{"choices":[{"delta":{"role":"@","content":"x"}}]}"#,
            r#"{"choices":[{"delta":{"content":"@"},"finish_reason":"@"}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"@"}}]}}]}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"@"}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"@","text":"x"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"@"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"@","text":"x"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"@"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"error":"@"}"#,
            r#"{"type":"@","text":"@"}"#,
            r#"{"@"#,
        ]);
        (shape, text).prop_map(|(shape, text)| shape.replace('@', &text))
    }

    proptest! {
        /// Comparing tells the same as parsing (M2).
        #[test]
        fn m2_a_stream_tells_what_its_events_tell(
            events in prop::collection::vec((chunks(), 1..4usize), 0..12),
        ) {
            let repeated = events.into_iter().flat_map(|(event, times)| vec![event; times]);
            let events: Vec<_> = repeated.collect();
            let [streamed, parsed] = parse_both_ways(openai::Parser::new(), &events);
            prop_assert_eq!(streamed, parsed);
            let [streamed, parsed] = parse_both_ways(anthropic::Parser::new(), &events);
            prop_assert_eq!(streamed, parsed);
        }
    }
}
