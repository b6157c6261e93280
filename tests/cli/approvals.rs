//! Tests of `greenroom approvals` against a running server.

use crate::harness::TestWorkspace;
use serde_json::json;

#[tokio::test]
async fn g11_plan_is_shown_and_decided_step_by_step() {
    let server = TestWorkspace::new().start_server().await;
    let empty = server.run(&["approvals", "list"]).await;
    assert_eq!((empty.code, empty.out.as_str()), (0, "No pending approvals.\n"));

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
    assert!(!listed.out.contains('\u{1b}'), "colours without a terminal");

    let shown = server.run(&["approvals", "show", short]).await;
    shown.assert_prints(&[&id, "Reason", "\"type_id\": 35", "Decision    none yet"]);
    let view = server.run(&["approvals", "show", &id, "--json"]).await.json();
    assert_eq!(
        (&view["state"], &view["steps"][1]["arguments"]["price"]),
        (&json!("pending"), &json!(9))
    );
    let call = view["steps"][0]["call_id"].as_str().unwrap();

    // After one of two decisions, the approval is still pending.
    let args = ["approvals", "approve", short, "--step", &call[call.len() - 6..]];
    let first = server.run(&args).await;
    assert_eq!(first.code, 0, "{first:?}");
    first.assert_prints(&["1 step approved", "approved by admin at", "Undecided steps: 1."]);
    let second = server.run(&["approvals", "reject", short, "--reason", "too dear"]).await;
    assert_eq!(second.code, 0, "{second:?}");
    second.assert_prints(&["1 step rejected", "via command line: too dear"]);

    let decided = server.run(&["approvals", "list", "--state", "decided", "--json"]).await.json();
    let decisions = decided["approvals"][0]["decisions"].as_array().unwrap();
    let decisions: Vec<_> = decisions
        .iter()
        .map(|decision| (decision["approved"] == true, decision["surface"].as_str().unwrap()))
        .collect();
    assert_eq!(decisions, [(true, "cli"), (false, "cli")]);
    assert_eq!(server.run(&["approvals", "list"]).await.out, "No pending approvals.\n");
}

#[tokio::test]
async fn g11_first_answer_wins_and_later_command_reports_it() {
    let server = TestWorkspace::new().start_server().await;
    let id = server.plan().await;
    let path = format!("/agent/approvals/{id}");
    server.post(&path, json!({"decision": "reject", "reason": "not now"})).await;

    let late_answer = server.run(&["approvals", "approve", &id]).await;
    assert_eq!((late_answer.code, late_answer.out.as_str()), (1, ""), "{late_answer:?}");
    let texts = ["already decided differently", "rejected by admin at", "via REST: not now"];
    assert!(texts.iter().all(|text| late_answer.err.contains(text)), "{late_answer:?}");

    let repeated_answer = server.run(&["approvals", "reject", &id]).await;
    assert_eq!(repeated_answer.code, 0, "{repeated_answer:?}");
    repeated_answer.assert_prints(&["already answered this way"]);
}

#[tokio::test]
async fn invalid_arguments_exit_with_code_2() {
    let server = TestWorkspace::new().start_server().await;
    for args in [
        &["approvals", "show", "abc"][..],
        &["approvals", "show", "ffffffffffff"],
        &["approvals", "approve"],
        &["approvals", "list", "--state", "maybe"],
        &["approvals", "list", "--limit", "0"],
        &["events"],
    ] {
        let output = server.run(args).await;
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{args:?}: {output:?}");
    }
    // `answer` is for forms; a plan is not a form.
    let id = server.plan().await;
    let output = server.run(&["approvals", "answer", &id, "n=1"]).await;
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.err.contains("approval of kind `plan`"), "{output:?}");
    // A complete id that does not exist fails like a part of an id.
    let unknown = "0198c0de-0000-7000-8000-000000000001";
    for (args, why) in [
        (["approvals", "approve", unknown], "approval not found"),
        (["approvals", "show", unknown], "approval not found"),
        (["events", "--session", unknown], "session not found"),
        (["key", "revoke", unknown], "API key not found"),
    ] {
        let output = server.run(&args).await;
        assert_eq!((output.code, output.out.as_str()), (2, ""), "{args:?}: {output:?}");
        assert!(output.err.contains(why), "{args:?}: {output:?}");
    }
    // No server runs at this address.
    let output = server.workspace.run(&["approvals", "list"]).await;
    assert_eq!(output.code, 1);
    assert!(output.err.contains("no server at http://127.0.0.1:1"), "{output:?}");
}
