//! An approved plan: the calls that it covers, and its description for the model.

use crate::{
    ids::{ApprovalId, UserId},
    json::{Digest, to_canonical_json},
    policy::{Risk, Tool},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// One step of a plan, as it was approved or skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPreflightStep {
    /// The position in the checklist, starting at 1.
    pub position: u32,
    /// The description of the step.
    pub description: String,
    /// The tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The connection of the tool, if the tool exists. A tool of the same name on another server is
    /// not covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The arguments that may be passed; `None` if they were not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The digest of `arguments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The tool's risk at the time of the approval.
    pub risk: Risk,
    /// True if the approver changed the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
    /// True if the approver excluded the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

/// An approved plan, and the positions of its steps that are used.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovedPreflight {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The user who approved the plan.
    pub by: UserId,
    /// The approver's reason.
    pub reason: Option<String>,
    /// The steps, in order.
    pub steps: Arc<[ApprovedPreflightStep]>,
    /// The positions of the steps that have authorized a call.
    pub used_positions: BTreeSet<u32>,
}

impl ApprovedPreflight {
    /// Returns the position of the step that authorizes a call: an unused step with the same tool
    /// and arguments, or else, for a tool of at most [`Risk::WriteLowRisk`], an unused step with
    /// the same tool and no arguments. A tool whose risk exceeds the approved risk is not covered.
    pub fn covering_step(&self, tool: &Tool, arguments: &Value) -> Option<u32> {
        let fits = |step: &&ApprovedPreflightStep| {
            !step.skipped
                && !self.used_positions.contains(&step.position)
                && step.tool_name.as_deref() == Some(tool.name.as_str())
                && step.server.as_deref() == Some(&*tool.server)
                && tool.risk <= step.risk
        };
        let has_arguments = |step: &&ApprovedPreflightStep| {
            step.digest.is_some_and(|digest| digest.matches(arguments))
        };
        let covers_any_arguments = |step: &&ApprovedPreflightStep| {
            step.digest.is_none() && tool.risk <= Risk::WriteLowRisk
        };
        let mut candidates = self.steps.iter().filter(fits);
        let step = candidates
            .clone()
            .find(has_arguments)
            .or_else(|| candidates.find(covers_any_arguments));
        step.map(|step| step.position)
    }

    /// Returns true if the approver changed a step, apart from skipping it.
    pub fn is_edited(&self) -> bool {
        self.steps.iter().any(|step| step.edited && !step.skipped)
    }

