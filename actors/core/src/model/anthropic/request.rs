//! Encodes requests for Anthropic Messages.

use crate::{
    message::{AssistantMessage, Reasoning},
    model::request::{self, CallWithResult, ModelRequest, Turn},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeSet};

/// Text of a user message that is inserted where the format requires one and there is none.
const CONTINUE: &str = "Continue.";

/// Encodes the body of `POST /v1/messages`.
///
/// Sets a cache marker on each part of the system prompt, on the last tool and on the newest message,
/// so that the next step pays full price for new content only. The format allows four markers.
pub fn encode(request: &ModelRequest) -> Vec<u8> {
    let turns =
        request::build_turns(&request.messages, |id| Some(request::replace_invalid_name_chars(id)));
    let mut tools: Vec<_> = request::wire_tools(&request.tools)
        .into_iter()
        .map(|(name, tool)| WireTool {
            name,
            description: &tool.description,
            input_schema: request::wire_input_schema(&tool.input_schema),
            cache_control: None,
        })
        .collect();
    let forced = request.forced_tool.as_deref().map(request::wire_tool_name);
    // The format requires tool declarations if the conversation contains calls.
    let retired_only = (tools.is_empty() && called_tools(&turns).next().is_some()).then(|| {
        let names: BTreeSet<_> = called_tools(&turns).collect();
        tools.extend(names.into_iter().map(retired_tool));
        ToolChoice { kind: "none", name: None }
    });
    // The format does not allow thinking together with a forced call.
    let thinking = forced.as_ref().map(|_| TypeTag { kind: "disabled" });
    let forced = forced.map(|name| ToolChoice { kind: "tool", name: Some(name) });
    if let Some(last) = tools.last_mut() {
        last.cache_control = Some(EPHEMERAL);
    }
    let with_cache_marker = |text| ContentBlock {
        cache_control: Some(EPHEMERAL),
        ..ContentBlock::from_content(Content::Text { text })
    };
    let system = request.system.parts().map(with_cache_marker).collect();
    let body = Body {
        model: &request.model,
        max_tokens: request.max_tokens,
        stream: true,
        system,
        tools,
        tool_choice: forced.or(retired_only),
        thinking,
        messages: encode_messages(&turns),
    };
    request::to_json(&body)
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<ContentBlock<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<TypeTag>,
    messages: Vec<WireMessage<'a>>,
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<TypeTag>,
}

#[derive(Clone, Copy, Serialize)]
struct TypeTag {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct ToolChoice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
}

const EPHEMERAL: TypeTag = TypeTag { kind: "ephemeral" };

#[derive(Serialize)]
struct WireMessage<'a> {
    role: MessageRole,
    content: Vec<ContentBlock<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum MessageRole {
    User,
    Assistant,
}

#[derive(Serialize)]
struct ContentBlock<'a> {
    #[serde(flatten)]
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<TypeTag>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a Map<String, Value>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl<'a> ContentBlock<'a> {
    fn from_content(content: Content<'a>) -> Self {
        Self { content, cache_control: None }
    }
}

/// Encodes the turns as messages of alternating roles; the first and the last have the user role.
fn encode_messages<'a>(turns: &'a [Turn<'a>]) -> Vec<WireMessage<'a>> {
    let mut messages: Vec<WireMessage<'a>> = Vec::with_capacity(turns.len() + 1);
    for turn in turns {
        match turn {
            Turn::User(texts) => {
                let content =
                    texts.iter().map(|text| ContentBlock::from_content(Content::Text { text }));
                push_user_blocks(&mut messages, content);
            }
            Turn::Assistant(message, exchanges) => {
                if messages.last().is_none_or(|last| last.role == MessageRole::Assistant) {
                    push_user_blocks(
                        &mut messages,
                        [ContentBlock::from_content(Content::Text { text: CONTINUE })],
                    );
                }
                let content = assistant_blocks(message, exchanges);
                messages.push(WireMessage { role: MessageRole::Assistant, content });
                if !exchanges.is_empty() {
                    push_user_blocks(&mut messages, exchanges.iter().map(result_block));
                }
            }
        }
    }
    if messages.last().is_none_or(|last| last.role == MessageRole::Assistant) {
        push_user_blocks(
            &mut messages,
            [ContentBlock::from_content(Content::Text { text: CONTINUE })],
        );
    }
    if let Some(block) = messages.last_mut().and_then(|last| last.content.last_mut()) {
        block.cache_control = Some(EPHEMERAL);
    }
    messages
}

/// Appends to the last user message, or adds one: results and the text after them form one message.
fn push_user_blocks<'a>(
    messages: &mut Vec<WireMessage<'a>>,
    blocks: impl IntoIterator<Item = ContentBlock<'a>>,
) {
    match messages.last_mut().filter(|last| last.role == MessageRole::User) {
        Some(last) => last.content.extend(blocks),
        None => {
            let content = blocks.into_iter().collect();
            messages.push(WireMessage { role: MessageRole::User, content });
        }
    }
}

fn assistant_blocks<'a>(
    message: &'a AssistantMessage,
    exchanges: &'a [CallWithResult<'a>],
) -> Vec<ContentBlock<'a>> {
    let reasoning = message.reasoning.iter().filter_map(|block| match block {
        // The provider rejects unsigned thinking, which is another provider's or was truncated.
        Reasoning::Thinking { text, signature } => {
            let signature = signature.as_deref().filter(|signature| !signature.is_empty())?;
            Some(Content::Thinking { thinking: text, signature })
        }
        Reasoning::Redacted { payload } if payload.is_empty() => None,
        Reasoning::Redacted { payload } => Some(Content::RedactedThinking { data: payload }),
    });
    // The provider rejects blank text, and white space at the end of the last block.
    let text = Some(message.text.trim_end()).filter(|text| !text.is_empty());
    let text = text.map(|text| Content::Text { text });
    let calls = exchanges.iter().map(|exchange| Content::ToolUse {
        id: &exchange.id,
        name: &exchange.tool,
        input: &exchange.arguments,
    });
    reasoning.chain(text).chain(calls).map(ContentBlock::from_content).collect()
}

fn result_block<'a>(exchange: &'a CallWithResult<'a>) -> ContentBlock<'a> {
    ContentBlock::from_content(Content::ToolResult {
        tool_use_id: &exchange.id,
        content: exchange.result,
        is_error: exchange.is_error,
    })
}

fn called_tools<'a>(turns: &'a [Turn<'a>]) -> impl Iterator<Item = &'a str> {
    turns
        .iter()
        .flat_map(|turn| match turn {
            Turn::User(_) => &[],
            Turn::Assistant(_, exchanges) => exchanges.as_slice(),
        })
        .map(|exchange| &*exchange.tool)
}

/// Declares a tool that the conversation has called and that is no longer offered.
fn retired_tool(name: &str) -> WireTool<'_> {
    WireTool {
        name: Cow::Borrowed(name),
        description: "No longer available.",
        input_schema: Cow::Owned(request::wire_input_schema(&Value::Null).into_owned()),
        cache_control: None,
    }
}
