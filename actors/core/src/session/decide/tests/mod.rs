//! Tests of [`decide`]: each input must lead to exactly the expected events, effects and reply.
//! [`notation`] formats them as text with short labels for ids.

mod approvals;
mod budgets;
mod calls;
mod cancel;
mod ceilings;
mod child_budgets;
mod compaction;
mod critical_calls;
mod deadlines;
mod delegation;
mod draining;
mod edits;
mod elicitations;
mod exclusive_locks;
mod grants;
mod lifecycle;
mod messages;
mod notation;
mod preflight;
mod queue;
mod raised_risk;
mod recheck;
mod rehydration;
mod retries;
mod scheduling;
mod steering;
mod steps;
mod unknown_outcomes;
mod workflows;

use super::{Decision, Rejection, decide};
use crate::{
    agent::AgentProfile,
    amount::Amount,
    approval::{Resolution, Role, Surface},
    budget::{BudgetMeasure, ToolCosts, UserSpending},
    call::{RetryPolicy, ToolOutcome, ToolOutput, outcome::RetryHint},
    env::{Env, Rules},
    ids::{AgentName, ApprovalId, AttemptId, CallId, MessageId, RunId, SessionId, UserId},
    json::Digest,
    message::{Arguments, AssistantMessage, Message, ProposedCall},
    model::{completion::Completion, delta::StopReason, failure::ModelFailure},
    policy::{Autonomy, Matrix, Risk, Settings, SettingsPatch, Tool, ToolRegistry, schema},
    session::{
        ApprovalAnswer, EventRecord, Input, ModelAttemptFailure, NewMessage, OnBusy,
        PlanStepAnswer, SessionState, evolve,
    },
    time::Timestamp,
    usage::TokenUsage,
};
use notation::IdLabels;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

fn amount(number: f64) -> Amount {
    Amount::from_f64(number).unwrap()
}

fn raise(limit: f64) -> Resolution {
    Resolution::Raise(amount(limit))
}

/// A session under test: its state, the rules, the clock and a short label for each id.
struct SessionHarness {
    state: SessionState,
    rules: Rules,
    now: Timestamp,
    seed: u64,
    labels: IdLabels,
    log: Vec<EventRecord>,
    /// The user's budget limit and spending in other sessions.
    account: UserSpending,
    /// True while the process shuts down.
    is_draining: bool,
}

impl SessionHarness {
    /// Returns the session's settings.
    fn settings(&self) -> Settings {
        (*self.state.active.settings).clone()
    }

    /// Creates an open session at L2, whose agent has [`tools`], with the default retry policy.
    fn new() -> Self {
        let mut harness = Self::not_created();
        let settings = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
        let agent = AgentName::parse("trader").unwrap();
        harness
            .apply(Input::CreateSession { owner: user("ann"), agent, title: None, settings })
            .unwrap();
        harness
    }

    fn not_created() -> Self {
        let mut agent = AgentProfile::new(AgentName::parse("trader").unwrap());
        agent.models = vec!["small".to_owned()];
        let rules = Rules::new(
            Arc::new(agent),
            Arc::new(Matrix::default()),
            Arc::new(ToolRegistry::new(tools())),
        );
        Self {
            state: SessionState::new(SessionId(Uuid::from_u128(1))),
            rules,
            now: Timestamp(1_000_000),
            seed: 0,
            labels: IdLabels::default(),
            log: Vec::new(),
            account: UserSpending::default(),
            is_draining: false,
        }
    }

    /// Creates a session whose model proposed `calls` in its first step.
    fn with_proposed_calls(calls: &[ScriptedCall]) -> Self {
        let mut harness = Self::with_streaming_step();
        harness.propose(calls);
        harness
    }

    /// Creates a session whose first model attempt streams.
    fn with_streaming_step() -> Self {
        let mut harness = Self::new();
        harness.apply(submit("u1")).unwrap();
        harness
    }

