//! Encoded requests are valid for providers, for every conversation (M1, M2).

use greenroom_core::{
    Env, Rules, Timestamp,
    agent::AgentProfile,
    call::{RetryPolicy, ToolOutcome, ToolOutput},
    context::{assemble_request, describe_request},
    ids::{AgentName, CallId, MessageId, SessionId, ToolName, UserId},
    json::Digest,
    limits,
    message::{Arguments, AssistantMessage, CallResult, Message, ProposedCall, Reasoning},
    model::{
        anthropic,
        completion::Completion,
        delta::StopReason,
        openai,
        request::{ModelRequest, SystemPrompt, wire_tool_name},
    },
    policy::{Matrix, Risk, RiskSource, Settings, Tool, ToolRegistry, schema},
    session::{Effect, Input, NewMessage, OnBusy, SessionState, decide, evolve},
    usage::TokenUsage,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};
use uuid::Uuid;

fn tool(name: &str, input_schema: Value) -> Arc<Tool> {
    Arc::new(Tool {
        name: ToolName::parse(name).expect("the name is valid"),
        server: "market".into(),
        remote_name: name.to_owned(),
        description: format!("What {name} does."),
        validator: Err("not needed here".to_owned()),
        input_schema,
        risk: Risk::ReadOnly,
        risk_source: RiskSource::Catalog,
        repeatable: true,
        parallel: true,
        timeout: None,
        result_bytes_max: limits::TOOL_RESULT_BYTES_DEFAULT,
        retry: RetryPolicy::default(),
        unavailable_reason: None,
        denial_reason: None,
        constraints: Vec::new(),
        cost: None,
        exclusive: None,
        cache_ttl: None,
    })
}

fn user(text: &str) -> Message {
    let message_id = MessageId::parse("m").expect("the id is valid");
    Message::User { message_id, text: text.into() }
}

fn assistant_message(text: &str, reasoning: Vec<Reasoning>, calls: Vec<ProposedCall>) -> Message {
    Message::Assistant(Arc::new(AssistantMessage { text: text.to_owned(), reasoning, calls }))
}

fn call(number: u128, provider_id: &str, tool: &str, arguments: Arguments) -> ProposedCall {
    let provider_id = provider_id.to_owned();
    ProposedCall { call_id: id(number), provider_id, tool: tool.to_owned(), arguments }
}

fn result(number: u128, text: &str, is_error: bool) -> CallResult {
    CallResult {
        call_id: id(number),
        provider_id: String::new(),
        tool: "add".to_owned(),
        text: text.into(),
        is_error,
    }
}

fn id(number: u128) -> CallId {
    CallId(Uuid::from_u128(number))
}

fn request(messages: Vec<Message>, tools: Vec<Arc<Tool>>) -> ModelRequest {
    let (model, system) = ("m-1".to_owned(), "Be brief.".into());
    ModelRequest {
        model,
        system,
        messages,
        tools,
        max_tokens: 4096,
        forced_tool: None,
        trace_context: None,
        ..ModelRequest::default()
    }
}

fn anthropic_body(request: &ModelRequest) -> Value {
    serde_json::from_slice(&anthropic::encode(request)).expect("JSON")
}

fn openai_body(request: &ModelRequest) -> Value {
    let options = openai::EncodeOptions::default();
    serde_json::from_slice(&openai::encode(request, options)).expect("JSON")
}

/// Creates a conversation with messages, reasoning, calls and results of every kind.
fn conversation() -> ModelRequest {
    let thinking = Reasoning::Thinking { text: "hm".to_owned(), signature: Some("sig".to_owned()) };
    let unsigned = Reasoning::Thinking { text: "hm".to_owned(), signature: None };
    let redacted = Reasoning::Redacted { payload: "xyz".to_owned() };
    let malformed = Arguments::Malformed { raw: "{\"x\":".to_owned(), error: "cut".to_owned() };
    let calls = vec![
        call(1, "toolu_1", "add", Arguments::Json(json!({"x": 1}))),
        call(2, "toolu_2", "add", malformed),
    ];
    let schema = json!({"type": "object", "properties": {"x": {"type": "number"}}});
    request(
        vec![
            user("Hello"),
            assistant_message("Let me see.\n", vec![thinking, unsigned, redacted], calls),
            Message::ToolResults(vec![result(1, "2", false), result(2, "no JSON", true)]),
            user("And?"),
        ],
        vec![tool("add", schema), tool("get_time", json!({}))],
    )
}

