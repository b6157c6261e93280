//! Approvals: answers per step, repeated and late answers, and headless agents (G8, G10, G11, G13).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, tool_call_script},
    stream::{
        Frame, Stream, format_frames, frames_of_kind, kinds_of, last_message_text, single_frame,
    },
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

on_both_wires!(
    g8_plan_steps_are_decided_individually,
    g10_unanswered_approval_expires,
    g13_headless_agent_denies_calls_that_need_approval,
);

/// Sends a message and reads until its run waits for approval; returns the stream and the plan.
async fn start_until_approval(
    server: &TestServer,
    session: &str,
    message: &str,
) -> (Stream, Value) {
    let mut stream = server.chat(session, message).await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan = frames.last().unwrap().data["plan"].clone();
    (stream, plan)
}

fn plan_id(plan: &Value) -> &str {
    plan["plan_id"].as_str().unwrap()
}

async fn g8_plan_steps_are_decided_individually(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(1).await;
    let (mut stream, plan) = start_until_approval(&server, &session, "Stock up").await;
    let steps = plan["steps"].as_array().unwrap();
    // The model proposes three writes; the third is low-risk and needs no approval.
    assert_eq!((steps.len(), &plan["purpose"]), (2, &json!("Execute 2 tools")));
    let path = format!("/agent/approvals/{}", plan_id(&plan));
    let read = server.get(&path).await.expect_ok();
    assert_eq!((&read["state"], &read["steps"]), (&json!("pending"), &plan["steps"]));

    let first = json!({"call_id": steps[0]["call_id"], "decision": "approve"});
    let second =
        json!({"call_id": steps[1]["call_id"], "decision": "reject", "reason": "enough Pyerite"});
    let decided = server.post(&path, json!({"steps": [first]})).await.expect_ok();
    assert_eq!((&decided["closed"], &decided["repeated"]), (&json!(false), &json!(false)));
    // The approved step starts while the other one still waits.
    stream.read_until("tool_call_completed").await;
    assert_eq!(server.effects().len(), 1);
    let repeated_reply = server.post(&path, json!({"steps": [first]})).await.expect_ok();
    assert_eq!(repeated_reply["repeated"], true);
    let other = json!({"steps": [{"call_id": steps[0]["call_id"], "decision": "reject"}]});
    let conflict = server.post(&path, other).await.expect_problem(409, "already_decided");
    assert_eq!(conflict["detail"], "already approved by admin");
    let first_answer = &conflict["first"][0];
    assert_eq!(first_answer["call_id"], steps[0]["call_id"]);
    assert_eq!(first_answer["approved"], true);
    assert_eq!((&first_answer["by"], &first_answer["surface"]), (&json!("admin"), &json!("rest")));
    assert_eq!(first_answer["digest"], steps[0]["digest"]);
    let decided = server.post(&path, json!({"steps": [second]})).await.expect_ok();
    assert_eq!(decided["closed"], true);

    let rest = stream.read_to_end().await;
    for words in ["bought 100,000 Tritanium", "enough Pyerite", "created the shopping list"] {
        assert!(last_message_text(&rest).contains(words), "{words}: {}", last_message_text(&rest));
    }
    let tools: Vec<_> = server.effects().iter().map(|effect| effect["tool"].clone()).collect();
    assert_eq!(tools, ["market_order_create", "create_shopping_list"]);
    let read = server.get(&path).await.expect_ok();
    assert_eq!(
        (&read["state"], read["decisions"].as_array().unwrap().len()),
        (&json!("decided"), 2)
    );
    assert_eq!(
        server.get("/agent/approvals?state=pending").await.expect_ok()["approvals"],
        json!([])
    );
}