    /// Formats the plan for the model, including the changed and the skipped steps.
    pub fn to_prompt(&self) -> String {
        let mut text = "The plan that you submitted for the user's last message was approved by a \
                        human as follows:\n"
            .to_owned();
        for step in self.steps.iter() {
            let mark = match (step.skipped, step.edited) {
                (true, _) => " [skipped by the approver: do not do this]",
                (false, true) => " [changed by the approver]",
                (false, false) => "",
            };
            // The description is put on one line, so that it can't imitate another step.
            let words: Vec<_> = step.description.split_whitespace().collect();
            text.push_str(&format!("{}.{mark} {}", step.position, words.join(" ")));
            if let Some(tool) = step.tool_name.as_ref().filter(|_| !step.skipped) {
                let arguments = step.arguments.as_ref().map(to_canonical_json).unwrap_or_default();
                text.push_str(&format!(" ({tool} {arguments})"));
            }
            text.push('\n');
        }
        if let Some(reason) = &self.reason {
            text.push_str(&format!("The approver's reason: {reason}\n"));
        }
        text.push_str(
            "Follow it. A call with exactly the tool and arguments of an approved step runs \
             without another approval, once for each step. Other calls need approval as usual.",
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    fn step(
        position: u32,
        tool: &str,
        arguments: Option<Value>,
        risk: Risk,
    ) -> ApprovedPreflightStep {
        let digest = arguments.as_ref().map(Digest::hash_json);
        let (description, tool_name) = (format!("step {position}"), Some(tool.to_owned()));
        ApprovedPreflightStep {
            position,
            description,
            tool_name,
            server: Some("test".to_owned()),
            arguments,
            digest,
            risk,
            edited: false,
            skipped: false,
        }
    }

    fn plan(steps: Vec<ApprovedPreflightStep>) -> ApprovedPreflight {
        let by = UserId::parse("ann").unwrap();
        let (approval_id, used_positions) = (ApprovalId(Uuid::nil()), BTreeSet::new());
        ApprovedPreflight { approval_id, by, reason: None, steps: steps.into(), used_positions }
    }

    #[test]
    fn g14_step_covers_one_call_with_same_tool_and_arguments() {
        let high = Risk::WriteHighRisk;
        let buy = |n: u64| Some(json!({"quantity": n}));
        let mut plan = plan(vec![step(1, "buy", buy(1), high), step(2, "buy", buy(1), high)]);
        let tool = Tool::for_tests("buy", high);
        let arguments = json!({"quantity": 1});
        assert_eq!(plan.covering_step(&tool, &arguments), Some(1));
        plan.used_positions.insert(1);
        assert_eq!(plan.covering_step(&tool, &arguments), Some(2));
        plan.used_positions.insert(2);
        assert_eq!(plan.covering_step(&tool, &arguments), None);
    }

    #[test]
    fn g14_call_that_differs_from_step_is_not_covered() {
        let (low, high) = (Risk::WriteLowRisk, Risk::WriteHighRisk);
        let no_fields = Some(json!({}));
        let skipped =
            ApprovedPreflightStep { skipped: true, ..step(1, "a", no_fields.clone(), high) };
        let other_server = ApprovedPreflightStep {
            server: Some("other".to_owned()),
            ..step(1, "a", no_fields.clone(), high)
        };
        let without_tool = ApprovedPreflightStep { tool_name: None, ..step(1, "a", None, low) };
        let (empty, other) = (&json!({}), &json!({"n": 1}));
        for (step, tool, risk, arguments, is_covered) in [
            (step(1, "a", no_fields.clone(), high), "a", high, empty, true),
            (step(1, "a", no_fields.clone(), high), "a", high, other, false),
            (step(1, "a", no_fields.clone(), high), "b", high, empty, false),
            (step(1, "a", no_fields.clone(), high), "a", Risk::Critical, empty, false),
            (step(1, "a", no_fields, Risk::Critical), "a", Risk::Critical, empty, true),
            (step(1, "a", None, low), "a", low, other, true),
            (step(1, "a", None, high), "a", high, other, false),
            (step(1, "a", None, low), "a", high, other, false),
            (skipped, "a", high, empty, false),
            (without_tool, "a", low, empty, false),
            (other_server, "a", high, empty, false),
        ] {
            let position =
                plan(vec![step.clone()]).covering_step(&Tool::for_tests(tool, risk), arguments);
            assert_eq!(position.is_some(), is_covered, "{step:?} {tool} {risk}");
        }
    }

    #[test]
    fn g14_step_with_exact_arguments_is_used_first() {
        let low = Risk::WriteLowRisk;
        let plan = plan(vec![step(1, "a", None, low), step(2, "a", Some(json!({})), low)]);
        let tool = Tool::for_tests("a", low);
        assert_eq!(plan.covering_step(&tool, &json!({})), Some(2));
        assert_eq!(plan.covering_step(&tool, &json!({"n": 1})), Some(1));
    }

    #[test]
    fn g14_prompt_contains_changed_and_skipped_steps() {
        let high = Risk::WriteHighRisk;
        let edited =
            ApprovedPreflightStep { edited: true, ..step(1, "buy", Some(json!({"n": 1})), high) };
        let skipped = ApprovedPreflightStep { skipped: true, ..step(2, "sell", None, high) };
        let plan =
            ApprovedPreflight { reason: Some("slowly".to_owned()), ..plan(vec![edited, skipped]) };
        let prompt = plan.to_prompt();
        assert!(
            prompt.contains("1. [changed by the approver] step 1 (buy {\"n\":1})\n"),
            "{prompt}"
        );
        assert!(
            prompt.contains("2. [skipped by the approver: do not do this] step 2\n"),
            "{prompt}"
        );
        assert!(prompt.contains("The approver's reason: slowly\n"), "{prompt}");
    }
}