#[test]
fn m1_anthropic_request_has_documented_form() {
    let cached = json!({"type": "ephemeral"});
    let expected = json!({
        "model": "m-1", "max_tokens": 4096, "stream": true,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": cached}],
        "tools": [
            {"name": "add", "description": "What add does.",
             "input_schema": {"type": "object", "properties": {"x": {"type": "number"}}}},
            {"name": "get_time", "description": "What get_time does.",
             "input_schema": {"type": "object", "properties": {}}, "cache_control": cached},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"x": 1}},
                {"type": "tool_use", "id": "toolu_2", "name": "add",
                 "input": {"_unparsed": "{\"x\":"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "2"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no JSON",
                 "is_error": true},
                {"type": "text", "text": "And?", "cache_control": cached},
            ]},
        ],
    });
    assert_eq!(anthropic_body(&conversation()), expected);
}

#[test]
fn m1_openai_request_has_documented_form() {
    let function = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "add", "arguments": arguments}});
    let expected = json!({
        "model": "m-1", "max_completion_tokens": 4096,
        "stream": true, "stream_options": {"include_usage": true},
        "tools": [
            {"type": "function", "function": {"name": "add", "description": "What add does.",
             "parameters": {"type": "object", "properties": {"x": {"type": "number"}}}}},
            {"type": "function", "function": {"name": "get_time",
             "description": "What get_time does.",
             "parameters": {"type": "object", "properties": {}}}},
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Let me see.\n",
             "tool_calls": [function("toolu_1", "{\"x\":1}"), function("toolu_2", r#"{"_unparsed":"{\"x\":"}"#)]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "2"},
            {"role": "tool", "tool_call_id": "toolu_2", "content": "error: no JSON"},
            {"role": "user", "content": "And?"},
        ],
    });
    assert_eq!(openai_body(&conversation()), expected);
    let options = openai::EncodeOptions {
        legacy_max_tokens: true,
        sends_reasoning: true,
        sends_exact_arguments: true,
    };
    let body = openai::encode(&conversation(), options);
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&body["max_tokens"], &body["max_completion_tokens"]), (&json!(4096), &Value::Null));
    assert_eq!(body["messages"][2]["reasoning_content"], "hmhm");
    let calls = &body["messages"][2]["tool_calls"];
    assert_eq!(calls, &json!([function("toolu_1", "{\"x\":1}"), function("toolu_2", "{\"x\":")]));
}

