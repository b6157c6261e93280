//! What a model is asked, in no provider's words, and what both encoders need to say it.
//!
//! [`transcript`] makes any conversation one that providers accept: every call has exactly one
//! result right after it, every result a call, no turn is empty, and ids are unique and well
//! formed. It depends on earlier messages alone for earlier turns, so that a growing conversation
//! keeps its beginning byte for byte and the provider's prompt cache hits.

use crate::{
    ids::CallId,
    message::{Arguments, AssistantMessage, CallResult, Message, ProposedCall},
    policy::Tool,
    trace_context::TraceContext,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

/// Characters of a tool's name that every provider accepts.
pub const TOOL_NAME_CHARS_MAX: usize = 64;
/// Bytes of most requests.
const REQUEST_BYTES: usize = 8 * 1024;
/// The result of a call for which the conversation has none.
pub(super) const NO_RESULT: &str = "error: the call has no recorded result";
/// The result of a call that gave no text.
pub(super) const NO_OUTPUT: &str = "(no output)";

/// One model call. The answer is always streamed.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest {
    /// The provider's name of the model.
    pub model: String,
    /// The system prompt; may be empty.
    pub system: SystemPrompt,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// The tools the model may call, in the order it reads them.
    pub tools: Vec<Arc<Tool>>,
    /// Output tokens at most.
    pub max_tokens: u32,
    /// The tool that the model must call, if it must call a certain one.
    pub forced_tool: Option<String>,
    /// Its place in the run's trace; sent along, and in no body.
    pub trace_context: Option<TraceContext>,
}

/// The system prompt, in parts by how long they last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemPrompt {
    /// What stays from run to run.
    pub stable: String,
    /// What is said for one run.
    pub per_run: String,
}

impl From<&str> for SystemPrompt {
    fn from(text: &str) -> Self {
        Self { stable: text.to_owned(), per_run: String::new() }
    }
}

impl SystemPrompt {
    /// The parts that say something, in order.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        let parts = [self.stable.as_str(), self.per_run.as_str()];
        parts.into_iter().filter(|part| !part.trim().is_empty())
    }

    /// All of it.
    pub fn text(&self) -> String {
        self.parts().collect::<Vec<_>>().join("\n\n")
    }
}

/// A turn of the conversation, as providers want it.
pub(super) enum Turn<'a> {
    /// What people wrote, not empty.
    User(Vec<&'a str>),
    /// What the model said, with each call's result.
    Assistant(&'a AssistantMessage, Vec<CallWithResult<'a>>),
}

/// A call with its only result.
pub(super) struct CallWithResult<'a> {
    /// Unique in the conversation.
    pub(super) id: Cow<'a, str>,
    /// The tool's name, fit for the wire.
    pub(super) tool: Cow<'a, str>,
    pub(super) arguments: Cow<'a, Map<String, Value>>,
    /// Not blank.
    pub(super) result: &'a str,
    pub(super) is_error: bool,
}

/// The conversation as turns. `keep` says how an id of another provider is made to fit; `None`
/// gives the call our own.
pub(super) fn build_turns<'a>(
    messages: &'a [Message],
    keep: impl Fn(&'a str) -> Option<Cow<'a, str>>,
) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::with_capacity(messages.len());
    let mut ids = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            Message::User { text, .. } if text.trim().is_empty() => {}
            Message::User { text, .. } => match turns.last_mut() {
                Some(Turn::User(texts)) => texts.push(text),
                Some(Turn::Assistant(..)) | None => turns.push(Turn::User(vec![text])),
            },
            // Stopped before it said anything.
            Message::Assistant(said) if said.calls.is_empty() && said.text.trim().is_empty() => {}
            Message::Assistant(said) => {
                let mut results = results_after(&messages[at + 1..]);
                let exchange = |call: &'a ProposedCall| {
                    let kept = keep(&call.provider_id);
                    let id = unique_call_id(kept, call.call_id, &mut ids);
                    pair_with_result(call, id, &mut results)
                };
                turns.push(Turn::Assistant(said, said.calls.iter().map(exchange).collect()));
            }
            // They stand with their calls.
            Message::ToolResults(_) => {}
        }
    }
    turns
}

/// The results that may belong to an assistant message: those before the next one.
fn results_after(messages: &[Message]) -> Vec<&CallResult> {
    let mut results = Vec::new();
    for message in messages {
        match message {
            Message::Assistant(_) => break,
            Message::ToolResults(some) => results.extend(some),
            Message::User { .. } => {}
        }
    }
    results
}

