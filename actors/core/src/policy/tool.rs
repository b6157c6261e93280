//! A tool with all its properties resolved from the catalog, the server's listing and its schema,
//! and the registry of all tools.

use super::{
    Constraint, CostRule, Expression, ExpressionContext,
    risk::{Risk, RiskSource},
    tool_names,
};
use crate::{
    call::RetryPolicy,
    context::token_estimate,
    ids::ToolName,
    json::{is_deeper, validate_object, validate_value},
    limits,
    text::glob_matches,
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// A tool with all properties that the policy, the scheduler and the executor need.
#[derive(Debug)]
pub struct Tool {
    /// The name that the model uses; unique in its registry.
    pub name: ToolName,
    /// The connection that runs the tool (`built-in`, or the name of the MCP server).
    pub server: Arc<str>,
    /// The name that the server uses.
    pub remote_name: String,
    /// The description, for the model and for humans.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input_schema: Value,
    /// The compiled `input_schema`, or the reason why the schema is invalid.
    pub validator: Result<jsonschema::Validator, String>,
    /// The risk.
    pub risk: Risk,
    /// The source of the risk.
    pub risk_source: RiskSource,
    /// True if an attempt may safely be repeated (R1): the catalog or a trusted annotation declares
    /// the tool read-only or idempotent. Never guessed from the name.
    pub repeatable: bool,
    /// True if calls may run in parallel (S3): the tool is read-only, or the catalog allows it.
    pub parallel: bool,
    /// The time limit of one attempt; `None` means no limit (T4).
    pub timeout: Option<Duration>,
    /// Maximum bytes of a result; the rest is cut (T4).
    pub result_bytes_max: usize,
    /// The number and timing of retries.
    pub retry: RetryPolicy,
    /// The reason why the tool can't be called at present (T2).
    pub unavailable_reason: Option<String>,
    /// The reason why the tool may never be called (G1). Unlike `unavailable_reason`, this is part
    /// of the policy and leads to a denial.
    pub denial_reason: Option<String>,
    /// The constraints on calls (G5).
    pub constraints: Vec<Constraint>,
    /// The rule for the cost of a call (G5).
    pub cost: Option<CostRule>,
    /// The key of the exclusive lock that calls take across sessions (T8).
    pub exclusive: Option<Expression>,
    /// The time for which a result may be reused for a call with the same arguments (T6).
    pub cache_ttl: Option<Duration>,
}

impl Tool {
    /// Returns the size of the tool's declaration in a model request, in bytes.
    pub(crate) fn declared_bytes(&self) -> u64 {
        let text_bytes = self.name.as_str().len() + self.description.len();
        text_bytes as u64 + token_estimate::estimate_json_bytes(&self.input_schema)
    }

    /// Returns the first of `globs` that matches a name of the tool: its name, the server's name of it,
    /// `server__tool`, or a name that it had or may get (G19). So an entry that blocks the tool keeps
    /// blocking it, however it is renamed.
    pub fn find_match<'a>(
        &self,
        globs: impl IntoIterator<Item = &'a ToolName>,
    ) -> Option<&'a ToolName> {
        let mut globs = globs.into_iter().peekable();
        globs.peek()?;
        let names = self.every_name();
        globs.find(|glob| matches_any(glob, &names))
    }

    fn every_name(&self) -> Vec<String> {
        let remote = tool_names::every_name(&self.server, &self.remote_name);
        remote.into_iter().chain([self.name.to_string()]).collect()
    }

    /// Returns true if the evaluation of calls needs an [`ExpressionContext`].
    pub fn has_expressions(&self) -> bool {
        !self.constraints.is_empty() || self.cost.is_some() || self.exclusive.is_some()
    }

    /// Returns the key of the exclusive lock that this call must take, if there is one (T8).
    /// Sessions and tools share the key space.
    pub fn exclusive_key(&self, context: &ExpressionContext) -> Result<Option<String>, String> {
        let Some(expression) = &self.exclusive else { return Ok(None) };
        let key = expression.evaluate_text(context)?;
        let bytes_max = limits::EXCLUSIVE_KEY_BYTES_MAX;
        if key.is_empty() || key.len() > bytes_max {
            return Err(format!(
                "`{expression}` must evaluate to a string of 1 to {bytes_max} bytes"
            ));
        }
        Ok(Some(key))
    }

    /// Validates `arguments` against the schema. The error names the path and the problem (T3).
    pub fn validate(&self, arguments: &Value) -> Result<(), String> {
        let validator = match &self.validator {
            Ok(validator) => validator,
            Err(reason) => return Err(format!("the tool's input schema is not valid: {reason}")),
        };
        validate_value(arguments).map_err(|problem| format!("the arguments are {problem}"))?;
        validate_object(arguments).map_err(|problem| format!("the arguments are {problem}"))?;
        if let Some(depth_max) = super::schema::arguments_depth_max(&self.input_schema)
            && is_deeper(arguments, depth_max)
        {
            return Err(format!("the arguments are nested deeper than {depth_max} levels"));
        }
        let Err(error) = validator.validate(arguments) else { return Ok(()) };
        let path = error.instance_path().to_string();
        let field = if path.is_empty() { "the arguments".to_owned() } else { format!("`{path}`") };
        // The value is masked: it may be large or secret, and the model has it already.
        Err(format!("{field}: {}", error.masked()))
    }
}

