//! A view of a value that redacts it during serialization, so that no copy of the value is needed
//! to remove its secrets (docs/performance.md).

use super::{DEPTH_MAX, REDACTED, RedactedKeys, Redactor, secret_keys::KeyKind};
use greenroom_core::json::{Digest, NUMBER_KEY};
use serde::{
    Serialize, Serializer,
    ser::{
        SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};
use serde_json::{Map, Value};

/// A value that is redacted when it is serialized. See [`Redactor::redact`].
#[derive(Debug)]
pub struct RedactedView<'a, T: ?Sized> {
    redactor: &'a Redactor,
    value: &'a T,
    /// Number of enclosing arrays and objects.
    depth: usize,
    /// The kind of the value's key.
    key: KeyKind,
}

impl Redactor {
    /// Returns a view of `value` without the values of secret keys and without configured secrets.
    /// Text that is itself a JSON object or array, such as a tool's result, is redacted as JSON.
    pub fn redact<'a, T: Serialize + ?Sized>(&'a self, value: &'a T) -> RedactedView<'a, T> {
        RedactedView { redactor: self, value, depth: 0, key: KeyKind::Plain }
    }

    /// Returns a redacted view of a value under `key`.
    pub fn redact_member<'a, T: Serialize + ?Sized>(
        &'a self,
        key: &str,
        value: &'a T,
    ) -> RedactedView<'a, T> {
        RedactedView { depth: 1, key: self.keys.kind(key), ..self.redact(value) }
    }

    pub(super) fn redact_at_depth<'a, T: Serialize + ?Sized>(
        &'a self,
        value: &'a T,
        depth: usize,
    ) -> RedactedView<'a, T> {
        RedactedView { depth, ..self.redact(value) }
    }
}

impl<T: Serialize + ?Sized> Serialize for RedactedView<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { redactor, value, depth, key } = *self;
        if depth > DEPTH_MAX || is_secret_value(value, key) {
            return serializer.serialize_str(REDACTED);
        }
        value.serialize(RedactingSerializer { redactor, depth, inner: serializer })
    }
}

/// True if a value under a key of the given kind is secret. A boolean is no secret.
fn is_secret_value<T: Serialize + ?Sized>(value: &T, key: KeyKind) -> bool {
    if key == KeyKind::Plain {
        return false;
    }
    match serde_json::to_value(value) {
        Ok(Value::Null | Value::Bool(_)) => false,
        Ok(Value::Number(_)) => key == KeyKind::Secret,
        Ok(Value::Object(members)) => !is_field_schema(&members),
        Ok(Value::String(_) | Value::Array(_)) | Err(_) => true,
    }
}

/// Members of the schema of a field that has a secret name. It contains no value of the field:
/// `default`, `const` and `examples` are not among them.
const SCHEMA_MEMBERS: [&str; 12] = [
    "type",
    "title",
    "description",
    "format",
    "enum",
    "enumNames",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "items",
];
/// The types of fields.
const SCHEMA_TYPES: [&str; 5] = ["string", "integer", "number", "boolean", "array"];

/// True for the schema of a form's or tool's field. Clients need it to show the field.
fn is_field_schema(members: &Map<String, Value>) -> bool {
    let kind = members.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| SCHEMA_TYPES.contains(&kind))
        && members.keys().all(|key| SCHEMA_MEMBERS.contains(&key.as_str()))
}

/// Serializes values in redacted form to `inner`.
struct RedactingSerializer<'a, S> {
    redactor: &'a Redactor,
    depth: usize,
    inner: S,
}

/// An array or object that is being serialized.
struct RedactingCompound<'a, C> {
    redactor: &'a Redactor,
    depth: usize,
    inner: C,
    keys: RedactedKeys,
    /// The kind of the key that was serialized last.
    key: KeyKind,
    /// True if it stands for a number, which is not changed.
    is_number: bool,
}

