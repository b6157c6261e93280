//! Which call a piece of a tool call belongs to.
//!
//! The format says: by `index`. Servers that imitate it leave the index out, give all calls index
//! 0, repeat the id and the name with every piece, or invent a new id for every piece. Each of
//! these is recognised here, so that the rest sees calls with indexes of their own.

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
    /// Text, but some servers send the object itself.
    arguments: Option<Value>,
}

/// The calls of one message, as they come.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKey {
    Index(u32),
    NoIndex,
    /// The one `function_call` of the old format.
    Legacy,
}

impl CallTracker {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Reads a piece of a call.
    pub(super) fn add_piece(
        &mut self,
        call: WireCallPiece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        let id = call.id.unwrap_or_default();
        let (name, arguments) = parts(call.function);
        let key = call.index.map_or(CallKey::NoIndex, CallKey::Index);
        let found = match key {
            CallKey::Index(_) => self.calls.iter().rposition(|seen| seen.key == key),
            CallKey::NoIndex if id.is_empty() && name.is_empty() => self.calls.len().checked_sub(1),
            CallKey::NoIndex if id.is_empty() => None,
            CallKey::NoIndex | CallKey::Legacy => self.calls.iter().rposition(|seen| seen.id == id),
        };
        // Another id with a name is another call, whatever its index says.
        let found = found.filter(|at| {
            let seen = &self.calls[*at];
            name.is_empty() || id.is_empty() || seen.id.is_empty() || seen.id == id
        });
        self.apply_piece(key, found, id, name, arguments, out)
    }

    /// Reads a piece of the old format's only call.
    pub(super) fn add_legacy_piece(
        &mut self,
        function: WireFunctionPiece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        let (name, arguments) = parts(Some(function));
        let found = self.calls.iter().position(|seen| seen.key == CallKey::Legacy);
        self.apply_piece(CallKey::Legacy, found, String::new(), name, arguments, out)
    }

    fn apply_piece(
        &mut self,
        key: CallKey,
        found: Option<usize>,
        id: String,
        name: String,
        arguments: String,
        out: &mut Vec<Delta>,
    ) -> Result<(), ModelFailure> {
        let is_new = found.is_none();
        let at = match found {
            Some(at) => at,
            None => self.open_call(key)?,
        };
        let seen = &mut self.calls[at];
        // The first id stands; a name may come in pieces, or whole each time.
        let provider_id = if seen.id.is_empty() { id } else { String::new() };
        let tool = if seen.name == name { String::new() } else { name };
        seen.id.push_str(&provider_id);
        seen.name.push_str(&tool);
        if seen.id.len() + seen.name.len() > limits::TOOL_NAME_BYTES_MAX {
            return Err(exceeded("tool name", limits::TOOL_NAME_BYTES_MAX));
        }
        let index = seen.index;
        if is_new || !provider_id.is_empty() || !tool.is_empty() {
            out.push(Delta::CallStarted { index, provider_id, tool });
        }
        if !arguments.is_empty() {
            out.push(Delta::CallArguments { index, fragment: arguments });
        }
        Ok(())
    }

    fn open_call(&mut self, key: CallKey) -> Result<usize, ModelFailure> {
        let most = limits::CALLS_PER_STEP_MAX;
        if self.calls.len() >= most {
            return Err(exceeded("tool calls", most));
        }
        let is_free = |index: &u32| self.calls.iter().all(|seen| seen.index != *index);
        let wanted = match key {
            CallKey::Index(index) => Some(index),
            CallKey::NoIndex | CallKey::Legacy => None,
        };
        let index = wanted.filter(is_free).or_else(|| (0..).find(is_free)).unwrap_or_default();
        self.calls.push(TrackedCall { key, index, id: String::new(), name: String::new() });
        Ok(self.calls.len() - 1)
    }
}

fn parts(function: Option<WireFunctionPiece>) -> (String, String) {
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

fn exceeded(what: &str, most: usize) -> ModelFailure {
    ModelFailure::permanent(format!("the model's {what} exceed the limit of {most}"))
}
