//! What the model is asked for, and reading what it answers.

use crate::{
    call::RetryPolicy,
    ids::ToolName,
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

/// The name of the tool that takes the plan. It exists in the one request that forces its call.
pub const SUBMIT_PLAN_TOOL: &str = "submit_plan";

/// A plan as the model submits it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PreflightPlan {
    /// What it means to do, in order; at least one step.
    pub steps: Vec<PreflightPlanStep>,
    /// What people should know before they agree.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// One step of a submitted plan.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PreflightPlanStep {
    /// What it does, for people.
    #[serde(default)]
    pub description: String,
    /// The tool it means to call. It may name nothing that exists.
    #[serde(default, alias = "toolName", alias = "tool_name")]
    pub tool: Option<String>,
    /// What it means to pass, if it knows that already.
    #[serde(default)]
    pub arguments: Option<Value>,
}

impl PreflightPlan {
    /// The plan in what the model answered. The error says for people why there is none.
    pub fn from_message(answer: &AssistantMessage) -> Result<Self, String> {
        let call = answer.calls.iter().find(|call| call.tool == SUBMIT_PLAN_TOOL);
        let call = call.ok_or("the model submitted no plan")?;
        let arguments = match &call.arguments {
            Arguments::Json(arguments) => arguments,
            Arguments::Malformed { error, .. } => {
                return Err(format!("the model's plan can't be read: {error}"));
            }
        };
        let unreadable = |error: serde_json::Error| {
            format!("the model's plan can't be read: {}", truncate(&error.to_string(), 256))
        };
        Self::deserialize(arguments).map_err(unreadable)?.validated()
    }

    fn validated(mut self) -> Result<Self, String> {
        let found = self.steps.len();
        if found == 0 {
            return Err("the model's plan has no steps".to_owned());
        }
        if found > PREFLIGHT_STEPS_MAX {
            return Err(format!(
                "the model's plan has {found} steps; it may have {PREFLIGHT_STEPS_MAX}"
            ));
        }
        for (step, position) in self.steps.iter_mut().zip(1..) {
            step.tool = step.tool.take().filter(|tool| !tool.trim().is_empty());
            if step.tool.as_ref().is_some_and(|tool| tool.len() > PREFLIGHT_TEXT_BYTES_MAX) {
                return Err(format!("step {position} of the model's plan names no tool"));
            }
            shorten(&mut step.description);
            if step.description.trim().is_empty() {
                let tool = step.tool.as_ref();
                let tool = tool.ok_or(format!("step {position} of the model's plan is empty"))?;
                step.description = format!("Call {tool}");
            }
            step.arguments = step.arguments.take().filter(|arguments| !arguments.is_null());
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

/// The tool, as the model is told of it. No server has it, and no call of it ever runs.
pub fn submit_plan_tool() -> Arc<Tool> {
    let input_schema = json!({
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "minItems": 1,
                "maxItems": PREFLIGHT_STEPS_MAX,
                "description": "What you will do, in order: one step for each tool call.",
                "items": {
                    "type": "object",
                    "properties": {
                        "description": {
                            "type": "string",
                            "description": "What the step does and what for, in one sentence."
                        },
                        "tool": {
                            "type": "string",
                            "description": "The tool it calls; leave it out where it calls none."
                        },
                        "arguments": {
                            "type": "object",
                            "description": "Exactly what it will pass. Leave it out where that \
                                depends on earlier results."
                        }
                    },
                    "required": ["description"]
                }
            },
            "warnings": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What the person should know before they agree."
            }
        },
        "required": ["steps"]
    });
    Arc::new(Tool {
        name: ToolName::parse(SUBMIT_PLAN_TOOL).expect("a plain word is a tool's name"),
        server: "built-in".into(),
        remote_name: SUBMIT_PLAN_TOOL.to_owned(),
        description: "Submit your plan for the user's last message before you begin. A person \
            looks at it, and may change steps, leave some out, or refuse. Nothing runs before."
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

    fn read(plan: Value) -> Result<PreflightPlan, String> {
        PreflightPlan::from_message(&message_with_call(SUBMIT_PLAN_TOOL, Arguments::Json(plan)))
    }

    #[test]
    fn g14_a_plan_is_read_in_either_spelling() {
        let step = |tool: Option<&str>, arguments| PreflightPlanStep {
            description: "Look".to_owned(),
            tool: tool.map(str::to_owned),
            arguments,
        };
        let found = read(json!({"warnings": ["dear"], "steps": [
            {"description": "Look", "tool": "read", "arguments": {"n": 1}},
            {"description": "Look", "toolName": "read", "arguments": null},
            {"description": "Look", "tool": "  "},
        ]}));
        let steps = vec![
            step(Some("read"), Some(json!({"n": 1}))),
            step(Some("read"), None),
            step(None, None),
        ];
        assert_eq!(found, Ok(PreflightPlan { steps, warnings: vec!["dear".to_owned()] }));
        let unnamed = read(json!({"steps": [{"tool": "read"}]})).unwrap();
        assert_eq!(unnamed.steps[0].description, "Call read");
    }

    #[test]
    fn g14_what_is_no_plan_says_why() {
        let many = vec![json!({"description": "again"}); PREFLIGHT_STEPS_MAX + 1];
        for (plan, expected) in [
            (json!([]), "can't be read"),
            (json!({"steps": "buy"}), "can't be read: invalid type"),
            (json!({"steps": [1]}), "can't be read"),
            (json!({"steps": []}), "has no steps"),
            (json!({"steps": many}), "65 steps; it may have 64"),
            (json!({"steps": [{"description": "a"}, {}]}), "step 2 of the model's plan is empty"),
            (json!({"steps": [{"tool": "x".repeat(2000)}]}), "step 1 of the model's plan names no"),
        ] {
            let error = read(plan.clone()).unwrap_err();
            assert!(error.contains(expected), "{plan}: {error}");
        }
        let (raw, error) = (String::new(), "it is cut off".to_owned());
        let broken = message_with_call(SUBMIT_PLAN_TOOL, Arguments::Malformed { raw, error });
        assert!(PreflightPlan::from_message(&broken).unwrap_err().ends_with("it is cut off"));
        let other = message_with_call("read", Arguments::Json(json!({"steps": []})));
        assert_eq!(
            PreflightPlan::from_message(&other),
            Err("the model submitted no plan".to_owned())
        );
    }

    #[test]
    fn g14_texts_and_lists_of_a_plan_are_bounded() {
        let long = "é".repeat(PREFLIGHT_TEXT_BYTES_MAX);
        let warnings = vec![long.clone(); PREFLIGHT_WARNINGS_MAX + 1];
        let plan = read(json!({"steps": [{"description": long}], "warnings": warnings})).unwrap();
        assert!(plan.steps[0].description.len() <= PREFLIGHT_TEXT_BYTES_MAX);
        assert_eq!(plan.warnings.len(), PREFLIGHT_WARNINGS_MAX);
        assert!(plan.warnings.iter().all(|warning| warning.len() <= PREFLIGHT_TEXT_BYTES_MAX));
    }

    #[test]
    fn g14_the_tool_takes_the_plans_that_are_read() {
        let good = json!({"steps": [{"description": "a", "tool": "b", "arguments": {}}]});
        assert_eq!(submit_plan_tool().validate(&good), Ok(()));
        assert!(submit_plan_tool().validate(&json!({"steps": []})).is_err());
    }
}
