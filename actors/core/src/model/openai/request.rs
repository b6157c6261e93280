//! Encodes requests for Chat Completions.

use crate::{
    message::{AssistantMessage, Reasoning},
    model::request::{self, CallWithResult, ModelRequest, Turn},
};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;

/// Maximum length of a call id that OpenAI accepts.
const CALL_ID_CHARS_MAX: usize = 40;

/// Options for differences between servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Sends `max_tokens`, which most compatible servers expect, instead of `max_completion_tokens`,
    /// which OpenAI's newer models require.
    pub legacy_max_tokens: bool,
    /// Sends thinking back as `reasoning_content`, which some reasoning models require between calls
    /// and OpenAI rejects.
    pub sends_reasoning: bool,
    /// Sends arguments that are not a JSON object back exactly as the model wrote them, which OpenAI
    /// accepts. Many compatible servers parse the text and fail.
    pub sends_exact_arguments: bool,
}

/// Encodes the body of `POST /chat/completions`.
pub fn encode(request: &ModelRequest, options: EncodeOptions) -> Vec<u8> {
    let valid_id = |id| Some(Cow::Borrowed(id)).filter(|id: &Cow<'_, str>| is_valid_call_id(id));
    let turns = request::build_turns(&request.messages, valid_id);
    let tools = request::wire_tools(&request.tools)
        .into_iter()
        .map(|(name, tool)| WireTool {
            kind: FUNCTION,
            function: Function {
                name,
                description: &tool.description,
                parameters: request::wire_input_schema(&tool.input_schema),
            },
        })
        .collect();
    let system = request.system.text();
    let max_tokens = Some(request.max_tokens);
    let body = Body {
        model: &request.model,
        max_completion_tokens: max_tokens.filter(|_| !options.legacy_max_tokens),
        max_tokens: max_tokens.filter(|_| options.legacy_max_tokens),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        tools,
        tool_choice: request.forced_tool.as_deref().map(|tool| FunctionChoice {
            kind: FUNCTION,
            function: FunctionName { name: request::wire_tool_name(tool) },
        }),
        messages: encode_messages(&system, &turns, options),
    };
    request::to_json(&body)
}

const FUNCTION: &str = "function";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<FunctionChoice<'a>>,
    messages: Vec<WireMessage<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct FunctionChoice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: FunctionName<'a>,
}

#[derive(Serialize)]
struct FunctionName<'a> {
    name: Cow<'a, str>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: Cow<'a, Value>,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Cow<'a, str>,
    },
    Assistant {
        /// Null if the message has only calls.
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "String::is_empty")]
        reasoning_content: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    /// A JSON object as text, or what the model wrote instead.
    arguments: Cow<'a, str>,
}

fn encode_messages<'a>(
    system: &'a str,
    turns: &'a [Turn<'a>],
    options: EncodeOptions,
) -> Vec<WireMessage<'a>> {
    let mut messages = Vec::with_capacity(turns.len() + 1);
    if !system.trim().is_empty() {
        messages.push(WireMessage::System { content: system });
    }
    for turn in turns {
        match turn {
            // One message: the chat templates of some models reject two consecutive user messages.
            Turn::User(texts) => messages.push(WireMessage::User {
                content: match texts.as_slice() {
                    [text] => Cow::Borrowed(*text),
                    texts => Cow::Owned(texts.join("\n\n")),
                },
            }),
            Turn::Assistant(message, exchanges) => {
                messages.push(assistant_message(message, exchanges, options));
                messages.extend(exchanges.iter().map(tool_message));
            }
        }
    }
    messages
}

fn assistant_message<'a>(
    message: &'a AssistantMessage,
    exchanges: &'a [CallWithResult<'a>],
    options: EncodeOptions,
) -> WireMessage<'a> {
    let tool_calls = exchanges.iter().map(|exchange| WireCall {
        id: &exchange.id,
        kind: FUNCTION,
        function: CalledFunction {
            name: &exchange.tool,
            arguments: arguments_text(exchange, options),
        },
    });
    let content = Some(message.text.as_str()).filter(|text| !text.trim().is_empty());
    let reasoning_content =
        if options.sends_reasoning { reasoning_text(message) } else { String::new() };
    WireMessage::Assistant { content, reasoning_content, tool_calls: tool_calls.collect() }
}

fn reasoning_text(message: &AssistantMessage) -> String {
    let readable = message.reasoning.iter().filter_map(|block| match block {
        Reasoning::Thinking { text, .. } => Some(text.as_str()),
        Reasoning::Redacted { .. } => None,
    });
    readable.collect()
}

fn tool_message<'a>(exchange: &'a CallWithResult<'a>) -> WireMessage<'a> {
    let (result, tool_call_id) = (exchange.result, &*exchange.id);
    // The format has no error flag, so the text must state that the call failed.
    let has_prefix = result.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    let content = match exchange.is_error && !has_prefix {
        true => Cow::Owned(format!("error: {result}")),
        false => Cow::Borrowed(result),
    };
    WireMessage::Tool { tool_call_id, content }
}

fn arguments_text<'a>(exchange: &'a CallWithResult<'a>, options: EncodeOptions) -> Cow<'a, str> {
    let exact = exchange.unparsed_arguments.as_deref().filter(|text| !text.trim().is_empty());
    match exact.filter(|_| options.sends_exact_arguments) {
        Some(text) => Cow::Borrowed(text),
        None => serde_json::to_string(&exchange.arguments)
            .expect("maps with text keys are always JSON")
            .into(),
    }
}

fn is_valid_call_id(id: &str) -> bool {
    let is_graphic = |byte: u8| byte.is_ascii_graphic();
    !id.is_empty() && id.len() <= CALL_ID_CHARS_MAX && id.bytes().all(is_graphic)
}
