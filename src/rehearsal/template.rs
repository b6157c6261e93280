//! Templates in a script: MiniJinja with three additions.
//!
//! A missing value is rendered as `⟨missing: path⟩` instead of failing; an argument that consists of
//! a single `{{ expression }}` keeps the expression's type; the filter `thousands` groups digits.
//! Does not know rules or wire formats. `script_file` validates templates and `reply` renders them.

use greenroom_core::json::to_template_value;
use minijinja::{Environment, UndefinedBehavior};
use serde_json::Value;

/// Maximum characters of the output of one template.
pub(super) const RENDERED_CHARS_MAX: usize = 256 * 1024;

/// The arguments of a scripted tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgumentsTemplate {
    /// A table whose strings are templates.
    Table(Value),
    /// JSON text as a template; its output is sent unchanged.
    Text(String),
}

impl ArgumentsTemplate {
    /// Validates and compiles the raw arguments; `None` means `{}`.
    pub fn compile(raw: Option<toml::Value>) -> Result<Self, String> {
        match raw {
            None => Ok(Self::Table(Value::Object(serde_json::Map::new()))),
            Some(toml::Value::String(text)) => {
                validate_template(&text)?;
                Ok(Self::Text(text))
            }
            Some(toml::Value::Table(table)) => {
                let value = serde_json::to_value(table).map_err(|error| error.to_string())?;
                validate_strings(&value)?;
                Ok(Self::Table(value))
            }
            Some(
                toml::Value::Integer(_)
                | toml::Value::Float(_)
                | toml::Value::Boolean(_)
                | toml::Value::Datetime(_)
                | toml::Value::Array(_),
            ) => Err("`arguments` must be a table or a string that contains JSON".to_owned()),
        }
    }
}

/// Renders templates with a set of variables.
pub(super) struct Renderer {
    environment: Environment<'static>,
    variables: Value,
}

impl Renderer {
    /// Creates a renderer. `variables` must be a JSON object.
    pub(super) fn new(variables: Value) -> Self {
        Self { environment: environment(), variables }
    }

    /// Sets a variable for further rendering.
    pub(super) fn set(&mut self, name: &str, value: Value) {
        if let Value::Object(variables) = &mut self.variables {
            variables.insert(name.to_owned(), value);
        }
    }

    /// Renders a template. An error is rendered as text.
    pub(super) fn text(&self, template: &str) -> String {
        let variables = to_template_value(&self.variables);
        let rendered = self
            .environment
            .render_str(&show_missing(template), variables)
            .unwrap_or_else(|error| format!("⟨error: {error}⟩"));
        match rendered.char_indices().nth(RENDERED_CHARS_MAX) {
            Some((end, _)) => rendered[..end].to_owned(),
            None => rendered,
        }
    }

    /// Evaluates an expression; `None` if the value is undefined or the evaluation fails.
    pub(super) fn value(&self, expression: &str) -> Option<Value> {
        let variables = to_template_value(&self.variables);
        let value = self.environment.compile_expression(expression).ok()?.eval(variables).ok()?;
        if value.is_undefined() { None } else { serde_json::to_value(&value).ok() }
    }

    /// Renders the JSON text of a call's arguments.
    pub(super) fn arguments(&self, arguments: &ArgumentsTemplate) -> String {
        match arguments {
            ArgumentsTemplate::Table(value) => self.json(value).to_string(),
            ArgumentsTemplate::Text(template) => self.text(template),
        }
    }

