//! People's answers to questions, whatever the surface: REST and WebSockets both come through here,
//! so that a limit or a right holds on either.

use super::{AppState, Problem, commands::unexpected_reply};
use crate::{
    audit::{AuditAction, AuditActor, AuditEntry, AuditOutcome},
    auth::Principal,
    redaction::Redactor,
};
use greenroom_actors::session::CommandError;
use greenroom_core::{
    approval::{
        Approval, ApprovalSubject, GrantRequest, PlanStepDecision, RecordedAnswer, Resolution,
        Surface,
    },
    ids::{CallId, UserId},
    json::Digest,
    limits::{PREFLIGHT_TEXT_BYTES_MAX, REASON_BYTES_MAX},
    preflight::ChecklistStepEdit,
    session::{
        ApprovalAnswer, ApprovalRow, ApprovalState, Input, PlanStepAnswer, Rejection, Reply,
    },
};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Why another decision may not have one.
const VALUE_NOT_ALLOWED: &str = "only `answer`, `done` and `raise` take a value";

/// A person's answer as every surface takes it (G8, G11).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerRequest {
    /// `approve` or `reject`; of other questions `retry`, `done`, `failed`, `raise`, `stop` or `answer`.
    #[serde(default)]
    pub(super) decision: Option<String>,
    /// Only these steps; one that says nothing takes the decision of the whole.
    #[serde(default)]
    pub(super) steps: Option<Vec<StepAnswerRequest>>,
    #[serde(default)]
    pub(super) reason: Option<String>,
    /// Whether it holds for later calls of the session, too.
    #[serde(default)]
    pub(super) for_session: Option<SessionGrantRequest>,
    /// With `answer`, `done` and `raise`: what is answered, the result, the new limit.
    #[serde(default)]
    pub(super) value: Option<Value>,
}

/// What shall hold for the session (G9).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionGrantRequest {
    /// A CEL expression that later calls must satisfy.
    #[serde(default, rename = "where")]
    condition: Option<String>,
}

/// A person's word on one step: of a plan, whose steps are calls, or of a preflight, whose steps
/// have positions (G14).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StepAnswerRequest {
    #[serde(default)]
    call_id: Option<CallId>,
    #[serde(default)]
    position: Option<u32>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default, rename = "toolName", alias = "tool_name")]
    tool_name: Option<String>,
    #[serde(default)]
    skip: bool,
    #[serde(default)]
    decision: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(default)]
    reason: Option<String>,
}

impl AnswerRequest {
    /// Approve, or reject, all that is undecided.
    pub(super) fn for_all_steps(approve: bool, reason: Option<String>) -> Self {
        let decision = Some(if approve { "approve" } else { "reject" }.to_owned());
        Self { decision, steps: None, reason, for_session: None, value: None }
    }

    /// What a running tool is told (T1).
    pub(super) fn for_elicitation(accepted: bool, value: Option<Value>) -> Self {
        let decision = Some(if accepted { "answer" } else { "reject" }.to_owned());
        let value = value.filter(|_| accepted);
        Self { decision, steps: None, reason: None, for_session: None, value }
    }

