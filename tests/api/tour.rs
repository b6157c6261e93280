//! The tour of the README, as its reader sees it.

use crate::{
    harness::Setup,
    stream::{answer, kinds_of, of_kind, said, the, told},
};
use greenroom::rehearsal::Wire;
use serde_json::{Value, json};

on_both_wires!(
    s2_e1_a_price_comes_from_the_tool,
    s3_names_are_looked_up_in_parallel,
    g8_an_order_waits_for_a_yes_and_is_placed_once,
    g8_a_rejected_order_is_not_placed,
    g7_a_transfer_is_denied_with_the_level_it_needs,
    r2_a_flaky_tool_is_tried_again,
    r3_a_tool_that_never_recovers_does_not_end_the_run,
    g3_a_reader_may_not_write,
    s2_four_steps_and_a_ranking,
    a1_administrators_see_who_waits_for_whom,
    g10_an_approval_survives_the_servers_death,
);

/// The flaky tool's retries, quicker than the catalog's.
const QUICK: &str = r#"
[tools.get_production_cost]
risk = "read_only"
retry = { max = 3, base = "5ms", cap = "10ms" }
"#;
/// What a client of the first dialect looks at.
const SPOKEN: [&str; 8] = [
    "thinking",
    "text",
    "tool_call_started",
    "tool_call_completed",
    "tool_call_retrying",
    "tool_call_failed",
    "error",
    "done",
];

async fn s2_e1_a_price_comes_from_the_tool(wire: Wire) {
    let house = Setup::tour(wire).start().await;
    let wish = json!({"character_id": 526_379_435, "autonomy_level": 1});
    let session = house.session(wish).await;
    let frames = house.say(&session, "What is the current sell price of Tritanium in Jita?").await;
    let expected = [
        "thinking",
        "text",
        "tool_call_started",
        "tool_call_completed",
        "thinking",
        "text",
        "done",
    ];
    assert_eq!(kinds_of(&frames, &SPOKEN), expected, "{}", told(&frames));
    let started = &the(&frames, "tool_call_started").data;
    assert_eq!(started["tool"], "get_market_stats");
    assert_eq!(started["arguments"], json!({"region_id": 10_000_002, "type_id": 34}));
    let completed = &the(&frames, "tool_call_completed").data;
    assert_eq!(completed["call_id"], started["call_id"]);
    let price = completed["result"]["lowest_sell"].as_f64().unwrap();
    assert!(answer(&frames).contains(&format!("**{price} ISK**")), "{}", answer(&frames));
    assert!(said(&frames).ends_with(answer(&frames)), "what was streamed is what is kept");
    let iterations: Vec<_> =
        of_kind(&frames, "thinking").iter().map(|frame| &frame.data["iteration"]).collect();
    assert_eq!(iterations, [1, 2]);
    let done = &the(&frames, "done").data;
    assert_eq!(done["outcome"], "completed");
    assert!(done["usage"]["input_tokens"].as_u64().unwrap() > 0, "{done}");
    for frame in &frames {
        for key in ["session_id", "run_id", "agent_id", "agent_type", "at", "seq"] {
            assert!(!frame.data[key].is_null(), "{key} of {}", frame.data);
        }
    }
}

async fn s3_names_are_looked_up_in_parallel(wire: Wire) {
    let house = Setup::tour(wire).start().await;
    let session = house.session_at(1).await;
    let frames = house.say(&session, "Which ships were destroyed most in Jita last week?").await;
    let started = of_kind(&frames, "tool_call_started");
    let tools: Vec<_> = started.iter().map(|frame| frame.text("tool")).collect();
    assert_eq!(tools[0], "get_war_losses");
    assert_eq!(tools[1..], ["get_item_info"; 6]);
    // All of the step are on their way before the first of them is back.
    let second = frames.iter().position(|frame| frame.data["iteration"] == 2).unwrap();
    let of_second = &frames[second..];
    let done = of_second.iter().position(|frame| frame.kind() == "tool_call_completed").unwrap();
    assert_eq!(of_kind(&of_second[..done], "tool_call_attempt_started").len(), 6);
    assert_eq!(of_kind(&frames, "tool_call_completed").len(), 7);
    for words in ["**Rifter**: 287", "**Merlin**: 256"] {
        assert!(answer(&frames).contains(words), "{}", answer(&frames));
    }
}

