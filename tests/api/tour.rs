//! The scenarios of the tour (docs/tour.md).

use crate::{
    harness::TestServerBuilder,
    stream::{
        format_frames, frames_of_kind, kinds_of, last_message_text, single_frame, streamed_text,
    },
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(
    s2_e1_answer_quotes_the_tool_result,
    s3_read_only_calls_run_in_parallel,
    g8_approved_order_is_placed_once,
    g8_rejected_order_is_not_placed,
    g7_denied_transfer_names_the_required_level,
    r2_failing_tool_is_retried,
    r3_exhausted_retries_do_not_end_the_run,
    g3_read_only_level_denies_writes,
    s2_run_of_four_steps_completes,
    a1_administrators_see_what_a_session_waits_for,
    g10_approval_survives_a_crash,
);

/// The flaky tool's retries, with shorter delays than in the catalog.
const SHORT_DELAYS: &str = r#"
[tools.get_production_cost]
server = "market"
risk = "read_only"
retry = { max = 3, base = "5ms", cap = "10ms" }
"#;
/// The event types that clients of the dialect `agent` handle.
const CLIENT_EVENT_TYPES: [&str; 8] = [
    "thinking",
    "text",
    "tool_call_started",
    "tool_call_completed",
    "tool_call_retrying",
    "tool_call_failed",
    "error",
    "done",
];

async fn s2_e1_answer_quotes_the_tool_result(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let body = json!({"character_id": 526_379_435, "autonomy_level": 1});
    let session = server.create_session(body).await;
    let frames =
        server.chat_to_end(&session, "What is the current sell price of Tritanium in Jita?").await;
    let expected = [
        "thinking",
        "text",
        "tool_call_started",
        "tool_call_completed",
        "thinking",
        "text",
        "done",
    ];
    assert_eq!(kinds_of(&frames, &CLIENT_EVENT_TYPES), expected, "{}", format_frames(&frames));
    let started = &single_frame(&frames, "tool_call_started").data;
    assert_eq!(started["tool"], "get_market_stats");
    assert_eq!(started["arguments"], json!({"region_id": 10_000_002, "type_id": 34}));
    let completed = &single_frame(&frames, "tool_call_completed").data;
    assert_eq!(completed["call_id"], started["call_id"]);
    let price = completed["result"]["lowest_sell"].as_f64().unwrap();
    assert!(
        last_message_text(&frames).contains(&format!("**{price} ISK**")),
        "{}",
        last_message_text(&frames)
    );
    assert!(
        streamed_text(&frames).ends_with(last_message_text(&frames)),
        "the streamed text equals the stored text"
    );
    let iterations: Vec<_> =
        frames_of_kind(&frames, "thinking").iter().map(|frame| &frame.data["iteration"]).collect();
    assert_eq!(iterations, [1, 2]);
    let done = &single_frame(&frames, "done").data;
    assert_eq!(done["outcome"], "completed");
    assert!(done["usage"]["input_tokens"].as_u64().unwrap() > 0, "{done}");
    for frame in &frames {
        for key in ["session_id", "run_id", "agent_id", "agent_type", "at", "seq"] {
            assert!(!frame.data[key].is_null(), "{key} of {}", frame.data);
        }
    }
}

async fn s3_read_only_calls_run_in_parallel(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(1).await;
    let frames =
        server.chat_to_end(&session, "Which ships were destroyed most in Jita last week?").await;
    let started = frames_of_kind(&frames, "tool_call_started");
    let tools: Vec<_> = started.iter().map(|frame| frame.text("tool")).collect();
    assert_eq!(tools[0], "get_war_losses");
    assert_eq!(tools[1..], ["get_item_info"; 6]);
    // All calls of the step start before the first of them completes.
    let second = frames.iter().position(|frame| frame.data["iteration"] == 2).unwrap();
    let second_step = &frames[second..];
    let done = second_step.iter().position(|frame| frame.kind() == "tool_call_completed").unwrap();
    assert_eq!(frames_of_kind(&second_step[..done], "tool_call_attempt_started").len(), 6);
    assert_eq!(frames_of_kind(&frames, "tool_call_completed").len(), 7);
    for text in ["**Rifter**: 287", "**Merlin**: 256"] {
        assert!(last_message_text(&frames).contains(text), "{}", last_message_text(&frames));
    }
}

async fn g8_approved_order_is_placed_once(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "Buy 1000 Tritanium at market price").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let request = &single_frame(&frames, "waiting_for_approval").data;
    let plan = &request["plan"];
    assert_eq!(request["plan_id"], plan["plan_id"]);
    assert_eq!(plan["purpose"], "Execute 1 tool");
    assert_eq!(
        (&plan["kind"], &plan["max_risk_level"]),
        (&json!("plan"), &json!("write_high_risk"))
    );
    assert!(plan["deadline"].is_string(), "{plan}");
    let step = &plan["steps"][0];
    assert_eq!(step["tool"], "market_order_create");
    assert_eq!(
        step["arguments"],
        json!({"type_id": 34, "region_id": 10_000_002, "side": "buy", "quantity": 1000, "price": 4.12})
    );
    assert!(server.effects().is_empty(), "nothing happens before the approval");

    let body = json!({"session_id": session, "plan_id": plan["plan_id"]});
    let decided = server.post("/agent/execute", body).await.expect_ok();
    assert_eq!((&decided["closed"], &decided["repeated"]), (&json!(true), &json!(false)));
    let rest = stream.read_to_end().await;
    let kinds = ["approval_decided", "tool_call_completed", "done"];
    assert_eq!(kinds_of(&rest, &kinds), kinds);
    assert!(
        last_message_text(&rest).contains("buy 1,000 Tritanium at 4.12 ISK is open"),
        "{}",
        last_message_text(&rest)
    );
    let effects = server.effects();
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert_eq!(effects[0]["tool"], "market_order_create");
    assert_eq!(effects[0]["arguments"], step["arguments"]);
}

