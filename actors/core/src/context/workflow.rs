//! Workflows (C3): prompt templates for one run, with typed inputs.
//!
//! A workflow file is a YAML front matter followed by a MiniJinja template. Rendering is bounded in
//! work and size. A template can read the inputs only: no files, no environment, no other templates.

use super::front_matter;
use crate::{
    json::to_template_value,
    limits::{
        WORKFLOW_BYTES_MAX, WORKFLOW_FUEL, WORKFLOW_INPUT_VALUE_BYTES_MAX, WORKFLOW_INPUTS_MAX,
        WORKFLOW_TEXT_BYTES_MAX, WORKFLOW_TOOLS_MAX,
    },
    policy::Autonomy,
    text::{glob_matches, truncate},
};
use minijinja::{Environment, UndefinedBehavior, escape_formatter};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use std::{collections::BTreeMap, fmt, io, sync::Arc};
use utoipa::ToSchema;

/// A parsed workflow file.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    /// Name; `/name` starts the workflow.
    pub name: String,
    /// Description for users.
    pub description: String,
    /// The inputs, by name.
    pub inputs: BTreeMap<String, WorkflowInputSpec>,
    /// Globs of the tools that the run may use; `None` allows every tool of the agent.
    pub tools: Option<Vec<String>>,
    /// Ceiling of the run's autonomy. The session's autonomy still applies.
    pub autonomy: Option<Autonomy>,
    /// True if the run starts with a plan (G14).
    pub preflight: bool,
    /// The template that is rendered to the prompt text.
    pub body: String,
}

/// An input of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkflowInputSpec {
    /// Type of the value.
    #[serde(rename = "type")]
    pub kind: WorkflowInputType,
    /// Description for users.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// True if the input must be given. By default true if the input has no default value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Value that is used if the input is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Permitted values; empty permits every value of the type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Value>,
}

/// The type of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowInputType {
    /// A string.
    #[default]
    String,
    /// A number.
    Number,
    /// An integer.
    Integer,
    /// `true` or `false`.
    Boolean,
}

impl WorkflowInputSpec {
    /// True if the input must be given.
    pub fn is_required(&self) -> bool {
        self.required.unwrap_or(self.default.is_none())
    }
}

/// A workflow that started a run. It contains everything that the run needs, so that the run does
/// not depend on the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartedWorkflow {
    /// The workflow's name.
    pub name: String,
    /// The inputs, including defaults.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub inputs: Map<String, Value>,
    /// The rendered text that the model reads.
    pub text: Arc<str>,
    /// Globs of the tools that the run may use; `None` allows every tool of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Ceiling of the run's autonomy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autonomy: Option<Autonomy>,
    /// True if the run starts with a plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preflight: bool,
}

impl StartedWorkflow {
    /// True if the run may use `tool`.
    pub fn can_use_tool(&self, tool: &str) -> bool {
        let matches = |globs: &Vec<String>| globs.iter().any(|glob| glob_matches(glob, tool));
        self.tools.as_ref().is_none_or(matches)
    }
}

/// A workflow cannot be started with the given inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{input}: {problem}")]
pub struct InvalidWorkflowInput {
    /// The input's name; empty if the template failed.
    pub input: String,
    /// Description of the problem.
    pub problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkflowFrontMatter {
    name: String,
    description: String,
    #[serde(default)]
    inputs: BTreeMap<String, WorkflowInputSpec>,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(default)]
    autonomy: Option<Autonomy>,
    #[serde(default)]
    preflight: bool,
}

