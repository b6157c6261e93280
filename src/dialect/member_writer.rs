//! Writes the payload members of a frame and redacts each (E7).
//!
//! Serializes the event in place, without building a JSON tree first, because each client receives
//! a frame of each event (docs/performance.md).

use super::task::CallFrame;
use crate::redaction::Redactor;
use greenroom_core::session::SessionEvent;
use serde::{
    Serialize, Serializer,
    ser::{Error as _, Impossible, SerializeMap, SerializeStruct},
};

/// The member names of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum MemberNaming {
    /// The names of the stored events.
    Native,
    /// The same names, without message texts and summaries, for events of a child session. Clients
    /// receive these texts from the child's own stream.
    WithoutText,
    /// The names of the dialect `task`.
    Task(CallFrame),
}

impl MemberNaming {
    /// Returns the wire name of the member `name`, or `None` if the member is omitted.
    fn wire_name(self, name: &str) -> Option<&str> {
        match (self, name) {
            (Self::WithoutText, "text" | "summary") => None,
            (Self::Native | Self::WithoutText, name) => Some(name),
            (Self::Task(call_frame), name) => Some(call_frame.member_name(name)),
        }
    }
}

/// Writes members into an open JSON object.
pub(super) struct MemberWriter<'m, 'a, M> {
    map: &'m mut M,
    naming: MemberNaming,
    redactor: &'a Redactor,
}

impl<'m, 'a, M: SerializeMap> MemberWriter<'m, 'a, M> {
    /// Creates a writer into `map`.
    pub(super) fn new(map: &'m mut M, naming: MemberNaming, redactor: &'a Redactor) -> Self {
        Self { map, naming, redactor }
    }

    /// Writes a member in redacted form.
    pub(super) fn write_member<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> Result<(), M::Error> {
        match self.naming.wire_name(name) {
            Some(wire_name) => {
                self.map.serialize_entry(wire_name, &self.redactor.redact_member(name, value))
            }
            None => Ok(()),
        }
    }

    /// Writes a text delta. Only configured secrets and patterns are redacted, because a fragment
    /// of JSON cannot be parsed.
    pub(super) fn write_text_delta(&mut self, name: &str, delta: &str) -> Result<(), M::Error> {
        self.map.serialize_entry(name, &self.redactor.redact_text(delta))
    }

    /// Writes the fields of a struct or map as members.
    pub(super) fn write_fields<T: Serialize>(&mut self, value: &T) -> Result<(), M::Error> {
        value.serialize(FieldSerializer { members: self, is_event: false, pending_key: None })
    }

    /// Writes the stored payload of `event` as members.
    pub(super) fn write_event_payload(&mut self, event: &SessionEvent) -> Result<(), M::Error> {
        event.serialize(FieldSerializer { members: self, is_event: true, pending_key: None })
    }
}

/// A serializer that writes the fields of a struct or map as members.
struct FieldSerializer<'f, 'm, 'a, M> {
    members: &'f mut MemberWriter<'m, 'a, M>,
    /// True if the struct is an event with the fields `type` and `payload`; only the fields of the
    /// payload are written.
    is_event: bool,
    /// The key whose value is serialized next, in a map.
    pending_key: Option<String>,
}

impl<M: SerializeMap> SerializeStruct for FieldSerializer<'_, '_, '_, M> {
    type Ok = ();
    type Error = M::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), M::Error> {
        match (self.is_event, key) {
            (false, _) => self.members.write_member(key, value),
            (true, "payload") => value.serialize(FieldSerializer {
                members: self.members,
                is_event: false,
                pending_key: None,
            }),
            (true, _) => Ok(()),
        }
    }

    fn end(self) -> Result<(), M::Error> {
        Ok(())
    }
}

impl<M: SerializeMap> SerializeMap for FieldSerializer<'_, '_, '_, M> {
    type Ok = ();
    type Error = M::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), M::Error> {
        let key = serde_json::to_value(key).map_err(M::Error::custom)?;
        self.pending_key = key.as_str().map(str::to_owned);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), M::Error> {
        let key = self
            .pending_key
            .take()
            .ok_or_else(|| M::Error::custom("a member name must be a string"))?;
        self.members.write_member(&key, value)
    }

    fn end(self) -> Result<(), M::Error> {
        Ok(())
    }
}

macro_rules! reject_non_objects {
    ($($method:ident($($type:ty),*) -> $ok:ty;)*) => {
        $(fn $method(self, $(_: $type),*) -> Result<$ok, M::Error> {
            Err(M::Error::custom("only a struct or a map has fields"))
        })*
    };
}

impl<M: SerializeMap> Serializer for FieldSerializer<'_, '_, '_, M> {
    type Ok = ();
    type Error = M::Error;
    type SerializeSeq = Impossible<(), M::Error>;
    type SerializeTuple = Impossible<(), M::Error>;
    type SerializeTupleStruct = Impossible<(), M::Error>;
    type SerializeTupleVariant = Impossible<(), M::Error>;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Impossible<(), M::Error>;

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, M::Error> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, M::Error> {
        Ok(self)
    }

    reject_non_objects! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_char(char) -> ();
        serialize_str(&str) -> ();
        serialize_bytes(&[u8]) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_unit_variant(&'static str, u32, &'static str) -> ();
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), M::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), M::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), M::Error> {
        value.serialize(self)
    }
}
