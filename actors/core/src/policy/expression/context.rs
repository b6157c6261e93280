//! The variables of an expression for one call: `args`, `user` and `session`.

use super::CEL_ENV;
use crate::{
    json::decimal::to_exact_f64,
    limits,
    policy::{BudgetLimit, JudgeContext},
    text::truncate,
};
use cel::{Context, Value as CelValue, objects::Key};
use serde_json::{Number, Value};
use std::{collections::HashMap, fmt};

/// Maximum bytes of a path in an error.
const PATH_BYTES_MAX: usize = 128;

/// The variables of one call, with their size.
pub struct ExpressionContext {
    context: Context<'static, 'static>,
    /// The number of values in all variables.
    pub(super) values: u64,
    /// The bytes of keys and strings in all variables.
    pub(super) bytes: u64,
}

/// The fields of `user`.
pub(super) const USER_FIELDS: [&str; 6] = [
    "id",
    "autonomy_level",
    "require_confirmation",
    "blocked_tools",
    "allowed_regions",
    "budget_limit",
];
/// The fields of `session`.
pub(super) const SESSION_FIELDS: [&str; 5] =
    ["id", "agent", "autonomy_level", "require_confirmation", "headless"];

impl ExpressionContext {
    /// Creates the variables for a call with these arguments. Fails if the arguments are nested too
    /// deeply, or contain a number that the language can't represent exactly.
    pub fn new(arguments: &Value, judge_context: &JudgeContext<'_>) -> Result<Self, String> {
        let mut converter = CelConverter::default();
        let arguments = converter.value(arguments, 1).map_err(|error| error.to_string())?;
        let (user, session) = (converter.user(judge_context), converter.session(judge_context));
        let mut context = Context::with_env(CEL_ENV.clone());
        context.add_variable_from_value("args", arguments);
        context.add_variable_from_value("user", user);
        context.add_variable_from_value("session", session);
        Ok(Self { context, values: converter.values, bytes: converter.bytes })
    }

    pub(super) fn cel_context(&self) -> &Context<'static, 'static> {
        &self.context
    }
}

impl fmt::Debug for ExpressionContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpressionContext")
            .field("values", &self.values)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Converts a number. An integer literal is an `int`, so `5` and `5.0` have different types.
fn number_value(number: &Number) -> Result<CelValue, ConversionError> {
    if let Some(whole) = number.as_i64() {
        return Ok(CelValue::Int(whole));
    }
    let float = to_exact_f64(number);
    float.map(CelValue::Float).ok_or(ConversionError::InexactNumber { path: String::new() })
}

/// Converts values to CEL values and counts them.
#[derive(Default)]
struct CelConverter {
    values: u64,
    bytes: u64,
}

/// The reason why arguments can't be converted.
enum ConversionError {
    TooDeep,
    /// `path` leads from the converted value to the number, as in `/items/0/price`.
    InexactNumber {
        path: String,
    },
}

impl ConversionError {
    fn within(self, key: impl fmt::Display) -> Self {
        match self {
            Self::TooDeep => Self::TooDeep,
            Self::InexactNumber { path } => Self::InexactNumber { path: format!("/{key}{path}") },
        }
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depth_max = limits::EXPRESSION_ARGUMENTS_DEPTH_MAX;
        match self {
            Self::TooDeep => write!(f, "the arguments are nested deeper than {depth_max} levels"),
            Self::InexactNumber { path } => {
                let path = truncate(path, PATH_BYTES_MAX);
                write!(
                    f,
                    "`{path}`: an expression of the policy can't represent the number exactly"
                )
            }
        }
    }
}

impl CelConverter {
    fn value(&mut self, value: &Value, depth: usize) -> Result<CelValue, ConversionError> {
        if depth > limits::EXPRESSION_ARGUMENTS_DEPTH_MAX {
            return Err(ConversionError::TooDeep);
        }
        self.values += 1;
        Ok(match value {
            Value::Null => CelValue::Null,
            Value::Bool(truth) => CelValue::Bool(*truth),
            Value::Number(number) => number_value(number)?,
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let item = self.value(item, depth + 1);
                    list.push(item.map_err(|error| error.within(index))?);
                }
                list.into()
            }
            Value::Object(members) => {
                let mut map = HashMap::with_capacity(members.len());
                for (name, member) in members {
                    self.bytes += name.len() as u64;
                    let member = self.value(member, depth + 1);
                    let member = member.map_err(|error| error.within(name))?;
                    map.insert(Key::from(name.as_str()), member);
                }
                map.into()
            }
        })
    }

    fn text(&mut self, text: &str) -> CelValue {
        self.bytes += text.len() as u64;
        CelValue::String(text.to_owned().into())
    }

    fn user(&mut self, context: &JudgeContext<'_>) -> CelValue {
        let settings = context.settings;
        let blocked = settings.blocked_tools.iter();
        let blocked: Vec<_> = blocked.map(|tool| self.text(tool.as_str())).collect();
        let regions = settings
            .allowed_regions
            .as_ref()
            .map(|regions| regions.iter().map(|region| CelValue::Int(*region)).collect::<Vec<_>>());
        self.values += (blocked.len() + regions.as_ref().map_or(0, Vec::len)) as u64;
        let budget = settings.budget_limit.as_ref().map(|limit| self.budget(limit));
        let values = [
            self.text(context.user),
            CelValue::Int(settings.autonomy_level.level().into()),
            CelValue::Bool(settings.require_confirmation),
            blocked.into(),
            regions.map_or(CelValue::Null, CelValue::from),
            budget.unwrap_or(CelValue::Null),
        ];
        self.record(USER_FIELDS.into_iter().zip(values))
    }

    fn budget(&mut self, limit: &BudgetLimit) -> CelValue {
        let (unit, period) = (self.text(&limit.unit), self.text(limit.period.name()));
        let amount = CelValue::Float(limit.amount.to_f64());
        self.record([("amount", amount), ("unit", unit), ("period", period)])
    }

    fn session(&mut self, context: &JudgeContext<'_>) -> CelValue {
        let settings = context.settings;
        let values = [
            self.text(context.session),
            self.text(context.agent),
            CelValue::Int(settings.autonomy_level.level().into()),
            CelValue::Bool(settings.require_confirmation),
            CelValue::Bool(context.headless),
        ];
        self.record(SESSION_FIELDS.into_iter().zip(values))
    }

    fn record<'a>(&mut self, fields: impl IntoIterator<Item = (&'a str, CelValue)>) -> CelValue {
        let map: HashMap<Key, CelValue> =
            fields.into_iter().map(|(name, value)| (Key::from(name), value)).collect();
        self.values += 1 + map.len() as u64;
        map.into()
    }
}
