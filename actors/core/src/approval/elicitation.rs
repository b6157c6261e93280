//! Elicitations: requests of a running tool to a human, as a form to fill in or a page to visit
//! (T1, MCP's elicitation).
//!
//! Validates requests and answers. The transport of both belongs to the shell.

use crate::{
    ids::{AttemptId, CallId},
    json::validate_value,
    limits::{
        ELICITATION_ANSWER_BYTES_MAX, ELICITATION_MESSAGE_BYTES_MAX, ELICITATION_SCHEMA_BYTES_MAX,
        ELICITATION_URL_BYTES_MAX,
    },
    policy::schema,
    text::truncate,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A request of a running tool to a human.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Elicitation {
    /// The tool's message to the human.
    pub message: String,
    /// The requested action.
    #[serde(flatten)]
    pub mode: ElicitationMode,
}

/// The action that a tool requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum ElicitationMode {
    /// Fill in a form.
    Form {
        /// JSON Schema of an object whose properties are plain values.
        schema: Value,
    },
    /// Visit a page. The answer to the elicitation carries no value; the tool obtains the rest
    /// from the page.
    Url {
        /// The address of the page.
        url: String,
    },
}

/// The answer that is sent to the tool.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationAnswer {
    /// The human did it. For a form, contains the filled-in values.
    Accepted(Option<Value>),
    /// The human declined.
    Declined,
    /// There is no answer, and none will follow.
    Cancelled,
}

/// An elicitation of a running call, with its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolElicitation {
    /// The call.
    pub call_id: CallId,
    /// The attempt that waits; an answer is not delivered to any other attempt.
    pub attempt_id: AttemptId,
    /// The number of the elicitation within the attempt, starting at 1.
    #[serde(rename = "ask")]
    pub elicitation_number: u32,
    /// The tool.
    pub tool: String,
    /// The server of the tool.
    pub server: String,
    /// The request.
    #[serde(flatten)]
    pub elicitation: Elicitation,
}

impl Elicitation {
    /// Returns the elicitation with its message cut to the limit, or an error if the form or the
    /// page address is invalid.
    pub fn validated(mut self) -> Result<Self, String> {
        self.message = truncate(&self.message, ELICITATION_MESSAGE_BYTES_MAX).to_owned();
        match &self.mode {
            ElicitationMode::Form { schema } => {
                if schema.to_string().len() > ELICITATION_SCHEMA_BYTES_MAX {
                    return Err(format!(
                        "the form is longer than {ELICITATION_SCHEMA_BYTES_MAX} bytes"
                    ));
                }
                schema::compile_form(schema).map_err(|error| format!("the form: {error}"))?;
            }
            ElicitationMode::Url { url } => {
                let is_web = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
                let is_plain = url.chars().all(|c| c.is_ascii_graphic());
                if !is_web || !is_plain || url.len() > ELICITATION_URL_BYTES_MAX {
                    return Err(format!(
                        "the page must be an http(s) address of at most \
                         {ELICITATION_URL_BYTES_MAX} printable ASCII characters"
                    ));
                }
            }
        }
        Ok(self)
    }

    /// Validates the human's `value` and returns the answer for the tool, or a problem text.
    pub fn validate_answer(&self, value: &Value) -> Result<ElicitationAnswer, String> {
        match &self.mode {
            ElicitationMode::Url { .. } if value.is_null() => Ok(ElicitationAnswer::Accepted(None)),
            ElicitationMode::Url { .. } => {
                Err("`value`: must be absent; the page collects the input".to_owned())
            }
            ElicitationMode::Form { schema } => {
                validate_form_value(schema, value)?;
                Ok(ElicitationAnswer::Accepted(Some(value.clone())))
            }
        }
    }
}

