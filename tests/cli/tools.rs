//! Tests of `greenroom tools` with real tools.

use crate::harness::TestWorkspace;

#[tokio::test]
async fn g1_each_tool_is_listed_with_risk_reason_and_verdicts() {
    let workspace = TestWorkspace::new();
    let failing_server = "[mcpServers.mute]\ncommand = '/nowhere/to/be/found'\n";
    let text = workspace
        .configuration("[tools.\"*_order_create\"]\nrisk = \"critical\"\ntimeout = \"5s\"");
    workspace.write("greenroom.toml", &(text + failing_server));
    let listed = workspace.run(&["tools"]).await;
    assert_eq!(listed.code, 0, "{listed:?}");
    listed.assert_prints(&[
        "market: ",
        "mute: unavailable: ",
        "catalog pattern `*_order_create`, timeout 5s",
    ]);
    assert!(listed.out.lines().all(|line| line.chars().count() <= 100), "{}", listed.out);
    assert!(!listed.out.contains('\u{1b}'), "colours without a terminal");

    let json = workspace.run(&["tools", "--json"]).await.json();
    let tools = json["tools"].as_array().unwrap();
    let order = tools.iter().find(|tool| tool["name"] == "market_order_create").unwrap();
    assert_eq!(order["risk"], "critical");
    assert_eq!(order["levels"], serde_json::json!(["deny", "deny", "ask", "ask"]));
}

#[tokio::test]
async fn g13_verdicts_depend_on_level_and_agent() {
    let workspace = TestWorkspace::new();
    let level = workspace.run(&["tools", "--level", "1"]).await;
    level.assert_prints(&["L1 REASON", "market_order_create write_high_risk ask catalog"]);
    let none = workspace.run(&["tools", "--level", "0"]).await;
    none.assert_prints(&["deny market_order_create is write_high_risk: requires autonomy level"]);
    assert!(!level.out.contains("L2"), "{}", level.out);

    let json =
        workspace.run(&["tools", "--level", "1", "--agent", "reader", "--json"]).await.json();
    let tools = json["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let matches_agent = |name: &&str| name.starts_with("get_") || name.starts_with("create_");
    assert!(names.len() > 3 && names.iter().all(matches_agent), "{names:?}");
    let bookmark = tools.iter().find(|tool| tool["name"] == "create_bookmark").unwrap();
    assert_eq!(bookmark["verdict"]["ruling"], "deny");
    assert!(bookmark["verdict"]["why"].as_str().unwrap().contains("headless"), "{bookmark}");

    let unknown = workspace.run(&["tools", "--agent", "nobody"]).await;
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("default, reader"), "{unknown:?}");
    assert_eq!(workspace.run(&["tools", "--level", "4"]).await.code, 2);
}
