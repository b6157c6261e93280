//! Nothing that leaves the server shows a secret (E7): secrets under forty key names in arguments,
//! results, errors, progress and elicitations of a real tool server, in every output.

use crate::{
    harness::{TOKEN, TestServer, TestServerBuilder, run},
    traces::Collector,
};
use greenroom::rehearsal::ProviderProtocol;
use greenroom_core::json::Digest;
use reqwest::Method;
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path};

/// Keys whose values are secret.
const KEYS: [&str; 40] = [
    "password",
    "Password",
    "passwords",
    "password_hash",
    "user-password",
    "dbpassword",
    "passwd",
    "pwd",
    "DB_PWD",
    "passphrase",
    "ssh_passphrase",
    "token",
    "tokens",
    "access_token",
    "refreshToken",
    "id.token",
    "tokenValue",
    "secret",
    "secrets",
    "client_secret",
    "secret_key",
    "aws_secret_access_key",
    "private_key",
    "privateKeyPem",
    "api_key",
    "apiKey",
    "apikeys",
    "X-Api-Key",
    "access_key",
    "accessKeyId",
    "credential",
    "credentials",
    "credentials.pass",
    "authorization",
    "Proxy-Authorization",
    "bearer",
    "cookie",
    "Set-Cookie",
    "cookies",
    "license key",
];

/// Keys whose values must stay visible.
const COUNTERS: [&str; 5] =
    ["max_tokens", "input_tokens", "token_count", "tokens_per_second", "secretary"];

/// Arguments with a secret under each key: plain, nested, in lists, and in texts.
fn planted_arguments() -> Value {
    let mut arguments = json!({"system": "Jita", "cookies_enabled": true});
    for (number, key) in KEYS.into_iter().enumerate() {
        let secret = format!("PLANT-A{number:02}x");
        match number % 4 {
            0 => arguments[key] = json!(secret),
            1 => arguments["deep"]["er"][key] = json!([[secret]]),
            2 => {
                arguments["list"] = {
                    let mut list = arguments["list"].as_array().cloned().unwrap_or_default();
                    list.push(json!({key: secret, "number": number}));
                    json!(list)
                }
            }
            _ => {
                arguments["text"][format!("note {number}")] =
                    json!(json!({key: [secret], "n": 1}).to_string())
            }
        }
    }
    arguments["sentence"] =
        json!("got {\"pwd\": \"PLANT-A-json\"}, pin=PLANT-A-pin; Basic UExBTlQtQTpiYXNpYw==");
    for counter in COUNTERS {
        arguments[counter] = json!(4711);
    }
    arguments
}

