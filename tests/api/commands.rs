//! The commands of the `greenroom` binary.

use crate::{
    harness::{TOKEN, TestServerBuilder, market_binary, run},
    scripts::STALLS_ONCE,
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};
use std::{path::Path, process::Output};

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn combined_output(output: &Output) -> String {
    format!("{}{}", stdout(output), String::from_utf8_lossy(&output.stderr))
}

fn write_configuration(folder: &Path, extra_config: &str) {
    let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/market/catalog.toml");
    let text = format!(
        "include = [{:?}]\n[mcpServers.market]\ncommand = {:?}\nenv = {{ MARKET_FILE = {:?} }}\n{extra_config}",
        catalog.display(),
        market_binary().display(),
        folder.join("market.jsonl").display(),
    );
    std::fs::write(folder.join("greenroom.toml"), text).unwrap();
}

#[actix_web::test]
async fn g1_tools_command_lists_risk_and_reason_of_each_tool() {
    let folder = tempfile::tempdir().unwrap();
    write_configuration(folder.path(), "");
    let listed = run(folder.path(), &["tools"], &[]).await;
    assert!(listed.status.success(), "{}", combined_output(&listed));
    let text = stdout(&listed);
    let line = |name: &str| {
        let matches = |line: &&str| line.trim_start().starts_with(name);
        text.lines().find(matches).unwrap_or_else(|| panic!("{text}"))
    };
    assert!(line("market:").contains("21 tools"));
    let words: Vec<_> = line("wallet_transfer").split_whitespace().collect();
    assert_eq!(words[1..6], ["critical", "deny", "deny", "ask", "ask"], "{words:?}");
    assert!(line("wallet_transfer").contains("catalog"));
    let listed = run(folder.path(), &["tools", "--json"], &[]).await;
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let tools = listed["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 21);
    let order = tools.iter().find(|tool| tool["name"] == "market_order_create").unwrap();
    assert_eq!(order["levels"], json!(["deny", "ask", "ask", "allow"]));
    assert_eq!((&order["risk"], &order["repeatable"]), (&json!("write_high_risk"), &json!(true)));
    assert!(!folder.path().join("greenroom.db").exists(), "the command creates no database");
}

#[actix_web::test]
async fn a4_doctor_reports_problems() {
    let folder = tempfile::tempdir().unwrap();
    write_configuration(folder.path(), "");
    // The default port may be in use on this machine.
    let any_port = [("GREENROOM_LISTEN", "127.0.0.1:0")];
    let healthy = run(folder.path(), &["doctor"], &any_port).await;
    assert!(healthy.status.success(), "{}", combined_output(&healthy));
    for line in [
        "ok    configuration",
        "ok    database",
        "ok    agent default",
        "ok    tools market: 21 tools",
    ] {
        assert!(stdout(&healthy).contains(line), "{line} in {}", stdout(&healthy));
    }
    write_configuration(folder.path(), "[mcpServers.broken]\ncommand = '/nonexistent/program'");
    let output = run(folder.path(), &["doctor"], &[]).await;
    assert!(!output.status.success());
    assert!(stdout(&output).contains("FAIL  tools broken"), "{}", combined_output(&output));
    write_configuration(folder.path(), "nonsense = true");
    let output = run(folder.path(), &["doctor"], &[]).await;
    assert!(!output.status.success());
    assert!(
        stdout(&output).contains("FAIL  configuration") && stdout(&output).contains("nonsense")
    );
    let output = run(folder.path(), &["serve"], &[]).await;
    assert!(
        !output.status.success() && combined_output(&output).contains("nonsense"),
        "{}",
        combined_output(&output)
    );
}

#[actix_web::test]
async fn d5_migrate_updates_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), &["migrate"], &[]).await;
    assert!(
        first.status.success() && stdout(&first).contains("schema version"),
        "{}",
        combined_output(&first)
    );
    let second = run(folder.path(), &["migrate"], &[]).await;
    assert!(stdout(&second).contains("nothing to do"), "{}", combined_output(&second));
    std::fs::write(folder.path().join("other.db"), "this is no database, but long enough").unwrap();
    let bad = run(folder.path(), &["migrate", "--database", "other.db"], &[]).await;
    assert!(
        !bad.status.success() && combined_output(&bad).contains("other.db"),
        "{}",
        combined_output(&bad)
    );
}

#[actix_web::test]
async fn x1_serve_refuses_a_public_address_without_authentication() {
    let folder = tempfile::tempdir().unwrap();
    let refused = run(folder.path(), &["serve"], &[("GREENROOM_LISTEN", "0.0.0.0:0")]).await;
    assert!(!refused.status.success());
    let output = combined_output(&refused);
    assert!(output.contains("0.0.0.0"), "{output}");
    assert!(!folder.path().join("greenroom.db").exists(), "nothing was created: {output}");
}

#[actix_web::test]
async fn port_in_use_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = run(folder.path(), &["serve"], &[("GREENROOM_LISTEN", &address)]).await;
    assert!(!refused.status.success());
    assert!(
        combined_output(&refused).contains(&format!("can't listen on {address}")),
        "{}",
        combined_output(&refused)
    );
}

