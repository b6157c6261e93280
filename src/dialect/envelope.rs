//! The envelope of a flat frame: the members that identify its session, run, step and time.
//!
//! The envelope is the largest part of a text delta's frame and consists mostly of ids, which need
//! no JSON escaping. It is therefore written without serde (docs/performance.md).

use super::Frame;
use greenroom_core::{Timestamp, ids::AgentName};
use serde::Serialize;
use uuid::Uuid;

/// The value of an envelope member.
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
    /// Calls `visit` with each member, in order. Stops at the first error.
    pub(super) fn visit_envelope<E>(
        &self,
        mut visit: impl FnMut(&'static str, EnvelopeValue<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(seq) = self.seq {
            visit("seq", EnvelopeValue::Number(seq.0))?;
        }
        visit("session_id", EnvelopeValue::Id(self.session_id.0))?;
        if !self.is_control() {
            visit(
                "run_id",
                self.run_id.map_or(EnvelopeValue::Null, |run_id| EnvelopeValue::Id(run_id.0)),
            )?;
            visit(
                "step",
                self.step.map_or(EnvelopeValue::Null, |step| EnvelopeValue::Number(step.into())),
            )?;
            visit("agent_id", EnvelopeValue::Id(self.agent_id.0))?;
            visit("agent_type", EnvelopeValue::Name(self.agent))?;
        }
        visit("at", EnvelopeValue::Instant(self.at))
    }
}

impl EnvelopeValue<'_> {
    /// Appends the member `name` to the text of an unclosed JSON object that already has a member.
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