#[test]
fn m2_model_reads_what_it_wrote_instead_of_an_object() {
    let malformed = |raw: &str| Arguments::Malformed { raw: raw.to_owned(), error: "e".to_owned() };
    for (arguments, object, exact) in [
        (malformed("{'x': 1}"), json!({"_unparsed": "{'x': 1}"}), "{'x': 1}"),
        (malformed("[1]"), json!({"_unparsed": "[1]"}), "[1]"),
        // As in logs of earlier versions.
        (Arguments::Json(json!(["a"])), json!({"_unparsed": "[\"a\"]"}), "[\"a\"]"),
        // The model wrote nothing.
        (malformed(" "), json!({}), "{}"),
        (Arguments::Json(json!({"x": 1})), json!({"x": 1}), r#"{"x":1}"#),
    ] {
        let calls = vec![call(1, "toolu_1", "add", arguments.clone())];
        let messages = vec![user("Hello"), assistant_message("", vec![], calls)];
        let request = request(messages, vec![]);
        let anthropic = &anthropic_body(&request)["messages"][1]["content"][0]["input"];
        assert_eq!(anthropic, &object, "{arguments:?}");
        let compatible = &openai_body(&request)["messages"][2]["tool_calls"][0]["function"];
        let compatible = compatible["arguments"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(compatible).unwrap(), object, "{arguments:?}");
        let options = openai::EncodeOptions { sends_exact_arguments: true, ..Default::default() };
        let openai: Value = serde_json::from_slice(&openai::encode(&request, options)).unwrap();
        let function = &openai["messages"][2]["tool_calls"][0]["function"];
        assert_eq!(function["arguments"], exact, "{arguments:?}");
    }
}

#[test]
fn m1_conversation_that_providers_reject_is_adapted() {
    let not_an_object = || Arguments::Json(json!(["no", "object"]));
    let calls = vec![
        call(1, "", "add", not_an_object()),
        call(2, "functions.add:0", "mar ket/add", not_an_object()),
        call(3, "functions.add:0", "", not_an_object()),
    ];
    let messages = vec![
        assistant_message("first", vec![], vec![]),
        assistant_message("", vec![Reasoning::Redacted { payload: "p".to_owned() }], vec![]),
        user(" \n"),
        assistant_message("", vec![], calls),
        user("steered"),
        Message::ToolResults(vec![result(3, "", false), result(9, "nobody's", false)]),
        Message::ToolResults(vec![result(3, "again", false), result(1, "Error 7", true)]),
        assistant_message("last ", vec![], vec![]),
    ];
    let mut request = request(messages, vec![]);
    request.system = SystemPrompt::default();
    let body = anthropic_body(&request);
    check_anthropic(&body);
    assert_eq!(body.get("system"), None);
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
    let result_ids = [id(1).to_string(), "functions_add_0".to_owned(), id(3).to_string()];
    let results: Vec<_> = body["messages"][4]["content"].as_array().unwrap().iter().collect();
    let result = |index: usize| (&results[index]["tool_use_id"], &results[index]["content"]);
    assert_eq!(result(0), (&json!(result_ids[0]), &json!("Error 7")));
    assert_eq!(
        result(1),
        (&json!(result_ids[1]), &json!("error: the call has no recorded result"))
    );
    assert_eq!(result(2), (&json!(result_ids[2]), &json!("(no output)")));
    assert_eq!(results[3]["text"], "steered");

    let body = openai_body(&request);
    check_openai(&body);
    assert_eq!(body["messages"][1]["content"], Value::Null);
    assert_eq!(body["messages"][2]["content"], "Error 7");
    assert_eq!(body["messages"][3]["tool_call_id"], "functions.add:0");
}

#[test]
fn m1_schemas_are_objects_without_top_level_combinators() {
    let schemas = [
        (json!(true), json!({"type": "object", "properties": {}})),
        (json!({"type": ["object", "null"]}), json!({"type": "object", "properties": {}})),
        (
            json!({"properties": {"a": {"anyOf": [true]}}, "anyOf": [{"required": ["a"]}]}),
            json!({"type": "object", "properties": {"a": {"anyOf": [true]}}}),
        ),
    ];
    for (schema, expected) in schemas {
        let request = request(vec![user("hi")], vec![tool("t", schema)]);
        assert_eq!(anthropic_body(&request)["tools"][0]["input_schema"], expected);
        assert_eq!(openai_body(&request)["tools"][0]["function"]["parameters"], expected);
    }
}

#[test]
fn m1_tool_names_are_converted_for_the_wire() {
    for (name, expected) in [("get_a-1", "get_a-1"), ("a.b/ü", "a_b__"), ("", "_")] {
        assert_eq!(wire_tool_name(name), expected);
    }
    assert_eq!(wire_tool_name(&"x".repeat(128)).len(), 64);
    let tools = vec![tool("a.b", json!({})), tool("a/b", json!({}))];
    let body = anthropic_body(&request(vec![user("hi")], tools));
    assert_eq!(body["tools"].as_array().unwrap().len(), 1);
}

/// Asserts the requirements of Anthropic, according to its documentation and error messages.
fn check_anthropic(body: &Value) {
    let messages = body["messages"].as_array().expect("messages");
    assert!(messages.len() % 2 == 1, "the first and the last message have the user role");
    let mut ids = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for (position, message) in messages.iter().enumerate() {
        let role = if position % 2 == 0 { "user" } else { "assistant" };
        assert_eq!(message["role"], role);
        let blocks = message["content"].as_array().expect("blocks");
        assert!(!blocks.is_empty());
        let mut ranks = Vec::new();
        let mut answered = Vec::new();
        for block in blocks {
            let non_blank = |key: &str| {
                let text = block[key].as_str().expect(key);
                assert!(!text.trim().is_empty(), "{key} of {block}");
                text.to_owned()
            };
            ranks.push(match block["type"].as_str().expect("a type") {
                "text" => {
                    let text = non_blank("text");
                    assert!(role == "user" || text.trim_end() == text);
                    2
                }
                "thinking" if role == "assistant" => {
                    non_blank("signature");
                    0
                }
                "redacted_thinking" if role == "assistant" => {
                    non_blank("data");
                    0
                }
                "tool_use" if role == "assistant" => {
                    let id = non_blank("id");
                    assert!(is_plain(&id), "{id}");
                    assert!(ids.insert(id.clone()), "{id} twice");
                    assert!(is_plain(&non_blank("name")) && block["input"].is_object());
                    open.push(id);
                    3
                }
                "tool_result" if role == "user" => {
                    non_blank("content");
                    answered.push(non_blank("tool_use_id"));
                    1
                }
                other => panic!("{other} in a message of the {role}"),
            });
        }
        assert!(ranks.is_sorted(), "results and thinking before text, calls last: {message}");
        if role == "user" {
            assert_eq!(answered, std::mem::take(&mut open), "results of exactly the open calls");
        }
    }
    assert!(ids.is_empty() || !body["tools"].as_array().expect("tools").is_empty());
    let marks = body.to_string().matches("\"ephemeral\"").count();
    assert!((1..=4).contains(&marks), "{marks} cache markers");
}

/// Asserts the requirements of Chat Completions.
fn check_openai(body: &Value) {
    let mut ids = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for (position, message) in body["messages"].as_array().expect("messages").iter().enumerate() {
        let content = &message["content"];
        let has_content = content.as_str().is_some_and(|text| !text.trim().is_empty());
        match message["role"].as_str().expect("a role") {
            "tool" => {
                assert!(has_content && !open.is_empty(), "{message}");
                assert_eq!(message["tool_call_id"], open.remove(0));
                continue;
            }
            "system" => assert!(has_content && position == 0),
            "user" => assert!(has_content),
            "assistant" => {
                let calls =
                    message.get("tool_calls").map(|calls| calls.as_array().expect("a list"));
                assert!(has_content || (content.is_null() && calls.is_some()), "{message}");
                assert!(calls.is_none_or(|calls| !calls.is_empty()));
                assert_eq!(open, Vec::<String>::new());
                for call in calls.into_iter().flatten() {
                    let id = call["id"].as_str().expect("an id").to_owned();
                    assert!((1..=40).contains(&id.len()) && ids.insert(id.clone()), "{id}");
                    assert!(is_plain(call["function"]["name"].as_str().expect("a name")));
                    let arguments = call["function"]["arguments"].as_str().expect("text");
                    assert!(serde_json::from_str::<Value>(arguments).expect("JSON").is_object());
                    open.push(id);
                }
                continue;
            }
            other => panic!("role {other}"),
        }
        assert_eq!(open, Vec::<String>::new(), "a call has no result right after it");
    }
    assert_eq!(open, Vec::<String>::new(), "a call has no result");
}

fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" \n".to_owned()), "\\PC{1,12} ?"]
}

