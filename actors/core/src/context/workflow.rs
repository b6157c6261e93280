//! Workflows (C3): templates of what an agent is told for one run, with typed inputs.
//!
//! A file is a front matter in YAML and a MiniJinja template after it. Rendering is bounded in work and
//! size, and sees nothing but the inputs: no files, no environment, no other templates.

use super::front_matter;
use crate::{
    limits::{
        WORKFLOW_BYTES_MAX, WORKFLOW_FUEL, WORKFLOW_INPUT_BYTES_MAX, WORKFLOW_INPUTS_MAX,
        WORKFLOW_TEXT_BYTES_MAX, WORKFLOW_TOOLS_MAX,
    },
    policy::Autonomy,
    text::{glob_matches, truncate},
};
use minijinja::{Environment, UndefinedBehavior, value::Serde};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fmt, io, sync::Arc};
use utoipa::ToSchema;

/// A workflow, as files say it.
#[derive(Clone, Debug, PartialEq)]
pub struct Workflow {
    /// Its name; `/name` starts it.
    pub name: String,
    /// For people.
    pub description: String,
    /// What it wants to know, by name.
    pub inputs: BTreeMap<String, WorkflowInputSpec>,
    /// Globs over the tools that its run may use; `None` is all the agent's.
    pub tools: Option<Vec<String>>,
    /// The most that its run may do by itself; never more than the session.
    pub autonomy: Option<Autonomy>,
    /// Whether its run begins with a plan (G14).
    pub preflight: bool,
    /// The template.
    pub body: String,
}

/// An input of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkflowInputSpec {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: WorkflowInputType,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether there must be one; by default, unless it has a default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// What it is where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The only values it may have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Value>,
}

/// The type of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowInputType {
    /// A text.
    #[default]
    String,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
}

impl WorkflowInputSpec {
    /// Whether there must be one.
    pub fn is_required(&self) -> bool {
        self.required.unwrap_or(self.default.is_none())
    }
}

/// A workflow that a run was started with: all that the run needs of it, whatever becomes of the
/// file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartedWorkflow {
    /// Its name.
    pub name: String,
    /// The inputs, defaults included.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub inputs: Map<String, Value>,
    /// What the model is told.
    pub text: Arc<str>,
    /// Globs over the tools that the run may use; `None` is all the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The most that the run may do by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autonomy: Option<Autonomy>,
    /// Whether the run begins with a plan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preflight: bool,
}

impl StartedWorkflow {
    /// Whether its run may use the tool of that name.
    pub fn can_use_tool(&self, tool: &str) -> bool {
        let named = |globs: &Vec<String>| globs.iter().any(|glob| glob_matches(glob, tool));
        self.tools.as_ref().is_none_or(named)
    }
}

