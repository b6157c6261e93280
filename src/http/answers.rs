//! Answers of humans to approvals. REST and WebSockets both use this module, so that limits and
//! rights are the same on every surface.

use super::{AppState, Problem, commands::unexpected_reply};
use crate::{
    audit::{AuditAction, AuditActor, AuditEntry, AuditOutcome},
    auth::Principal,
    redaction::Redactor,
};
use greenroom_actors::session::CommandError;
use greenroom_core::{
    amount::Amount,
    approval::{
        Approval, ApprovalSubject, GrantRequest, PlanStepDecision, RecordedAnswer, Resolution,
        Surface,
    },
    ids::{CallId, UserId},
    limits::{PREFLIGHT_TEXT_BYTES_MAX, REASON_BYTES_MAX},
    preflight::ChecklistStepEdit,
    session::{
        ApprovalAnswer, ApprovalRow, ApprovalState, Input, PlanStepAnswer, Rejection, Reply,
    },
};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The detail of the problem when a decision does not allow a value.
const VALUE_NOT_ALLOWED: &str = "`value` is allowed only with `answer`, `done` and `raise`";

/// An answer to an approval (G8, G11).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerRequest {
    /// The decision: `approve` or `reject` for a plan or preflight; `retry`, `done` or `failed` for
    /// an unknown outcome; `raise` or `stop` for a budget; `answer` or `reject` for an elicitation.
    #[serde(default)]
    pub(super) decision: Option<String>,
    /// Decides only these steps. A step without its own decision takes the overall decision.
    #[serde(default)]
    pub(super) steps: Option<Vec<StepAnswerRequest>>,
    /// The reason, shown to the model and in the record.
    #[serde(default)]
    pub(super) reason: Option<String>,
    /// Also grants later calls of the same tool in this session (G9).
    #[serde(default)]
    pub(super) for_session: Option<SessionGrantRequest>,
    /// The answer (`answer`), the result of the call (`done`) or the new limit (`raise`).
    #[serde(default)]
    pub(super) value: Option<Value>,
}

/// A grant for later calls in the session (G9).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionGrantRequest {
    /// A CEL expression that the arguments of later calls must satisfy.
    #[serde(default, rename = "where")]
    condition: Option<String>,
}

/// The answer to one step: of a plan, identified by `call_id`, or of a preflight, identified by
/// `position` (G14).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StepAnswerRequest {
    /// The call of the plan's step.
    #[serde(default)]
    call_id: Option<CallId>,
    /// The position of the preflight's step, from 1.
    #[serde(default)]
    position: Option<u32>,
    /// The edited description of the preflight's step.
    #[serde(default)]
    description: Option<String>,
    /// The edited tool of the preflight's step.
    #[serde(default, rename = "toolName", alias = "tool_name")]
    tool_name: Option<String>,
    /// True to leave the preflight's step out.
    #[serde(default)]
    skip: bool,
    /// `approve` or `reject`; only for a plan's step.
    #[serde(default)]
    decision: Option<String>,
    /// The edited arguments of the step.
    #[serde(default)]
    arguments: Option<Value>,
    /// The reason for the decision; only for a plan's step.
    #[serde(default)]
    reason: Option<String>,
}

impl AnswerRequest {
    /// Returns an answer that approves or rejects all undecided steps.
    pub(super) fn for_all_steps(approve: bool, reason: Option<String>) -> Self {
        let decision = Some(if approve { "approve" } else { "reject" }.to_owned());
        Self { decision, steps: None, reason, for_session: None, value: None }
    }

    /// Returns an answer to the elicitation of a running tool (T1).
    pub(super) fn for_elicitation(accepted: bool, value: Option<Value>) -> Self {
        let decision = Some(if accepted { "answer" } else { "reject" }.to_owned());
        let value = value.filter(|_| accepted);
        Self { decision, steps: None, reason: None, for_session: None, value }
    }