async fn g8_an_order_waits_for_a_yes_and_is_placed_once(wire: Wire) {
    let house = Setup::tour(wire).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "Buy 1000 Tritanium at market price").await;
    let asked = stream.until("waiting_for_approval").await;
    let asked = &the(&asked, "waiting_for_approval").data;
    let plan = &asked["plan"];
    assert_eq!(asked["plan_id"], plan["plan_id"]);
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
    assert!(house.effects().is_empty(), "nothing happens before the yes");

    let wish = json!({"session_id": session, "plan_id": plan["plan_id"]});
    let decided = house.post("/agent/execute", wish).await.ok();
    assert_eq!((&decided["closed"], &decided["repeated"]), (&json!(true), &json!(false)));
    let rest = stream.rest().await;
    let told_of = ["approval_decided", "tool_call_completed", "done"];
    assert_eq!(kinds_of(&rest, &told_of), told_of);
    assert!(answer(&rest).contains("buy 1,000 Tritanium at 4.12 ISK is open"), "{}", answer(&rest));
    let effects = house.effects();
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert_eq!(effects[0]["tool"], "market_order_create");
    assert_eq!(effects[0]["arguments"], step["arguments"]);
}

async fn g8_a_rejected_order_is_not_placed(wire: Wire) {
    let house = Setup::tour(wire).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "Buy 1000 Tritanium at market price").await;
    let asked = stream.until("waiting_for_approval").await;
    let plan_id = asked.last().unwrap().data["plan_id"].clone();
    let wish = json!({"session_id": session, "plan_id": plan_id, "reason": "too expensive today"});
    house.post("/agent/reject", wish).await.ok();
    let rest = stream.rest().await;
    let failed = &the(&rest, "tool_call_failed").data;
    assert_eq!(failed["reason"], "rejected");
    assert!(answer(&rest).contains("I did not place the order"), "{}", answer(&rest));
    assert!(answer(&rest).contains("too expensive today"), "the model is told why");
    assert_eq!(the(&rest, "done").data["outcome"], "completed");
    assert_eq!(house.effects(), Vec::<Value>::new());
}

async fn g7_a_transfer_is_denied_with_the_level_it_needs(wire: Wire) {
    let house = Setup::tour(wire).start().await;
    let session = house.session_at(1).await;
    let frames = house.say(&session, "Transfer 100M ISK to character XYZ").await;
    let denied = &the(&frames, "authorization_denied").data;
    assert_eq!(denied["tool"], "wallet_transfer");
    let reason = denied["reason"].as_str().unwrap();
    let level = "requires autonomy level ASSISTED (L2) or higher";
    assert!(reason.contains(level), "{reason}");
    assert!(reason.contains("current level: RECOMMENDATIONS"), "{reason}");
    assert!(answer(&frames).contains("The transfer was not made"), "{}", answer(&frames));
    assert!(answer(&frames).contains(level), "the model is told, too: {}", answer(&frames));
    assert!(house.calls().is_empty(), "the tool never hears of it");
}

async fn r2_a_flaky_tool_is_tried_again(wire: Wire) {
    let house = Setup::tour(wire).with(QUICK).start().await;
    let session = house.session_at(1).await;
    let frames = house.say(&session, "Get production cost for Stabber").await;
    let expected = [
        "tool_call_started",
        "tool_call_retrying",
        "tool_call_retrying",
        "tool_call_completed",
        "done",
    ];
    assert_eq!(kinds_of(&frames, &expected), expected);
    let retries = of_kind(&frames, "tool_call_retrying");
    for (retry, attempt) in retries.iter().zip([1, 2]) {
        assert_eq!(retry.data["attempt"], attempt);
        assert!(retry.data["delay_ms"].is_u64() && retry.data["until"].is_string());
        assert!(retry.text("reason").contains("temporary"), "{}", retry.data);
    }
    assert!(answer(&frames).contains("costs **9,919,700.00 ISK**"), "{}", answer(&frames));
    assert_eq!(house.calls().len(), 3);
}

async fn r3_a_tool_that_never_recovers_does_not_end_the_run(wire: Wire) {
    let house = Setup::tour(wire).with(QUICK).start().await;
    let session = house.session_at(1).await;
    let frames = house.say(&session, "Get production cost for Vexor").await;
    assert_eq!(of_kind(&frames, "tool_call_retrying").len(), 3);
    let failed = &the(&frames, "tool_call_failed").data;
    assert_eq!(failed["retries_exhausted"], true);
    assert_eq!(failed["reason"], "error");
    assert_eq!(the(&frames, "done").data["outcome"], "completed");
    assert!(answer(&frames).contains("could not get the production cost"), "{}", answer(&frames));
    assert_eq!(house.calls().len(), 4);
}

