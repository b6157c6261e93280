//! Tools that ask people while they run (T1), answered from every surface.

use crate::{
    harness::{TestServer, TestServerBuilder, run},
    scripts::tool_call_script,
    stream::{Frame, format_frames, of_kind, single_frame},
    terminal::{Terminal, environment},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(t1_a_tool_asks_and_a_person_answers_over_rest);

/// The model calls the tool that asks for a hangar.
fn elicitation_setup(wire: ProviderProtocol) -> TestServerBuilder {
    TestServerBuilder::with_script(wire, &tool_call_script("choose_hangar", "{ type_id = 587 }"))
}

/// Says go, and listens until the person is asked.
async fn start_until_elicitation(house: &TestServer, session: &str) -> (Vec<Frame>, Value) {
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = house.chat_with(body).await.read_to_end().await;
    let plan = single_frame(&frames, "waiting_for_approval").data["plan"].clone();
    (frames, plan)
}

fn path(question: &Value) -> String {
    format!("/agent/approvals/{}", question["approval_id"].as_str().unwrap())
}

async fn t1_a_tool_asks_and_a_person_answers_over_rest(wire: ProviderProtocol) {
    let house = elicitation_setup(wire).start().await;
    let session = house.create_session_at(1).await;
    let (frames, question) = start_until_elicitation(&house, &session).await;
    let call = single_frame(&frames, "tool_call_started").data["call_id"].clone();
    assert_eq!(question["kind"], "elicitation", "{question}");
    assert_eq!((&question["call_id"], &question["tool"]), (&call, &json!("choose_hangar")));
    assert_eq!((&question["server"], &question["mode"]), (&json!("market"), &json!("form")));
    assert_eq!(question["message"], "Which hangar shall Rifter go to?");
    assert_eq!(question["schema"]["required"], json!(["hangar"]));

    let bad = json!({"decision": "answer", "value": {"hangar": "attic"}});
    let refused = house.post(&path(&question), bad).await.expect_problem(422, "invalid_answer");
    assert!(refused["detail"].as_str().unwrap().contains("value/hangar"), "{refused}");
    let wrong = json!({"decision": "approve", "steps": []});
    house.post(&path(&question), wrong).await.expect_problem(422, "wrong_decision");
    let listed = house.get("/agent/approvals?state=pending").await.expect_ok();
    assert_eq!(listed["approvals"][0]["kind"], "elicitation", "it waits still");

    let answer = json!({"decision": "answer", "value": {"hangar": "frozen", "crates": 3}});
    let taken = house.post(&path(&question), answer.clone()).await.expect_ok();
    assert_eq!((&taken["closed"], &taken["repeated"]), (&json!(true), &json!(false)));
    let all = house.wait_for_event(&session, "done").await;
    let result = &single_frame(&all, "tool_call_completed").data["result"];
    assert_eq!((&result["hangar"], &result["crates"]), (&json!("frozen"), &json!(3)));
    let decided = &single_frame(&all, "approval_decided").data["answer"];
    assert_eq!(decided["value"], json!({"hangar": "frozen", "crates": 3}), "{decided}");

    let again = house.post(&path(&question), answer).await.expect_ok();
    assert_eq!(again["repeated"], true);
    let other = json!({"decision": "reject"});
    house.post(&path(&question), other).await.expect_problem(409, "already_decided");
}

#[actix_web::test]
async fn t1_nobody_has_to_answer() {
    let quick = "[agents.quick]\nmodel = \"scripted\"\napprovals = { deadline = \"1s\" }";
    let house = elicitation_setup(ProviderProtocol::OpenAi).with_config(quick).start().await;
    let session = house.create_session_at(1).await;
    let (_, question) = start_until_elicitation(&house, &session).await;
    house.post(&path(&question), json!({"decision": "reject"})).await.expect_ok();
    let all = house.wait_for_event(&session, "done").await;
    let failed = &single_frame(&all, "tool_call_failed").data;
    assert!(failed["error"].as_str().unwrap().contains("declined to choose"), "{failed}");

    // G10: nor in time.
    let session = house.create_session(json!({"agent": "quick"})).await;
    let frames = house.chat_to_end(&session, "go").await;
    single_frame(&frames, "approval_expired");
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert!(failed["error"].as_str().unwrap().contains("no hangar was chosen"), "{failed}");
}

#[actix_web::test]
async fn g13_a_headless_agent_declines() {
    let house =
        elicitation_setup(ProviderProtocol::Anthropic).agent("headless = true").start().await;
    let session = house.create_session_at(1).await;
    let frames = house.chat_to_end(&session, "go").await;
    assert!(of_kind(&frames, "waiting_for_approval").is_empty(), "{}", format_frames(&frames));
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert!(failed["error"].as_str().unwrap().contains("declined to choose"), "{failed}");
}

#[actix_web::test]
async fn t1_d2_a_tool_that_may_repeat_asks_again_after_a_crash() {
    let mut house = elicitation_setup(ProviderProtocol::OpenAi).start().await;
    let session = house.create_session_at(1).await;
    let (_, first) = start_until_elicitation(&house, &session).await;
    house.kill_and_restart().await;
    let answer = json!({"decision": "answer", "value": {"hangar": "north"}});
    house.post(&path(&first), answer.clone()).await.expect_problem(409, "approval_cancelled");
    let mut stream = house.subscribe(&session, "0").await;
    stream.read_until("approval_cancelled").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let second = &frames.last().unwrap().data["plan"];
    assert_ne!(second["approval_id"], first["approval_id"]);
    house.post(&path(second), answer).await.expect_ok();
    let all = house.wait_for_event(&session, "done").await;
    assert_eq!(single_frame(&all, "tool_call_completed").data["result"]["hangar"], "north");
}

#[actix_web::test]
async fn t1_the_gateway_asks_and_takes_the_answer() {
    let house = elicitation_setup(ProviderProtocol::Anthropic).start().await;
    let mut socket = house.socket("/gateway").await;
    for (number, answer) in [
        (1, json!({"action": "accept", "content": {"hangar": "south"}})),
        (2, json!({"action": "decline"})),
    ] {
        let send = json!({"type": "chat.send", "id": format!("r-{number}"), "content": "go"});
        socket.send(send).await;
        let asked = socket.read_until("elicitation.request").await.pop().unwrap();
        assert_eq!(asked["message"], "Which hangar shall Rifter go to?");
        assert_eq!(asked["requestedSchema"]["properties"]["crates"]["default"], 1, "{asked}");
        let mut bad = json!({"type": "elicitation.response", "id": "bad", "action": "accept"});
        bad["approvalId"] = asked["approvalId"].clone();
        socket.send(bad.clone()).await;
        let refused = socket.read_until("error").await.pop().unwrap();
        assert_eq!(
            (&refused["requestId"], &refused["code"]),
            (&json!("bad"), &json!("invalid_answer"))
        );
        let mut response = answer.clone();
        (response["type"], response["id"]) = (json!("elicitation.response"), json!("good"));
        response["approvalId"] = asked["approvalId"].clone();
        socket.send(response).await;
        let frames = socket.read_until("chat.stream.end").await;
        let result = frames.iter().find(|frame| frame["type"] == "tool.result").unwrap();
        assert_eq!(result.get("isError").is_some(), answer["action"] == "decline", "{result}");
    }
}

#[actix_web::test]
async fn t1_answered_on_the_command_line() {
    let house = elicitation_setup(ProviderProtocol::OpenAi).start().await;
    let session = house.create_session_at(1).await;
    let (_, question) = start_until_elicitation(&house, &session).await;
    let id = question["approval_id"].as_str().unwrap();
    let greenroom = async |args: &[&str]| {
        let env = environment(house.url());
        let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let output = run(house.folder(), &[&["approvals"], args].concat(), &env).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (_, shown) = greenroom(&["show", id]).await;
    for words in [
        "choose_hangar of market requests input:",
        "Which hangar shall Rifter go to?",
        "north | south | frozen",
        "(optional)",
    ] {
        assert!(shown.contains(words), "{words:?} is not in\n{shown}");
    }
    let (code, refused) = greenroom(&["answer", id, "hangar=attic"]).await;
    assert_eq!(code, Some(1), "{refused}");
    assert!(refused.contains("value/hangar"), "{refused}");
    let (code, told) = greenroom(&["answer", id, "hangar=north", "crates=2"]).await;
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("answer by"), "{told}");
    let all = house.wait_for_event(&session, "done").await;
    assert_eq!(single_frame(&all, "tool_call_completed").data["result"]["crates"], 2);
}

#[actix_web::test]
async fn t1_a_chat_asks_for_the_fields() {
    let house = elicitation_setup(ProviderProtocol::Anthropic).start().await;
    let mut terminal = Terminal::open(&house, 100, 50, &["chat"], &[]);
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
