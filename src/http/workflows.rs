//! Workflows (C3) from files and from prompts of MCP servers: listing and starting them. A workflow
//! is instantiated before its message is submitted; the session stores the result and does not
//! depend on the file afterwards.

use super::{AppState, Problem, State, access_control::Caller, endpoint::Endpoint, extract};
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

/// Returns the endpoints of this resource.
pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/agent/workflows", list)
            .operation(
                "list_workflows",
                "Lists workflows from files and from prompts of tool servers.",
            )
            .returns::<WorkflowList>("The current workflows"),
    ]
}

/// The available workflows.
#[derive(Serialize, ToSchema)]
struct WorkflowList {
    workflows: Vec<WorkflowView>,
    /// Workflow files that could not be loaded. Only for administrators, since paths are in the
    /// errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    broken_workflows: Option<Vec<InvalidFile>>,
}

/// A workflow.
#[derive(Serialize, ToSchema)]
#[schema(as = Workflow)]
struct WorkflowView {
    /// The name that starts the workflow: the name of a file, or `server:prompt`.
    name: String,
    source: WorkflowSource,
    /// The server that provides the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    description: String,
    inputs: Vec<WorkflowInput>,
    /// Globs of the tools that the run may use; `null` allows all tools of the agent.
    tools: Option<Vec<String>>,
    /// Maximum autonomy level of the run.
    autonomy_level: Option<Autonomy>,
    /// True if the run starts with a preflight.
    preflight: bool,
}

/// The source of a workflow.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WorkflowSource)]
enum WorkflowSource {
    /// A file.
    File,
    /// A prompt of a tool server.
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
    /// True if the input must be given.
    required: bool,
    /// The default value.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Value>,
    /// The allowed values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<Value>,
}

/// A workflow to start, with its inputs.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkflowRequest {
    /// The name of a file, or `server:prompt`.
    pub(super) name: String,
    /// The inputs by name.
    #[serde(default)]
    pub(super) inputs: Map<String, Value>,
}

/// Parses a workflow request that is a part of a message.
pub(super) fn parse_workflow(value: Value) -> Result<WorkflowRequest, Problem> {
    let parsed = serde_path_to_error::deserialize(value);
    parsed.map_err(|error| {
        let error = extract::shorten(&error.to_string());
        Problem::invalid("workflow", format!("`workflow`: {error}"))
    })
}

impl WorkflowRequest {
    /// Returns the command text that represents the request.
    pub(super) fn to_command(&self) -> String {
        workflow::format_command(&self.name, &self.inputs)
    }
}

/// `GET /agent/workflows`
async fn list(state: State, caller: Caller) -> Result<HttpResponse, Problem> {
    let files = state.workflows.list();
    let prompts = state.runtime.tools.list_prompts().await;
    let file_views = files.iter().map(|workflow| WorkflowView::from(&**workflow));
    let workflows = file_views.chain(prompts.into_iter().map(WorkflowView::from)).collect();
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

/// Returns an error if the workflow cannot be started. For a prompt, only its name and arguments are
/// checked; its server is not asked to render it.
pub(super) async fn check_workflow(
    state: &AppState,
    request: &WorkflowRequest,
) -> Result<(), Problem> {
    let WorkflowRequest { name, inputs } = request;
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
        problem("invalid_workflow_input", format!("`{field}`: {}", invalid.problem), field)
    })
}

/// Returns server, name and arguments of the prompt that `name` refers to.
async fn find_prompt<'a>(
    state: &AppState,
    name: &'a str,
    inputs: &Map<String, Value>,
) -> Result<(&'a str, &'a str, Map<String, Value>), Problem> {
    let missing = || {
        let detail = format!("unknown workflow `{}`", truncate(name, 128));
        problem("unknown_workflow", detail, "workflow.name")
    };
    let (server, prompt) = name.split_once(':').ok_or_else(missing)?;
    let prompts = state.runtime.tools.list_prompts().await;
    let is_requested =
        |candidate: &&ServerPrompt| candidate.server == server && candidate.name == prompt;
    let known = prompts.iter().find(is_requested).ok_or_else(missing)?;
    Ok((server, prompt, arguments(known, inputs)?))
}

/// Instantiates the requested workflow or, if none is requested, the default one of the agent.
pub(super) async fn start_requested_workflow(
    state: &AppState,
    agent: &AgentName,
    request: Option<WorkflowRequest>,
) -> Result<Option<Arc<StartedWorkflow>>, Problem> {
    let profile = state.runtime.governance().agents.get(agent);
    let default_workflow = || {
        let name = profile?.workflow.clone()?;
        Some(WorkflowRequest { name, inputs: Map::new() })
    };
    let Some(WorkflowRequest { name, inputs }) = request.or_else(default_workflow) else {
        return Ok(None);
    };
    if let Some(workflow) = state.workflows.get(&name) {
        return Ok(Some(Arc::new(start_workflow(&workflow, &inputs)?)));
    }
    let (server, prompt, arguments) = find_prompt(state, &name, &inputs).await?;
    let text = state.runtime.tools.get_prompt(server, prompt, arguments).await;
    let text = text.map_err(|error| {
        let detail = format!("the server could not provide the prompt: {error}");
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

/// Converts the inputs to the arguments of a prompt, which are strings. Unknown inputs are errors.
fn arguments(
    prompt: &ServerPrompt,
    inputs: &Map<String, Value>,
) -> Result<Map<String, Value>, Problem> {
    let invalid = |name: &str, detail: &str| {
        let field = format!("workflow.inputs.{}", truncate(name, 64));
        problem("invalid_workflow_input", format!("`{field}`: {detail}"), &field)
    };
    let mut arguments = Map::new();
    for (name, value) in inputs {
        if !prompt.arguments.iter().any(|argument| argument.name == *name) {
            return Err(invalid(name, "unknown input"));
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        arguments.insert(name.clone(), text.into());
    }
    let is_missing = |name: &str| !inputs.contains_key(name);
    match prompt.arguments.iter().find(|input| input.required && is_missing(&input.name)) {
        Some(missing) => Err(invalid(&missing.name, "missing; a string is required")),
        None => Ok(arguments),
    }
}

fn problem(code: &'static str, detail: String, field: &str) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail).with_member("field", field)
}
