//! A model request in a form that is independent of providers, and the functions that both encoders
//! share.
//!
//! [`build_turns`] converts any conversation into one that providers accept: every call has exactly
//! one result right after it, every result has a call, no turn is empty, and ids are unique and well
//! formed. An earlier turn depends on earlier messages only, so a growing conversation keeps its
//! beginning byte for byte and the provider's prompt cache hits.

use crate::{
    ids::CallId,
    limits,
    message::{Arguments, AssistantMessage, CallResult, Message, ProposedCall},
    policy::Tool,
    trace_context::TraceContext,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

/// Maximum characters of a tool name that every provider accepts.
pub const TOOL_NAME_CHARS_MAX: usize = 64;
/// Initial capacity for an encoded request; most requests fit into it.
const REQUEST_BYTES_INITIAL: usize = 8 * 1024;
/// The key under which the model reads arguments that are not a JSON object.
const UNPARSED_KEY: &str = "_unparsed";
/// The result of a call without a result in the conversation.
pub(super) const NO_RESULT: &str = "error: the call has no recorded result";
/// The result of a call that returned no text.
pub(super) const NO_OUTPUT: &str = "(no output)";

/// One model call. The response is always streamed.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest {
    /// The provider's name of the model.
    pub model: String,
    /// The system prompt; may be empty.
    pub system: SystemPrompt,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// The tools that the model may call, in request order.
    pub tools: Vec<Arc<Tool>>,
    /// Maximum output tokens.
    pub max_tokens: u32,
    /// The tool that the model must call; `None` leaves the choice to the model.
    pub forced_tool: Option<String>,
    /// Limits of the response; not sent.
    pub message_limits: MessageLimits,
    /// The trace context of the attempt; sent as a header, not in the body.
    pub trace_context: Option<TraceContext>,
}

/// Limits of one message of the model. What exceeds them is cut off or not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Maximum number of calls that run.
    pub calls: usize,
    /// Maximum bytes of text.
    pub text_bytes: usize,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self { calls: limits::CALLS_PER_STEP_DEFAULT, text_bytes: limits::MODEL_TEXT_BYTES_DEFAULT }
    }
}

/// The system prompt, divided by lifetime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemPrompt {
    /// The part that is the same for all runs.
    pub stable: String,
    /// The part of the current run.
    pub per_run: String,
}

impl From<&str> for SystemPrompt {
    fn from(text: &str) -> Self {
        Self { stable: text.to_owned(), per_run: String::new() }
    }
}

impl SystemPrompt {
    /// Iterates over the parts that are not blank, in order.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        let parts = [self.stable.as_str(), self.per_run.as_str()];
        parts.into_iter().filter(|part| !part.trim().is_empty())
    }

    /// Returns both parts, joined.
    pub fn text(&self) -> String {
        self.parts().collect::<Vec<_>>().join("\n\n")
    }
}

/// A turn of the conversation, as providers expect it.
pub(super) enum Turn<'a> {
    /// Consecutive user messages; not empty.
    User(Vec<&'a str>),
    /// A message of the model, and each of its calls with its result.
    Assistant(&'a AssistantMessage, Vec<CallWithResult<'a>>),
}

/// A call with its result.
pub(super) struct CallWithResult<'a> {
    /// Unique in the conversation.
    pub(super) id: Cow<'a, str>,
    /// The tool's name in the form of [`wire_tool_name`].
    pub(super) tool: Cow<'a, str>,
    /// The arguments, or an object with the model's text as [`UNPARSED_KEY`].
    pub(super) arguments: Cow<'a, Map<String, Value>>,
    /// The model's text in place of a JSON object.
    pub(super) unparsed_arguments: Option<Cow<'a, str>>,
    /// Not blank.
    pub(super) result: &'a str,
    pub(super) is_error: bool,
}

/// Converts a conversation into turns. `convert_id` adapts the provider's id of a call, which may be
/// another provider's; if it returns `None`, the call gets Greenroom's own id.
pub(super) fn build_turns<'a>(
    messages: &'a [Message],
    convert_id: impl Fn(&'a str) -> Option<Cow<'a, str>>,
) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn<'a>> = Vec::with_capacity(messages.len());
    let mut ids = BTreeSet::new();
    for (position, message) in messages.iter().enumerate() {
        match message {
            Message::User { text, .. } if text.trim().is_empty() => {}
            Message::User { text, .. } => match turns.last_mut() {
                Some(Turn::User(texts)) => texts.push(text),
                Some(Turn::Assistant(..)) | None => turns.push(Turn::User(vec![text])),
            },
            // The message was stopped before it had any text.
            Message::Assistant(message)
                if message.calls.is_empty() && message.text.trim().is_empty() => {}
            Message::Assistant(message) => {
                let mut results = results_before_next_assistant(&messages[position + 1..]);
                let pair = |call: &'a ProposedCall| {
                    let converted = convert_id(&call.provider_id);
                    let id = unique_call_id(converted, call.call_id, &mut ids);
                    pair_with_result(call, id, &mut results)
                };
                turns.push(Turn::Assistant(message, message.calls.iter().map(pair).collect()));
            }
            // Results are part of the turn of their calls.
            Message::ToolResults(_) => {}
        }
    }
    turns
}