impl<'a, S> RedactingSerializer<'a, S> {
    fn wrap<'v, T: ?Sized>(&self, value: &'v T) -> RedactedView<'v, T>
    where
        'a: 'v,
    {
        RedactedView { redactor: self.redactor, value, depth: self.depth, key: KeyKind::Plain }
    }

    fn open_compound<C, E>(
        self,
        open: impl FnOnce(S) -> Result<C, E>,
    ) -> Result<RedactingCompound<'a, C>, E> {
        let Self { redactor, depth, inner } = self;
        let (inner, keys) = (open(inner)?, RedactedKeys::default());
        let (depth, key, is_number) = (depth + 1, KeyKind::Plain, false);
        Ok(RedactingCompound { redactor, depth, inner, keys, key, is_number })
    }
}

impl<'a, C> RedactingCompound<'a, C> {
    fn wrap<'v, T: ?Sized>(&self, value: &'v T) -> RedactedView<'v, T>
    where
        'a: 'v,
    {
        let Self { redactor, depth, key, .. } = *self;
        RedactedView { redactor, value, depth, key }
    }

    fn wrap_member<'v, T: ?Sized>(&mut self, key: &str, value: &'v T) -> RedactedView<'v, T>
    where
        'a: 'v,
    {
        self.key = self.redactor.keys.kind(key);
        self.wrap(value)
    }
}

/// Forwards values that contain no text.
macro_rules! forward_scalars {
    ($($method:ident($type:ty)),* $(,)?) => {
        $(fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        })*
    };
}

impl<'a, S: Serializer> Serializer for RedactingSerializer<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = RedactingCompound<'a, S::SerializeSeq>;
    type SerializeTuple = RedactingCompound<'a, S::SerializeTuple>;
    type SerializeTupleStruct = RedactingCompound<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = RedactingCompound<'a, S::SerializeTupleVariant>;
    type SerializeMap = RedactingCompound<'a, S::SerializeMap>;
    type SerializeStruct = RedactingCompound<'a, S::SerializeStruct>;
    type SerializeStructVariant = RedactingCompound<'a, S::SerializeStructVariant>;

    forward_scalars! {
        serialize_bool(bool),
        serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64),
        serialize_i128(i128),
        serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64),
        serialize_u128(u128),
        serialize_f32(f32), serialize_f64(f64), serialize_char(char), serialize_bytes(&[u8]),
        serialize_unit_struct(&'static str),
    }

    fn serialize_str(self, text: &str) -> Result<S::Ok, S::Error> {
        match self.redactor.redact_json_text(text, self.depth) {
            Some(clean) => self.inner.serialize_str(&clean),
            None => self.inner.serialize_str(&self.redactor.redact_text(text)),
        }
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let shown = self.wrap(value);
        self.inner.serialize_some(&shown)
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    // Variant names are defined in this code base, so they contain no secrets.
    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        if name == Digest::TYPE_NAME {
            return self.inner.serialize_str(&self.redactor.key_digest(value));
        }
        let shown = self.wrap(value);
        self.inner.serialize_newtype_struct(name, &shown)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let shown = RedactedView { depth: self.depth + 1, ..self.wrap(value) };
        self.inner.serialize_newtype_variant(name, index, variant, &shown)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.open_compound(|inner| inner.serialize_seq(len))
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.open_compound(|inner| inner.serialize_tuple(len))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.open_compound(|inner| inner.serialize_tuple_struct(name, len))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.open_compound(|inner| inner.serialize_tuple_variant(name, index, variant, len))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.open_compound(|inner| inner.serialize_map(len))
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        let mut compound = self.open_compound(|inner| inner.serialize_struct(name, len))?;
        compound.is_number = name == NUMBER_KEY;
        Ok(compound)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.open_compound(|inner| inner.serialize_struct_variant(name, index, variant, len))
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! elements {
    ($($collection:ident::$method:ident),* $(,)?) => {
        $(impl<C: $collection> $collection for RedactingCompound<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                let shown = self.wrap(value);
                self.inner.$method(&shown)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        })*
    };
}

elements! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

macro_rules! fields {
    ($($collection:ident),* $(,)?) => {
        $(impl<C: $collection> $collection for RedactingCompound<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), C::Error> {
                if self.is_number {
                    return self.inner.serialize_field(key, value);
                }
                let shown = self.wrap_member(key, value);
                self.inner.serialize_field(key, &shown)
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                self.inner.skip_field(key)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        })*
    };
}

fields! { SerializeStruct, SerializeStructVariant }

