//! Actions of models, tools and time. Each attempt reports at most one result, however late.

use crate::{rng::SeededRng, rules, session_simulation::SessionSimulation};
use greenroom_core::{
    approval::{Elicitation, ElicitationMode},
    call::{CallPhase, ToolOutcome, ToolOutput, outcome::RetryHint},
    ids::{AttemptId, CallId},
    message::{Arguments, AssistantMessage, ProposedCall, Reasoning},
    model::{completion::Completion, delta::StopReason, failure::ModelFailure},
    preflight::SUBMIT_PLAN_TOOL,
    session::{Input, Lifecycle, ModelAttemptFailure, Run, SessionEvent, StepPhase},
    usage::TokenUsage,
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

impl SessionSimulation {
    pub(crate) fn finish_model_attempt(&mut self, chance: &mut SeededRng) {
        let is_planning = self.state.active.run.as_ref().is_some_and(Run::is_planning);
        let result = match chance.next_below(8) {
            2..7 if is_planning => Ok(plan(chance)),
            2..8 if self.has_approved_plan() => Ok(self.planned_calls(chance)),
            0 => Err(failure(chance)),
            1 | 2 => Ok(completion(chance, 0)),
            _ => {
                let calls = chance.next_below(6);
                Ok(completion(chance, calls))
            }
        };
        self.send_step_result(chance, result);
    }

    fn has_approved_plan(&self) -> bool {
        self.state.active.run.as_ref().is_some_and(|run| run.preflight.approved().is_some())
    }

    /// G14: returns calls that follow the approved plan, with random deviations and repetitions.
    fn planned_calls(&self, chance: &mut SeededRng) -> Completion {
        let run = self.state.active.run.as_ref();
        let plan = run.and_then(|run| run.preflight.approved()).expect("the plan is approved");
        let mut calls = Vec::new();
        for step in plan.steps.iter() {
            let Some(tool) = step.tool_name.clone().filter(|_| chance.one_in(2)) else { continue };
            let exact = step.arguments.clone().unwrap_or(json!({"n": 3}));
            let arguments = if chance.one_in(5) { json!({"n": 1_000_000}) } else { exact };
            let arguments = Arguments::Json(arguments);
            let (call_id, provider_id) = (CallId(Uuid::nil()), String::new());
            let call = ProposedCall { call_id, provider_id, tool, arguments };
            calls.extend(chance.one_in(4).then(|| call.clone()));
            calls.push(call);
        }
        let mut completion = completion(chance, 0);
        completion.message.calls = calls;
        completion
    }

    pub(crate) fn finish_model_without_calls(&mut self, chance: &mut SeededRng) {
        let result = Ok(completion(chance, 0));
        self.send_step_result(chance, result);
    }

    fn send_step_result(
        &mut self,
        chance: &mut SeededRng,
        result: Result<Completion, ModelAttemptFailure>,
    ) {
        let Some(attempt_id) = chance.take_random(&mut self.model_attempts) else { return };
        let is_current = self.state.active.run.as_ref().is_some_and(|run| {
            matches!(run.phase, StepPhase::Streaming { attempt_id: current, .. } if current == attempt_id)
        });
        let decision = self
            .apply_input(Input::ModelFinished { attempt_id, result })
            .expect("facts are never rejected");
        if !is_current {
            assert_eq!((decision.events, decision.effects), (vec![], vec![]), "a stale result");
        }
    }

    pub(crate) fn finish_tool_attempt(&mut self, chance: &mut SeededRng) {
        let Some((call_id, attempt_id)) = chance.take_random(&mut self.tool_attempts) else {
            return;
        };
        let outcome = outcome(chance);
        if let ToolOutcome::NotSent { .. }
        | ToolOutcome::Failed { hint: RetryHint::DidNotRun, .. } = outcome
        {
            self.invariants.not_run_attempts.insert(attempt_id);
        }
        if !matches!(outcome, ToolOutcome::TimedOut { .. } | ToolOutcome::Crashed { .. }) {
            self.invariants.reported_attempts.insert(attempt_id);
        }
        let is_current = self.is_current_attempt(call_id, attempt_id);
        let is_open = self.state.active.lifecycle == Lifecycle::Open;
        let decision = self
            .apply_input(Input::ToolFinished { call_id, attempt_id, outcome })
            .expect("facts are never rejected");
        if !is_current {
            // R1: a late result is recorded and has no other effect.
            let events: Vec<_> = decision.events.iter().map(|record| &record.event).collect();
            let is_recorded = matches!(events[..], [SessionEvent::LateResult { .. }]);
            assert!(if is_open { is_recorded } else { events.is_empty() }, "{events:?}");
            assert_eq!(decision.effects, vec![]);
        }
    }

    pub(crate) fn report_tool_progress(&mut self, chance: &mut SeededRng) {
        if self.tool_attempts.is_empty() {
            return;
        }
        let (call_id, attempt_id) = *chance.pick(&self.tool_attempts);
        let numbers = [0.1 + 0.2, 1e300, f64::NAN, f64::INFINITY, -0.0, 5e-324];
        let (progress, total) = (*chance.pick(&numbers), *chance.pick(&numbers));
        let input = Input::ToolProgressed {
            call_id,
            attempt_id,
            progress,
            total: Some(total),
            message: Some(chance.tricky_text()),
        };
        let before = self.state.active.clone();
        let is_current = self.is_current_attempt(call_id, attempt_id);
        let decision = self.apply_input(input).expect("facts are never rejected");
        assert_eq!(decision.events.len(), usize::from(is_current));
        assert_eq!(self.state.active, before);
    }

    /// T1: a running tool requests an elicitation, or withdraws an open one.
    pub(crate) fn start_or_withdraw_elicitation(&mut self, chance: &mut SeededRng) {
        if self.tool_attempts.is_empty() {
            return;
        }
        let (call_id, attempt_id) = *chance.pick(&self.tool_attempts);
        let open = self
            .invariants
            .open_elicitations
            .iter()
            .find(|(requesting, _)| *requesting == attempt_id)
            .copied();
        if let Some((_, elicitation_number)) = open.filter(|_| chance.one_in(2)) {
            self.invariants.open_elicitations.remove(&(attempt_id, elicitation_number));
            self.apply_input(Input::ElicitationWithdrawn { attempt_id, elicitation_number })
                .expect("facts are never rejected");
            return;
        }
        self.elicitations_requested += 1;
        let elicitation_number = self.elicitations_requested;
        if !self.is_decision_lost() && self.is_current_attempt(call_id, attempt_id) {
            self.invariants.open_elicitations.insert((attempt_id, elicitation_number));
        }
        let mode = match chance.next_below(4) {
            0 => ElicitationMode::Url { url: "https://example.org/sign".to_owned() },
            1 => ElicitationMode::Url { url: "javascript:alert(1)".to_owned() },
            _ => ElicitationMode::Form { schema: json!({"type": "object", "required": ["n"]}) },
        };
        let elicitation = Elicitation { message: chance.tricky_text(), mode };
        self.apply_input(Input::ElicitationRequested {
            call_id,
            attempt_id,
            elicitation_number,
            elicitation,
        })
        .expect("facts are never rejected");
    }

    fn is_current_attempt(&self, call_id: CallId, attempt_id: AttemptId) -> bool {
        let mut calls = self.state.active.run.iter().flat_map(|run| &run.calls);
        calls.any(|call| {
            let runs =
                matches!(call.phase, CallPhase::Running { attempt_id: a, .. } if a == attempt_id);
            runs && call.call_id == call_id
        })
    }

    pub(crate) fn advance_time(&mut self, chance: &mut SeededRng) {
        let millis = *chance.pick(&[0, 1, 500, 2_000, 30_000, 61_000]);
        self.now = self.now.saturating_add(Duration::from_millis(millis));
        if !chance.one_in(3) {
            self.wake();
        }
    }

    /// G12: the configuration changes between the approval and the start of a call.
    pub(crate) fn change_critical_rule(&mut self, chance: &mut SeededRng) {
        self.rules.critical = rules::critical_rule(chance);
        self.invariants.critical_calls.rule = self.rules.critical;
    }

    pub(crate) fn change_tools(&mut self, chance: &mut SeededRng) {
        let servers = match chance.one_in(2) {
            true => rules::ServerSet::OneDisconnected,
            false => rules::ServerSet::All,
        };
        self.rules.tools = Arc::new(rules::build_registry(2, servers));
    }
}

fn completion(chance: &mut SeededRng, calls: usize) -> Completion {
    let reasoning = match chance.next_below(4) {
        0 => vec![Reasoning::Thinking {
            text: chance.tricky_text(),
            signature: Some(chance.tricky_text()),
        }],
        1 => vec![Reasoning::Redacted { payload: chance.tricky_text() }],
        _ => vec![],
    };
    let calls = (0..calls).map(|_| call(chance)).collect();
    let reasons =
        [StopReason::EndTurn, StopReason::ToolUse, StopReason::MaxTokens, StopReason::Refusal];
    let message = AssistantMessage { text: chance.tricky_text(), reasoning, calls };
    let input_tokens = *chance.pick(&[0, 7, u64::MAX]);
    let usage = TokenUsage { input_tokens, output_tokens: 3, cached_tokens: 1, estimated: false };
    let (stop_reason, dropped_calls) = (*chance.pick(&reasons), *chance.pick(&[0, 0, 0, 9]));
    Completion { message, usage, stop_reason, dropped_calls }
}

/// Creates a completion with a plan, sometimes a malformed one.
fn plan(chance: &mut SeededRng) -> Completion {
    let step = |chance: &mut SeededRng| {
        // Mostly tools that need approval.
        let tools = ["high", "high_again", "high_beside", *chance.pick(&rules::CALLED_TOOLS)];
        let mut step = json!({"description": chance.tricky_text(), "tool": chance.pick(&tools)});
        match chance.next_below(4) {
            0 => {}
            1 => step["arguments"] = chance.pick(&[json!(1), json!([]), json!({"n": 2})]).clone(),
            _ => step["arguments"] = json!({"n": 1}),
        }
        step
    };
    let steps: Vec<_> = (0..1 + chance.next_below(5)).map(|_| step(chance)).collect();
    let arguments = match chance.next_below(8) {
        0 => Arguments::Malformed { raw: chance.tricky_text(), error: "not JSON".to_owned() },
        1 => Arguments::Json(json!({"steps": chance.tricky_text()})),
        _ => Arguments::Json(json!({"steps": steps, "warnings": [chance.tricky_text()]})),
    };
    let tool = SUBMIT_PLAN_TOOL.to_owned();
    let (call_id, provider_id) = (CallId(Uuid::nil()), chance.tricky_text());
    let others = chance.next_below(2);
    let mut completion = completion(chance, others);
    completion.message.calls.push(ProposedCall { call_id, provider_id, tool, arguments });
    completion
}

fn call(chance: &mut SeededRng) -> ProposedCall {
    let any = f64::from_bits(chance.next());
    let odd = if any.is_finite() { any } else { 1.0 / 3.0 };
    let arguments = match chance.next_below(8) {
        0 => Arguments::Malformed { raw: chance.tricky_text(), error: "not JSON".to_owned() },
        1 => Arguments::Json(json!([1, "not an object"])),
        2 => Arguments::Json(Value::Null),
        3 => Arguments::Json(json!({"n": i64::MIN, "m": u64::MAX, "x": odd})),
        4 | 5 => Arguments::Json(json!({"n": 1})),
        _ => Arguments::Json(
            json!({"n": odd, "text": chance.tricky_text(), "deep": {"b": [], "a": {}}}),
        ),
    };
    ProposedCall {
        call_id: CallId(Uuid::nil()),
        provider_id: chance.tricky_text(),
        tool: (*chance.pick(&rules::CALLED_TOOLS)).to_owned(),
        arguments,
    }
}

fn failure(chance: &mut SeededRng) -> ModelAttemptFailure {
    let message = chance.tricky_text();
    let failure = match chance.next_below(5) {
        0 => ModelFailure::permanent(message),
        4 => ModelFailure::circuit_open(message, Duration::from_secs(chance.next() % 99)),
        1 => ModelFailure::from_status(429, message, Some(Duration::from_secs(chance.next() % 99))),
        _ => ModelFailure::temporary(message),
    };
    let usage = TokenUsage { input_tokens: chance.next() % 99, ..TokenUsage::default() };
    ModelAttemptFailure { failure, streamed: chance.one_in(2), usage }
}

fn outcome(chance: &mut SeededRng) -> ToolOutcome {
    let error = chance.tricky_text();
    match chance.next_below(10) {
        0 => ToolOutcome::Failed { error, hint: RetryHint::Unspecified },
        1 => ToolOutcome::Failed { error, hint: RetryHint::Temporary },
        2 => ToolOutcome::Failed { error, hint: RetryHint::DidNotRun },
        3 => ToolOutcome::NotSent { error },
        4 => ToolOutcome::TimedOut { after_ms: 30_000 },
        5 => ToolOutcome::Crashed { error },
        _ => ToolOutcome::Completed(ToolOutput {
            text: error,
            structured: chance.one_in(2).then(|| json!({"price": 0.1, "name": "\u{0}é"})),
            truncated: chance.one_in(5),
            cached: chance.one_in(5),
        }),
    }
}
