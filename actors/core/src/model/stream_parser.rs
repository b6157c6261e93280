//! The part of stream parsing that both wire formats share: events in, deltas out, and how a
//! stream ends.
//!
//! Each provider brings a [`Wire`], which reads one event at a time; [`Parser`] frames the bytes,
//! ignores what follows the end, and tells a complete stream from a cut one. It does no I/O.

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

/// What marks the end of a stream in the OpenAI format, and in some that imitate it.
pub(super) const DONE: &str = "[DONE]";

/// How one provider's events are read.
pub trait EventDecoder: Default {
    /// Reads one event and adds what it says to `out`; [`Delta::Finished`] ends the stream. One that
    /// says a text and nothing else leaves the reader as it is, or as the next such one would.
    fn decode(&mut self, event: &SseEvent<'_>, out: &mut Vec<Delta>) -> Result<(), ModelFailure>;

    /// The bytes have ended without [`Delta::Finished`]. Adds it to `out` if the message is
    /// complete all the same.
    fn finish(&mut self, out: &mut Vec<Delta>);
}

/// Parses the stream of one model call. Every way of cutting the bytes gives the same deltas, but for
/// the pieces that a text is in.
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
    /// A parser at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and adds the deltas they complete to `out`. After a failure, and after
    /// [`Delta::Finished`], further bytes are ignored.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ModelFailure> {
        let ParserPhase::Open = self.phase else { return Ok(()) };
        let Self { events, decoder: wire, template: repetition, phase } = self;
        let result =
            events.push(bytes, |event| process_event(wire, repetition, phase, &event, out));
        self.record_result(result)
    }

    /// The stream has ended. Adds [`Delta::Finished`] to `out` if the provider left it out of a
    /// complete message; errs when the message is not complete, and again if it failed before.
    pub fn finish(&mut self, out: &mut Vec<Delta>) -> Result<(), ModelFailure> {
        let Self { events, decoder: wire, template: repetition, phase } = self;
        if let ParserPhase::Open = phase {
            let result = events.finish(|event| match is_complete_data(&event.data) {
                true => process_event(wire, repetition, phase, &event, out),
                // The rest of an event that was cut says less than that the stream was.
                false => Ok(()),
            });
            if result.is_ok()
                && let ParserPhase::Open = phase
            {
                let before = out.len();
                wire.finish(out);
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

    /// Whether the provider said that the message is complete.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, ParserPhase::Finished)
    }

    fn record_result(&mut self, result: Result<(), ModelFailure>) -> Result<(), ModelFailure> {
        match (result, &self.phase) {
            // Too long a line after the end is no matter.
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
    wire: &mut W,
    repetition: &mut EventTemplate,
    phase: &mut ParserPhase,
    event: &SseEvent<'_>,
    out: &mut Vec<Delta>,
) -> Result<(), ModelFailure> {
    let ParserPhase::Open = phase else { return Ok(()) };
    if let Some(text) = repetition.match_text(event) {
        match out.last_mut() {
            // What comes together is told together: each piece for itself costs its room in memory.
            Some(Delta::Text(told)) => told.push_str(text),
            _ => out.push(Delta::Text(text.to_owned())),
        }
        return Ok(());
    }
    let before = out.len();
    wire.decode(event, out)?;
    match &out[before..] {
        [Delta::Text(text)] => repetition.set(event, text),
        told => {
            repetition.clear();
            if told.contains(&Delta::Finished) {
                *phase = ParserPhase::Finished;
            }
        }
    }
    Ok(())
}

impl From<LineTooLong> for ModelFailure {
    fn from(error: LineTooLong) -> Self {
        Self::permanent(format!("the model's answer can't be read: {error}"))
    }
}

/// Parses JSON the provider sent. `None`: it is JSON, but not of that shape.
pub(super) fn parse_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<Option<T>, ModelFailure> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(Some(value));
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(None),
        Err(error) => Err(ModelFailure::temporary(format!(
            "the model's stream has data that is not JSON ({error}): {}",
            failure::quote_excerpt(text)
        ))),
    }
}

/// The failure to report data that are JSON, and of a type we know, but of another shape.
pub(super) fn unexpected(text: &str) -> ModelFailure {
    ModelFailure::temporary(format!(
        "the model's answer has data of an unexpected shape: {}",
        failure::quote_excerpt(text)
    ))
}

/// A whole body as text: what is not UTF-8 becomes U+FFFD.
pub(super) fn body_text(body: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body))
}

/// The message that `deltas` tell of.
pub(super) fn fold(deltas: Vec<Delta>) -> Result<Completion, ModelFailure> {
    let mut builder = MessageBuilder::default();
    deltas.into_iter().try_for_each(|delta| builder.push(delta))?;
    Ok(builder.into_completion())
}

fn is_complete_data(data: &str) -> bool {
    data.trim() == DONE || serde_json::from_str::<IgnoredAny>(data).is_ok()
}
