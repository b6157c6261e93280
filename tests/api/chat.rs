//! `greenroom chat`: interactive in a terminal, and piped without one.

use crate::{
    harness::{POLL_INTERVAL, TEST_TIMEOUT, TestServer, TestServerBuilder},
    scripted_gateway::ScriptedGateway,
    scripts::{ORDER, STALLED_TEXT, STALLS_ONCE, STORY, tool_call_script},
    terminal::{Terminal, environment},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
};

const ENTER: &str = "\r";
const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";

fn open(server: &TestServer, args: &[&str]) -> Terminal {
    Terminal::open(server, 100, 50, &[&["chat"], args].concat(), &[])
}

async fn start_with_order_tool() -> TestServer {
    TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("market_order_create", ORDER),
    )
    .start()
    .await
}

/// Returns the only session of the server.
async fn session(server: &TestServer) -> Value {
    let sessions = server.get("/agent/session").await.expect_ok();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
    sessions["sessions"][0].clone()
}

#[actix_web::test]
async fn g8_user_chats_and_approves_a_call_inline() {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let mut terminal = open(&server, &[]);
    terminal.wait_for_text("/help lists keys and commands").await;
    terminal.enter("Buy 1000 Tritanium at market price");
    terminal.wait_for_text("› Buy 1000 Tritanium at market price").await;
    terminal.wait_for_text("? market_order_create medium risk Place a buy or sell order").await;
    terminal.wait_for_text("quantity 1000").await;
    terminal.wait_for_text("○ market_order_create waiting for approval").await;
    terminal.wait_for_text("Run it? y/n/e(dit)/s(ession) (9m").await;
    assert_eq!(server.effects().len(), 0);
    terminal.enter("perhaps");
    terminal.wait_for_text("y: yes, n: no").await;
    assert_eq!(server.effects().len(), 0);
    terminal.enter("y");
    terminal.wait_for_text("› yes").await;
    terminal
        .wait_for_text("● market_order_create price=4.12 quantity=1000 region_id=10000002 side=buy")
        .await;
    terminal.wait_for_text("→ {\"name\":\"Tritanium\"").await;
    terminal.wait_for_text("Done: order **no. 7001** to buy 1,000 Tritanium").await;
    terminal.wait_for_text("tokens in").await;
    assert_eq!(server.effects().len(), 1);
    // The decision records that its surface is the command line.
    let approvals = server.get("/agent/approvals").await.expect_ok();
    assert_eq!(approvals["approvals"][0]["decisions"][0]["surface"], "cli");
    // The answered approval disappears from the prompt area, and the prompt shows the typed text.
    terminal.press("next");
    terminal.wait_until("an empty prompt", |screen| screen.ends_with("› next")).await;
    assert!(!terminal.screen().contains("○"), "{}", terminal.screen());
    let screen = terminal.text_on_one_line();
    for text in ["I'll check today's price first.", "● get_market_stats", "? market_order_create"]
    {
        assert_eq!(screen.matches(text).count(), 1, "{text}: {}", terminal.screen());
    }
    terminal.press("\u{15}");
    terminal.press(CTRL_D);
    assert_eq!(terminal.wait_for_exit().await, 0);
    terminal.wait_for_text("greenroom chat --session").await;
}

#[actix_web::test]
async fn g8_narrow_terminal_without_color_shows_the_approval_and_accepts_a_rejection() {
    let server = start_with_order_tool().await;
    let env = [("NO_COLOR", "1")];
    let mut terminal = Terminal::open(&server, 28, 40, &["chat"], &env);
    terminal.wait_for_text("›").await;
    terminal.enter("go");
    terminal.wait_for_text("Run it?").await;
    terminal.enter("n far too dear");
    terminal.wait_for_text("✗ rejected:").await;
    terminal.wait_for_text("far too dear").await;
    terminal.wait_for_text("tokens in").await;
    assert_eq!(server.effects().len(), 0);
    let raw = terminal.raw();
    assert!(!raw.contains("\u{1b}[0m") && !raw.contains("\u{1b}[1m"), "{raw:?}");
    // The typed text stays on one line when the terminal gets wider and narrower.
    for columns in [80, 20] {
        terminal.press("x");
        terminal.resize(columns, 40);
        terminal.wait_for_text("›").await;
    }
    terminal.wait_until("one prompt", |screen| screen.ends_with("› xx")).await;
}