fn validate_form_value(schema: &Value, value: &Value) -> Result<(), String> {
    let Value::Object(fields) = value else {
        return Err("`value`: must be an object with the form's fields".to_owned());
    };
    let bytes = value.to_string().len();
    if bytes > ELICITATION_ANSWER_BYTES_MAX {
        return Err(format!("`value`: {bytes} bytes; the limit is {ELICITATION_ANSWER_BYTES_MAX}"));
    }
    validate_value(value).map_err(|problem| format!("`value`: {problem}"))?;
    // A field that the form does not define is probably a typo and would otherwise be ignored.
    if let Some(known) = schema["properties"].as_object()
        && let Some(name) = fields.keys().find(|name| !known.contains_key(name.as_str()))
    {
        return Err(format!("`value`: the form has no field `{}`", truncate(name, 128)));
    }
    let validator = schema::compile_form(schema)?;
    let Err(error) = validator.validate(value) else { return Ok(()) };
    let path = error.instance_path().to_string();
    let field = if path.is_empty() { "`value`".to_owned() } else { format!("`value{path}`") };
    // The value is masked: it may be secret.
    Err(format!("{field}: {}", error.masked()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form(schema: Value) -> Elicitation {
        Elicitation { message: "Which?".to_owned(), mode: ElicitationMode::Form { schema } }
    }

    fn page(url: &str) -> Elicitation {
        Elicitation {
            message: "Sign".to_owned(),
            mode: ElicitationMode::Url { url: url.to_owned() },
        }
    }

    #[test]
    fn t1_elicitation_answer_is_validated_against_form() {
        let schema = json!({
            "type": "object",
            "properties": {
                "hangar": {"type": "string", "enum": ["north", "south"]},
                "count": {"type": "integer", "minimum": 1},
                "mail": {"type": "string", "format": "email"},
            },
            "required": ["hangar"],
        });
        let form = form(schema).validated().unwrap();
        for (value, problem) in [
            (json!({"hangar": "north"}), ""),
            (json!({"hangar": "south", "count": 2, "mail": "a@example.org"}), ""),
            (json!({}), "`value`: "),
            (json!({"hangar": "west"}), "`value/hangar`: "),
            (json!({"hangar": "north", "count": 0}), "`value/count`: "),
            (json!({"hangar": "north", "mail": "nobody"}), "`value/mail`: "),
            (json!({"hangar": "north", "colour": 1}), "the form has no field `colour`"),
            (json!("north"), "`value`: must be an object"),
            (Value::Null, "`value`: must be an object"),
            (json!({"hangar": "x".repeat(ELICITATION_ANSWER_BYTES_MAX)}), "; the limit is "),
        ] {
            match form.validate_answer(&value) {
                Ok(answer) => {
                    assert_eq!(problem, "", "{value}");
                    assert_eq!(answer, ElicitationAnswer::Accepted(Some(value)));
                }
                Err(error) => {
                    assert!(!problem.is_empty() && error.contains(problem), "{error}");
                    assert!(!error.contains("nobody"), "the error repeats the value: {error}");
                }
            }
        }
    }

    #[test]
    fn t1_page_elicitation_accepts_no_value() {
        let page = page("https://example.org/sign").validated().unwrap();
        assert_eq!(page.validate_answer(&Value::Null), Ok(ElicitationAnswer::Accepted(None)));
        assert!(page.validate_answer(&json!({})).is_err());
    }

    #[test]
    fn t1_invalid_elicitation_is_rejected() {
        let long = format!("https://example.org/{}", "a".repeat(ELICITATION_URL_BYTES_MAX));
        for invalid in [
            page("javascript:alert(1)"),
            page("file:///etc/passwd"),
            page("https://example.org/\u{202e}gro"),
            page("https://example.org/a b"),
            page(&long),
            form(json!("no schema")),
            form(json!({"type": "object", "properties": {"a": {"pattern": "("}}})),
            form(json!({"title": "x".repeat(ELICITATION_SCHEMA_BYTES_MAX)})),
        ] {
            assert!(invalid.clone().validated().is_err(), "{invalid:?}");
        }
        let long_message =
            Elicitation { message: "é".repeat(9_000), ..page("https://example.org") };
        assert_eq!(long_message.validated().unwrap().message.len(), ELICITATION_MESSAGE_BYTES_MAX);
    }

    #[test]
    fn t1_elicitation_serializes_flat() {
        let stored = json!({"message": "Sign", "mode": "url", "url": "https://example.org"});
        let parsed: Elicitation = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(
            (serde_json::to_value(&parsed).unwrap(), parsed),
            (stored, page("https://example.org"))
        );
    }
}
