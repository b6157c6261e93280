//! What is known of each tool, resolved: the catalog's word, the server's description, the schema.

use super::{
    Constraint, CostRule, Expression, ExpressionContext,
    risk::{Risk, RiskSource},
};
use crate::{
    call::RetryPolicy,
    context::token_estimate,
    ids::ToolName,
    json::{is_deeper, validate_levels},
    limits,
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// One tool, as the judge, the scheduler and the executor see it.
#[derive(Debug)]
pub struct Tool {
    /// The name the model uses; unique in its book.
    pub name: ToolName,
    /// The connection that runs it (`built-in`, or the MCP server's name).
    pub server: Arc<str>,
    /// The name the server uses.
    pub remote_name: String,
    /// For the model and for people.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// `input_schema`, compiled; the reason where it is no valid schema.
    pub validator: Result<jsonschema::Validator, String>,
    /// How dangerous it is.
    pub risk: Risk,
    /// Why it has that risk.
    pub risk_source: RiskSource,
    /// Whether it may safely run twice (R1): the catalog or a trusted annotation says read-only or
    /// idempotent. Never guessed from a name.
    pub repeatable: bool,
    /// Whether its calls may run beside others (S3): read-only, or the catalog says so.
    pub parallel: bool,
    /// Time for one attempt; `None` means no limit (T4).
    pub timeout: Option<Duration>,
    /// Bytes of a result that are kept (T4).
    pub result_bytes_max: usize,
    /// How often and when failed attempts are tried again.
    pub retry: RetryPolicy,
    /// Why it can't be called now, if it can't (T2).
    pub unavailable_reason: Option<String>,
    /// Why it may never be called, if the catalog says so (G1). Unlike `unavailable` this is
    /// policy: the judge denies it.
    pub denial_reason: Option<String>,
    /// What must hold of its calls (G5).
    pub constraints: Vec<Constraint>,
    /// What its calls cost, if that is known (G5).
    pub cost: Option<CostRule>,
    /// The key by which its calls run one at a time across sessions (T8).
    pub exclusive: Option<Expression>,
    /// How long its results may be used again, of calls with the same arguments (T6).
    pub cache_ttl: Option<Duration>,
}

impl Tool {
    /// The bytes of what a model is shown of it.
    pub(crate) fn declared_bytes(&self) -> u64 {
        let words = self.name.as_str().len() + self.description.len();
        words as u64 + token_estimate::estimate_json_bytes(&self.input_schema)
    }

    /// Whether judging its calls needs [`Facts`].
    pub fn has_expressions(&self) -> bool {
        !self.constraints.is_empty() || self.cost.is_some() || self.exclusive.is_some()
    }

    /// The key by which this call must run alone, if there is one (T8). Sessions share keys, and
    /// so do tools.
    pub fn exclusive_key(&self, facts: &ExpressionContext) -> Result<Option<String>, String> {
        let Some(expression) = &self.exclusive else { return Ok(None) };
        let key = expression.evaluate_text(facts)?;
        let bytes_max = limits::EXCLUSIVE_KEY_BYTES_MAX;
        if key.is_empty() || key.len() > bytes_max {
            return Err(format!("`{expression}` must give a text of 1 to {bytes_max} bytes"));
        }
        Ok(Some(key))
    }

    /// Checks `arguments` against the schema. The error names the path and what is wrong (T3).
    pub fn validate(&self, arguments: &Value) -> Result<(), String> {
        let validator = match &self.validator {
            Ok(validator) => validator,
            Err(reason) => return Err(format!("the tool's input schema is not valid: {reason}")),
        };
        validate_levels(arguments).map_err(|problem| format!("the arguments are {problem}"))?;
        if let Some(depth_max) = super::schema::arguments_depth_max(&self.input_schema)
            && is_deeper(arguments, depth_max)
        {
            return Err(format!("the arguments are nested deeper than {depth_max} levels"));
        }
        let Err(error) = validator.validate(arguments) else { return Ok(()) };
        let path = error.instance_path().to_string();
        let at = if path.is_empty() { "the arguments".to_owned() } else { format!("`{path}`") };
        // Masked: the value may be huge or secret, and the model knows what it sent.
        Err(format!("{at}: {}", error.masked()))
    }
}

/// Every tool there is, by the name the model uses. Replaced as a whole when a server's list
/// changes; who holds an old one keeps judging by it until the next decision.
#[derive(Debug, Default)]
pub struct ToolRegistry {
    tools: BTreeMap<ToolName, Arc<Tool>>,
    /// Bytes of each as a model is shown it.
    sizes: BTreeMap<ToolName, u64>,
}

impl ToolRegistry {
    /// A book of these tools; of two with one name the later stands.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools: BTreeMap<_, _> =
            tools.into_iter().map(|tool| (tool.name.clone(), Arc::new(tool))).collect();
        let sizes =
            tools.iter().map(|(name, tool)| (name.clone(), tool.declared_bytes())).collect();
        Self { tools, sizes }
    }

    /// The bytes of `tool` as a model is shown it.
    pub fn declared_bytes(&self, tool: &Tool) -> u64 {
        self.sizes.get(&tool.name).copied().unwrap_or_else(|| tool.declared_bytes())
    }

    /// The tool of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Tool>> {
        ToolName::parse(name).ok().and_then(|name| self.tools.get(&name))
    }

    /// All tools, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values()
    }
}

#[cfg(test)]
impl Tool {
    /// A tool that takes anything, for tests of this crate.
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