#[actix_web::test]
async fn g8_call_is_edited_in_an_external_editor_or_inline() {
    let server = start_with_order_tool().await;
    let editor = server.folder().join("editor.sh");
    let script = "#!/bin/sh\nsed -i 's/\"quantity\": 10/\"quantity\": 3/' \"$1\"\n";
    std::fs::write(&editor, script).unwrap();
    let chmod = std::process::Command::new("chmod").arg("+x").arg(&editor).status().unwrap();
    assert!(chmod.success());
    let env = [("EDITOR", editor.to_str().unwrap())];
    let mut terminal = Terminal::open(&server, 100, 50, &["chat"], &env);
    terminal.wait_for_text("›").await;
    terminal.enter("go");
    terminal.wait_for_text("Run it?").await;
    terminal.enter("e");
    terminal.wait_for_text("› yes, with price=4.12 quantity=3").await;
    terminal.wait_for_text("tokens in").await;
    assert_eq!(server.effects()[0]["arguments"]["quantity"], 3);
    terminal.press(CTRL_D);
    assert_eq!(terminal.wait_for_exit().await, 0);

    // Inline: invalid arguments are rejected, and approval is requested again.
    let mut terminal = open(&server, &[]);
    terminal.wait_for_text("›").await;
    terminal.enter("go");
    terminal.wait_for_text("Run it?").await;
    terminal.enter("e");
    terminal.wait_for_text("Edit › {\"price\":4.12").await;
    terminal.press("\u{15}");
    terminal.enter(r#"{"price": 4.12, "quantity": "five", "region_id": 10000002, "side": "buy", "type_id": 34}"#);
    terminal.wait_for_text("! ").await;
    terminal
        .wait_until("approval is requested again", |screen| {
            screen.matches("? market_order_create").count() == 2
        })
        .await;
    terminal.enter("e");
    terminal.wait_for_text("Edit ›").await;
    terminal.press("\u{15}");
    terminal.enter(
        r#"{"price": 4.12, "quantity": 5, "region_id": 10000002, "side": "buy", "type_id": 34}"#,
    );
    terminal.wait_for_text("tokens in").await;
    assert_eq!(server.effects()[1]["arguments"]["quantity"], 5);
}

#[actix_web::test]
async fn g9_session_grant_is_requested_once() {
    let server = start_with_order_tool().await;
    let mut terminal = open(&server, &[]);
    terminal.wait_for_text("›").await;
    terminal.enter("go");
    terminal.wait_for_text("Run it?").await;
    terminal.enter("s");
    terminal.wait_for_text("› yes, for this session").await;
    terminal.wait_for_text("tokens in").await;
    terminal.enter("go");
    let twice = |screen: &str| screen.matches("tokens in").count() == 2;
    terminal.wait_until("the second answer", twice).await;
    assert_eq!(terminal.text_on_one_line().matches("? market_order_create").count(), 1);
    assert_eq!(server.effects().len(), 2);
}

#[actix_web::test]
async fn g11_approval_answered_elsewhere_closes_and_the_draft_is_kept() {
    // The model is slow, so that the user can type before the approval is requested.
    let script =
        format!("[defaults]\ndelay_ms = 3000\n{}", tool_call_script("market_order_create", ORDER));
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let mut terminal = open(&server, &[]);
    terminal.wait_for_text("›").await;
    terminal.enter("go");
    terminal.press("yes of course");
    terminal.wait_until("the draft is typed", |screen| screen.ends_with("› yes of course")).await;
    terminal.wait_for_text("Run it?").await;
    // The draft typed before the request is not taken as an answer.
    terminal.wait_until("an empty answer", |screen| screen.ends_with("›")).await;
    assert_eq!(server.effects().len(), 0);
    let waiting = server.get("/agent/approvals?state=pending").await.expect_ok();
    let id = waiting["approvals"][0]["approval_id"].as_str().unwrap().to_owned();
    server
        .post(&format!("/agent/approvals/{id}"), json!({"decision": "approve"}))
        .await
        .expect_ok();
    terminal.wait_for_text("answered elsewhere: approved by admin (rest)").await;
    terminal.wait_for_text("tokens in").await;
    terminal.wait_until("the draft", |screen| screen.ends_with("› yes of course")).await;
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn s6_ctrl_c_cancels_the_run_and_twice_exits() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE).start().await;
    let mut terminal = open(&server, &[]);
    terminal.wait_for_text("›").await;
    terminal.enter("stall");
    terminal.wait_for_text("This is the first half").await;
    terminal.press(CTRL_C);
    terminal.wait_for_text("cancelling …").await;
    terminal.wait_for_text("cancelled").await;
    assert_eq!(session(&server).await["status"], "idle");
    // The session stays usable: the next message is answered.
    terminal.enter("again");
    terminal.wait_for_text("Here I am.").await;
    terminal.wait_for_text("44 tokens in").await;
    // With a draft, Ctrl-C clears the draft first.
    terminal.press("half a tho");
    terminal.wait_until("the draft is typed", |screen| screen.ends_with("› half a tho")).await;
    terminal.press(CTRL_C);
    terminal.wait_until("the draft is cleared", |screen| screen.ends_with('›')).await;
    terminal.press(CTRL_C);
    terminal.wait_for_text("Ctrl-C again, or Ctrl-D, quits").await;
    terminal.press(CTRL_C);
    assert_eq!(terminal.wait_for_exit().await, 130);
}

