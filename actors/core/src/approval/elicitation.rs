//! What a running tool asks of a person: a form to fill in, or a page to visit (T1, MCP's
//! elicitation). Where the question and the answer travel is others' business.

use crate::{
    ids::{AttemptId, CallId},
    json::validate_levels,
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

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Elicitation {
    /// The tool's words for the person.
    pub message: String,
    /// What the person is to do.
    #[serde(flatten)]
    pub mode: ElicitationMode,
}

/// What a person is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum ElicitationMode {
    /// Fill in a form.
    Form {
        /// JSON Schema of an object whose properties are plain values.
        schema: Value,
    },
    /// Visit a page, where the rest happens; nothing of it comes back this way.
    Url {
        /// The page.
        url: String,
    },
}

/// What the tool is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitationAnswer {
    /// The person did it; of a form, this is what they filled in.
    Accepted(Option<Value>),
    /// The person would not.
    Declined,
    /// There is no answer, and none will come.
    Cancelled,
}

/// A question that a running call waits for the answer of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolElicitation {
    /// The call.
    pub call_id: CallId,
    /// The attempt that asks; the answer is for no other.
    pub attempt_id: AttemptId,
    /// Which of the attempt's questions it is, from 1.
    #[serde(rename = "ask")]
    pub elicitation_number: u32,
    /// The tool.
    pub tool: String,
    /// The server it lives on.
    pub server: String,
    /// What is asked.
    #[serde(flatten)]
    pub elicitation: Elicitation,
}

impl Elicitation {
    /// The same with a message of bounded length, or why it can't be put to anybody.
    pub fn validated(mut self) -> Result<Self, String> {
        self.message = truncate(&self.message, ELICITATION_MESSAGE_BYTES_MAX).to_owned();
        match &self.mode {
            ElicitationMode::Form { schema } => {
                if schema.to_string().len() > ELICITATION_SCHEMA_BYTES_MAX {
                    return Err(format!(
                        "its form has more than {ELICITATION_SCHEMA_BYTES_MAX} bytes"
                    ));
                }
                schema::compile_form(schema).map_err(|error| format!("its form: {error}"))?;
            }
            ElicitationMode::Url { url } => {
                let is_web = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
                let is_plain = url.chars().all(|c| c.is_ascii_graphic());
                if !is_web || !is_plain || url.len() > ELICITATION_URL_BYTES_MAX {
                    return Err(format!(
                        "its page must be an http(s) address of at most \
                         {ELICITATION_URL_BYTES_MAX} plain characters"
                    ));
                }
            }
        }
        Ok(self)
    }

    /// What the tool is told when a person answers `value`, or what is wrong with that.
    pub fn validate_answer(&self, value: &Value) -> Result<ElicitationAnswer, String> {
        match &self.mode {
            ElicitationMode::Url { .. } if value.is_null() => Ok(ElicitationAnswer::Accepted(None)),
            ElicitationMode::Url { .. } => {
                Err("what is done on a page takes no `value` here".to_owned())
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
        return Err("`value` must be an object with the form's fields".to_owned());
    };
    if value.to_string().len() > ELICITATION_ANSWER_BYTES_MAX {
        return Err(format!("`value` may have at most {ELICITATION_ANSWER_BYTES_MAX} bytes"));
    }
    validate_levels(value).map_err(|problem| format!("`value` is {problem}"))?;
    // A field that the form does not have is a slip, which would else go unnoticed.
    if let Some(known) = schema["properties"].as_object()
        && let Some(name) = fields.keys().find(|name| !known.contains_key(name.as_str()))
    {
        return Err(format!("the form has no field `{}`", truncate(name, 128)));
    }
    let validator = schema::compile_form(schema)?;
    let Err(error) = validator.validate(value) else { return Ok(()) };
    let path = error.instance_path().to_string();
    let at = if path.is_empty() { "`value`".to_owned() } else { format!("`value{path}`") };
    // Masked: it may be secret, and the person knows what they said.
    Err(format!("{at}: {}", error.masked()))
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
    fn t1_an_answer_fits_the_form() {
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
            (json!("north"), "`value` must be an object"),
            (Value::Null, "`value` must be an object"),
            (json!({"hangar": "x".repeat(ELICITATION_ANSWER_BYTES_MAX)}), "may have at most"),
        ] {
            match form.validate_answer(&value) {
                Ok(answer) => {
                    assert_eq!(problem, "", "{value}");
                    assert_eq!(answer, ElicitationAnswer::Accepted(Some(value)));
                }
                Err(error) => {
                    assert!(!problem.is_empty() && error.contains(problem), "{error}");
                    assert!(!error.contains("nobody"), "what was said is not repeated: {error}");
                }
            }
        }
    }

    #[test]
    fn t1_a_page_takes_no_value() {
        let page = page("https://example.org/sign").validated().unwrap();
        assert_eq!(page.validate_answer(&Value::Null), Ok(ElicitationAnswer::Accepted(None)));
        assert!(page.validate_answer(&json!({})).is_err());
    }

    #[test]
    fn t1_invalid_elicitations_are_rejected() {
        let long = format!("https://example.org/{}", "a".repeat(ELICITATION_URL_BYTES_MAX));
        for bad in [
            page("javascript:alert(1)"),
            page("file:///etc/passwd"),
            page("https://example.org/\u{202e}gro"),
            page("https://example.org/a b"),
            page(&long),
            form(json!("no schema")),
            form(json!({"type": "object", "properties": {"a": {"pattern": "("}}})),
            form(json!({"title": "x".repeat(ELICITATION_SCHEMA_BYTES_MAX)})),
        ] {
            assert!(bad.clone().validated().is_err(), "{bad:?}");
        }
        let wordy = Elicitation { message: "é".repeat(9_000), ..page("https://example.org") };
        assert_eq!(wordy.validated().unwrap().message.len(), ELICITATION_MESSAGE_BYTES_MAX);
    }

    #[test]
    fn elicitations_serialize_flat() {
        let stored = json!({"message": "Sign", "mode": "url", "url": "https://example.org"});
        let read: Elicitation = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(
            (serde_json::to_value(&read).unwrap(), read),
            (stored, page("https://example.org"))
        );
    }
}
