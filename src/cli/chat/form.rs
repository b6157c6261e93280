//! What a running tool asks of the person at the terminal (T1): a form, filled in field by field, or
//! a page to visit. Pure.

use super::{ask::Answer, line::Line};
use crate::cli::{
    form,
    terminal::{Style, safe},
};
use serde_json::{Map, Value, json};

/// The question, and what was filled in so far.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Form {
    /// The question as it stands at `/agent/approvals/{id}`.
    pub(super) view: Value,
    fields: Vec<String>,
    /// The field that is asked for.
    at: usize,
    filled: Map<String, Value>,
}

impl Form {
    pub(super) fn new(view: Value) -> Self {
        let fields = form::names(&view["schema"]);
        Self { view, fields, at: 0, filled: Map::new() }
    }

    fn is_page(&self) -> bool {
        self.view["mode"] == "url"
    }

    fn field(&self, name: &str) -> &Value {
        &self.view["schema"]["properties"][name]
    }

    /// How it is put.
    pub(super) fn lines(&self) -> Vec<Line> {
        let text = |name: &str| self.view[name].as_str().unwrap_or_default();
        let who = match text("tool") {
            "" => text("server").to_owned(),
            tool => format!("{tool} of {}", text("server")),
        };
        let mut lines = vec![
            Line::at(0)
                .styled(Style::Yellow, "? ")
                .styled(Style::Bold, text("message"))
                .styled(Style::Dim, &format!("  asked by {who}")),
        ];
        if self.is_page() {
            lines.push(Line::at(2).styled(Style::Bold, text("url")));
            return lines;
        }
        for name in &self.fields {
            let words = form::in_words(self.field(name));
            lines.push(Line::at(4).text(&format!("{name}: {words}")));
        }
        let help =
            "Enter takes what is in brackets, or leaves it out; /no declines, /edit shows all";
        lines.push(Line::at(2).styled(Style::Dim, help));
        lines
    }

    /// What is asked for now.
    pub(super) fn prompt(&self) -> String {
        if self.is_page() {
            return "Done there? y/n".to_owned();
        }
        let Some(name) = self.fields.get(self.at) else {
            return "Answer in JSON, /edit, or /no".to_owned();
        };
        let field = self.field(name);
        let kind = field["type"].as_str().unwrap_or("anything").to_owned();
        let takes = form::choices(field).map_or(kind, |choices| choices.join(" | "));
        let asks = match default_of(field) {
            Some(default) => format!("{name} ({takes}) [{default}]"),
            None if form::is_required(&self.view["schema"], name) => format!("{name} ({takes})"),
            None => format!("{name} ({takes}, may be left out)"),
        };
        safe(&asks)
    }

    /// What somebody's words mean.
    pub(super) fn answer(&mut self, text: &str) -> Answer {
        if self.is_page() {
            return match text.to_lowercase().as_str() {
                "y" | "yes" => Answer::Decide(json!({"decision": "answer"})),
                "n" | "no" | "/no" => Answer::Decide(json!({"decision": "reject"})),
                _ => Answer::Unclear("y: it is done there, n: no"),
            };
        }
        match text {
            "/no" => return Answer::Decide(json!({"decision": "reject"})),
            "/edit" => return Answer::Edit,
            _ => {}
        }
        if let Ok(value @ Value::Object(_)) = serde_json::from_str::<Value>(text) {
            return self.done(value);
        }
        let Some(name) = self.fields.get(self.at).cloned() else {
            return Answer::Unclear("a JSON object; /edit: edit one, /no: decline");
        };
        let told = match self.value(&name, text) {
            Ok(None) => format!("{name} is left out"),
            Ok(Some(value)) => {
                let told = format!("{name}: {value}");
                self.filled.insert(name, value);
                told
            }
            Err(problem) => return Answer::Unclear(problem),
        };
        self.at += 1;
        if self.at < self.fields.len() {
            return Answer::Noted(told);
        }
        let filled = std::mem::take(&mut self.filled);
        self.done(Value::Object(filled))
    }

    /// What the text means to the field, or what it takes instead.
    fn value(&self, name: &str, text: &str) -> Result<Option<Value>, &'static str> {
        let field = self.field(name);
        if text.is_empty() {
            return match default_of(field) {
                Some(default) => Ok(Some(default.clone())),
                None if form::is_required(&self.view["schema"], name) => {
                    Err("this must be filled in; /no declines")
                }
                None => Ok(None),
            };
        }
        let value = form::value_of(field, text);
        let is_one = |choices: Vec<String>| match &value {
            Value::Array(items) => items.iter().all(|it| choices.iter().any(|one| *it == **one)),
            Value::String(text) => choices.contains(text),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                choices.contains(&other.to_string())
            }
        };
        if !form::choices(field).is_none_or(is_one) {
            return Err("one of those in the brackets");
        }
        match field["type"].as_str() {
            Some("integer" | "number") if !value.is_number() => Err("a number"),
            Some("boolean") if !value.is_boolean() => Err("yes or no"),
            Some(_) | None => Ok(Some(value)),
        }
    }

    /// What was filled in, for somebody who wants to see all of it at once.
    pub(super) fn so_far(&self) -> Value {
        let blank = |name: &String| {
            let field = self.field(name);
            let known =
                self.filled.get(name).or(Some(&field["default"])).filter(|it| !it.is_null());
            (name.clone(), known.unwrap_or(&field["type"]).clone())
        };
        Value::Object(self.fields.iter().map(blank).collect())
    }

    /// The answer. If it is refused, the form is put again, from the start.
    fn done(&mut self, value: Value) -> Answer {
        (self.at, self.filled) = (0, Map::new());
        Answer::Decide(json!({"decision": "answer", "value": value}))
    }
}
/// What a field is where nothing is said.
fn default_of(field: &Value) -> Option<&Value> {
    Some(&field["default"]).filter(|default| !default.is_null())
}
