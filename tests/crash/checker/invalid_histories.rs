//! Shows that each rule of the checker fails on a history with one violation.

use super::{Rule, find_violations};
use crate::history::{
    AcknowledgedCommand, ClientCommand, Frame, History, MarketCall, MarketEffect, Session,
    SubscriberLog,
};
use serde_json::{Value, json};

const ONE: &str = "session-1";
const BOOKMARK: &str = "call-bookmark";
const TRANSFER: &str = "call-transfer";

/// Returns the log of a session that created a bookmark automatically, and transferred money after
/// an approval and, because the outcome was unknown, again after a second approval.
fn valid_log() -> Vec<Value> {
    let by_policy = json!({"kind": "policy", "why": "low"});
    let by_human = json!({"kind": "approval", "approval_id": "plan-1", "by": "ada"});
    let plan = json!({"plan_id": "plan-1", "kind": "plan", "steps": [{"call_id": TRANSFER}]});
    let unknown = json!({
        "plan_id": "plan-2", "kind": "unknown_outcome", "call": {"call_id": TRANSFER},
    });
    let events = [
        ("session_created", json!({"owner": "ada"})),
        ("message_accepted", json!({"message_id": "m1", "text": "go", "run_id": "run-1"})),
        ("run_started", json!({"message_id": "m1"})),
        ("message_started", json!({"message_id": "answer"})),
        ("message_completed", json!({"message_id": "answer", "text": "Calling."})),
        (
            "tool_call_started",
            json!({"call_id": BOOKMARK, "tool": "create_bookmark", "arguments": {"name": "Home"}}),
        ),
        (
            "tool_call_started",
            json!({"call_id": TRANSFER, "tool": "wallet_transfer", "arguments": {"amount": 5}}),
        ),
        ("tool_call_allowed", json!({"call_id": BOOKMARK, "by": by_policy})),
        ("budget_reserved", json!({"call_id": BOOKMARK, "cost": {"amount": 2.0, "unit": "ISK"}})),
        ("tool_call_attempt_started", json!({"call_id": BOOKMARK, "attempt": 1})),
        ("waiting_for_approval", json!({"plan_id": "plan-1", "plan": plan})),
        ("tool_call_completed", json!({"call_id": BOOKMARK, "result": {"bookmark_id": 1}})),
        (
            "approval_decided",
            json!({"plan_id": "plan-1", "closed": true, "steps": [{"call_id": TRANSFER, "approved": true}]}),
        ),
        ("tool_call_allowed", json!({"call_id": TRANSFER, "by": by_human})),
        ("budget_reserved", json!({"call_id": TRANSFER, "cost": {"amount": 5.0, "unit": "ISK"}})),
        ("tool_call_attempt_started", json!({"call_id": TRANSFER, "attempt": 1})),
        ("waiting_for_approval", json!({"plan_id": "plan-2", "plan": unknown})),
        (
            "approval_decided",
            json!({"plan_id": "plan-2", "closed": true, "answer": {"decision": "retry"}}),
        ),
        ("tool_call_attempt_started", json!({"call_id": TRANSFER, "attempt": 2})),
        ("tool_call_completed", json!({"call_id": TRANSFER, "result": {"transfer_id": 1}})),
        ("done", json!({"outcome": "completed"})),
    ];
    let numbered = |(index, (kind, mut event)): (usize, (&str, Value))| {
        event["type"] = json!(kind);
        event["seq"] = json!(index + 1);
        event["session_id"] = json!(ONE);
        event["at"] = json!("2026-11-22T00:00:00.000Z");
        if index > 0 {
            event["run_id"] = json!("run-1");
        }
        event
    };
    events.into_iter().enumerate().map(numbered).collect()
}

/// Returns the frames that a subscriber of the session receives: the message in two fragments.
fn subscriber_log(name: &str) -> SubscriberLog {
    let mut frames = Vec::new();
    for event in valid_log() {
        let seq = event["seq"].as_u64().unwrap();
        let started = event["type"] == "message_started";
        frames.push(Frame { cursor: seq.to_string(), data: event, is_websocket: false });
        if started {
            for (text, offset) in [("Call", 4), ("ing.", 8)] {
                let data = json!({"type": "text", "seq": seq, "text": text});
                frames.push(Frame { cursor: format!("{seq}.{offset}"), data, is_websocket: false });
            }
        }
    }
    let session = ONE.to_owned();
    SubscriberLog { name: name.to_owned(), session, frames, ..SubscriberLog::default() }
}

