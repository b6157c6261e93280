//! Calls that were sent, may not safely repeat, and of whose end nothing is known (D3): a person
//! says what became of them. Nothing is done twice in silence, and nothing is said to have failed
//! that may have taken effect.

use super::{DecisionBuilder, Rejection, authorization::ToolLookup, plans::PlanStepDraft};
use crate::{
    approval::{ApprovalSubject, RecordedAnswer, Resolution, UnknownOutcome},
    call::{CallFailureReason, ToolOutput},
    ids::{ApprovalId, CallId},
    json::validate_levels,
    limits,
    policy::Verdict,
    session::{CallAuthorization, SessionEvent},
    text::truncate,
};
use serde_json::Value;

impl DecisionBuilder<'_> {
    /// Asks a person what became of the call. With nobody there to ask, the model is told that it
    /// is not known (G13).
    pub(super) fn request_outcome(&mut self, call_id: CallId, why: &str) {
        let Some(call) = self.call(call_id) else { return };
        if self.env.rules.agent.headless {
            let error = format!(
                "{why}. The call had been sent: it may or may not have taken effect, and it was \
                 not repeated. Check before trying again"
            );
            return self.fail_call(call_id, CallFailureReason::OutcomeUnknown, error, false);
        }
        // It may be thought riskier by now than when it was called.
        let risk = self.tool(&call.tool).map_or(call.risk, |tool| tool.risk.max(call.risk));
        let purpose = format!("Say what became of {}", truncate(&call.tool, 128));
        let asked = UnknownOutcome {
            call_id,
            tool: call.tool.clone(),
            arguments: call.effective_arguments().to_value(),
            digest: call.digest,
            risk,
            attempts: call.attempts,
            why: why.to_owned(),
        };
        self.request_approval(ApprovalSubject::UnknownOutcome(asked), purpose, risk);
    }

    pub(super) fn resolve_unknown_outcome(
        &mut self,
        approval_id: ApprovalId,
        asked: &UnknownOutcome,
        word: RecordedAnswer,
    ) -> Result<(), Rejection> {
        let call_id = asked.call_id;
        let (resolution, by) = (word.resolution.clone(), word.by.clone());
        let because = word.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        match resolution {
            Resolution::Retry => {
                let Some(call) = self.call(call_id).cloned() else { return Ok(()) };
                let found = match self.lookup_tool(&call) {
                    ToolLookup::Available(tool) => Ok(tool),
                    ToolLookup::Removed => Err("the tool is not there any more"),
                    ToolLookup::Unavailable => {
                        Err("the tool is not there now; its server may be away")
                    }
                };
                let tool = found
                    .map_err(|problem| Rejection::InvalidAnswer { problem: problem.to_owned() })?;
                if let Err(problem) = tool.validate(&asked.arguments) {
                    return Err(Rejection::InvalidAnswer { problem });
                }
                // A person's word repeats the call; it does not lift what denies it by now, and
                // covers no higher risk than they were told.
                match self.verdict_with_reservation(
                    &tool,
                    &asked.arguments,
                    call.reservation.as_ref(),
                ) {
                    Verdict::Deny(denial) => {
                        return Err(Rejection::InvalidAnswer { problem: denial.reason });
                    }
                    Verdict::Ask { reason: why, cost, exceeds_budget }
                        if tool.risk > asked.risk =>
                    {
                        self.emit_answer(approval_id, word);
                        let ask = PlanStepDraft {
                            call_id,
                            tool,
                            reason: why,
                            cost,
                            exceeds_budget,
                            edited: None,
                        };
                        self.request_plan_approval(vec![ask]);
                    }
                    Verdict::Ask { .. } | Verdict::Allow { .. } | Verdict::OverBudget { .. } => {
                        self.emit_answer(approval_id, word);
                        let by = CallAuthorization::Approval { approval_id, by };
                        self.allow_call(call_id, &asked.arguments, by, None);
                    }
                }
            }
            Resolution::Done(value) => {
                let tool = self.tool(&asked.tool);
                let most = tool.map_or(limits::TOOL_RESULT_BYTES_DEFAULT, |it| it.result_bytes_max);
                let output = to_tool_output(value, asked, most)?;
                self.emit_answer(approval_id, word);
                let tool = asked.tool.clone();
                self.emit(SessionEvent::ToolCallCompleted { call_id, tool, output });
            }
            Resolution::Failed => {
                self.emit_answer(approval_id, word);
                let error = format!("a person says that the call did not take effect{because}");
                self.fail_call(call_id, CallFailureReason::Error, error, false);
            }
            Resolution::Raise(_)
            | Resolution::Stop
            | Resolution::Approve(_)
            | Resolution::Reject
            | Resolution::Answer(_) => {}
        }
        Ok(())
    }
}

/// The result that a person gives: a text as it is, else JSON. It is bounded as the tool's own is.
fn to_tool_output(
    value: Value,
    asked: &UnknownOutcome,
    bytes_max: usize,
) -> Result<ToolOutput, Rejection> {
    validate_levels(&value).map_err(|problem| {
        let problem = format!("the result is {problem}");
        Rejection::InvalidAnswer { problem }
    })?;
    let (text, structured) = match value {
        Value::Null => {
            let text = format!("a person says that {} took effect", asked.tool);
            (text, None)
        }
        Value::String(text) => (text, None),
        value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            (value.to_string(), Some(value))
        }
    };
    if text.len() > bytes_max {
        let problem = format!("a result may have at most {bytes_max} bytes");
        return Err(Rejection::InvalidAnswer { problem });
    }
    Ok(ToolOutput { text, structured, truncated: false, cached: false })
}