#[actix_web::test]
async fn d2_chat_reconnects_after_the_server_is_killed_mid_answer() {
    let script = format!("{STALLS_ONCE}{}", tool_call_script("market_order_create", ORDER));
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).start().await;
    let mut terminal = open(&server, &[]);
    terminal.wait_for_text("›").await;
    terminal.enter("stall");
    terminal.wait_for_text("This is the first half").await;
    let url = server.url().to_owned();
    server.kill().await;
    terminal.wait_for_text("connection lost").await;
    terminal.wait_for_text("reconnecting").await;
    // The user can keep typing while disconnected.
    terminal.press("go");
    terminal.wait_until("the draft is typed", |screen| screen.ends_with("› go")).await;
    server.start_at(&url).await;
    terminal.wait_for_text("reconnected").await;
    terminal.wait_for_text("the message was interrupted and is repeated").await;
    terminal.wait_for_text(STALLED_TEXT).await;
    terminal.wait_for_text("tokens in").await;
    // The same while an approval is open: it is requested again, and its answer counts once.
    terminal.press(ENTER);
    terminal.wait_for_text("Run it?").await;
    server.kill().await;
    let twice = |screen: &str| screen.matches("connection lost").count() == 2;
    terminal.wait_until("the connection is lost again", twice).await;
    server.start_at(&url).await;
    let twice = |screen: &str| screen.matches("reconnected").count() == 2;
    terminal.wait_until("the connection is back", twice).await;
    terminal.enter("y");
    terminal.wait_for_text("Read: ").await;
    assert_eq!(server.effects().len(), 1);
    let requests = terminal.text_on_one_line().matches("? market_order_create").count();
    assert_eq!(requests, 1, "{}", terminal.screen());
    session(&server).await;
}

#[actix_web::test]
async fn r2_retry_is_shown_and_a_second_client_resumes_the_session() {
    let setup = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("get_production_cost", "{ type_id = 622 }"),
    );
    let slow = "[tools.get_production_cost]\nserver = 'market'\nrisk = 'read_only'\nretry = { max = 3, base = '8s', cap = '8s' }";
    let server = setup.with_catalog(slow).start().await;
    let session = server.create_session_at(1).await;
    let mut terminal = open(&server, &["--session", &session]);
    terminal.wait_for_text(&format!("session {session}")).await;
    terminal.enter("go");
    terminal.wait_for_text("○ get_production_cost attempt 1 failed, retrying").await;
    terminal.wait_for_text("temporary: price feed unavailable").await;
    // A client that connects later sees the whole run, as the first client does.
    let mut second = open(&server, &["--session", &session]);
    second.wait_for_text("› go").await;
    second.wait_for_text("Calling.").await;
    terminal.press(CTRL_C);
    for terminal in [&terminal, &second] {
        terminal.wait_for_text("✗ cancelled:").await;
        terminal.wait_for_text("cancelled 34 tokens").await;
    }
    second.press(CTRL_D);
    assert_eq!(second.wait_for_exit().await, 0);
}

