//! Prompts of MCP servers (T1, C3): listed when somebody asks, and fetched when one is started.

use super::{LIST_PAGES_MAX, call, mcp_client::McpConnection};
use greenroom_actors::ports::{PromptArgument, ServerPrompt};
use greenroom_core::{
    limits::{WORKFLOW_INPUTS_MAX, WORKFLOW_TEXT_BYTES_MAX},
    text::truncate,
};
use rmcp::model::{GetPromptRequestParams, PaginatedRequestParams, Prompt};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// Time for a server to list its prompts, or to give one.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Prompts of one server.
const PROMPTS_MAX: usize = 256;
/// Bytes of a prompt's description.
const DESCRIPTION_BYTES_MAX: usize = 1024;

/// The prompts that the server lists; none where it has none, or does not say in time.
pub(super) async fn list(conversation: Arc<McpConnection>) -> Vec<ServerPrompt> {
    let info = conversation.peer.peer_info();
    if info.is_none_or(|info| info.capabilities.prompts.is_none()) {
        return Vec::new();
    }
    let mut prompts = Vec::new();
    let reading = async {
        let mut cursor = None;
        for _ in 0..LIST_PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let Ok(page) = conversation.peer.list_prompts(Some(page)).await else { break };
            prompts.extend(page.prompts.into_iter().map(to_server_prompt));
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || prompts.len() >= PROMPTS_MAX {
                break;
            }
        }
    };
    if timeout(PROMPT_TIMEOUT, reading).await.is_err() {
        tracing::debug!("a tool server does not list its prompts in time");
    }
    prompts.truncate(PROMPTS_MAX);
    prompts
}

fn to_server_prompt(prompt: Prompt) -> ServerPrompt {
    let description = prompt.description.or(prompt.title).unwrap_or_default();
    let arguments = prompt.arguments.unwrap_or_default().into_iter().take(WORKFLOW_INPUTS_MAX);
    let argument = |argument: rmcp::model::PromptArgument| PromptArgument {
        name: argument.name,
        description: argument.description.or(argument.title).unwrap_or_default(),
        required: argument.required.unwrap_or(false),
    };
    ServerPrompt {
        server: String::new(),
        name: prompt.name,
        description: truncate(&description, DESCRIPTION_BYTES_MAX).to_owned(),
        arguments: arguments.map(argument).collect(),
    }
}

/// The text of a prompt. What is no text in it is left out.
pub(super) async fn get(
    conversation: Arc<McpConnection>,
    name: String,
    arguments: Map<String, Value>,
) -> Result<String, String> {
    let mut wanted = GetPromptRequestParams::new(name);
    wanted.arguments = (!arguments.is_empty()).then_some(arguments);
    let got = timeout(PROMPT_TIMEOUT, conversation.peer.get_prompt(wanted)).await;
    let got = got.map_err(|_| format!("no answer within {PROMPT_TIMEOUT:?}"))?;
    let got = got.map_err(|error| call::describe_error(&error))?;
    let got = serde_json::to_value(got).unwrap_or_default();
    let said = got["messages"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let text = |message: &Value| {
        let content = &message["content"];
        let text = content["text"].as_str().or(content["resource"]["text"].as_str())?;
        Some(match message["role"].as_str() {
            Some("assistant") => format!("(You said before:) {text}"),
            Some(_) | None => text.to_owned(),
        })
    };
    let text = said.filter_map(text).collect::<Vec<_>>().join("\n\n");
    match text.trim() {
        "" => Err("it has no text".to_owned()),
        text => Ok(super::result::safe_text(text, WORKFLOW_TEXT_BYTES_MAX)),
    }
}