/// Why a workflow can't be started with those inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{input}: {problem}")]
pub struct InvalidWorkflowInput {
    /// Which; empty where it is the template.
    pub input: String,
    /// What is wrong.
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
    /// Reads a workflow's file. The error says for people what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > WORKFLOW_BYTES_MAX {
            return Err(format!("it may have at most {WORKFLOW_BYTES_MAX} bytes"));
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
            return Err("its name must be 1 to 64 letters, digits, `-`, `_` or `.`".to_owned());
        }
        if self.inputs.len() > WORKFLOW_INPUTS_MAX {
            return Err(format!("it may have at most {WORKFLOW_INPUTS_MAX} inputs"));
        }
        if self.tools.as_ref().is_some_and(|tools| tools.len() > WORKFLOW_TOOLS_MAX) {
            return Err(format!("it may name at most {WORKFLOW_TOOLS_MAX} tools"));
        }
        for (name, spec) in &self.inputs {
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("the input `{name}` must be letters, digits and `_`"));
            }
            for value in spec.choices.iter().chain(&spec.default) {
                let fits = spec.kind.coerce(value).map_err(|problem| (name, problem));
                fits.map_err(|(name, problem)| format!("the input `{name}`: {value} {problem}"))?;
            }
        }
        // Its loops and names are checked when it is rendered; its form, here.
        let compiled = environment().template_from_str(&self.body).map(drop);
        compiled.map_err(|error| format!("its template: {}", format_template_error(&error)))
    }

    /// The workflow with these inputs, which are checked. A text that says a number, or `true` or
    /// `false`, is one where one is wanted: that is how people type them.
    pub fn start(
        &self,
        given: &Map<String, Value>,
    ) -> Result<StartedWorkflow, InvalidWorkflowInput> {
        let invalid = |input: &str, problem: String| InvalidWorkflowInput {
            input: input.to_owned(),
            problem,
        };
        if let Some(unknown) = given.keys().find(|name| !self.inputs.contains_key(*name)) {
            let known: Vec<_> = self.inputs.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let problem = format!("there is no such input; there are: {known}");
            return Err(invalid(truncate(unknown, 64), problem));
        }
        let mut inputs = Map::new();
        for (name, spec) in &self.inputs {
            let value = match given.get(name).filter(|value| !value.is_null()) {
                Some(value) => value,
                None => match &spec.default {
                    Some(default) => default,
                    None if spec.is_required() => {
                        return Err(invalid(name, format!("is missing; it must be {}", spec.kind)));
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
            template.map_err(|error| format!("the template: {}", format_template_error(&error)))?;
        // Inputs that were not given are there, as nothing: `{% if region %}` may ask.
        let absent = self.inputs.keys().filter(|name| !inputs.contains_key(*name));
        let absent = absent.map(|name| (name.clone(), Value::Null));
        let all: Map<String, Value> = inputs.clone().into_iter().chain(absent).collect();
        let mut text = BoundedWriter::default();
        match template.render_captured_to(minijinja::Value::from(Serde(&all)), &mut text) {
            Ok(_) => Ok(String::from_utf8_lossy(&text.0).trim().to_owned()),
            Err(_) if text.0.len() >= WORKFLOW_TEXT_BYTES_MAX => {
                Err(format!("the template makes more than {WORKFLOW_TEXT_BYTES_MAX} bytes"))
            }
            Err(error) => Err(format!("the template: {}", format_template_error(&error))),
        }
    }
}

impl WorkflowInputType {
    /// The value as this type, if it is one.
    fn coerce(self, value: &Value) -> Result<Value, String> {
        let parsed = || {
            let text = value.as_str()?.trim();
            serde_json::from_str::<Value>(text).ok()
        };
        let fits = |value: &Value| match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Boolean => value.is_boolean(),
        };
        if value.as_str().is_some_and(|text| text.len() > WORKFLOW_INPUT_BYTES_MAX) {
            return Err(format!("may have at most {WORKFLOW_INPUT_BYTES_MAX} bytes"));
        }
        if fits(value) {
            return Ok(value.clone());
        }
        parsed().filter(|value| fits(value)).ok_or_else(|| format!("must be {self}"))
    }
}

impl fmt::Display for WorkflowInputType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::String => "a text",
            Self::Number => "a number",
            Self::Integer => "a whole number",
            Self::Boolean => "true or false",
        })
    }
}

/// `/name key=value …`: how a workflow is started where people type, and what stands in the
/// conversation for it. Inputs in the order of their names.
pub fn format_command(name: &str, inputs: &Map<String, Value>) -> String {
    let sorted: BTreeMap<&String, &Value> = inputs.iter().collect();
    let mut line = format!("/{name}");
    for (key, value) in sorted {
        let is_plain = |text: &&str| {
            !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '"')
        };
        let said = value.as_str().filter(is_plain).map_or(value.to_string(), str::to_owned);
        line.push_str(&format!(" {key}={said}"));
    }
    line
}

/// Reads what follows `/name`: `key=value` pairs; values with spaces in quotes, as in JSON.
pub fn parse_inputs(rest: &str) -> Result<Map<String, Value>, String> {
    let mut inputs = Map::new();
    let mut rest = rest.trim_start();
    while !rest.is_empty() {
        let word = rest.split_whitespace().next().unwrap_or_default();
        let (key, after) = rest
            .split_once('=')
            .filter(|(key, _)| !key.contains(char::is_whitespace))
            .ok_or_else(|| format!("`{}` is no input; write key=value", truncate(word, 64)))?;
        let (value, left) = if after.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(after).into_iter::<String>();
            let value = values.next().and_then(Result::ok);
            let value = value.ok_or_else(|| format!("the quotes of `{key}` do not end"))?;
            (value, &after[values.byte_offset()..])
        } else {
            let end = after.find(char::is_whitespace).unwrap_or(after.len());
            (after[..end].to_owned(), &after[end..])
        };
        if inputs.insert(key.to_owned(), Value::String(value)).is_some() {
            return Err(format!("`{key}` is said twice"));
        }
        rest = left.trim_start();
    }
    Ok(inputs)
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(WORKFLOW_FUEL));
    environment
}

fn format_template_error(error: &minijinja::Error) -> String {
    let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{}{line}{}", error.kind(), truncate(&detail, 256))
}

/// What a template may write.
#[derive(Default)]
struct BoundedWriter(Vec<u8>);

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = WORKFLOW_TEXT_BYTES_MAX.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
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
