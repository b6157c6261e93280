//! Resources of MCP servers (T1): listed on request, so that changes of a list are never missed, and
//! read within the limits of a tool result.

use super::{LIST_PAGES_MAX, call, mcp_client::McpConnection, result};
use greenroom_actors::ports::ServerResource;
use greenroom_core::{call::ToolOutput, text::truncate};
use rmcp::model::{PaginatedRequestParams, ReadResourceRequestParams, Resource, ResourceTemplate};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// Timeout for listing resources and for reading one.
const RESOURCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of resources of one server, including templates.
const RESOURCES_MAX: usize = 1_000;
/// Maximum bytes of each text of a resource's description.
const TEXT_BYTES_MAX: usize = 1024;

/// Returns the server's resources and resource templates. Empty if the server does not support
/// resources; incomplete if it fails or exceeds the timeout.
pub(super) async fn list(connection: Arc<McpConnection>) -> Vec<ServerResource> {
    let info = connection.peer.peer_info();
    if info.is_none_or(|info| info.capabilities.resources.is_none()) {
        return Vec::new();
    }
    let mut resources = Vec::new();
    let list_pages = async {
        let mut cursor = None;
        for _ in 0..LIST_PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let Ok(page) = connection.peer.list_resources(Some(page)).await else { break };
            resources.extend(page.resources.into_iter().map(to_server_resource));
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || resources.len() >= RESOURCES_MAX {
                break;
            }
        }
        let mut cursor = None;
        for _ in 0..LIST_PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let Ok(page) = connection.peer.list_resource_templates(Some(page)).await else {
                break;
            };
            resources.extend(page.resource_templates.into_iter().map(to_server_template));
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || resources.len() >= RESOURCES_MAX {
                break;
            }
        }
    };
    if timeout(RESOURCE_TIMEOUT, list_pages).await.is_err() {
        tracing::debug!("timeout while listing the resources of a tool server");
    }
    resources.truncate(RESOURCES_MAX);
    resources
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

/// Reads a resource, limited to `bytes_max` bytes. Describes content that is not text.
pub(super) async fn read(
    connection: Arc<McpConnection>,
    uri: String,
    bytes_max: usize,
) -> Result<ToolOutput, String> {
    let params = ReadResourceRequestParams::new(uri);
    let resource = timeout(RESOURCE_TIMEOUT, connection.peer.read_resource(params)).await;
    let resource = resource.map_err(|_| format!("no response within {RESOURCE_TIMEOUT:?}"))?;
    let resource = resource.map_err(|error| call::describe_error(&error))?;
    Ok(result::output_from_resource(&resource.contents, bytes_max))
}
