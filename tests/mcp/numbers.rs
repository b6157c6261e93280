//! Numbers of arguments and results keep every digit on their way to a server and back (M2).

use actix_web::{App, HttpResponse, HttpServer, web};
use greenroom::tool::{McpLifecycle, ToolServerConfig, ToolTransport};
use greenroom_actors::ports::{Progress, ToolHost as _};
use greenroom_core::call::ToolOutcome;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::harness::{ToolServerFixture, channel, http, run, stdio_env, test_dep, tool_call};

const ARGUMENTS: &str = concat!(
    r#"{"a":123456789012345678901234567890,"b":0.1000000000000000055511151231257827,"#,
    r#""c":1e+400,"d":-0,"e":1.0,"f":-170141183460469231731687303715884105729}"#
);

/// Calls the tool, which sends progress and then its arguments, as text and as structured content.
async fn check_digits(fixture: &ToolServerFixture) {
    let arguments: Value = serde_json::from_str(ARGUMENTS).unwrap();
    let (sender, mut progress) = channel();
    let call = tool_call("first", arguments.clone());
    let outcome = fixture.tools.call_tool(call, sender, CancellationToken::new()).await;
    let ToolOutcome::Completed(output) = outcome else { panic!("{outcome:?}") };
    assert_eq!(output.text, ARGUMENTS);
    assert_eq!(output.structured.unwrap().to_string(), ARGUMENTS);
    let expected = Progress { progress: 0.6, total: Some(1.5), message: None };
    assert_eq!(progress.recv().await, Some(expected));
}

#[test]
fn m2_numbers_keep_every_digit_over_stdio() {
    run(async {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/odd_server.py");
        let python = test_dep("venv/bin/python");
        let server = stdio_env("odd", python, &[script, "numbers"], &[]);
        check_digits(&ToolServerFixture::start([server]).await).await;
    });
}

/// Answers as an MCP server of the older lifecycle; a call as an event stream.
async fn handle_request(body: web::Bytes) -> HttpResponse {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let Some(id) = body.get("id") else { return HttpResponse::Accepted().finish() };
    let result = match body["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": body["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }),
        "tools/list" => {
            json!({"tools": [{"name": "first", "inputSchema": {"type": "object"}}]})
        }
        "tools/call" => {
            let (params, arguments) = (&body["params"], &body["params"]["arguments"]);
            let token = &params["_meta"]["progressToken"];
            let progress = json!({
                "jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": 0.6, "total": 1.5},
            });
            let result = json!({"jsonrpc": "2.0", "id": id, "result": {
                "content": [{"type": "text", "text": arguments.to_string()}],
                "structuredContent": arguments,
            }});
            let events = format!("data: {progress}\n\ndata: {result}\n\n");
            return HttpResponse::Ok().content_type("text/event-stream").body(events);
        }
        method => panic!("unexpected method {method}"),
    };
    HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

#[test]
fn m2_numbers_keep_every_digit_over_http() {
    run(async {
        let server = HttpServer::new(|| {
            App::new()
                .route("/mcp", web::post().to(handle_request))
                .route("/mcp", web::to(|| async { HttpResponse::MethodNotAllowed().finish() }))
        });
        let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
        let port = server.addrs()[0].port();
        drop(actix_rt::spawn(server.run()));
        let url = format!("http://127.0.0.1:{port}/mcp");
        let config = ToolServerConfig {
            lifecycle: McpLifecycle::Initialize,
            transport: ToolTransport::Http { url, headers: [].into(), allow_private: true },
            ..http("odd", "", true)
        };
        check_digits(&ToolServerFixture::start([config]).await).await;
    });
}
