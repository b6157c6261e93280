//! The context of model requests: skills, workflows, sections and their sizes (C1, C2, C3).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::tool_call_script,
    stream::{format_frames, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};
use std::time::Duration;

on_both_wires!(
    c2_skill_text_is_loaded_on_demand,
    c1_step_context_can_be_inspected,
    c3_workflow_narrows_its_run_and_is_included_in_requests,
);

fn write_file(server: &TestServer, path: &str, text: &str) {
    let path = server.folder().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

const PDF: &str = "---\nname: pdf\ndescription: Work with PDF files.\n---\nOpen it first.\n";

async fn c2_skill_text_is_loaded_on_demand(wire: ProviderProtocol) {
    let script = tool_call_script("read_skill", "{ name = \"pdf\" }");
    let server = TestServerBuilder::with_script(wire, &script)
        .with_top_level_config("skills = ['skills']\n")
        .start()
        .await;
    // Skills added while the server runs are found; a broken skill does not affect the others.
    write_file(&server, "skills/pdf/SKILL.md", PDF);
    write_file(&server, "skills/broken/SKILL.md", "nothing");
    let tools = loop {
        let tools = server.get("/agent/tools").await.expect_ok();
        if tools["skills"] != json!([]) {
            break tools;
        }
        // No event reports it. The interval is long enough to stay below the request limit.
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(tools["skills"], json!([{"name": "pdf", "description": "Work with PDF files."}]));
    let problem = tools["broken_skills"][0]["problem"].as_str().unwrap();
    assert!(problem.contains("front matter"), "{problem}");
    let listed = tools["tools"].as_array().unwrap().iter();
    let listed: Vec<_> = listed.filter(|tool| tool["server"] == "built-in").collect();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["risk"]),
        (&json!("read_skill"), &json!("read_only"))
    );

    // Skills can be read at the lowest autonomy level, too.
    let session = server.create_session_at(0).await;
    let frames = server.chat_to_end(&session, "go").await;
    let completed = &single_frame(&frames, "tool_call_completed").data;
    assert_eq!(completed["result"], "Open it first.", "{}", format_frames(&frames));
    let requests = server.rehearsal.requests();
    let first = requests[0].body.to_string();
    assert!(first.contains("- pdf: Work with PDF files."), "{first}");
    assert!(!first.contains("Open it first."), "the text is loaded on demand");
    assert!(requests[1].body.to_string().contains("Open it first."));
}

