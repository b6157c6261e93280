//! Drives a session of the core with inputs, as the session actor does.

use greenroom_core::{
    Env, Rules, Timestamp,
    agent::AgentProfile,
    call::{ToolOutcome, ToolOutput},
    ids::{AgentName, CallId, MessageId, SessionId, UserId},
    json::Digest,
    message::{Arguments, AssistantMessage, ProposedCall},
    model::{completion::Completion, delta::StopReason},
    policy::{
        Catalog, Matrix, RemoteTool, ServerProfile, ServerTools, Settings, UnknownToolPolicy,
    },
    session::{
        Decision, Effect, Input, NewMessage, OnBusy, Projection, SessionState, decide, evolve,
    },
    usage::TokenUsage,
};
use serde_json::json;
use std::{hint::black_box, sync::Arc};
use uuid::Uuid;

/// Tokens of the model's context window; small, so that long sessions are compacted.
const CONTEXT_TOKENS: u64 = 8_000;

/// A session with one read-only tool.
#[derive(Clone)]
pub(crate) struct SessionDriver {
    state: SessionState,
    rules: Rules,
    input_count: u64,
    summary_count: u32,
}

impl SessionDriver {
    pub(crate) fn new() -> Self {
        let agent = AgentName::parse("bench").expect("a valid name");
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let tool = RemoteTool {
            name: "get_price".to_owned(),
            description: "price".to_owned(),
            input_schema: schema,
            ..RemoteTool::default()
        };
        let profile = ServerProfile { name: "market".to_owned(), ..ServerProfile::default() };
        let server = ServerTools { server: profile, tools: vec![tool] };
        let registry = Catalog::new([], UnknownToolPolicy::default()).build_registry([&server]);
        let profile = Arc::new(AgentProfile::new(agent.clone()));
        let mut rules = Rules::new(profile, Arc::new(Matrix::default()), Arc::new(registry));
        // The profile has no model; its model name is therefore empty.
        rules.context.context_windows = Arc::new([(String::new(), CONTEXT_TOKENS)].into());
        let state = SessionState::new(SessionId(Uuid::from_u128(7)));
        let mut driver = Self { state, rules, input_count: 0, summary_count: 0 };
        let owner = UserId::parse("ann").expect("a valid name");
        let settings = Settings::default();
        driver.apply_input(Input::CreateSession { owner, agent, title: None, settings });
        driver
    }

    /// Creates a session with `runs` runs, or a few more: the next run has no compaction.
    pub(crate) fn after_runs(runs: u32) -> Self {
        let mut driver = Self::new();
        (0..runs).for_each(|_| driver.run());
        loop {
            let before = driver.clone();
            driver.run();
            if driver.summary_count == before.summary_count {
                return before;
            }
        }
    }

    fn apply_input(&mut self, input: Input) -> Vec<Effect> {
        self.input_count += 1;
        let env = Env::new(Timestamp(1_000), self.input_count, &self.rules);
        let Decision { events, effects, .. } =
            decide(&self.state, input, &env).expect("the input is accepted");
        let next = events.iter().fold(self.state.clone(), evolve);
        black_box(Projection::diff(&self.state, &next));
        self.state = next;
        effects
    }

    /// Runs one run: a step with a tool call, and a step with the answer.
    pub(crate) fn run(&mut self) {
        let effects = self.submit();
        let call = ProposedCall {
            call_id: CallId(Uuid::nil()),
            provider_id: "toolu_1".to_owned(),
            tool: "get_price".to_owned(),
            arguments: Arguments::Json(json!({"n": 34})),
        };
        let effects = self.complete_step(&effects, vec![call]);
        let [Effect::StartTool { call_id, attempt_id, .. }] = &effects[..] else {
            panic!("expected the tool to start: {effects:?}");
        };
        let output = ToolOutput { text: "4.12".to_owned(), ..ToolOutput::default() };
        let (call_id, attempt_id) = (*call_id, *attempt_id);
        let outcome = ToolOutcome::Completed(output);
        let effects = self.apply_input(Input::ToolFinished { call_id, attempt_id, outcome });
        self.complete_step(&effects, Vec::new());
        assert!(self.state.is_idle());
    }

    fn submit(&mut self) -> Vec<Effect> {
        let message_id = MessageId::parse(&format!("m{}", self.input_count)).expect("a valid id");
        let (text, digest) = ("What is it?".into(), Digest::hash_bytes(b"x"));
        let on_busy = OnBusy::Queue;
        let author = UserId::parse("ann").expect("a valid id");
        self.apply_input(Input::SubmitMessage {
            message: NewMessage::new(author, message_id, text, digest),
            on_busy,
        })
    }

    /// Completes a step; completes a compaction before it if one was started.
    fn complete_step(&mut self, effects: &[Effect], calls: Vec<ProposedCall>) -> Vec<Effect> {
        let run = self.state.active.run.as_ref();
        if run.is_some_and(|run| run.compacting_through().is_some()) {
            self.summary_count += 1;
            let effects = self.finish_model(effects, Vec::new());
            return self.finish_model(&effects, calls);
        }
        self.finish_model(effects, calls)
    }

    fn finish_model(&mut self, effects: &[Effect], calls: Vec<ProposedCall>) -> Vec<Effect> {
        let [Effect::StartModel { attempt_id, .. }] = effects else {
            panic!("expected the model to start: {effects:?}");
        };
        let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let text = "Some forty words of text would stand here, more or less.".to_owned();
        let message = AssistantMessage { text, calls, ..AssistantMessage::default() };
        let usage =
            TokenUsage { input_tokens: 10, output_tokens: 10, cached_tokens: 0, estimated: false };
        let result = Ok(Completion { message, usage, stop_reason });
        self.apply_input(Input::ModelFinished { attempt_id: *attempt_id, result })
    }
}