    fn json(&self, value: &Value) -> Value {
        match value {
            Value::String(template) => match sole_expression(template) {
                Some(expression) => {
                    self.value(expression).unwrap_or_else(|| Value::String(missing(expression)))
                }
                None => Value::String(self.text(template)),
            },
            Value::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, field)| (key.clone(), self.json(field))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

/// Validates a template.
pub(super) fn validate_template(template: &str) -> Result<(), String> {
    environment()
        .template_from_str(&show_missing(template))
        .map(|_| ())
        .map_err(|error| format!("invalid template: {error}"))
}

/// Validates an expression.
pub(super) fn validate_expression(expression: &str) -> Result<(), String> {
    environment()
        .compile_expression(expression)
        .map(|_| ())
        .map_err(|error| format!("invalid expression: {error}"))
}

fn validate_strings(value: &Value) -> Result<(), String> {
    match value {
        Value::String(template) => match sole_expression(template) {
            Some(expression) => validate_expression(expression),
            None => validate_template(template),
        },
        Value::Array(items) => items.iter().try_for_each(validate_strings),
        Value::Object(fields) => fields.values().try_for_each(validate_strings),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.add_filter("thousands", thousands);
    environment.add_filter("or_missing", |value: minijinja::Value, path: String| {
        if value.is_undefined() { minijinja::Value::from(missing(&path)) } else { value }
    });
    environment
}

fn missing(path: &str) -> String {
    format!("⟨missing: {path}⟩")
}

/// Groups the digits of a number: `1234567.5 | thousands(2)` is `1,234,567.50`. Returns a value that
/// is not a number unchanged.
fn thousands(value: minijinja::Value, decimals: Option<usize>) -> minijinja::Value {
    let Ok(number) = value.to_string().parse::<f64>() else { return value };
    let digits = format!("{:.*}", decimals.unwrap_or(0).min(8), number.abs());
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (digits.as_str(), String::new()),
    };
    let mut grouped = String::new();
    for (position, digit) in whole.chars().enumerate() {
        if position > 0 && (whole.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if number < 0.0 { "-" } else { "" };
    minijinja::Value::from(format!("{sign}{grouped}{fraction}"))
}

/// Returns the expression of a template that consists of a single `{{ expression }}`.
fn sole_expression(template: &str) -> Option<&str> {
    let trimmed = template.trim();
    let inner = trimmed.strip_prefix("{{")?;
    let length = expression_length(inner)?;
    (inner[length..].len() == 2).then(|| inner[..length].trim_matches(['-', ' ', '\t', '\n']))
}

/// Rewrites each `{{ path }}` so that an undefined value is rendered with its path. MiniJinja's own
/// hook for undefined values does not receive the path.
fn show_missing(template: &str) -> String {
    let mut out = String::with_capacity(template.len() + 32);
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        out.push_str(before);
        let Some(length) = expression_length(after) else {
            out.push_str("{{");
            rest = after;
            continue;
        };
        let inside = &after[..length];
        let (open, inside) = match inside.strip_prefix('-') {
            Some(inside) => ("{{-", inside),
            None => ("{{", inside),
        };
        let (inside, close) = match inside.strip_suffix('-') {
            Some(inside) => (inside, "-}}"),
            None => (inside, "}}"),
        };
        let path = Value::String(inside.trim().to_owned());
        out.push_str(&format!("{open} ({inside})|or_missing({path}) {close}"));
        rest = &after[length + 2..];
    }
    out.push_str(rest);
    out
}

/// Returns the number of bytes before the closing `}}`, skipping strings and nested braces.
fn expression_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut index, mut depth, mut quote) = (0, 0_usize, None);
    while index < bytes.len() {
        match (quote, bytes[index]) {
            (Some(_), b'\\') => index += 1,
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(bytes[index]),
            (None, b'{') => depth += 1,
            (None, b'}') if depth > 0 => depth -= 1,
            (None, b'}') if bytes.get(index + 1) == Some(&b'}') => return Some(index),
            (None, _) => {}
        }
        index += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn renderer() -> Renderer {
        Renderer::new(json!({
            "item": "Tritanium", "price": 5.1, "count": 1234567,
            "results": [{"losses": [{"id": 587}, {"id": 622}]}],
        }))
    }

    #[test]
    fn text_is_rendered_and_missing_values_are_shown() {
        let r = renderer();
        let cases = [
            ("{{ item }} at {{price}}", "Tritanium at 5.1"),
            ("{{ results[0].losses[1].id }}", "622"),
            ("{{ results[3].losses.first }}!", "⟨missing: results[3].losses.first⟩!"),
            ("{{ nothing or 'else' }}", "else"),
            ("{{ '}}' }} {{- item -}} .", "}}Tritanium."),
            ("{{ count | thousands }}", "1,234,567"),
            ("{{ -1234.5 | thousands(2) }}", "-1,234.50"),
            ("{{ 999 | thousands }}", "999"),
            ("{{ item | thousands }}", "Tritanium"),
            ("{% for l in results[0].losses %}{{ l.id }};{% endfor %}", "587;622;"),
        ];
        for (template, expected) in cases {
            assert_eq!(r.text(template), expected, "{template}");
        }
    }

    #[test]
    fn filter_error_is_rendered_as_text() {
        assert!(renderer().text("{{ item | round }}").starts_with("⟨error: "));
    }

    #[test]
    fn sole_expression_keeps_its_type() {
        let table: toml::Value = toml::from_str(
            "id = \"{{ results[0].losses[0].id }}\"\nall = [\"{{ results[0].losses }}\"]\n\
             text = \"no. {{ count }}\"\ngone = \"{{ nope.x }}\"\nn = 7\ntwo = \"{{ count }}{{ count }}\"",
        )
        .unwrap();
        let arguments = ArgumentsTemplate::compile(Some(table)).unwrap();
        let rendered: Value = serde_json::from_str(&renderer().arguments(&arguments)).unwrap();
        assert_eq!(
            rendered,
            json!({
                "id": 587, "all": [[{"id": 587}, {"id": 622}]], "text": "no. 1234567",
                "gone": "⟨missing: nope.x⟩", "n": 7, "two": "12345671234567",
            })
        );
    }

    #[test]
    fn invalid_templates_are_rejected_when_loaded() {
        assert!(validate_template("{% for x in %}").is_err());
        assert!(validate_template("{{ a b }}").is_err());
        assert!(validate_expression("results[").is_err());
        assert!(ArgumentsTemplate::compile(Some(toml::Value::Integer(1))).is_err());
    }
}
