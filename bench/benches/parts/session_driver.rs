//! A session of the core, driven as its actor drives it.

use greenroom_core::{
    Env, Rules, Timestamp,
    agent::AgentProfile,
    call::{ToolOutcome, ToolOutput},
    ids::{AgentName, CallId, MessageId, SessionId, UserId},
    json::Digest,
    message::{Arguments, AssistantMessage, ProposedCall},
    model::{completion::Completion, delta::StopReason},
    policy::{Catalog, Matrix, RemoteTool, ServerFacts, ServerTools, Settings, UnknownTools},
    session::{
        Decision, Effect, Input, NewMessage, OnBusy, Projection, SessionState, decide, evolve,
    },
    usage::Usage,
};
use serde_json::json;
use std::{hint::black_box, sync::Arc};
use uuid::Uuid;

/// Tokens of the model's context: little, so that summaries are part of what was before.
const CONTEXT_TOKENS: u64 = 8_000;

/// A session with a read-only tool, driven as its actor drives it.
#[derive(Clone)]
pub(crate) struct SessionDriver {
    state: SessionState,
    rules: Rules,
    decided: u64,
    summaries: u32,
}

impl SessionDriver {
    pub(crate) fn new() -> Self {
        let agent = AgentName::parse("bench").expect("a name");
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let tool = RemoteTool {
            name: "get_price".to_owned(),
            description: "price".to_owned(),
            input_schema: schema,
            ..RemoteTool::default()
        };
        let facts = ServerFacts { name: "market".to_owned(), ..ServerFacts::default() };
        let server = ServerTools { server: facts, tools: vec![tool] };
        let book = Catalog::new([], UnknownTools::default()).book([&server]);
        let profile = Arc::new(AgentProfile::named(agent.clone()));
        let mut rules = Rules::new(profile, Arc::new(Matrix::default()), Arc::new(book));
        // The profile names no model, which is a name like any other.
        rules.context.windows = Arc::new([(String::new(), CONTEXT_TOKENS)].into());
        let state = SessionState::vacant(SessionId(Uuid::from_u128(7)));
        let mut world = Self { state, rules, decided: 0, summaries: 0 };
        let owner = UserId::parse("ann").expect("a name");
        let settings = Settings::default();
        world.apply_input(Input::CreateSession { owner, agent, title: None, settings });
        world
    }

    /// A session of so many runs, or one more: the next has no summary made.
    pub(crate) fn after_runs(runs: u32) -> Self {
        let mut world = Self::new();
        (0..runs).for_each(|_| world.run());
        loop {
            let before = world.clone();
            world.run();
            if world.summaries == before.summaries {
                return before;
            }
        }
    }

    fn apply_input(&mut self, input: Input) -> Vec<Effect> {
        self.decided += 1;
        let env = Env::new(Timestamp(1_000), self.decided, &self.rules);
        let Decision { events, effects, .. } =
            decide(&self.state, input, &env).expect("nothing is refused here");
        let next = events.iter().fold(self.state.clone(), evolve);
        black_box(Projection::between(&self.state, &next));
        self.state = next;
        effects
    }

    /// One run, whole.
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
            panic!("the tool was to start: {effects:?}");
        };
        let output = ToolOutput { text: "4.12".to_owned(), ..ToolOutput::default() };
        let (call_id, attempt_id) = (*call_id, *attempt_id);
        let outcome = ToolOutcome::Completed(output);
        let effects = self.apply_input(Input::ToolFinished { call_id, attempt_id, outcome });
        self.complete_step(&effects, Vec::new());
        assert!(self.state.is_idle());
    }

    fn submit(&mut self) -> Vec<Effect> {
        let message_id = MessageId::parse(&format!("m{}", self.decided)).expect("an id");
        let (text, digest) = ("What is it?".into(), Digest::of_bytes(b"x"));
        let on_busy = OnBusy::Queue;
        self.apply_input(Input::SubmitMessage {
            message: NewMessage::new(message_id, text, digest),
            on_busy,
        })
    }

    /// The model answers, and gives the summary first if that is what it is asked for.
    fn complete_step(&mut self, effects: &[Effect], calls: Vec<ProposedCall>) -> Vec<Effect> {
        let run = self.state.active.run.as_ref();
        if run.is_some_and(|run| run.compacting().is_some()) {
            self.summaries += 1;
            let effects = self.finish_model(effects, Vec::new());
            return self.finish_model(&effects, calls);
        }
        self.finish_model(effects, calls)
    }

    fn finish_model(&mut self, effects: &[Effect], calls: Vec<ProposedCall>) -> Vec<Effect> {
        let [Effect::StartModel { attempt_id, .. }] = effects else {
            panic!("the model was to start: {effects:?}");
        };
        let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let text = "Some forty words of text would stand here, more or less.".to_owned();
        let message = AssistantMessage { text, calls, ..AssistantMessage::default() };
        let usage = Usage { input_tokens: 10, output_tokens: 10, cached_tokens: 0 };
        let result = Ok(Completion { message, usage, stop_reason });
        self.apply_input(Input::StepFinished { attempt_id: *attempt_id, result })
    }
}
