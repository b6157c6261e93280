//! Workflows (C3): those in files and the prompts of MCP servers, listed and started. What a run gets
//! of one is made here, before its message is submitted; the session keeps that, whatever becomes of
//! the file.

use super::{AppState, Problem, State, access_control::Caller, endpoint::Endpoint};
use crate::skill::InvalidFile;
use actix_web::{HttpResponse, http::StatusCode};
use greenroom_actors::ports::ServerPrompt;
use greenroom_core::{
    context::{StartedWorkflow, Workflow, WorkflowInputType, workflow},
    ids::AgentName,
    limits::WORKFLOW_TEXT_BYTES_MAX,
    policy::Autonomy,
    text::truncate,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

/// What stands here.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/workflows", list)
            .operation(
                "list_workflows",
                "Workflows: those in files, and the prompts of tool servers.",
            )
            .returns::<WorkflowList>("What there is now"),
    ]
}

/// What a message can be started with.
#[derive(Serialize, ToSchema)]
struct WorkflowList {
    workflows: Vec<WorkflowView>,
    /// For administrators: paths are the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    broken_workflows: Option<Vec<InvalidFile>>,
}

/// A workflow.
#[derive(Serialize, ToSchema)]
#[schema(as = Workflow)]
struct WorkflowView {
    /// What it is started by: a file's name, or `server:prompt`.
    name: String,
    source: WorkflowSource,
    /// The server whose prompt it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    description: String,
    inputs: Vec<WorkflowInput>,
    /// Globs over the tools that its run may use; `null` is all the agent's.
    tools: Option<Vec<String>>,
    /// The most that its run may do by itself.
    autonomy_level: Option<Autonomy>,
    /// Whether its run begins with a plan.
    preflight: bool,
}

/// Where a workflow comes from.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WorkflowSource)]
enum WorkflowSource {
    /// A file.
    File,
    /// A tool server's prompt.
    Mcp,
}

/// An input of a workflow.
#[derive(Serialize, ToSchema)]
#[schema(as = WorkflowInput)]
struct WorkflowInput {
    name: String,
    r#type: WorkflowInputType,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    /// Whether there must be one.
    required: bool,
    /// What it is where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Value>,
    /// The only values it may have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<Value>,
}

/// A workflow to start, by name.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkflowRequest {
    /// A file's name, or `server:prompt`.
    pub(super) name: String,
    /// What it wants to know, by name.
    #[serde(default)]
    pub(super) inputs: Map<String, Value>,
}

/// Reads what a client asks for where its message is read in parts.
pub(super) fn parse_workflow(value: Value) -> Result<WorkflowRequest, Problem> {
    let read = serde_path_to_error::deserialize(value);
    read.map_err(|error| Problem::invalid("workflow", format!("workflow.{error}")))
}

impl WorkflowRequest {
    /// The message that stands for it.
    pub(super) fn to_command(&self) -> String {
        workflow::format_command(&self.name, &self.inputs)
    }
}

/// `GET /agent/workflows`
async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    let files = state.workflows.list();
    let prompts = state.runtime.tools.list_prompts().await;
    let of_files = files.iter().map(|workflow| WorkflowView::from(&**workflow));
    let workflows = of_files.chain(prompts.into_iter().map(WorkflowView::from)).collect();
    let broken_workflows = caller.0.is_admin().then(|| state.workflows.invalid_files());
    let list = WorkflowList { workflows, broken_workflows };
    Ok(HttpResponse::Ok().json(state.redactor.redact(&list)))
}

impl From<&Workflow> for WorkflowView {
    fn from(workflow: &Workflow) -> Self {
        let inputs = workflow.inputs.iter().map(|(name, spec)| WorkflowInput {
            name: name.clone(),
            r#type: spec.kind,
            description: spec.description.clone(),
            required: spec.is_required(),
            default: spec.default.clone(),
            choices: spec.choices.clone(),
        });
        Self {
            name: workflow.name.clone(),
            source: WorkflowSource::File,
            server: None,
            description: workflow.description.clone(),
            inputs: inputs.collect(),
            tools: workflow.tools.clone(),
            autonomy_level: workflow.autonomy,
            preflight: workflow.preflight,
        }
    }
}

