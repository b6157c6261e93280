//! Assigns the pieces of tool calls to their calls.
//!
//! The format identifies a call by `index`. Some compatible servers omit the index, use index 0 for
//! all calls, repeat the id and the name with every piece, or generate a new id for every piece. The
//! tracker handles each of these cases and gives every call an index of its own.

use crate::{
    limits,
    model::{delta::Delta, failure::ModelFailure},
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(super) struct WireCallPiece {
    index: Option<u32>,
    id: Option<String>,
    function: Option<WireFunctionPiece>,
}

#[derive(Deserialize)]
pub(super) struct WireFunctionPiece {
    name: Option<String>,
    /// A JSON text. Some servers send the JSON object itself.
    arguments: Option<Value>,
}

/// The calls of one message, in order of arrival. Beyond the number of calls that are kept, only the
/// latest dropped call is tracked, so that its further pieces are recognized.
#[derive(Debug, Default)]
pub(super) struct CallTracker {
    calls: Vec<TrackedCall>,
}

#[derive(Debug)]
struct TrackedCall {
    key: CallKey,
    index: u32,
    id: String,
    name: String,
    is_dropped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKey {
    Index(u32),
    NoIndex,
    /// The only `function_call` of the legacy format.
    Legacy,
}

impl CallTracker {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Adds a piece of a call.
    pub(super) fn add_piece(
        &mut self,
        call: WireCallPiece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        let id = call.id.unwrap_or_default();
        let (name, arguments) = split_function(call.function);
        let key = call.index.map_or(CallKey::NoIndex, CallKey::Index);
        let position = match key {
            CallKey::Index(_) => self.calls.iter().rposition(|tracked| tracked.key == key),
            CallKey::NoIndex if id.is_empty() && name.is_empty() => self.calls.len().checked_sub(1),
            CallKey::NoIndex if id.is_empty() => None,
            CallKey::NoIndex | CallKey::Legacy => {
                self.calls.iter().rposition(|tracked| tracked.id == id)
            }
        };
        // A different id together with a name starts another call, even with the same index.
        let position = position.filter(|position| {
            let tracked = &self.calls[*position];
            name.is_empty() || id.is_empty() || tracked.id.is_empty() || tracked.id == id
        });
        self.apply_piece(key, position, id, name, arguments, out)
    }

    /// Adds a piece of the legacy format's only call.
    pub(super) fn add_legacy_piece(
        &mut self,
        function: WireFunctionPiece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        let (name, arguments) = split_function(Some(function));
        let position = self.calls.iter().position(|tracked| tracked.key == CallKey::Legacy);
        self.apply_piece(CallKey::Legacy, position, String::new(), name, arguments, out)
    }

    fn apply_piece(
        &mut self,
        key: CallKey,
        position: Option<usize>,
        id: String,
        name: String,
        arguments: String,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        let is_new = position.is_none();
        let position = match position {
            Some(position) => position,
            None => self.open_call(key),
        };
        let tracked = &mut self.calls[position];
        // The first id is kept. A name may arrive in pieces, or completely with each piece.
        let provider_id = if tracked.id.is_empty() { id } else { String::new() };
        let tool = if tracked.name == name { String::new() } else { name };
        tracked.id.push_str(&provider_id);
        tracked.name.push_str(&tool);
        if tracked.id.len() + tracked.name.len() > limits::TOOL_NAME_BYTES_MAX {
            return Err(limit_exceeded("bytes of tool name", limits::TOOL_NAME_BYTES_MAX));
        }
        let index = tracked.index;
        if tracked.is_dropped {
            out.extend(is_new.then_some(Delta::CallDropped));
            return Ok(());
        }
        if is_new || !provider_id.is_empty() || !tool.is_empty() {
            out.push(Delta::CallStarted { index, provider_id, tool });
        }
        if !arguments.is_empty() {
            out.push(Delta::CallArguments { index, fragment: arguments });
        }
        Ok(())
    }

    /// Opens a call and returns its position. A dropped call replaces the previous dropped one.
    fn open_call(&mut self, key: CallKey) -> usize {
        self.calls.truncate(limits::CALLS_PER_MESSAGE_MAX);
        let is_dropped = self.calls.len() == limits::CALLS_PER_MESSAGE_MAX;
        let is_free = |index: &u32| self.calls.iter().all(|tracked| tracked.index != *index);
        let wire_index = match key {
            CallKey::Index(index) => Some(index),
            CallKey::NoIndex | CallKey::Legacy => None,
        };
        let index = wire_index.filter(is_free).or_else(|| (0..).find(is_free)).unwrap_or_default();
        let (id, name) = (String::new(), String::new());
        self.calls.push(TrackedCall { key, index, id, name, is_dropped });
        self.calls.len() - 1
    }
}

fn split_function(function: Option<WireFunctionPiece>) -> (String, String) {
    let Some(WireFunctionPiece { name, arguments }) = function else { return Default::default() };
    let arguments = match arguments {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
            value.to_string()
        }
    };
    (name.unwrap_or_default(), arguments)
}

fn limit_exceeded(item: &str, limit: usize) -> ModelFailure {
    ModelFailure::permanent(format!("the model's response has more than {limit} {item}"))
}
