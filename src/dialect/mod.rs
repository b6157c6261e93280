//! Dialects: wire vocabularies for the same events. Pure functions from feed items to frames, without
//! transport, clock or state.
//!
//! The dialects `agent` and `task` encode a [`FeedItem`] as [`Frame`]s, which the transports in
//! [`crate::http`] write with a cursor. [`gateway`] has its own message types. A new event must be
//! added to [`agent`], to [`gateway`] and to `samples`, from which the tests are generated; the
//! compiler reports each of these places.

pub mod agent;
pub mod approval_request;
mod call_arguments;
mod envelope;
pub mod gateway;
mod member_writer;
pub mod open_child_calls;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod snapshots;
pub mod task;

use crate::redaction::Redactor;
use agent::Payload;
pub use call_arguments::CallArguments;
use greenroom_actors::feed::FeedItem;
use greenroom_core::{
    Timestamp,
    cursor::Cursor,
    ids::{AgentName, ApprovalId, RunId, Seq, SessionId},
};
use member_writer::{MemberNaming, MemberWriter};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::{borrow::Cow, str::FromStr};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type},
};

/// A wire vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The native dialect.
    #[default]
    Agent,
    /// Tool calls as pairs of `tool_call` and `tool_result`.
    Task,
}

/// Error of an unknown dialect name. Holds at most 32 characters of the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dialect `{0}`; the dialects are `agent` and `task`")]
pub struct UnknownDialect(String);

impl FromStr for Dialect {
    type Err = UnknownDialect;
    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        match name {
            "agent" => Ok(Self::Agent),
            "task" => Ok(Self::Task),
            other => Err(UnknownDialect(other.chars().take(32).collect())),
        }
    }
}

impl Dialect {
    /// Encodes `item` and passes each frame to `emit`. `sent_at` is the time of text and control
    /// frames, which have no time of their own.
    pub fn encode<'a>(
        self,
        item: &'a FeedItem,
        sent_at: Timestamp,
        redactor: &'a Redactor,
        mut emit: impl FnMut(Frame<'a>),
    ) {
        match self {
            Self::Agent => emit(agent::encode(item, sent_at, redactor)),
            Self::Task => task::encode(item, sent_at, redactor, &mut emit),
        }
    }
}

/// A message to a client: a view of a feed item that is redacted when it is serialized.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// The `type`.
    pub kind: &'static str,
    /// The session that is streamed.
    pub session_id: SessionId,
    /// The acting session: the streamed one, or one of its child sessions.
    pub agent_id: SessionId,
    /// The profile of the acting session.
    pub agent: &'a AgentName,
    /// The `seq` of the event, or of the last event before a text delta; `None` for control frames.
    pub seq: Option<Seq>,
    /// The client's position after this frame; `None` for control frames.
    pub cursor: Option<Cursor>,
    /// The run that the frame belongs to.
    pub run_id: Option<RunId>,
    /// The step of that run.
    pub step: Option<u32>,
    /// The approval that the frame is about.
    pub plan_id: Option<ApprovalId>,
    /// The time of the event, or the time of sending.
    pub at: Timestamp,
    payload: Payload<'a>,
    naming: MemberNaming,
    redactor: &'a Redactor,
}

impl Frame<'_> {
    /// Returns the frame as one flat JSON object, the form of SSE and JSON pages.
    pub fn flat(&self) -> FlatFrame<'_> {
        FlatFrame(self)
    }

    /// Appends the JSON of [`Self::flat`] to `text`.
    pub fn write_flat(&self, text: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(&mut *text, &FlatBody(self))?;
        // Removes the closing brace. The object has a member, so a comma may follow.
        text.pop();
        self.visit_envelope(|name, member| member.write_json(name, text))?;
        text.push(b'}');
        Ok(())
    }

    /// Returns the frame as an object with a `payload`, the form of WebSockets.
    pub fn nested(&self) -> NestedFrame<'_> {
        NestedFrame(self)
    }

    fn is_control(&self) -> bool {
        self.seq.is_none()
    }

    fn serialize_body<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("type", self.kind)?;
        self.serialize_payload(map)
    }

    fn serialize_payload<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let mut members = self.member_writer(map);
        match &self.payload {
            Payload::Stored(event) => members.write_event_payload(event)?,
            Payload::Typed(payload) => members.write_fields(payload)?,
            Payload::Other(payload) => {
                payload.iter().try_for_each(|(name, value)| members.write_member(name, value))?;
            }
            Payload::TextDelta { message_id, text } => {
                members.write_member("message_id", *message_id)?;
                members.write_text_delta("text", text)?;
            }
        }
        match self.naming {
            MemberNaming::Task(call_frame) => call_frame.write_extra_members(&mut members),
            MemberNaming::Native | MemberNaming::WithoutText => Ok(()),
        }
    }

    fn member_writer<'m, M: SerializeMap>(&self, map: &'m mut M) -> MemberWriter<'m, '_, M> {
        MemberWriter::new(map, self.naming, self.redactor)
    }
}