    /// Converts the request to the session's input. If `steps` is present, only those steps are
    /// decided; a step without its own decision or reason takes the overall one.
    pub(super) fn into_approval_answer(self) -> Result<ApprovalAnswer, Problem> {
        let reason = self.reason.map(|reason| validate_reason("reason", reason)).transpose()?;
        if let Some(resolution) = parse_resolution(self.decision.as_deref(), &self.value)? {
            if self.steps.is_some() {
                return Err(Problem::invalid("steps", "`steps` is allowed only for a plan"));
            }
            return Ok(ApprovalAnswer::Resolve { resolution, reason });
        }
        if self.value.as_ref().is_some_and(|value| !value.is_null()) {
            return Err(Problem::invalid("value", VALUE_NOT_ALLOWED));
        }
        let overall = self.decision.as_deref();
        let overall = overall.map(|text| parse_decision("decision", text)).transpose()?;
        let Some(steps) = self.steps else {
            let missing = || Problem::invalid("decision", "requires `decision` or `steps`");
            let approved = overall.ok_or_else(missing)?;
            return Ok(ApprovalAnswer::Overall { approved, reason });
        };
        if steps.iter().any(|step| step.position.is_some()) {
            let resolution = Resolution::Approve(parse_step_edits(steps, overall)?);
            return Ok(ApprovalAnswer::Resolve { resolution, reason });
        }
        let mut answers = Vec::with_capacity(steps.len());
        for (index, step) in steps.into_iter().enumerate() {
            let field = |name: &str| format!("steps[{index}].{name}");
            let own_decision = step.decision.as_deref();
            let own_decision =
                own_decision.map(|text| parse_decision(&field("decision"), text)).transpose()?;
            let missing = || {
                let name = field("decision");
                Problem::invalid(&name, format!("`{name}`: requires `approve` or `reject`"))
            };
            let approved = own_decision.or(overall).ok_or_else(missing)?;
            let own_reason = step.reason.clone();
            let own_reason = own_reason.map(|reason| validate_reason(&field("reason"), reason));
            let reason = own_reason.transpose()?.or_else(|| reason.clone());
            let StepAnswerRequest { call_id, arguments, .. } = step;
            // Ignoring these fields would let the call run although the caller excluded it.
            for (name, is_present) in [
                ("skip", step.skip),
                ("toolName", step.tool_name.is_some()),
                ("description", step.description.is_some()),
            ] {
                if is_present {
                    let name = field(name);
                    let detail = format!(
                        "`{name}`: allowed only with `position`, in a preflight; a step of a plan \
                         takes `decision`, `arguments` and `reason`"
                    );
                    return Err(Problem::invalid(&name, detail));
                }
            }
            let missing_id = || {
                let detail = format!("`steps[{index}]`: requires `call_id` or `position`");
                Problem::invalid(&field("call_id"), detail)
            };
            let call_id = call_id.ok_or_else(missing_id)?;
            answers.push(PlanStepAnswer { call_id, approved, reason, arguments });
        }
        Ok(ApprovalAnswer::Steps(answers))
    }
}

/// Converts the step answers of a preflight to edits of its checklist (G14).
fn parse_step_edits(
    steps: Vec<StepAnswerRequest>,
    overall: Option<bool>,
) -> Result<Vec<ChecklistStepEdit>, Problem> {
    match overall {
        Some(true) => {}
        Some(false) => {
            let detail = "a preflight is rejected as a whole; use `skip` to leave out single steps";
            return Err(Problem::invalid("steps", detail));
        }
        None => return Err(Problem::invalid("decision", "editing steps requires `approve`")),
    }
    let parse_edit = |(index, step): (usize, StepAnswerRequest)| {
        let field = |name: &str| format!("steps[{index}].{name}");
        let StepAnswerRequest { call_id, position, description, tool_name, skip, .. } = step;
        let missing = || {
            let name = field("position");
            Problem::invalid(&name, format!("`{name}`: requires the position of a step, from 1"))
        };
        let position = position.ok_or_else(missing)?;
        for (name, is_present) in [
            ("call_id", call_id.is_some()),
            ("decision", step.decision.is_some()),
            ("reason", step.reason.is_some()),
        ] {
            if is_present {
                let name = field(name);
                let detail = format!(
                    "`{name}`: not allowed with `position`; use `skip` to leave a step out"
                );
                return Err(Problem::invalid(&name, detail));
            }
        }
        for (name, text) in [("description", &description), ("toolName", &tool_name)] {
            let bytes = text.as_ref().map_or(0, String::len);
            if bytes > PREFLIGHT_TEXT_BYTES_MAX {
                let max = PREFLIGHT_TEXT_BYTES_MAX;
                return Err(Problem::too_long(&field(name), bytes, max, "bytes"));
            }
        }
        // An empty tool name and null arguments mean no change.
        let tool_name = tool_name.filter(|name| !name.is_empty());
        let arguments = step.arguments.filter(|arguments| !arguments.is_null());
        Ok(ChecklistStepEdit { position, description, tool_name, arguments, skip })
    };
    steps.into_iter().enumerate().map(parse_edit).collect()
}

