//! Resources of MCP servers (T1): listed when somebody asks, so that a changed list is never missed,
//! and read within the limits of a tool's result.

use super::{LIST_PAGES_MAX, call, mcp_client::McpConnection, result};
use greenroom_actors::ports::ServerResource;
use greenroom_core::{call::ToolOutput, text::truncate};
use rmcp::model::{PaginatedRequestParams, ReadResourceRequestParams, Resource, ResourceTemplate};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// Time for a server to list its resources, or to give one.
const RESOURCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Resources of one server, templates included.
const RESOURCES_MAX: usize = 1_000;
/// Bytes of what is said of a resource.
const TEXT_BYTES_MAX: usize = 1024;

/// The resources that the server lists, and its templates of more; none where it has none, or does
/// not say in time.
pub(super) async fn list(conversation: Arc<McpConnection>) -> Vec<ServerResource> {
    let info = conversation.peer.peer_info();
    if info.is_none_or(|info| info.capabilities.resources.is_none()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let reading = async {
        let mut cursor = None;
        for _ in 0..LIST_PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let Ok(page) = conversation.peer.list_resources(Some(page)).await else { break };
            found.extend(page.resources.into_iter().map(to_server_resource));
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || found.len() >= RESOURCES_MAX {
                break;
            }
        }
        let mut cursor = None;
        for _ in 0..LIST_PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let Ok(page) = conversation.peer.list_resource_templates(Some(page)).await else {
                break;
            };
            found.extend(page.resource_templates.into_iter().map(to_server_template));
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || found.len() >= RESOURCES_MAX {
                break;
            }
        }
    };
    if timeout(RESOURCE_TIMEOUT, reading).await.is_err() {
        tracing::debug!("a tool server does not list its resources in time");
    }
    found.truncate(RESOURCES_MAX);
    found
}

fn truncate_text(text: Option<String>) -> String {
    truncate(&text.unwrap_or_default(), TEXT_BYTES_MAX).to_owned()
}

fn to_server_resource(resource: Resource) -> ServerResource {
    ServerResource {
        server: String::new(),
        uri: truncate_text(Some(resource.uri)),
        name: truncate_text(Some(resource.name)),
        description: truncate_text(resource.description.or(resource.title)),
        mime_type: resource.mime_type.map(|kind| truncate_text(Some(kind))),
        bytes: resource.size,
        is_template: false,
    }
}

fn to_server_template(template: ResourceTemplate) -> ServerResource {
    ServerResource {
        server: String::new(),
        uri: truncate_text(Some(template.uri_template)),
        name: truncate_text(Some(template.name)),
        description: truncate_text(template.description.or(template.title)),
        mime_type: template.mime_type.map(|kind| truncate_text(Some(kind))),
        bytes: None,
        is_template: true,
    }
}

/// What a resource holds, at most so many bytes of it; what is no text is described.
pub(super) async fn read(
    conversation: Arc<McpConnection>,
    uri: String,
    bytes_max: usize,
) -> Result<ToolOutput, String> {
    let wanted = ReadResourceRequestParams::new(uri);
    let read = timeout(RESOURCE_TIMEOUT, conversation.peer.read_resource(wanted)).await;
    let read = read.map_err(|_| format!("no answer within {RESOURCE_TIMEOUT:?}"))?;
    let read = read.map_err(|error| call::describe_error(&error))?;
    Ok(result::output_from_resource(&read.contents, bytes_max))
}