impl Workflow {
    /// Parses a workflow file. The error is a message for the operator.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > WORKFLOW_BYTES_MAX {
            return Err(format!("{} bytes; the limit is {WORKFLOW_BYTES_MAX}", text.len()));
        }
        let (head, body) = front_matter::split(text)?;
        let head: WorkflowFrontMatter = front_matter::parse(head)?;
        let workflow = Self {
            name: head.name.trim().to_owned(),
            description: head.description.split_whitespace().collect::<Vec<_>>().join(" "),
            inputs: head.inputs,
            tools: head.tools,
            autonomy: head.autonomy,
            preflight: head.preflight,
            body: body.trim().to_owned(),
        };
        workflow.validate()?;
        Ok(workflow)
    }

    fn validate(&self) -> Result<(), String> {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(is_legal) {
            return Err(
                "`name`: must consist of 1 to 64 letters, digits, `-`, `_` or `.`".to_owned()
            );
        }
        let inputs = self.inputs.len();
        if inputs > WORKFLOW_INPUTS_MAX {
            return Err(format!("`inputs`: {inputs} inputs; the limit is {WORKFLOW_INPUTS_MAX}"));
        }
        let globs = self.tools.as_ref().map_or(0, Vec::len);
        if globs > WORKFLOW_TOOLS_MAX {
            return Err(format!("`tools`: {globs} entries; the limit is {WORKFLOW_TOOLS_MAX}"));
        }
        for (name, spec) in &self.inputs {
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!(
                    "input `{name}`: the name must consist of letters, digits and `_`"
                ));
            }
            for value in spec.choices.iter().chain(&spec.default) {
                let fits = spec.kind.coerce(value).map_err(|problem| (name, problem));
                fits.map_err(|(name, problem)| format!("input `{name}`: {value}: {problem}"))?;
            }
        }
        // Only the syntax is checked here; undefined names and endless loops fail at rendering.
        let compiled = environment().template_from_str(&self.body).map(drop);
        compiled.map_err(|error| format!("template: {}", format_template_error(&error)))
    }

    /// Starts the workflow with `given_inputs`: validates them, adds defaults and renders the
    /// template. A string that contains a number or a boolean is converted if the input has that
    /// type, because users type inputs as text.
    pub fn start(
        &self,
        given_inputs: &Map<String, Value>,
    ) -> Result<StartedWorkflow, InvalidWorkflowInput> {
        let invalid = |input: &str, problem: String| InvalidWorkflowInput {
            input: input.to_owned(),
            problem,
        };
        if let Some(unknown) = given_inputs.keys().find(|name| !self.inputs.contains_key(*name)) {
            let known: Vec<_> = self.inputs.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let problem = format!("unknown input; known inputs: {known}");
            return Err(invalid(truncate(unknown, 64), problem));
        }
        let mut inputs = Map::new();
        for (name, spec) in &self.inputs {
            let value = match given_inputs.get(name).filter(|value| !value.is_null()) {
                Some(value) => value,
                None => match &spec.default {
                    Some(default) => default,
                    None if spec.is_required() => {
                        return Err(invalid(name, format!("missing; must be {}", spec.kind)));
                    }
                    None => continue,
                },
            };
            let value = spec.kind.coerce(value).map_err(|problem| invalid(name, problem))?;
            if !spec.choices.is_empty() && !spec.choices.contains(&value) {
                let choices: Vec<_> = spec.choices.iter().map(Value::to_string).collect();
                return Err(invalid(name, format!("must be one of {}", choices.join(", "))));
            }
            inputs.insert(name.clone(), value);
        }
        let text = self.render(&inputs).map_err(|problem| invalid("", problem))?;
        Ok(StartedWorkflow {
            name: self.name.clone(),
            inputs,
            text: text.into(),
            tools: self.tools.clone(),
            autonomy: self.autonomy,
            preflight: self.preflight,
        })
    }

    fn render(&self, inputs: &Map<String, Value>) -> Result<String, String> {
        let environment = environment();
        let template = environment.template_from_str(&self.body);
        let template =
            template.map_err(|error| format!("template: {}", format_template_error(&error)))?;
        // Optional inputs that are not given are null, so that `{% if region %}` works; they are
        // rendered as empty text.
        let absent = self.inputs.keys().filter(|name| !inputs.contains_key(*name));
        let absent = absent.map(|name| (name.clone(), Value::Null));
        let all: Map<String, Value> = inputs.clone().into_iter().chain(absent).collect();
        let mut text = BoundedWriter::default();
        match template.render_captured_to(to_template_value(&Value::Object(all)), &mut text) {
            Ok(_) => Ok(String::from_utf8_lossy(&text.0).trim().to_owned()),
            Err(_) if text.0.len() >= WORKFLOW_TEXT_BYTES_MAX => {
                Err(format!("template: the text exceeds {WORKFLOW_TEXT_BYTES_MAX} bytes"))
            }
            Err(error) => Err(format!("template: {}", format_template_error(&error))),
        }
    }
}

