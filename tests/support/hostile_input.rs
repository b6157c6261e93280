//! Strategies of hostile input for the property tests of decoders: arbitrary bytes, fragments of
//! the format, and mutated valid samples. The number of cases is proptest's `PROPTEST_CASES`.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Fragments of the formats that the decoders read, and values at the limits of their types.
const FRAGMENTS: [&str; 32] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "\\u",
    "d83d",
    ":",
    ",",
    "=",
    "-",
    ".",
    "\n",
    "\r\n",
    "\t",
    "---",
    "null",
    "true",
    "-1",
    "0",
    "18446744073709551616",
    "1e999",
    "NaN",
    "9999-12-31T23:59:59Z",
    "'",
    "#",
    "%2e",
    "{{",
    "{%",
    "\u{FEFF}",
    "é",
];

/// Bytes of a long text, such as one that an error must not repeat.
const LONG_TEXT_BYTES: usize = 8192;

/// A change to bytes: position, kind, byte.
pub(crate) type Mutation = (prop::sample::Index, u8, u8);

/// Changes, removes, inserts or repeats bytes.
pub(crate) fn mutate(bytes: &mut Vec<u8>, (position, kind, byte): &Mutation) {
    let start = position.index(bytes.len() + 1);
    match kind % 6 {
        0 => bytes.truncate(start),
        1 => bytes.insert(start, *byte),
        2 if start < bytes.len() => bytes[start] = *byte,
        3 if start < bytes.len() => bytes[start] ^= 1 << (byte % 8),
        4 => {
            let end = bytes.len().min(start + usize::from(*byte));
            bytes.drain(start..end);
        }
        _ => {
            let end = bytes.len().min(start + usize::from(*byte));
            let copy = bytes[start..end].to_vec();
            bytes.splice(start..start, copy);
        }
    }
}

/// Generates bytes: arbitrary ones, fragments, or one of `samples` with up to three mutations.
pub(crate) fn bytes(samples: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let fragments = prop::collection::vec(prop::sample::select(&FRAGMENTS[..]), 0..12);
    let mutations = prop::collection::vec(any::<Mutation>(), 0..4);
    let mutated = (prop::sample::select(samples), mutations).prop_map(|(sample, mutations)| {
        let mut bytes = sample.as_bytes().to_vec();
        mutations.iter().for_each(|mutation| mutate(&mut bytes, mutation));
        bytes
    });
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..32),
        1 => fragments.prop_map(|fragments| fragments.concat().into_bytes()),
        6 => mutated,
    ]
}

/// Generates text as [`bytes`] does; invalid UTF-8 is replaced.
pub(crate) fn text(samples: &'static [&'static str]) -> impl Strategy<Value = String> {
    bytes(samples).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A change to a JSON value: position in preorder, kind, index of an odd value.
type ValueChange = (prop::sample::Index, u8, u8);

/// Generates one of `samples`, which are JSON texts, with up to three values replaced, removed,
/// wrapped or repeated.
pub(crate) fn json(samples: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let changes = prop::collection::vec(any::<ValueChange>(), 0..4);
    (prop::sample::select(samples), changes).prop_map(|(sample, changes)| {
        let mut value: Value = serde_json::from_str(sample).expect("a sample is JSON");
        for (position, kind, odd) in &changes {
            let mut remaining = position.index(count(&value));
            change_nth(&mut value, &mut remaining, *kind, *odd);
        }
        value
    })
}

/// Number of values in `value`, including itself.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Changes the value that is `remaining` values further in preorder. Returns true when done.
fn change_nth(value: &mut Value, remaining: &mut usize, kind: u8, odd: u8) -> bool {
    if *remaining == 0 {
        change(value, kind, odd);
        return true;
    }
    *remaining -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| change_nth(item, remaining, kind, odd)),
        Value::Object(members) => {
            members.values_mut().any(|member| change_nth(member, remaining, kind, odd))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn change(value: &mut Value, kind: u8, odd: u8) {
    match (kind % 4, &mut *value) {
        (0, Value::Object(members)) => {
            members.insert(odd_text(odd), odd_value(odd.rotate_left(3)));
        }
        (1, Value::Object(members)) => {
            let key = members.keys().nth(usize::from(odd) % members.len().max(1)).cloned();
            key.and_then(|key| members.remove(&key));
        }
        (0 | 1, Value::Array(items)) => items.push(odd_value(odd)),
        (2, value) => {
            let inner = value.take();
            *value = if odd.is_multiple_of(2) {
                json!([inner.clone(), inner])
            } else {
                json!({"a": inner})
            };
        }
        (_, value) => *value = odd_value(odd),
    }
}

fn odd_text(odd: u8) -> String {
    match odd % 4 {
        0 => "x".repeat(LONG_TEXT_BYTES),
        1 => String::new(),
        2 => "\u{1F600}\u{0}".to_owned(),
        _ => FRAGMENTS[usize::from(odd) % FRAGMENTS.len()].to_owned(),
    }
}

/// A value at a limit of its type, or of another type than expected.
fn odd_value(odd: u8) -> Value {
    match odd % 14 {
        0 => Value::Null,
        1 => json!(false),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(i64::MIN),
        5 => json!(1e308),
        6 => json!(-0.5),
        7 => json!([]),
        8 => json!({}),
        9 => json!("0198c0de-0000-7000-8000-000000000001"),
        10 => (0..100).fold(Value::Null, |inner, _| json!([inner])),
        _ => odd_text(odd).into(),
    }
}
