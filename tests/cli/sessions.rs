//! Tests of commands that take the id of a session or create one.

use crate::harness::TestWorkspace;
use serde_json::json;

#[tokio::test]
async fn session_is_found_by_short_id_shown_in_lists() {
    let server = TestWorkspace::new().start_server().await;
    let response = server.post("/agent/chat", json!({"message": "stock up"})).await;
    let session = response["session_id"].as_str().unwrap();
    let short = &session[session.len() - 6..];
    let whole = server.run(&["events", "--session", session]).await;
    assert_eq!(whole.code, 0, "{whole:?}");
    assert!(whole.out.contains(&format!("  {short}  ")), "{whole:?}");
    let by_short_id = server.run(&["events", "--session", short]).await;
    assert_eq!((by_short_id.code, &by_short_id.out), (0, &whole.out), "{by_short_id:?}");
    let listed = server.run(&["approvals", "list", "--session", short]).await;
    listed.assert_prints(&["Execute 2 tools"]);
    let checked = server.run(&["policy", "check", "--session", short]).await;
    checked.assert_prints(&["3 calls of 1 session checked"]);

    for args in [
        &["events", "--session"][..],
        &["approvals", "list", "--session"],
        &["policy", "check", "--session"],
        &["chat", "hello", "--session"],
    ] {
        let none = server.run(&[args, &["ffffff"]].concat()).await;
        assert_eq!(none.code, 2, "{none:?}");
        let why = "no session has an id that ends or begins with `ffffff`";
        assert!(none.err.contains(why), "{none:?}");
        let too_short = server.run(&[args, &["b0b"]].concat()).await;
        assert_eq!(too_short.code, 2, "{too_short:?}");
        assert!(too_short.err.contains("give at least 6 characters of an id"), "{too_short:?}");
    }
}

#[tokio::test]
async fn c3_rejected_workflow_creates_no_session() {
    let workspace = TestWorkspace::new();
    workspace.write("greenroom.toml", &workspace.configuration("workflows = [\"workflows\"]"));
    std::fs::create_dir(workspace.folder.path().join("workflows")).unwrap();
    let workflow =
        "---\nname: stock\ndescription: Stocks up\ninputs:\n  n:\n    type: integer\n---\nstock up";
    workspace.write("workflows/stock.md", workflow);
    let server = workspace.start_server().await;
    for (args, why) in [
        (&["--workflow", "nope"][..], "unknown workflow `nope`"),
        (&["--workflow", "stock", "--input", "m=1"], "workflow.inputs.m"),
        (&["--workflow", "nope", "--agent", "reader"], "workflow `nope` not found"),
    ] {
        let output = server.run(&[&["chat"], args].concat()).await;
        assert_eq!(output.code, 1, "{output:?}");
        assert!(output.err.contains(why), "{output:?}");
    }
    let request = json!({"workflow": {"name": "nope"}});
    assert_eq!(server.post("/agent/chat", request).await["code"], "unknown_workflow");
    assert_eq!(server.get("/agent/session").await["sessions"], json!([]));

    // `--input` without `--workflow` is an error.
    let output = server.run(&["chat", "stock up", "--input", "n=1"]).await;
    assert_eq!(output.code, 2, "{output:?}");
}

#[tokio::test]
async fn key_list_prints_message_without_keys() {
    let server = TestWorkspace::new().start_server().await;
    let none = server.run(&["key", "list"]).await;
    assert_eq!(
        (none.code, none.out.as_str()),
        (0, "No API keys. Create one with `greenroom key create`.\n")
    );
    assert_eq!(server.run(&["key", "list", "--json"]).await.json(), json!([]));
}

#[tokio::test]
async fn x2_keys_are_created_and_listed_with_config_flag_at_any_position() {
    let server = TestWorkspace::new().start_server().await;
    let config = ["--config", "greenroom.toml"];
    let created = server.run(&[&["key", "create", "--user", "ada"][..], &config].concat()).await;
    assert_eq!(created.code, 0, "{created:?}");
    for args in
        [[&["key", "list"][..], &config].concat(), [&["key"][..], &config, &["list"]].concat()]
    {
        let listed = server.run(&args).await;
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.assert_prints(&["user      ada"]);
    }
}
