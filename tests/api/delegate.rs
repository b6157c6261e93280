//! Sub-agents (S8): a child's answer, its approvals at the root, cancellation, crashes, and the
//! limits of its policy and budget.

use crate::{
    harness::{POLL_INTERVAL, TEST_TIMEOUT, TestServer, TestServerBuilder},
    scripts::ORDER,
    stream::{Frame, format_frames, frames_of_kind, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(
    s8_root_mirrors_child_events_without_text,
    s8_child_approval_is_answered_at_the_root,
    s8_d2_delegate_call_finds_its_waiting_child_after_a_crash,
    s8_d2_delegate_call_finds_its_running_child_after_a_crash,
);

/// `default` delegates the task after "to" to `lead` or `researcher`, which follow these rules.
const SCRIPT: &str = r#"
[[rule]]
system = "You are default"
user = "ask (?P<agent>\\w+) to (?P<task>.+)"
step = 0
[[rule.reply]]
text = "Asking."
[[rule.reply]]
tool_call = { name = "delegate", arguments = { agent = "{{ agent }}", task = "{{ task }}" } }
[[rule]]
system = "You are default"
user = "ask"
step = 1
[[rule.reply]]
text = "Read: {{ last[0].text }}"
[[rule]]
system = "You are lead"
user = "pass on: (?P<task>.+)"
step = 0
[[rule.reply]]
tool_call = { name = "delegate", arguments = { agent = "researcher", task = "{{ task }}" } }
[[rule]]
user = "order"
step = 0
[[rule.reply]]
text = "The researcher's secret thoughts."
[[rule.reply]]
tool_call = { name = "market_order_create", arguments = ORDER }
[[rule]]
user = "look twice"
step = 0
[[rule.reply]]
tool_call = { name = "get_market_prices", arguments = { type_ids = [34] } }
[[rule]]
user = "look twice"
step = 1
[[rule.reply]]
tool_call = { name = "get_market_prices", arguments = { type_ids = [35] } }
[[rule]]
user = "stall"
stall = { after = 10, times = 1 }
[[rule.reply]]
text = "It took me a while, but here it is."
[[rule]]
step = 1
[[rule.reply]]
text = "The child says: {{ last[0].text }}"
[[rule]]
step = 2
[[rule.reply]]
text = "The child is done."
"#;

const AGENTS: &str = r#"
[agents.lead]
model = "scripted"
description = "Leads."
system = "You are lead."
delegates = ["researcher"]
approvals = { deadline = "10m" }
[agents.researcher]
model = "scripted"
description = "Looks things up."
system = "You are researcher."
approvals = { deadline = "10m" }
"#;

/// Returns a builder of a server whose agents delegate: the message is `ask AGENT to TASK`.
pub(crate) fn setup(wire: ProviderProtocol) -> TestServerBuilder {
    let agent = "system = \"You are default.\"\ndelegates = [\"lead\", \"researcher\"]";
    TestServerBuilder::with_script(wire, &SCRIPT.replace("ORDER", ORDER))
        .with_config(AGENTS)
        .with_agent_config(agent)
}

/// Returns the mirrored events of child sessions.
fn child_events(frames: &[Frame]) -> Vec<Value> {
    frames_of_kind(frames, "child_event").iter().map(|frame| frame.data["event"].clone()).collect()
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// Asserts that the events of one child are numbered from 1 without a gap or a repetition.
fn assert_no_gaps(events: &[Value], child: &Value) {
    let child_events = events.iter().filter(|event| event["session_id"] == *child);
    let seqs: Vec<_> = child_events.map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{events:?}");
}

/// Sends a message and reads until a child requests approval; returns the frames and that event.
async fn chat_until_approval(
    server: &TestServer,
    session: &str,
    message: &str,
) -> (Vec<Frame>, Value) {
    let body = json!({"session_id": session, "message": message, "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    let request = frames.last().unwrap().data["event"].clone();
    assert_eq!(request["type"], "waiting_for_approval", "{}", format_frames(&frames));
    (frames, request)
}

async fn children(server: &TestServer, session: &str) -> Vec<Value> {
    let listed = server.get(&format!("/agent/session?parent={session}")).await.expect_ok();
    listed["sessions"].as_array().unwrap().clone()
}

/// Waits until the session has this status; returns its row.
async fn wait_for_status(server: &TestServer, session: &Value, status: &str) -> Value {
    let path = format!("/agent/session/{}", session.as_str().unwrap());
    let poll = async {
        loop {
            let row = server.get(&path).await.expect_ok();
            if row["status"] == status {
                return row;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let result = tokio::time::timeout(TEST_TIMEOUT, poll).await;
    result.unwrap_or_else(|_| panic!("the status never becomes {status}"))
}

async fn s8_root_mirrors_child_events_without_text(wire: ProviderProtocol) {
    let server = setup(wire).start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "ask researcher to look twice").await;
    assert_eq!(
        last_message_text(&frames),
        "Read: The child is done.",
        "{}",
        format_frames(&frames)
    );
    let call = &single_frame(&frames, "tool_call_started").data;
    assert_eq!((&call["tool"], &call["risk"]), (&json!("delegate"), &json!("read_only")));
    let started = &single_frame(&frames, "tool_call_attempt_started").data["child"];
    assert_eq!(started["agent"], "researcher");
    let result = &single_frame(&frames, "tool_call_completed").data;
    assert_eq!(result["result"], "The child is done.");

    let events = child_events(&frames);
    assert_no_gaps(&events, &started["session_id"]);
    assert_eq!(events[0]["type"], "session_created");
    assert_eq!(events[0]["parent"]["session_id"], json!(session));
    assert_eq!(events.last().unwrap()["type"], "session_closed");
    assert_eq!(of_type(&events, "tool_call_completed").len(), 2);
    assert!(events.iter().all(|event| event["agent_type"] == "researcher"), "{events:?}");
    let completed = of_type(&events, "message_completed");
    assert!(completed.iter().all(|event| event.get("text").is_none()), "{completed:?}");
    for frame in frames_of_kind(&frames, "child_event") {
        assert_eq!(frame.data["call_id"], call["call_id"]);
        assert_eq!(frame.data["session_id"], json!(session));
    }

    // Session lists omit children by default; a child is found by its parent.
    let listed = server.get("/agent/session").await.expect_ok();
    let ids: Vec<_> =
        listed["sessions"].as_array().unwrap().iter().map(|row| &row["session_id"]).collect();
    assert_eq!(ids, [&json!(session)]);
    let all = server.get("/agent/session?children=true").await.expect_ok();
    assert_eq!(all["sessions"].as_array().unwrap().len(), 2);
    let child = children(&server, &session).await.remove(0);
    assert_eq!(child["parent"]["session_id"], json!(session));
    assert_eq!(child["parent"]["call_id"], call["call_id"]);
    assert_eq!((&child["status"], &child["title"]), (&json!("closed"), &json!("look twice")));
    let row = server.get(&format!("/agent/session/{session}")).await.expect_ok();
    assert_eq!(row["children"][0]["session_id"], child["session_id"]);
    assert_eq!(row["children"][0]["agent"], "researcher");
    let child_log = server.events(child["session_id"].as_str().unwrap()).await;
    assert_eq!(child_log.len(), events.len());
}

async fn s8_child_approval_is_answered_at_the_root(wire: ProviderProtocol) {
    let server = setup(wire).start().await;
    let session = server.create_session_at(1).await;
    let message = "ask lead to pass on: order";
    let (frames, request) = chat_until_approval(&server, &session, message).await;
    // The approval belongs to the grandchild, and is published once, at the root.
    assert_eq!(request["agent_type"], "researcher");
    let plan = &request["plan"];
    let pending = server.get(&format!("/agent/approvals?state=pending&session_id={session}")).await;
    let pending = pending.expect_ok()["approvals"].as_array().unwrap().clone();
    assert_eq!(pending.len(), 1);
    assert_eq!(pending[0]["approval_id"], plan["approval_id"]);
    assert_eq!(pending[0]["session_id"], request["session_id"]);
    assert_eq!(pending[0]["root"]["session_id"], json!(session));
    let events = child_events(&frames);
    let requests = of_type(&events, "waiting_for_approval");
    assert_eq!(requests.len(), 1, "{}", format_frames(&frames));

    // A client that knows only the root can approve by the plan's id.
    let body = json!({"session_id": session, "plan_id": plan["plan_id"]});
    let execute = server.request(reqwest::Method::POST, "/agent/execute").json(&body);
    let mut stream = server.stream(execute.header("accept", "text/event-stream")).await;
    let rest = stream.read_to_end().await;
    assert!(
        last_message_text(&rest).starts_with("Read: The child says: The child says:"),
        "{}",
        format_frames(&rest)
    );
    assert_eq!(server.effects().len(), 1);
    let all = server.wait_for_event(&session, "done").await;
    let events = child_events(&all);
    assert_no_gaps(&events, &request["session_id"]);
    // The lead's log also mirrors the researcher's events: its other events are numbered with gaps.
    let (mirrored, lead): (Vec<&Value>, Vec<&Value>) =
        events.iter().partition(|event| event["session_id"] == request["session_id"]);
    let seqs: Vec<_> = lead.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted_by(|previous, next| previous < next), "{seqs:?}");
    assert_eq!(*seqs.last().unwrap(), (lead.len() + mirrored.len()) as u64);
    let text = serde_json::to_string(&events).unwrap();
    assert!(!text.contains("secret thoughts"), "mirrored events contain no text: {text}");
    // A different second answer is rejected.
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    server.post(&path, json!({"decision": "reject"})).await.expect_problem(409, "already_decided");
}

#[actix_web::test]
async fn s8_child_approval_is_answered_over_the_root_websocket() {
    let server = setup(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(1).await;
    let mut socket = server.socket(&format!("/agent/stream/{session}")).await;
    let send = json!({"type": "send", "id": "m", "message": "ask researcher to order"});
    socket.send(send).await;
    socket.read_response("m").await;
    let request = loop {
        let frame = socket.next().await;
        if frame["type"] == "child_event"
            && frame["payload"]["event"]["type"] == "waiting_for_approval"
        {
            break frame;
        }
    };
    assert_eq!(request["session_id"], json!(session));
    assert_eq!(request["plan_id"], request["payload"]["event"]["plan"]["plan_id"]);
    let decide = json!({
        "type": "decide", "id": "d", "plan_id": request["plan_id"], "decision": "reject",
        "reason": "too dear",
    });
    socket.send(decide).await;
    let (ack, _) = socket.read_response("d").await;
    assert_eq!(ack["closed"], true, "{ack}");
    let frames = socket.read_until("done").await;
    let result = frames.iter().find(|frame| frame["type"] == "tool_call_completed").unwrap();
    assert!(result["payload"]["result"].as_str().unwrap().contains("too dear"), "{result}");
    assert!(server.effects().is_empty());
}

#[actix_web::test]
async fn s8_child_approval_is_answered_over_the_gateway() {
    let server = setup(ProviderProtocol::OpenAi).start().await;
    let session = server.create_session_at(1).await;
    let mut socket = server.socket("/gateway").await;
    let send = json!({
        "type": "chat.send", "id": "r", "sessionId": session, "content": "ask researcher to order",
    });
    socket.send(send.clone()).await;
    let frames = socket.read_until("tool.approval.request").await;
    let request = frames.last().unwrap();
    let child = children(&server, &session).await.remove(0);
    assert_eq!(request["sessionId"], child["session_id"]);
    assert_eq!(
        (&request["requestId"], &request["toolName"]),
        (&json!("r"), &json!("market_order_create"))
    );
    // A second connection with the same request receives the approval request once more.
    let mut second = server.socket("/gateway").await;
    second.send(send).await;
    let repeated = second.read_until("tool.approval.request").await;
    assert_eq!(repeated.last().unwrap()["toolCallId"], request["toolCallId"]);
    let response = json!({
        "type": "tool.approval.response", "id": "w", "toolCallId": request["toolCallId"],
        "approved": true,
    });
    second.send(response).await;
    let rest = socket.read_until("chat.stream.end").await;
    let results: Vec<_> = rest.iter().filter(|frame| frame["type"] == "tool.result").collect();
    let tools: Vec<_> = results.iter().map(|frame| &frame["toolName"]).collect();
    assert_eq!(tools, ["market_order_create", "delegate"]);
    assert_eq!(results[0]["sessionId"], child["session_id"]);
    assert!(results[1].get("sessionId").is_none());
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn s8_cancelled_root_cancels_its_children() {
    let server = setup(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(1).await;
    let message = "ask lead to pass on: order";
    let (_, request) = chat_until_approval(&server, &session, message).await;
    server.post(&format!("/agent/session/{session}/cancel"), json!({})).await.expect_ok();
    let researcher = wait_for_status(&server, &request["session_id"], "closed").await;
    wait_for_status(&server, &researcher["parent"]["session_id"], "closed").await;
    wait_for_status(&server, &json!(session), "idle").await;
    let path = format!("/agent/approvals/{}", request["plan"]["approval_id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.expect_ok()["state"], "cancelled");
    server
        .post(&path, json!({"decision": "approve"}))
        .await
        .expect_problem(409, "approval_cancelled");
    let frames = server.wait_for_event(&session, "done").await;
    let failed = frames_of_kind(&frames, "tool_call_failed");
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].data["reason"], "cancelled");
    assert!(server.effects().is_empty());
}

async fn s8_d2_delegate_call_finds_its_waiting_child_after_a_crash(wire: ProviderProtocol) {
    let mut server = setup(wire).start().await;
    let session = server.create_session_at(1).await;
    let (_, request) = chat_until_approval(&server, &session, "ask researcher to order").await;
    server.kill_and_restart().await;
    let path = format!("/agent/approvals/{}", request["plan"]["approval_id"].as_str().unwrap());
    server.post(&path, json!({"decision": "approve"})).await.expect_ok();
    let frames = server.wait_for_event(&session, "done").await;
    assert!(
        last_message_text(&frames).starts_with("Read: The child says:"),
        "{}",
        format_frames(&frames)
    );
    assert_eq!(server.effects().len(), 1);
    assert_eq!(children(&server, &session).await.len(), 1);
    assert_no_gaps(&child_events(&frames), &request["session_id"]);
    let attempts = frames_of_kind(&frames, "tool_call_attempt_started");
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].data["child"], attempts[1].data["child"]);
}

async fn s8_d2_delegate_call_finds_its_running_child_after_a_crash(wire: ProviderProtocol) {
    let mut server = setup(wire).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "ask researcher to stall").await;
    loop {
        let frame = stream.next().await.unwrap();
        if frame.kind() == "child_event" && frame.data["event"]["type"] == "message_started" {
            break;
        }
    }
    server.kill_and_restart().await;
    let frames = server.wait_for_event(&session, "done").await;
    assert_eq!(
        last_message_text(&frames),
        "Read: It took me a while, but here it is.",
        "{}",
        format_frames(&frames)
    );
    let child = children(&server, &session).await.remove(0);
    assert_no_gaps(&child_events(&frames), &child["session_id"]);
}

#[actix_web::test]
async fn s8_child_policy_is_never_wider_than_its_parents() {
    let server = setup(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(0).await;
    let frames = server.chat_to_end(&session, "ask researcher to order").await;
    let events = child_events(&frames);
    let denied = of_type(&events, "authorization_denied");
    assert_eq!(denied.len(), 1, "{}", format_frames(&frames));
    assert!(server.effects().is_empty());

    server.patch("/agent/settings", json!({"autonomy_level": 3})).await.expect_ok();
    let session = server.create_session_at(1).await;
    let (_, request) = chat_until_approval(&server, &session, "ask researcher to order").await;
    let child = request["session_id"].as_str().unwrap();
    let path = format!("/agent/session/{child}/settings");
    server.patch(&path, json!({"autonomy_level": 3})).await.expect_problem(422, "settings_widened");
    let message = json!({"session_id": child, "message": "and buy more"});
    server.post("/agent/chat/stream", message).await.expect_problem(409, "child_session");
    server
        .delete(&format!("/agent/session/{child}?purge=true"))
        .await
        .expect_problem(409, "child_session");
    // Narrowing the parent's settings narrows the child's.
    let narrowed = json!({"autonomy_level": 0});
    server.patch(&format!("/agent/session/{session}/settings"), narrowed).await.expect_ok();
    let path = format!("/agent/session/{child}");
    let poll = async {
        while server.get(&path).await.expect_ok()["autonomy_level"] != 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, poll).await.expect("the child's level is lowered");

    server.delete(&format!("/agent/session/{session}?purge=true")).await.expect_ok();
    server.get(&path).await.expect_problem(404, "session_not_found");
}

#[actix_web::test]
async fn s8_g6_child_usage_counts_towards_the_parent_budget() {
    let agent = "budgets = { session = { tokens = 2000 } }";
    let server = setup(ProviderProtocol::OpenAi).with_agent_config(agent).start().await;
    let session = server.create_session_at(1).await;
    // The parent's remaining budget is so small that the child's first step exhausts it.
    let all = server.chat_to_end(&session, "ask researcher to look twice").await;
    let events = child_events(&all);
    let created = of_type(&events, "session_created")[0];
    let share = &created["parent"]["bounds"]["budgets"][0];
    assert_eq!((&share["scope"], &share["measure"]), (&json!("parent"), &json!("tokens")));
    let spent = |events: &[Value]| -> f64 {
        let steps = of_type(events, "step_completed");
        let tokens = |step: &&Value| {
            step["usage"]["input_tokens"].as_f64().unwrap()
                + step["usage"]["output_tokens"].as_f64().unwrap()
        };
        steps.iter().map(tokens).sum()
    };
    let child_tokens = spent(&events);
    assert!(child_tokens > 0.0);
    let parent_events: Vec<Value> = all.iter().map(|frame| frame.data.clone()).collect();
    // The next child gets the budget that the parent and the first child left.
    let frames = server.chat_to_end(&session, "ask researcher to look twice").await;
    let before: Vec<Value> = frames
        .iter()
        .take_while(|frame| frame.kind() != "tool_call_attempt_started")
        .map(|frame| frame.data.clone())
        .collect();
    let events = child_events(&frames);
    let limit = &of_type(&events, "session_created")[0]["parent"]["bounds"]["budgets"][0]["limit"];
    let expected = 2000.0 - spent(&parent_events) - child_tokens - spent(&before);
    assert!((limit.as_f64().unwrap() - expected).abs() < 0.5, "{limit} {expected}");
}

#[actix_web::test]
async fn s8_g6_exhausted_child_budget_requests_approval_at_the_root() {
    let agent = "budgets = { run = { tokens = 70 } }";
    let server = setup(ProviderProtocol::Anthropic).with_agent_config(agent).start().await;
    let session = server.create_session_at(1).await;
    let (frames, request) =
        chat_until_approval(&server, &session, "ask researcher to look twice").await;
    assert_eq!(request["plan"]["kind"], "budget", "{}", format_frames(&frames));
    assert_eq!(request["plan"]["budget"]["scope"], "parent");
    let path = format!("/agent/approvals/{}", request["plan"]["approval_id"].as_str().unwrap());
    server.post(&path, json!({"decision": "stop", "reason": "enough"})).await.expect_ok();
    let all = server.wait_for_event(&session, "tool_call_failed").await;
    let failed = &single_frame(&all, "tool_call_failed").data["error"];
    assert!(failed.as_str().unwrap().contains("stopped the run"), "{failed}");
}
