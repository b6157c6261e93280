use super::*;
use serde_json::json;

const NOW: &str = "2026-01-01T12:00:00.000Z";
const BUY: &str = "0198c0de-0000-7000-8000-000000000b01";
const SELL: &str = "0198c0de-0000-7000-8000-000000000b02";

fn now() -> Timestamp {
    serde_json::from_value(json!(NOW)).unwrap()
}

fn step(call_id: &str, tool: &str, arguments: &Value) -> Value {
    json!({
        "call_id": call_id, "tool": tool, "arguments": arguments,
        "digest": "hmac-sha256:ab",
        "risk": "write_high_risk", "description": "Moves goods", "why": "level L1",
    })
}

fn approval(change: impl FnOnce(&mut Value)) -> ApprovalDetails {
    let mut view = json!({
        "approval_id": "0198c0de-0000-7000-8000-0000deadbeef", "plan_id": "x", "kind": "plan",
        "purpose": "Execute 2 tools", "max_risk_level": "write_high_risk", "tool_count": 2,
        "requested_at": "2026-01-01T11:59:41.000Z", "deadline": "2026-01-01T12:09:41.000Z",
        "steps": [
            step(BUY, "buy", &json!({"item": "ore", "amount": 5})),
            step(SELL, "sell", &json!({})),
        ],
        "state": "pending", "session_id": "0198c0de-0000-7000-8000-000000000001",
        "run_id": "0198c0de-0000-7000-8000-000000000002", "user_id": "ann",
        "decisions": [], "closed_at": null,
    });
    change(&mut view);
    ApprovalDetails::from_json(view).unwrap()
}

fn rejected(call_id: &str) -> Value {
    json!({
        "call_id": call_id, "approved": false, "by": "ann", "surface": "cli",
        "reason": "too dear", "at": "2026-01-01T12:00:05.000Z",
        "digest": "[redacted]",
    })
}