/// Returns the results that may belong to an assistant message: those before the next one.
fn results_before_next_assistant(messages: &[Message]) -> Vec<&CallResult> {
    let mut results = Vec::new();
    for message in messages {
        match message {
            Message::Assistant(_) => break,
            Message::ToolResults(message_results) => results.extend(message_results),
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
    let position = results.iter().position(|result| result.call_id == call.call_id);
    let result = position.map(|position| results.remove(position));
    let (text, is_error) =
        result.map_or((NO_RESULT, true), |result| (&*result.text, result.is_error));
    CallWithResult {
        id,
        tool: wire_tool_name(&call.tool),
        arguments: argument_object(&call.arguments),
        unparsed_arguments: call.arguments.unparsed_text(),
        result: if text.trim().is_empty() { NO_OUTPUT } else { text },
        is_error,
    }
}

fn unique_call_id<'a>(
    provider_id: Option<Cow<'a, str>>,
    call_id: CallId,
    ids: &mut BTreeSet<String>,
) -> Cow<'a, str> {
    let provider_id = provider_id.filter(|id| !id.is_empty() && !ids.contains(&**id));
    let id = provider_id.unwrap_or_else(|| {
        let base_id = call_id.to_string();
        let mut candidates = (2u32..).map(|number| format!("{base_id}_{number}"));
        // Two calls with one `call_id` are a bug elsewhere; the request must be valid nevertheless.
        let is_free = |id: &String| !ids.contains(id);
        Some(base_id.clone())
            .filter(is_free)
            .or_else(|| candidates.find(is_free))
            .unwrap_or(base_id)
            .into()
    });
    ids.insert(id.clone().into_owned());
    id
}

/// Returns the arguments as an object, the only form that most providers accept back. The model reads
/// in it what it wrote instead, and in the call's error result what is wrong with it.
fn argument_object(arguments: &Arguments) -> Cow<'_, Map<String, Value>> {
    if let Some(object) = arguments.as_object() {
        return Cow::Borrowed(object);
    }
    let unparsed = arguments.unparsed_text().filter(|text| !text.trim().is_empty());
    let member = unparsed.map(|text| (UNPARSED_KEY.to_owned(), text.into()));
    Cow::Owned(member.into_iter().collect())
}

/// Converts `name` into a form that every provider accepts: 1 to 64 of `a-z A-Z 0-9 _ -`. The model
/// calls a tool by the converted name, so tools should be registered under names that this function
/// does not change.
pub fn wire_tool_name(name: &str) -> Cow<'_, str> {
    let name = replace_invalid_name_chars(name);
    match name.char_indices().nth(TOOL_NAME_CHARS_MAX) {
        None if name.is_empty() => Cow::Borrowed("_"),
        None => name,
        Some((end, _)) => Cow::Owned(name[..end].to_owned()),
    }
}

/// Replaces every character of `text` except `a-z A-Z 0-9 _ -` by `_`.
pub(super) fn replace_invalid_name_chars(text: &str) -> Cow<'_, str> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.chars().all(is_legal) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if is_legal(c) { c } else { '_' }).collect())
}

/// Converts a tool's schema into a form that providers accept: an object schema with `properties` and
/// without the top-level combinators that they reject. Arguments are validated against the original.
pub(super) fn wire_input_schema(schema: &Value) -> Cow<'_, Value> {
    const REJECTED_KEYS: [&str; 5] = ["allOf", "anyOf", "enum", "not", "oneOf"];
    let is_object = |object: &Map<String, Value>| {
        object.get("type").and_then(Value::as_str) == Some("object")
            && object.get("properties").is_some_and(Value::is_object)
            && REJECTED_KEYS.iter().all(|key| !object.contains_key(*key))
    };
    if schema.as_object().is_some_and(is_object) {
        return Cow::Borrowed(schema);
    }
    let mut object = schema.as_object().cloned().unwrap_or_default();
    object.retain(|key, _| !REJECTED_KEYS.contains(&key.as_str()));
    object.insert("type".to_owned(), "object".into());
    if !object.get("properties").is_some_and(Value::is_object) {
        object.insert("properties".to_owned(), Value::Object(Map::new()));
    }
    Cow::Owned(Value::Object(object))
}

/// Serialises a request body.
pub(super) fn to_json(body: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::with_capacity(REQUEST_BYTES_INITIAL);
    serde_json::to_writer(&mut json, body).expect("maps with text keys are always JSON");
    json
}

/// Returns the tools with their wire names; of several tools with one wire name, the first.
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