/// Parses the decisions of approvals without steps. Returns `None` for any other decision.
fn parse_resolution(
    decision: Option<&str>,
    value: &Option<Value>,
) -> Result<Option<Resolution>, Problem> {
    let resolution = match decision {
        Some("retry") => Resolution::Retry,
        Some("failed") => Resolution::Failed,
        Some("stop") => Resolution::Stop,
        Some("answer") => {
            return Ok(Some(Resolution::Answer(value.clone().unwrap_or(Value::Null))));
        }
        Some("done") => return Ok(Some(Resolution::Done(value.clone().unwrap_or(Value::Null)))),
        Some("raise") => {
            let Some(Value::Number(limit)) = value else {
                return Err(Problem::invalid("value", "`value` must be the new limit, a number"));
            };
            let limit = Amount::from_number(limit);
            let limit =
                limit.map_err(|problem| Problem::invalid("value", format!("`value` {problem}")))?;
            return Ok(Some(Resolution::Raise(limit)));
        }
        Some(_) | None => return Ok(None),
    };
    match value {
        None | Some(Value::Null) => Ok(Some(resolution)),
        Some(_) => Err(Problem::invalid("value", VALUE_NOT_ALLOWED)),
    }
}

fn parse_decision(field: &str, text: &str) -> Result<bool, Problem> {
    match text {
        "approve" => Ok(true),
        "reject" => Ok(false),
        _ => Err(Problem::invalid(field, format!("`{field}` must be `approve` or `reject`"))),
    }
}

fn validate_reason(field: &str, reason: String) -> Result<String, Problem> {
    if reason.len() <= REASON_BYTES_MAX {
        return Ok(reason);
    }
    Err(Problem::too_long(field, reason.len(), REASON_BYTES_MAX, "bytes"))
}

/// Restores the original arguments wherever the client sent redacted texts back unchanged (E7). The
/// session restores values that were replaced as a whole.
fn restore_redacted(
    answer: ApprovalAnswer,
    approval: &Approval,
    redactor: &Redactor,
) -> ApprovalAnswer {
    let restore = |original: Option<&Value>, edited: Option<Value>| match (original, edited) {
        (Some(original), Some(edited)) => Some(redactor.restore(original, edited)),
        (_, edited) => edited,
    };
    match (answer, &approval.subject) {
        (ApprovalAnswer::Steps(mut answers), _) => {
            for answer in &mut answers {
                let mut steps = approval.steps().iter();
                let step = steps.find(|step| step.call_id == answer.call_id);
                let original = step.map(|step| &step.arguments);
                answer.arguments = restore(original, answer.arguments.take());
            }
            ApprovalAnswer::Steps(answers)
        }
        (
            ApprovalAnswer::Resolve { resolution: Resolution::Approve(mut edits), reason },
            ApprovalSubject::Preflight(checklist),
        ) => {
            for edit in &mut edits {
                let mut steps = checklist.steps.iter();
                let step = steps.find(|step| step.position == edit.position);
                let original = step.and_then(|step| step.arguments.as_ref());
                edit.arguments = restore(original, edit.arguments.take());
            }
            ApprovalAnswer::Resolve { resolution: Resolution::Approve(edits), reason }
        }
        (answer, _) => answer,
    }
}

/// The outcome of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AnswerOutcome {
    pub(super) closed: bool,
    pub(super) repeated: bool,
}

/// Submits a human's answer to an approval.
///
/// The session's event records the answer. The audit row adds the credential, and records refusals
/// that never reach the session.
pub(super) async fn submit_answer(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    answer: AnswerRequest,
    surface: Surface,
) -> Result<AnswerOutcome, Problem> {
    let mut answer = answer;
    let for_session = answer.for_session.take();
    let for_session = for_session.map(|request| GrantRequest { condition: request.condition });
    let answer = restore_redacted(answer.into_approval_answer()?, &row.approval, &state.redactor);
    let answer = answer.normalized_for(&row.approval.subject);
    let outcome = send_answer(state, principal, row, (answer, for_session), surface).await?;
    if !outcome.repeated {
        record_answer(state, principal, row, surface, AuditOutcome::Accepted, None).await;
    }
    Ok(outcome)
}

async fn record_answer(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    surface: Surface,
    outcome: AuditOutcome,
    reason: Option<String>,
) {
    let actor = Some(AuditActor::from_principal(principal, surface));
    let now = state.runtime.clock.now();
    let entry = AuditEntry {
        session_id: Some(row.session_id),
        run_id: Some(row.run_id),
        approval_id: Some(row.approval.approval_id),
        reason,
        ..AuditEntry::new(now, AuditAction::ApprovalAnswered, outcome, actor)
    };
    // The answer itself is already committed, together with the user.
    if let Err(error) = state.record_audit(entry).await {
        tracing::error!(%error, "failed to audit the credential of an answer");
    }
}

