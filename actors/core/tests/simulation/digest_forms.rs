//! Sessions of version 0.1, whose digests have the first form, continue after an upgrade.

use crate::{
    histories::{histories_folder, read_log},
    rules,
    session_simulation::user,
};
use greenroom_core::{
    Env, Rules,
    agent::AgentProfile,
    approval::{Resolution, Role, Surface},
    ids::SessionId,
    message::{Arguments, AssistantMessage, ProposedCall},
    model::{completion::Completion, delta::StopReason},
    policy::Matrix,
    session::{
        ApprovalAnswer, Decision, Effect, EventRecord, Input, PlanStepAnswer, Rejection, Reply,
        SessionEvent as E, SessionState, decide, evolve,
    },
};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// A session that was recorded up to an event and continues with the rules of its recording.
struct RecordedSession {
    state: SessionState,
    log: Vec<EventRecord>,
    rules: Rules,
}

impl RecordedSession {
    /// Replays a history up to the first event of which `is_last` is true.
    fn replay_until(name: &str, is_last: fn(&E) -> bool) -> Self {
        let log = read_log(&histories_folder().join(name).with_extension("jsonl"));
        let last = log.iter().position(|record| is_last(&record.event)).expect("it occurs");
        let log = log[..=last].to_vec();
        let mut agent = AgentProfile::new(rules::agent_name());
        agent.models = vec!["small".to_owned()];
        let tools = Arc::new(rules::build_registry(1, rules::ServerSet::All));
        let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
        let state = SessionState::replay(SessionId(Uuid::from_u128(1)), &log);
        Self { state, log, rules }
    }

    fn apply(&mut self, input: Input) -> Result<Decision, Rejection> {
        let env = Env::new(self.log.last().expect("it is not empty").at, 1, &self.rules);
        let decision = decide(&self.state, input, &env)?;
        self.state = decision.events.iter().fold(self.state.clone(), evolve);
        Ok(decision)
    }

    fn answer_plan(&mut self, arguments: Option<Value>) -> Decision {
        let open = |record: &EventRecord| {
            let E::ApprovalRequested { approval } = &record.event else { return None };
            Some(approval.clone())
        };
        let approval = self.log.iter().find_map(open).expect("it was requested");
        let call_id = approval.steps()[0].call_id;
        let reason = Some("I looked".to_owned());
        let answer = PlanStepAnswer { call_id, approved: true, reason, arguments };
        self.apply(Input::AnswerApproval {
            approval_id: approval.approval_id,
            answer: ApprovalAnswer::Steps(vec![answer]),
            for_session: None,
            by: user("ann"),
            role: Role::Approver,
            surface: Surface::Dashboard,
        })
        .expect("the answer is accepted")
    }
}

/// Returns the arguments of the call that starts, and whether the event that allows it has an edit.
fn started_call(decision: &Decision) -> Option<(Value, bool)> {
    let is_edited = decision.events.iter().find_map(|record| {
        let E::ToolCallAllowed { edit, .. } = &record.event else { return None };
        Some(edit.is_some())
    });
    let arguments = decision.effects.iter().find_map(|effect| {
        let Effect::StartTool { arguments, .. } = effect else { return None };
        Some(arguments.to_value())
    });
    arguments.zip(is_edited)
}

#[test]
fn m2_plan_with_digests_of_first_form_is_approved_and_runs_after_upgrade() {
    let waiting = || {
        let is_last = |event: &E| matches!(event, E::ApprovalRequested { .. });
        let mut session = RecordedSession::replay_until("v0_1_plan_edited", is_last);
        session.apply(Input::Rehydrated { user_settings: None }).unwrap();
        session
    };
    let proposed = json!({"n": 0});
    for (sent, started) in [
        (None, (proposed.clone(), false)),
        (Some(proposed.clone()), (proposed, false)),
        // In the first form, the notation matters.
        (Some(json!({"n": 0.0})), (json!({"n": 0.0}), true)),
        (Some(json!({"n": 2})), (json!({"n": 2}), true)),
    ] {
        let decision = waiting().answer_plan(sent);
        assert_eq!(started_call(&decision), Some(started));
    }
}

