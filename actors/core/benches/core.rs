//! What the core costs, in one table: `make bench-core`. Medians and spreads of repetitions in one run;
//! compare rows with each other, not with other machines.

use greenroom_core::{
    Env, Rules, Timestamp,
    agent::AgentProfile,
    call::{ToolOutcome, ToolOutput},
    ids::{AgentName, CallId, MessageId, SessionId, UserId},
    json::Digest,
    message::{Arguments, AssistantMessage, ProposedCall},
    model::{
        anthropic,
        delta::{Completion, Delta, StopReason},
        openai,
    },
    policy::{Catalog, Matrix, RemoteTool, ServerFacts, ServerTools, Settings, UnknownTools},
    session::{Decision, Effect, Input, OnBusy, Projection, SessionState, decide, evolve},
    usage::Usage,
};
use serde_json::json;
use std::{hint::black_box, sync::Arc, time::Instant};
use uuid::Uuid;

const REPETITIONS: usize = 9;
const DELTAS: usize = 2_000;
const RUNS: usize = 200;

fn main() {
    println!("{:52} {:>10} {:>10} {:>10}", "", "median", "least", "most");
    row("Anthropic stream, per text delta (µs)", DELTAS, |_| {
        let bytes = anthropic_stream();
        let mut out: Vec<Delta> = Vec::new();
        let start = Instant::now();
        let mut parser = anthropic::Parser::new();
        parser.push(&bytes, &mut out).expect("a good stream");
        black_box(out.len());
        start.elapsed()
    });
    row("OpenAI stream, per text delta (µs)", DELTAS, |_| {
        let bytes = openai_stream();
        let mut out: Vec<Delta> = Vec::new();
        let start = Instant::now();
        let mut parser = openai::Parser::new();
        parser.push(&bytes, &mut out).expect("a good stream");
        black_box(out.len());
        start.elapsed()
    });
    for before in [0, 1_000] {
        let what = format!("run of two steps and a call, after {before} runs (µs)");
        row(&what, RUNS, |_| {
            let mut world = World::new();
            (0..before).for_each(|_| world.run());
            let start = Instant::now();
            (0..RUNS).for_each(|_| world.run());
            start.elapsed()
        });
    }
}

fn row(what: &str, units: usize, measure: impl Fn(usize) -> std::time::Duration) {
    let mut taken: Vec<f64> = (0..=REPETITIONS)
        .map(|repetition| measure(repetition).as_secs_f64() * 1e6 / units as f64)
        .skip(1) // The first warms up.
        .collect();
    taken.sort_by(f64::total_cmp);
    let (least, most) = (taken[0], taken[taken.len() - 1]);
    println!("{what:52} {:>10.2} {least:>10.2} {most:>10.2}", taken[taken.len() / 2]);
}

fn anthropic_stream() -> Vec<u8> {
    let mut stream = String::from(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n\
         event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    );
    for _ in 0..DELTAS {
        stream.push_str(
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"twelve chars\"}}\n\n",
        );
    }
    stream.into_bytes()
}

fn openai_stream() -> Vec<u8> {
    let delta = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"twelve chars\"},\"finish_reason\":null}]}\n\n";
    delta.repeat(DELTAS).into_bytes()
}

/// A session with a read-only tool, driven as its actor drives it.
struct World {
    state: SessionState,
    rules: Rules,
    decided: u64,
}

impl World {
    fn new() -> Self {
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
        let rules = Rules::new(profile, Arc::new(Matrix::default()), Arc::new(book));
        let state = SessionState::vacant(SessionId(Uuid::from_u128(7)));
        let mut world = Self { state, rules, decided: 0 };
        let owner = UserId::parse("ann").expect("a name");
        let settings = Settings::default();
        world.take(Input::CreateSession { owner, agent, title: None, settings });
        world
    }

    fn take(&mut self, input: Input) -> Vec<Effect> {
        self.decided += 1;
        let env = Env::new(Timestamp(1_000), self.decided, &self.rules);
        let Decision { events, effects, .. } =
            decide(&self.state, input, &env).expect("nothing is refused here");
        let next = events.iter().fold(self.state.clone(), evolve);
        black_box(Projection::between(&self.state, &next));
        self.state = next;
        effects
    }

    fn run(&mut self) {
        let message_id = MessageId::parse(&format!("m{}", self.decided)).expect("an id");
        let (text, digest) = ("What is it?".into(), Digest::of_bytes(b"x"));
        let on_busy = OnBusy::Queue;
        let effects = self.take(Input::SubmitMessage {
            message_id,
            text,
            digest,
            on_busy,
            preflight: None,
            workflow: None,
            traceparent: None,
        });
        let call = ProposedCall {
            call_id: CallId(Uuid::nil()),
            provider_id: "toolu_1".to_owned(),
            tool: "get_price".to_owned(),
            arguments: Arguments::Json(json!({"n": 34})),
        };
        let effects = self.completes(&effects, vec![call]);
        let [Effect::StartTool { call_id, attempt_id, .. }] = &effects[..] else {
            panic!("the tool was to start: {effects:?}");
        };
        let output = ToolOutput { text: "4.12".to_owned(), ..ToolOutput::default() };
        let (call_id, attempt_id) = (*call_id, *attempt_id);
        let outcome = ToolOutcome::Completed(output);
        let effects = self.take(Input::ToolFinished { call_id, attempt_id, outcome });
        self.completes(&effects, Vec::new());
        assert!(self.state.is_idle());
    }

    fn completes(&mut self, effects: &[Effect], calls: Vec<ProposedCall>) -> Vec<Effect> {
        let [Effect::StartModel { attempt_id, .. }] = effects else {
            panic!("the model was to start: {effects:?}");
        };
        let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let text = "Some forty words of text would stand here, more or less.".to_owned();
        let message = AssistantMessage { text, calls, ..AssistantMessage::default() };
        let usage = Usage { input_tokens: 10, output_tokens: 10, cached_tokens: 0 };
        let result = Ok(Completion { message, usage, stop_reason });
        self.take(Input::StepFinished { attempt_id: *attempt_id, result })
    }
}
