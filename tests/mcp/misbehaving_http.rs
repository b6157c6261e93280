//! Tests against HTTP servers that misbehave: each kind of failure states if the call ran (R1).

use actix_web::{App, HttpResponse, HttpServer, web};
use greenroom::tool::{McpLifecycle, ToolServerConfig, ToolTransport};
use greenroom_core::call::{ToolOutcome, outcome::RetryHint};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

use crate::harness::{ToolServerFixture, http, run};

const TOOLS: [&str; 6] = ["busy", "broken", "refused", "elsewhere", "huge", "header"];

/// The value of the header `x-key` of each call.
type ReceivedKeys = Arc<Mutex<Vec<String>>>;

/// Answers as an MCP server of the older lifecycle.
async fn handle_request(
    request: actix_web::HttpRequest,
    body: web::Json<Value>,
    received_keys: web::Data<ReceivedKeys>,
) -> HttpResponse {
    let Some(id) = body.get("id") else { return HttpResponse::Accepted().finish() };
    let result = match body["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": body["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }),
        "tools/list" => {
            let listed = TOOLS.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
            json!({"tools": listed})
        }
        "tools/call" => match body["params"]["name"].as_str().unwrap() {
            "busy" => return HttpResponse::TooManyRequests().finish(),
            "broken" => return HttpResponse::BadGateway().finish(),
            "refused" => return HttpResponse::BadRequest().finish(),
            "elsewhere" => {
                let location = ("location", "http://127.0.0.1:1/");
                return HttpResponse::TemporaryRedirect().insert_header(location).finish();
            }
            "huge" => {
                json!({"content": [{"type": "text", "text": "x".repeat(17 * 1024 * 1024)}]})
            }
            _ => {
                let key = request.headers().get("x-key").and_then(|key| key.to_str().ok());
                received_keys.lock().unwrap().push(key.unwrap_or_default().to_owned());
                json!({"content": []})
            }
        },
        method => panic!("unexpected method {method}"),
    };
    HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Starts the server and a connection to it.
async fn start() -> (ToolServerFixture, ReceivedKeys) {
    let received_keys = ReceivedKeys::default();
    let data = web::Data::new(received_keys.clone());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(data.clone())
            .route("/mcp", web::post().to(handle_request))
            .route("/mcp", web::to(|| async { HttpResponse::MethodNotAllowed().finish() }))
    });
    let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
    let port = server.addrs()[0].port();
    drop(actix_rt::spawn(server.run()));
    let url = format!("http://127.0.0.1:{port}/mcp");
    let headers = [("x-key".to_owned(), "secret".to_owned())].into();
    let config = ToolServerConfig {
        lifecycle: McpLifecycle::Initialize,
        transport: ToolTransport::Http { url, headers, allow_private: true },
        ..http("odd", "", true)
    };
    (ToolServerFixture::start([config]).await, received_keys)
}

#[test]
fn r1_http_failure_states_effect_of_call() {
    run(async {
        let (fixture, _) = start().await;
        let outcome = fixture.call("busy", json!({})).await;
        let ToolOutcome::Failed { error, hint } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("429"), "{error}");
        assert_eq!(hint, RetryHint::DidNotRun);

        let outcome = fixture.call("broken", json!({})).await;
        let ToolOutcome::Crashed { error } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("502"), "{error}");

        let outcome = fixture.call("refused", json!({})).await;
        let ToolOutcome::Failed { error, hint } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("400"), "{error}");
        assert_eq!(hint, RetryHint::Unspecified);
    });
}

#[test]
fn x5_redirects_are_not_followed() {
    run(async {
        let (fixture, _) = start().await;
        let outcome = fixture.call("elsewhere", json!({})).await;
        let ToolOutcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("307"), "{error}");
    });
}

#[test]
fn t4_too_large_result_is_rejected_with_reason() {
    run(async {
        let (fixture, _) = start().await;
        let outcome = fixture.call("huge", json!({})).await;
        let ToolOutcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
        let expected = "the tool's response exceeds the limit of 16777216 bytes and was not read";
        assert!(error.starts_with(expected), "{error}");
    });
}

#[test]
fn configured_headers_are_sent() {
    run(async {
        let (fixture, received_keys) = start().await;
        fixture.call_ok("header", json!({})).await;
        assert_eq!(*received_keys.lock().unwrap(), ["secret"]);
    });
}