    fn propose(&mut self, calls: &[ScriptedCall]) {
        let input = self.model_calls(calls);
        self.apply(input).unwrap();
    }

    fn with_agent(mut self, change: impl FnOnce(&mut AgentProfile)) -> Self {
        change(Arc::make_mut(&mut self.rules.agent));
        self
    }

    fn with_rules(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.rules);
        self
    }

    /// Sets the risk of the tool `name`.
    fn set_risk(&mut self, name: &str, risk: Risk) {
        let set =
            |tool: Tool| if tool.name.as_str() == name { Tool { risk, ..tool } } else { tool };
        self.rules.tools = Arc::new(ToolRegistry::new(tools().into_iter().map(set)));
    }

    fn advance_clock(&mut self, passed: Duration) -> &mut Self {
        self.now = self.now.saturating_add(passed);
        self
    }

    fn set_clock(&mut self, now: Timestamp) -> &mut Self {
        self.now = now;
        self
    }

    /// Decides the input and applies the events to the state.
    fn apply(&mut self, input: Input) -> Result<Decision, Rejection> {
        self.seed += 1;
        let env = Env::new(self.now, self.seed, &self.rules)
            .with_user_spending(self.account())
            .with_draining(self.is_draining);
        let decision = decide(&self.state, input, &env)?;
        // Assigns the labels in the order in which the ids first appear.
        drop(self.labels.decision(&decision, self.now));
        for record in &decision.events {
            self.state = evolve(self.state.clone(), record);
            self.log.push(record.clone());
        }
        // Replay must lead to the same state (D1).
        assert_eq!(SessionState::replay(self.state.session_id, &self.log), self.state);
        Ok(decision)
    }

    /// Returns the user's spending as the store reports it, including this session (G6).
    fn account(&self) -> UserSpending {
        let mut account = self.account.clone();
        let today = self.now.day();
        for spend in self.state.active.tool_costs.changes_since(&ToolCosts::default()) {
            let spent = account.totals.entry(spend.measure).or_default();
            spent.add(spend.day, spend.amount, today);
        }
        let spending = self.state.total_usage();
        let tokens = account.totals.entry(BudgetMeasure::Tokens).or_default();
        tokens.add(today, Amount::from_whole(spending.tokens.total()), today);
        account
    }

    /// Checks that `input` leads to exactly `expected`: events as `name details @run.step`, effects
    /// after `>`, the reply after `=`, a rejection after `!`.
    #[track_caller]
    fn check(&mut self, input: Input, expected: &str) {
        let now = self.now;
        let actual = match self.apply(input) {
            Ok(decision) => self.labels.decision(&decision, now),
            Err(rejection) => vec![self.labels.rejection(&rejection)],
        };
        notation::assert_same(&actual, expected);
    }

    /// Checks that the conversation is exactly `expected`.
    #[track_caller]
    fn check_conversation(&mut self, expected: &str) {
        let messages =
            self.state.conversation.messages().into_iter().map(|message| match message {
                Message::User { text, .. } => format!("user: {text}"),
                Message::Assistant(message) => {
                    let calls = message.calls.iter().map(|call| format!(" [{}]", call.tool));
                    format!("assistant: {}{}", message.text, calls.collect::<String>())
                }
                Message::ToolResults(results) => {
                    let line = |result: &crate::message::CallResult| {
                        let mark = if result.is_error { "!" } else { "" };
                        format!("{mark}{}: {}", result.tool, result.text)
                    };
                    let lines = results.iter().map(line).collect::<Vec<_>>();
                    format!("results: {}", lines.join("\n& "))
                }
            });
        let text = messages.collect::<Vec<_>>().join("\n");
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        notation::assert_same(&lines, expected);
    }

    fn run(&self, label: &str) -> RunId {
        RunId(self.labels.id(label))
    }

    fn call(&self, label: &str) -> CallId {
        CallId(self.labels.id(label))
    }

    fn approval(&self, label: &str) -> ApprovalId {
        ApprovalId(self.labels.id(label))
    }

    /// Returns the id of the call's running attempt.
    fn running_attempt(&self, call: &str) -> AttemptId {
        let run = self.state.active.run.as_ref().expect("a run is active");
        let call_id = self.call(call);
        let call =
            run.calls.iter().find(|call| call.call_id == call_id).expect("a call of this step");
        let crate::call::CallPhase::Running { attempt_id, .. } = call.phase else {
            panic!("{:?}", call.phase);
        };
        attempt_id
    }

    /// Returns the input with which the streaming model attempt completes with this text.
    fn model_answers(&self, text: &str) -> Input {
        self.model_completes(text, &[])
    }

    fn model_calls(&self, calls: &[ScriptedCall]) -> Input {
        self.model_completes("", calls)
    }

    fn model_completes(&self, text: &str, calls: &[ScriptedCall]) -> Input {
        let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        self.model_stops(text, calls, stop_reason)
    }

    /// Returns the input with which the streaming model attempt stops for this reason.
    fn model_stops(&self, text: &str, calls: &[ScriptedCall], stop_reason: StopReason) -> Input {
        let calls: Vec<_> = calls.iter().map(ScriptedCall::to_proposed_call).collect();
        let message = AssistantMessage { text: text.to_owned(), calls, ..Default::default() };
        let result = Ok(Completion { message, usage: USAGE, stop_reason, dropped_calls: 0 });
        Input::ModelFinished { attempt_id: self.streaming_attempt(), result }
    }

    fn model_fails(&self, failure: ModelFailure, streamed: bool) -> Input {
        let result = Err(ModelAttemptFailure { failure, streamed, usage: TokenUsage::default() });
        Input::ModelFinished { attempt_id: self.streaming_attempt(), result }
    }

    fn streaming_attempt(&self) -> AttemptId {
        let phase = self.state.active.run.as_ref().map(|run| &run.phase);
        match phase {
            Some(crate::session::StepPhase::Streaming { attempt_id, .. }) => *attempt_id,
            other => panic!("no model attempt is under way: {other:?}"),
        }
    }

    /// Returns the input with which the call's running attempt ends with this outcome.
    fn tool_finishes(&self, call: &str, outcome: ToolOutcome) -> Input {
        let attempt_id = self.running_attempt(call);
        Input::ToolFinished { call_id: self.call(call), attempt_id, outcome }
    }

    fn overall_answer(&self, approval: &str, approved: bool, user_name: &str) -> Input {
        let answer = ApprovalAnswer::Overall { approved, reason: None };
        self.answer(approval, answer, user_name)
    }

    fn step_answers(&self, approval: &str, steps: &[(&str, bool)], user_name: &str) -> Input {
        let step = |(call, approved): &(&str, bool)| PlanStepAnswer {
            call_id: self.call(call),
            approved: *approved,
            reason: None,
            arguments: None,
        };
        self.answer(approval, ApprovalAnswer::Steps(steps.iter().map(step).collect()), user_name)
    }

    fn answer(&self, approval: &str, answer: ApprovalAnswer, user_name: &str) -> Input {
        let approval_id = self.approval(approval);
        let by = user(user_name);
        let (role, surface) = (Role::User, Surface::Rest);
        Input::AnswerApproval { approval_id, answer, for_session: None, by, role, surface }
    }

    /// Returns the input that answers an approval without steps.
    fn resolve(&self, approval: &str, resolution: Resolution, user_name: &str) -> Input {
        self.answer(approval, ApprovalAnswer::Resolve { resolution, reason: None }, user_name)
    }
}

