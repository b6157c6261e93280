//! The submission of a plan: the tool that the model must call, and the parser of its arguments.

use crate::{
    call::RetryPolicy,
    ids::ToolName,
    json::validate_object,
    limits::{
        PREFLIGHT_STEPS_MAX, PREFLIGHT_TEXT_BYTES_MAX, PREFLIGHT_WARNINGS_MAX,
        TOOL_RESULT_BYTES_DEFAULT,
    },
    message::{Arguments, AssistantMessage},
    policy::{Risk, RiskSource, Tool, schema},
    text::truncate,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The name of the tool that accepts the plan. Only the request that forces a call of it contains
/// the tool.
pub const SUBMIT_PLAN_TOOL: &str = "submit_plan";

/// A plan as the model submits it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PreflightPlan {
    /// The steps, in order; at least one.
    pub steps: Vec<PreflightPlanStep>,
    /// Warnings for the approver.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// One step of a submitted plan.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PreflightPlanStep {
    /// The description, for humans.
    #[serde(default)]
    pub description: String,
    /// The tool that the step will call. It need not exist.
    #[serde(default, alias = "toolName", alias = "tool_name")]
    pub tool: Option<String>,
    /// The arguments, if the model knows them in advance.
    #[serde(default)]
    pub arguments: Option<Value>,
}

impl PreflightPlan {
    /// Parses the plan in the model's message. The error states for humans why there is no valid
    /// plan.
    pub fn from_message(message: &AssistantMessage) -> Result<Self, String> {
        let call = message.calls.iter().find(|call| call.tool == SUBMIT_PLAN_TOOL);
        let call = call.ok_or("the model submitted no plan")?;
        let arguments = match &call.arguments {
            Arguments::Json(arguments) => arguments,
            Arguments::Malformed { error, .. } => {
                return Err(format!("the model's plan is invalid: {error}"));
            }
        };
        let invalid = |error: serde_json::Error| {
            format!("the model's plan is invalid: {}", truncate(&error.to_string(), 256))
        };
        Self::deserialize(arguments).map_err(invalid)?.validated()
    }

    fn validated(mut self) -> Result<Self, String> {
        let steps = self.steps.len();
        if steps == 0 {
            return Err("the model's plan has no steps".to_owned());
        }
        if steps > PREFLIGHT_STEPS_MAX {
            return Err(format!(
                "the model's plan has {steps} steps; the limit is {PREFLIGHT_STEPS_MAX}"
            ));
        }
        for (step, position) in self.steps.iter_mut().zip(1..) {
            step.tool = step.tool.take().filter(|tool| !tool.trim().is_empty());
            if step.tool.as_ref().is_some_and(|tool| tool.len() > PREFLIGHT_TEXT_BYTES_MAX) {
                return Err(format!(
                    "step {position} of the model's plan: the tool name is longer than \
                     {PREFLIGHT_TEXT_BYTES_MAX} bytes"
                ));
            }
            shorten(&mut step.description);
            if step.description.trim().is_empty() {
                let tool = step.tool.as_ref();
                let tool = tool.ok_or(format!("step {position} of the model's plan is empty"))?;
                step.description = format!("Call {tool}");
            }
            step.arguments = step.arguments.take().filter(|arguments| !arguments.is_null());
            step.arguments.as_ref().map_or(Ok(()), validate_object).map_err(|problem| {
                format!("step {position} of the model's plan: the arguments are {problem}")
            })?;
        }
        self.warnings.truncate(PREFLIGHT_WARNINGS_MAX);
        self.warnings.iter_mut().for_each(shorten);
        Ok(self)
    }
}

fn shorten(text: &mut String) {
    if text.len() > PREFLIGHT_TEXT_BYTES_MAX {
        *text = truncate(text, PREFLIGHT_TEXT_BYTES_MAX).to_owned();
    }
}