#[actix_web::test]
async fn x5_model_and_tool_output_cannot_control_the_terminal() {
    let evil = r"\u001b[2J\u001b]0;owned\u0007\u001b[31mred\u0008\u009b1;1H";
    let script = format!(
        r#"
[[rule]]
user = "go"
step = 0
[[rule.reply]]
text = "model {evil} says"
[[rule.reply]]
tool_call = {{ name = "create_shopping_list", arguments = {{ name = "tool {evil} says" }} }}
[[rule]]
user = "go"
step = 1
[[rule.reply]]
text = "Done."
"#
    );
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let mut terminal = open(&server, &[]);
    terminal.wait_for_text("›").await;
    terminal.enter("go");
    terminal.wait_for_text("tokens in").await;
    let screen = terminal.screen();
    assert!(
        screen.contains(r"model \u{1b}[2J\u{1b}]0;owned\u{7}\u{1b}[31mred\u{8}\u{9b}1;1H says"),
        "{screen}"
    );
    assert!(screen.contains(r"● create_shopping_list"), "{screen}");
    let raw = terminal.raw();
    for control in ["\u{1b}[2J", "\u{1b}]", "\u{7}", "\u{8}", "\u{9b}", "\u{1b}[31mred"] {
        assert!(!raw.contains(control), "{control:?} in {raw:?}");
    }
}

/// Starts `greenroom chat` without a terminal.
fn spawn_piped(server: &TestServer, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
    command.arg("chat").args(args).current_dir(server.folder()).kill_on_drop(true);
    command.env_clear().envs(environment(server.url()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary can be started")
}

struct ProcessOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

async fn wait_for_output(mut child: Child) -> ProcessOutput {
    drop(child.stdin.take());
    let output = tokio::time::timeout(TEST_TIMEOUT, child.wait_with_output()).await;
    let output = output.expect("the process exits").expect("the exit status is known");
    let text = |bytes| String::from_utf8(bytes).expect("the output is UTF-8");
    ProcessOutput {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

async fn chat_piped(server: &TestServer, args: &[&str], message: &str) -> ProcessOutput {
    let mut child = spawn_piped(server, args);
    child.stdin.take().unwrap().write_all(message.as_bytes()).await.unwrap();
    wait_for_output(child).await
}

#[actix_web::test]
async fn piped_message_prints_its_answer() {
    let script = format!("{STALLS_ONCE}{STORY}{}", tool_call_script("market_order_create", ORDER));
    let script = format!(
        "{script}[[rule]]\nuser = 'refuse'\nfail = {{ status = 401 }}\n[[rule.reply]]\ntext = ''"
    );
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let story = chat_piped(&server, &[], "a story\n").await;
    assert_eq!(story.code, Some(0), "{}", story.stderr);
    assert_eq!(story.stdout.matches("goes home").count(), 12, "{}", story.stdout);
    assert!(
        story.stdout.ends_with("goes home; \n") && story.stderr.contains("tokens in"),
        "{}",
        story.stderr
    );

    let failed = chat_piped(&server, &[], "refuse").await;
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), ""));
    assert!(failed.stderr.contains("! ") && failed.stderr.contains("failed"), "{}", failed.stderr);

    // Without a terminal, the command reports the request, and exits or waits for an answer from
    // elsewhere.
    let refused = chat_piped(&server, &["--no-wait"], "go").await;
    let result = (refused.code, refused.stdout.as_str());
    assert_eq!(result, (Some(3), "Calling.\n"), "{}", refused.stderr);
    assert!(refused.stderr.contains("? market_order_create"), "{}", refused.stderr);
    let mut child = spawn_piped(&server, &["go"]);
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    while let Some(line) = stderr.next_line().await.unwrap() {
        if line.contains("waiting for approval") {
            break;
        }
    }
    let waiting = server.get("/agent/approvals?state=pending&limit=1").await.expect_ok();
    let id = waiting["approvals"][0]["approval_id"].as_str().unwrap().to_owned();
    server
        .post(&format!("/agent/approvals/{id}"), json!({"decision": "approve"}))
        .await
        .expect_ok();
    let approved = wait_for_output(child).await;
    assert_eq!(approved.code, Some(0));
    assert!(approved.stdout.starts_with("Calling.\nRead: "), "{}", approved.stdout);

    for (args, message) in [
        (&[][..], ""),
        (&["--session", "nonsense"], "hi"),
        (&["--agent", "a", "--session", "b"], "hi"),
    ] {
        let wrong = chat_piped(&server, args, message).await;
        assert_eq!(
            (wrong.code, wrong.stdout.as_str()),
            (Some(2), ""),
            "{args:?}: {}",
            wrong.stderr
        );
    }
    let unknown = chat_piped(&server, &["--agent", "nobody"], "hi").await;
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("unknown agent `nobody`"), "{}", unknown.stderr);
}