fn matches_any(glob: &ToolName, names: &[String]) -> bool {
    names.iter().any(|name| glob_matches(glob.as_str(), name))
}

/// All tools of all connected servers, by the name that the model uses.
///
/// Replaced as a whole when the list of a server changes. A holder of an old registry evaluates
/// calls with it until its next decision.
#[derive(Debug, Default)]
pub struct ToolRegistry {
    tools: BTreeMap<ToolName, Arc<Tool>>,
    /// The size of each tool's declaration, in bytes.
    sizes: BTreeMap<ToolName, u64>,
}

impl ToolRegistry {
    /// Creates a registry of these tools. If two tools have the same name, the later one is kept.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools: BTreeMap<_, _> =
            tools.into_iter().map(|tool| (tool.name.clone(), Arc::new(tool))).collect();
        let sizes =
            tools.iter().map(|(name, tool)| (name.clone(), tool.declared_bytes())).collect();
        Self { tools, sizes }
    }

    /// Returns the size of the declaration of `tool` in a model request, in bytes.
    pub fn declared_bytes(&self, tool: &Tool) -> u64 {
        self.sizes.get(&tool.name).copied().unwrap_or_else(|| tool.declared_bytes())
    }

    /// Returns the tool of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        ToolName::parse(name).ok().and_then(|name| self.tools.get(&name))
    }

    /// Returns those of `globs` that match no tool. Each is a name or a glob; see
    /// [`Tool::find_match`].
    pub fn unmatched_globs<'a>(
        &self,
        globs: impl IntoIterator<Item = &'a ToolName>,
    ) -> Vec<&'a ToolName> {
        let names: Vec<_> = self.tools.values().flat_map(|tool| tool.every_name()).collect();
        globs.into_iter().filter(|glob| !matches_any(glob, &names)).collect()
    }

    /// Iterates over all tools, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values()
    }
}

#[cfg(test)]
impl Tool {
    /// Creates a tool that accepts any object, for tests of this crate.
    pub(crate) fn for_tests(name: &str, risk: Risk) -> Self {
        Self {
            name: ToolName::parse(name).unwrap(),
            server: "test".into(),
            remote_name: name.to_owned(),
            description: String::new(),
            input_schema: serde_json::json!({"type": "object"}),
            validator: super::schema::compile(&serde_json::json!({"type": "object"})),
            risk,
            risk_source: RiskSource::Catalog,
            repeatable: risk == Risk::ReadOnly,
            parallel: risk == Risk::ReadOnly,
            timeout: Some(crate::limits::TOOL_TIMEOUT_DEFAULT),
            result_bytes_max: crate::limits::TOOL_RESULT_BYTES_DEFAULT,
            retry: RetryPolicy::default(),
            unavailable_reason: None,
            denial_reason: None,
            constraints: Vec::new(),
            cost: None,
            exclusive: None,
            cache_ttl: None,
        }
    }
}
