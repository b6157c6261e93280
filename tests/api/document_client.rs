//! A client of the gateway that is built from its founding document alone: a TypeScript program with
//! strict Zod schemas, which counts its request ids and only appends deltas.

use crate::{
    gateway_schemas::{compile_suite, run},
    harness::{TOKEN, TestServerBuilder},
    scripts::{ORDER, STALLS_ONCE, tool_call_script},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};
use tokio::process::Command;

/// Returns a rule per message of the client.
fn script() -> String {
    let call = |word: &str, tool: &str, arguments: &str| {
        let script = tool_call_script(tool, arguments)
            .replace("user = \"go\"", &format!("user = \"{word}\""));
        // Only the rules of this message.
        script[..script.find("[[rule]]\nuser = \"again\"").unwrap()].to_owned()
    };
    let look = call("look", "get_market_stats", "{ type_id = 34, region_id = 10000002 }")
        .replace("Calling.", "Looking.")
        .replace("Read: {{ last[0].text }}", "Looked.");
    let plan = call("plan", "market_order_create", ORDER)
        .replace("Calling.", "")
        .replace("text = \"\"\n[[rule.reply]]\n", "");
    let plan_step = |description: &str| {
        format!(
            "{{ description = \"{description}\", tool = \"market_order_create\", arguments = {ORDER} }}"
        )
    };
    let submit = format!(
        "[[rule]]\nuser = \"plan\"\nforced = \"submit_plan\"\n[[rule.reply]]\ntool_call = {{ name = \
         \"submit_plan\", arguments = {{ steps = [{{ description = \"Think\" }}, {}, {}] }} }}\n",
        plan_step("Buy"),
        plan_step("Buy more"),
    );
    let mut placed = String::new();
    for (condition, text) in [
        ("system = 'skipped by the approver'\n", "Placed without one."),
        ("system = 'changed by the approver'\n", "Placed as changed."),
        ("", "Placed."),
    ] {
        placed.push_str(&format!(
            "[[rule]]\nuser = \"plan\"\nstep = 1\n{condition}[[rule.reply]]\ntext = \"{text}\"\n"
        ));
    }
    let plan = &plan[..plan.rfind("[[rule]]").unwrap()];
    [
        &look,
        &call("order", "market_order_create", ORDER),
        &call("transfer", "wallet_transfer", "{ to = \"XYZ\", amount = 5 }"),
        &submit,
        plan,
        &placed,
        STALLS_ONCE,
        "[[rule]]\nuser = 'refuse'\nfail = { status = 401, message = 'no such key' }\n\
         [[rule.reply]]\ntext = 'never'\n[[rule]]\nuser = 'hello'\n[[rule.reply]]\ntext = 'Here I am.'\n",
    ]
    .map(|part| part.trim_start())
    .join("\n")
}

#[actix_web::test]
async fn e1_s5_g9_g14_client_of_the_document_works_through_every_frame() {
    let suite = compile_suite("dist/document").await;
    // The text of the stalled attempt is sent before the attempt ends.
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script())
        .with_model_config("idle_timeout = \"1s\"")
        .start()
        .await;
    server.patch("/agent/settings", json!({"autonomy_level": 2})).await.expect_ok();
    let url = format!("{}/gateway", server.url().replacen("http", "ws", 1));
    let run_part = async |part: &str| {
        let mut node = Command::new("node");
        node.current_dir(&suite).args(["dist/document/document.js", &url, TOKEN, part]);
        serde_json::from_str::<Value>(&run(&mut node).await).expect("JSON")
    };
    let stream = ["chat.stream.delta", "chat.stream.end", "chat.stream.start", "error"];
    let calls = ["tool.approval.request", "tool.call", "tool.result"];
    assert_eq!(run_part("calls").await, json!([&stream[..], &calls].concat()));
    assert_eq!(server.effects().len(), 5, "three orders, two transfers");
    server.patch("/agent/settings", json!({"preflight": true})).await.expect_ok();
    let preflight = ["preflight.checklist", "tool.call", "tool.result"];
    assert_eq!(run_part("preflight").await, json!([&stream[..], &preflight].concat()));
    assert_eq!(server.effects().len(), 9, "one order for each approved plan");
}
