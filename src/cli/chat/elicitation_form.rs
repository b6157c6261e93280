//! What a running tool asks of the person at the terminal (T1): a form, filled in field by field, or
//! a page to visit. Pure.

use super::{approval_prompt::PromptReply, styled_line::StyledLine};
use crate::cli::{
    schema_form,
    terminal::{Style, escape_unsafe},
};
use serde_json::{Map, Value, json};

/// The question, and what was filled in so far.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ElicitationForm {
    /// The question as it stands at `/agent/approvals/{id}`.
    pub(super) view: Value,
    fields: Vec<String>,
    /// The field that is asked for.
    at: usize,
    filled: Map<String, Value>,
}

impl ElicitationForm {
    pub(super) fn new(view: Value) -> Self {
        let fields = schema_form::field_names(&view["schema"]);
        Self { view, fields, at: 0, filled: Map::new() }
    }

    fn is_url(&self) -> bool {
        self.view["mode"] == "url"
    }

    fn field(&self, name: &str) -> &Value {
        &self.view["schema"]["properties"][name]
    }

    /// How it is put.
    pub(super) fn render_lines(&self) -> Vec<StyledLine> {
        let text = |name: &str| self.view[name].as_str().unwrap_or_default();
        let who = match text("tool") {
            "" => text("server").to_owned(),
            tool => format!("{tool} of {}", text("server")),
        };
        let mut lines = vec![
            StyledLine::with_indent(0)
                .styled(Style::Yellow, "? ")
                .styled(Style::Bold, text("message"))
                .styled(Style::Dim, &format!("  asked by {who}")),
        ];
        if self.is_url() {
            lines.push(StyledLine::with_indent(2).styled(Style::Bold, text("url")));
            return lines;
        }
        for name in &self.fields {
            let words = schema_form::describe_field(self.field(name));
            lines.push(StyledLine::with_indent(4).text(&format!("{name}: {words}")));
        }
        let help =
            "Enter takes what is in brackets, or leaves it out; /no declines, /edit shows all";
        lines.push(StyledLine::with_indent(2).styled(Style::Dim, help));
        lines
    }

    /// What is asked for now.
    pub(super) fn prompt_text(&self) -> String {
        if self.is_url() {
            return "Done there? y/n".to_owned();
        }
        let Some(name) = self.fields.get(self.at) else {
            return "Answer in JSON, /edit, or /no".to_owned();
        };
        let field = self.field(name);
        let kind = field["type"].as_str().unwrap_or("anything").to_owned();
        let takes = schema_form::field_choices(field).map_or(kind, |choices| choices.join(" | "));
        let asks = match field_default(field) {
            Some(default) => format!("{name} ({takes}) [{default}]"),
            None if schema_form::is_required(&self.view["schema"], name) => {
                format!("{name} ({takes})")
            }
            None => format!("{name} ({takes}, may be left out)"),
        };
        escape_unsafe(&asks)
    }

    /// What somebody's words mean.
    pub(super) fn parse_reply(&mut self, text: &str) -> PromptReply {
        if self.is_url() {
            return match text.to_lowercase().as_str() {
                "y" | "yes" => PromptReply::PostAnswer(json!({"decision": "answer"})),
                "n" | "no" | "/no" => PromptReply::PostAnswer(json!({"decision": "reject"})),
                _ => PromptReply::Invalid("y: it is done there, n: no"),
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
        let Some(name) = self.fields.get(self.at).cloned() else {
            return PromptReply::Invalid("a JSON object; /edit: edit one, /no: decline");
        };
        let told = match self.parse_field(&name, text) {
            Ok(None) => format!("{name} is left out"),
            Ok(Some(value)) => {
                let told = format!("{name}: {value}");
                self.filled.insert(name, value);
                told
            }
            Err(problem) => return PromptReply::Invalid(problem),
        };
        self.at += 1;
        if self.at < self.fields.len() {
            return PromptReply::FieldAccepted(told);
        }
        let filled = std::mem::take(&mut self.filled);
        self.finish(Value::Object(filled))
    }

    /// What the text means to the field, or what it takes instead.
    fn parse_field(&self, name: &str, text: &str) -> Result<Option<Value>, &'static str> {
        let field = self.field(name);
        if text.is_empty() {
            return match field_default(field) {
                Some(default) => Ok(Some(default.clone())),
                None if schema_form::is_required(&self.view["schema"], name) => {
                    Err("this must be filled in; /no declines")
                }
                None => Ok(None),
            };
        }
        let value = schema_form::parse_field_value(field, text);
        let is_one = |choices: Vec<String>| match &value {
            Value::Array(items) => items.iter().all(|it| choices.iter().any(|one| *it == **one)),
            Value::String(text) => choices.contains(text),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                choices.contains(&other.to_string())
            }
        };
        if !schema_form::field_choices(field).is_none_or(is_one) {
            return Err("one of those in the brackets");
        }
        match field["type"].as_str() {
            Some("integer" | "number") if !value.is_number() => Err("a number"),
            Some("boolean") if !value.is_boolean() => Err("yes or no"),
            Some(_) | None => Ok(Some(value)),
        }
    }

    /// What was filled in, for somebody who wants to see all of it at once.
    pub(super) fn current_values(&self) -> Value {
        let blank = |name: &String| {
            let field = self.field(name);
            let known =
                self.filled.get(name).or(Some(&field["default"])).filter(|it| !it.is_null());
            (name.clone(), known.unwrap_or(&field["type"]).clone())
        };
        Value::Object(self.fields.iter().map(blank).collect())
    }

    /// The answer. If it is refused, the form is put again, from the start.
    fn finish(&mut self, value: Value) -> PromptReply {
        (self.at, self.filled) = (0, Map::new());
        PromptReply::PostAnswer(json!({"decision": "answer", "value": value}))
    }
}
/// What a field is where nothing is said.
fn field_default(field: &Value) -> Option<&Value> {
    Some(&field["default"]).filter(|default| !default.is_null())
}