fn pair_with_result<'a>(
    call: &'a ProposedCall,
    id: Cow<'a, str>,
    results: &mut Vec<&'a CallResult>,
) -> CallWithResult<'a> {
    let found = results.iter().position(|result| result.call_id == call.call_id);
    let result = found.map(|at| results.remove(at));
    let (text, is_error) =
        result.map_or((NO_RESULT, true), |result| (&*result.text, result.is_error));
    CallWithResult {
        id,
        tool: wire_tool_name(&call.tool),
        arguments: argument_object(&call.arguments),
        result: if text.trim().is_empty() { NO_OUTPUT } else { text },
        is_error,
    }
}

fn unique_call_id<'a>(
    kept: Option<Cow<'a, str>>,
    call_id: CallId,
    ids: &mut BTreeSet<String>,
) -> Cow<'a, str> {
    let kept = kept.filter(|id| !id.is_empty() && !ids.contains(&**id));
    let id = kept.unwrap_or_else(|| {
        let own = call_id.to_string();
        let mut candidates = (2u32..).map(|number| format!("{own}_{number}"));
        // A second call with one `call_id` is a bug elsewhere; the request is valid all the same.
        let other = |id: &String| !ids.contains(id);
        Some(own.clone()).filter(other).or_else(|| candidates.find(other)).unwrap_or(own).into()
    });
    ids.insert(id.clone().into_owned());
    id
}

/// The arguments as an object, which is all that providers accept back. What the model wrote
/// otherwise is told by the call's error result.
fn argument_object(arguments: &Arguments) -> Cow<'_, Map<String, Value>> {
    match arguments {
        Arguments::Json(Value::Object(object)) => Cow::Borrowed(object),
        Arguments::Json(_) | Arguments::Malformed { .. } => Cow::Owned(Map::new()),
    }
}

/// `name` as every provider accepts it: 1 to 64 of `a-z A-Z 0-9 _ -`. Tools are best registered
/// under names that this leaves as they are, because the model answers with what it returns.
pub fn wire_tool_name(name: &str) -> Cow<'_, str> {
    let name = replace_illegal_chars(name);
    match name.char_indices().nth(TOOL_NAME_CHARS_MAX) {
        None if name.is_empty() => Cow::Borrowed("_"),
        None => name,
        Some((end, _)) => Cow::Owned(name[..end].to_owned()),
    }
}

/// `text` with `_` for every character but `a-z A-Z 0-9 _ -`.
pub(super) fn replace_illegal_chars(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if is_plain(c) { c } else { '_' }).collect())
}

/// A tool's schema as providers accept it: an object schema with `properties`, without the
/// combinations at its top that they refuse. Arguments are validated against the real one.
pub(super) fn wire_input_schema(schema: &Value) -> Cow<'_, Value> {
    const REFUSED: [&str; 5] = ["allOf", "anyOf", "enum", "not", "oneOf"];
    let is_object = |object: &Map<String, Value>| {
        object.get("type").and_then(Value::as_str) == Some("object")
            && object.get("properties").is_some_and(Value::is_object)
            && REFUSED.iter().all(|key| !object.contains_key(*key))
    };
    if schema.as_object().is_some_and(is_object) {
        return Cow::Borrowed(schema);
    }
    let mut object = schema.as_object().cloned().unwrap_or_default();
    object.retain(|key, _| !REFUSED.contains(&key.as_str()));
    object.insert("type".to_owned(), "object".into());
    if !object.get("properties").is_some_and(Value::is_object) {
        object.insert("properties".to_owned(), Value::Object(Map::new()));
    }
    Cow::Owned(Value::Object(object))
}

/// A request's body.
pub(super) fn to_json(body: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(REQUEST_BYTES);
    serde_json::to_writer(&mut json, body).expect("maps with text keys are always JSON");
    json
}

/// The tools with their names on the wire, each name once.
pub(super) fn wire_tools(tools: &[Arc<Tool>]) -> Vec<(Cow<'_, str>, &Tool)> {
    let mut names = BTreeSet::new();
    let mut declared = Vec::with_capacity(tools.len());
    for tool in tools {
        let name = wire_tool_name(tool.name.as_str());
        if names.insert(name.clone()) {
            declared.push((name, &**tool));
        }
    }
    declared
}