#[actix_web::test]
async fn s6_sigint_cancels_a_piped_run() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE).start().await;
    let child = spawn_piped(&server, &["stall"]);
    let poll = async {
        loop {
            let sessions = server.get("/agent/session").await.expect_ok();
            if sessions["sessions"][0]["status"] == "running" {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, poll).await.expect("the session runs");
    let session = session(&server).await["session_id"].as_str().unwrap().to_owned();
    server.subscribe(&session, "0").await.read_until("text").await;
    let id = nix::unistd::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = wait_for_output(child).await;
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("cancelled"), "{}", output.stderr);
    let stdout = &output.stdout;
    assert!(stdout.starts_with("This is the first half"), "the text is kept: {stdout}");
}

#[actix_web::test]
async fn json_mode_exchanges_frames_and_answers_approvals() {
    let mut server = start_with_order_tool().await;
    let mut child = spawn_piped(&server, &["--json"]);
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    input.write_all(b"go\n").await.unwrap();
    let mut read_until = async |kind: &str| loop {
        let line = tokio::time::timeout(TEST_TIMEOUT, output.next_line())
            .await
            .expect("the program prints a line");
        let line = line.unwrap().expect("the output is still open");
        let frame: Value = serde_json::from_str(&line).unwrap();
        if frame["type"] == kind {
            return frame;
        }
    };
    let request = read_until("tool.approval.request").await;
    // Lost connections are restored in this mode, too.
    let url = server.url().to_owned();
    server.kill().await;
    read_until("connection.lost").await;
    server.start_at(&url).await;
    read_until("connection.back").await;
    let repeated = read_until("tool.approval.request").await;
    assert_eq!(repeated["toolCallId"], request["toolCallId"]);
    let response = json!({"type": "tool.approval.response", "toolCallId": request["toolCallId"], "approved": true});
    input.write_all(format!("{response}\n").as_bytes()).await.unwrap();
    let end = read_until("chat.stream.end").await;
    assert_eq!(end["outcome"], "completed");
    // The next message belongs to the same session.
    input.write_all(b"{\"content\": \"again\", \"id\": \"mine\"}\n").await.unwrap();
    let start = read_until("chat.stream.start").await;
    assert_eq!(start["requestId"], "mine");
    read_until("chat.stream.end").await;
    drop(input);
    let status = tokio::time::timeout(TEST_TIMEOUT, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
    assert_eq!(stderr, "");
    assert_eq!(server.effects().len(), 1);
    session(&server).await;
}

fn approval_frame(approval: Value) -> Value {
    json!({"type": "error", "code": "waiting_for_approval", "message": "?", "approval": approval})
}

#[actix_web::test]
async fn g6_g14_d3_plans_budgets_and_unknown_outcomes_are_answered_inline() {
    let step = |description: &str, tool: Option<&str>, risk: &str| {
        let mut step =
            json!({"description": description, "risk": risk, "needsApproval": tool.is_some()});
        if let Some(tool) = tool {
            step["toolName"] = tool.into();
        }
        step
    };
    let end = json!({"type": "chat.stream.end", "outcome": "completed",
        "usage": {"inputTokens": 12, "outputTokens": 3, "costUSD": 0.5}});
    let gateway = ScriptedGateway::start(vec![
        vec![
            json!({"type": "chat.stream.start", "sessionId": "s", "runId": "r", "model": "m"}),
            json!({
                "type": "preflight.checklist", "approvalId": "p-1", "deadline": null,
                "steps": [step("look", None, "low"), step("buy", Some("buy"), "high")],
                "estimatedCost": {"inputTokens": 100, "outputTokens": 20, "estimatedUSD": 0.25},
                "requiredPermissions": ["trade"], "warnings": ["it is late"],
            }),
        ],
        vec![approval_frame(json!({
            "approval_id": "p-2", "kind": "budget", "purpose": "The run's budget is reached",
            "budget": {"scope": "run", "measure": "tokens", "limit": 1000, "spent": 990, "needed": 50},
            "spent_on": [{"what": "step 1", "amount": 990}],
        }))],
        vec![approval_frame(json!({
            "approval_id": "p-3", "kind": "unknown_outcome", "purpose": "Did it happen?",
            "call": {"call_id": "c-1", "tool": "buy", "arguments": {"n": 1}}, "why": "it crashed",
        }))],
        vec![approval_frame(json!({
            "approval_id": "p-4", "kind": "elicitation", "purpose": "A tool asks", "mode": "form",
            "server": "market", "message": "Who are you?",
            "schema": {"properties": {"name": {"type": "string"}}},
        }))],
        vec![json!({"type": "chat.stream.delta", "messageId": "m", "delta": "All done."}), end],
    ])
    .await;
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open_at(gateway.url(), folder.path(), 80, 50, &["chat"], &[]);
    terminal.wait_for_text("›").await;
    terminal.enter("do it");
    terminal.wait_for_text("2. buy buy high risk needs approval").await;
    terminal.wait_for_text("About 100 tokens in, 20 out, 0.25 USD").await;
    terminal.wait_for_text("Warning: it is late").await;
    terminal.enter("s 1");
    terminal.wait_for_text("1. look (skipped)").await;
    terminal.enter("e 2");
    terminal.wait_until("the step's words", |screen| screen.ends_with("Step 2 › buy")).await;
    terminal.enter(" only ore");
    terminal.wait_for_text("2. buy only ore").await;
    terminal.enter("y");
    terminal
        .wait_for_text("990 of 1,000 tokens spent of the run's budget; 50 tokens more needed")
        .await;
    terminal.enter("2000");
    terminal.wait_for_text("Did it happen? buy n 1 it crashed").await;
    terminal.enter("done {\"order\": 7}");
    terminal.wait_for_text("Who are you?").await;
    terminal.enter("{\"name\": \"ann\"}");
    terminal.wait_for_text("All done. 12 tokens in, 3 out, 0.50 USD").await;
    let received = gateway.received();
    let mut approval = received[1].clone();
    approval.as_object_mut().unwrap().retain(|name, _| name != "id" && name != "requestId");
    let expected = json!({
        "type": "preflight.approval", "approved": true, "editedSteps": [
            {"description": "look", "skip": true},
            {"description": "buy only ore", "toolName": "buy"},
        ],
    });
    assert_eq!(approval, expected);
    let posted =
        |id: &str, body: Value| json!({"path": format!("/agent/approvals/{id}"), "body": body});
    let expected = [
        posted("p-2", json!({"decision": "raise", "value": 2000})),
        posted("p-3", json!({"decision": "done", "value": {"order": 7}})),
        posted("p-4", json!({"decision": "answer", "value": {"name": "ann"}})),
    ];
    assert_eq!(received[2..], expected);
}

#[actix_web::test]
async fn g8_dumb_terminal_uses_plain_output() {
    let server = start_with_order_tool().await;
    let mut terminal = Terminal::open(&server, 100, 50, &["chat"], &[("TERM", "dumb")]);
    terminal.enter("go");
    terminal.wait_for_text("Calling.").await;
    terminal.wait_for_text("Run it? y/n/e(dit)/s(ession)").await;
    terminal.enter("y");
    terminal.wait_for_text("Read: ").await;
    terminal.wait_for_text("tokens in").await;
    assert!(!terminal.raw().contains('\u{1b}'), "{:?}", terminal.raw());
    assert_eq!(server.effects().len(), 1);
    terminal.press(CTRL_D);
    assert_eq!(terminal.wait_for_exit().await, 0);
}
