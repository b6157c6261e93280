//! Servers over HTTP that misbehave: what each kind of failure says of the call's effect (R1).

use actix_web::{App, HttpResponse, HttpServer, web};
use greenroom::tool::{McpLifecycle, ToolServerConfig, ToolTransport};
use greenroom_core::call::{ToolOutcome, outcome::RetryHint};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

use crate::harness::{ToolServerFixture, http, run};

const TOOLS: [&str; 6] = ["busy", "broken", "refused", "elsewhere", "huge", "header"];

/// The value of the header `x-key`, for each call.
type ReceivedKeys = Arc<Mutex<Vec<String>>>;

/// An MCP server of the older lifecycle, as far as a client can tell.
async fn handle_request(
    request: actix_web::HttpRequest,
    body: web::Json<Value>,
    seen: web::Data<ReceivedKeys>,
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
                let elsewhere = ("location", "http://127.0.0.1:1/");
                return HttpResponse::TemporaryRedirect().insert_header(elsewhere).finish();
            }
            "huge" => {
                json!({"content": [{"type": "text", "text": "x".repeat(17 * 1024 * 1024)}]})
            }
            _ => {
                let key = request.headers().get("x-key").and_then(|key| key.to_str().ok());
                seen.lock().unwrap().push(key.unwrap_or_default().to_owned());
                json!({"content": []})
            }
        },
        method => panic!("{method} was not expected"),
    };
    HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Starts the server, with a connection to it.
async fn start() -> (ToolServerFixture, ReceivedKeys) {
    let seen = ReceivedKeys::default();
    let data = web::Data::new(seen.clone());
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
    (ToolServerFixture::start([config]).await, seen)
}

#[test]
fn r1_each_failure_over_http_says_what_is_known_of_the_effect() {
    run(async {
        let (rig, _) = start().await;
        let outcome = rig.call("busy", json!({})).await;
        let ToolOutcome::Failed { error, hint } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("429"), "{error}");
        assert_eq!(hint, RetryHint::DidNotRun);

        let outcome = rig.call("broken", json!({})).await;
        let ToolOutcome::Crashed { error } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("502"), "{error}");

        let outcome = rig.call("refused", json!({})).await;
        let ToolOutcome::Failed { error, hint } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("400"), "{error}");
        assert_eq!(hint, RetryHint::Unspecified);
    });
}

#[test]
fn x5_redirects_are_not_followed() {
    run(async {
        let (rig, _) = start().await;
        let outcome = rig.call("elsewhere", json!({})).await;
        let ToolOutcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("307"), "{error}");
    });
}

#[test]
fn t4_an_answer_that_is_too_long_is_refused_and_says_so() {
    run(async {
        let (rig, _) = start().await;
        let outcome = rig.call("huge", json!({})).await;
        let ToolOutcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.starts_with("the tool answered, but its answer has more than 16777216"));
    });
}

#[test]
fn configured_headers_are_sent() {
    run(async {
        let (rig, seen) = start().await;
        rig.call_ok("header", json!({})).await;
        assert_eq!(*seen.lock().unwrap(), ["secret"]);
    });
}
