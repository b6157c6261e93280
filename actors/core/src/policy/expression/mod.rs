//! Expressions of the catalog: the Common Expression Language over `args`, `user` and `session`
//! (G5).
//!
//! An [`Expression`] is compiled when configuration is read, and evaluated by the judge. Whatever
//! goes wrong is an error with a reason and never a panic; what an error means (the call is denied)
//! is the judge's business. `check` bounds what may be written, [`Facts`] is what expressions see,
//! `number` lets whole and fractional numbers meet.

mod context;
mod mixed_arithmetic;
mod validation;

pub use context::ExpressionContext;

use crate::{limits, text::truncate};
use cel::{Env, ExecutionError, Value, parser::PrattParser};
use serde::{Deserialize, Deserializer, de};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, LazyLock},
};
use validation::WorkBound;

/// Bytes of an expression that its errors quote.
const SOURCE_EXCERPT_BYTES: usize = 256;

/// Every function there is. None of them reads a clock or anything else outside of its arguments.
static CEL_ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut functions = Env::default().with_optional_support(false).with_stdlib();
    mixed_arithmetic::register_functions(&mut functions);
    Arc::new(functions)
});

/// A compiled expression. Two are the same if they are written the same.
#[derive(Clone)]
pub struct Expression {
    source: Arc<str>,
    tree: Arc<cel::IdedExpr>,
    work_bound: WorkBound,
}

impl Expression {
    /// Compiles `source`; the error quotes it.
    pub fn compile(source: &str) -> Result<Self, String> {
        let bytes_max = limits::EXPRESSION_BYTES_MAX;
        if source.len() > bytes_max {
            let start = truncate(source, SOURCE_EXCERPT_BYTES);
            return Err(format!("the expression `{start}…` has more than {bytes_max} bytes"));
        }
        let quoted = |problem: String| {
            let start = truncate(source, SOURCE_EXCERPT_BYTES);
            let rest = if start.len() < source.len() { "…" } else { "" };
            format!("the expression `{start}{rest}` is not valid: {problem}")
        };
        validation::validate_operator_count(source).map_err(quoted)?;
        let mut tree = catch_panic(|| parse(source)).map_err(quoted)?;
        let weight = validation::check_and_rewrite(&mut tree).map_err(quoted)?;
        Ok(Self { source: source.into(), tree: Arc::new(tree), work_bound: weight })
    }

    /// As it is written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it is true.
    pub fn evaluate_bool(&self, facts: &ExpressionContext) -> Result<bool, String> {
        let value = self.evaluate(facts)?;
        if let Value::Bool(truth) = value {
            return Ok(truth);
        }
        Err(self.type_error("true or false", &value))
    }

    /// The number it gives. It may be infinite or NaN.
    #[expect(clippy::cast_precision_loss, reason = "amounts are floating point")]
    pub fn evaluate_number(&self, facts: &ExpressionContext) -> Result<f64, String> {
        let value = self.evaluate(facts)?;
        if let Value::Int(number) = value {
            return Ok(number as f64);
        }
        if let Value::Float(number) = value {
            return Ok(number);
        }
        Err(self.type_error("a number", &value))
    }

    /// The text it gives.
    pub fn evaluate_text(&self, facts: &ExpressionContext) -> Result<String, String> {
        let value = self.evaluate(facts)?;
        if let Value::String(text) = &value {
            return Ok(text.as_ref().clone());
        }
        Err(self.type_error("a text", &value))
    }

    fn type_error(&self, wanted: &str, found: &Value) -> String {
        format!("`{self}` must give {wanted}, not {}", found.type_of())
    }

    fn evaluate(&self, facts: &ExpressionContext) -> Result<Value, String> {
        if self.work_bound.for_context(facts) > limits::EXPRESSION_WORK_MAX {
            return Err(format!("`{self}` would take too long with arguments of this size"));
        }
        let value =
            catch_panic(|| Value::resolve(&self.tree, facts.cel_context()).map_err(explain_error));
        value.map_err(|problem| format!("`{self}` can't be evaluated: {problem}"))
    }
}

fn parse(source: &str) -> Result<cel::IdedExpr, String> {
    let parser = PrattParser::new().max_recursion_depth(limits::EXPRESSION_NESTING_MAX);
    parser.parse(source).map_err(|errors| match errors.errors.first() {
        // Position 0 is no position.
        Some(first) if first.pos.0 == 0 => first.msg.trim_end().to_owned(),
        Some(first) => format!("{} (at its character {})", first.msg.trim_end(), first.pos.1),
        None => "it can't be read".to_owned(),
    })
}

/// Runs what the library does, and makes an error of its panics.
fn catch_panic<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("the expression language failed on it".to_owned()))
}

/// What went wrong, for people. Names and types are told; values are not, since they may be long
/// or secret.
fn explain_error(error: ExecutionError) -> String {
    if let ExecutionError::NoSuchKey(name) = &error {
        return format!("there is no `{}`", truncate(name, 128));
    }
    if let ExecutionError::UnsupportedBinaryOperator(operator, left, right) = &error {
        return format!("{} and {} don't go with `{operator}`", left.type_of(), right.type_of());
    }
    if let ExecutionError::ValuesNotComparable(left, right) = &error {
        return format!("{} can't be compared with {}", left.type_of(), right.type_of());
    }
    if let ExecutionError::NoSuchOverload(overload) = &error {
        let function = overload.function().trim_matches('_');
        return format!("`{function}` does not take {}", overload.argument_types().join(" and "));
    }
    let is_silent_on_values = matches!(
        error,
        ExecutionError::UnexpectedType { .. } | ExecutionError::FunctionError { .. }
    );
    if is_silent_on_values {
        return truncate(&error.to_string(), 256).to_owned();
    }
    if matches!(error, ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_)) {
        return "it divides by zero".to_owned();
    }
    if matches!(error, ExecutionError::Overflow(..)) {
        return "a number becomes too large".to_owned();
    }
    if matches!(error, ExecutionError::IndexOutOfBounds(_)) {
        return "a list is shorter than that".to_owned();
    }
    "the values don't fit".to_owned()
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
