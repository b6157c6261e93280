//! Resources and prompts of MCP servers: models read resources (T1), and prompts start runs as
//! workflows do (C3).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::tool_call_script,
    stream::{format_frames, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(t1_model_reads_allowed_resources, c3_mcp_prompt_starts_a_run,);

/// Adds npm's reference MCP server, which offers resources, prompts and tools.
fn with_everything_server(setup: TestServerBuilder) -> TestServerBuilder {
    let program = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/target/test-deps/npm/node_modules/.bin/mcp-server-everything"
    );
    assert!(
        std::path::Path::new(program).exists(),
        "{program} is missing: run scripts/test-deps.sh"
    );
    setup.with_config(&format!(
        "[mcpServers.everything]\ncommand = {}\nargs = ['stdio']",
        json!(program)
    ))
}

fn resource_setup(wire: ProviderProtocol, uri: &str) -> TestServerBuilder {
    let arguments = format!("{{ server = \"everything\", uri = \"{uri}\" }}");
    with_everything_server(TestServerBuilder::with_script(
        wire,
        &tool_call_script("read_resource", &arguments),
    ))
}

async fn run_to_end(server: &TestServer) -> Vec<crate::stream::Frame> {
    // Resources can be read at the lowest autonomy level, too.
    let session = server.create_session_at(0).await;
    server.chat_to_end(&session, "go").await
}

async fn t1_model_reads_allowed_resources(wire: ProviderProtocol) {
    let text = "demo://resource/dynamic/text/7";
    let allowed = "resources = ['everything:demo://resource/dynamic/*']";
    let server = resource_setup(wire, text).with_agent_config(allowed).start().await;
    let listed = server.get("/agent/resources").await.expect_ok();
    let find = |uri: &str| -> Value {
        let mut all = listed["resources"].as_array().unwrap().iter();
        let not_listed = || panic!("{uri}: {listed}");
        all.find(|resource| resource["uri"] == uri).unwrap_or_else(not_listed).clone()
    };
    let document = find("demo://resource/static/document/architecture.md");
    assert_eq!(
        (&document["server"], &document["mime_type"], &document["is_template"]),
        (&json!("everything"), &json!("text/markdown"), &json!(false))
    );
    assert_eq!(find("demo://resource/dynamic/text/{resourceId}")["is_template"], true);

    let frames = run_to_end(&server).await;
    let result =
        single_frame(&frames, "tool_call_completed").data["result"].as_str().unwrap().to_owned();
    assert!(result.contains("Resource 7: This is a plaintext resource"), "{result}");
    assert!(server.rehearsal.requests()[1].body.to_string().contains("Resource 7: This is"));
}

#[actix_web::test]
async fn t1_binary_resources_are_described_and_others_are_refused() {
    let blob = "demo://resource/dynamic/blob/7";
    let allowed = "resources = ['everything:demo://resource/dynamic/*']";
    let server =
        resource_setup(ProviderProtocol::Anthropic, blob).with_agent_config(allowed).start().await;
    let frames = run_to_end(&server).await;
    let result =
        single_frame(&frames, "tool_call_completed").data["result"].as_str().unwrap().to_owned();
    // Binary content is described instead of included.
    assert!(
        result.starts_with(&format!("[resource {blob} ")) && result.ends_with(" bytes]"),
        "{result}"
    );

    let document = "demo://resource/static/document/architecture.md";
    let server =
        resource_setup(ProviderProtocol::OpenAi, document).with_agent_config(allowed).start().await;
    let frames = run_to_end(&server).await;
    let error =
        single_frame(&frames, "tool_call_failed").data["error"].as_str().unwrap().to_owned();
    assert!(error.contains("there is no resource"), "{error}");

    // By default an agent may read no resources, and its model is not offered the tool.
    let server = resource_setup(ProviderProtocol::OpenAi, document).start().await;
    let frames = run_to_end(&server).await;
    assert_eq!(
        single_frame(&frames, "tool_call_failed").data["reason"],
        "unknown_tool",
        "{}",
        format_frames(&frames)
    );
    assert!(!server.rehearsal.requests()[0].body.to_string().contains("read_resource\""));
}

async fn c3_mcp_prompt_starts_a_run(wire: ProviderProtocol) {
    let script =
        tool_call_script("echo", "{ message = 'hello' }").replace("\"go\"", "\"/everything:\"");
    let server =
        with_everything_server(TestServerBuilder::with_script(wire, &script)).start().await;
    let listed = server.get("/agent/workflows").await.expect_ok();
    let find = |name: &str| -> Value {
        let mut all = listed["workflows"].as_array().unwrap().iter();
        let not_listed = || panic!("{name}: {listed}");
        all.find(|workflow| workflow["name"] == name).unwrap_or_else(not_listed).clone()
    };
    let plain = find("everything:simple-prompt");
    assert_eq!((&plain["source"], &plain["inputs"]), (&json!("mcp"), &json!([])));
    let inputs = find("everything:args-prompt")["inputs"].clone();
    let required =
        |index: usize| (inputs[index]["name"].clone(), inputs[index]["required"].clone());
    assert_eq!(
        (required(0), required(1)),
        ((json!("city"), json!(true)), (json!("state"), json!(false)))
    );

    let session = server.create_session_at(3).await;
    let start = |inputs: Value, name: &str| json!({"session_id": session, "workflow": {"name": name, "inputs": inputs}});
    for (inputs, field) in [
        (json!({}), "workflow.inputs.city"),
        (json!({"city": "Jita", "planet": "4"}), "workflow.inputs.planet"),
    ] {
        let refused = server.post("/agent/chat", start(inputs, "everything:args-prompt")).await;
        assert_eq!(refused.expect_problem(422, "invalid_workflow_input")["field"], field);
    }
    for (inputs, name, text) in [
        (json!({"city": "Jita"}), "everything:args-prompt", "weather in Jita?"),
        (json!({}), "everything:simple-prompt", "simple prompt without arguments"),
    ] {
        let before = server.rehearsal.requests().len();
        let frames = server.chat_with(start(inputs.clone(), name)).await.read_to_end().await;
        let started = &single_frame(&frames, "run_started").data["workflow"];
        assert_eq!(started, &json!({"name": name, "inputs": inputs}), "{}", format_frames(&frames));
        assert_eq!(
            single_frame(&frames, "done").data["outcome"],
            "completed",
            "{}",
            format_frames(&frames)
        );
        let request = server.rehearsal.requests()[before].body.to_string();
        assert!(request.contains(text), "{request}");
    }
}