impl<C: SerializeMap> SerializeMap for RedactingCompound<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        let Ok(Value::String(name)) = serde_json::to_value(key) else {
            self.key = KeyKind::Plain;
            return self.inner.serialize_key(key);
        };
        self.key = self.redactor.keys.kind(&name);
        self.inner.serialize_key(&self.keys.redact_next(self.redactor, &name))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        let shown = self.wrap(value);
        self.inner.serialize_value(&shown)
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[derive(Serialize)]
    struct Account {
        name: &'static str,
        password: &'static str,
        api_key: Option<&'static str>,
        token: Option<u32>,
        nested: Vec<Kind>,
        pair: (u8, &'static str),
        wrapped: Newtype,
        by_number: BTreeMap<u32, &'static str>,
        by_name: BTreeMap<&'static str, &'static str>,
        #[serde(flatten)]
        rest: Rest,
    }

    #[derive(Serialize)]
    struct Newtype(&'static str);

    #[derive(Serialize)]
    struct Rest {
        cookie: Vec<u8>,
        json: &'static str,
    }

    #[derive(Serialize)]
    enum Kind {
        Plain,
        One(&'static str),
        Two(u8, &'static str),
        Fields { secret: u8, n: f64 },
    }

    /// Neither a pattern nor the maximum depth changes a number: the frame must remain JSON.
    #[test]
    fn m2_numbers_are_serialized_with_every_digit() {
        let redactor = Redactor::new(["12345678".to_owned()]);
        let text = "[123456789012345678901234567890,0.10000000000000000001,1e+400,-0]";
        let mut value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&redactor.redact(&value)).unwrap(), text);
        assert_eq!(redactor.redact_value(value.clone()).to_string(), text);
        // At most as deep as the parser reads.
        for _ in 1..127 {
            value = json!([value]);
            let shown = serde_json::to_string(&redactor.redact(&value)).unwrap();
            serde_json::from_str::<Value>(&shown).unwrap();
        }
    }

    #[test]
    fn e7_schemas_of_fields_with_secret_names_are_visible() {
        let field = json!({"type": "string", "title": "Token", "maxLength": 8});
        let schema = json!({"properties": {"token": field, "n": {"type": "integer"}}});
        let redactor = Redactor::default();
        assert_eq!(redactor.redact_value(schema.clone()), schema);
        for member in ["default", "value", "const"] {
            let mut field = field.clone();
            field[member] = json!("hunter2");
            let hidden = redactor.redact_value(json!({ "token": field }));
            assert_eq!(hidden, json!({"token": REDACTED}));
        }
    }

    /// Typed values serialize to the same redacted JSON as their untyped form.
    #[test]
    fn e7_typed_values_are_redacted_while_serialized() {
        let redactor = Redactor::new(["hunter2hunter2".to_owned()]);
        let account = Account {
            name: "hunter2hunter2!",
            password: "p",
            api_key: None,
            token: Some(7),
            nested: vec![
                Kind::Plain,
                Kind::One("hunter2hunter2"),
                Kind::Two(2, "so hunter2hunter2"),
                Kind::Fields { secret: 3, n: 0.5 },
            ],
            pair: (1, "hunter2hunter2"),
            wrapped: Newtype("hunter2hunter2"),
            by_number: [(4, "hunter2hunter2")].into(),
            by_name: [("hunter2hunter2", "x"), ("access-token", "y"), ("plain", "z")].into(),
            rest: Rest { cookie: vec![1], json: r#"{"secret":1,"n":2}"# },
        };
        let expected = json!({
            "name": "[redacted]!", "password": REDACTED, "api_key": null, "token": REDACTED,
            "nested": [
                "Plain", {"One": REDACTED}, {"Two": [2, "so [redacted]"]},
                {"Fields": {"secret": REDACTED, "n": 0.5}},
            ],
            "pair": [1, REDACTED], "wrapped": REDACTED, "by_number": {"4": REDACTED},
            "by_name": {REDACTED: "x", "access-token": REDACTED, "plain": "z"},
            "cookie": REDACTED, "json": r#"{"n":2,"secret":"[redacted]"}"#,
        });
        let shown = serde_json::to_string(&redactor.redact(&account)).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), expected);
        assert_eq!(redactor.redact_value(json!(account)), expected);
    }
}