    /// In the session's words. With steps, those alone are decided; one that says nothing takes
    /// the decision and reason of the whole.
    fn into_approval_answer(self) -> Result<ApprovalAnswer, Problem> {
        let reason = self.reason.map(|reason| validate_reason("reason", reason)).transpose()?;
        if let Some(resolution) = parse_resolution(self.decision.as_deref(), &self.value)? {
            if self.steps.is_some() {
                return Err(Problem::invalid("steps", "only a plan has steps to decide"));
            }
            return Ok(ApprovalAnswer::Resolve { resolution, reason });
        }
        if self.value.as_ref().is_some_and(|given| !given.is_null()) {
            return Err(Problem::invalid("value", VALUE_NOT_ALLOWED));
        }
        let whole = self.decision.as_deref();
        let whole = whole.map(|word| parse_decision("decision", word)).transpose()?;
        let Some(steps) = self.steps else {
            let missing = || Problem::invalid("decision", "say `decision`, or `steps`");
            return Ok(ApprovalAnswer::Overall { approved: whole.ok_or_else(missing)?, reason });
        };
        if steps.iter().any(|step| step.position.is_some()) {
            let resolution = Resolution::Approve(parse_step_edits(steps, whole)?);
            return Ok(ApprovalAnswer::Resolve { resolution, reason });
        }
        let mut answers = Vec::with_capacity(steps.len());
        for (index, step) in steps.into_iter().enumerate() {
            let field = |name: &str| format!("steps[{index}].{name}");
            let own = step.decision.as_deref();
            let own = own.map(|word| parse_decision(&field("decision"), word)).transpose()?;
            let missing =
                || Problem::invalid(&field("decision"), "say `approve` or `reject` for each step");
            let approved = own.or(whole).ok_or_else(missing)?;
            let said = step.reason.clone();
            let said = said.map(|reason| validate_reason(&field("reason"), reason));
            let reason = said.transpose()?.or_else(|| reason.clone());
            let StepAnswerRequest { call_id, arguments, .. } = step;
            // They would be left unheard, and the call would run.
            for (name, is_given) in [
                ("skip", step.skip),
                ("toolName", step.tool_name.is_some()),
                ("description", step.description.is_some()),
            ] {
                if is_given {
                    let detail = "goes with `position`, in a preflight; a call takes `decision`, \
                                  `arguments` and `reason`";
                    return Err(Problem::invalid(&field(name), detail));
                }
            }
            let unnamed = || Problem::invalid(&field("call_id"), "say which call, or `position`");
            let call_id = call_id.ok_or_else(unnamed)?;
            answers.push(PlanStepAnswer { call_id, approved, reason, arguments });
        }
        Ok(ApprovalAnswer::Steps(answers))
    }
}

/// What a person changes of a preflight's steps (G14).
fn parse_step_edits(
    steps: Vec<StepAnswerRequest>,
    whole: Option<bool>,
) -> Result<Vec<ChecklistStepEdit>, Problem> {
    match whole {
        Some(true) => {}
        Some(false) => {
            let detail = "a plan is rejected whole; `skip` leaves single steps out";
            return Err(Problem::invalid("steps", detail));
        }
        None => return Err(Problem::invalid("decision", "say `approve` to change steps")),
    }
    let change = |(index, step): (usize, StepAnswerRequest)| {
        let field = |name: &str| format!("steps[{index}].{name}");
        let StepAnswerRequest { call_id, position, description, tool_name, skip, .. } = step;
        let unnamed = || Problem::invalid(&field("position"), "say which step, from 1");
        let position = position.ok_or_else(unnamed)?;
        for (name, is_given) in [
            ("call_id", call_id.is_some()),
            ("decision", step.decision.is_some()),
            ("reason", step.reason.is_some()),
        ] {
            if is_given {
                let detail = "does not go with `position`; say `skip` to leave a step out";
                return Err(Problem::invalid(&field(name), detail));
            }
        }
        for (name, text) in [("description", &description), ("toolName", &tool_name)] {
            if text.as_ref().is_some_and(|text| text.len() > PREFLIGHT_TEXT_BYTES_MAX) {
                let detail = format!("may have at most {PREFLIGHT_TEXT_BYTES_MAX} bytes");
                return Err(Problem::invalid(&field(name), detail));
            }
        }
        // What is empty or null says nothing.
        let tool_name = tool_name.filter(|name| !name.is_empty());
        let arguments = step.arguments.filter(|arguments| !arguments.is_null());
        Ok(ChecklistStepEdit { position, description, tool_name, arguments, skip })
    };
    steps.into_iter().enumerate().map(change).collect()
}

/// What `word` says to a question without steps, if it is one for those.
fn parse_resolution(
    word: Option<&str>,
    value: &Option<Value>,
) -> Result<Option<Resolution>, Problem> {
    let resolution = match word {
        Some("retry") => Resolution::Retry,
        Some("failed") => Resolution::Failed,
        Some("stop") => Resolution::Stop,
        Some("answer") => {
            return Ok(Some(Resolution::Answer(value.clone().unwrap_or(Value::Null))));
        }
        Some("done") => return Ok(Some(Resolution::Done(value.clone().unwrap_or(Value::Null)))),
        Some("raise") => {
            let limit = value.as_ref().and_then(Value::as_f64);
            let missing = || Problem::invalid("value", "value must be the new limit, a number");
            return limit.map(Resolution::Raise).map(Some).ok_or_else(missing);
        }
        Some(_) | None => return Ok(None),
    };
    match value {
        None | Some(Value::Null) => Ok(Some(resolution)),
        Some(_) => Err(Problem::invalid("value", VALUE_NOT_ALLOWED)),
    }
}