async fn g3_a_reader_may_not_write(wire: Wire) {
    let house = Setup::tour(wire).start().await;
    let session = house.session_at(0).await;
    let frames = house.say(&session, "Update bookmark").await;
    let denied = &the(&frames, "authorization_denied").data;
    let reason = denied["reason"].as_str().unwrap();
    assert!(reason.contains("requires autonomy level RECOMMENDATIONS (L1) or higher"), "{reason}");
    assert!(reason.contains("current level: READ_ONLY"), "{reason}");
    assert!(answer(&frames).contains("not able to change the bookmark"), "{}", answer(&frames));
    assert!(house.calls().is_empty());
}

async fn s2_four_steps_and_a_ranking(wire: Wire) {
    let house = Setup::tour(wire).with(QUICK).start().await;
    let session = house.session_at(1).await;
    let frames = house.say(&session, "Find profitable manufacturing opportunities in Jita").await;
    assert_eq!(of_kind(&frames, "thinking").len(), 4);
    assert_eq!(of_kind(&frames, "tool_call_started").len(), 7);
    assert_eq!(of_kind(&frames, "tool_call_completed").len(), 7);
    for words in ["| 1 | **Vexor** |", "My pick: start with the **Stabber**"] {
        assert!(answer(&frames).contains(words), "{}", answer(&frames));
    }
}

async fn a1_administrators_see_who_waits_for_whom(wire: Wire) {
    let house = Setup::tour(wire).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "Buy 1000 Tritanium at market price").await;
    let asked = stream.until("waiting_for_approval").await;
    let requested_at = asked.last().unwrap().data["plan"]["requested_at"].clone();
    let path = format!("/admin/actors?prefix=/sessions/{session}");
    let listed = house.get(&path).await.ok();
    let actor = &listed["actors"][0];
    assert_eq!(actor["path"], format!("/sessions/{session}"), "{listed}");
    assert_eq!((&actor["kind"], &actor["state"]), (&json!("Session"), &json!("waiting")));
    let whom = actor["waiting"]["for_whom"].as_str().unwrap();
    assert!(whom.contains("person") || whom.contains("approval"), "{whom}");
    // Instants in one form sort as text.
    let since = actor["waiting"]["since"].as_str().unwrap();
    assert!(since >= requested_at.as_str().unwrap(), "{since} before {requested_at}");
    assert!(actor["mailbox_depth"].is_u64() && actor["handled"].as_u64() > Some(0), "{actor}");
    let one = house.get(&format!("/admin/actors/sessions/{session}")).await.ok();
    assert_eq!(one["actor"]["waiting"], actor["waiting"]);
    let kinds = house.get("/admin/actors").await.ok();
    let kinds: Vec<_> =
        kinds["actors"].as_array().unwrap().iter().map(|actor| actor["kind"].clone()).collect();
    for kind in ["ApprovalDesk", "EventBus", "SessionRegistry", "ToolConnection", "Session"] {
        assert!(kinds.contains(&json!(kind)), "{kind} in {kinds:?}");
    }
}

async fn g10_an_approval_survives_the_servers_death(wire: Wire) {
    let mut house = Setup::tour(wire).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "Buy 1000 Tritanium at market price").await;
    let asked = stream.until("waiting_for_approval").await;
    let plan = asked.last().unwrap().data["plan"].clone();
    house.crash().await;

    let waiting = house.get("/agent/approvals?state=pending").await.ok();
    let found = &waiting["approvals"][0];
    for key in ["plan_id", "steps", "purpose", "deadline", "requested_at"] {
        assert_eq!(found[key], plan[key], "{key}");
    }
    let request = json!({"session_id": session, "plan_id": plan["plan_id"]});
    let request = house.request(reqwest::Method::POST, "/agent/execute").json(&request);
    let rest = house.stream(request.header("accept", "text/event-stream")).await.rest().await;
    assert!(answer(&rest).contains("is open"), "{}", told(&rest));
    assert_eq!(the(&rest, "done").data["outcome"], "completed");
    assert_eq!(house.effects().len(), 1);
    let asked = house.events(&session).await;
    let asked = asked.iter().filter(|event| event["type"] == "waiting_for_approval");
    assert_eq!(asked.count(), 1, "nobody is asked twice");
}
