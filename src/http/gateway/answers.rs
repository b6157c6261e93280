//! Converts a client's answers to [`AnswerRequest`]s.

use super::{
    super::{
        AppState, Problem,
        answers::{AnswerRequest, submit_answer},
        extract,
    },
    approvals::find_approval_of_call,
};
use crate::{auth::Principal, dialect::gateway::EditedStep, redaction::Redactor};
use greenroom_core::{
    approval::Surface,
    delegation::RootRun,
    ids::CallId,
    limits::PREFLIGHT_TEXT_BYTES_MAX,
    policy::Risk,
    preflight::{Checklist, ChecklistStep},
};
use serde_json::{Value, json};

/// A client's decision on one call.
#[derive(Clone, Copy)]
pub(super) struct CallAnswer {
    pub(super) call_id: CallId,
    pub(super) approved: bool,
    /// True if the approval also grants later calls of the tool in the session.
    pub(super) for_session: bool,
}

/// Submits the decision on a call. If it can't be granted for the session, for example because it is
/// critical, it is approved once; returns its run and a notice for the client.
pub(super) async fn answer_call(
    state: &AppState,
    principal: &Principal,
    answer: CallAnswer,
    surface: Surface,
) -> Result<Option<(RootRun, String)>, Problem> {
    let row = find_approval_of_call(state, principal, answer.call_id).await?;
    let once = CallAnswer { for_session: false, ..answer };
    let mut reason = None;
    if answer.for_session {
        let step = row.approval.steps().iter().find(|step| step.call_id == answer.call_id);
        if let Some(step) = step.filter(|step| step.risk == Risk::Critical) {
            let tool = state.redactor.redact_text(&step.tool);
            reason = Some(format!("{tool} is critical and can't be granted"));
        } else {
            let request = answer_to_call(answer)?;
            match submit_answer(state, principal, &row, request, surface).await {
                Err(problem) if problem.code == "invalid_grant" => reason = Some(problem.detail),
                result => return result.map(|_| None),
            }
        }
    }
    submit_answer(state, principal, &row, answer_to_call(once)?, surface).await?;
    let run = row.root.unwrap_or(RootRun { session_id: row.session_id, run_id: row.run_id });
    Ok(reason.map(|reason| (run, format!("Approved once, not for the session: {reason}."))))
}

fn answer_to_call(answer: CallAnswer) -> Result<AnswerRequest, Problem> {
    let decision = if answer.approved { "approve" } else { "reject" };
    let call_id = answer.call_id;
    let mut request = json!({"decision": decision, "steps": [{"call_id": call_id}]});
    if answer.for_session {
        request["for_session"] = json!({});
    }
    extract::deserialize_value(request)
}

/// Returns the decision on a preflight (G14). `edited` is the whole checklist in its order; a step
/// takes another description or is skipped, and keeps its tool and its arguments. A rejection
/// ignores `edited`, since a preflight is rejected as a whole.
pub(super) fn answer_to_preflight(
    approved: bool,
    edited: Option<Vec<EditedStep>>,
    checklist: &Checklist,
    redactor: &Redactor,
) -> Result<AnswerRequest, Problem> {
    let edited = edited.filter(|_| approved);
    let Some(edited) = edited else { return Ok(AnswerRequest::for_all_steps(approved, None)) };
    let steps = &checklist.steps;
    if edited.len() != steps.len() {
        // The first step that is missing or too many.
        let field = format!("editedSteps[{}]", edited.len().min(steps.len()));
        let (given, expected) = (edited.len(), steps.len());
        let detail = format!(
            "`{field}`: `editedSteps` has {given} steps; the checklist has {expected}, and each must \
             be present, in the same order"
        );
        return Err(Problem::invalid(&field, detail));
    }
    let mut edits = Vec::new();
    for (index, (edited, step)) in edited.into_iter().zip(steps).enumerate() {
        edits.extend(edit_of_step(index, edited, step, redactor)?);
    }
    if edits.is_empty() {
        return Ok(AnswerRequest::for_all_steps(true, None));
    }
    extract::deserialize_value(json!({"decision": "approve", "steps": edits}))
}

