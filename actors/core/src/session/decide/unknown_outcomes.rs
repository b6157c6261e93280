//! Calls with an unknown outcome (D3): they were dispatched, may not safely be repeated, and their
//! end is not known. A human decides how to resolve them. No call is silently executed twice, and
//! no call that may have taken effect is reported as failed.

use super::{DecisionBuilder, Rejection, authorization::ToolLookup, plans::PlanStepDraft};
use crate::{
    approval::{ApprovalSubject, RecordedAnswer, Resolution, Role, UnknownOutcome},
    call::{CallFailureReason, ToolOutput},
    ids::{ApprovalId, CallId},
    json::validate_value,
    limits,
    policy::Verdict,
    session::{CallAuthorization, SessionEvent},
    text::truncate,
};
use serde_json::Value;

impl DecisionBuilder<'_> {
    /// Requests an approval to resolve the call's outcome. In a headless profile the call fails
    /// with an error that states the unknown outcome (G13).
    pub(super) fn request_outcome(&mut self, call_id: CallId, cause: &str) {
        let Some(call) = self.call(call_id) else { return };
        if self.env.rules.agent.headless {
            let error = format!(
                "{cause}. The call had been sent: it may or may not have taken effect, and it was \
                 not repeated. Check before trying again"
            );
            return self.fail_call(call_id, CallFailureReason::OutcomeUnknown, error, false);
        }
        // The tool's risk may have been raised since the call was proposed.
        let risk = self.tool(&call.tool).map_or(call.risk, |tool| tool.risk.max(call.risk));
        let purpose = format!("Resolve the unknown outcome of {}", truncate(&call.tool, 128));
        let request = UnknownOutcome {
            call_id,
            tool: call.tool.clone(),
            arguments: call.effective_arguments().to_value(),
            digest: call.digest,
            risk,
            attempts: call.attempts,
            why: cause.to_owned(),
        };
        self.request_approval(ApprovalSubject::UnknownOutcome(request), purpose, risk);
    }

    pub(super) fn resolve_unknown_outcome(
        &mut self,
        approval_id: ApprovalId,
        request: &UnknownOutcome,
        answer: RecordedAnswer,
        role: Role,
    ) -> Result<(), Rejection> {
        let call_id = request.call_id;
        let (resolution, by) = (answer.resolution.clone(), answer.by.clone());
        let reason_suffix =
            answer.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        match resolution {
            Resolution::Retry => {
                let Some(call) = self.call(call_id).cloned() else { return Ok(()) };
                let lookup = match self.lookup_tool(&call) {
                    ToolLookup::Available(tool) => Ok(tool),
                    ToolLookup::Removed => Err("the tool is no longer available"),
                    ToolLookup::Unavailable => {
                        Err("the tool is currently unavailable; its server may be disconnected")
                    }
                };
                let tool = lookup
                    .map_err(|problem| Rejection::InvalidAnswer { problem: problem.to_owned() })?;
                if let Err(problem) = tool.validate(&request.arguments) {
                    return Err(Rejection::InvalidAnswer { problem });
                }
                // The answer repeats the call. It does not override a denial, and does not cover a
                // higher risk than the approval showed.
                match self.verdict_with_reservation(
                    &tool,
                    &request.arguments,
                    call.reservation.as_ref(),
                ) {
                    Verdict::Deny(denial) => {
                        return Err(Rejection::InvalidAnswer { problem: denial.reason });
                    }
                    Verdict::Ask { reason: why, cost, exceeds_budget }
                        if tool.risk > request.risk =>
                    {
                        self.emit_answer(approval_id, answer);
                        let draft = PlanStepDraft {
                            call_id,
                            tool,
                            reason: why,
                            cost,
                            exceeds_budget,
                            edited: None,
                        };
                        self.request_plan_approval(vec![draft]);
                    }
                    Verdict::Ask { .. } | Verdict::Allow { .. } | Verdict::OverBudget { .. } => {
                        self.emit_answer(approval_id, answer);
                        let authorization =
                            CallAuthorization::Approval { approval_id, by, role: Some(role) };
                        self.allow_call(call_id, &request.arguments, authorization, None);
                    }
                }
            }
            Resolution::Done(value) => {
                let tool = self.tool(&request.tool);
                let bytes_max =
                    tool.map_or(limits::TOOL_RESULT_BYTES_DEFAULT, |tool| tool.result_bytes_max);
                let output = to_tool_output(value, request, bytes_max)?;
                self.emit_answer(approval_id, answer);
                let tool = request.tool.clone();
                self.emit(SessionEvent::ToolCallCompleted { call_id, tool, output });
            }
            Resolution::Failed => {
                self.emit_answer(approval_id, answer);
                let error =
                    format!("a human answered that the call did not take effect{reason_suffix}");
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

/// Converts the result given by a human: a string becomes the text, any other value is kept as
/// JSON. The tool's size limit applies.
fn to_tool_output(
    value: Value,
    request: &UnknownOutcome,
    bytes_max: usize,
) -> Result<ToolOutput, Rejection> {
    validate_value(&value).map_err(|problem| {
        let problem = format!("the result is {problem}");
        Rejection::InvalidAnswer { problem }
    })?;
    let (text, structured) = match value {
        Value::Null => {
            let text = format!("a human answered that {} took effect", request.tool);
            (text, None)
        }
        Value::String(text) => (text, None),
        value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            (value.to_string(), Some(value))
        }
    };
    if text.len() > bytes_max {
        let problem = format!("the result has {} bytes; the limit is {bytes_max}", text.len());
        return Err(Rejection::InvalidAnswer { problem });
    }
    Ok(ToolOutput { text, structured, truncated: false, cached: false })
}