fn reasoning() -> impl Strategy<Value = Reasoning> {
    prop_oneof![
        (texts(), prop::option::of("[a-z]{0,4}"))
            .prop_map(|(text, signature)| Reasoning::Thinking { text, signature }),
        "[a-z]{0,4}".prop_map(|payload| Reasoning::Redacted { payload }),
    ]
}

fn any_call() -> impl Strategy<Value = ProposedCall> {
    let ids = prop_oneof![Just(String::new()), "[ab]", "\\PC{1,6}", "[a-z.]{38,60}"];
    let arguments = prop_oneof![
        Just(Arguments::Json(json!({"x": [1, "é"]}))),
        Just(Arguments::Json(json!(7))),
        Just(Arguments::Malformed { raw: "{".to_owned(), error: "cut".to_owned() }),
    ];
    (0u128..6, ids, "\\PC{0,70}", arguments)
        .prop_map(|(number, id, tool, arguments)| call(number, &id, &tool, arguments))
}

/// Generates messages in any order, including orders that no session produces.
fn messages() -> impl Strategy<Value = Vec<Message>> {
    let results = prop::collection::vec((0u128..6, texts(), any::<bool>()), 0..5).prop_map(|all| {
        let results = all.iter().map(|(number, text, error)| result(*number, text, *error));
        Message::ToolResults(results.collect())
    });
    let assistant = (
        texts(),
        prop::collection::vec(reasoning(), 0..3),
        prop::collection::vec(any_call(), 0..4),
    );
    let assistant =
        assistant.prop_map(|(text, reasoning, calls)| assistant_message(&text, reasoning, calls));
    let message = prop_oneof![texts().prop_map(|text| user(&text)), assistant, results];
    prop::collection::vec(message, 0..10)
}

