//! The members of a flat frame that say where it belongs, not what it tells.
//!
//! They are most of a piece of text's frame, and most of them are ids, which need no escapes: where
//! frames are told they are written by hand (docs/performance.md).

use super::Frame;
use greenroom_core::{Timestamp, ids::AgentName};
use serde::Serialize;
use uuid::Uuid;

/// A member's value.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum EnvelopeValue<'a> {
    Null,
    Number(u64),
    Id(Uuid),
    Name(&'a AgentName),
    Instant(Timestamp),
}

impl Frame<'_> {
    /// Hands each member to `put`, in order.
    pub(super) fn visit_envelope<E>(
        &self,
        mut put: impl FnMut(&'static str, EnvelopeValue<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(seq) = self.seq {
            put("seq", EnvelopeValue::Number(seq.0))?;
        }
        put("session_id", EnvelopeValue::Id(self.session_id.0))?;
        if !self.is_control() {
            put(
                "run_id",
                self.run_id.map_or(EnvelopeValue::Null, |run_id| EnvelopeValue::Id(run_id.0)),
            )?;
            put(
                "step",
                self.step.map_or(EnvelopeValue::Null, |step| EnvelopeValue::Number(step.into())),
            )?;
            put("agent_id", EnvelopeValue::Id(self.session_id.0))?;
            put("agent_type", EnvelopeValue::Name(self.agent))?;
        }
        put("at", EnvelopeValue::Instant(self.at))
    }
}

impl EnvelopeValue<'_> {
    /// Adds it to the text of an object that has a member.
    pub(super) fn write_json(
        self,
        name: &'static str,
        text: &mut Vec<u8>,
    ) -> serde_json::Result<()> {
        for part in [",\"", name, "\":"] {
            text.extend_from_slice(part.as_bytes());
        }
        let Self::Id(id) = self else { return serde_json::to_writer(text, &self) };
        let mut buffer = Uuid::encode_buffer();
        for part in ["\"", id.hyphenated().encode_lower(&mut buffer), "\""] {
            text.extend_from_slice(part.as_bytes());
        }
        Ok(())
    }
}