async fn g8_rejected_order_is_not_placed(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "Buy 1000 Tritanium at market price").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan_id = frames.last().unwrap().data["plan_id"].clone();
    let body = json!({"session_id": session, "plan_id": plan_id, "reason": "too expensive today"});
    server.post("/agent/reject", body).await.expect_ok();
    let rest = stream.read_to_end().await;
    let failed = &single_frame(&rest, "tool_call_failed").data;
    assert_eq!(failed["reason"], "rejected");
    assert!(
        last_message_text(&rest).contains("I did not place the order"),
        "{}",
        last_message_text(&rest)
    );
    assert!(last_message_text(&rest).contains("too expensive today"), "the model gets the reason");
    assert_eq!(single_frame(&rest, "done").data["outcome"], "completed");
    assert_eq!(server.effects(), Vec::<Value>::new());
}

async fn g7_denied_transfer_names_the_required_level(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "Transfer 100M ISK to character XYZ").await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    assert_eq!(denied["tool"], "wallet_transfer");
    let reason = denied["reason"].as_str().unwrap();
    let level = "requires autonomy level ASSISTED (L2) or higher";
    assert!(reason.contains(level), "{reason}");
    assert!(reason.contains("current level: RECOMMENDATIONS"), "{reason}");
    assert!(
        last_message_text(&frames).contains("The transfer was not made"),
        "{}",
        last_message_text(&frames)
    );
    assert!(
        last_message_text(&frames).contains(level),
        "the model gets the reason, too: {}",
        last_message_text(&frames)
    );
    assert!(server.calls().is_empty(), "the tool is not called");
}

async fn r2_failing_tool_is_retried(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).with_config(SHORT_DELAYS).start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "Get production cost for Stabber").await;
    let expected = [
        "tool_call_started",
        "tool_call_retrying",
        "tool_call_retrying",
        "tool_call_completed",
        "done",
    ];
    assert_eq!(kinds_of(&frames, &expected), expected);
    let retries = frames_of_kind(&frames, "tool_call_retrying");
    for (retry, attempt) in retries.iter().zip([1, 2]) {
        assert_eq!(retry.data["attempt"], attempt);
        assert!(retry.data["delay_ms"].is_u64() && retry.data["until"].is_string());
        assert!(retry.text("reason").contains("temporary"), "{}", retry.data);
    }
    assert!(
        last_message_text(&frames).contains("costs **9,919,700.00 ISK**"),
        "{}",
        last_message_text(&frames)
    );
    assert_eq!(server.calls().len(), 3);
}