proptest! {
    #[test]
    fn m1_every_conversation_yields_valid_requests(
        messages in messages(),
        offers_tools in any::<bool>(),
    ) {
        let tools = if offers_tools { vec![tool("add", json!({}))] } else { vec![] };
        let request = request(messages, tools);
        check_anthropic(&anthropic_body(&request));
        check_openai(&openai_body(&request));
        prop_assert_eq!(anthropic::encode(&request), anthropic::encode(&request.clone()));
    }

    #[test]
    fn m12_growing_conversation_keeps_its_prefix(messages in messages(), more in messages()) {
        // Prompt caches match equal prefixes. A session adds results right after their calls before
        // it adds further messages, so a prefix ends only there.
        let before = request(messages.clone(), vec![]);
        let all = messages.into_iter().chain([user("next")]).chain(more).collect();
        let after = request(all, vec![]);
        let (before, after) = (openai_body(&before), openai_body(&after));
        let messages_of = |body: &Value| body["messages"].as_array().expect("messages").clone();
        let (before, after) = (messages_of(&before), messages_of(&after));
        // Consecutive user messages are joined; late results move to their calls.
        let settled = before.iter().rposition(|message| message["role"] == "assistant");
        let settled = settled.unwrap_or(before.len().saturating_sub(1));
        prop_assert_eq!(&after[..settled], &before[..settled]);
    }
}

#[test]
fn g14_forced_tool_is_encoded_on_both_wires_without_thinking() {
    let tools = vec![tool("add", json!({})), tool("submit plan", json!({}))];
    let plain = request(vec![user("hi")], tools);
    let forced = ModelRequest { forced_tool: Some("submit plan".to_owned()), ..plain.clone() };
    let parse = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
    let body = parse(anthropic::encode(&forced));
    assert_eq!(body["tool_choice"], json!({"type": "tool", "name": "submit_plan"}));
    assert_eq!(body["thinking"], json!({"type": "disabled"}));
    let body = parse(openai::encode(&forced, openai::EncodeOptions::default()));
    let expected = json!({"type": "function", "function": {"name": "submit_plan"}});
    assert_eq!(body["tool_choice"], expected);
    let bodies = [
        parse(anthropic::encode(&plain)),
        parse(openai::encode(&plain, openai::EncodeOptions::default())),
    ];
    for body in bodies {
        assert_eq!((body.get("tool_choice"), body.get("thinking")), (None, None));
    }
}

/// Runs a session with a model that has a small context window, and checks every request.
struct ConversationDriver {
    state: SessionState,
    rules: Rules,
    seed: u64,
    requests: usize,
    summaries: usize,
    events: usize,
}

