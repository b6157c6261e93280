//! Prompts of MCP servers (T1, C3): listed on request, and fetched when a prompt is started.

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

/// Timeout for listing prompts and for fetching one.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of prompts of one server.
const PROMPTS_MAX: usize = 256;
/// Maximum bytes of a prompt's description.
const DESCRIPTION_BYTES_MAX: usize = 1024;

/// Returns the server's prompts. Empty if the server does not support prompts; incomplete if it fails
/// or exceeds the timeout.
pub(super) async fn list(connection: Arc<McpConnection>) -> Vec<ServerPrompt> {
    let info = connection.peer.peer_info();
    if info.is_none_or(|info| info.capabilities.prompts.is_none()) {
        return Vec::new();
    }
    let mut prompts = Vec::new();
    let list_pages = async {
        let mut cursor = None;
        for _ in 0..LIST_PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let Ok(page) = connection.peer.list_prompts(Some(page)).await else { break };
            prompts.extend(page.prompts.into_iter().map(to_server_prompt));
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || prompts.len() >= PROMPTS_MAX {
                break;
            }
        }
    };
    if timeout(PROMPT_TIMEOUT, list_pages).await.is_err() {
        tracing::debug!("timeout while listing the prompts of a tool server");
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

/// Fetches the text of a prompt. Ignores content that is not text.
pub(super) async fn get(
    connection: Arc<McpConnection>,
    name: String,
    arguments: Map<String, Value>,
) -> Result<String, String> {
    let mut params = GetPromptRequestParams::new(name);
    params.arguments = (!arguments.is_empty()).then_some(arguments);
    let prompt = timeout(PROMPT_TIMEOUT, connection.peer.get_prompt(params)).await;
    let prompt = prompt.map_err(|_| format!("no response within {PROMPT_TIMEOUT:?}"))?;
    let prompt = prompt.map_err(|error| call::describe_error(&error))?;
    let prompt = serde_json::to_value(prompt).unwrap_or_default();
    let messages = prompt["messages"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let text = |message: &Value| {
        let content = &message["content"];
        let text = content["text"].as_str().or(content["resource"]["text"].as_str())?;
        Some(match message["role"].as_str() {
            Some("assistant") => format!("(Earlier answer of the assistant:) {text}"),
            Some(_) | None => text.to_owned(),
        })
    };
    let text = messages.filter_map(text).collect::<Vec<_>>().join("\n\n");
    match text.trim() {
        "" => Err("the prompt has no text".to_owned()),
        text => Ok(super::result::safe_text(text, WORKFLOW_TEXT_BYTES_MAX)),
    }
}