async fn r3_exhausted_retries_do_not_end_the_run(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).with_config(SHORT_DELAYS).start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "Get production cost for Vexor").await;
    assert_eq!(frames_of_kind(&frames, "tool_call_retrying").len(), 3);
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert_eq!(failed["retries_exhausted"], true);
    assert_eq!((&failed["reason"], &failed["attempts"]), (&json!("error"), &json!(4)));
    assert_eq!(single_frame(&frames, "done").data["outcome"], "completed");
    // The model quotes the error result that it read.
    assert!(
        last_message_text(&frames)
            .contains("could not get the production cost of the Vexor. The tool failed after 4 attempts: temporary: "),
        "{}",
        last_message_text(&frames)
    );
    assert_eq!(server.calls().len(), 4);
}

async fn g3_read_only_level_denies_writes(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(0).await;
    let frames = server.chat_to_end(&session, "Update bookmark").await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    let reason = denied["reason"].as_str().unwrap();
    assert!(reason.contains("requires autonomy level RECOMMENDATIONS (L1) or higher"), "{reason}");
    assert!(reason.contains("current level: READ_ONLY"), "{reason}");
    assert!(
        last_message_text(&frames).contains("not able to change the bookmark"),
        "{}",
        last_message_text(&frames)
    );
    assert!(server.calls().is_empty());
}

async fn s2_run_of_four_steps_completes(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).with_config(SHORT_DELAYS).start().await;
    let session = server.create_session_at(1).await;
    let frames =
        server.chat_to_end(&session, "Find profitable manufacturing opportunities in Jita").await;
    assert_eq!(frames_of_kind(&frames, "thinking").len(), 4);
    assert_eq!(frames_of_kind(&frames, "tool_call_started").len(), 7);
    assert_eq!(frames_of_kind(&frames, "tool_call_completed").len(), 7);
    for text in ["| 1 | **Vexor** |", "My pick: start with the **Stabber**"] {
        assert!(last_message_text(&frames).contains(text), "{}", last_message_text(&frames));
    }
}

async fn a1_administrators_see_what_a_session_waits_for(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "Buy 1000 Tritanium at market price").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let requested_at = frames.last().unwrap().data["plan"]["requested_at"].clone();
    let path = format!("/admin/actors?prefix=/sessions/{session}");
    let listed = server.get(&path).await.expect_ok();
    let actor = &listed["actors"][0];
    assert_eq!(actor["path"], format!("/sessions/{session}"), "{listed}");
    assert_eq!((&actor["kind"], &actor["state"]), (&json!("Session"), &json!("waiting")));
    let reason = actor["waiting"]["for_whom"].as_str().unwrap();
    assert!(reason.contains("approval"), "{reason}");
    // All timestamps have the same format, so they can be compared as text.
    let since = actor["waiting"]["since"].as_str().unwrap();
    assert!(since >= requested_at.as_str().unwrap(), "{since} before {requested_at}");
    assert!(actor["mailbox_depth"].is_u64() && actor["handled"].as_u64() > Some(0), "{actor}");
    let by_path = server.get(&format!("/admin/actors/sessions/{session}")).await.expect_ok();
    assert_eq!(by_path["actor"]["waiting"], actor["waiting"]);
    let kinds = server.get("/admin/actors").await.expect_ok();
    let kinds: Vec<_> =
        kinds["actors"].as_array().unwrap().iter().map(|actor| actor["kind"].clone()).collect();
    for kind in ["ApprovalDesk", "EventBus", "SessionRegistry", "ToolConnection", "Session"] {
        assert!(kinds.contains(&json!(kind)), "{kind} in {kinds:?}");
    }
}

async fn g10_approval_survives_a_crash(wire: ProviderProtocol) {
    let mut server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "Buy 1000 Tritanium at market price").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan = frames.last().unwrap().data["plan"].clone();
    server.kill_and_restart().await;

    let waiting = server.get("/agent/approvals?state=pending").await.expect_ok();
    let approval = &waiting["approvals"][0];
    for key in ["plan_id", "steps", "purpose", "deadline", "requested_at"] {
        assert_eq!(approval[key], plan[key], "{key}");
    }
    let request = json!({"session_id": session, "plan_id": plan["plan_id"]});
    let request = server.request(reqwest::Method::POST, "/agent/execute").json(&request);
    let rest =
        server.stream(request.header("accept", "text/event-stream")).await.read_to_end().await;
    assert!(last_message_text(&rest).contains("is open"), "{}", format_frames(&rest));
    assert_eq!(single_frame(&rest, "done").data["outcome"], "completed");
    assert_eq!(server.effects().len(), 1);
    let events = server.events(&session).await;
    let requests = events.iter().filter(|event| event["type"] == "waiting_for_approval");
    assert_eq!(requests.count(), 1, "approval is requested once");
}
