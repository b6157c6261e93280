//! `greenroom approvals` against a running server.

use crate::harness::TestWorkspace;
use serde_json::json;

#[tokio::test]
async fn g11_a_plan_is_seen_and_answered_step_by_step() {
    let server = TestWorkspace::new().start_server().await;
    let nothing = server.run(&["approvals", "list"]).await;
    assert_eq!((nothing.code, nothing.out.as_str()), (0, "No pending approvals.\n"));

    let id = server.plan().await;
    let short = &id[id.len() - 8..];
    let listed = server.run(&["approvals", "list"]).await;
    assert_eq!(listed.code, 0);
    listed.assert_prints(&[
        short,
        "pending, expires in 9m",
        "Execute 2 tools",
        "1. market_order_create  write_high_risk  {",
        "2. market_order_create",
    ]);
    assert!(!listed.out.contains('\u{1b}'), "there is no terminal to colour");

    let shown = server.run(&["approvals", "show", short]).await;
    shown.assert_prints(&[&id, "Reason", "\"type_id\": 35", "Decision    none yet"]);
    let view = server.run(&["approvals", "show", &id, "--json"]).await.json();
    assert_eq!(
        (&view["state"], &view["steps"][1]["arguments"]["price"]),
        (&json!("pending"), &json!(9))
    );
    let call = view["steps"][0]["call_id"].as_str().unwrap();

    // One of two: the question stays open.
    let args = ["approvals", "approve", short, "--step", &call[call.len() - 6..]];
    let one = server.run(&args).await;
    assert_eq!(one.code, 0, "{one:?}");
    one.assert_prints(&["1 step approved", "approved by admin at", "Undecided steps: 1."]);
    let rest = server.run(&["approvals", "reject", short, "--reason", "too dear"]).await;
    assert_eq!(rest.code, 0, "{rest:?}");
    rest.assert_prints(&["1 step rejected", "via command line: too dear"]);

    let decided = server.run(&["approvals", "list", "--state", "decided", "--json"]).await.json();
    let decisions = decided["approvals"][0]["decisions"].as_array().unwrap();
    let said: Vec<_> = decisions
        .iter()
        .map(|said| (said["approved"] == true, said["surface"].as_str().unwrap()))
        .collect();
    assert_eq!(said, [(true, "cli"), (false, "cli")]);
    assert_eq!(server.run(&["approvals", "list"]).await.out, "No pending approvals.\n");
}

#[tokio::test]
async fn g11_the_first_answer_wins_and_who_comes_later_is_told() {
    let server = TestWorkspace::new().start_server().await;
    let id = server.plan().await;
    let path = format!("/agent/approvals/{id}");
    server.post(&path, json!({"decision": "reject", "reason": "not now"})).await;

    let late = server.run(&["approvals", "approve", &id]).await;
    assert_eq!((late.code, late.out.as_str()), (1, ""), "{late:?}");
    let told = ["already decided differently", "rejected by admin at", "via REST: not now"];
    assert!(told.iter().all(|text| late.err.contains(text)), "{late:?}");

    let again = server.run(&["approvals", "reject", &id]).await;
    assert_eq!(again.code, 0, "{again:?}");
    again.assert_prints(&["already answered this way"]);
}

#[tokio::test]
async fn what_makes_no_sense_is_a_matter_of_usage() {
    let server = TestWorkspace::new().start_server().await;
    for args in [
        &["approvals", "show", "abc"][..],
        &["approvals", "show", "ffffffffffff"],
        &["approvals", "approve"],
        &["approvals", "list", "--state", "maybe"],
        &["approvals", "list", "--limit", "0"],
        &["events"],
    ] {
        let ended = server.run(args).await;
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{args:?}: {ended:?}");
    }
    // A plan is no form.
    let id = server.plan().await;
    let filled_in = server.run(&["approvals", "answer", &id, "n=1"]).await;
    assert_eq!(filled_in.code, 2, "{filled_in:?}");
    assert!(filled_in.err.contains("approval of kind `plan`"), "{filled_in:?}");
    // A whole id that nothing has is as wrong as a part of one.
    let unknown = "0198c0de-0000-7000-8000-000000000001";
    for (args, why) in [
        (["approvals", "approve", unknown], "approval not found"),
        (["approvals", "show", unknown], "approval not found"),
        (["events", "--session", unknown], "session not found"),
        (["key", "revoke", unknown], "API key not found"),
    ] {
        let refused = server.run(&args).await;
        assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{args:?}: {refused:?}");
        assert!(refused.err.contains(why), "{args:?}: {refused:?}");
    }
    // Nobody is there.
    let alone = server.workspace.run(&["approvals", "list"]).await;
    assert_eq!(alone.code, 1);
    assert!(alone.err.contains("no server at http://127.0.0.1:1"), "{alone:?}");
}