const USAGE: TokenUsage =
    TokenUsage { input_tokens: 10, output_tokens: 5, cached_tokens: 0, estimated: false };

/// Returns the tools of the tests. `read*`: read-only. `low`, `high*`: writes that must not be
/// repeated. `idem`: a high-risk write that may be repeated. `beside`: a high-risk write that may run
/// in parallel. `crit`: critical.
fn tools() -> Vec<Tool> {
    let plain = |name| {
        Tool::for_tests(
            name,
            if name.starts_with("read") {
                Risk::ReadOnly
            } else if name == "low" {
                Risk::WriteLowRisk
            } else if name == "crit" {
                Risk::Critical
            } else {
                Risk::WriteHighRisk
            },
        )
    };
    let names = ["read", "read2", "low", "high", "high2", "idem", "beside", "crit"];
    let mut tools: Vec<_> = names.into_iter().map(plain).collect();
    for tool in &mut tools {
        tool.repeatable |= tool.name.as_str() == "idem";
        tool.parallel |= tool.name.as_str() == "beside";
    }
    let mut strict = plain("read_strict");
    let only_n =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    strict.validator = schema::compile(&only_n);
    strict.input_schema = only_n.clone();
    let mut high_strict = plain("high_strict");
    high_strict.validator = schema::compile(&only_n);
    high_strict.input_schema = only_n.clone();
    tools.extend([strict, high_strict]);
    tools
}

