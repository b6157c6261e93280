//! The built-in tool `delegate`.

use crate::{
    agent::AgentProfile,
    ids::AgentName,
    message::Arguments,
    policy::{BUILT_IN_SERVER, RemoteTool, Tool, ToolAnnotations},
};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The name of the tool.
pub const DELEGATE_TOOL: &str = "delegate";

/// Returns true if the tool is the built-in [`DELEGATE_TOOL`], and not another tool of that name.
pub fn is_delegate(tool: &Tool) -> bool {
    *tool.server == *BUILT_IN_SERVER && tool.remote_name == DELEGATE_TOOL
}

/// The arguments of a `delegate` call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DelegateArgs {
    /// The agent that receives the task.
    pub agent: AgentName,
    /// The task.
    pub task: Arc<str>,
}

impl DelegateArgs {
    /// Parses the arguments of a call; `None` for arguments that the tool's schema rejects.
    pub fn from_arguments(arguments: &Arguments) -> Option<Self> {
        match arguments {
            Arguments::Json(value) => Self::deserialize(value).ok(),
            Arguments::Malformed { .. } => None,
        }
    }
}

/// Builds the tool definition for an agent that may delegate to `agents`.
///
/// The tool is annotated as read-only, because it changes nothing by itself: each call of the child
/// is evaluated under a policy that is no wider. It is idempotent, because a repeated attempt finds
/// the existing child.
pub fn delegate_tool<'a>(agents: impl IntoIterator<Item = &'a AgentProfile>) -> RemoteTool {
    let agents: Vec<_> = agents.into_iter().collect();
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    let mut description = "Delegates a task to another agent, which works on it independently and \
                           returns its result. It knows only the task, not this conversation, so \
                           include everything it needs. Several tasks of one step run in parallel."
        .to_owned();
    for agent in &agents {
        let suffix = match agent.description.as_str() {
            "" => String::new(),
            text => format!(": {text}"),
        };
        description.push_str(&format!("\n- {}{suffix}", agent.name));
    }
    let mut agent = json!({"type": "string", "description": "The agent"});
    if !names.is_empty() {
        agent["enum"] = json!(names);
    }
    let task = json!({
        "type": "string",
        "minLength": 1,
        "description": "The task, with all necessary information",
    });
    RemoteTool {
        name: DELEGATE_TOOL.to_owned(),
        description,
        input_schema: json!({
            "type": "object",
            "properties": {"agent": agent, "task": task},
            "required": ["agent", "task"],
            "additionalProperties": false,
        }),
        annotations: ToolAnnotations {
            read_only_hint: Some(true),
            idempotent_hint: Some(true),
            ..ToolAnnotations::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn s8_delegate_tool_lists_agents_with_descriptions() {
        let mut researcher = AgentProfile::new(AgentName::parse("researcher").unwrap());
        researcher.description = "Looks things up.".to_owned();
        let writer = AgentProfile::new(AgentName::parse("writer").unwrap());
        let tool = delegate_tool([&researcher, &writer]);
        assert!(tool.description.ends_with("\n- researcher: Looks things up.\n- writer"));
        let schema = &tool.input_schema["properties"]["agent"]["enum"];
        assert_eq!(*schema, json!(["researcher", "writer"]));
    }

    #[test]
    fn s8_delegate_args_accept_only_valid_arguments() {
        let parse = |value: Value| DelegateArgs::from_arguments(&Arguments::Json(value));
        let args = parse(json!({"agent": "researcher", "task": "Look"})).unwrap();
        assert_eq!((args.agent.as_str(), &*args.task), ("researcher", "Look"));
        assert_eq!(parse(json!({"agent": "researcher"})), None);
        assert_eq!(parse(json!({"agent": "", "task": "Look"})), None);
    }
}