impl ConversationDriver {
    fn new(window: u64) -> Self {
        let mut agent = AgentProfile::new(AgentName::parse("trader").expect("the name is valid"));
        (agent.models, agent.max_tokens) = (vec!["small".to_owned()], 1_000);
        agent.system = "You trade.".to_owned();
        let any_object = json!({"type": "object"});
        let read = tool("get_price", any_object.clone());
        let validator = schema::compile(&any_object);
        let read = Tool { validator, ..Arc::into_inner(read).expect("there is one reference") };
        let registry = Arc::new(ToolRegistry::new([read]));
        let mut rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), registry);
        rules.context.context_windows = Arc::new([("small".to_owned(), window)].into());
        let state = SessionState::new(SessionId(Uuid::from_u128(1)));
        let mut driver = Self { state, rules, seed: 0, requests: 0, summaries: 0, events: 0 };
        let (owner, agent) = (
            UserId::parse("ann").expect("the id is valid"),
            AgentName::parse("trader").expect("the name is valid"),
        );
        let settings = Settings::default();
        driver.apply_input(Input::CreateSession { owner, agent, title: None, settings });
        driver
    }

    /// Decides on `input`, applies the events, and performs the effects until none is left.
    fn apply_input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.seed += 1;
            let env = Env::new(Timestamp(1_000_000), self.seed, &self.rules);
            let decision = decide(&self.state, input, &env).expect("the input is accepted");
            self.events += decision.events.len();
            self.state = decision.events.iter().fold(self.state.clone(), evolve);
            inputs.extend(decision.effects.into_iter().rev().map(|effect| self.run_effect(effect)));
        }
    }

    fn run_effect(&mut self, effect: Effect) -> Input {
        match effect {
            Effect::StartModel { attempt_id, .. } => {
                let result = Ok(self.complete_step());
                Input::ModelFinished { attempt_id, result }
            }
            Effect::StartTool { call_id, attempt_id, .. } => {
                let text = "4.12 ISK in The Forge. ".repeat(25);
                let outcome = ToolOutcome::Completed(ToolOutput { text, ..Default::default() });
                Input::ToolFinished { call_id, attempt_id, outcome }
            }
            other @ (Effect::StopModel { .. }
            | Effect::AcquireExclusiveLock { .. }
            | Effect::AnswerElicitation { .. }
            | Effect::StartChild { .. }
            | Effect::NarrowChild { .. }
            | Effect::CloseChild { .. }
            | Effect::StopTool { .. }) => panic!("unexpected effect: {other:?}"),
        }
    }

    /// Completes a step; checks its request on both wires.
    fn complete_step(&mut self) -> Completion {
        self.requests += 1;
        let request = assemble_request(&self.state, &self.rules, "small".to_owned());
        check_anthropic(&anthropic_body(&request));
        check_openai(&openai_body(&request));
        let run = self.state.active.run.as_ref().expect("a run is active");
        let mut message = AssistantMessage::default();
        if run.compacting_through().is_some() {
            self.summaries += 1;
            message.text = format!("Summary {}: they asked for prices.", self.summaries);
        } else {
            let manifest = describe_request(&self.state, &self.rules, "small".to_owned());
            assert!(
                manifest.tokens + manifest.output_tokens <= manifest.window_tokens,
                "{manifest:?}"
            );
            let conversation = manifest.sections.last().expect("a conversation section");
            assert_eq!((conversation.left_out, conversation.cut), (0, 0), "{manifest:?}");
            if run.step == 1 {
                let arguments = || Arguments::Json(json!({"type_id": 34}));
                message.calls = (0..2).map(|n| call(n, "c", "get_price", arguments())).collect();
            } else {
                message.text = "It costs 4.12 ISK. ".repeat(20);
            }
        }
        let usage = TokenUsage { input_tokens: 1, ..TokenUsage::default() };
        Completion { message, usage, stop_reason: StopReason::EndTurn, dropped_calls: 0 }
    }
}

/// C4: in a long conversation no message is truncated or omitted, and every request is valid.
#[test]
fn c4_two_hundred_runs_fit_and_requests_are_valid_on_both_wires() {
    let mut driver = ConversationDriver::new(8_000);
    for turn in 0..200 {
        let message_id = MessageId::parse(&format!("u{turn}")).expect("the id is valid");
        let digest = Digest::hash_json(&json!(turn));
        let text = format!("Turn {turn}: what does it cost?").into();
        let author = UserId::parse("ann").expect("the id is valid");
        let message = NewMessage::new(author, message_id, text, digest);
        driver.apply_input(Input::SubmitMessage { message, on_busy: OnBusy::Queue });
        assert!(driver.state.is_idle(), "turn {turn}");
    }
    assert_eq!(driver.requests, 400 + driver.summaries);
    assert!((10..120).contains(&driver.summaries), "{} summaries", driver.summaries);
    assert_eq!(driver.state.conversation.len(), 800, "no message is removed");
    let input_tokens = driver.state.usage.tokens.input_tokens;
    assert_eq!(input_tokens, driver.requests as u64, "M6: every request is counted");
}
