//! A typed client of the dialect `task` over runs with sub-agents: a TypeScript program validates
//! every frame with Zod schemas.

use crate::{
    gateway_schemas::{compile_suite, run},
    harness::{TOKEN, TestServerBuilder},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};
use tokio::process::Command;

#[actix_web::test]
async fn e1_s8_typed_client_of_task_dialect_validates_runs_with_sub_agents() {
    let suite = compile_suite("dist/task").await;
    let analyst = "[agents.analyst]\nmodel = \"scripted\"\ndescription = \"Looks up prices\"\n\
                   tools = [\"get_*\", \"find_*\", \"compare_*\"]";
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic)
        .with_config(analyst)
        .with_agent_config("delegates = [\"analyst\"]")
        .start()
        .await;
    let mut node = Command::new("node");
    node.current_dir(&suite).args(["dist/task/task.js", server.url(), TOKEN]).args([
        "Ask the analyst: what is the price of Tritanium in Jita?",
        "Which ships were destroyed most in Jita last week?",
        "Transfer 100M ISK to character XYZ",
    ]);
    let runs: Value = serde_json::from_str(&run(&mut node).await).expect("JSON");
    let runs = runs.as_array().unwrap();
    let delegated = runs[0].as_array().unwrap();
    assert_eq!(delegated[0], json!(["default", "delegate", true]), "{runs:?}");
    assert!(delegated.len() > 1, "the analyst calls tools: {runs:?}");
    assert!(delegated[1..].iter().all(|call| call[0] == "analyst" && call[2] == true), "{runs:?}");
    assert!(runs[1].as_array().unwrap().len() > 1, "several calls: {runs:?}");
    assert_eq!(runs[2], json!([["default", "wallet_transfer", false]]));
}