impl From<ServerPrompt> for WorkflowView {
    fn from(prompt: ServerPrompt) -> Self {
        let inputs = prompt.arguments.into_iter().map(|argument| WorkflowInput {
            name: argument.name,
            r#type: WorkflowInputType::String,
            description: argument.description,
            required: argument.required,
            default: None,
            choices: Vec::new(),
        });
        Self {
            name: format!("{}:{}", prompt.server, prompt.name),
            source: WorkflowSource::Mcp,
            inputs: inputs.collect(),
            server: Some(prompt.server),
            description: prompt.description,
            tools: None,
            autonomy_level: None,
            preflight: false,
        }
    }
}

/// Errs where a workflow that is asked for can't be started, as far as can be told without asking
/// the server whose prompt it is.
pub(super) async fn check_workflow(
    state: &AppState,
    wish: &WorkflowRequest,
) -> Result<(), Problem> {
    let WorkflowRequest { name, inputs } = wish;
    match state.workflows.get(name) {
        Some(workflow) => start_workflow(&workflow, inputs).map(|_| ()),
        None => find_prompt(state, name, inputs).await.map(|_| ()),
    }
}

fn start_workflow(
    workflow: &Workflow,
    inputs: &Map<String, Value>,
) -> Result<StartedWorkflow, Problem> {
    workflow.start(inputs).map_err(|invalid| {
        let field = format!("workflow.inputs.{}", invalid.input);
        let field = field.trim_end_matches('.');
        problem("invalid_workflow_input", format!("{field}: {}", invalid.problem), field)
    })
}

/// The server and the prompt of that name, and what it is asked with.
async fn find_prompt<'a>(
    state: &AppState,
    name: &'a str,
    inputs: &Map<String, Value>,
) -> Result<(&'a str, &'a str, Map<String, Value>), Problem> {
    let missing = || {
        let detail = format!("there is no workflow `{}`", truncate(name, 128));
        problem("unknown_workflow", detail, "workflow.name")
    };
    let (server, prompt) = name.split_once(':').ok_or_else(missing)?;
    let prompts = state.runtime.tools.list_prompts().await;
    let of_name = |it: &&ServerPrompt| it.server == server && it.name == prompt;
    let known = prompts.iter().find(of_name).ok_or_else(missing)?;
    Ok((server, prompt, arguments(known, inputs)?))
}

/// What a run gets of the workflow that is asked for, or else of its agent's own.
pub(super) async fn start_requested_workflow(
    state: &AppState,
    agent: &AgentName,
    wish: Option<WorkflowRequest>,
) -> Result<Option<Arc<StartedWorkflow>>, Problem> {
    let profile = state.runtime.governance().agents.get(agent);
    let usual = || {
        let name = profile?.workflow.clone()?;
        Some(WorkflowRequest { name, inputs: Map::new() })
    };
    let Some(WorkflowRequest { name, inputs }) = wish.or_else(usual) else { return Ok(None) };
    if let Some(workflow) = state.workflows.get(&name) {
        return Ok(Some(Arc::new(start_workflow(&workflow, &inputs)?)));
    }
    let (server, prompt, arguments) = find_prompt(state, &name, &inputs).await?;
    let text = state.runtime.tools.get_prompt(server, prompt, arguments).await;
    let text = text.map_err(|error| {
        let detail = format!("the server's prompt can't be had: {error}");
        problem(
            "workflow_unavailable",
            state.redactor.redact_text(&detail).into_owned(),
            "workflow.name",
        )
    })?;
    let text = truncate(&text, WORKFLOW_TEXT_BYTES_MAX).into();
    let (tools, autonomy, preflight) = (None, None, false);
    Ok(Some(Arc::new(StartedWorkflow { name, inputs, text, tools, autonomy, preflight })))
}

/// The inputs as a prompt's arguments: texts, and no others than it knows.
fn arguments(
    prompt: &ServerPrompt,
    inputs: &Map<String, Value>,
) -> Result<Map<String, Value>, Problem> {
    let invalid = |name: &str, detail: &str| {
        let field = format!("workflow.inputs.{}", truncate(name, 64));
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
