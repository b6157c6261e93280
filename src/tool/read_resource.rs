//! The built-in tool `read_resource`: lists the resources of tool servers and reads one (T1).

use futures::future::{BoxFuture, FutureExt};
use greenroom_actors::{
    built_in::{BuiltInTool, failed_outcome},
    ports::{Progress, ServerResource, ToolCall, ToolHost},
    tool_servers::ToolServers,
};
use greenroom_core::{
    agent::{AgentProfile, READ_RESOURCE_TOOL},
    call::{ToolOutcome, ToolOutput},
    ids::AgentName,
    policy::{RemoteTool, ToolAnnotations},
    uri::has_dot_segment,
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The remedy for dot segments in a URI.
const DOT_SEGMENT_HINT: &str = "use a URI without such segments, encoded or not";

/// Reads resources for agents that are allowed to read them.
pub struct ReadResourceTool {
    /// All tool servers. Set after they have been started, because this tool belongs to one of them.
    tools: Arc<OnceLock<ToolServers>>,
    /// The agents that may read resources.
    readers: BTreeMap<AgentName, AgentProfile>,
}

impl ReadResourceTool {
    /// Creates the tool if any of the agents may read resources. `tools` is set later.
    pub fn new<'a>(
        agents: impl Iterator<Item = &'a AgentProfile>,
        tools: &Arc<OnceLock<ToolServers>>,
    ) -> Option<Self> {
        let readers = agents.filter(|agent| !agent.resources.is_empty());
        let readers: BTreeMap<_, _> =
            readers.map(|agent| (agent.name.clone(), agent.clone())).collect();
        (!readers.is_empty()).then(|| Self { tools: tools.clone(), readers })
    }
}

impl BuiltInTool for ReadResourceTool {
    fn describe(&self) -> RemoteTool {
        RemoteTool {
            name: READ_RESOURCE_TOOL.to_owned(),
            description: "Reads a resource of a tool server, such as a file or a record. Without \
                          `uri`, lists the resources that there are."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "server": {"type": "string", "description": "The tool server's name"},
                    "uri": {
                        "type": "string",
                        "description": "The resource, as listed; a template's braces filled in",
                    },
                },
                "dependentRequired": {"uri": ["server"]},
                "additionalProperties": false,
            }),
            annotations: ToolAnnotations {
                read_only_hint: Some(true),
                ..ToolAnnotations::default()
            },
        }
    }

    fn call(
        &self,
        call: ToolCall,
        _: mpsc::Sender<Progress>,
        _: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        let reader =
            call.caller.as_ref().and_then(|caller| self.readers.get(&caller.agent)).cloned();
        let Some(reader) = reader else {
            return std::future::ready(failed_outcome("this agent may read no resources")).boxed();
        };
        let Some(tools) = self.tools.get().cloned() else {
            let error = "the tool servers have not been started yet".to_owned();
            return std::future::ready(ToolOutcome::NotSent { error }).boxed();
        };
        let text = |name: &str| call.arguments[name].as_str().map(str::to_owned);
        let (server, uri) = (text("server"), text("uri"));
        let bytes_max = call.result_bytes_max;
        async move {
            let Some((server, uri)) = server.clone().zip(uri) else {
                let all = tools.list_resources().await;
                return list_readable(&all, &reader, server.as_deref());
            };
            if let Some(reason) = denial_reason(&reader, &server, &uri) {
                return failed_outcome(reason);
            }
            match tools.read_resource(&server, &uri, bytes_max).await {
                Ok(output) => ToolOutcome::Completed(output),
                Err(error) => failed_outcome(error),
            }
        }
        .boxed()
    }
}

/// Returns the reason why the resource is not read, if any.
fn denial_reason(reader: &AgentProfile, server: &str, uri: &str) -> Option<String> {
    if has_dot_segment(uri) {
        return Some(format!("`{uri}` has a segment `.` or `..`: {DOT_SEGMENT_HINT}"));
    }
    // The same error as for a resource that does not exist.
    let is_allowed = reader.can_read_resource(server, uri);
    (!is_allowed).then(|| format!("there is no resource `{uri}` on `{server}`"))
}

/// Lists the resources that the agent may read, one per line.
fn list_readable(
    all: &[ServerResource],
    reader: &AgentProfile,
    server: Option<&str>,
) -> ToolOutcome {
    let lines: Vec<_> = all
        .iter()
        .filter(|resource| server.is_none_or(|server| resource.server == server))
        .filter(|resource| reader.can_read_resource(&resource.server, &resource.uri))
        .map(|resource| {
            let ServerResource { uri, server, name, description, .. } = resource;
            let kind = if resource.is_template { "template" } else { "resource" };
            format!("{kind} {uri} on {server}: {name} {description}")
        })
        .collect();
    let text = match lines.is_empty() {
        true => "There are no resources.".to_owned(),
        false => lines.join("\n"),
    };
    ToolOutcome::Completed(ToolOutput { text, ..ToolOutput::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_only_resources_that_match_the_globs_are_listed_and_read() {
        let resource = |server: &str, uri: &str, is_template| ServerResource {
            server: server.to_owned(),
            uri: uri.to_owned(),
            name: "n".to_owned(),
            is_template,
            ..ServerResource::default()
        };
        let all = [
            resource("docs", "file:///a.md", false),
            resource("docs", "file:///secret/b.md", false),
            resource("docs", "file:///{name}", true),
            resource("other", "file:///a.md", false),
        ];
        let agent = AgentProfile::new(AgentName::parse("reader").unwrap());
        assert!(!agent.can_read_resource("docs", "file:///a.md"), "by default an agent reads none");
        let resources = ["docs:file:///a*", "docs:file:///{*"].map(str::to_owned).into();
        let agent = AgentProfile { resources, ..agent };
        let count_listed = |server| match list_readable(&all, &agent, server) {
            ToolOutcome::Completed(output) => output.text.lines().count(),
            other @ (ToolOutcome::Failed { .. }
            | ToolOutcome::NotSent { .. }
            | ToolOutcome::TimedOut { .. }
            | ToolOutcome::Crashed { .. }) => panic!("{other:?}"),
        };
        assert_eq!((count_listed(None), count_listed(Some("docs"))), (2, 2));
        for (server, uri, is_allowed) in [
            ("docs", "file:///a.md", true),
            ("docs", "file:///secret/b.md", false),
            ("other", "file:///a.md", false),
            ("docs", "file:///a/../secret/b.md", false),
            ("docs", "file:///a/%2e%2E/secret/b.md", false),
        ] {
            assert_eq!(agent.can_read_resource(server, uri), is_allowed, "{server} {uri}");
            assert_eq!(denial_reason(&agent, server, uri).is_none(), is_allowed, "{server} {uri}");
        }
    }

    #[test]
    fn x5_dot_segments_are_rejected_with_a_reason() {
        let resources = vec!["*".to_owned()];
        let agent = AgentProfile::new(AgentName::parse("reader").unwrap());
        let agent = AgentProfile { resources, ..agent };
        let reason = denial_reason(&agent, "docs", "file:///a/%2e%2e/b.md").unwrap();
        assert!(
            reason.starts_with("`file:///a/%2e%2e/b.md` has a segment `.` or `..`"),
            "{reason}"
        );
        let missing = "there is no resource `file:///a.md` on `docs`".to_owned();
        let agent = AgentProfile { resources: Vec::new(), ..agent };
        assert_eq!(denial_reason(&agent, "docs", "file:///a.md"), Some(missing));
    }
}