async fn c1_step_context_can_be_inspected(wire: ProviderProtocol) {
    let script = tool_call_script("get_price", "{ type_id = 34, region_id = 10000002 }");
    let server = TestServerBuilder::with_script(wire, &script)
        .with_config("[context]\nsystem = 'Be honest.'")
        .with_agent_config("system = 'You trade.'")
        .start()
        .await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "go").await;
    let inspect =
        async |query: &str| server.get(&format!("/agent/session/{session}/context{query}")).await;
    let (first, last) = (inspect("?step=1").await.expect_ok(), inspect("").await.expect_ok());
    let names = |manifest: &Value| -> Vec<String> {
        let sections = manifest["sections"].as_array().unwrap().iter();
        sections.map(|section| section["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&first), ["tools", "system", "agent", "conversation"]);
    assert_eq!((&first["step"], &last["step"]), (&json!(1), &json!(2)));
    assert_eq!(first["sections"][3]["included"], 1);
    assert_eq!(last["sections"][3]["included"], 3, "with the call and its result");
    let before = |manifest: &Value| manifest["sections"].as_array().unwrap()[..3].to_vec();
    assert_eq!(before(&first), before(&last));
    assert!(last["tokens"].as_u64() > first["tokens"].as_u64());
    assert_eq!(first["window_tokens"], 128_000);
    let request = &server.rehearsal.requests()[0].body;
    let system = match wire {
        ProviderProtocol::Anthropic => &request["system"][0]["text"],
        ProviderProtocol::OpenAi => &request["messages"][0]["content"],
    };
    assert_eq!(system, "Be honest.\n\nYou trade.");
    inspect("?step=9").await.expect_problem(404, "step_not_found");
    inspect("?step=x").await.expect_problem(400, "invalid_query");
}

const RESTOCK: &str = "---
name: restock
description: Buy what is low.
inputs:
  type_id: { type: integer }
  quantity: { type: integer, default: 10 }
tools: [\"get_*\"]
autonomy: 0
---
Buy {{ quantity }} of {{ type_id }}.
";

/// Starts a server with workflow files, which are read at its second start.
async fn start_with_workflows(setup: TestServerBuilder) -> TestServer {
    let mut server = setup.with_top_level_config("workflows = ['workflows']\n").start().await;
    write_file(&server, "workflows/restock.md", RESTOCK);
    write_file(&server, "workflows/broken.md", "nothing");
    server.kill_and_restart().await;
    server
}

async fn c3_workflow_narrows_its_run_and_is_included_in_requests(wire: ProviderProtocol) {
    let script = tool_call_script("market_order_create", crate::scripts::ORDER)
        .replace("user = \"go\"", "user = \"/restock\"");
    let server = start_with_workflows(TestServerBuilder::with_script(wire, &script)).await;
    let session = server.create_session_at(3).await;
    let workflow = json!({"name": "restock", "inputs": {"type_id": "34"}});
    let body = json!({"session_id": session, "message_id": "w-1", "workflow": workflow});
    let frames = server.chat_with(body.clone()).await.read_to_end().await;
    let started = &single_frame(&frames, "run_started").data["workflow"];
    assert_eq!(started, &json!({"name": "restock", "inputs": {"quantity": 10, "type_id": 34}}));
    assert_eq!(single_frame(&frames, "message_accepted").data["text"], "/restock type_id=34");
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert_eq!(
        failed["reason"],
        "unknown_tool",
        "the workflow does not include the tool: {}",
        format_frames(&frames)
    );
    assert_eq!(server.effects(), Vec::<Value>::new());

    let first = &server.rehearsal.requests()[0].body;
    let request = first.to_string();
    assert!(
        request.contains("Buy 10 of 34.") && request.contains("workflow `restock`"),
        "{request}"
    );
    assert!(
        request.contains("get_market_stats") && !request.contains("\"market_order_create\""),
        "{request}"
    );
    let manifest =
        server.get(&format!("/agent/session/{session}/context?step=1")).await.expect_ok();
    let names: Vec<_> = manifest["sections"].as_array().unwrap().iter().collect();
    assert!(names.iter().any(|section| section["name"] == "workflow"));

    // S5: the repeated request returns the same run, also when sent as a command line.
    let repeated_run = server.chat_with(body).await.read_to_end().await;
    assert_eq!(repeated_run.last().unwrap().data["run_id"], frames.last().unwrap().data["run_id"]);
    let line =
        json!({"session_id": session, "message_id": "w-1", "message": "/restock type_id=34"});
    let repeated_run = server.chat_with(line).await.read_to_end().await;
    assert_eq!(repeated_run.last().unwrap().data["run_id"], frames.last().unwrap().data["run_id"]);
    // The workflow does not restrict the next run.
    let mut other = server.chat_with(json!({"session_id": session, "message": "again"})).await;
    other.read_to_end().await;
    let last = server.rehearsal.requests().last().unwrap().body.to_string();
    assert!(last.contains("\"market_order_create\"") && !last.contains("Buy 10 of 34."));
}

#[actix_web::test]
async fn c3_workflows_are_listed_and_their_inputs_are_validated() {
    let server = start_with_workflows(TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &tool_call_script("get_price", "{}"),
    ))
    .await;
    let listed = server.get("/agent/workflows").await.expect_ok();
    assert_eq!(listed["workflows"][0]["name"], "restock");
    let inputs = &listed["workflows"][0]["inputs"];
    assert_eq!(
        inputs[0],
        json!({"name": "quantity", "type": "integer", "default": 10, "required": false})
    );
    assert_eq!((&inputs[1]["name"], &inputs[1]["required"]), (&json!("type_id"), &json!(true)));
    assert!(listed["broken_workflows"][0]["path"].as_str().unwrap().ends_with("broken.md"));

    let session = server.create_session_at(1).await;
    for (workflow, code, field) in [
        (json!({"name": "nothing"}), "unknown_workflow", "workflow.name"),
        (json!({"name": "market:nothing"}), "unknown_workflow", "workflow.name"),
        (json!({"name": "restock"}), "invalid_workflow_input", "workflow.inputs.type_id"),
        (
            json!({"name": "restock", "inputs": {"type_id": "ore"}}),
            "invalid_workflow_input",
            "workflow.inputs.type_id",
        ),
    ] {
        let body = json!({"session_id": session, "workflow": workflow});
        let problem = server.post("/agent/chat/stream", body).await.expect_problem(422, code);
        assert_eq!(problem["field"], field);
    }
    let events = server.events(&session).await;
    assert_eq!(events.len(), 1, "no message was accepted: {events:?}");
}

#[actix_web::test]
async fn t6_cached_result_is_reused_and_marked() {
    let script = tool_call_script("get_item_info", "{ type_id = 34 }");
    let catalog = "[tools.get_item_info]\nserver = 'market'\nrisk = 'read_only'\ncache = '1h'";
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script)
        .with_catalog(catalog)
        .start()
        .await;
    let mut cached = Vec::new();
    for _ in 0..2 {
        // The cache is shared by sessions.
        let session = server.create_session_at(1).await;
        let frames = server.chat_to_end(&session, "go").await;
        cached.push(single_frame(&frames, "tool_call_completed").data["cached"].clone());
    }
    assert_eq!(cached, [Value::Null, json!(true)]);
    let count = server.calls().iter().filter(|call| call["tool"] == "get_item_info").count();
    assert_eq!(count, 1, "the tool was called once");
}
