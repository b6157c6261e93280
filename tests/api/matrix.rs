//! The matrix of autonomy level, risk, preset, decision and surface, over HTTP.
//!
//! The tables repeat those of requirement G3 independently of the program's own tables.

use crate::{
    harness::{TestServer, TestServerBuilder, run},
    stream::{Frame, format_frames, frames_of_kind, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

/// One tool of each risk and its arguments; a message with the tool's name makes the model call it.
const TOOLS: [(&str, &str); 4] = [
    ("get_market_prices", "{ type_ids = [34] }"),
    ("create_bookmark", "{ name = \"Home\", system = \"Jita\" }"),
    (
        "market_order_create",
        "{ type_id = 34, region_id = 10000002, side = \"buy\", quantity = 10, price = 4.12 }",
    ),
    ("wallet_transfer", "{ to = \"XYZ\", amount = 5 }"),
];
const RISKS: [&str; 4] = ["read_only", "write_low_risk", "write_high_risk", "critical"];

/// The surfaces that can answer an approval.
const ALL_SURFACES: [Surface; 6] = [
    Surface::Rest,
    Surface::ShortRoutes,
    Surface::Socket,
    Surface::Gateway,
    Surface::Cli,
    Surface::Dashboard,
];

#[derive(Clone, Copy, Debug)]
enum Surface {
    /// `POST /agent/approvals/{id}`
    Rest,
    /// `POST /agent/execute` and `/agent/reject`
    ShortRoutes,
    /// `decide` over a WebSocket
    Socket,
    /// `tool.approval.response` in the dialect `gateway`
    Gateway,
    /// `greenroom approvals`
    Cli,
    /// The request that the dashboard sends, authenticated by its cookie
    Dashboard,
}

/// Checks a preset. A: runs; D: is denied; ?: needs approval. Rows are levels L0 to L3, columns
/// follow [`RISKS`].
async fn check_preset(preset: &str, table: [&str; 4]) {
    let mut script = String::new();
    for (tool, arguments) in TOOLS {
        script.push_str(&format!(
            "[[rule]]\nuser = \"{tool}\"\nstep = 0\n[[rule.reply]]\ntool_call = {{ name = \"{tool}\", \
             arguments = {arguments} }}\n[[rule]]\nuser = \"{tool}\"\nstep = 1\n[[rule.reply]]\n\
             text = \"Read: {{{{ last[0].text }}}}\"\n"
        ));
    }
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script)
        .with_top_level_config(&format!("policy = \"{preset}\"\n"));
    let server = setup.start().await;
    server.patch("/agent/settings", json!({"autonomy_level": 3})).await.expect_ok();
    for (level, row) in table.into_iter().enumerate() {
        for ((verdict, (tool, _)), risk) in row.chars().zip(TOOLS).zip(RISKS) {
            let cell = format!("{preset} L{level} {risk}");
            match verdict {
                'A' => assert_runs(&server, level, tool, &cell).await,
                'D' => assert_denied(&server, level, tool, &cell).await,
                _ => {
                    for surface in ALL_SURFACES {
                        for approve in [true, false] {
                            let cell = format!("{cell} {surface:?} {approve}");
                            assert_requires_approval(
                                &server,
                                level,
                                tool,
                                (surface, approve),
                                &cell,
                            )
                            .await;
                        }
                    }
                }
            }
        }
    }
}

async fn chat_until_pause(server: &TestServer, level: usize, tool: &str) -> (String, Vec<Frame>) {
    let session = server.create_session(json!({"autonomy_level": level})).await;
    let body = json!({"session_id": session, "message": tool, "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    (session, frames)
}

async fn assert_runs(server: &TestServer, level: usize, tool: &str, cell: &str) {
    let (_, frames) = chat_until_pause(server, level, tool).await;
    assert_eq!(
        frames_of_kind(&frames, "tool_call_completed").len(),
        1,
        "{cell}: {}",
        format_frames(&frames)
    );
    assert!(frames_of_kind(&frames, "waiting_for_approval").is_empty(), "{cell}");
}

async fn assert_denied(server: &TestServer, level: usize, tool: &str, cell: &str) {
    let before = server.effects().len();
    let (_, frames) = chat_until_pause(server, level, tool).await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    assert_eq!(denied["tool"], tool, "{cell}");
    let reason = denied["reason"].as_str().unwrap();
    assert!(reason.contains("autonomy level"), "{cell}: {reason}");
    assert!(frames_of_kind(&frames, "tool_call_attempt_started").is_empty(), "{cell}");
    assert_eq!(server.effects().len(), before, "{cell}");
}

async fn assert_requires_approval(
    server: &TestServer,
    level: usize,
    tool: &str,
    (surface, approve): (Surface, bool),
    cell: &str,
) {
    let before = server.effects().len();
    let (session, frames) = chat_until_pause(server, level, tool).await;
    let plan = single_frame(&frames, "waiting_for_approval").data["plan"].clone();
    assert_eq!(plan["steps"][0]["tool"], tool, "{cell}");
    answer_approval(server, &session, &plan, surface, approve).await;
    let all = server.wait_for_event(&session, "done").await;
    let decided = &single_frame(&all, "approval_decided").data["steps"][0];
    let expected = match surface {
        Surface::Rest | Surface::ShortRoutes => "rest",
        Surface::Socket | Surface::Gateway => "websocket",
        Surface::Cli => "cli",
        Surface::Dashboard => "dashboard",
    };
    assert_eq!(
        (&decided["approved"], &decided["surface"]),
        (&json!(approve), &json!(expected)),
        "{cell}"
    );
    if approve {
        assert_eq!(
            frames_of_kind(&all, "tool_call_completed").len(),
            1,
            "{cell}: {}",
            format_frames(&all)
        );
        assert_eq!(server.effects().len(), before + 1, "{cell}");
    } else {
        assert_eq!(single_frame(&all, "tool_call_failed").data["reason"], "rejected", "{cell}");
        assert_eq!(server.effects().len(), before, "{cell}");
    }
}

async fn answer_approval(
    server: &TestServer,
    session: &str,
    plan: &Value,
    surface: Surface,
    approve: bool,
) {
    let id = plan["approval_id"].as_str().unwrap();
    let decision = if approve { "approve" } else { "reject" };
    match surface {
        Surface::Rest => {
            server
                .post(&format!("/agent/approvals/{id}"), json!({"decision": decision}))
                .await
                .expect_ok();
        }
        Surface::ShortRoutes => {
            let path = if approve { "/agent/execute" } else { "/agent/reject" };
            server.post(path, json!({"session_id": session, "plan_id": id})).await.expect_ok();
        }
        Surface::Socket => {
            let mut socket = server.socket("/agent/stream").await;
            let decide = json!({"type": "decide", "id": "d", "plan_id": id, "decision": decision});
            socket.send(decide).await;
            assert_eq!(socket.read_response("d").await.0["type"], "ack");
        }
        Surface::Gateway => {
            let mut socket = server.socket("/gateway").await;
            let call = &plan["steps"][0]["call_id"];
            let response = json!({
                "type": "tool.approval.response", "id": "w", "toolCallId": call, "approved": approve,
            });
            socket.send(response).await;
            // The gateway sends no acknowledgement: the event shows that the answer was accepted.
            server.wait_for_event(session, "approval_decided").await;
        }
        Surface::Dashboard => {
            let no_redirect = reqwest::redirect::Policy::none();
            let browser = reqwest::Client::builder().redirect(no_redirect).build().unwrap();
            let link = format!("{}/?token={}", server.url(), crate::harness::TOKEN);
            let signed_in = browser.get(link).send().await.unwrap();
            let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().to_owned();
            let cookie = cookie.split(';').next().unwrap();
            let answer = browser
                .post(format!("{}/agent/approvals/{id}", server.url()))
                .header("cookie", cookie)
                .header("origin", server.url())
                .json(&json!({"decision": decision}));
            crate::harness::send(answer).await.expect_ok();
        }
        Surface::Cli => {
            let listen = server.url().trim_start_matches("http://");
            let env = [("GREENROOM_LISTEN", listen), ("GREENROOM_TOKEN", crate::harness::TOKEN)];
            let output = run(server.folder(), &["approvals", decision, id], &env).await;
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[actix_web::test]
async fn g3_interactive_preset_follows_its_table() {
    check_preset("interactive", ["ADDD", "AA?D", "AA??", "AAA?"]).await;
}

#[actix_web::test]
async fn g3_strict_preset_follows_its_table() {
    check_preset("strict", ["ADDD", "AADD", "AA?D", "AAAD"]).await;
}

#[actix_web::test]
async fn g3_ask_first_preset_follows_its_table() {
    check_preset("ask_first", ["A???", "AA??", "AA??", "AAA?"]).await;
}