#[actix_web::test]
async fn events_command_prints_all_events_of_a_session() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    // More than one page of events.
    for _ in 0..15 {
        server.chat_to_end(&session, "again").await;
    }
    let address = server.url().trim_start_matches("http://").to_owned();
    let env = [("GREENROOM_LISTEN", address.as_str()), ("GREENROOM_TOKEN", TOKEN)];
    let args = ["events", "--session", &session, "--json"];
    let printed = run(server.folder(), &args, &env).await;
    assert!(printed.status.success(), "{}", combined_output(&printed));
    let printed: Vec<Value> =
        stdout(&printed).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events = server.events(&session).await;
    assert!(events.len() > 100, "{}", events.len());
    assert_eq!(printed.len(), events.len(), "all pages");
    assert_eq!(printed, events);
    let args = ["events", "--session", &session, "--after", "3"];
    let printed = run(server.folder(), &args, &env).await;
    assert_eq!(stdout(&printed).lines().count(), events.len() - 3);
    let args = ["events", "--session", "0198c0de-0000-7000-8000-000000000001"];
    let unknown = run(server.folder(), &args, &env).await;
    assert!(!unknown.status.success() && combined_output(&unknown).contains("session not found"));
    let env = [("GREENROOM_LISTEN", "127.0.0.1:1"), env[1]];
    let unreachable = run(server.folder(), &args, &env).await;
    assert!(combined_output(&unreachable).contains("no server at http://127.0.0.1:1"));
}

/// The examples for Grafana and Prometheus use only metrics that `docs/operations.md` documents.
#[actix_web::test]
async fn a4_example_dashboards_use_documented_metrics() {
    let read = |path: &str| {
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
            .unwrap()
    };
    let documentation = read("docs/operations.md");
    let metric = regex::Regex::new("greenroom_[a-z_]+").unwrap();
    for file in ["grafana.json", "alerts.yml"] {
        let text = read(&format!("examples/observability/{file}"));
        let names: std::collections::BTreeSet<_> =
            metric.find_iter(&text).map(|name| name.as_str()).collect();
        // Histograms are documented without the suffixes of their series.
        let names: std::collections::BTreeSet<_> = names
            .into_iter()
            .map(|name| {
                let suffixes = ["_bucket", "_sum", "_count"];
                suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
            })
            .collect();
        assert!(names.len() > 5, "{names:?}");
        for name in names {
            assert!(documentation.contains(&format!("`{name}")), "{file} uses {name}");
        }
    }
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("examples/observability/grafana.json")).unwrap();
    assert_eq!(dashboard["title"], "Greenroom");
}

#[actix_web::test]
async fn m6_metrics_count_runs_calls_and_tokens_per_agent() {
    let server =
        crate::harness::TestServerBuilder::tour(greenroom::rehearsal::ProviderProtocol::Anthropic)
            .start()
            .await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "What is the current sell price of Tritanium in Jita?").await;
    server.chat_to_end(&session, "Transfer 100M ISK to character XYZ").await;
    let request = server.request(reqwest::Method::GET, "/metrics");
    let text = request.send().await.unwrap().text().await.unwrap();
    let value = |series: &str| {
        let line = text.lines().find(|line| line.starts_with(series));
        let line = line.unwrap_or_else(|| panic!("no {series} in {text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(value(r#"greenroom_runs_total{agent="default",outcome="completed"}"#), 2.0);
    assert_eq!(value(r#"greenroom_calls_total{agent="default",outcome="completed"}"#), 1.0);
    assert_eq!(value(r#"greenroom_calls_total{agent="default",outcome="denied"}"#), 1.0);
    assert!(value(r#"greenroom_tokens_total{agent="default",kind="input"}"#) > 0.0);
    assert_eq!(value(r#"greenroom_steps_total{agent="default",outcome="completed"}"#), 4.0);
    assert_eq!(value(r#"greenroom_model_first_token_seconds_count{model="scripted"}"#), 4.0);
    assert_eq!(value("greenroom_approvals_waiting"), 0.0);
    assert_eq!(value(r#"greenroom_actors{kind="Session"}"#), 1.0);
    assert_eq!(value(r#"greenroom_actors_waiting{kind="Session"}"#), 0.0);
    assert!(value(r#"greenroom_mailbox_depth_max{kind="EventBus"}"#) >= 0.0);
    // Each commit is in one write batch and is published to the bus once.
    let commits = value("greenroom_journal_batch_commits_sum");
    let batches = value("greenroom_journal_batch_commits_count");
    assert!(commits >= batches && batches >= 2.0, "{commits} in {batches}");
    assert_eq!(value(r#"greenroom_journal_batch_commits_bucket{le="+Inf"}"#), batches);
    assert_eq!(value("greenroom_journal_batch_seconds_count"), batches);
    assert_eq!(value("greenroom_bus_lag_seconds_count"), commits);
    // The scripted model has no price: the cost is reported as unknown, not as zero.
    assert_eq!(value(r#"greenroom_unpriced_runs_total{agent="default"}"#), 2.0);
}
