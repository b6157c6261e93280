//! The tool `delegate`, as models see it.

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

/// Whether it is the tool [`DELEGATE`], and not another of that name.
pub fn is_delegate(tool: &Tool) -> bool {
    *tool.server == *BUILT_IN_SERVER && tool.remote_name == DELEGATE_TOOL
}

/// What is wanted of another agent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DelegateArgs {
    /// Which agent.
    pub agent: AgentName,
    /// What it is to do.
    pub task: Arc<str>,
}

impl DelegateArgs {
    /// What the arguments of a call say; `None` for arguments that the tool's schema refuses.
    pub fn from_arguments(arguments: &Arguments) -> Option<Self> {
        match arguments {
            Arguments::Json(value) => Self::deserialize(value).ok(),
            Arguments::Malformed { .. } => None,
        }
    }
}

/// The tool for an agent that may hand tasks to `agents`. By itself it changes nothing in the world:
/// what the other agent does is judged call by call, under no wider policy. So it counts as reading;
/// and a repeated attempt finds the child that is there already, so it may be repeated.
pub fn delegate_tool<'a>(agents: impl IntoIterator<Item = &'a AgentProfile>) -> RemoteTool {
    let agents: Vec<_> = agents.into_iter().collect();
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    let mut description = "Hands a task to another agent, which works on it by itself and answers \
                           with its result. It knows nothing of this conversation but the task, so \
                           say everything it needs. Several tasks given at once are worked on side \
                           by side."
        .to_owned();
    for agent in &agents {
        let about = match agent.description.as_str() {
            "" => String::new(),
            said => format!(": {said}"),
        };
        description.push_str(&format!("\n- {}{about}", agent.name));
    }
    let mut agent = json!({"type": "string", "description": "The agent"});
    if !names.is_empty() {
        agent["enum"] = json!(names);
    }
    let task = json!({
        "type": "string",
        "minLength": 1,
        "description": "What it is to do, and all it needs to know for that",
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
    fn s8_the_tool_names_the_agents_and_what_they_are_for() {
        let mut researcher = AgentProfile::new(AgentName::parse("researcher").unwrap());
        researcher.description = "Looks things up.".to_owned();
        let writer = AgentProfile::new(AgentName::parse("writer").unwrap());
        let tool = delegate_tool([&researcher, &writer]);
        assert!(tool.description.ends_with("\n- researcher: Looks things up.\n- writer"));
        let schema = &tool.input_schema["properties"]["agent"]["enum"];
        assert_eq!(*schema, json!(["researcher", "writer"]));
    }

    #[test]
    fn s8_delegate_args_parse_what_the_schema_accepts() {
        let of = |value: Value| DelegateArgs::from_arguments(&Arguments::Json(value));
        let wish = of(json!({"agent": "researcher", "task": "Look"})).unwrap();
        assert_eq!((wish.agent.as_str(), &*wish.task), ("researcher", "Look"));
        assert_eq!(of(json!({"agent": "researcher"})), None);
        assert_eq!(of(json!({"agent": "", "task": "Look"})), None);
    }
}
