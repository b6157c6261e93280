//! An elicitation of a running tool at the terminal (T1): a form that is filled in field by field,
//! or a URL to visit. Pure.

use super::{approval_prompt::PromptReply, styled_line::StyledLine};
use crate::cli::{
    schema_form,
    terminal::{Style, escape_unsafe},
};
use serde_json::{Map, Value, json};

/// An elicitation and the fields filled in so far.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ElicitationForm {
    /// The approval as the resource `/agent/approvals/{id}`.
    pub(super) view: Value,
    fields: Vec<String>,
    /// Index of the field that the prompt is for.
    current: usize,
    filled: Map<String, Value>,
}

impl ElicitationForm {
    pub(super) fn new(view: Value) -> Self {
        let fields = schema_form::field_names(&view["schema"]);
        Self { view, fields, current: 0, filled: Map::new() }
    }

    fn is_url(&self) -> bool {
        self.view["mode"] == "url"
    }

    fn field(&self, name: &str) -> &Value {
        &self.view["schema"]["properties"][name]
    }

    /// Renders the message, and the fields or the URL.
    pub(super) fn render_lines(&self) -> Vec<StyledLine> {
        let text = |name: &str| self.view[name].as_str().unwrap_or_default();
        let source = match text("tool") {
            "" => text("server").to_owned(),
            tool => format!("{tool} of {}", text("server")),
        };
        let mut lines = vec![
            StyledLine::with_indent(0)
                .styled(Style::Yellow, "? ")
                .styled(Style::Bold, text("message"))
                .styled(Style::Dim, &format!("  requested by {source}")),
        ];
        if self.is_url() {
            lines.push(StyledLine::with_indent(2).styled(Style::Bold, text("url")));
            return lines;
        }
        for name in &self.fields {
            let description = schema_form::describe_field(self.field(name));
            lines.push(StyledLine::with_indent(4).text(&format!("{name}: {description}")));
        }
        let help = "Enter accepts the default or skips the field; /no declines; /edit edits the whole form";
        lines.push(StyledLine::with_indent(2).styled(Style::Dim, help));
        lines
    }

    /// Returns the prompt for the current field.
    pub(super) fn prompt_text(&self) -> String {
        if self.is_url() {
            return "Page visited? y/n".to_owned();
        }
        let Some(name) = self.fields.get(self.current) else {
            return "Answer in JSON, /edit, or /no".to_owned();
        };
        let field = self.field(name);
        let kind = field["type"].as_str().unwrap_or("any").to_owned();
        let values = schema_form::field_choices(field).map_or(kind, |choices| choices.join(" | "));
        let prompt = match field_default(field) {
            Some(default) => format!("{name} ({values}) [{default}]"),
            None if schema_form::is_required(&self.view["schema"], name) => {
                format!("{name} ({values})")
            }
            None => format!("{name} ({values}, optional)"),
        };
        escape_unsafe(&prompt)
    }

    /// Parses a reply.
    pub(super) fn parse_reply(&mut self, text: &str) -> PromptReply {
        if self.is_url() {
            return match text.to_lowercase().as_str() {
                "y" | "yes" => PromptReply::PostAnswer(json!({"decision": "answer"})),
                "n" | "no" | "/no" => PromptReply::PostAnswer(json!({"decision": "reject"})),
                _ => PromptReply::Invalid("y: page visited, n: decline"),
            };
        }
        match text {
            "/no" => return PromptReply::PostAnswer(json!({"decision": "reject"})),
            "/edit" => return PromptReply::Edit,
            _ => {}
        }
        if let Ok(value @ Value::Object(_)) = serde_json::from_str::<Value>(text) {
            return self.finish(value);
        }
        let Some(name) = self.fields.get(self.current).cloned() else {
            return PromptReply::Invalid("enter a JSON object; /edit: edit it, /no: decline");
        };
        let accepted = match self.parse_field(&name, text) {
            Ok(None) => format!("{name} skipped"),
            Ok(Some(value)) => {
                let accepted = format!("{name}: {value}");
                self.filled.insert(name, value);
                accepted
            }
            Err(problem) => return PromptReply::Invalid(problem),
        };
        self.current += 1;
        if self.current < self.fields.len() {
            return PromptReply::FieldAccepted(accepted);
        }
        let filled = std::mem::take(&mut self.filled);
        self.finish(Value::Object(filled))
    }

    /// Parses the value of a field; `None` if the field is skipped. The error names the expected
    /// value.
    fn parse_field(&self, name: &str, text: &str) -> Result<Option<Value>, &'static str> {
        let field = self.field(name);
        if text.is_empty() {
            return match field_default(field) {
                Some(default) => Ok(Some(default.clone())),
                None if schema_form::is_required(&self.view["schema"], name) => {
                    Err("this field is required; /no declines")
                }
                None => Ok(None),
            };
        }
        let value = schema_form::parse_field_value(field, text);
        let is_choice = |choices: Vec<String>| match &value {
            Value::Array(items) => {
                items.iter().all(|item| choices.iter().any(|choice| *item == **choice))
            }
            Value::String(text) => choices.contains(text),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                choices.contains(&other.to_string())
            }
        };
        if !schema_form::field_choices(field).is_none_or(is_choice) {
            return Err("enter one of the values in parentheses");
        }
        match field["type"].as_str() {
            Some("integer" | "number") if !value.is_number() => Err("enter a number"),
            Some("boolean") if !value.is_boolean() => Err("enter yes or no"),
            Some(_) | None => Ok(Some(value)),
        }
    }

    /// Returns all fields for editing: the value filled in, or the default, or the field's type.
    pub(super) fn current_values(&self) -> Value {
        let field_value = |name: &String| {
            let field = self.field(name);
            let known = self.filled.get(name).or(Some(&field["default"]));
            let known = known.filter(|value| !value.is_null());
            (name.clone(), known.unwrap_or(&field["type"]).clone())
        };
        Value::Object(self.fields.iter().map(field_value).collect())
    }

    /// Builds the answer and resets the form, which is shown again if the server rejects the answer.
    fn finish(&mut self, value: Value) -> PromptReply {
        (self.current, self.filled) = (0, Map::new());
        PromptReply::PostAnswer(json!({"decision": "answer", "value": value}))
    }
}

/// Returns the default of a field, if any.
fn field_default(field: &Value) -> Option<&Value> {
    Some(&field["default"]).filter(|default| !default.is_null())
}