#[test]
fn m2_answer_with_digest_of_first_form_may_be_repeated_after_upgrade() {
    let is_last = |event: &E| matches!(event, E::ToolCallAttemptStarted { .. });
    let mut session = RecordedSession::replay_until("v0_1_plan_edited", is_last);
    let repeated = session.answer_plan(Some(json!({"note": "less", "n": 10})));
    assert_eq!(repeated.reply, Reply::Answered { closed: true, repeated: true });
}

#[test]
fn m2_g14_preflight_step_with_digest_of_first_form_covers_its_call_after_upgrade() {
    let is_last = |event: &E| matches!(event, E::StepStarted { planning: false, .. });
    for (number, starts) in [("0", true), ("0.0", false), ("1", false)] {
        let mut session = preflight_run(is_last);
        let attempt_id = session.log.iter().rev().find_map(|record| {
            let E::StepStarted { attempt_id, .. } = &record.event else { return None };
            Some(*attempt_id)
        });
        let arguments = serde_json::from_str(&format!("{{\"n\":{number}}}")).unwrap();
        let calls = vec![ProposedCall {
            call_id: greenroom_core::ids::CallId(Uuid::nil()),
            provider_id: "c".to_owned(),
            tool: "high".to_owned(),
            arguments: Arguments::Json(arguments),
        }];
        let message = AssistantMessage { calls, ..AssistantMessage::default() };
        let stop_reason = StopReason::ToolUse;
        let completion = Completion { message, stop_reason, ..Completion::default() };
        let result = Ok(completion);
        let attempt_id = attempt_id.expect("a step started");
        let decision = session.apply(Input::ModelFinished { attempt_id, result }).unwrap();
        assert_eq!(started_call(&decision).is_some(), starts, "{number}");
    }
}

/// Replays the history of a preflight up to the first step after its approval.
fn preflight_run(is_step: fn(&E) -> bool) -> RecordedSession {
    let is_approved = |event: &E| matches!(event, E::PreflightApproved { .. });
    let mut session = RecordedSession::replay_until("v0_1_preflight", is_approved);
    let log = read_log(&histories_folder().join("v0_1_preflight").with_extension("jsonl"));
    let rest = &log[session.log.len()..];
    let count = rest.iter().position(|record| is_step(&record.event)).expect("it occurs") + 1;
    session.log.extend_from_slice(&rest[..count]);
    session.state = SessionState::replay(SessionId(Uuid::from_u128(1)), &session.log);
    session
}

/// The decision of a preflight keeps the digest of arguments that are sent back unchanged.
#[test]
fn m2_g14_unchanged_step_of_recorded_checklist_is_not_edited() {
    let is_last = |event: &E| matches!(event, E::ApprovalRequested { .. });
    let mut session = RecordedSession::replay_until("v0_1_preflight", is_last);
    let approval = session.state.active.approvals[0].approval.clone();
    let edits = json!([{"position": 1, "arguments": {"n": 0}}, {"position": 2, "skip": true}]);
    let resolution = Resolution::Approve(serde_json::from_value(edits).unwrap());
    let decision = session
        .apply(Input::AnswerApproval {
            approval_id: approval.approval_id,
            answer: ApprovalAnswer::Resolve { resolution, reason: None },
            for_session: None,
            by: user("bob"),
            role: Role::Approver,
            surface: Surface::Cli,
        })
        .unwrap();
    let steps = decision.events.iter().find_map(|record| {
        let E::PreflightApproved { steps, .. } = &record.event else { return None };
        Some(steps.clone())
    });
    assert!(!steps.expect("it is approved")[0].edited);
}