pub(super) fn valid_history() -> History {
    let events = valid_log();
    let stored = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    let session = Session { status: "idle".to_owned(), pending_approvals: Vec::new(), events };
    let acknowledged = [
        ClientCommand::Create,
        ClientCommand::Submit {
            message_id: "m1".to_owned(),
            text: "go".to_owned(),
            run_id: "run-1".to_owned(),
            seq: Some(2),
        },
        ClientCommand::Decide { approval_id: "plan-1".to_owned(), decision: "approve".to_owned() },
        ClientCommand::Decide { approval_id: "plan-2".to_owned(), decision: "retry".to_owned() },
    ];
    let arrival = |tool: &str, key: &str, arguments: Value| MarketCall {
        tool: tool.to_owned(),
        key: key.to_owned(),
        arguments,
    };
    let effect = |tool: &str, key: &str, arguments: Value, result: Value| MarketEffect {
        tool: tool.to_owned(),
        key: key.to_owned(),
        arguments,
        result,
    };
    History {
        sessions: [(ONE.to_owned(), session)].into(),
        stored: [(ONE.to_owned(), stored)].into(),
        acknowledged: acknowledged
            .map(|command| AcknowledgedCommand { session: ONE.to_owned(), command })
            .into(),
        subscriber_logs: vec![subscriber_log("Ada"), subscriber_log("Bob")],
        market_calls: vec![
            arrival("create_bookmark", BOOKMARK, json!({"name": "Home"})),
            arrival("wallet_transfer", TRANSFER, json!({"amount": 5})),
            arrival("wallet_transfer", TRANSFER, json!({"amount": 5})),
        ],
        effects: vec![
            effect("create_bookmark", BOOKMARK, json!({"name": "Home"}), json!({"bookmark_id": 1})),
            effect("wallet_transfer", TRANSFER, json!({"amount": 5.0}), json!({"transfer_id": 1})),
        ],
        answers: Vec::new(),
        spent: 7.0,
    }
}