/// A frame in its flat form. See [`Frame::flat`].
#[derive(Debug)]
pub struct FlatFrame<'a>(&'a Frame<'a>);

impl PartialSchema for FlatFrame<'_> {
    fn schema() -> RefOr<Schema> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let kinds = agent::FRAME_TYPES.into_iter().chain([task::TOOL_CALL, task::TOOL_RESULT]);
        ObjectBuilder::new()
            .description(Some(
                "An event, delta or control frame, by its `type`. The members beside the envelope \
                 depend on the type; `docs/protocol.md` lists them. Control frames have no `seq`",
            ))
            .property("type", text().enum_values(Some(kinds)))
            .property("session_id", Ref::from_schema_name(SessionId::name()))
            .property("at", Ref::from_schema_name(Timestamp::name()))
            .property("seq", Ref::from_schema_name(Seq::name()))
            .property("run_id", nullable(Ref::from_schema_name(RunId::name())))
            .property("step", nullable(u32::schema()))
            .property("agent_id", Ref::from_schema_name(SessionId::name()))
            .property("agent_type", Ref::from_schema_name(AgentName::name()))
            .required("type")
            .required("session_id")
            .required("at")
            .into()
    }
}

fn nullable(schema: impl Into<RefOr<Schema>>) -> OneOfBuilder {
    OneOfBuilder::new().item(ObjectBuilder::new().schema_type(Type::Null)).item(schema)
}

impl ToSchema for FlatFrame<'_> {
    fn name() -> Cow<'static, str> {
        "Frame".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((SessionId::name().into_owned(), SessionId::schema()));
        schemas.push((Timestamp::name().into_owned(), Timestamp::schema()));
        schemas.push((Seq::name().into_owned(), Seq::schema()));
        schemas.push((RunId::name().into_owned(), RunId::schema()));
        schemas.push((AgentName::name().into_owned(), AgentName::schema()));
    }
}

impl Serialize for FlatFrame<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.serialize_body(&mut map)?;
        self.0.visit_envelope(|name, member| map.serialize_entry(name, &member))?;
        map.end()
    }
}

/// The members of a flat frame before its envelope.
struct FlatBody<'a>(&'a Frame<'a>);

impl Serialize for FlatBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.serialize_body(&mut map)?;
        map.end()
    }
}

/// A frame in its nested form. See [`Frame::nested`].
#[derive(Debug)]
pub struct NestedFrame<'a>(&'a Frame<'a>);

struct NestedPayload<'a>(&'a Frame<'a>);

impl Serialize for NestedFrame<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frame = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", frame.kind)?;
        map.serialize_entry("session_id", &frame.session_id)?;
        map.serialize_entry("plan_id", &frame.plan_id)?;
        map.serialize_entry("step_index", &frame.step)?;
        map.serialize_entry("payload", &NestedPayload(frame))?;
        map.serialize_entry("timestamp", &frame.at)?;
        if let Some(seq) = frame.seq {
            map.serialize_entry("seq", &seq)?;
        }
        if let Some(cursor) = frame.cursor {
            map.serialize_entry("cursor", &cursor)?;
        }
        map.end()
    }
}

impl Serialize for NestedPayload<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let frame = self.0;
        let mut map = serializer.serialize_map(None)?;
        // Puts the purpose and the size of a plan before its steps, for readers.
        if frame.kind == agent::WAITING_FOR_APPROVAL
            && let Payload::Other(payload) = &frame.payload
            && let Some(plan) = payload.get("plan")
        {
            frame.member_writer(&mut map).write_member("purpose", &plan["purpose"])?;
            map.serialize_entry("tool_count", &plan["steps"].as_array().map_or(0, Vec::len))?;
        }
        frame.serialize_payload(&mut map)?;
        if !frame.is_control() {
            map.serialize_entry("run_id", &frame.run_id)?;
            map.serialize_entry("agent_id", &frame.agent_id)?;
            map.serialize_entry("agent_type", &frame.agent)?;
        }
        map.end()
    }
}
