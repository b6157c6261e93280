//! Recognises events that differ from the preceding one only in their text. Nearly all events of a
//! stream do; they are compared instead of parsed (docs/performance.md).
//!
//! The bytes around the text must be identical, and the text must need no escapes in JSON; then the
//! text is the only possible difference. Every other event is left to the parser.

use super::sse::SseEvent;
use memchr::memmem;

/// Number of unused templates after which no more are set: some providers vary other fields in every
/// event.
const UNUSED_TEMPLATES_MAX: u32 = 4;

/// The parts of the last event around its text. There is one template per stream; it reuses one
/// buffer.
#[derive(Debug, Default)]
pub(super) struct EventTemplate {
    /// The event's name, then its data without the text; empty if no template is set.
    template: String,
    /// Offset in `template` of the event's data.
    data_start: usize,
    /// Offset in `template` of the text, between its quotes.
    text_start: usize,
    unused_templates: u32,
}

impl EventTemplate {
    /// Returns the text of `event` if `event` matches the template.
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

    /// Sets the template from an event that yielded `text` and nothing else.
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

    /// Removes the template. Called when an event yields anything other than text.
    pub(super) fn clear(&mut self) {
        self.template.clear();
        (self.data_start, self.text_start) = (0, 0);
    }
}

/// Splits `json` around its string `text`; the quotes belong to the two parts. Returns `None` if the
/// position is ambiguous. In JSON without escapes, a quote always starts or ends a string.
fn split_around<'j>(json: &'j str, text: &str) -> Option<(&'j str, &'j str)> {
    if json.contains('\\') || !text.bytes().all(needs_no_escape) {
        return None;
    }
    let quoted = format!("\"{text}\"");
    let finder = memmem::Finder::new(&quoted);
    let start = finder.find(json.as_bytes())?;
    // A second occurrence that overlaps the first shares a quote with it.
    let is_ambiguous = finder.find(&json.as_bytes()[start + 1..]).is_some();
    let (before, after) = (json.get(..=start)?, json.get(start + quoted.len() - 1..)?);
    (!is_ambiguous).then_some((before, after))
}

/// True if `byte` may appear unescaped in a JSON string.
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
    fn m2_template_matches_events_that_differ_in_text_only() {
        let mut template = EventTemplate::default();
        let chunk = |text: &str| format!(r#"{{"i":0,"delta":{{"content":"{text}"}},"end":null}}"#);
        assert_eq!(template.match_text(&event(&chunk("a"))), None, "no template is set");
        template.set(&event(&chunk("Hello")), "Hello");
        for text in [" world", "a", "né €", "{}[],:'", "content"] {
            assert_eq!(template.match_text(&event(&chunk(text))), Some(text));
        }
        for text in ["", r"a\n", r#"a","b":"c"#, "a\u{1}"] {
            assert_eq!(template.match_text(&event(&chunk(text))), None, "{text:?}");
        }
        for other in [
            r#"{"i":1,"delta":{"content":"a"},"end":null}"#,
            r#"{"i":0,"delta":{"content":"a"},"end":"stop"}"#,
            r#"{"i":0,"delta":{"content":""#,
            "",
        ] {
            assert_eq!(template.match_text(&event(other)), None, "{other}");
        }
        let named = SseEvent { name: Cow::Borrowed("ping"), ..event("") };
        assert_eq!(template.match_text(&SseEvent { data: Cow::Owned(chunk("a")), ..named }), None);
        template.clear();
        assert_eq!(template.match_text(&event(&chunk("a"))), None);
    }

    #[test]
    fn m2_ambiguous_text_position_sets_no_template() {
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
    fn m2_templates_are_disabled_after_repeated_misses() {
        let mut template = EventTemplate::default();
        let chunk = |n: u32| format!(r#"{{"n":{n},"content":"x"}}"#);
        for n in 0..UNUSED_TEMPLATES_MAX {
            template.set(&event(&chunk(n)), "x");
            assert!(template.match_text(&event(&chunk(n))).is_some());
        }
        for n in 0..=UNUSED_TEMPLATES_MAX {
            assert_eq!(template.match_text(&event(&chunk(100 + n))), None);
            template.set(&event(&chunk(n)), "x");
        }
        assert_eq!(template.match_text(&event(&chunk(UNUSED_TEMPLATES_MAX))), None);
    }

    /// Joins consecutive text deltas.
    fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
        let mut joined: Vec<Delta> = Vec::new();
        for delta in deltas {
            match (joined.last_mut(), &delta) {
                (Some(Delta::Text(text)), Delta::Text(further_text)) => text.push_str(further_text),
                _ => joined.push(delta),
            }
        }
        joined
    }

    /// Returns the deltas of the stream parser, and those of decoding every event.
    fn parse_both_ways<W: EventDecoder>(
        mut parser: StreamParser<W>,
        events: &[String],
    ) -> [Vec<Delta>; 2] {
        let (mut decoder, mut streamed, mut parsed) = (W::default(), Vec::new(), Vec::new());
        for data in events {
            if parser.push(format!("data: {data}\n\n").as_bytes(), &mut streamed).is_err() {
                break;
            }
        }
        for data in events {
            if decoder.decode(&event(data), &mut parsed).is_err()
                || parsed.contains(&Delta::Finished)
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
        /// Matching a template yields the same deltas as parsing (M2).
        #[test]
        fn m2_template_matching_yields_same_deltas_as_parsing(
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
