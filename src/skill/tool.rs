//! The built-in tool `read_skill`.

use super::SkillLibrary;
use futures::future::{BoxFuture, FutureExt};
use greenroom_actors::{
    built_in::{BuiltInTool, failed_outcome},
    ports::{Progress, ToolCall},
};
use greenroom_core::{
    agent::AgentProfile,
    call::{ToolOutcome, ToolOutput},
    context::READ_SKILL_TOOL,
    ids::AgentName,
    policy::{RemoteTool, ToolAnnotations},
    text::glob_matches,
};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Reads a skill's text or one of its additional files, for agents that are allowed to.
pub struct ReadSkillTool {
    library: Arc<SkillLibrary>,
    /// The name globs of each agent.
    allowed: BTreeMap<AgentName, Vec<String>>,
}

impl ReadSkillTool {
    /// Creates the tool for `agents`.
    pub fn new<'a>(
        library: Arc<SkillLibrary>,
        agents: impl Iterator<Item = &'a AgentProfile>,
    ) -> Self {
        let globs = |agent: &AgentProfile| (agent.name.clone(), agent.skills.clone());
        Self { library, allowed: agents.map(globs).collect() }
    }

    fn may_read(&self, call: &ToolCall, name: &str) -> bool {
        let Some(caller) = &call.caller else { return true };
        let globs = self.allowed.get(&caller.agent);
        globs.is_some_and(|globs| globs.iter().any(|glob| glob_matches(glob, name)))
    }
}

impl BuiltInTool for ReadSkillTool {
    fn describe(&self) -> RemoteTool {
        RemoteTool {
            name: READ_SKILL_TOOL.to_owned(),
            description: "Reads a skill: instructions for a certain kind of work, from the list \
                          of skills that you were given. With `file`, reads a file that belongs to \
                          the skill, by its path in the skill's folder."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "The skill's name"},
                    "file": {
                        "type": "string",
                        "description": "A file of the skill, such as `reference.md`",
                    },
                },
                "required": ["name"],
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
        let text = |name: &str| call.arguments[name].as_str().map(str::to_owned);
        let (name, file) = (text("name").unwrap_or_default(), text("file"));
        let may_read = self.may_read(&call, &name);
        let library = self.library.clone();
        async move {
            if !may_read {
                return failed_outcome(format!("there is no skill `{name}`"));
            }
            if file.is_none()
                && let Some(text) = library.cached_text(&name)
            {
                let text = text.to_string();
                return ToolOutcome::Completed(ToolOutput { text, ..Default::default() });
            }
            let read = tokio::task::spawn_blocking(move || library.read(&name, file.as_deref()));
            match read.await {
                Ok(Ok(text)) => ToolOutcome::Completed(ToolOutput { text, ..Default::default() }),
                Ok(Err(problem)) => failed_outcome(problem),
                Err(_) => failed_outcome("reading the skill failed inside the server"),
            }
        }
        .boxed()
    }
}