fn parse_decision(field: &str, word: &str) -> Result<bool, Problem> {
    match word {
        "approve" => Ok(true),
        "reject" => Ok(false),
        _ => Err(Problem::invalid(field, "a decision is `approve` or `reject`")),
    }
}

fn validate_reason(field: &str, reason: String) -> Result<String, Problem> {
    if reason.len() <= REASON_BYTES_MAX {
        return Ok(reason);
    }
    Err(Problem::invalid(field, format!("{field} may have at most {REASON_BYTES_MAX} bytes")))
}

/// The answer, with the arguments' texts that a person sends back as they were shown as they are
/// (E7). What was replaced as a whole is the session's to put back.
fn restore_redacted(
    answer: ApprovalAnswer,
    approval: &Approval,
    redactor: &Redactor,
) -> ApprovalAnswer {
    let known = |original: Option<&Value>, edited: Option<Value>| match (original, edited) {
        (Some(original), Some(edited)) => Some(redactor.restore(original, edited)),
        (_, edited) => edited,
    };
    match (answer, &approval.subject) {
        (ApprovalAnswer::Steps(mut answers), _) => {
            for answer in &mut answers {
                let mut steps = approval.steps().iter();
                let step = steps.find(|step| step.call_id == answer.call_id);
                answer.arguments = known(step.map(|step| &step.arguments), answer.arguments.take());
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
                edit.arguments = known(original, edit.arguments.take());
            }
            ApprovalAnswer::Resolve { resolution: Resolution::Approve(edits), reason }
        }
        (answer, _) => answer,
    }
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AnswerOutcome {
    pub(super) closed: bool,
    pub(super) repeated: bool,
}

/// Takes a person's answer. The audit log has it with the session's event; what the event does not
/// know, by which credential and that it was refused here, is noted beside it.
pub(super) async fn submit_answer(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    answer: AnswerRequest,
    surface: Surface,
) -> Result<AnswerOutcome, Problem> {
    let mut answer = answer;
    let for_session = answer.for_session.take();
    let for_session = for_session.map(|wish| GrantRequest { condition: wish.condition });
    let answer = restore_redacted(answer.into_approval_answer()?, &row.approval, &state.redactor);
    let answer = answer.normalized_for(&row.approval.subject);
    if let Err(refusal) = state.critical_approval.authorize(principal, row, &answer) {
        let outcome = AuditOutcome::Refused;
        record_answer(state, principal, row, surface, outcome, Some(refusal.to_string())).await;
        return Err(refusal.into());
    }
    let decided = send_answer(state, principal, row, (answer, for_session), surface).await?;
    if !decided.repeated {
        record_answer(state, principal, row, surface, AuditOutcome::Accepted, None).await;
    }
    Ok(decided)
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
    // What was answered stands, and who answered is in the log with it.
    if let Err(error) = state.record_audit(entry).await {
        tracing::error!(%error, "the audit log lacks by which credential somebody answered");
    }
}

async fn send_answer(
    state: &AppState,
    principal: &Principal,
    row: &ApprovalRow,
    (answer, for_session): (ApprovalAnswer, Option<GrantRequest>),
    surface: Surface,
) -> Result<AnswerOutcome, Problem> {
    let by = principal.user.clone();
    let approval_id = row.approval.approval_id;
    let input = Input::AnswerApproval {
        approval_id,
        answer: answer.clone(),
        for_session: for_session.clone(),
        by: by.clone(),
        role: principal.role,
        surface,
    };
    match state.runtime.execute(row.session_id, input).await {
        Ok(Reply::Answered { closed, repeated }) => Ok(AnswerOutcome { closed, repeated }),
        Ok(
            other @ (Reply::Done
            | Reply::Submitted { .. }
            | Reply::Steered { .. }
            | Reply::Cancelled { .. }),
        ) => Err(unexpected_reply(&other)),
        // A session remembers the newest closed questions; the store has them all.
        Err(CommandError::Rejected(Rejection::UnknownApproval { .. })) => {
            Ok(match_closed_approval(row, &answer, for_session.as_ref(), &by)?)
        }
        Err(error) => Err(error.into()),
    }
}

fn match_closed_approval(
    row: &ApprovalRow,
    answer: &ApprovalAnswer,
    for_session: Option<&GrantRequest>,
    by: &UserId,
) -> Result<AnswerOutcome, Rejection> {
    let approval_id = row.approval.approval_id;
    match row.state {
        ApprovalState::Pending => return Err(Rejection::UnknownApproval { approval_id }),
        ApprovalState::Expired => return Err(Rejection::ApprovalExpired),
        ApprovalState::Cancelled => return Err(Rejection::ApprovalCancelled),
        ApprovalState::Decided => {}
    }
    let same = |first: &PlanStepDecision, approved| {
        let is_wish = first.for_session.as_ref() == for_session;
        first.approved == approved && first.by == *by && is_wish
    };
    let repeated = match answer {
        ApprovalAnswer::Overall { approved, .. } => {
            let plain = |first: &PlanStepDecision| first.edited.is_none();
            row.decisions.iter().all(|first| same(first, *approved) && plain(first))
        }
        ApprovalAnswer::Steps(steps) => steps.iter().all(|step| {
            let mut firsts = row.decisions.iter().filter(|first| first.call_id == step.call_id);
            let same_arguments = |first: &PlanStepDecision| match &step.arguments {
                Some(arguments) => first.digest == Digest::hash_json(arguments),
                None => first.edited.is_none(),
            };
            firsts.any(|first| same(first, step.approved) && same_arguments(first))
        }),
        ApprovalAnswer::Resolve { resolution, reason: _ } => {
            let first = row.answer.as_ref();
            let is_same =
                |first: &RecordedAnswer| first.resolution == *resolution && first.by == *by;
            for_session.is_none() && first.is_some_and(is_same)
        }
    };
    if repeated {
        return Ok(AnswerOutcome { closed: true, repeated });
    }
    let word = row.answer.clone().map(Box::new);
    Err(Rejection::AlreadyDecided { decisions: row.decisions.clone(), answer: word })
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
    fn g8_an_answer_is_for_the_whole_or_for_steps() {
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
        let own = json!({"steps": [{"call_id": CALL, "decision": "approve", "reason": "why"}]});
        assert_eq!(parse(own), Ok(step(true)));
        let inherited =
            json!({"decision": "reject", "reason": "why", "steps": [{"call_id": CALL}]});
        assert_eq!(parse(inherited), Ok(step(false)));
    }

    #[test]
    fn g11_questions_without_steps_have_words_of_their_own() {
        for (answer, resolution) in [
            (json!({"decision": "retry"}), Resolution::Retry),
            (json!({"decision": "done"}), Resolution::Done(Value::Null)),
            (json!({"decision": "done", "value": {"id": 1}}), Resolution::Done(json!({"id": 1}))),
            (json!({"decision": "failed"}), Resolution::Failed),
            (json!({"decision": "raise", "value": 2.5}), Resolution::Raise(2.5)),
            (json!({"decision": "stop"}), Resolution::Stop),
        ] {
            let expected = ApprovalAnswer::Resolve { resolution, reason: None };
            assert_eq!(parse(answer.clone()), Ok(expected), "{answer}");
        }
    }

    #[test]
    fn g14_steps_of_a_preflight_are_changed_by_position() {
        let expected = ChecklistStepEdit {
            position: 2,
            tool_name: Some("buy".to_owned()),
            arguments: Some(json!({"n": 1})),
            ..ChecklistStepEdit::default()
        };
        let skipped = ChecklistStepEdit { position: 1, skip: true, ..ChecklistStepEdit::default() };
        let resolution = Resolution::Approve(vec![expected, skipped]);
        let found = parse(json!({"decision": "approve", "steps": [
            {"position": 2, "toolName": "buy", "arguments": {"n": 1}},
            {"position": 1, "skip": true, "toolName": "", "arguments": null},
        ]}));
        assert_eq!(found, Ok(ApprovalAnswer::Resolve { resolution, reason: None }));
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
    fn g8_ambiguous_answers_are_rejected() {
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        let of_call = |name: &str, said: Value| {
            let mut step = json!({"call_id": CALL});
            step[name] = said;
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
            (of_call("skip", json!(true)), "invalid_request", "steps[0].skip"),
            (of_call("toolName", json!("buy")), "invalid_request", "steps[0].toolName"),
            (of_call("description", json!("Buy")), "invalid_request", "steps[0].description"),
        ] {
            let problem = parse(answer.clone()).unwrap_err();
            let found = problem.extra["field"].as_str().unwrap();
            assert_eq!((problem.code, found), (code, field), "{answer}");
        }
    }
}