#[actix_web::test]
async fn g11_first_answer_wins_and_repetition_is_idempotent() {
    let server = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("market_order_create", ORDER),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    let (mut stream, plan) = start_until_approval(&server, &session, "go").await;
    let body = json!({"session_id": session, "plan_id": plan_id(&plan)});
    // Of eight concurrent answers, one decides.
    let requests = (0..8).map(|_| server.post("/agent/execute", body.clone()));
    let answers = futures::future::join_all(requests).await;
    let repeated: Vec<_> =
        answers.into_iter().map(|answer| answer.expect_ok()["repeated"].clone()).collect();
    assert_eq!(repeated.iter().filter(|repeated| **repeated == json!(false)).count(), 1);
    let rest = stream.read_to_end().await;
    assert_eq!(server.effects().len(), 1);
    // Repetition also works after the run has ended, and can stream the rest of the run again.
    let request = server.request(Method::POST, "/agent/execute").json(&body);
    let repeated =
        server.stream(request.header("accept", "text/event-stream")).await.read_to_end().await;
    assert_eq!(last_message_text(&repeated), last_message_text(&rest));
    server.post("/agent/reject", body).await.expect_problem(409, "already_decided");
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn g11_invalid_answers_are_rejected_and_leave_the_approval_pending() {
    let server = TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &tool_call_script("market_order_create", ORDER),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    let (_stream, plan) = start_until_approval(&server, &session, "go").await;
    let path = format!("/agent/approvals/{}", plan_id(&plan));
    let unknown_id = "0198c0de-0000-7000-8000-000000000001";
    let step = |call_id: &Value, decision: &str| json!({"steps": [{"call_id": call_id, "decision": decision}]});
    let known = &plan["steps"][0]["call_id"];
    for (body, status, code) in [
        (json!({}), 422, "invalid_request"),
        (json!({"decision": "maybe"}), 422, "invalid_request"),
        (json!({"decision": "retry"}), 422, "wrong_decision"),
        (json!({"decision": "raise", "value": 5}), 422, "wrong_decision"),
        (json!({"steps": []}), 422, "unclear_answer"),
        (step(&json!(unknown_id), "approve"), 422, "unknown_step"),
        (step(&json!("x"), "approve"), 422, "invalid_request"),
        (step(known, "perhaps"), 422, "invalid_request"),
    ] {
        let response = server.post(&path, body.clone()).await;
        assert_eq!(response.body["code"], code, "{body}: {}", response.body);
        response.expect_problem(status, code);
    }
    // The plan of another session, and a plan that does not exist.
    let other = server.create_session_at(1).await;
    let body = json!({"session_id": other, "plan_id": plan_id(&plan)});
    server.post("/agent/execute", body).await.expect_problem(404, "approval_not_found");
    let body = json!({"session_id": session, "plan_id": unknown_id});
    server.post("/agent/execute", body).await.expect_problem(404, "approval_not_found");
    assert_eq!(server.get(&path).await.expect_ok()["state"], "pending");
    assert!(server.effects().is_empty());
    // Cancelling the run cancels the approval.
    let cancel = format!("/agent/session/{session}/cancel");
    server.post(&cancel, json!({})).await.expect_ok();
    assert_eq!(server.get(&path).await.expect_ok()["state"], "cancelled");
    let late_reply = server.post(&path, json!({"decision": "approve"})).await;
    late_reply.expect_problem(409, "approval_cancelled");
}

/// Opens the approval stream of the user with this token.
async fn approval_stream(server: &TestServer, token: &str, query: &str) -> Stream {
    let request = server.request_without_token(Method::GET, &format!("/agent/approvals{query}"));
    server.stream(request.bearer_auth(token).header("accept", "text/event-stream")).await
}

/// Returns the approval ids that a frame reports as changed and as removed.
fn changed_and_removed_ids(frame: &Frame) -> (Vec<&str>, Vec<&str>) {
    assert_eq!(frame.kind(), "approvals", "{}", frame.data);
    let changed = frame.data["changed"].as_array().unwrap();
    let removed = frame.data["gone"].as_array().unwrap();
    let changed = changed.iter().map(|approval| approval["approval_id"].as_str().unwrap());
    (changed.collect(), removed.iter().map(|id| id.as_str().unwrap()).collect())
}

async fn create_key(server: &TestServer, user: &str, role: &str) -> (String, String) {
    let key = server.post("/admin/keys", json!({"user_id": user, "role": role})).await.body;
    (key["key"].as_str().unwrap().to_owned(), key["key_id"].as_str().unwrap().to_owned())
}

#[actix_web::test]
async fn g11_w3_approval_stream_reports_each_change_to_permitted_users() {
    let server = TestServerBuilder::tour(ProviderProtocol::OpenAi).start().await;
    let (approver, key_id) = create_key(&server, "bob", "approver").await;
    let (stranger, _) = create_key(&server, "eve", "user").await;
    let mut approver_inbox = approval_stream(&server, &approver, "").await;
    let mut user_inbox = approval_stream(&server, &stranger, "?state=pending").await;
    // The first frame contains the open approvals, even if there are none.
    for inbox in [&mut approver_inbox, &mut user_inbox] {
        assert_eq!(changed_and_removed_ids(&inbox.next().await.unwrap()), (vec![], vec![]));
    }

    // An approver receives the approval of another user's session, but cannot read the session.
    let session = server.create_session_at(1).await;
    let (mut stream, plan) = start_until_approval(&server, &session, "Stock up").await;
    let opened = approver_inbox.next().await.unwrap();
    assert_eq!(changed_and_removed_ids(&opened), (vec![plan_id(&plan)], vec![]));
    let published = &opened.data["changed"][0];
    assert_eq!(
        published,
        &server.get(&format!("/agent/approvals/{}", plan_id(&plan))).await.expect_ok()
    );
    let request = server.request_without_token(Method::GET, &format!("/agent/session/{session}"));
    let refused = crate::harness::send(request.bearer_auth(&approver)).await;
    refused.expect_problem(404, "session_not_found");

    // A partial answer publishes the approval again; closing the approval removes it.
    let path = format!("/agent/approvals/{}", plan_id(&plan));
    let steps = plan["steps"].as_array().unwrap();
    let step = |index: usize| json!({"steps": [{"call_id": steps[index]["call_id"], "decision": "reject"}]});
    server.post(&path, step(0)).await.expect_ok();
    let partial = approver_inbox.next().await.unwrap();
    assert_eq!(changed_and_removed_ids(&partial), (vec![plan_id(&plan)], vec![]));
    assert_eq!(partial.data["changed"][0]["decisions"].as_array().unwrap().len(), 1);
    server.post(&path, step(1)).await.expect_ok();
    assert_eq!(
        changed_and_removed_ids(&approver_inbox.next().await.unwrap()),
        (vec![], vec![plan_id(&plan)])
    );
    stream.read_to_end().await;

    // The user's own approval is published to both, and to a subscriber that connects later.
    let request =
        server.request_without_token(Method::POST, "/agent/session").bearer_auth(&stranger);
    let own_session =
        crate::harness::send(request.json(&json!({"autonomy_level": 1}))).await.expect_ok();
    let message =
        json!({"session_id": own_session["session_id"], "message": "Stock up", "until": "pause"});
    let request =
        server.request_without_token(Method::POST, "/agent/chat/stream").bearer_auth(&stranger);
    let frames = server.stream(request.json(&message)).await.read_to_end().await;
    let plan = single_frame(&frames, "waiting_for_approval").data["plan"].clone();
    let mut late_inbox = approval_stream(&server, &approver, "").await;
    for inbox in [&mut approver_inbox, &mut user_inbox, &mut late_inbox] {
        assert_eq!(
            changed_and_removed_ids(&inbox.next().await.unwrap()),
            (vec![plan_id(&plan)], vec![])
        );
    }
    // A purge removes the session's approvals.
    let path = format!("/agent/session/{}?purge=true", own_session["session_id"].as_str().unwrap());
    assert_eq!(server.delete(&path).await.status, 200);
    for inbox in [&mut approver_inbox, &mut user_inbox, &mut late_inbox] {
        assert_eq!(
            changed_and_removed_ids(&inbox.next().await.unwrap()),
            (vec![], vec![plan_id(&plan)])
        );
    }
    // The stream of a revoked key ends at the next change.
    server.delete(&format!("/admin/keys/{key_id}")).await;
    let (_stream, _) = start_until_approval(&server, &session, "Stock up").await;
    assert!(approver_inbox.read_to_end().await.is_empty());
    for query in ["?state=decided", "?before=0198c0de-0000-7000-8000-000000000001"] {
        let request = server.request(Method::GET, &format!("/agent/approvals{query}"));
        let refused = crate::harness::send(request.header("accept", "text/event-stream")).await;
        refused.expect_problem(400, "invalid_query");
    }
}

fn assert_expired(frames: &[Frame]) {
    let kinds = ["approval_expired", "tool_call_failed", "done"];
    assert_eq!(kinds_of(frames, &kinds), kinds, "{}", format_frames(frames));
    assert_eq!(single_frame(frames, "tool_call_failed").data["reason"], "expired");
    assert_eq!(frames_of_kind(frames, "approval_decided").len(), 0, "expiry is no rejection");
}

async fn g10_unanswered_approval_expires(wire: ProviderProtocol) {
    let script = tool_call_script("market_order_create", ORDER);
    let config = "[approvals]\ndeadline = '300ms'\n[agents.hasty]\nmodel = 'scripted'";
    let mut server =
        TestServerBuilder::with_script(wire, &script).with_config(config).start().await;
    let first = server.create_session(json!({"agent": "hasty"})).await;
    let (mut stream, plan) = start_until_approval(&server, &first, "go").await;
    assert_expired(&stream.read_to_end().await);
    let late_request = json!({"session_id": first, "plan_id": plan_id(&plan)});
    server
        .post("/agent/execute", late_request.clone())
        .await
        .expect_problem(409, "approval_expired");
    // The deadline may also pass while the server is down.
    let second = server.create_session(json!({"agent": "hasty"})).await;
    let (_stream, plan) = start_until_approval(&server, &second, "go").await;
    server.kill_and_restart().await;
    let frames = server.wait_for_event(&second, "done").await;
    assert_expired(&frames);
    assert_eq!(
        single_frame(&frames, "waiting_for_approval").data["plan"]["deadline"],
        plan["deadline"]
    );
    server.post("/agent/execute", late_request).await.expect_problem(409, "approval_expired");
    assert!(server.effects().is_empty());
}

async fn g13_headless_agent_denies_calls_that_need_approval(wire: ProviderProtocol) {
    let script = tool_call_script("market_order_create", ORDER);
    let server = TestServerBuilder::with_script(wire, &script)
        .with_agent_config("headless = true")
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    assert!(!denied["reason"].as_str().unwrap().is_empty());
    assert_eq!(frames_of_kind(&frames, "waiting_for_approval").len(), 0);
    assert!(server.effects().is_empty());
    assert_eq!(single_frame(&frames, "done").data["outcome"], "completed");
}
