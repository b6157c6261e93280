//! The part of stream parsing that is common to all wire formats: converts events into deltas and
//! detects the end of a stream.
//!
//! Each provider implements an [`EventDecoder`], which decodes one event at a time. [`StreamParser`]
//! frames the bytes, ignores data after the end, and distinguishes a complete stream from a cut one.
//! It does no I/O.

use super::{
    completion::{Completion, MessageBuilder},
    delta::Delta,
    event_template::EventTemplate,
    failure,
    failure::ModelFailure,
    sse::{LineTooLong, SseEvent, SseParser},
};
use serde::de::{Deserialize, IgnoredAny};
use std::borrow::Cow;

/// Marks the end of a stream in the OpenAI format and in some compatible ones.
pub(super) const DONE: &str = "[DONE]";

/// Decodes the events of one provider.
pub trait EventDecoder: Default {
    /// Decodes one event and adds its deltas to `out`; [`Delta::Finished`] ends the stream. An event
    /// that yields only text must leave the decoder in a state that an equal further event would not
    /// change.
    fn decode(&mut self, event: &SseEvent<'_>, out: &mut Vec<Delta>) -> Result<(), ModelFailure>;

    /// Handles the end of the bytes without [`Delta::Finished`]. Adds it to `out` if the message is
    /// complete nevertheless.
    fn finish(&mut self, out: &mut Vec<Delta>);
}

/// Parses the stream of one model call. The deltas do not depend on how the bytes are split, except
/// for the division of a text into pieces.
#[derive(Debug, Default)]
pub struct StreamParser<W> {
    events: SseParser,
    decoder: W,
    template: EventTemplate,
    phase: ParserPhase,
}

#[derive(Clone, Debug, Default)]
enum ParserPhase {
    #[default]
    Open,
    Finished,
    Failed(ModelFailure),
}

impl<W: EventDecoder> StreamParser<W> {
    /// Creates a parser at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the next bytes and adds the deltas that they complete to `out`. Ignores bytes after a
    /// failure and after [`Delta::Finished`].
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ModelFailure> {
        let ParserPhase::Open = self.phase else { return Ok(()) };
        let Self { events, decoder, template, phase } = self;
        let result =
            events.push(bytes, |event| process_event(decoder, template, phase, &event, out));
        self.record_result(result)
    }

    /// Handles the end of the stream. Adds [`Delta::Finished`] to `out` if the provider omitted it for
    /// a complete message. Fails if the message is incomplete, or if an earlier push failed.
    pub fn finish(&mut self, out: &mut Vec<Delta>) -> Result<(), ModelFailure> {
        let Self { events, decoder, template, phase } = self;
        if let ParserPhase::Open = phase {
            let result = events.finish(|event| match is_complete_data(&event.data) {
                true => process_event(decoder, template, phase, &event, out),
                // An incomplete event is ignored; the cut stream itself is reported below.
                false => Ok(()),
            });
            if result.is_ok()
                && let ParserPhase::Open = phase
            {
                let before = out.len();
                decoder.finish(out);
                if out[before..].contains(&Delta::Finished) {
                    *phase = ParserPhase::Finished;
                }
            }
            self.record_result(result)?;
        }
        match &self.phase {
            ParserPhase::Open => {
                Err(ModelFailure::temporary("the model's stream was cut before its end"))
            }
            ParserPhase::Finished => Ok(()),
            ParserPhase::Failed(failure) => Err(failure.clone()),
        }
    }

    /// True if the provider reported that the message is complete.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, ParserPhase::Finished)
    }

    fn record_result(&mut self, result: Result<(), ModelFailure>) -> Result<(), ModelFailure> {
        match (result, &self.phase) {
            // A line that is too long after the end is ignored.
            (Err(_), ParserPhase::Finished) => Ok(()),
            (Err(failure), ParserPhase::Open | ParserPhase::Failed(_)) => {
                self.phase = ParserPhase::Failed(failure.clone());
                Err(failure)
            }
            (Ok(()), _) => Ok(()),
        }
    }
}

fn process_event<W: EventDecoder>(
    decoder: &mut W,
    template: &mut EventTemplate,
    phase: &mut ParserPhase,
    event: &SseEvent<'_>,
    out: &mut Vec<Delta>,
) -> Result<(), ModelFailure> {
    let ParserPhase::Open = phase else { return Ok(()) };
    if let Some(text) = template.match_text(event) {
        match out.last_mut() {
            // Joins consecutive pieces: each separate delta costs memory.
            Some(Delta::Text(previous)) => previous.push_str(text),
            _ => out.push(Delta::Text(text.to_owned())),
        }
        return Ok(());
    }
    let before = out.len();
    decoder.decode(event, out)?;
    match &out[before..] {
        [Delta::Text(text)] => template.set(event, text),
        deltas => {
            template.clear();
            if deltas.contains(&Delta::Finished) {
                *phase = ParserPhase::Finished;
            }
        }
    }
    Ok(())
}

impl From<LineTooLong> for ModelFailure {
    fn from(error: LineTooLong) -> Self {
        Self::permanent(format!("the model's response cannot be parsed: {error}"))
    }
}

/// Parses JSON that the provider sent. Returns `None` if it is valid JSON of another shape.
pub(super) fn parse_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<Option<T>, ModelFailure> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(Some(value));
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(None),
        Err(error) => Err(ModelFailure::temporary(format!(
            "the model's stream contains data that is not JSON ({error}): {}",
            failure::quote_excerpt(text)
        ))),
    }
}

/// Creates the failure for JSON of a known type that has an unexpected shape.
pub(super) fn unexpected_shape(text: &str) -> ModelFailure {
    ModelFailure::temporary(format!(
        "the model's response has an unexpected shape: {}",
        failure::quote_excerpt(text)
    ))
}

/// Decodes a complete body as text; invalid UTF-8 becomes U+FFFD.
pub(super) fn decode_body(body: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body))
}

/// Folds `deltas` into a complete message.
pub(super) fn fold_deltas(deltas: Vec<Delta>) -> Result<Completion, ModelFailure> {
    let mut builder = MessageBuilder::default();
    deltas.into_iter().try_for_each(|delta| builder.push(delta))?;
    Ok(builder.into_completion())
}

fn is_complete_data(data: &str) -> bool {
    data.trim() == DONE || serde_json::from_str::<IgnoredAny>(data).is_ok()
}
