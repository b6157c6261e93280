//! Decodes an event record.
//!
//! The payload of an event is decoded directly: the decoder that serde derives for `flatten` would
//! first copy it into a buffer. Reading the log is a large part of rehydration.

use super::event::{EventRecord, SessionEvent};
use crate::ids::RunId;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, Visitor,
        value::{BorrowedStrDeserializer, MapAccessDeserializer, StrDeserializer},
    },
};
use serde_json::Value;
use std::{borrow::Cow, fmt};

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum RecordField {
    Seq,
    At,
    RunId,
    Step,
    Type,
    Payload,
    #[serde(other)]
    Unknown,
}

/// A name that borrows from the text if it can.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for EventRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RecordVisitor)
    }
}

struct RecordVisitor;

impl<'de> Visitor<'de> for RecordVisitor {
    type Value = EventRecord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EventRecord, A::Error> {
        let (mut seq, mut at, mut run_id, mut step) = (None, None, None::<Option<RunId>>, None);
        let (mut name, mut event, mut early_payload) = (None::<Name<'de>>, None, None::<Value>);
        while let Some(field) = map.next_key::<RecordField>()? {
            match field {
                RecordField::Seq => seq = Some(map.next_value()?),
                RecordField::At => at = Some(map.next_value()?),
                RecordField::RunId => run_id = Some(map.next_value()?),
                RecordField::Step => step = Some(map.next_value()?),
                RecordField::Type => name = Some(map.next_value()?),
                RecordField::Payload => match &name {
                    Some(Name(name)) => {
                        let parts = EventParts { name: Some(name), payload: Some(&mut map) };
                        event = Some(SessionEvent::deserialize(MapAccessDeserializer::new(parts))?);
                    }
                    // The log has the type first; a JSON value sorts its keys.
                    None => early_payload = Some(map.next_value()?),
                },
                RecordField::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let event = match (event, name, early_payload) {
            (Some(event), _, _) => event,
            (None, Some(Name(name)), Some(payload)) => {
                // The type must come first, or serde buffers the payload.
                let event = format!(r#"{{"type":{},"payload":{payload}}}"#, Value::from(name));
                serde_json::from_str(&event).map_err(A::Error::custom)?
            }
            (None, None, _) => return Err(A::Error::missing_field("type")),
            (None, Some(_), None) => return Err(A::Error::missing_field("payload")),
        };
        Ok(EventRecord {
            seq: seq.ok_or_else(|| A::Error::missing_field("seq"))?,
            at: at.ok_or_else(|| A::Error::missing_field("at"))?,
            run_id: run_id.flatten(),
            step: step.flatten(),
            event,
        })
    }
}

/// The type and the payload of an event, as a map with only these members.
struct EventParts<'a, A> {
    name: Option<&'a str>,
    /// The record, whose next value is the payload.
    payload: Option<&'a mut A>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for EventParts<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let key = match (self.name, &self.payload) {
            (Some(_), _) => "type",
            (None, Some(_)) => "payload",
            (None, None) => return Ok(None),
        };
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        if let Some(name) = self.name.take() {
            let name: StrDeserializer<'_, A::Error> = name.into_deserializer();
            return seed.deserialize(name);
        }
        match self.payload.take() {
            Some(record) => record.next_value_seed(seed),
            None => Err(A::Error::missing_field("payload")),
        }
    }
}
