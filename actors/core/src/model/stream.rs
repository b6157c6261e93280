//! The part of stream parsing that both wire formats share: events in, deltas out, and how a
//! stream ends.
//!
//! Each provider brings a [`Wire`], which reads one event at a time; [`Parser`] frames the bytes,
//! ignores what follows the end, and tells a complete stream from a cut one. It does no I/O.

use super::{
    completion::{Completion, MessageBuilder},
    delta::Delta,
    failure,
    failure::ModelFailure,
    repeat::Repetition,
    sse::{Event, EventParser, TooLong},
};
use serde::de::{Deserialize, IgnoredAny};
use std::borrow::Cow;

/// What marks the end of a stream in the OpenAI format, and in some that imitate it.
pub(super) const DONE: &str = "[DONE]";

/// How one provider's events are read.
pub trait Wire: Default {
    /// Reads one event and adds what it says to `out`; [`Delta::Finished`] ends the stream. One that
    /// says a text and nothing else leaves the reader as it is, or as the next such one would.
    fn read(&mut self, event: &Event<'_>, out: &mut Vec<Delta>) -> Result<(), ModelFailure>;

    /// The bytes have ended without [`Delta::Finished`]. Adds it to `out` if the message is
    /// complete all the same.
    fn end(&mut self, out: &mut Vec<Delta>);
}

/// Parses the stream of one model call. Every way of cutting the bytes gives the same deltas, but for
/// the pieces that a text is in.
#[derive(Debug, Default)]
pub struct Parser<W> {
    events: EventParser,
    wire: W,
    repetition: Repetition,
    phase: Phase,
}

#[derive(Clone, Debug, Default)]
enum Phase {
    #[default]
    Open,
    Finished,
    Failed(ModelFailure),
}

impl<W: Wire> Parser<W> {
    /// A parser at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and adds the deltas they complete to `out`. After a failure, and after
    /// [`Delta::Finished`], further bytes are ignored.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ModelFailure> {
        let Phase::Open = self.phase else { return Ok(()) };
        let Self { events, wire, repetition, phase } = self;
        let result = events.push(bytes, |event| read(wire, repetition, phase, &event, out));
        self.settle(result)
    }

    /// The stream has ended. Adds [`Delta::Finished`] to `out` if the provider left it out of a
    /// complete message; errs when the message is not complete, and again if it failed before.
    pub fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), ModelFailure> {
        let Self { events, wire, repetition, phase } = self;
        if let Phase::Open = phase {
            let result = events.end(|event| match is_whole(&event.data) {
                true => read(wire, repetition, phase, &event, out),
                // The rest of an event that was cut says less than that the stream was.
                false => Ok(()),
            });
            if result.is_ok()
                && let Phase::Open = phase
            {
                let before = out.len();
                wire.end(out);
                if out[before..].contains(&Delta::Finished) {
                    *phase = Phase::Finished;
                }
            }
            self.settle(result)?;
        }
        match &self.phase {
            Phase::Open => {
                Err(ModelFailure::temporary("the model's stream was cut before its end"))
            }
            Phase::Finished => Ok(()),
            Phase::Failed(failure) => Err(failure.clone()),
        }
    }

    /// Whether the provider said that the message is complete.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    fn settle(&mut self, result: Result<(), ModelFailure>) -> Result<(), ModelFailure> {
        match (result, &self.phase) {
            // Too long a line after the end is no matter.
            (Err(_), Phase::Finished) => Ok(()),
            (Err(failure), Phase::Open | Phase::Failed(_)) => {
                self.phase = Phase::Failed(failure.clone());
                Err(failure)
            }
            (Ok(()), _) => Ok(()),
        }
    }
}

fn read<W: Wire>(
    wire: &mut W,
    repetition: &mut Repetition,
    phase: &mut Phase,
    event: &Event<'_>,
    out: &mut Vec<Delta>,
) -> Result<(), ModelFailure> {
    let Phase::Open = phase else { return Ok(()) };
    if let Some(text) = repetition.text_of(event) {
        match out.last_mut() {
            // What comes together is told together: each piece for itself costs its room in memory.
            Some(Delta::Text(told)) => told.push_str(text),
            _ => out.push(Delta::Text(text.to_owned())),
        }
        return Ok(());
    }
    let before = out.len();
    wire.read(event, out)?;
    match &out[before..] {
        [Delta::Text(text)] => repetition.learn(event, text),
        told => {
            repetition.forget();
            if told.contains(&Delta::Finished) {
                *phase = Phase::Finished;
            }
        }
    }
    Ok(())
}

impl From<TooLong> for ModelFailure {
    fn from(error: TooLong) -> Self {
        Self::permanent(format!("the model's answer can't be read: {error}"))
    }
}

/// Parses JSON the provider sent. `None`: it is JSON, but not of that shape.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<Option<T>, ModelFailure> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(Some(value));
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(None),
        Err(error) => Err(ModelFailure::temporary(format!(
            "the model's stream has data that is not JSON ({error}): {}",
            failure::shown(text)
        ))),
    }
}

/// The failure to report data that are JSON, and of a type we know, but of another shape.
pub(super) fn unexpected(text: &str) -> ModelFailure {
    ModelFailure::temporary(format!(
        "the model's answer has data of an unexpected shape: {}",
        failure::shown(text)
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
    Ok(builder.complete())
}

fn is_whole(data: &str) -> bool {
    data.trim() == DONE || serde_json::from_str::<IgnoredAny>(data).is_ok()
}