/// A call proposed by the scripted model.
enum ScriptedCall {
    Valid(&'static str, Value),
    Malformed(&'static str),
}

impl ScriptedCall {
    fn to_proposed_call(&self) -> ProposedCall {
        let (tool, arguments) = match self {
            Self::Valid(tool, arguments) => (tool, Arguments::Json(arguments.clone())),
            Self::Malformed(tool) => {
                let (raw, error) = ("{\"n\":".to_owned(), "not JSON".to_owned());
                (tool, Arguments::Malformed { raw, error })
            }
        };
        ProposedCall {
            call_id: CallId(Uuid::nil()),
            provider_id: "toolu_1".to_owned(),
            tool: (*tool).to_owned(),
            arguments,
        }
    }
}

fn scripted_call(tool: &'static str) -> ScriptedCall {
    ScriptedCall::Valid(tool, json!({}))
}

fn scripted_calls<const N: usize>(tools: [&'static str; N]) -> [ScriptedCall; N] {
    tools.map(scripted_call)
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn submit(message_id: &str) -> Input {
    submit_with(message_id, message_id, OnBusy::Queue)
}

fn submit_with(message_id: &str, text: &str, on_busy: OnBusy) -> Input {
    let digest = Digest::hash_bytes(text.as_bytes());
    let message_id = MessageId::parse(message_id).unwrap();
    let message = NewMessage::new(user("ann"), message_id, text.into(), digest);
    Input::SubmitMessage { message, on_busy }
}

fn cancel() -> Input {
    Input::CancelRun { run_id: None, by: user("ann"), partial: None }
}

fn cancel_with(text: &str) -> Input {
    Input::CancelRun { run_id: None, by: user("ann"), partial: Some(partial(text)) }
}

fn partial(text: &str) -> Completion {
    let message = AssistantMessage { text: text.to_owned(), ..Default::default() };
    Completion { message, usage: USAGE, ..Completion::default() }
}

fn close() -> Input {
    Input::CloseSession { by: user("ann"), partial: None }
}

fn completed() -> ToolOutcome {
    ToolOutcome::Completed(ToolOutput { text: "42".to_owned(), ..ToolOutput::default() })
}

fn failed(error: &str, hint: RetryHint) -> ToolOutcome {
    ToolOutcome::Failed { error: error.to_owned(), hint }
}

fn not_sent() -> ToolOutcome {
    ToolOutcome::NotSent { error: "no child".to_owned() }
}

fn timed_out() -> ToolOutcome {
    ToolOutcome::TimedOut { after_ms: 5 }
}

fn crashed() -> ToolOutcome {
    ToolOutcome::Crashed { error: "child died".to_owned() }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
