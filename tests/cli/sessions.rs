//! Commands that name a session, or make one.

use crate::harness::TestWorkspace;
use serde_json::json;

#[tokio::test]
async fn a_session_is_named_by_what_lists_show_of_it() {
    let server = TestWorkspace::new().start_server().await;
    let answer = server.post("/agent/chat", json!({"message": "stock up"})).await;
    let session = answer["session_id"].as_str().unwrap();
    let short = &session[session.len() - 6..];
    let whole = server.run(&["events", "--session", session]).await;
    assert_eq!(whole.code, 0, "{whole:?}");
    assert!(whole.out.contains(&format!("  {short}  ")), "{whole:?}");
    let named = server.run(&["events", "--session", short]).await;
    assert_eq!((named.code, &named.out), (0, &whole.out), "{named:?}");
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
        let nonsense = server.run(&[args, &["b0b"]].concat()).await;
        assert_eq!(nonsense.code, 2, "{nonsense:?}");
        assert!(nonsense.err.contains("give at least 6 characters of an id"), "{nonsense:?}");
    }
}

#[tokio::test]
async fn c3_a_workflow_that_is_refused_leaves_no_session_behind() {
    let desk = TestWorkspace::new();
    desk.write("greenroom.toml", &desk.configuration("workflows = [\"workflows\"]"));
    std::fs::create_dir(desk.folder.path().join("workflows")).unwrap();
    let workflow =
        "---\nname: stock\ndescription: Stocks up\ninputs:\n  n:\n    type: integer\n---\nstock up";
    desk.write("workflows/stock.md", workflow);
    let server = desk.start_server().await;
    for (args, why) in [
        (&["--workflow", "nope"][..], "there is no workflow `nope`"),
        (&["--workflow", "stock", "--input", "m=1"], "workflow.inputs.m"),
        (&["--workflow", "nope", "--agent", "reader"], "workflow `nope` not found"),
    ] {
        let refused = server.run(&[&["chat"], args].concat()).await;
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains(why), "{refused:?}");
    }
    let wish = json!({"workflow": {"name": "nope"}});
    assert_eq!(server.post("/agent/chat", wish).await["code"], "unknown_workflow");
    assert_eq!(server.get("/agent/session").await["sessions"], json!([]));

    // An input without a workflow is for nothing.
    let refused = server.run(&["chat", "stock up", "--input", "n=1"]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[tokio::test]
async fn that_there_are_no_keys_is_said() {
    let server = TestWorkspace::new().start_server().await;
    let none = server.run(&["key", "list"]).await;
    assert_eq!(
        (none.code, none.out.as_str()),
        (0, "No API keys. Create one with `greenroom key create`.\n")
    );
    assert_eq!(server.run(&["key", "list", "--json"]).await.json(), json!([]));
}

#[tokio::test]
async fn x2_keys_are_made_listed_and_revoked_wherever_the_configuration_is_named() {
    let server = TestWorkspace::new().start_server().await;
    let config = ["--config", "greenroom.toml"];
    let made = server.run(&[&["key", "create", "--user", "ada"][..], &config].concat()).await;
    assert_eq!(made.code, 0, "{made:?}");
    for args in
        [[&["key", "list"][..], &config].concat(), [&["key"][..], &config, &["list"]].concat()]
    {
        let listed = server.run(&args).await;
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.assert_prints(&["user      ada"]);
    }
}
