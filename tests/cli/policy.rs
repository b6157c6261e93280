//! Tests of `greenroom policy`: `check` on the log of a running server, and `show`.

use crate::harness::TestWorkspace;
use serde_json::{Value, json};

#[tokio::test]
async fn g16_policy_check_lists_decisions_of_stricter_policy_that_differ() {
    let server = TestWorkspace::new().start_server().await;
    server.plan().await;
    let same = server.run(&["policy", "check"]).await;
    assert_eq!(same.code, 0, "{same:?}");
    assert_eq!(same.out, "3 calls of 1 session checked: no decision differs.\n");

    let stricter = "policy = \"strict\"\n[tools.market_order_create]\nserver = \"market\"\nrisk = \"write_high_risk\"\n\
                    [tools.create_shopping_list]\nserver = \"market\"\nrisk = \"write_low_risk\"\n\
                    constraints = [{ allow_if = \"size(args.name) < 5\", reason = \"short names\" }]";
    server.workspace.write("stricter.toml", &server.workspace.configuration(stricter));
    let check = ["policy", "check", "--config", "stricter.toml"];
    let changed = server.run(&check).await;
    assert_eq!(changed.code, 1, "{changed:?}");
    changed.assert_prints(&[
        "user admin  agent default",
        "ask   → deny     market_order_create",
        "allow → deny     create_shopping_list",
        "requires autonomy level ASSISTED (L2) or higher",
        "create_shopping_list is denied: short names",
        "3 calls of 1 session checked: 3 decisions differ (allow → deny: 1, ask → deny: 2).",
    ]);
    let json = server.run(&[&check[..], &["--json"]].concat()).await;
    let lines: Vec<Value> =
        json.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tools: Vec<_> = lines.iter().filter_map(|line| line["tool"].as_str()).collect();
    assert_eq!(tools.len(), 3);
    assert_eq!(lines[0]["type"], "difference");
    let summary = json!({
        "type": "summary", "sessions": 1, "calls": 3, "different": 3, "unknown": 0,
        "changes": [
            {"was": "allow", "would_be": "deny", "count": 1},
            {"was": "ask", "would_be": "deny", "count": 2},
        ],
    });
    assert_eq!(lines[3], summary);

    // No call is that recent, and no session has that id.
    let later = server.run(&[&check[..], &["--since", "2999-01-01T00:00:00Z"]].concat()).await;
    assert_eq!(later.out, "0 calls of 0 sessions checked: no decision differs.\n");
    let all = server.run(&[&check[..], &["--since", "1h"]].concat()).await;
    assert_eq!(all.code, 1);
    let session = lines[0]["session_id"].as_str().unwrap();
    assert_eq!(server.run(&[&check[..], &["--session", session]].concat()).await.code, 1);
    let unknown = "0198c0de-0000-7000-8000-000000000001";
    assert_eq!(server.run(&[&check[..], &["--session", unknown]].concat()).await.code, 2);
    // The server still works.
    server.plan().await;
}

#[tokio::test]
async fn g16_policy_check_connects_to_servers_on_demand_and_reports_unknown() {
    let server = TestWorkspace::new().start_server().await;
    server.plan().await;
    let trusting = server
        .workspace
        .configuration("")
        .replace("[mcpServers.market]", "[mcpServers.market]\ntrusted = true");
    server.workspace.write("trusting.toml", &trusting);
    let check = ["policy", "check", "--config", "trusting.toml"];
    let unknown = server.run(&check).await;
    assert_eq!(unknown.code, 1, "{unknown:?}");
    unknown.assert_prints(&["unknown", "the trusted server market", "--with-servers", "3 unknown"]);
    let known = server.run(&[&check[..], &["--with-servers"]].concat()).await;
    assert!(!known.out.contains("unknown"), "{known:?}");
}

#[tokio::test]
async fn g16_unreadable_log_is_not_reported_as_difference() {
    let workspace = TestWorkspace::new();
    let output = workspace.run(&["policy", "check"]).await;
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.err.contains("workspace.db"), "{output:?}");
    assert!(!workspace.folder.path().join("workspace.db").exists());
}

/// The page `docs/command-line.md` shows this command with its output.
#[tokio::test]
async fn g17_policy_show_prints_what_its_page_shows() {
    let root = env!("CARGO_MANIFEST_DIR");
    let page = std::fs::read_to_string(format!("{root}/docs/command-line.md")).unwrap();
    let command = "$ greenroom policy show --config examples/team.toml --role user\n";
    let shown = page.split_once(command).expect("the page shows the command").1;
    let expected = shown.split_once("```").unwrap().0;
    let example = format!("{root}/examples/team.toml");
    let args = ["policy", "show", "--config", &example, "--role", "user"];
    let output = TestWorkspace::new().run(&args).await;
    assert_eq!((output.code, output.out.as_str()), (0, expected), "{output:?}");
}
