//! Dialects: wire vocabularies for the same events. Pure functions from what happened to frames;
//! no transport, no clock, no state.
//!
//! [`Frame`] is what the dialects that can be asked for make of one [`FeedItem`]; the transports in
//! [`crate::http`] write it with a cursor. [`gateway`] has messages of its own. Each dialect is a
//! file beside this one; a new event says what it is in [`agent`] and in [`gateway`], where the
//! compiler asks, and in `samples`, from which every test here is made.

pub mod agent;
pub mod approval_request;
mod envelope;
pub mod gateway;
mod member_writer;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod snapshots;
pub mod task;

use crate::redaction::Redactor;
use agent::Payload;
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
    /// The native one.
    #[default]
    Agent,
    /// Tool calls as pairs of `tool_call` and `tool_result`.
    Task,
}

/// No dialect that a stream can be asked for has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no dialect `{0}` to ask for; there are `agent` and `task`")]
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
    /// Tells what this dialect says of `item`. `sent_at` is the time of what has none of its own:
    /// text and control frames.
    pub fn encode<'a>(
        self,
        item: &'a FeedItem,
        sent_at: Timestamp,
        redactor: &'a Redactor,
        mut tell: impl FnMut(Frame<'a>),
    ) {
        match self {
            Self::Agent => tell(agent::encode(item, sent_at, redactor)),
            Self::Task => task::encode(item, sent_at, redactor, &mut tell),
        }
    }
}

/// One thing said to a client: a view of what it tells of, blacked out where it is serialised.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// The `type`.
    pub kind: &'static str,
    /// The session.
    pub session_id: SessionId,
    /// The session's profile.
    pub agent: &'a AgentName,
    /// The event it tells of, or the last one before it; `None` for control frames.
    pub seq: Option<Seq>,
    /// Where the client is once it has this; `None` for control frames, which have no place.
    pub cursor: Option<Cursor>,
    /// The run it belongs to.
    pub run_id: Option<RunId>,
    /// The step of that run.
    pub step: Option<u32>,
    /// The question it is about.
    pub plan_id: Option<ApprovalId>,
    /// When.
    pub at: Timestamp,
    payload: Payload<'a>,
    naming: MemberNaming,
    redactor: &'a Redactor,
}

impl Frame<'_> {
    /// As one flat JSON object, the form of SSE and JSON pages.
    pub fn flat(&self) -> FlatFrame<'_> {
        FlatFrame(self)
    }

    /// Adds what [`Self::flat`] is as text.
    pub fn write_flat(&self, text: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(&mut *text, &FlatBody(self))?;
        // Its brace; it has a member, so a comma may follow.
        text.pop();
        self.visit_envelope(|name, member| member.write_json(name, text))?;
        text.push(b'}');
        Ok(())
    }

    /// As an object with a `payload`, the form of WebSockets.
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
            Payload::Typed(common) => members.write_fields(common)?,
            Payload::Other(payload) => {
                payload.iter().try_for_each(|(name, value)| members.write_member(name, value))?;
            }
            Payload::TextDelta { message_id, text } => {
                members.write_member("message_id", *message_id)?;
                members.write_text_delta("text", text)?;
            }
        }
        match self.naming {
            MemberNaming::Task(part) => part.write_extra_members(self, &mut members),
            MemberNaming::Native | MemberNaming::WithoutText => Ok(()),
        }
    }

    fn member_writer<'m, M: SerializeMap>(&self, map: &'m mut M) -> MemberWriter<'m, '_, M> {
        MemberWriter::new(map, self.naming, self.redactor)
    }
}

/// See [`Frame::flat`].
#[derive(Debug)]
pub struct FlatFrame<'a>(&'a Frame<'a>);

impl PartialSchema for FlatFrame<'_> {
    fn schema() -> RefOr<Schema> {
        let text = || ObjectBuilder::new().schema_type(Type::String);
        let kinds = agent::FRAME_TYPES.into_iter().chain([task::TOOL_CALL, task::TOOL_RESULT]);
        ObjectBuilder::new()
            .description(Some(
                "What happened, by its `type`. The members beside the envelope depend on the type; \
                 `docs/protocol.md` lists them. Control frames have no `seq`",
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

/// What a flat frame says before its envelope.
struct FlatBody<'a>(&'a Frame<'a>);

impl Serialize for FlatBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.serialize_body(&mut map)?;
        map.end()
    }
}

/// See [`Frame::nested`].
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
        // People who are asked read the purpose and the size of a plan before its steps.
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
            map.serialize_entry("agent_id", &frame.session_id)?;
            map.serialize_entry("agent_type", &frame.agent)?;
        }
        map.end()
    }
}
