//! Preflight plans (G14): approval, edits, rejection, expiry, and the calls that a plan covers.

use crate::{
    harness::{TestServer, TestServerBuilder},
    stream::{Stream, format_frames, frames_of_kind, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(
    g14_approved_plan_covers_its_calls,
    g14_approved_quantity_does_not_cover_a_larger_one,
    g14_steps_can_be_edited_and_skipped_and_the_model_is_informed,
    g14_rejected_plan_ends_the_run,
    g14_unanswered_preflight_expires,
    g14_plan_survives_crashes_and_covers_each_call_once,
    g14_run_without_a_plan_requests_approval_per_call,
);

pub(crate) fn order(quantity: u64) -> Value {
    json!({"type_id": 34, "region_id": 10_000_002, "side": "buy", "quantity": quantity, "price": 4.12})
}

fn call_reply(quantity: u64) -> String {
    format!(
        "[[rule.reply]]\ntool_call = {{ name = \"market_order_create\", arguments = {} }}\n",
        order_toml(quantity)
    )
}

fn order_toml(quantity: u64) -> String {
    format!(
        "{{ type_id = 34, region_id = 10000002, side = \"buy\", quantity = {quantity}, price = 4.12 }}"
    )
}

/// Returns a script whose model plans orders of the quantities `planned`, then places those of
/// `placed`.
pub(crate) fn preflight_script(planned: &[u64], placed: &[u64]) -> String {
    let step = |quantity: &u64| {
        format!(
            "{{ description = \"Buy {quantity}\", tool = \"market_order_create\", arguments = {} }}",
            order_toml(*quantity)
        )
    };
    let steps: Vec<_> = planned.iter().map(step).collect();
    let mut script = format!(
        "[[rule]]\nuser = \"go\"\nforced = \"submit_plan\"\n[[rule.reply]]\n\
         text = \"Let me think aloud.\"\n[[rule.reply]]\n\
         tool_call = {{ name = \"submit_plan\", arguments = {{ steps = [{}] }} }}\n",
        steps.join(", ")
    );
    for (step, quantity) in placed.iter().enumerate() {
        let reply = call_reply(*quantity);
        script.push_str(&format!("[[rule]]\nuser = \"go\"\nstep = {step}\n{reply}"));
    }
    for (condition, text) in
        [("system = 'changed by the approver'\n", "I was told of the change."), ("", "Placed.")]
    {
        script.push_str(&format!(
            "[[rule]]\nuser = \"go\"\nstep = {}\n{condition}[[rule.reply]]\ntext = \"{text}\"\n",
            placed.len()
        ));
    }
    script
}

/// Starts a run that waits for approval of its preflight plan; returns its stream, the plan, and
/// the path of the approval.
async fn start_until_preflight(
    server: &TestServer,
    session: &str,
    message: &str,
) -> (Stream, Value, String) {
    let body = json!({"session_id": session, "message": message, "preflight": true});
    let mut stream = server.chat_with(body).await;
    let frames = stream.read_until("waiting_for_approval").await;
    assert_eq!(frames_of_kind(&frames, "text").len(), 0, "the plan is not streamed as text");
    let plan = frames.last().unwrap().data["plan"].clone();
    assert_eq!(plan["kind"], "preflight", "{plan}");
    let path = format!("/agent/approvals/{}", plan["plan_id"].as_str().unwrap());
    (stream, plan, path)
}

async fn g14_approved_plan_covers_its_calls(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session(json!({"autonomy_level": 1, "preflight": true})).await;
    let mut stream = server.chat(&session, "Buy 1000 Tritanium at market price").await;
    let before = stream.read_until("waiting_for_approval").await;
    assert_eq!(single_frame(&before, "run_started").data["preflight"], true);
    let thinking = &single_frame(&before, "thinking").data;
    assert_eq!(
        (&thinking["planning"], &thinking["iteration"], &thinking["step"]),
        (&json!(true), &json!(0), &Value::Null)
    );
    let plan = &before.last().unwrap().data["plan"];
    let steps = plan["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 2);
    assert_eq!(
        (&steps[0]["toolName"], &steps[0]["risk"], &steps[0]["needsApproval"]),
        (&json!("get_market_stats"), &json!("read_only"), &json!(false))
    );
    assert_eq!(
        (&steps[1]["position"], &steps[1]["arguments"], &steps[1]["needsApproval"]),
        (&json!(2), &order(1000), &json!(true))
    );
    assert!(plan["estimatedCost"]["inputTokens"].as_u64().unwrap() > 0);
    assert_eq!(plan["estimatedCost"]["estimatedUSD"], Value::Null);
    let warnings = plan["warnings"].to_string();
    assert!(warnings.contains("the price of the model `scripted` is unknown"), "{warnings}");
    assert!(server.effects().is_empty() && server.calls().is_empty());

    let body = json!({"session_id": session, "plan_id": plan["plan_id"]});
    server.post("/agent/execute", body).await.expect_ok();
    let rest = stream.read_to_end().await;
    assert_eq!(frames_of_kind(&rest, "waiting_for_approval").len(), 0, "{}", format_frames(&rest));
    let allowed = frames_of_kind(&rest, "tool_call_allowed");
    let by = json!({
        "kind": "preflight", "approval_id": plan["plan_id"], "step": 2, "by": "admin",
    });
    assert_eq!(allowed[1].data["by"], by);
    assert_eq!(server.effects().len(), 1);
    assert_eq!(server.effects()[0]["arguments"]["quantity"], 1000);
    assert!(last_message_text(&rest).contains("Done: order"), "{}", last_message_text(&rest));
    // Three steps: the planning is not counted as one.
    let iterations: Vec<_> = frames_of_kind(&rest, "thinking")
        .iter()
        .map(|frame| frame.data["iteration"].clone())
        .collect();
    assert_eq!(iterations, [1, 2, 3]);

    // The session's setting can be changed, and a message can override it.
    let path = format!("/agent/session/{session}/settings");
    assert_eq!(
        server.patch(&path, json!({"preflight": false})).await.expect_ok()["preflight"],
        false
    );
    let mut stream = server.chat(&session, "Buy 1000 Tritanium at market price").await;
    let frames = stream.read_until("waiting_for_approval").await;
    assert_eq!(frames.last().unwrap().data["plan"]["kind"], "plan");
}

async fn g14_approved_quantity_does_not_cover_a_larger_one(wire: ProviderProtocol) {
    let server = TestServerBuilder::with_script(wire, &preflight_script(&[1000], &[1_000_000]))
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let (mut stream, _plan, path) = start_until_preflight(&server, &session, "go").await;
    server.post(&path, json!({"decision": "approve"})).await.expect_ok();
    let frames = stream.read_until("waiting_for_approval").await;
    let plan = &frames.last().unwrap().data["plan"];
    assert_eq!(plan["kind"], "plan");
    assert_eq!(plan["steps"][0]["arguments"], order(1_000_000));
    assert!(server.effects().is_empty());
    let body = json!({"session_id": session, "plan_id": plan["plan_id"]});
    server.post("/agent/reject", body).await.expect_ok();
    stream.read_to_end().await;
    assert!(server.effects().is_empty());
}

async fn g14_steps_can_be_edited_and_skipped_and_the_model_is_informed(wire: ProviderProtocol) {
    let server =
        TestServerBuilder::with_script(wire, &preflight_script(&[1000, 7], &[5])).start().await;
    let session = server.create_session_at(1).await;
    let (mut stream, _plan, path) = start_until_preflight(&server, &session, "go").await;
    let changes = |quantity: Value| {
        let mut arguments = order(5);
        arguments["quantity"] = quantity;
        json!({"decision": "approve", "steps": [
            {"position": 1, "arguments": arguments}, {"position": 2, "skip": true},
        ]})
    };
    // Invalid changes leave the approval pending.
    let problem =
        server.post(&path, changes(json!("five"))).await.expect_problem(422, "invalid_answer");
    assert!(problem["detail"].as_str().unwrap().contains("step 1"), "{problem}");
    let unknown = json!({"decision": "approve", "steps": [{"position": 3, "skip": true}]});
    server.post(&path, unknown).await.expect_problem(422, "invalid_answer");
    server
        .post(&path, json!({"decision": "raise", "value": 5}))
        .await
        .expect_problem(422, "wrong_decision");
    assert_eq!(server.get(&path).await.expect_ok()["state"], "pending");

    let decided = server.post(&path, changes(json!(5))).await.expect_ok();
    assert_eq!((&decided["closed"], &decided["repeated"]), (&json!(true), &json!(false)));
    assert_eq!(server.post(&path, changes(json!(5))).await.expect_ok()["repeated"], true);
    server.post(&path, json!({"decision": "approve"})).await.expect_problem(409, "already_decided");
    let rest = stream.read_to_end().await;
    let steps = &single_frame(&rest, "preflight_approved").data["steps"];
    assert_eq!((&steps[0]["edited"], &steps[1]["skipped"]), (&json!(true), &json!(true)));
    assert_eq!(steps[0]["arguments"], order(5));
    assert_eq!(server.effects().len(), 1, "{}", format_frames(&rest));
    assert_eq!(last_message_text(&rest), "I was told of the change.");
    let audit = server.get("/admin/audit?action=approval_decided").await.expect_ok();
    let audited = &audit["rows"][0]["details"]["steps"];
    assert_eq!(audited[0]["digest"], steps[0]["digest"]);
    assert_eq!(audited[1]["skipped"], true);
}

async fn g14_rejected_plan_ends_the_run(wire: ProviderProtocol) {
    let server =
        TestServerBuilder::with_script(wire, &preflight_script(&[1000], &[1000])).start().await;
    let session = server.create_session_at(1).await;
    let (mut stream, plan, _path) = start_until_preflight(&server, &session, "go").await;
    let body = json!({"session_id": session, "plan_id": plan["plan_id"], "reason": "not today"});
    server.post("/agent/reject", body.clone()).await.expect_ok();
    let rest = stream.read_to_end().await;
    let done = &single_frame(&rest, "done").data;
    assert_eq!((&done["outcome"], &done["by"]), (&json!("cancelled"), &json!("admin")));
    assert!(server.effects().is_empty());
    assert_eq!(server.post("/agent/reject", body.clone()).await.expect_ok()["repeated"], true);
    server.post("/agent/execute", body).await.expect_problem(409, "already_decided");
    // The session stays usable.
    assert_eq!(
        server.get(&format!("/agent/session/{session}")).await.expect_ok()["status"],
        "idle"
    );
}

async fn g14_unanswered_preflight_expires(wire: ProviderProtocol) {
    let hasty_agent = "[agents.hasty]\nmodel = 'scripted'\n\
                 approvals = { kinds = { preflight = { deadline = '300ms' } } }";
    let setup = TestServerBuilder::with_script(wire, &preflight_script(&[1000], &[1000]))
        .with_config(hasty_agent);
    let server = setup.start().await;
    let session = server.create_session(json!({"agent": "hasty"})).await;
    let (mut stream, _plan, path) = start_until_preflight(&server, &session, "go").await;
    let rest = stream.read_to_end().await;
    assert_eq!(
        single_frame(&rest, "error").data["code"],
        "approval_expired",
        "{}",
        format_frames(&rest)
    );
    server
        .post(&path, json!({"decision": "approve"}))
        .await
        .expect_problem(409, "approval_expired");
    assert!(server.effects().is_empty());
}

async fn g14_plan_survives_crashes_and_covers_each_call_once(wire: ProviderProtocol) {
    let mut server =
        TestServerBuilder::with_script(wire, &preflight_script(&[1000], &[1000, 1000]))
            .start()
            .await;
    let session = server.create_session_at(1).await;
    let (_stream, plan, path) = start_until_preflight(&server, &session, "go").await;
    server.kill_and_restart().await;
    let read = server.get(&path).await.expect_ok();
    assert_eq!((&read["state"], &read["steps"]), (&json!("pending"), &plan["steps"]));
    server.post(&path, json!({"decision": "approve"})).await.expect_ok();
    // The plan covers one order; the second order needs approval, also after another crash.
    let pending = "/agent/approvals?state=pending";
    let mut subscription = server.subscribe(&session, "0").await;
    subscription.read_until("waiting_for_approval").await;
    let second_approval = subscription.read_until("waiting_for_approval").await;
    assert_eq!(
        second_approval.last().unwrap().data["plan"]["kind"],
        "plan",
        "{}",
        format_frames(&second_approval)
    );
    assert_eq!(server.effects().len(), 1);
    server.kill_and_restart().await;
    let approvals = server.get(pending).await.expect_ok()["approvals"].clone();
    assert_eq!(approvals.as_array().unwrap().len(), 1);
    assert_eq!(approvals[0]["kind"], "plan");
    assert_eq!(server.effects().len(), 1);
    let body = json!({"session_id": session, "plan_id": approvals[0]["plan_id"]});
    server.post("/agent/execute", body).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(last_message_text(&all), "Placed.");
    assert_eq!(server.effects().len(), 2);
}

async fn g14_run_without_a_plan_requests_approval_per_call(wire: ProviderProtocol) {
    let script = crate::scripts::tool_call_script("market_order_create", crate::scripts::ORDER);
    let server = TestServerBuilder::with_script(wire, &script).start().await;
    let session = server.create_session_at(1).await;
    let body = json!({"session_id": session, "message": "go", "preflight": true});
    let mut stream = server.chat_with(body.clone()).await;
    let frames = stream.read_until("waiting_for_approval").await;
    let warning = single_frame(&frames, "preflight_skipped").text("warning");
    assert!(warning.contains("submitted no plan"), "{warning}");
    assert_eq!(frames.last().unwrap().data["plan"]["kind"], "plan");
}