/// Returns the definition of the tool, for the model. The tool belongs to no server, and no call of
/// it is ever executed.
pub fn submit_plan_tool() -> Arc<Tool> {
    let input_schema = json!({
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "minItems": 1,
                "maxItems": PREFLIGHT_STEPS_MAX,
                "description": "The steps, in order: one for each tool call.",
                "items": {
                    "type": "object",
                    "properties": {
                        "description": {
                            "type": "string",
                            "description": "The action and the purpose of the step, in one sentence."
                        },
                        "tool": {
                            "type": "string",
                            "description": "The tool of the step; absent if it calls none."
                        },
                        "arguments": {
                            "type": "object",
                            "description": "The exact arguments; absent if they depend on \
                                earlier results."
                        }
                    },
                    "required": ["description"]
                }
            },
            "warnings": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Warnings for the approver."
            }
        },
        "required": ["steps"]
    });
    Arc::new(Tool {
        name: ToolName::parse(SUBMIT_PLAN_TOOL).expect("the constant is a valid tool name"),
        server: "built-in".into(),
        remote_name: SUBMIT_PLAN_TOOL.to_owned(),
        description: "Submit your plan for the user's last message before you start. A human \
            reviews it and may change steps, skip steps, or reject it. Nothing runs before the \
            approval."
            .to_owned(),
        validator: schema::compile(&input_schema),
        input_schema,
        risk: Risk::ReadOnly,
        risk_source: RiskSource::Catalog,
        repeatable: false,
        parallel: false,
        timeout: None,
        result_bytes_max: TOOL_RESULT_BYTES_DEFAULT,
        retry: RetryPolicy::default(),
        unavailable_reason: None,
        denial_reason: None,
        constraints: Vec::new(),
        cost: None,
        exclusive: None,
        cache_ttl: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::CallId, message::ProposedCall};
    use uuid::Uuid;

    fn message_with_call(tool: &str, arguments: Arguments) -> AssistantMessage {
        let (call_id, provider_id) = (CallId(Uuid::nil()), String::new());
        let call = ProposedCall { call_id, provider_id, tool: tool.to_owned(), arguments };
        AssistantMessage { calls: vec![call], ..AssistantMessage::default() }
    }

    fn parse(plan: Value) -> Result<PreflightPlan, String> {
        PreflightPlan::from_message(&message_with_call(SUBMIT_PLAN_TOOL, Arguments::Json(plan)))
    }

    #[test]
    fn g14_plan_is_parsed_in_both_spellings() {
        let step = |tool: Option<&str>, arguments| PreflightPlanStep {
            description: "Look".to_owned(),
            tool: tool.map(str::to_owned),
            arguments,
        };
        let plan = parse(json!({"warnings": ["dear"], "steps": [
            {"description": "Look", "tool": "read", "arguments": {"n": 1}},
            {"description": "Look", "toolName": "read", "arguments": null},
            {"description": "Look", "tool": "  "},
        ]}));
        let steps = vec![
            step(Some("read"), Some(json!({"n": 1}))),
            step(Some("read"), None),
            step(None, None),
        ];
        assert_eq!(plan, Ok(PreflightPlan { steps, warnings: vec!["dear".to_owned()] }));
        let unnamed = parse(json!({"steps": [{"tool": "read"}]})).unwrap();
        assert_eq!(unnamed.steps[0].description, "Call read");
    }

    #[test]
    fn g14_invalid_plan_is_rejected_with_reason() {
        let many = vec![json!({"description": "again"}); PREFLIGHT_STEPS_MAX + 1];
        for (plan, expected) in [
            (json!([]), "is invalid"),
            (json!({"steps": "buy"}), "is invalid: invalid type"),
            (json!({"steps": [1]}), "is invalid"),
            (json!({"steps": []}), "has no steps"),
            (json!({"steps": many}), "65 steps; the limit is 64"),
            (json!({"steps": [{"description": "a"}, {}]}), "step 2 of the model's plan is empty"),
            (
                json!({"steps": [{"tool": "read", "arguments": "{\"n\":1}"}]}),
                "step 1 of the model's plan: the arguments are not a JSON object but a string",
            ),
            (json!({"steps": [{"tool": "x".repeat(2000)}]}), "tool name is longer than 1024 bytes"),
        ] {
            let error = parse(plan.clone()).unwrap_err();
            assert!(error.contains(expected), "{plan}: {error}");
        }
        let (raw, error) = (String::new(), "it is cut off".to_owned());
        let malformed = message_with_call(SUBMIT_PLAN_TOOL, Arguments::Malformed { raw, error });
        assert!(PreflightPlan::from_message(&malformed).unwrap_err().ends_with("it is cut off"));
        let other = message_with_call("read", Arguments::Json(json!({"steps": []})));
        assert_eq!(
            PreflightPlan::from_message(&other),
            Err("the model submitted no plan".to_owned())
        );
    }

    #[test]
    fn g14_plan_texts_and_lists_are_bounded() {
        let long = "é".repeat(PREFLIGHT_TEXT_BYTES_MAX);
        let warnings = vec![long.clone(); PREFLIGHT_WARNINGS_MAX + 1];
        let plan = parse(json!({"steps": [{"description": long}], "warnings": warnings})).unwrap();
        assert!(plan.steps[0].description.len() <= PREFLIGHT_TEXT_BYTES_MAX);
        assert_eq!(plan.warnings.len(), PREFLIGHT_WARNINGS_MAX);
        assert!(plan.warnings.iter().all(|warning| warning.len() <= PREFLIGHT_TEXT_BYTES_MAX));
    }

    #[test]
    fn g14_submit_plan_tool_accepts_valid_plan() {
        let valid = json!({"steps": [{"description": "a", "tool": "b", "arguments": {}}]});
        assert_eq!(submit_plan_tool().validate(&valid), Ok(()));
        assert!(submit_plan_tool().validate(&json!({"steps": []})).is_err());
    }
}