/// Returns `value` as an inline value of TOML.
fn to_toml(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members =
                members.iter().map(|(key, value)| format!("{} = {}", json!(key), to_toml(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(to_toml).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// A script that calls each tool of the leaky server once.
fn script(arguments: &Value) -> String {
    let rule = |(step, tool): (usize, &str)| {
        format!(
            "[[rule]]\nuser = \"go\"\nstep = {step}\n[[rule.reply]]\n\
             tool_call = {{ name = \"{tool}\", arguments = {} }}\n",
            to_toml(arguments)
        )
    };
    let calls: String = ["structured", "text", "fail"].into_iter().enumerate().map(rule).collect();
    format!("{calls}[[rule]]\nuser = \"go\"\nstep = 3\n[[rule.reply]]\ntext = \"Finished.\"\n")
}

fn setup(arguments: &Value, collector: &Collector) -> TestServerBuilder {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/leaky_server.py");
    let config = format!(
        "[mcpServers.leaky]\ncommand = \"python3\"\nargs = [{:?}]\n\
         [tools.\"*\"]\nserver = \"leaky\"\nrisk = \"read_only\"\nretry = {{ max = 1, base = \"5ms\" }}\n\
         [tools.text]\nserver = \"leaky\"\nrisk = \"write_high_risk\"\n\
         [redaction]\nkeys = [\"pin\", \"license key\"]\n",
        server.display().to_string()
    );
    TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script(arguments))
        .with_config(&config)
        .with_top_level_config(&format!("otlp_endpoint = {:?}\n", collector.start()))
        .with_server_env("GREENROOM_LOG", "trace")
}

/// Runs the script in a session and answers its approval and its elicitation. Returns what the
/// client received.
async fn run_script(server: &TestServer, session: &str) -> Vec<String> {
    let mut received = Vec::new();
    let body = json!({"session_id": session, "message": "go", "message_id": "r-1"});
    let mut stream = server.chat_with(body).await;
    for answer in [
        json!({"decision": "approve"}),
        json!({"decision": "answer", "value": {"answer": "pwd=PLANT-A-answer"}}),
    ] {
        let frames = stream.read_until("waiting_for_approval").await;
        let approval = frames.last().unwrap().text("plan_id").to_owned();
        received.extend(frames.iter().map(|frame| frame.data.to_string()));
        let path = format!("/agent/approvals/{approval}");
        received.push(server.get(&path).await.expect_ok().to_string());
        received.push(server.post(&path, answer).await.expect_ok().to_string());
        let other = server.post(&path, json!({"decision": "reject"})).await;
        received.push(other.expect_problem(409, "already_decided").to_string());
    }
    let frames = stream.read_to_end().await;
    received.extend(frames.iter().map(|frame| frame.data.to_string()));
    assert_eq!(frames.last().unwrap().data["outcome"], "completed", "{frames:?}");
    received
}

/// Returns every output about the session, by name.
async fn collect_outputs(server: &TestServer, session: &str) -> BTreeMap<String, String> {
    let mut outputs = BTreeMap::new();
    let paths = [
        "/agent/session/{}/events?after=0&limit=500",
        "/agent/session/{}/events?after=0&limit=500&dialect=task",
        "/agent/session/{}/messages",
        "/agent/session/{}/context",
        "/agent/session/{}",
        "/agent/session",
        "/agent/approvals",
        "/agent/approvals?state=decided",
        "/agent/statistics",
        "/agent/tools",
        "/agent/export",
        "/admin/audit?limit=500",
        "/admin/audit?format=jsonl",
        "/admin/actors",
        "/metrics",
    ];
    for path in paths {
        let response = server.get(&path.replace("{}", session)).await;
        outputs.insert(path.to_owned(), response.body.to_string());
    }
    let mut socket = server.socket("/agent/stream").await;
    socket.send(json!({"type": "subscribe", "id": "s", "session_id": session, "after": "0"})).await;
    outputs.insert("socket".to_owned(), json!(socket.read_until("done").await).to_string());
    for path in ["/gateway", "/gateway?details=true"] {
        let mut socket = server.socket(path).await;
        let repeated =
            json!({"type": "chat.send", "id": "r-1", "sessionId": session, "content": "go"});
        socket.send(repeated).await;
        let frames = socket.read_until("chat.stream.end").await;
        outputs.insert(path.to_owned(), json!(frames).to_string());
    }
    let address = server.url().trim_start_matches("http://");
    let environment = [("GREENROOM_TOKEN", TOKEN), ("GREENROOM_LISTEN", address)];
    let decided = server.get("/agent/approvals?state=decided").await.expect_ok();
    let approval = decided["approvals"][1]["approval_id"].as_str().unwrap().to_owned();
    for arguments in [
        &["approvals", "list", "--state", "all"][..],
        &["approvals", "show", &approval],
        &["events", "--session", session, "--json"],
        &["events", "--session", session],
    ] {
        let output = run(server.folder(), arguments, &environment).await;
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && !text.is_empty(), "{arguments:?}: {text}");
        outputs.insert(format!("greenroom {}", arguments.join(" ")), text);
    }
    outputs
}

#[actix_web::test]
async fn e7_planted_secrets_appear_in_no_output() {
    let (arguments, collector) = (planted_arguments(), Collector::default());
    let mut server = setup(&arguments, &collector).start().await;
    let session = server.create_session_at(1).await;
    let received = run_script(&server, &session).await;
    let mut outputs = collect_outputs(&server, &session).await;
    outputs.insert("stream".to_owned(), received.join("\n"));
    let request = server
        .request(Method::GET, &format!("/agent/session/{session}/events?after=0&dialect=task"));
    let stream =
        server.stream(request.header("accept", "text/event-stream")).await.read_until("done").await;
    outputs.insert("stream in dialect task".to_owned(), format!("{stream:?}"));
    assert!(server.stop().await.success());
    let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
    outputs.insert("log".to_owned(), log);
    outputs.insert("traces".to_owned(), format!("{:?}", collector.spans()));

    let digest = Digest::hash_json(&arguments).to_string();
    for (name, output) in &outputs {
        if let Some(index) = output.find("PLANT-") {
            let from = output.floor_char_boundary(index.saturating_sub(200));
            let to = output.floor_char_boundary((index + 60).min(output.len()));
            panic!("{name} shows a secret: …{}…", &output[from..to]);
        }
        assert!(!output.contains("UExBTlQtQTpiYXNpYw"), "{name} shows a credential");
        assert!(!output.contains(&digest), "{name} shows a plain digest");
    }
    // The outputs contain what surrounds the secrets.
    for name in
        ["stream", "socket", "log", "/gateway", "/agent/export", "/agent/session/{}/messages"]
    {
        let output = &outputs[name];
        assert!(output.contains("[redacted]") && output.contains("Jita"), "{name}: {output}");
        for counter in COUNTERS {
            let visible = [format!("\"{counter}\":4711"), format!("\\\"{counter}\\\":4711")];
            assert!(visible.iter().any(|text| output.contains(text)), "{name} hides {counter}");
        }
    }
    for name in ["stream", "socket", "/agent/approvals", "/admin/audit?limit=500"] {
        assert!(outputs[name].contains("hmac-sha256:"), "{name} has keyed digests");
    }
    for message in ["tool call proposed", "tool call input", "tool call progress", "model request"]
    {
        assert!(outputs["log"].contains(message), "the log contains {message:?}");
    }
    assert!(!outputs["log"].contains("\"target\":\"rmcp::service\",\"level\":\"TRACE\""));
}

/// The key of digests is stored with the database: digests stay the same after a restart, and differ
/// between databases.
#[actix_web::test]
async fn e7_digests_keep_their_key_across_restarts() {
    let digests = async |server: &TestServer, session: &str| {
        let events = server.events(session).await;
        let proposed = events.iter().find(|event| event["type"] == "tool_call_started");
        proposed.unwrap()["digest"].as_str().unwrap().to_owned()
    };
    let start = async || {
        let tour = TestServerBuilder::tour(ProviderProtocol::OpenAi).start().await;
        let session = tour.create_session_at(1).await;
        tour.chat_to_end(&session, "What is the price of PLEX?").await;
        (tour, session)
    };
    let (mut first, session) = start().await;
    let before = digests(&first, &session).await;
    assert!(before.starts_with("hmac-sha256:"), "{before}");
    first.kill_and_restart().await;
    assert_eq!(digests(&first, &session).await, before);
    let (second, session) = start().await;
    assert_ne!(digests(&second, &session).await, before);
}
