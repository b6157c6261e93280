//! Expressions of the catalog: the Common Expression Language (CEL) over `args`, `user` and
//! `session` (G5).
//!
//! An [`Expression`] is compiled when the configuration is loaded, and evaluated with the policy.
//! Every failure is an error with a reason, never a panic. The policy denies a call whose
//! expression fails.
//!
//! `validation` limits the syntax and the work, [`ExpressionContext`] holds the variables, and
//! `mixed_arithmetic` supports operations on mixed integers and floats.

mod context;
mod mixed_arithmetic;
mod validation;

pub use context::ExpressionContext;

use crate::{limits, text::truncate};
use cel::{Env, ExecutionError, Value, parser::PrattParser};
use serde::{Deserialize, Deserializer, de};
use serde_json::Number;
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
};
use validation::WorkBound;

/// Maximum bytes of an expression that an error quotes.
const SOURCE_EXCERPT_BYTES: usize = 256;

/// All functions. None of them reads a clock or any other state outside its arguments.
static CEL_ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut functions = Env::default().with_optional_support(false).with_stdlib();
    mixed_arithmetic::register_functions(&mut functions);
    Arc::new(functions)
});

/// A compiled expression. Two expressions are equal if their sources are equal.
#[derive(Clone)]
pub struct Expression {
    source: Arc<str>,
    tree: Arc<cel::IdedExpr>,
    work_bound: WorkBound,
}

impl Expression {
    /// Compiles `source`. The error quotes the source.
    pub fn compile(source: &str) -> Result<Self, String> {
        let bytes_max = limits::EXPRESSION_BYTES_MAX;
        if source.len() > bytes_max {
            let start = truncate(source, SOURCE_EXCERPT_BYTES);
            return Err(format!("the expression `{start}…` is longer than {bytes_max} bytes"));
        }
        let invalid = |problem: String| {
            let start = truncate(source, SOURCE_EXCERPT_BYTES);
            let ellipsis = if start.len() < source.len() { "…" } else { "" };
            format!("the expression `{start}{ellipsis}` is not valid: {problem}")
        };
        validation::validate_operator_count(source).map_err(invalid)?;
        let mut tree = catch_panic(|| parse(source)).map_err(invalid)?;
        let work_bound = validation::check_and_rewrite(&mut tree).map_err(invalid)?;
        Ok(Self { source: source.into(), tree: Arc::new(tree), work_bound })
    }

    /// Returns the source text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates the expression to a boolean.
    pub fn evaluate_bool(&self, context: &ExpressionContext) -> Result<bool, String> {
        let value = self.evaluate(context)?;
        if let Value::Bool(truth) = value {
            return Ok(truth);
        }
        Err(self.type_error("true or false", &value))
    }

    /// Evaluates the expression to a number; a floating-point number has its shortest notation.
    pub fn evaluate_number(&self, context: &ExpressionContext) -> Result<Number, String> {
        let value = self.evaluate(context)?;
        if let Value::Int(number) = value {
            return Ok(number.into());
        }
        if let Value::Float(number) = value {
            let not_finite = || format!("`{self}` must evaluate to a finite number, not {number}");
            return Number::from_f64(number).ok_or_else(not_finite);
        }
        Err(self.type_error("a number", &value))
    }

    /// Evaluates the expression to a string.
    pub fn evaluate_text(&self, context: &ExpressionContext) -> Result<String, String> {
        let value = self.evaluate(context)?;
        if let Value::String(text) = &value {
            return Ok(text.as_ref().clone());
        }
        Err(self.type_error("a string", &value))
    }

    fn type_error(&self, expected: &str, value: &Value) -> String {
        format!("`{self}` must evaluate to {expected}, not {}", value.type_of())
    }

    fn evaluate(&self, context: &ExpressionContext) -> Result<Value, String> {
        if self.work_bound.for_context(context) > limits::EXPRESSION_WORK_MAX {
            return Err(format!("`{self}` would take too long with arguments of this size"));
        }
        let value = catch_panic(|| {
            Value::resolve(&self.tree, context.cel_context()).map_err(explain_error)
        });
        value.map_err(|problem| format!("`{self}` can't be evaluated: {problem}"))
    }
}

fn parse(source: &str) -> Result<cel::IdedExpr, String> {
    let parser = PrattParser::new().max_recursion_depth(limits::EXPRESSION_NESTING_MAX);
    parser.parse(source).map_err(|errors| match errors.errors.first() {
        // Position 0 means that the position is unknown.
        Some(first) if first.pos.0 == 0 => first.msg.trim_end().to_owned(),
        Some(first) => format!("{} (at character {})", first.msg.trim_end(), first.pos.1),
        None => "syntax error".to_owned(),
    })
}

/// Runs a function of the CEL library and converts a panic into an error.
fn catch_panic<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("internal error of the expression evaluator".to_owned()))
}

/// Formats an error for humans. Includes names and types but no values, since a value can be long
/// or secret.
fn explain_error(error: ExecutionError) -> String {
    if let ExecutionError::NoSuchKey(name) = &error {
        return format!("there is no `{}`", truncate(name, 128));
    }
    if let ExecutionError::UnsupportedBinaryOperator(operator, left, right) = &error {
        return format!("`{operator}` does not accept {} and {}", left.type_of(), right.type_of());
    }
    if let ExecutionError::ValuesNotComparable(left, right) = &error {
        return format!("{} can't be compared with {}", left.type_of(), right.type_of());
    }
    if let ExecutionError::NoSuchOverload(overload) = &error {
        let function = overload.function().trim_matches('_');
        return format!("`{function}` does not accept {}", overload.argument_types().join(" and "));
    }
    let contains_no_values = matches!(
        error,
        ExecutionError::UnexpectedType { .. } | ExecutionError::FunctionError { .. }
    );
    if contains_no_values {
        return truncate(&error.to_string(), 256).to_owned();
    }
    if matches!(error, ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_)) {
        return "division by zero".to_owned();
    }
    if matches!(error, ExecutionError::Overflow(..)) {
        return "numeric overflow".to_owned();
    }
    if matches!(error, ExecutionError::IndexOutOfBounds(_)) {
        return "index out of bounds".to_owned();
    }
    "unsupported values".to_owned()
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.source)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let source = String::deserialize(deserializer)?;
        Self::compile(&source).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
