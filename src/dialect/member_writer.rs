//! What a frame says beside its envelope, written member by member and blacked out on the way (E7).
//!
//! Frames are views: what they tell of is serialised where it lies, and into no tree of its own
//! before, since every client is sent one of every event (docs/performance.md).

use super::task::CallEventKind;
use crate::redaction::Redactor;
use greenroom_core::session::SessionEvent;
use serde::{
    Serialize, Serializer,
    ser::{Error as _, Impossible, SerializeMap, SerializeStruct},
};

/// In which words.
#[derive(Clone, Copy, Debug)]
pub(super) enum MemberNaming {
    /// The events' own.
    Native,
    /// The same, without what was said: who hears of a child hears that there.
    WithoutText,
    /// Those of the dialect `task`.
    Task(CallEventKind),
}

impl MemberNaming {
    /// What it calls the member `name`, if it tells of it.
    fn wire_name(self, name: &str) -> Option<&str> {
        match (self, name) {
            (Self::WithoutText, "text" | "summary") => None,
            (Self::Native | Self::WithoutText, name) => Some(name),
            (Self::Task(part), name) => Some(part.member_name(name)),
        }
    }
}

/// An open object that members are put into.
pub(super) struct MemberWriter<'m, 'a, M> {
    map: &'m mut M,
    naming: MemberNaming,
    redactor: &'a Redactor,
}

impl<'m, 'a, M: SerializeMap> MemberWriter<'m, 'a, M> {
    /// Those of `map`.
    pub(super) fn new(map: &'m mut M, naming: MemberNaming, redactor: &'a Redactor) -> Self {
        Self { map, naming, redactor }
    }

    /// Adds a member, as it may be shown.
    pub(super) fn write_member<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> Result<(), M::Error> {
        match self.naming.wire_name(name) {
            Some(word) => self.map.serialize_entry(word, &self.redactor.redact_member(name, value)),
            None => Ok(()),
        }
    }

    /// Adds a piece of text, of which nothing can be told but whether a secret is in it: a piece of
    /// JSON is none.
    pub(super) fn write_text_delta(&mut self, name: &str, piece: &str) -> Result<(), M::Error> {
        self.map.serialize_entry(name, &self.redactor.redact_text(piece))
    }

    /// Adds the fields of a struct or map.
    pub(super) fn write_fields<T: Serialize>(&mut self, value: &T) -> Result<(), M::Error> {
        value.serialize(FieldSerializer { members: self, is_event: false, pending_key: None })
    }

    /// Adds what the event is stored with.
    pub(super) fn write_event_payload(&mut self, event: &SessionEvent) -> Result<(), M::Error> {
        event.serialize(FieldSerializer { members: self, is_event: true, pending_key: None })
    }
}

/// Makes members of the fields of a struct or map.
struct FieldSerializer<'f, 'm, 'a, M> {
    members: &'f mut MemberWriter<'m, 'a, M>,
    /// The struct is an event, whose fields are its type and its payload: those of the latter count.
    is_event: bool,
    /// Whose value comes next, in a map.
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
        let key =
            self.pending_key.take().ok_or_else(|| M::Error::custom("a member's name is a text"))?;
        self.members.write_member(&key, value)
    }

    fn end(self) -> Result<(), M::Error> {
        Ok(())
    }
}

macro_rules! reject_non_objects {
    ($($method:ident($($type:ty),*) -> $ok:ty;)*) => {
        $(fn $method(self, $(_: $type),*) -> Result<$ok, M::Error> {
            Err(M::Error::custom("only a struct or a map has members"))
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
