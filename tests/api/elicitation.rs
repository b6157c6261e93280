//! Elicitation: tools that request input while they run (T1), answered from every surface.

use crate::{
    harness::{TestServer, TestServerBuilder, run},
    scripts::tool_call_script,
    stream::{Frame, format_frames, frames_of_kind, single_frame},
    terminal::{Terminal, environment},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(t1_elicitation_is_answered_over_rest);

/// Returns a builder of a server whose model calls a tool that elicits a hangar.
fn elicitation_setup(wire: ProviderProtocol) -> TestServerBuilder {
    TestServerBuilder::with_script(wire, &tool_call_script("choose_hangar", "{ type_id = 587 }"))
}

/// Sends `go` and reads until the elicitation is requested; returns the frames and the approval.
async fn start_until_elicitation(server: &TestServer, session: &str) -> (Vec<Frame>, Value) {
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    let plan = single_frame(&frames, "waiting_for_approval").data["plan"].clone();
    (frames, plan)
}

fn approval_path(approval: &Value) -> String {
    format!("/agent/approvals/{}", approval["approval_id"].as_str().unwrap())
}

async fn t1_elicitation_is_answered_over_rest(wire: ProviderProtocol) {
    let server = elicitation_setup(wire).start().await;
    let session = server.create_session_at(1).await;
    let (frames, approval) = start_until_elicitation(&server, &session).await;
    let call = single_frame(&frames, "tool_call_started").data["call_id"].clone();
    assert_eq!(approval["kind"], "elicitation", "{approval}");
    assert_eq!((&approval["call_id"], &approval["tool"]), (&call, &json!("choose_hangar")));
    assert_eq!((&approval["server"], &approval["mode"]), (&json!("market"), &json!("form")));
    assert_eq!(approval["message"], "Which hangar shall Rifter go to?");
    assert_eq!(approval["schema"]["required"], json!(["hangar"]));

    let path = approval_path(&approval);
    let bad = json!({"decision": "answer", "value": {"hangar": "attic"}});
    let refused = server.post(&path, bad).await.expect_problem(422, "invalid_answer");
    assert!(refused["detail"].as_str().unwrap().contains("value/hangar"), "{refused}");
    let wrong = json!({"decision": "approve", "steps": []});
    server.post(&path, wrong).await.expect_problem(422, "wrong_decision");
    let listed = server.get("/agent/approvals?state=pending").await.expect_ok();
    assert_eq!(listed["approvals"][0]["kind"], "elicitation", "the approval is still pending");

    let answer = json!({"decision": "answer", "value": {"hangar": "frozen", "crates": 3}});
    let answered = server.post(&path, answer.clone()).await.expect_ok();
    assert_eq!((&answered["closed"], &answered["repeated"]), (&json!(true), &json!(false)));
    let all = server.wait_for_event(&session, "done").await;
    let result = &single_frame(&all, "tool_call_completed").data["result"];
    assert_eq!((&result["hangar"], &result["crates"]), (&json!("frozen"), &json!(3)));
    let decided = &single_frame(&all, "approval_decided").data["answer"];
    assert_eq!(decided["value"], json!({"hangar": "frozen", "crates": 3}), "{decided}");

    let repeated_reply = server.post(&path, answer).await.expect_ok();
    assert_eq!(repeated_reply["repeated"], true);
    let other = json!({"decision": "reject"});
    server.post(&path, other).await.expect_problem(409, "already_decided");
}

#[actix_web::test]
async fn t1_g10_elicitation_can_be_rejected_or_expire() {
    let quick = "[agents.quick]\nmodel = \"scripted\"\napprovals = { deadline = \"1s\" }";
    let server = elicitation_setup(ProviderProtocol::OpenAi).with_config(quick).start().await;
    let session = server.create_session_at(1).await;
    let (_, approval) = start_until_elicitation(&server, &session).await;
    server.post(&approval_path(&approval), json!({"decision": "reject"})).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    let failed = &single_frame(&all, "tool_call_failed").data;
    assert!(failed["error"].as_str().unwrap().contains("declined to choose"), "{failed}");

    // G10: the elicitation expires at its deadline.
    let session = server.create_session(json!({"agent": "quick"})).await;
    let frames = server.chat_to_end(&session, "go").await;
    single_frame(&frames, "approval_expired");
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert!(failed["error"].as_str().unwrap().contains("no hangar was chosen"), "{failed}");
}

#[actix_web::test]
async fn g13_headless_agent_declines_elicitation() {
    let server = elicitation_setup(ProviderProtocol::Anthropic)
        .with_agent_config("headless = true")
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    assert!(
        frames_of_kind(&frames, "waiting_for_approval").is_empty(),
        "{}",
        format_frames(&frames)
    );
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert!(failed["error"].as_str().unwrap().contains("declined to choose"), "{failed}");
}

#[actix_web::test]
async fn t1_d2_repeatable_tool_elicits_again_after_a_crash() {
    let mut server = elicitation_setup(ProviderProtocol::OpenAi).start().await;
    let session = server.create_session_at(1).await;
    let (_, first) = start_until_elicitation(&server, &session).await;
    server.kill_and_restart().await;
    let answer = json!({"decision": "answer", "value": {"hangar": "north"}});
    let late_reply = server.post(&approval_path(&first), answer.clone()).await;
    late_reply.expect_problem(409, "approval_cancelled");
    let mut stream = server.subscribe(&session, "0").await;
    stream.read_until("approval_cancelled").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let second = &frames.last().unwrap().data["plan"];
    assert_ne!(second["approval_id"], first["approval_id"]);
    server.post(&approval_path(second), answer).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(single_frame(&all, "tool_call_completed").data["result"]["hangar"], "north");
}

#[actix_web::test]
async fn t1_elicitation_is_answered_over_the_gateway() {
    let server = elicitation_setup(ProviderProtocol::Anthropic).start().await;
    let mut socket = server.socket("/gateway").await;
    for (number, answer) in [
        (1, json!({"action": "accept", "content": {"hangar": "south"}})),
        (2, json!({"action": "decline"})),
    ] {
        let send = json!({"type": "chat.send", "id": format!("r-{number}"), "content": "go"});
        socket.send(send).await;
        let request = socket.read_until("elicitation.request").await.pop().unwrap();
        assert_eq!(request["message"], "Which hangar shall Rifter go to?");
        assert_eq!(request["requestedSchema"]["properties"]["crates"]["default"], 1, "{request}");
        let mut bad = json!({"type": "elicitation.response", "id": "bad", "action": "accept"});
        bad["approvalId"] = request["approvalId"].clone();
        socket.send(bad.clone()).await;
        let refused = socket.read_until("error").await.pop().unwrap();
        assert_eq!(
            (&refused["requestId"], &refused["code"]),
            (&json!("bad"), &json!("invalid_answer"))
        );
        let mut response = answer.clone();
        (response["type"], response["id"]) = (json!("elicitation.response"), json!("good"));
        response["approvalId"] = request["approvalId"].clone();
        socket.send(response).await;
        let frames = socket.read_until("chat.stream.end").await;
        let result = frames.iter().find(|frame| frame["type"] == "tool.result").unwrap();
        assert_eq!(result.get("isError").is_some(), answer["action"] == "decline", "{result}");
    }
}

#[actix_web::test]
async fn t1_elicitation_is_answered_on_the_command_line() {
    let server = elicitation_setup(ProviderProtocol::OpenAi).start().await;
    let session = server.create_session_at(1).await;
    let (_, approval) = start_until_elicitation(&server, &session).await;
    let id = approval["approval_id"].as_str().unwrap();
    let greenroom = async |args: &[&str]| {
        let env = environment(server.url());
        let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let output = run(server.folder(), &[&["approvals"], args].concat(), &env).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (_, shown) = greenroom(&["show", id]).await;
    for text in [
        "choose_hangar of market requests input:",
        "Which hangar shall Rifter go to?",
        "north | south | frozen",
        "(optional)",
    ] {
        assert!(shown.contains(text), "{text:?} is not in\n{shown}");
    }
    let (code, refused) = greenroom(&["answer", id, "hangar=attic"]).await;
    assert_eq!(code, Some(1), "{refused}");
    assert!(refused.contains("value/hangar"), "{refused}");
    let (code, output) = greenroom(&["answer", id, "hangar=north", "crates=2"]).await;
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("answer by"), "{output}");
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(single_frame(&all, "tool_call_completed").data["result"]["crates"], 2);
}

#[actix_web::test]
async fn t1_chat_prompts_for_each_field() {
    let server = elicitation_setup(ProviderProtocol::Anthropic).start().await;
    let mut terminal = Terminal::open(&server, 100, 50, &["chat"], &[]);
    terminal.wait_for_text("›").await;
    terminal.enter("go");
    terminal.wait_for_text("Which hangar shall Rifter go to?").await;
    terminal.wait_for_text("hangar (north | south | frozen)").await;
    terminal.enter("attic");
    terminal.wait_for_text("enter one of the values in parentheses").await;
    terminal.enter("frozen");
    terminal.wait_for_text("crates (integer) [1]").await;
    terminal.enter("");
    terminal.wait_for_text("Read: ").await;
    terminal.wait_for_text("\"hangar\":\"frozen\"").await;
}
