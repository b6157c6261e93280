//! A plan that a person approved: which calls it covers, and what the model is told of it.

use crate::{
    ids::{ApprovalId, UserId},
    json::{Digest, to_canonical_json},
    policy::{Risk, Tool},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// One step as it was approved, or skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPreflightStep {
    /// Its place in the checklist, from 1.
    pub position: u32,
    /// What it does.
    pub description: String,
    /// The tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// The connection that the tool belongs to, if there is such a tool: another server's of that
    /// name is another tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// What may be passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The digest of `arguments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The tool's risk when it was approved.
    pub risk: Risk,
    /// Whether the person changed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
    /// Whether it shall not be done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

/// An approved plan, and what of it is used up.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovedPreflight {
    /// The question that was answered.
    pub approval_id: ApprovalId,
    /// Who approved it.
    pub by: UserId,
    /// What they said to it.
    pub reason: Option<String>,
    /// The steps, in order.
    pub steps: Arc<[ApprovedPreflightStep]>,
    /// The places of the steps that calls have run on.
    pub used_positions: BTreeSet<u32>,
}

impl ApprovedPreflight {
    /// The place of the step that lets this call run: one that nothing ran on yet, of the same
    /// tool and the same arguments; or, where it says no arguments, of the same tool if that
    /// risks little. A tool that has become riskier than what was approved is not covered.
    pub fn covering_step(&self, tool: &Tool, digest: Digest) -> Option<u32> {
        let fits = |step: &&ApprovedPreflightStep| {
            !step.skipped
                && !self.used_positions.contains(&step.position)
                && step.tool_name.as_deref() == Some(tool.name.as_str())
                && step.server.as_deref() == Some(&*tool.server)
                && tool.risk <= step.risk
        };
        let exact = |step: &&ApprovedPreflightStep| step.digest == Some(digest);
        let open = |step: &&ApprovedPreflightStep| {
            step.digest.is_none() && tool.risk <= Risk::WriteLowRisk
        };
        let mut fitting = self.steps.iter().filter(fits);
        let found = fitting.clone().find(exact).or_else(|| fitting.find(open));
        found.map(|step| step.position)
    }

    /// What the model is told of it: it must know what was changed and what was left out.
    pub fn to_prompt(&self) -> String {
        let mut text = "A person looked at the plan you submitted for the user's last message and \
                        approved it as follows:\n"
            .to_owned();
        for step in self.steps.iter() {
            let mark = match (step.skipped, step.edited) {
                (true, _) => " [skipped by the person: do not do this]",
                (false, true) => " [changed by the person]",
                (false, false) => "",
            };
            // On one line, so that it can't pass for another step.
            let words: Vec<_> = step.description.split_whitespace().collect();
            text.push_str(&format!("{}.{mark} {}", step.position, words.join(" ")));
            if let Some(tool) = step.tool_name.as_ref().filter(|_| !step.skipped) {
                let arguments = step.arguments.as_ref().map(to_canonical_json).unwrap_or_default();
                text.push_str(&format!(" ({tool} {arguments})"));
            }
            text.push('\n');
        }
        if let Some(reason) = &self.reason {
            text.push_str(&format!("The person says: {reason}\n"));
        }
        text.push_str(
            "Follow it. A call with exactly the tool and arguments of an approved step runs \
             without asking the person again, once for each step; they are asked about others as \
             usual.",
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
        let (approval_id, used) = (ApprovalId(Uuid::nil()), BTreeSet::new());
        ApprovedPreflight {
            approval_id,
            by,
            reason: None,
            steps: steps.into(),
            used_positions: used,
        }
    }

    #[test]
    fn g14_a_step_covers_one_call_of_its_tool_with_its_arguments() {
        let high = Risk::WriteHighRisk;
        let buy = |n: u64| Some(json!({"quantity": n}));
        let mut plan = plan(vec![step(1, "buy", buy(1), high), step(2, "buy", buy(1), high)]);
        let tool = Tool::for_tests("buy", high);
        let digest = Digest::hash_json(&json!({"quantity": 1}));
        assert_eq!(plan.covering_step(&tool, digest), Some(1));
        plan.used_positions.insert(1);
        assert_eq!(plan.covering_step(&tool, digest), Some(2));
        plan.used_positions.insert(2);
        assert_eq!(plan.covering_step(&tool, digest), None);
    }

    #[test]
    fn g14_only_what_was_approved_is_covered() {
        let (low, high) = (Risk::WriteLowRisk, Risk::WriteHighRisk);
        let here = Some(json!({}));
        let skipped = ApprovedPreflightStep { skipped: true, ..step(1, "a", here.clone(), high) };
        let elsewhere = ApprovedPreflightStep {
            server: Some("other".to_owned()),
            ..step(1, "a", here.clone(), high)
        };
        let nowhere = ApprovedPreflightStep { tool_name: None, ..step(1, "a", None, low) };
        let empty = Digest::hash_json(&json!({}));
        let other = Digest::hash_json(&json!({"n": 1}));
        for (step, tool, risk, digest, is_covered) in [
            (step(1, "a", here.clone(), high), "a", high, empty, true),
            (step(1, "a", here.clone(), high), "a", high, other, false),
            (step(1, "a", here.clone(), high), "b", high, empty, false),
            (step(1, "a", here.clone(), high), "a", Risk::Critical, empty, false),
            (step(1, "a", here, Risk::Critical), "a", Risk::Critical, empty, true),
            (step(1, "a", None, low), "a", low, other, true),
            (step(1, "a", None, high), "a", high, other, false),
            (step(1, "a", None, low), "a", high, other, false),
            (skipped, "a", high, empty, false),
            (nowhere, "a", low, empty, false),
            (elsewhere, "a", high, empty, false),
        ] {
            let found =
                plan(vec![step.clone()]).covering_step(&Tool::for_tests(tool, risk), digest);
            assert_eq!(found.is_some(), is_covered, "{step:?} {tool} {risk}");
        }
    }

    #[test]
    fn g14_exact_arguments_are_used_up_before_open_ones() {
        let low = Risk::WriteLowRisk;
        let plan = plan(vec![step(1, "a", None, low), step(2, "a", Some(json!({})), low)]);
        let tool = Tool::for_tests("a", low);
        assert_eq!(plan.covering_step(&tool, Digest::hash_json(&json!({}))), Some(2));
        assert_eq!(plan.covering_step(&tool, Digest::hash_json(&json!({"n": 1}))), Some(1));
    }

    #[test]
    fn g14_the_model_reads_what_was_changed_and_left_out() {
        let high = Risk::WriteHighRisk;
        let edited =
            ApprovedPreflightStep { edited: true, ..step(1, "buy", Some(json!({"n": 1})), high) };
        let skipped = ApprovedPreflightStep { skipped: true, ..step(2, "sell", None, high) };
        let told =
            ApprovedPreflight { reason: Some("slowly".to_owned()), ..plan(vec![edited, skipped]) };
        let told = told.to_prompt();
        assert!(told.contains("1. [changed by the person] step 1 (buy {\"n\":1})\n"), "{told}");
        assert!(told.contains("2. [skipped by the person: do not do this] step 2\n"), "{told}");
        assert!(told.contains("The person says: slowly\n"), "{told}");
    }
}