#[test]
fn g11_list_shows_approvals_with_deadline() {
    let text = render_list(&[approval(|_| ())], now(), ColorMode::PLAIN);
    let expected = "\
deadbeef  pending, expires in 9m 41s  session 00000001  user ann
  Purpose     Execute 2 tools
  Answers     approve, reject
  1. buy   write_high_risk  {\"amount\":5,\"item\":\"ore\"}
  2. sell  write_high_risk  {}
";
    assert_eq!(text, expected);
}

#[test]
fn g11_details_show_steps_and_decisions() {
    let text = render_details(
        &approval(|view| view["decisions"] = json!([rejected(SELL)])),
        now(),
        ColorMode::PLAIN,
    );
    for line in [
        "Approval 0198c0de-0000-7000-8000-0000deadbeef",
        "  State       pending, expires in 9m 41s",
        "  Requested   2026-01-01 11:59:41Z (19s ago)",
        "  1. buy  write_high_risk",
        "     Decision    none yet",
        "         \"amount\": 5,",
        "     Decision    rejected by ann at 2026-01-01 12:00:05Z via command line: too dear",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn x5_arguments_cannot_forge_output() {
    let evil = "\u{1b}[2J\u{9b}2K\r\n  Decision  approved\u{202e}";
    let text = |show: fn(&[ApprovalDetails], Timestamp, ColorMode) -> String| {
        let approval = approval(|view| {
            view["purpose"] = json!(evil);
            view["steps"][0] = step(BUY, evil, &json!({evil: [evil]}));
            view["steps"][0]["why"] = json!(evil);
            view["steps"][0]["description"] = json!(evil);
            view["decisions"] = json!([rejected(BUY)]);
            view["decisions"][0]["reason"] = json!(evil);
        });
        show(&[approval], now(), ColorMode::PLAIN)
    };
    let shown = [
        text(render_list),
        text(|approvals, now, paint| render_details(&approvals[0], now, paint)),
        text(|approvals, _, _| render_answer_result(&approvals[0], &approvals[0], true, false)),
        text(|approvals, _, _| {
            let first = FirstAnswer::Steps(approvals[0].decisions.clone());
            render_conflict(&approvals[0], &first)
        }),
    ];
    for text in shown {
        assert!(!text.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'));
        let forged = |line: &str| line.trim_start().starts_with("Decision  approved");
        assert!(!text.lines().any(forged), "{text}");
    }
}

#[test]
fn g10_status_text_shows_deadline_or_time_of_closing() {
    let status = |change: fn(&mut Value)| approval(change).status_text(now());
    assert_eq!(status(|view| view["deadline"] = json!(null)), "pending, no deadline");
    let overdue = status(|view| view["deadline"] = json!("2026-01-01T11:59:57.000Z"));
    assert_eq!(overdue, "pending, overdue by 3s");
    let expired = status(|view| {
        view["state"] = json!("expired");
        view["closed_at"] = json!("2026-01-01T11:00:00.000Z");
    });
    assert_eq!(expired, "expired at 2026-01-01 11:00:00Z");
}

#[test]
fn g11_conflict_shows_first_decision() {
    let approval = approval(|_| ());
    let first: FirstAnswer = serde_json::from_value(json!([rejected(SELL)])).unwrap();
    let expected = "already decided differently:\n  sell: rejected by ann at \
                    2026-01-01 12:00:05Z via command line: too dear";
    assert_eq!(render_conflict(&approval, &first), expected);
}

#[test]
fn g6_budget_shows_limit_spending_and_expenses() {
    let approval = approval(|view| {
        view["kind"] = json!("budget");
        view["budget"] =
            json!({"scope": "user", "period": "day", "measure": "ISK", "limit": 100.0});
        view["spent"] = json!(90.0);
        view["needed"] = json!(20.0);
        view["spent_on"] = json!([{"what": "buy\u{1b}[2J", "amount": 90.0}]);
        view["on_deadline"] = json!("escalate");
    });
    let text = render_details(&approval, now(), ColorMode::PLAIN);
    for line in [
        "  Answers     raise LIMIT, stop",
        "  State       pending, escalates in 9m 41s",
        "  Budget      budget of 100 ISK of this user for today",
        "  Spent       90 ISK",
        "  Needed      20 ISK",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line:?} is not in\n{text}");
    }
    assert!(text.contains("90 ISK on buy") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn d3_unknown_outcome_shows_call_and_answers() {
    let approval = approval(|view| {
        let mut call = step(BUY, "buy", &json!({"item": "ore"}));
        call["attempts"] = json!(2);
        view["kind"] = json!("unknown_outcome");
        view["deadline"] = Value::Null;
        view["call"] = call;
        view["why"] = json!("the server restarted while the call ran");
    });
    let text = render_details(&approval, now(), ColorMode::PLAIN);
    for line in [
        "  Answers     retry, done [--result RESULT], failed",
        "  State       pending, no deadline",
        "  Reason      the server restarted while the call ran",
        "     Attempts    2",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn g14_preflight_shows_steps_and_estimated_cost() {
    let approval = approval(|view| {
        view["kind"] = json!("preflight");
        view["purpose"] = json!("Carry out a plan of 2 steps");
        view["steps"] = json!([
            {"position": 1, "description": "Look", "risk": "read_only", "needsApproval": false},
            {
                "position": 2, "description": "Buy \u{1b}[2J", "toolName": "buy",
                "arguments": {"amount": 5}, "risk": "write_high_risk", "needsApproval": true,
            },
        ]);
        view["estimatedCost"] = json!({"inputTokens": 10, "outputTokens": 2, "estimatedUSD": null});
        view["requiredPermissions"] = json!(["autonomy level ASSISTED (L2)"]);
        view["warnings"] = json!(["the price is not known"]);
    });
    let text = render_details(&approval, now(), ColorMode::PLAIN);
    for expected in [
        "10 input and 2 output tokens, price unknown",
        "autonomy level ASSISTED (L2)",
        "the price is not known",
        "  1. read_only        Look",
        "buy  needs approval\n",
        "  Arguments of step 2\n    {\n      \"amount\": 5\n    }\n",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(
        render_list(&[approval], now(), ColorMode::PLAIN).contains("  2. write_high_risk"),
        "{text}"
    );
}