/// Returns the edit of the step at `index`; `None` if it is unchanged.
fn edit_of_step(
    index: usize,
    edited: EditedStep,
    step: &ChecklistStep,
    redactor: &Redactor,
) -> Result<Option<Value>, Problem> {
    let field = |name: &str| format!("editedSteps[{index}].{name}");
    let EditedStep { description, tool_name, skip } = edited;
    // The client received redacted texts.
    let tool_of_step = step.tool_name.as_deref();
    let is_shown = |name: &str| tool_of_step.is_some_and(|tool| redactor.redact_text(tool) == name);
    if let Some(name) = tool_name.filter(|name| !is_shown(name)) {
        let name = extract::shorten(&name);
        let expected = match tool_of_step {
            Some(tool) => format!("the checklist has `{}`", redactor.redact_text(tool)),
            None => "the checklist has no tool".to_owned(),
        };
        let field = field("toolName");
        let detail = format!("`{field}`: `{name}` is not the tool of this step; {expected}");
        return Err(Problem::invalid(&field, detail));
    }
    if description.len() > PREFLIGHT_TEXT_BYTES_MAX {
        let (bytes, max) = (description.len(), PREFLIGHT_TEXT_BYTES_MAX);
        return Err(Problem::too_long(&field("description"), bytes, max, "bytes"));
    }
    if skip {
        return Ok(Some(json!({"position": step.position, "skip": true})));
    }
    if redactor.redact_text(&step.description) == description {
        return Ok(None);
    }
    Ok(Some(json!({"position": step.position, "description": description})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checklist() -> Checklist {
        serde_json::from_value(json!({
            "steps": [
                {"position": 1, "description": "Think", "risk": "read_only", "needsApproval": false},
                {"position": 2, "description": "Buy", "toolName": "buy", "arguments": {"n": 1},
                    "risk": "write_high_risk", "needsApproval": true},
                {"position": 3, "description": "Use the-secret-of-the-test", "toolName": "sell",
                    "risk": "write_high_risk", "needsApproval": true},
            ],
            "estimatedCost": {"inputTokens": 1, "outputTokens": 1, "estimatedUSD": null},
            "requiredPermissions": [], "warnings": [],
        }))
        .unwrap()
    }

    fn answer(approved: bool, edited: Value) -> Result<String, (Value, String)> {
        let edited = serde_json::from_value(edited).unwrap();
        let redactor = Redactor::new(["the-secret-of-the-test".to_owned()]);
        let answer = answer_to_preflight(approved, edited, &checklist(), &redactor);
        let answer = answer.and_then(AnswerRequest::into_approval_answer);
        answer.map(|answer| format!("{answer:?}")).map_err(|problem| {
            let problem = problem.to_json();
            (problem["field"].clone(), problem["detail"].as_str().unwrap().to_owned())
        })
    }

    fn expected(answer: Value) -> Result<String, (Value, String)> {
        let answer = extract::deserialize_value::<AnswerRequest>(answer).unwrap();
        Ok(format!("{:?}", answer.into_approval_answer().unwrap()))
    }

    #[test]
    fn g14_edited_step_is_the_step_with_its_index() {
        let think = || json!({"description": "Think"});
        let buy = || json!({"description": "Buy", "toolName": "buy"});
        let sell = || json!({"description": "Use [redacted]", "toolName": "sell"});
        let approve = || expected(json!({"decision": "approve"}));
        assert_eq!(answer(true, Value::Null), approve());
        // An unchanged list, as the client received it, is an approval without edits.
        assert_eq!(answer(true, json!([think(), buy(), sell()])), approve());
        assert_eq!(
            answer(
                true,
                json!([
                    {"description": "Think twice"},
                    {"description": "Buy less"},
                    {"description": "anything", "toolName": "sell", "skip": true},
                ])
            ),
            expected(json!({"decision": "approve", "steps": [
                {"position": 1, "description": "Think twice"},
                {"position": 2, "description": "Buy less"},
                {"position": 3, "skip": true},
            ]}))
        );
        let reject = || expected(json!({"decision": "reject"}));
        assert_eq!(answer(false, Value::Null), reject());
        assert_eq!(answer(false, json!([buy()])), reject());
    }

    #[test]
    fn g14_edited_steps_of_another_checklist_name_the_step() {
        let think = || json!({"description": "Think"});
        let buy = || json!({"description": "Buy", "toolName": "buy"});
        let sell = || json!({"description": "Sell", "toolName": "sell"});
        let length = "has 3, and each must be present";
        for (edited, field, detail) in [
            (json!([]), "editedSteps[0]", length),
            (json!([think(), buy()]), "editedSteps[2]", length),
            (json!([think(), buy(), sell(), sell()]), "editedSteps[3]", length),
            (
                json!([think(), sell(), buy()]),
                "editedSteps[1].toolName",
                "`sell` is not the tool of this step; the checklist has `buy`",
            ),
            (json!([buy(), buy(), sell()]), "editedSteps[0].toolName", "the checklist has no tool"),
            (
                json!([think(), buy(), {"description": "x", "toolName": "wipe", "skip": true}]),
                "editedSteps[2].toolName",
                "`wipe` is not the tool",
            ),
            (
                json!([{"description": "x".repeat(PREFLIGHT_TEXT_BYTES_MAX + 1)}, buy(), sell()]),
                "editedSteps[0].description",
                "bytes",
            ),
        ] {
            let (actual_field, actual_detail) = answer(true, edited).unwrap_err();
            assert_eq!(actual_field, field);
            assert!(actual_detail.contains(detail), "{actual_detail}");
        }
    }
}