async fn send_answer(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    (answer, for_session): (ApprovalAnswer, Option<GrantRequest>),
    surface: Surface,
) -> Result<AnswerOutcome, Problem> {
    let user = principal.user.clone();
    let approval_id = row.approval.approval_id;
    let input = Input::AnswerApproval {
        approval_id,
        answer: answer.clone(),
        for_session: for_session.clone(),
        by: user.clone(),
        role: principal.role,
        surface,
    };
    match state.runtime.execute(row.session_id, input).await {
        Ok(Reply::Answered { closed, repeated }) => Ok(AnswerOutcome { closed, repeated }),
        Ok(
            other @ (Reply::Done
            | Reply::Submitted { .. }
            | Reply::Repeated { .. }
            | Reply::QueueUpdated { .. }
            | Reply::Steered { .. }
            | Reply::Cancelled { .. }),
        ) => Err(unexpected_reply(&other)),
        // A session keeps only its newest closed approvals; the store has all of them.
        Err(CommandError::Rejected(Rejection::UnknownApproval { .. })) => {
            match_closed_approval(row, &answer, for_session.as_ref(), &user)
                .map_err(|rejection| Problem::from_rejected_answer(rejection, &state.redactor))
        }
        Err(CommandError::Rejected(rejection)) => {
            if rejection.is_missing_right() {
                let (outcome, reason) = (AuditOutcome::Refused, Some(rejection.to_string()));
                record_answer(state, principal, row, surface, outcome, reason).await;
            }
            Err(Problem::from_rejected_answer(rejection, &state.redactor))
        }
        Err(error) => Err(error.into()),
    }
}

fn match_closed_approval(
    row: &ApprovalRow,
    answer: &ApprovalAnswer,
    for_session: Option<&GrantRequest>,
    user: &UserId,
) -> Result<AnswerOutcome, Rejection> {
    let approval_id = row.approval.approval_id;
    match row.state {
        ApprovalState::Pending => return Err(Rejection::UnknownApproval { approval_id }),
        ApprovalState::Expired => return Err(Rejection::ApprovalExpired),
        ApprovalState::Cancelled => return Err(Rejection::ApprovalCancelled),
        ApprovalState::Decided => {}
    }
    let same = |first: &PlanStepDecision, approved| {
        let is_same_grant = first.for_session.as_ref() == for_session;
        first.approved == approved && first.by == *user && is_same_grant
    };
    let repeated = match answer {
        ApprovalAnswer::Overall { approved, .. } => {
            let unedited = |first: &PlanStepDecision| first.edited.is_none();
            row.decisions.iter().all(|first| same(first, *approved) && unedited(first))
        }
        ApprovalAnswer::Steps(steps) => steps.iter().all(|step| {
            let mut decisions = row.decisions.iter().filter(|first| first.call_id == step.call_id);
            let same_arguments = |first: &PlanStepDecision| match &step.arguments {
                Some(arguments) => first.digest.matches(arguments),
                None => first.edited.is_none(),
            };
            decisions.any(|first| same(first, step.approved) && same_arguments(first))
        }),
        ApprovalAnswer::Resolve { resolution, reason: _ } => {
            let first = row.answer.as_ref();
            let is_same =
                |first: &RecordedAnswer| first.resolution == *resolution && first.by == *user;
            for_session.is_none() && first.is_some_and(is_same)
        }
    };
    if repeated {
        return Ok(AnswerOutcome { closed: true, repeated });
    }
    let decisions = row.decisions.iter().filter(|first| answer.decides(first.call_id));
    let (decisions, answer) = (decisions.cloned().collect(), row.answer.clone().map(Box::new));
    Err(Rejection::AlreadyDecided { decisions, answer })
}

#[cfg(test)]
mod tests {
    use super::{super::extract, *};
    use serde_json::json;

    fn parse(text: Value) -> Result<ApprovalAnswer, Problem> {
        extract::deserialize_value::<AnswerRequest>(text)
            .and_then(AnswerRequest::into_approval_answer)
    }

    const CALL: &str = "0198c0de-0000-7000-8000-000000000001";

    #[test]
    fn g8_answer_decides_the_whole_plan_or_single_steps() {
        let call_id = CALL.parse().unwrap();
        let reason = Some("why".to_owned());
        assert_eq!(
            parse(json!({"decision": "reject", "reason": "why"})),
            Ok(ApprovalAnswer::Overall { approved: false, reason: reason.clone() })
        );
        let step = |approved| {
            let reason = reason.clone();
            ApprovalAnswer::Steps(vec![PlanStepAnswer {
                call_id,
                approved,
                reason,
                arguments: None,
            }])
        };
        let own_reason =
            json!({"steps": [{"call_id": CALL, "decision": "approve", "reason": "why"}]});
        assert_eq!(parse(own_reason), Ok(step(true)));
        let inherited_reason =
            json!({"decision": "reject", "reason": "why", "steps": [{"call_id": CALL}]});
        assert_eq!(parse(inherited_reason), Ok(step(false)));
    }

