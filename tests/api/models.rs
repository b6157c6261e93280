//! Faults of models and providers, and the formats that they require (M2, M3).

use crate::{
    harness::{MODEL_KEY, TestServerBuilder},
    scripts::tool_call_script,
    stream::{
        Frame, format_frames, frames_of_kind, kinds_of, last_message_text, single_frame,
        streamed_text,
    },
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(
    m3_overloaded_provider_is_retried,
    m3_long_retry_after_fails_the_run_and_names_the_time,
    m3_broken_stream_restarts_the_step,
    m6_lost_usage_has_unknown_cost,
    m3_stalled_stream_restarts_the_step,
    m3_rejected_api_key_fails_the_run_and_is_not_shown,
    m3_unavailable_provider_fails_the_run,
    m2_malformed_arguments_return_an_error_result,
    m2_refusal_completes_the_run,
    m2_calls_beyond_the_limit_fail_and_the_others_run,
    m2_text_beyond_the_limit_is_cut_off,
    m3_calls_of_refused_message_do_not_run,
    m3_end_of_run_states_how_its_answer_ended,
    m2_stream_bytes_can_be_split_anywhere,
    m2_thinking_blocks_are_sent_back_unchanged,
    s2_run_fails_at_its_step_limit,
    t3_arguments_are_validated_before_approval,
    unknown_tool_returns_an_error_result,
);

async fn run_script(
    wire: ProviderProtocol,
    script: &str,
) -> (crate::harness::TestServer, String, Vec<Frame>) {
    let server = TestServerBuilder::with_script(wire, script).start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    (server, session, frames)
}

/// Returns a script whose rule for "go" has the given fault. The rule for "again" is the first one,
/// because after a run without an answer the next model request contains both messages.
fn failing_script(fault: &str) -> String {
    format!(
        r#"
[[rule]]
user = "again"
[[rule.reply]]
text = "Here I am."
[[rule]]
user = "go"
chunk = {{ text = 8 }}
{fault}
[[rule.reply]]
text = "The whole answer is longer than thirty characters."
"#
    )
}

const COMPLETE_TEXT: &str = "The whole answer is longer than thirty characters.";

async fn m3_overloaded_provider_is_retried(wire: ProviderProtocol) {
    for (status, extra_field, least_ms) in
        [(429, ", retry_after = 1", 1000), (529, "", 0), (500, "", 0), (408, "", 0)]
    {
        let script =
            failing_script(&format!("fail = {{ status = {status}, times = 1{extra_field} }}"));
        let (_server, _, frames) = run_script(wire, &script).await;
        let retry = &single_frame(&frames, "step_retrying").data;
        assert!(retry["delay_ms"].as_u64().unwrap() >= least_ms, "{status}: {retry}");
        assert_eq!(retry["attempt"], 1, "{status}");
        assert!(!retry["reason"].as_str().unwrap().is_empty());
        assert_eq!(streamed_text(&frames), COMPLETE_TEXT, "{status}");
        assert_eq!(frames_of_kind(&frames, "message_discarded").len(), 0, "no text was streamed");
        assert_eq!(single_frame(&frames, "done").data["outcome"], "completed");
    }
}

async fn m3_long_retry_after_fails_the_run_and_names_the_time(wire: ProviderProtocol) {
    let fault = "fail = { status = 429, retry_after = 3600, message = 'slow down' }";
    let (server, _, frames) = run_script(wire, &failing_script(fault)).await;
    let failed = &single_frame(&frames, "error").data;
    let expected = "slow down; the provider asks to wait 3,600 s; the limit is 30 s";
    assert_eq!(
        (&failed["code"], &failed["error"]),
        (&json!("model_unavailable"), &json!(expected))
    );
    assert_eq!(frames_of_kind(&frames, "step_retrying").len(), 0);
    assert_eq!(server.rehearsal.requests().len(), 1, "the provider is not asked again");
}

async fn m3_stalled_stream_restarts_the_step(wire: ProviderProtocol) {
    let script = failing_script("stall = { after = 20, times = 1 }");
    let setup =
        TestServerBuilder::with_script(wire, &script).with_model_config("idle_timeout = \"500ms\"");
    let server = setup.start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    let reason = "the model did not answer in time: no data for 0.5 s";
    assert_eq!(single_frame(&frames, "step_retrying").data["reason"], reason);
    assert_eq!(frames_of_kind(&frames, "message_discarded").len(), 1);
    assert_eq!(single_frame(&frames, "message_completed").data["text"], COMPLETE_TEXT);
}

async fn m3_broken_stream_restarts_the_step(wire: ProviderProtocol) {
    for fault in ["cut = { after = 20, times = 1 }", "error = { after = 20, times = 1 }"] {
        let (_server, _, frames) = run_script(wire, &failing_script(fault)).await;
        let selected = [
            "thinking",
            "message_started",
            "text",
            "message_discarded",
            "step_retrying",
            "step_started",
            "message_completed",
            "done",
        ];
        let expected = [
            "thinking",
            "message_started",
            "text",
            "message_discarded",
            "step_retrying",
            "step_started",
            "message_started",
            "text",
            "message_completed",
            "done",
        ];
        let actual = kinds_of(&frames, &selected);
        // A cut connection may lose text that was sent: then there is no message to discard.
        if fault.starts_with("cut") && frames_of_kind(&frames, "message_discarded").is_empty() {
            let expected_without_message = [&expected[..2], &expected[4..]].concat();
            assert_eq!(actual, expected_without_message, "{fault}: {}", format_frames(&frames));
            assert_eq!(streamed_text(&frames), COMPLETE_TEXT);
            continue;
        }
        // A client that subscribes after the discard does not get the text: deltas are not stored.
        let expected_without_text = [&expected[..2], &expected[3..]].concat();
        let matches = actual == expected || actual == expected_without_text;
        assert!(matches, "{fault}: {actual:?} in {}", format_frames(&frames));
        let discarded = single_frame(&frames, "message_discarded").data["message_id"].clone();
        let text = |of_discarded: bool| -> String {
            let texts = frames.iter().filter(|frame| {
                frame.kind() == "text" && (frame.data["message_id"] == discarded) == of_discarded
            });
            texts.map(|frame| frame.text("text")).collect()
        };
        assert_eq!(text(false), COMPLETE_TEXT);
        assert!(COMPLETE_TEXT.starts_with(&text(true)) && text(true).len() < COMPLETE_TEXT.len());
    }
}

async fn m6_lost_usage_has_unknown_cost(wire: ProviderProtocol) {
    let price = "price = { input = 1000, output = 1000 }";
    for (fault, is_known) in
        [("fail = { status = 503, times = 1 }", true), ("error = { after = 20, times = 1 }", false)]
    {
        let script = failing_script(fault);
        let setup = TestServerBuilder::with_script(wire, &script).with_model_config(price);
        let server = setup.start().await;
        let session = server.create_session_at(1).await;
        let frames = server.chat_to_end(&session, "go").await;
        for kind in ["step_retrying", "done"] {
            let usage = &single_frame(&frames, kind).data["usage"];
            assert_eq!(usage["cost_usd"].is_number(), is_known, "{fault}: {kind}: {usage}");
            assert_eq!(usage["estimated"].is_null(), is_known, "{fault}: {kind}: {usage}");
            let estimate = usage["estimated_cost_usd"].as_f64();
            assert_eq!(estimate.is_some_and(|usd| usd > 0.0), !is_known, "{kind}: {usage}");
        }
        let input_tokens = &single_frame(&frames, "step_retrying").data["usage"]["input_tokens"];
        assert_eq!(input_tokens == &json!(0), is_known, "{fault}: {input_tokens}");
    }
}

async fn m3_rejected_api_key_fails_the_run_and_is_not_shown(wire: ProviderProtocol) {
    let fault = format!("fail = {{ status = 401, message = 'no such key: {MODEL_KEY}, sorry' }}");
    let (server, session, frames) = run_script(wire, &failing_script(&fault)).await;
    let error = &single_frame(&frames, "error").data;
    assert_eq!(error["code"], "model_error");
    assert!(error["error"].as_str().unwrap().contains("no such key"), "{error}");
    assert_eq!(server.rehearsal.requests().len(), 1, "the request is not retried");
    let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
    let events = server.events(&session).await;
    for text in [format_frames(&frames), log, json!(events).to_string()] {
        assert!(!text.contains(MODEL_KEY), "{text}");
    }
    let collected = server.post("/agent/chat", json!({"session_id": session, "message": "go"}));
    let problem = collected.await.expect_problem(502, "run_failed");
    assert_eq!(problem["reason"], "model_error");
    assert!(!problem.to_string().contains(MODEL_KEY));
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
    let received = &server.rehearsal.requests()[0];
    assert_eq!(received.x_api_key, wire == ProviderProtocol::Anthropic);
    assert_eq!(received.authorization, wire == ProviderProtocol::OpenAi);
}

async fn m3_unavailable_provider_fails_the_run(wire: ProviderProtocol) {
    let fault = "fail = { status = 503, message = 'down for maintenance' }";
    let (server, session, frames) = run_script(wire, &failing_script(fault)).await;
    assert_eq!(frames_of_kind(&frames, "step_retrying").len(), 3);
    let error = &single_frame(&frames, "error").data;
    assert_eq!(error["code"], "model_unavailable");
    assert!(error["error"].as_str().unwrap().contains("down for maintenance"), "{error}");
    // Statistics count the attempt that failed the run, too.
    let statistics = server.get("/agent/statistics").await.expect_ok();
    let model = statistics["models"].as_object().unwrap().values().next().unwrap();
    assert_eq!((&model["steps"], &model["failed"]), (&json!(4), &json!(4)), "{model}");
    assert_eq!(&model["usage"], &error["usage"]);
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

async fn m2_malformed_arguments_return_an_error_result(wire: ProviderProtocol) {
    let script = tool_call_script("get_market_stats", "{ region_id = 10000002, type_id = 34 }");
    let script = script.replace("arguments =", "malformed = true, arguments =");
    let (server, session, frames) = run_script(wire, &script).await;
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert_eq!(failed["reason"], "invalid_arguments", "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("JSON"), "{failed}");
    let started = &single_frame(&frames, "tool_call_started").data;
    let text = started["arguments_text"].as_str().unwrap();
    assert_eq!(started["arguments"], json!({}));
    assert!(text.starts_with('{') && serde_json::from_str::<Value>(text).is_err(), "{text}");
    let path = format!("/agent/session/{session}/messages");
    let messages = server.get(&path).await.expect_ok();
    let proposed = &messages["messages"][1]["metadata"]["tool_calls"][0];
    assert_eq!(
        (&proposed["arguments"], &proposed["arguments_text"]),
        (&json!({}), &json!(text)),
        "{messages}"
    );
    // The model reads what it wrote.
    let request = server.rehearsal.requests()[1].body.to_string();
    let read = serde_json::to_string(&json!({"_unparsed": text})).unwrap();
    let read_as_text = serde_json::to_string(&read).unwrap();
    assert!(request.contains(&read) || request.contains(&read_as_text), "{request}");
    assert!(last_message_text(&frames).starts_with("Read:"), "{}", format_frames(&frames));
    assert!(server.calls().is_empty());
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

async fn m2_refusal_completes_the_run(wire: ProviderProtocol) {
    let script = "[[rule]]\nuser = 'go'\n[[rule.reply]]\nrefusal = 'I will not do that.'\n\
                  [[rule]]\nuser = 'again'\n[[rule.reply]]\ntext = 'Here I am.'";
    let (server, session, frames) = run_script(wire, script).await;
    let message = &single_frame(&frames, "message_completed").data;
    assert_eq!(message["stop_reason"], "refusal");
    assert_eq!(message["text"], "I will not do that.");
    assert_eq!(single_frame(&frames, "done").data["outcome"], "completed");
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

async fn m2_calls_beyond_the_limit_fail_and_the_others_run(wire: ProviderProtocol) {
    let script = r#"
[[rule]]
user = "go"
step = 0
[[rule.reply]]
for_each = "range(5)"
tool_call = { name = "create_bookmark", arguments = { name = "b{{ item }}", system = "Jita" } }
[[rule]]
user = "go"
step = 1
[[rule.reply]]
text = "Read: {{ last[4].text }}"
"#;
    let server = TestServerBuilder::with_script(wire, script)
        .with_config("[limits]\ncalls_per_step = 3")
        .start()
        .await;
    let session = server.create_session_at(2).await;
    let frames = server.chat_to_end(&session, "go").await;
    let error = "the message has 5 calls; the limit is 3";
    let failures: Vec<_> = frames_of_kind(&frames, "tool_call_failed")
        .iter()
        .map(|frame| (frame.text("reason"), frame.text("error")))
        .collect();
    assert_eq!(failures, [("limit_exceeded", error); 2], "{}", format_frames(&frames));
    assert_eq!(frames_of_kind(&frames, "tool_call_completed").len(), 3);
    let mut names: Vec<_> =
        server.effects().iter().map(|effect| effect["arguments"]["name"].clone()).collect();
    names.sort_by_key(ToString::to_string);
    assert_eq!(names, ["b0", "b1", "b2"]);
    assert_eq!(last_message_text(&frames), format!("Read: Not run: {error}"));
    assert_eq!(single_frame(&frames, "done").data["stop_reason"], "end");
}

async fn m2_text_beyond_the_limit_is_cut_off(wire: ProviderProtocol) {
    let script = r#"
[[rule]]
user = "go"
chunk = { text = 4 }
[[rule.reply]]
text = "The whole answer is longer than thirty characters."
"#;
    let server = TestServerBuilder::with_script(wire, script)
        .with_config("[limits]\nmodel_text_bytes = 30")
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    let kept = &COMPLETE_TEXT[..30];
    assert_eq!((last_message_text(&frames), &*streamed_text(&frames)), (kept, kept));
    assert_eq!(single_frame(&frames, "message_completed").data["stop_reason"], "text_limit");
    assert_eq!(single_frame(&frames, "done").data["stop_reason"], "length");
}

async fn m3_calls_of_refused_message_do_not_run(wire: ProviderProtocol) {
    let filtered = match wire {
        ProviderProtocol::OpenAi => "content_filter",
        ProviderProtocol::Anthropic => "refusal",
    };
    let refusal = "[[rule.reply]]\nrefusal = \"Calling.\"";
    for (reply, stop, stop_reason) in [
        (refusal, "", "refusal"),
        ("[[rule.reply]]\ntext = \"Calling.\"", "stop = 'content_filter'\n", filtered),
    ] {
        let script = tool_call_script("create_bookmark", r#"{ name = "Jita", system = "Jita" }"#);
        let script =
            script.replace("[[rule.reply]]\ntext = \"Calling.\"", &format!("{stop}{reply}"));
        let (server, session, frames) = run_script(wire, &script).await;
        let selected =
            ["tool_call_started", "tool_call_attempt_started", "tool_call_failed", "done"];
        assert_eq!(
            kinds_of(&frames, &selected),
            ["tool_call_started", "tool_call_failed", "done"],
            "{}",
            format_frames(&frames)
        );
        assert_eq!(single_frame(&frames, "tool_call_failed").data["reason"], "refused");
        let done = &single_frame(&frames, "done").data;
        assert_eq!(
            (&done["outcome"], &done["stop_reason"]),
            (&json!("completed"), &json!(stop_reason))
        );
        assert!(server.effects().is_empty(), "{:?}", server.effects());
        // The provider accepts the conversation with the calls and their results.
        assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
    }
}

async fn m3_end_of_run_states_how_its_answer_ended(wire: ProviderProtocol) {
    let script = r#"
[[rule]]
user = "complete"
[[rule.reply]]
text = "Yes."
[[rule]]
user = "long"
stop = "max_tokens"
[[rule.reply]]
text = "half an ans"
[[rule]]
user = "refuse"
[[rule.reply]]
refusal = "No."
[[rule]]
user = "nothing"
[[rule.reply]]
text = ""
"#;
    let server = TestServerBuilder::with_script(wire, script).start().await;
    for (message, response, stop_reason) in [
        ("complete", "Yes.", "end"),
        ("long", "half an ans", "length"),
        ("refuse", "No.", "refusal"),
        ("nothing", "", "empty"),
    ] {
        let session = server.create_session_at(1).await;
        let frames = server.chat_to_end(&session, message).await;
        assert_eq!(single_frame(&frames, "done").data["stop_reason"], stop_reason);
        let chat = json!({"message": message, "session_id": session});
        let body = server.post("/agent/chat", chat).await.body;
        assert_eq!(
            (&body["outcome"], &body["stop_reason"], &body["response"]),
            (&json!("completed"), &json!(stop_reason), &json!(response)),
            "{body}"
        );
    }
}

async fn m2_stream_bytes_can_be_split_anywhere(wire: ProviderProtocol) {
    let split = "[defaults]\nwire_split = 1\nfragment = 1\ninterleave = true\n";
    let arguments = r#"{ name = "Zoë 🚀 \"quoted\" \\ 日本", system = "Jita" }"#;
    let script = tool_call_script("create_bookmark", arguments);
    let script = script.replace("Calling.", "Größe: 🚀 und 日本.");
    let (server, _, frames) = run_script(wire, &format!("{split}{script}")).await;
    let first = frames_of_kind(&frames, "message_completed")[0];
    assert_eq!(first.text("text"), "Größe: 🚀 und 日本.");
    assert_eq!(server.effects()[0]["arguments"]["name"], "Zoë 🚀 \"quoted\" \\ 日本");
    let all: String = frames_of_kind(&frames, "message_completed")
        .iter()
        .map(|frame| frame.text("text"))
        .collect();
    assert_eq!(streamed_text(&frames), all);
}

async fn m2_thinking_blocks_are_sent_back_unchanged(wire: ProviderProtocol) {
    let script = tool_call_script("list_bookmarks", "{}");
    let thinking =
        "[[rule.reply]]\nthinking = 'First I look.'\n[[rule.reply]]\ntext = \"Calling.\"";
    let script = script.replace("[[rule.reply]]\ntext = \"Calling.\"", thinking);
    let (server, _, frames) = run_script(wire, &script).await;
    // The scripted model rejects thinking blocks that are not returned exactly as sent.
    assert_eq!(
        single_frame(&frames, "done").data["outcome"],
        "completed",
        "{}",
        format_frames(&frames)
    );
    assert!(
        !format_frames(&frames).contains("First I look."),
        "clients do not get thinking blocks"
    );
    let second = server.rehearsal.requests().pop().unwrap().body;
    if wire == ProviderProtocol::Anthropic {
        let block = &second["messages"][1]["content"][0];
        assert_eq!(
            (&block["type"], &block["thinking"]),
            (&json!("thinking"), &json!("First I look."))
        );
        assert!(block["signature"].is_string());
    }
}

async fn s2_run_fails_at_its_step_limit(wire: ProviderProtocol) {
    let script = "[[rule]]\nuser = 'go'\n[[rule.reply]]\ntool_call = { name = 'list_bookmarks' }\n\
                  [[rule]]\nuser = 'again'\n[[rule.reply]]\ntext = 'Here I am.'";
    let server = TestServerBuilder::with_script(wire, script)
        .with_agent_config("max_steps = 2")
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    let error = &single_frame(&frames, "error").data;
    assert_eq!(error["code"], "max_iterations");
    let text = "maximum iterations reached without final answer";
    assert!(error["error"].as_str().unwrap().contains(text), "{error}");
    let completed = frames_of_kind(&frames, "tool_call_completed");
    assert_eq!(completed.len(), 2, "the calls of the last step still run");
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

async fn t3_arguments_are_validated_before_approval(wire: ProviderProtocol) {
    let order = r#"{ type_id = 34, region_id = 10000002, side = "buy", quantity = "many" }"#;
    let (server, session, frames) =
        run_script(wire, &tool_call_script("market_order_create", order)).await;
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert_eq!(failed["reason"], "invalid_arguments");
    let message = failed["error"].as_str().unwrap();
    assert!(message.contains("quantity"), "the error names the path: {failed}");
    assert!(last_message_text(&frames).contains("quantity"), "the model gets the error");
    let approvals = frames_of_kind(&frames, "waiting_for_approval");
    assert_eq!(approvals.len(), 0, "invalid arguments request no approval");
    assert!(server.calls().is_empty());
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

async fn unknown_tool_returns_an_error_result(wire: ProviderProtocol) {
    let (server, session, frames) =
        run_script(wire, &tool_call_script("open_the_pod_bay", "{}")).await;
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert_eq!(failed["reason"], "unknown_tool");
    assert!(failed["error"].as_str().unwrap().contains("open_the_pod_bay"), "{failed}");
    assert!(last_message_text(&frames).contains("open_the_pod_bay"), "the model gets the error");
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

#[actix_web::test]
async fn m2_interleaved_calls_and_legacy_function_calls_are_parsed() {
    let call_reply = |name: &str| format!("[[rule.reply]]\ntool_call = {{ name = '{name}' }}\n");
    let script = format!(
        "[[rule]]\nuser = 'go'\nstep = 0\ninterleave = true\nfragment = 2\n{}{}{}\
         [[rule]]\nuser = 'go'\n[[rule.reply]]\ntext = 'All {{{{ last | length }}}}.'",
        "[[rule.reply]]\ntool_call = { name = 'search_item', arguments = { query = 'Rifter' } }\n",
        "[[rule.reply]]\ntool_call = { name = 'get_item_info', arguments = { type_id = 34 } }\n",
        call_reply("list_bookmarks"),
    );
    let (_server, _, frames) = run_script(ProviderProtocol::OpenAi, &script).await;
    let calls = frames_of_kind(&frames, "tool_call_started");
    let tools: Vec<_> = calls.iter().map(|frame| frame.text("tool").to_owned()).collect();
    assert_eq!(tools, ["search_item", "get_item_info", "list_bookmarks"]);
    assert_eq!(last_message_text(&frames), "All 3.");

    let script = tool_call_script("get_item_info", "{ type_id = 34 }");
    let (_server, _, frames) = run_script(
        ProviderProtocol::OpenAi,
        &format!("[defaults]\nlegacy_function_call = true\n{script}"),
    )
    .await;
    assert!(last_message_text(&frames).contains("Tritanium"), "{}", format_frames(&frames));
}

/// M4, R4: an unreachable model falls back to the profile's next model. After enough failures its
/// circuit opens, and it is skipped at once; administrators see the state.
#[actix_web::test]
async fn m4_r4_unreachable_model_falls_back_and_opens_its_circuit() {
    let config = "
[models.dead]
wire = 'openai'
model = 'nobody'
base_url = 'http://127.0.0.1:1/v1'
[agents.careful]
models = ['dead', 'scripted']
";
    let script = "[[rule]]\n[[rule.reply]]\ntext = 'Here I am.'";
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, script)
        .with_config(config)
        .start()
        .await;
    let session = server.post("/agent/session", json!({"agent": "careful"})).await.expect_ok();
    let session = session["session_id"].as_str().unwrap().to_owned();

    let frames = server.chat_to_end(&session, "go").await;
    let fallback = &single_frame(&frames, "step_model_fallback").data;
    assert_eq!((&fallback["from"], &fallback["to"]), (&json!("dead"), &json!("scripted")));
    assert_eq!(fallback["attempt"], 4, "after its retries");
    assert!(fallback["reason"].as_str().unwrap().contains("can't be reached"), "{fallback}");
    assert_eq!(streamed_text(&frames), "Here I am.");

    // One more failure is the fifth: the circuit opens, and the model is not tried again.
    let frames = server.chat_to_end(&session, "go on").await;
    let fallback = &single_frame(&frames, "step_model_fallback").data;
    assert_eq!(fallback["attempt"], 2, "{}", format_frames(&frames));
    assert!(fallback["reason"].as_str().unwrap().contains("circuit open"), "{fallback}");
    assert_eq!(streamed_text(&frames), "Here I am.");

    let circuits = server.get("/admin/actors?prefix=/circuits/").await.expect_ok();
    let states: Vec<_> = circuits["actors"].as_array().unwrap().iter().collect();
    let find = |path: &str| states.iter().find(|actor| actor["path"] == path).unwrap();
    let state = |path: &str| &find(path)["state"];
    assert_eq!(state("/circuits/models/dead"), "open");
    assert_eq!(state("/circuits/models/scripted"), "closed");
    assert_eq!(state("/circuits/tools/market"), "closed");
}
