//! Workflows (C3): those in files and the prompts of MCP servers, listed and started. What a run gets
//! of one is made here, before its message is submitted; the session keeps that, whatever becomes of
//! the file.

use super::{AppState, Problem, State, guard::Caller};
use actix_web::{HttpResponse, http::StatusCode};
use greenroom_actors::ports::ServerPrompt;
use greenroom_core::{
    context::{StartedWorkflow, Workflow, workflow},
    ids::AgentName,
    limits::WORKFLOW_TEXT_BYTES_MAX,
    text::cut,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What a client asks for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkflowWish {
    /// A file's name, or `server:prompt`.
    pub(super) name: String,
    #[serde(default)]
    pub(super) inputs: Map<String, Value>,
}

/// Reads what a client asks for where its message is read in parts.
pub(super) fn wish(value: Value) -> Result<WorkflowWish, Problem> {
    let read = serde_path_to_error::deserialize(value);
    read.map_err(|error| Problem::invalid("workflow", format!("workflow.{error}")))
}

impl WorkflowWish {
    /// The message that stands for it.
    pub(super) fn command(&self) -> String {
        workflow::command(&self.name, &self.inputs)
    }
}

/// `GET /agent/workflows`
pub(super) async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    let files = state.workflows.all();
    let mut listed: Vec<Value> = files.iter().map(|workflow| view(workflow)).collect();
    let prompts = state.runtime.tools.prompts().await;
    listed.extend(prompts.iter().map(view_of_prompt));
    let mut body = json!({ "workflows": listed });
    // Paths are the operator's.
    if caller.0.is_admin() {
        body["broken_workflows"] = json!(state.workflows.broken());
    }
    Ok(HttpResponse::Ok().json(state.redactor.scrubbed(body)))
}

fn view(workflow: &Workflow) -> Value {
    let inputs = workflow.inputs.iter().map(|(name, spec)| {
        let mut view = json!(spec);
        view["name"] = json!(name);
        view["required"] = json!(spec.is_required());
        view
    });
    json!({
        "name": workflow.name, "source": "file", "description": workflow.description,
        "inputs": inputs.collect::<Vec<_>>(), "tools": workflow.tools,
        "autonomy_level": workflow.autonomy, "preflight": workflow.preflight,
    })
}

fn view_of_prompt(prompt: &ServerPrompt) -> Value {
    let inputs = prompt.arguments.iter().map(|argument| {
        json!({
            "name": argument.name, "type": "string", "description": argument.description,
            "required": argument.required,
        })
    });
    json!({
        "name": format!("{}:{}", prompt.server, prompt.name), "source": "mcp",
        "server": prompt.server, "description": prompt.description,
        "inputs": inputs.collect::<Vec<_>>(), "preflight": false,
    })
}

/// What a run gets of the workflow that is asked for, or else of its agent's own.
pub(super) async fn started(
    state: &AppState,
    agent: &AgentName,
    wish: Option<WorkflowWish>,
) -> Result<Option<Arc<StartedWorkflow>>, Problem> {
    let profile = state.runtime.governance().agents.get(agent);
    let usual = || {
        let name = profile?.workflow.clone()?;
        Some(WorkflowWish { name, inputs: Map::new() })
    };
    let Some(WorkflowWish { name, inputs }) = wish.or_else(usual) else { return Ok(None) };
    if let Some(workflow) = state.workflows.get(&name) {
        let started = workflow.start(&inputs).map_err(|invalid| {
            let field = format!("workflow.inputs.{}", invalid.input);
            let field = field.trim_end_matches('.');
            problem("invalid_workflow_input", format!("{field}: {}", invalid.problem), field)
        })?;
        return Ok(Some(Arc::new(started)));
    }
    let missing = || {
        let detail = format!("there is no workflow `{}`", cut(&name, 128));
        problem("unknown_workflow", detail, "workflow.name")
    };
    let (server, prompt) = name.split_once(':').ok_or_else(missing)?;
    let prompts = state.runtime.tools.prompts().await;
    let of_name = |it: &&ServerPrompt| it.server == server && it.name == prompt;
    let known = prompts.iter().find(of_name).ok_or_else(missing)?;
    let arguments = arguments(known, &inputs)?;
    let text = state.runtime.tools.prompt(server, prompt, arguments).await;
    let text = text.map_err(|error| {
        let detail = format!("the server's prompt can't be had: {error}");
        problem("workflow_unavailable", state.redactor.text(&detail).into_owned(), "workflow.name")
    })?;
    let text = cut(&text, WORKFLOW_TEXT_BYTES_MAX).into();
    let (tools, autonomy, preflight) = (None, None, false);
    Ok(Some(Arc::new(StartedWorkflow { name, inputs, text, tools, autonomy, preflight })))
}

/// The inputs as a prompt's arguments: texts, and no others than it knows.
fn arguments(
    prompt: &ServerPrompt,
    inputs: &Map<String, Value>,
) -> Result<Map<String, Value>, Problem> {
    let invalid = |name: &str, detail: &str| {
        let field = format!("workflow.inputs.{}", cut(name, 64));
        problem("invalid_workflow_input", format!("{field}: {detail}"), &field)
    };
    let mut arguments = Map::new();
    for (name, value) in inputs {
        if !prompt.arguments.iter().any(|argument| argument.name == *name) {
            return Err(invalid(name, "there is no such input"));
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        arguments.insert(name.clone(), text.into());
    }
    let is_missing = |name: &str| !inputs.contains_key(name);
    match prompt.arguments.iter().find(|it| it.required && is_missing(&it.name)) {
        Some(missing) => Err(invalid(&missing.name, "is missing; it must be a text")),
        None => Ok(arguments),
    }
}

fn problem(code: &'static str, detail: String, field: &str) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail).with("field", field)
}
