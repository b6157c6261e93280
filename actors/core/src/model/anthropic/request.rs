//! Writes requests for Anthropic Messages.

use crate::{
    message::{AssistantMessage, Reasoning},
    model::request::{self, Exchange, ModelRequest, Turn},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeSet};

/// What stands where the format demands a user's turn and the conversation has none.
const CONTINUE: &str = "Continue.";

/// The body of `POST /v1/messages`.
///
/// Both parts of the system prompt, the last tool and the newest message end in cache marks, so that
/// the next step pays for what is new. Four are as many as the format allows.
pub fn encode(request: &ModelRequest) -> Vec<u8> {
    let turns = request::transcript(&request.messages, |id| Some(request::plain(id)));
    let mut tools: Vec<_> = request::declared(&request.tools)
        .into_iter()
        .map(|(name, tool)| WireTool {
            name,
            description: &tool.description,
            input_schema: request::input_schema(&tool.input_schema),
            cache_control: None,
        })
        .collect();
    let forced = request.forced_tool.as_deref().map(request::tool_name);
    // The format demands tools where the conversation has calls.
    let retired_only = (tools.is_empty() && called(&turns).next().is_some()).then(|| {
        let names: BTreeSet<_> = called(&turns).collect();
        tools.extend(names.into_iter().map(retired));
        Choice { kind: "none", name: None }
    });
    // Thinking and a forced call exclude each other.
    let thinking = forced.as_ref().map(|_| Kind { kind: "disabled" });
    let forced = forced.map(|name| Choice { kind: "tool", name: Some(name) });
    if let Some(last) = tools.last_mut() {
        last.cache_control = Some(EPHEMERAL);
    }
    let marked =
        |text| Block { cache_control: Some(EPHEMERAL), ..Block::of(Content::Text { text }) };
    let system = request.system.parts().map(marked).collect();
    let body = Body {
        model: &request.model,
        max_tokens: request.max_tokens,
        stream: true,
        system,
        tools,
        tool_choice: forced.or(retired_only),
        thinking,
        messages: messages(&turns),
    };
    request::to_json(&body)
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Kind>,
    messages: Vec<WireMessage<'a>>,
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Kind>,
}

#[derive(Clone, Copy, Serialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct Choice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
}

const EPHEMERAL: Kind = Kind { kind: "ephemeral" };

#[derive(Serialize)]
struct WireMessage<'a> {
    role: Role,
    content: Vec<Block<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    User,
    Assistant,
}

#[derive(Serialize)]
struct Block<'a> {
    #[serde(flatten)]
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Kind>,
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

impl<'a> Block<'a> {
    fn of(content: Content<'a>) -> Self {
        Self { content, cache_control: None }
    }
}

/// The turns as messages of alternating roles, a user's first and last.
fn messages<'a>(turns: &'a [Turn<'a>]) -> Vec<WireMessage<'a>> {
    let mut messages: Vec<WireMessage<'a>> = Vec::with_capacity(turns.len() + 1);
    for turn in turns {
        match turn {
            Turn::User(texts) => {
                let content = texts.iter().map(|text| Block::of(Content::Text { text }));
                user(&mut messages, content);
            }
            Turn::Assistant(said, exchanges) => {
                if messages.last().is_none_or(|last| last.role == Role::Assistant) {
                    user(&mut messages, [Block::of(Content::Text { text: CONTINUE })]);
                }
                let content = said_blocks(said, exchanges);
                messages.push(WireMessage { role: Role::Assistant, content });
                if !exchanges.is_empty() {
                    user(&mut messages, exchanges.iter().map(result_block));
                }
            }
        }
    }
    if messages.last().is_none_or(|last| last.role == Role::Assistant) {
        user(&mut messages, [Block::of(Content::Text { text: CONTINUE })]);
    }
    if let Some(block) = messages.last_mut().and_then(|last| last.content.last_mut()) {
        block.cache_control = Some(EPHEMERAL);
    }
    messages
}

/// Adds to the user's turn: results and the text after them are one message.
fn user<'a>(messages: &mut Vec<WireMessage<'a>>, blocks: impl IntoIterator<Item = Block<'a>>) {
    match messages.last_mut().filter(|last| last.role == Role::User) {
        Some(last) => last.content.extend(blocks),
        None => {
            let content = blocks.into_iter().collect();
            messages.push(WireMessage { role: Role::User, content });
        }
    }
}

fn said_blocks<'a>(said: &'a AssistantMessage, exchanges: &'a [Exchange<'a>]) -> Vec<Block<'a>> {
    let thoughts = said.reasoning.iter().filter_map(|block| match block {
        // Unsigned thinking is refused: it is another provider's, or was cut off.
        Reasoning::Thinking { text, signature } => {
            let signature = signature.as_deref().filter(|signature| !signature.is_empty())?;
            Some(Content::Thinking { thinking: text, signature })
        }
        Reasoning::Redacted { payload } if payload.is_empty() => None,
        Reasoning::Redacted { payload } => Some(Content::RedactedThinking { data: payload }),
    });
    // Blank text is refused, and so is blank space at the end of the last block.
    let text = Some(said.text.trim_end()).filter(|text| !text.is_empty());
    let text = text.map(|text| Content::Text { text });
    let calls = exchanges.iter().map(|exchange| Content::ToolUse {
        id: &exchange.id,
        name: &exchange.tool,
        input: &exchange.arguments,
    });
    thoughts.chain(text).chain(calls).map(Block::of).collect()
}

fn result_block<'a>(exchange: &'a Exchange<'a>) -> Block<'a> {
    Block::of(Content::ToolResult {
        tool_use_id: &exchange.id,
        content: exchange.result,
        is_error: exchange.is_error,
    })
}

fn called<'a>(turns: &'a [Turn<'a>]) -> impl Iterator<Item = &'a str> {
    turns
        .iter()
        .flat_map(|turn| match turn {
            Turn::User(_) => &[],
            Turn::Assistant(_, exchanges) => exchanges.as_slice(),
        })
        .map(|exchange| &*exchange.tool)
}

/// The declaration of a tool that the conversation has called and that is not offered any more.
fn retired(name: &str) -> WireTool<'_> {
    WireTool {
        name: Cow::Borrowed(name),
        description: "No longer available.",
        input_schema: Cow::Owned(request::input_schema(&Value::Null).into_owned()),
        cache_control: None,
    }
}
