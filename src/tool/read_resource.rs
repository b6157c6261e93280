//! The built-in tool `read_resource`: what servers' resources there are, and what one holds (T1).

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

/// What to do about dot segments.
const DOT_SEGMENT_HINT: &str = "name the resource without, encoded or not";

/// Reads resources, for agents that may read them.
pub struct ReadResourceTool {
    /// All servers. It is one of them itself, so it knows them only once they are there.
    tools: Arc<OnceLock<ToolServers>>,
    /// Those who may read anything.
    readers: BTreeMap<AgentName, AgentProfile>,
}

impl ReadResourceTool {
    /// The tool for these agents, if any of them may read anything. `tools` is filled in later.
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
        let reader = call.caller.as_ref().and_then(|it| self.readers.get(&it.agent)).cloned();
        let Some(reader) = reader else {
            return std::future::ready(failed_outcome("this agent may read no resources")).boxed();
        };
        let Some(tools) = self.tools.get().cloned() else {
            let error = "the tool servers are not there yet".to_owned();
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
            if let Some(why) = denial_reason(&reader, &server, &uri) {
                return failed_outcome(why);
            }
            match tools.read_resource(&server, &uri, bytes_max).await {
                Ok(output) => ToolOutcome::Completed(output),
                Err(error) => failed_outcome(error),
            }
        }
        .boxed()
    }
}

/// Why that one is not read.
fn denial_reason(reader: &AgentProfile, server: &str, uri: &str) -> Option<String> {
    if has_dot_segment(uri) {
        return Some(format!("`{uri}` has a segment `.` or `..`: {DOT_SEGMENT_HINT}"));
    }
    // A resource that may not be read looks like one that is not there.
    let may = reader.can_read_resource(server, uri);
    (!may).then(|| format!("there is no resource `{uri}` on `{server}`"))
}

/// A line for each resource that may be read.
fn list_readable(
    all: &[ServerResource],
    reader: &AgentProfile,
    server: Option<&str>,
) -> ToolOutcome {
    let lines: Vec<_> = all
        .iter()
        .filter(|it| server.is_none_or(|server| it.server == server))
        .filter(|it| reader.can_read_resource(&it.server, &it.uri))
        .map(|it| {
            let kind = if it.is_template { "template" } else { "resource" };
            format!("{kind} {} on {}: {} {}", it.uri, it.server, it.name, it.description)
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
    fn t1_only_what_the_globs_name_is_listed_and_read() {
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
        let told = |server| match list_readable(&all, &agent, server) {
            ToolOutcome::Completed(output) => output.text.lines().count(),
            other @ (ToolOutcome::Failed { .. }
            | ToolOutcome::NotSent { .. }
            | ToolOutcome::TimedOut { .. }
            | ToolOutcome::Crashed { .. }) => panic!("{other:?}"),
        };
        assert_eq!((told(None), told(Some("docs"))), (2, 2));
        for (server, uri, may) in [
            ("docs", "file:///a.md", true),
            ("docs", "file:///secret/b.md", false),
            ("other", "file:///a.md", false),
            ("docs", "file:///a/../secret/b.md", false),
            ("docs", "file:///a/%2e%2E/secret/b.md", false),
        ] {
            assert_eq!(agent.can_read_resource(server, uri), may, "{server} {uri}");
            assert_eq!(denial_reason(&agent, server, uri).is_none(), may, "{server} {uri}");
        }
    }

    #[test]
    fn x5_who_writes_dot_segments_is_told_so() {
        let resources = vec!["*".to_owned()];
        let agent = AgentProfile::new(AgentName::parse("reader").unwrap());
        let agent = AgentProfile { resources, ..agent };
        let why = denial_reason(&agent, "docs", "file:///a/%2e%2e/b.md").unwrap();
        assert!(why.starts_with("`file:///a/%2e%2e/b.md` has a segment `.` or `..`"), "{why}");
        let missing = "there is no resource `file:///a.md` on `docs`".to_owned();
        let agent = AgentProfile { resources: Vec::new(), ..agent };
        assert_eq!(denial_reason(&agent, "docs", "file:///a.md"), Some(missing));
    }
}
