//! Tests the tour (docs/tour.md) message by message: the market script against the real market
//! server, on both wires in lockstep (M5, T7). Greenroom itself is not involved; the tests check that
//! script and tools fit together.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Stdio;

use greenroom::rehearsal::{RehearsalServer, Script};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const STEPS_MAX: usize = 5;
/// Attempts of a call, as configured in the market's catalog for the flaky tool.
const ATTEMPTS_MAX: usize = 4;
const DENIED: &str = "requires autonomy level ASSISTED (L2) or higher";

/// Returns the path of the market server's binary. This function does not build it: a build of that
/// package alone would use other features, and the next build would have to compile everything
/// again.
fn market_binary() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_greenroom")).with_file_name("greenroom-market");
    assert!(path.exists(), "{} is missing: run `cargo build --workspace`", path.display());
    path
}

/// A market server for one test, and a minimal MCP client for it.
struct Market {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _folder: tempfile::TempDir,
    last_id: u64,
}

impl Market {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(market_binary())
            .env("MARKET_FILE", folder.path().join("market.jsonl"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut market = Self { _child: child, input, output, _folder: folder, last_id: 0 };
        let client = json!({"name": "tour", "version": "0"});
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client,
        });
        market.request("initialize", hello).await;
        market.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        market
    }

    async fn send(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        loop {
            let line = self.output.next_line().await.unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    /// Calls a tool, and repeats the call while its error is retryable. Returns the text of the
    /// result, and true if it is an error.
    async fn call(&mut self, name: &str, arguments: &Value) -> (String, bool) {
        let params = json!({"name": name, "arguments": arguments});
        let mut result = Value::Null;
        for _ in 0..ATTEMPTS_MAX {
            result = self.request("tools/call", params.clone()).await;
            let error = &result["structuredContent"]["error"];
            if error["retryable"] != true {
                break;
            }
        }
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        (text, result["isError"] == true)
    }
}

/// An agent loop that runs on both wires at once.
struct Tour {
    rehearsal: RehearsalServer,
    http: reqwest::Client,
    market: Market,
}

/// The result of one message.
#[derive(Debug)]
struct Run {
    /// Names of the tools called, a list for each step.
    calls: Vec<Vec<String>>,
    /// The final text.
    answer: String,
}

impl Tour {
    async fn start() -> Self {
        // Another test of this binary may have installed the same provider already.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/rehearsal/market.toml");
        let script = Script::load(&path).unwrap();
        let rehearsal = RehearsalServer::start(script, ([127, 0, 0, 1], 0).into()).unwrap();
        Self { rehearsal, http: reqwest::Client::new(), market: Market::start().await }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let url = format!("{}{path}", self.rehearsal.url());
        let request = self.http.post(url).header("anthropic-version", "2023-06-01").json(&body);
        let response = request.send().await.unwrap();
        let status = response.status();
        let response: Value = response.json().await.unwrap();
        assert!(status.is_success(), "{response}");
        response
    }

    /// Sends a message and runs the calls of the model; calls of `denied` tools fail.
    async fn send_message(&mut self, message: &str, denied: &[&str]) -> Run {
        let user = json!({"role": "user", "content": message});
        let (mut anthropic_messages, mut openai_messages) = (vec![user.clone()], vec![user]);
        let mut calls = Vec::new();
        for _ in 0..STEPS_MAX {
            let body = json!({"model": "m", "max_tokens": 4096, "messages": anthropic_messages});
            let anthropic = self.post("/v1/messages", body).await;
            let body = json!({"model": "m", "messages": openai_messages});
            let openai = self.post("/v1/chat/completions", body).await;
            let openai = &openai["choices"][0]["message"];

            let blocks = anthropic["content"].as_array().unwrap();
            let text: String = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            assert_eq!(text, openai["content"].as_str().unwrap_or_default());
            assert!(!text.contains('⟨'), "{text}");
            let tool_uses: Vec<_> =
                blocks.iter().filter(|block| block["type"] == "tool_use").collect();
            if tool_uses.is_empty() {
                return Run { calls, answer: text };
            }
            anthropic_messages.push(json!({"role": "assistant", "content": blocks}));
            openai_messages.push(openai.clone());
            let mut results = Vec::new();
            let tool_calls = openai["tool_calls"].as_array().unwrap();
            assert_eq!(tool_uses.len(), tool_calls.len());
            for (tool_use, tool_call) in tool_uses.iter().zip(tool_calls) {
                let arguments = tool_call["function"]["arguments"].as_str().unwrap();
                assert_eq!(tool_use["input"], serde_json::from_str::<Value>(arguments).unwrap());
                let name = tool_use["name"].as_str().unwrap();
                let (text, failed) = if denied.contains(&name) {
                    (DENIED.to_owned(), true)
                } else {
                    self.market.call(name, &tool_use["input"]).await
                };
                let content = if failed { format!("Error: {text}") } else { text.clone() };
                openai_messages.push(
                    json!({"role": "tool", "tool_call_id": tool_call["id"], "content": content}),
                );
                results.push(json!({
                    "type": "tool_result", "tool_use_id": tool_use["id"], "content": text,
                    "is_error": failed,
                }));
            }
            calls.push(
                tool_uses
                    .iter()
                    .map(|tool_use| tool_use["name"].as_str().unwrap().to_owned())
                    .collect(),
            );
            anthropic_messages.push(json!({"role": "user", "content": results}));
        }
        panic!("{message}: no answer within {STEPS_MAX} steps");
    }

    async fn check(&mut self, message: &str, denied: &[&str], calls: &[&[&str]], answer: &[&str]) {
        let run = self.send_message(message, denied).await;
        assert_eq!(run.calls, calls, "{message}");
        for text in answer {
            assert!(run.answer.contains(text), "{message}: {text:?} in {}", run.answer);
        }
    }
}

#[actix_web::test]
async fn m5_t7_tour_messages_with_read_only_tools_succeed() {
    let mut tour = Tour::start().await;
    tour.check("hello", &[], &[], &["Try one of these"]).await;
    let message = "What is the current sell price of Tritanium in Jita?";
    tour.check(message, &[], &[&["get_market_stats"]], &["**4.12 ISK**", "9,400,000,000"]).await;
    let search: [&[&str]; 1] = [&["search_item"]];
    tour.check("Search for Tritanium", &[], &search, &["- **Tritanium**: type 34"]).await;
    let message = "Search for unobtainium.";
    tour.check(message, &[], &search, &["No item has \"unobtainium\" in its name."]).await;
    let compare: [&[&str]; 1] = [&["compare_regions"]];
    for (message, quantity) in [
        ("/price-check type_id=34", "1,000 units"),
        ("/price-check quantity=20 type_id=34", "20 units"),
        ("/price-check type_id=34 quantity=20", "20 units"),
    ] {
        let words =
            ["| The Forge | 4.12 | 3.98 | 0.14 |", quantity, "best bought in **The Forge**"];
        tour.check(message, &[], &compare, &words).await;
    }
    let message = "/price-check type_id=1";
    tour.check(message, &[], &compare, &["could not compare the prices"]).await;
    let message = "Which ships were destroyed most in Jita last week?";
    let calls: [&[&str]; 2] = [&["get_war_losses"], &["get_item_info"; 6]];
    tour.check(message, &[], &calls, &["**Rifter**: 287", "**Merlin**: 256"]).await;
    let cost: [&[&str]; 1] = [&["get_production_cost"]];
    let words = ["**Stabber** costs **9,919,700.00 ISK**", "| Tritanium | 432,000 |"];
    tour.check("Get production cost for Stabber", &[], &cost, &words).await;
    let words = ["could not get", "price feed unavailable"];
    tour.check("Get production cost for Vexor", &[], &cost, &words).await;
    let message = "Find profitable manufacturing opportunities in Jita";
    let calls: [&[&str]; 3] = [
        &["get_economic_opportunities"],
        &["get_production_economics"; 3],
        &["get_production_cost", "get_production_cost", "get_market_stats"],
    ];
    let words =
        ["| 1 | **Vexor** |", "one Stabber takes 7 materials", "start with the **Stabber**"];
    tour.check(message, &[], &calls, &words).await;
    let scan: [&[&str]; 1] = [&["scan_opportunities"]];
    tour.check("Scan Jita for 0 s", &[], &scan, &["24 items in The Forge"]).await;
    tour.check("Tell me a long story", &[], &[], &["is still decorative."]).await;
}

#[actix_web::test]
async fn m5_t7_tour_messages_with_writing_tools_succeed() {
    let mut tour = Tour::start().await;
    let buy: [&[&str]; 2] = [&["get_market_stats"], &["market_order_create"]];
    let words = ["to buy 1,000 Tritanium at 4.12 ISK is open", "4,120.00 ISK in all"];
    tour.check("Buy 1000 Tritanium at market price", &[], &buy, &words).await;
    let transfer: [&[&str]; 1] = [&["wallet_transfer"]];
    let words = ["100,000,000.00 ISK", "**XYZ**"];
    tour.check("Transfer 100M ISK to character XYZ", &[], &transfer, &words).await;
    let update: [&[&str]; 1] = [&["update_bookmark"]];
    tour.check("Update bookmark", &[], &update, &["no such bookmark"]).await;
    let create: [&[&str]; 1] = [&["create_bookmark"]];
    tour.check("Bookmark Jita as Home", &[], &create, &["called **Home**"]).await;
    tour.check("Update bookmark 1 to Office", &[], &update, &["called **Office**"]).await;
    let create: [&[&str]; 1] = [&["create_shopping_list"]];
    tour.check("Create a shopping list named Week 12", &[], &create, &["**Week 12**"]).await;
    tour.check("Create shopping list", &[], &create, &["**Shopping list** is ready"]).await;
    let delete: [&[&str]; 1] = [&["delete_shopping_list"]];
    tour.check("Delete shopping list 1", &[], &delete, &["**Week 12** was deleted"]).await;
    let stock: [&[&str]; 1] =
        [&["market_order_create", "market_order_create", "create_shopping_list"]];
    let words = ["100,000 Tritanium", "20,000 Pyerite", "**Next week**"];
    tour.check("Stock up", &[], &stock, &words).await;
}

#[actix_web::test]
async fn m5_t7_tour_messages_with_denied_tools_report_denial() {
    let mut tour = Tour::start().await;
    let cases: [(&str, &[&str], &str); 8] = [
        ("Search for Tritanium", &["search_item"], "could not search the items"),
        ("What is the sell price of PLEX?", &["get_market_stats"], "could not read the market"),
        ("Buy 1000 Tritanium at market price", &["market_order_create"], "did not place the order"),
        ("Transfer 100M ISK to character XYZ", &["wallet_transfer"], "was not made"),
        ("Update bookmark", &["update_bookmark"], "not able to change the bookmark"),
        ("Delete shopping list 1", &["delete_shopping_list"], "left the shopping lists"),
        ("Scan", &["scan_opportunities"], "did not finish"),
        ("Find profitable things to build", &["get_economic_opportunities"], "could not rank"),
    ];
    for (message, denied, text) in cases {
        let run = tour.send_message(message, denied).await;
        assert!(run.answer.contains(text) && run.answer.contains(DENIED), "{run:?}");
    }
    // The answer about a plan distinguishes completed and denied calls.
    let run = tour.send_message("Stock up", &["market_order_create"]).await;
    assert!(run.answer.contains("not done, the order for 100,000 units: requires"), "{run:?}");
    assert!(run.answer.contains("created the shopping list **Next week**"), "{run:?}");
}