/// Returns the rules that a history violates.
pub(super) fn violated_rules(history: &History) -> Vec<Rule> {
    let mut rules: Vec<_> =
        find_violations(history).iter().map(|violation| violation.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// Checks that a valid history with one change violates this rule and not every rule.
#[track_caller]
fn assert_violates(rule: Rule, change: impl FnOnce(&mut History)) {
    let mut history = valid_history();
    change(&mut history);
    let violated = violated_rules(&history);
    assert!(violated.contains(&rule), "{rule:?} is not among {violated:?}");
    assert!(violated.len() <= 3, "{violated:?}");
}

fn events(history: &mut History) -> &mut Vec<Value> {
    &mut history.sessions.get_mut(ONE).unwrap().events
}

/// Changes the n-th event of a type (from 0) in the log and in the received frames.
fn change_event(history: &mut History, kind: &str, nth: usize, change: impl Fn(&mut Value)) {
    let is_kind = |event: &Value| event["type"] == kind;
    let mut logged = events(history).iter_mut().filter(|event| is_kind(event));
    change(logged.nth(nth).unwrap());
    for log in &mut history.subscriber_logs {
        let mut received = log.frames.iter_mut().filter(|frame| is_kind(&frame.data));
        change(&mut received.nth(nth).unwrap().data);
    }
}

/// Replaces an event by one without content, so that the numbers stay.
fn blank_event(history: &mut History, kind: &str, nth: usize) {
    change_event(history, kind, nth, |event| event["type"] = json!("nothing"));
}

#[test]
fn valid_history_passes() {
    assert_eq!(find_violations(&valid_history()), []);
}

#[test]
fn acknowledged_command_missing_from_log_is_found() {
    let rule = Rule::AcknowledgedIsLogged;
    for command in [
        ClientCommand::Cancel { run_id: "run-1".to_owned() },
        ClientCommand::Decide { approval_id: "plan-1".to_owned(), decision: "reject".to_owned() },
        ClientCommand::Decide { approval_id: "plan-2".to_owned(), decision: "done".to_owned() },
        ClientCommand::Retitle { title: "Mine".to_owned() },
        ClientCommand::Fork { from: "session-0".to_owned(), at_seq: 3 },
        ClientCommand::Close,
    ] {
        assert_violates(rule, |history| {
            history.acknowledged.push(AcknowledgedCommand { session: ONE.to_owned(), command });
        });
    }
    assert_violates(rule, |history| {
        let session = "session-2".to_owned();
        history.acknowledged.push(AcknowledgedCommand { session, command: ClientCommand::Create });
    });
    for change in [("text", json!("went")), ("run_id", json!("run-2")), ("message_id", json!("m2"))]
    {
        assert_violates(rule, |history| {
            change_event(history, "message_accepted", 0, |event| {
                event[change.0] = change.1.clone();
            });
        });
    }
}

#[test]
fn received_event_missing_from_log_is_found() {
    let rule = Rule::ReceivedIsLogged;
    assert_violates(rule, |history| {
        history.subscriber_logs[0].frames[7].data["call_id"] = json!("other")
    });
    assert_violates(rule, |history| {
        let mut frame = history.subscriber_logs[1].frames.last().unwrap().clone();
        frame.data["seq"] = json!(20);
        frame.cursor = "20".to_owned();
        history.subscriber_logs[1].frames.push(frame);
    });
    assert_violates(rule, |history| {
        history.subscriber_logs[0].rejected_cursors.push("409 cursor_ahead".to_owned())
    });
    assert_violates(rule, |history| {
        let frame = &mut history.subscriber_logs[0].frames[0];
        let payload = json!({"owner": "bob"});
        frame.data = json!({"type": "session_created", "seq": 1, "session_id": ONE, "payload": payload, "timestamp": frame.data["at"]});
        frame.is_websocket = true;
    });
}

#[test]
fn gap_repetition_or_early_end_of_stream_is_found() {
    let rule = Rule::ReceivedIsComplete;
    assert_violates(rule, |history| drop(history.subscriber_logs[0].frames.remove(9)));
    assert_violates(rule, |history| {
        let frame = history.subscriber_logs[0].frames[9].clone();
        history.subscriber_logs[0].frames.insert(9, frame);
    });
    assert_violates(rule, |history| history.subscriber_logs[0].frames.swap(9, 10));
    assert_violates(rule, |history| drop(history.subscriber_logs[0].frames.pop()));
    // Inside a message.
    assert_violates(rule, |history| drop(history.subscriber_logs[0].frames.remove(4)));
    assert_violates(rule, |history| {
        let frame = history.subscriber_logs[0].frames[4].clone();
        history.subscriber_logs[0].frames.insert(4, frame);
    });
    assert_violates(rule, |history| {
        history.subscriber_logs[0].frames[4].data["text"] = json!("ING.")
    });
    assert_violates(rule, |history| history.subscriber_logs[0].frames[4].cursor = "4.7".to_owned());
}

#[test]
fn gap_in_log_or_different_database_is_found() {
    let rule = Rule::LogIsComplete;
    assert_violates(rule, |history| history.stored.get_mut(ONE).unwrap().push(20));
    assert_violates(rule, |history| drop(history.stored.remove(ONE)));
    assert_violates(rule, |history| {
        for event in events(history).iter_mut().skip(9) {
            event["seq"] = json!(event["seq"].as_u64().unwrap() + 1);
        }
    });
}

#[test]
fn message_with_two_runs_is_found() {
    assert_violates(Rule::OneRunForOneMessage, |history| {
        change_event(history, "session_created", 0, |event| {
            event["type"] = json!("run_started");
            event["message_id"] = json!("m1");
        });
    });
}

#[test]
fn run_without_end_or_with_two_ends_is_found() {
    let rule = Rule::RunsEndOrWait;
    assert_violates(rule, |history| blank_event(history, "done", 0));
    assert_violates(rule, |history| {
        change_event(history, "tool_call_completed", 1, |event| event["type"] = json!("done"));
    });
    assert_violates(rule, |history| {
        history.sessions.get_mut(ONE).unwrap().status = "running".to_owned();
    });
    // The session waits, but no approval is open.
    assert_violates(rule, |history| {
        blank_event(history, "done", 0);
        history.sessions.get_mut(ONE).unwrap().status = "waiting".to_owned();
    });
    assert_violates(rule, |history| blank_event(history, "tool_call_completed", 0));
}

#[test]
fn unallowed_or_unrecorded_effect_is_found() {
    let rule = Rule::EffectsAreAllowed;
    assert_violates(rule, |history| history.market_calls[1].key = "another".to_owned());
    assert_violates(rule, |history| history.effects[1].key = "another".to_owned());
    assert_violates(rule, |history| history.market_calls[1].arguments = json!({"amount": 500}));
    assert_violates(rule, |history| blank_event(history, "tool_call_attempt_started", 0));
    assert_violates(rule, |history| blank_event(history, "tool_call_allowed", 0));
    assert_violates(rule, |history| {
        change_event(history, "tool_call_allowed", 1, |event| {
            event["by"] = json!({"kind": "policy", "why": "why not"});
        });
    });
}

#[test]
fn repeated_effect_is_found() {
    let rule = Rule::NoDuplicateEffects;
    assert_violates(rule, |history| {
        let effect = history.effects[0].clone();
        history.effects.push(effect);
    });
    // Without a human's answer it may not be sent again, even if it had no effect.
    assert_violates(rule, |history| blank_event(history, "approval_decided", 1));
}

#[test]
fn guessed_outcome_is_found() {
    let rule = Rule::UnknownOutcomesReported;
    let failed = |reason: &'static str, error: &'static str| {
        move |event: &mut Value| {
            event["type"] = json!("tool_call_failed");
            event["reason"] = json!(reason);
            event["error"] = json!(error);
        }
    };
    for (reason, error) in [("crashed", "it broke"), ("cancelled", "the run was cancelled")] {
        assert_violates(rule, |history| {
            change_event(history, "tool_call_completed", 0, failed(reason, error));
        });
    }
    assert_violates(rule, |history| {
        change_event(history, "tool_call_completed", 0, |event| {
            event["result"] = json!({"bookmark_id": 2});
        });
    });
    assert_violates(rule, |history| drop(history.effects.remove(0)));
    assert_violates(rule, |history| blank_event(history, "approval_decided", 1));
    // A human may report it, and a possible effect is reported as such.
    let mut history = valid_history();
    let end = failed("cancelled", "the run was cancelled; it may have taken effect");
    change_event(&mut history, "tool_call_completed", 1, end);
    assert_eq!(find_violations(&history), []);
}