    #[test]
    fn g11_approvals_without_steps_have_their_own_decisions() {
        for (answer, resolution) in [
            (json!({"decision": "retry"}), Resolution::Retry),
            (json!({"decision": "done"}), Resolution::Done(Value::Null)),
            (json!({"decision": "done", "value": {"id": 1}}), Resolution::Done(json!({"id": 1}))),
            (json!({"decision": "failed"}), Resolution::Failed),
            (
                json!({"decision": "raise", "value": 2.5}),
                Resolution::Raise(Amount::parse("2.5").unwrap()),
            ),
            (json!({"decision": "stop"}), Resolution::Stop),
        ] {
            let expected = ApprovalAnswer::Resolve { resolution, reason: None };
            assert_eq!(parse(answer.clone()), Ok(expected), "{answer}");
        }
    }

    #[test]
    fn g14_preflight_steps_are_edited_by_position() {
        let expected = ChecklistStepEdit {
            position: 2,
            tool_name: Some("buy".to_owned()),
            arguments: Some(json!({"n": 1})),
            ..ChecklistStepEdit::default()
        };
        let skipped = ChecklistStepEdit { position: 1, skip: true, ..ChecklistStepEdit::default() };
        let resolution = Resolution::Approve(vec![expected, skipped]);
        let actual = parse(json!({"decision": "approve", "steps": [
            {"position": 2, "toolName": "buy", "arguments": {"n": 1}},
            {"position": 1, "skip": true, "toolName": "", "arguments": null},
        ]}));
        assert_eq!(actual, Ok(ApprovalAnswer::Resolve { resolution, reason: None }));
        let long = "x".repeat(PREFLIGHT_TEXT_BYTES_MAX + 1);
        for (answer, field) in [
            (json!({"steps": [{"position": 1}]}), "decision"),
            (json!({"decision": "reject", "steps": [{"position": 1}]}), "steps"),
            (json!({"decision": "approve", "steps": [{"position": 1}, {}]}), "steps[1].position"),
            (
                json!({"decision": "approve", "steps": [{"position": 1, "call_id": CALL}]}),
                "steps[0].call_id",
            ),
            (
                json!({"decision": "approve", "steps": [{"position": 1, "description": long}]}),
                "steps[0].description",
            ),
            (json!({"decision": "approve", "steps": [{}]}), "steps[0].call_id"),
        ] {
            let problem = parse(answer.clone()).unwrap_err();
            assert_eq!(problem.extra["field"], field, "{answer}");
        }
    }

    #[test]
    fn g8_ambiguous_answer_is_rejected() {
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        let with_step_field = |name: &str, value: Value| {
            let mut step = json!({"call_id": CALL});
            step[name] = value;
            json!({"decision": "approve", "steps": [step]})
        };
        for (answer, code, field) in [
            (json!({}), "invalid_request", "decision"),
            (json!({"decision": "maybe"}), "invalid_request", "decision"),
            (json!({"decision": "answer", "steps": []}), "invalid_request", "steps"),
            (json!({"decision": "approve", "value": 1}), "invalid_request", "value"),
            (json!({"decision": "retry", "value": 1}), "invalid_request", "value"),
            (json!({"decision": "raise"}), "invalid_request", "value"),
            (json!({"decision": "raise", "value": "much"}), "invalid_request", "value"),
            (json!({"decision": "done", "steps": []}), "invalid_request", "steps"),
            (json!({"decision": "approve", "reason": long}), "invalid_request", "reason"),
            (json!({"steps": [{"call_id": CALL}]}), "invalid_request", "steps[0].decision"),
            (json!({"steps": [{"call_id": "x"}]}), "invalid_request", "steps[0].call_id"),
            (with_step_field("skip", json!(true)), "invalid_request", "steps[0].skip"),
            (with_step_field("toolName", json!("buy")), "invalid_request", "steps[0].toolName"),
            (
                with_step_field("description", json!("Buy")),
                "invalid_request",
                "steps[0].description",
            ),
        ] {
            let problem = parse(answer.clone()).unwrap_err();
            let actual_field = problem.extra["field"].as_str().unwrap();
            assert_eq!((problem.code, actual_field), (code, field), "{answer}");
        }
    }
}