impl WorkflowInputType {
    /// Converts `value` to this type, or returns what it must be.
    fn coerce(self, value: &Value) -> Result<Value, String> {
        let parsed = || {
            let text = value.as_str()?.trim();
            serde_json::from_str::<Value>(text).ok()
        };
        let fits = |value: &Value| match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.as_number().is_some_and(is_integer_literal),
            Self::Boolean => value.is_boolean(),
        };
        let bytes = value.as_str().map_or(0, str::len);
        if bytes > WORKFLOW_INPUT_VALUE_BYTES_MAX {
            return Err(format!("{bytes} bytes; the limit is {WORKFLOW_INPUT_VALUE_BYTES_MAX}"));
        }
        if fits(value) {
            return Ok(value.clone());
        }
        parsed().filter(|value| fits(value)).ok_or_else(|| format!("must be {self}"))
    }
}

/// True if the number has no fraction and no exponent; its length does not matter.
fn is_integer_literal(number: &Number) -> bool {
    number.as_str().bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

impl fmt::Display for WorkflowInputType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::String => "a string",
            Self::Number => "a number",
            Self::Integer => "an integer",
            Self::Boolean => "true or false",
        })
    }
}

/// Formats the command that starts a workflow: `/name key=value …`, with inputs sorted by name. Users
/// type it, and it is the user message of the run.
pub fn format_command(name: &str, inputs: &Map<String, Value>) -> String {
    let sorted: BTreeMap<&String, &Value> = inputs.iter().collect();
    let mut line = format!("/{name}");
    for (key, value) in sorted {
        let is_plain = |text: &&str| {
            !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '"')
        };
        let text = value.as_str().filter(is_plain).map_or(value.to_string(), str::to_owned);
        line.push_str(&format!(" {key}={text}"));
    }
    line
}

/// Parses the arguments of a workflow command: `key=value` pairs. A value with spaces is a JSON
/// string in quotes.
pub fn parse_inputs(arguments: &str) -> Result<Map<String, Value>, String> {
    let mut inputs = Map::new();
    let mut rest = arguments.trim_start();
    while !rest.is_empty() {
        let word = rest.split_whitespace().next().unwrap_or_default();
        let (key, after) = rest
            .split_once('=')
            .filter(|(key, _)| !key.contains(char::is_whitespace))
            .ok_or_else(|| format!("`{}`: expected key=value", truncate(word, 64)))?;
        let (value, remaining) = if after.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(after).into_iter::<String>();
            let value = values.next().and_then(Result::ok);
            let value = value.ok_or_else(|| format!("`{key}`: the closing quote is missing"))?;
            (value, &after[values.byte_offset()..])
        } else {
            let end = after.find(char::is_whitespace).unwrap_or(after.len());
            (after[..end].to_owned(), &after[end..])
        };
        if inputs.insert(key.to_owned(), Value::String(value)).is_some() {
            return Err(format!("`{key}`: given more than once"));
        }
        rest = remaining.trim_start();
    }
    Ok(inputs)
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(WORKFLOW_FUEL));
    environment.set_formatter(|out, state, value| match value.is_none() {
        true => Ok(()),
        false => escape_formatter(out, state, value),
    });
    environment
}

fn format_template_error(error: &minijinja::Error) -> String {
    let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{}{line}{}", error.kind(), truncate(&detail, 256))
}

/// A buffer for a template's output; it fails beyond `WORKFLOW_TEXT_BYTES_MAX`.
#[derive(Default)]
struct BoundedWriter(Vec<u8>);

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let capacity = WORKFLOW_TEXT_BYTES_MAX.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(capacity)]);
        if bytes.len() > capacity {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "workflow_tests.rs"]
mod tests;
