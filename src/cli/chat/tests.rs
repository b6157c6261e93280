//! Tests of the chat's state machine: inputs in, effects out.

use super::{
    gateway_message::{GatewayMessage, RunOutcome},
    machine::{ChatEffect, ChatMachine, PostPurpose, RequestFailure},
};
use greenroom_core::Timestamp;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_767_268_800_000);

/// A chat, and its effects so far.
struct TestChat {
    machine: ChatMachine,
    effects: Vec<ChatEffect>,
}

impl TestChat {
    /// Creates a chat whose request `r-1` runs.
    fn running() -> Self {
        let mut chat = Self { machine: ChatMachine::new(None), effects: Vec::new() };
        chat.enter("buy it", "r-1");
        chat.receive(json!({
            "type": "chat.stream.start", "requestId": "r-1", "sessionId": "s", "runId": "run",
        }));
        chat.effects.clear();
        chat
    }

    /// Creates a chat with an approval of a call.
    fn with_prompt() -> Self {
        let mut chat = Self::running();
        chat.receive(call("c-1"));
        chat.receive(approval_request("c-1", "p-1"));
        chat.effects.clear();
        chat
    }

    fn enter(&mut self, line: &str, id: &str) {
        self.machine.handle_line(line, id.to_owned(), &mut self.effects);
    }

    fn receive(&mut self, frame: Value) {
        self.machine.handle_message(GatewayMessage::from_json(frame), &mut self.effects);
    }

    /// Takes the effects so far, without lines to show.
    fn take_effects(&mut self) -> Vec<ChatEffect> {
        let effects = std::mem::take(&mut self.effects);
        effects
            .into_iter()
            .filter(|effect| !matches!(effect, ChatEffect::Show(_) | ChatEffect::EndText))
            .collect()
    }

    /// Takes the effects so far and returns the lines to show.
    fn take_shown_text(&mut self) -> String {
        let effects = std::mem::take(&mut self.effects);
        let line = |effect: &ChatEffect| {
            if let ChatEffect::Show(line) = effect { Some(line.plain_text()) } else { None }
        };
        effects.iter().filter_map(line).collect::<Vec<_>>().join("\n")
    }

    fn prompt(&self) -> String {
        self.machine.live_area(NOW).prompt
    }

    fn status(&self) -> String {
        let lines = self.machine.live_area(NOW).lines;
        lines.iter().map(super::styled_line::StyledLine::plain_text).collect::<Vec<_>>().join("\n")
    }
}

fn call(id: &str) -> Value {
    json!({"type": "tool.call", "requestId": "r-1", "toolCallId": id, "toolName": "buy",
        "args": {"item": "ore", "amount": 5}})
}

fn approval_request(id: &str, approval_id: &str) -> Value {
    json!({"type": "tool.approval.request", "requestId": "r-1", "toolCallId": id,
        "toolName": "buy", "args": {"item": "ore", "amount": 5}, "risk": "medium",
        "approvalId": approval_id, "description": "Buys", "why": "level L1",
        "deadline": "2026-01-01T12:01:00.000Z"})
}

fn native(event: Value) -> Value {
    json!({"type": "agent.event", "requestId": "r-1", "event": event})
}

fn approval_response(call: &str, approved: bool, id: &str) -> ChatEffect {
    ChatEffect::Send(json!({
        "type": "tool.approval.response", "toolCallId": call, "approved": approved, "id": id,
    }))
}

#[test]
fn g14_skipped_preflight_shows_its_warning() {
    let mut chat = TestChat::running();
    chat.receive(native(json!({"type": "preflight_skipped", "warning": "the model made no plan"})));
    assert!(chat.take_shown_text().contains("the model made no plan"));
}

#[test]
fn g8_call_approval_is_shown_and_answered() {
    let mut chat = TestChat::running();
    chat.receive(call("c-1"));
    chat.receive(approval_request("c-1", "p-1"));
    let shown = chat.take_shown_text();
    for text in
        ["? buy  medium risk", "  Buys", "    amount  5", "    item    ore", "Reason: level L1"]
    {
        assert!(shown.contains(text), "{text:?} is not in\n{shown}");
    }
    assert_eq!(chat.prompt(), "Run it? y/n/e(dit)/s(ession) (1m left) › ");
    assert_eq!(chat.status(), "○ buy  waiting for approval");
    chat.enter("maybe", "x");
    assert!(chat.take_shown_text().contains("y: yes"));
    chat.enter(" Y ", "x");
    assert_eq!(chat.take_effects(), [approval_response("c-1", true, "answer-1")]);
    assert_eq!(chat.prompt(), "› ");
    chat.receive(json!({"type": "tool.result", "requestId": "r-1", "toolCallId": "c-1",
        "toolName": "buy", "result": {"order": 7}}));
    assert_eq!(chat.take_shown_text(), "● buy  amount=5 item=ore\n  → {\"order\":7}");
}

#[test]
fn g8_g9_replies_are_sent_over_the_gateway_or_rest() {
    let mut no = TestChat::with_prompt();
    no.enter("n", "x");
    assert_eq!(no.take_effects(), [approval_response("c-1", false, "answer-1")]);

    let mut session = TestChat::with_prompt();
    session.enter("s", "x");
    let ChatEffect::Send(frame) = &session.take_effects()[0] else { panic!("must be a frame") };
    assert_eq!((&frame["approved"], &frame["sessionApprove"]), (&json!(true), &json!(true)));

    // A reason and edited arguments are sent over REST.
    let mut reason = TestChat::with_prompt();
    reason.enter("n too dear", "x");
    let body = json!({"steps": [{"call_id": "c-1", "decision": "reject", "reason": "too dear"}]});
    let path = "/agent/approvals/p-1".to_owned();
    let purpose = PostPurpose::Answer("answer-1".to_owned());
    let post = ChatEffect::Post { purpose: purpose.clone(), path: path.clone(), body };
    assert_eq!(reason.take_effects(), [post]);

    let mut edit = TestChat::with_prompt();
    edit.enter("e", "x");
    assert_eq!(edit.take_effects(), [ChatEffect::Edit(json!({"item": "ore", "amount": 5}))]);
    edit.machine.handle_edit(Ok(r#"{"item": "ore", "amount": 2}"#), &mut edit.effects);
    let step =
        json!({"call_id": "c-1", "decision": "approve", "arguments": {"item": "ore", "amount": 2}});
    let body = json!({ "steps": [step] });
    assert_eq!(edit.take_effects(), [ChatEffect::Post { purpose, path, body }]);
}

#[test]
fn g8_edit_in_place_rejects_invalid_json_and_can_be_cancelled() {
    let mut chat = TestChat::with_prompt();
    chat.enter("e", "x");
    chat.machine.edit_in_place();
    assert_eq!(chat.prompt(), "Edit › ");
    chat.enter("{ nonsense", "x");
    assert!(chat.take_shown_text().contains("not JSON"));
    assert!(chat.prompt().starts_with("Run it?"), "the approval is still waiting");
    chat.machine.edit_in_place();
    chat.machine.handle_interrupt(&mut chat.effects);
    assert!(chat.prompt().starts_with("Run it?"));
    assert_eq!(chat.take_effects(), [], "no answer is sent and no run cancelled");
}

#[test]
fn g11_approval_answered_elsewhere_is_removed() {
    let mut chat = TestChat::with_prompt();
    chat.receive(approval_request("c-2", "p-1"));
    let step = |call: &str| json!({"call_id": call, "approved": true, "by": "ann", "surface": "dashboard"});
    let decided = |call: &str| {
        native(
            json!({"type": "approval_decided", "approval_id": "p-1", "steps": [step(call)], "closed": false}),
        )
    };
    chat.receive(decided("c-1"));
    let shown = chat.take_shown_text();
    assert!(shown.contains("answered elsewhere: approved by ann (dashboard)"), "{shown}");
    assert!(shown.contains("? buy"), "the next approval is presented: {shown}");
    chat.receive(decided("c-2"));
    assert_eq!(chat.prompt(), "› ");
    chat.receive(approval_request("c-3", "p-2"));
    chat.effects.clear();
    chat.receive(native(json!({"type": "approval_expired", "approval_id": "p-2"})));
    assert_eq!((chat.take_shown_text().trim(), chat.prompt().as_str()), ("approval expired", "› "));
}

#[test]
fn g11_rejected_answer_presents_the_approval_again_unless_already_decided() {
    let mut chat = TestChat::with_prompt();
    chat.enter("s", "x");
    let refused = |code: &str| json!({"type": "error", "requestId": "answer-1", "code": code, "message": "not for this one"});
    chat.receive(refused("invalid_grant"));
    assert!(chat.take_shown_text().contains("! not for this one"));
    assert!(chat.prompt().starts_with("Run it?"));
    chat.enter("n why not", "x");
    let failure = RequestFailure { code: "already_decided".into(), detail: "ann was first".into() };
    let purpose = PostPurpose::Answer("answer-2".to_owned());
    chat.machine.handle_post_result(&purpose, Err(failure), &mut chat.effects);
    assert!(chat.take_shown_text().contains("! ann was first"));
    assert_eq!(chat.prompt(), "› ");
}

#[test]
fn g11_approval_repeated_after_reconnect_is_presented_once() {
    let mut chat = TestChat::with_prompt();
    chat.receive(approval_request("c-1", "p-1"));
    assert_eq!(chat.take_shown_text(), "");
    // An answer sent on this connection counts; an answer on a lost connection may be lost.
    chat.enter("y", "x");
    chat.receive(approval_request("c-1", "p-1"));
    assert_eq!(chat.prompt(), "› ");
    chat.machine.handle_disconnect(
        "gone",
        std::time::Duration::from_secs(1),
        NOW,
        &mut chat.effects,
    );
    chat.machine.handle_reconnect(&mut chat.effects);
    chat.receive(approval_request("c-1", "p-1"));
    assert!(chat.prompt().starts_with("Run it?"));
    // An answer sent while disconnected uses the next connection, after the repeated request.
    chat.machine.handle_disconnect(
        "gone",
        std::time::Duration::from_secs(1),
        NOW,
        &mut chat.effects,
    );
    chat.enter("y", "x");
    chat.machine.handle_reconnect(&mut chat.effects);
    chat.receive(approval_request("c-1", "p-1"));
    assert_eq!(chat.prompt(), "› ");
}

#[test]
fn g14_preflight_steps_can_be_edited_and_skipped() {
    let mut chat = TestChat::running();
    chat.receive(json!({
        "type": "preflight.checklist", "requestId": "r-1", "approvalId": "p-1", "deadline": null,
        "steps": [
            {"description": "look", "risk": "low", "needsApproval": false},
            {"description": "buy", "toolName": "buy", "arguments": {"n": 1}, "risk": "high",
                "needsApproval": true},
        ],
        "estimatedCost": {"inputTokens": 100, "outputTokens": 20, "estimatedUSD": null},
        "requiredPermissions": ["trade"], "warnings": ["it is late"],
    }));
    let shown = chat.take_shown_text();
    for text in [
        "  1. look  low risk",
        "  2. buy  buy n=1  high risk  needs approval",
        "  About 100 tokens in, 20 out, price unknown",
        "  Requires: trade",
        "  Warning: it is late",
    ] {
        assert!(shown.contains(text), "{text:?} is not in\n{shown}");
    }
    assert_eq!(chat.prompt(), "Run the plan? y/n/e N/s N › ");
    for unclear in ["", "e", "s 3", "e 0", "yes 1"] {
        chat.enter(unclear, "x");
        assert!(chat.take_shown_text().contains("edit step N"), "{unclear}");
    }
    chat.enter("s 2", "x");
    assert!(chat.take_shown_text().contains("2. buy (skipped)"));
    chat.enter("e 1", "x");
    assert_eq!(chat.take_effects(), [ChatEffect::Prefill("look".to_owned())]);
    assert_eq!(chat.prompt(), "Step 1 › ");
    chat.enter("look twice", "x");
    assert!(chat.take_shown_text().contains("1. look twice"));
    chat.enter("y", "x");
    let expected = json!({
        "type": "preflight.approval", "requestId": "r-1", "approved": true, "id": "answer-1",
        "editedSteps": [
            {"description": "look twice"},
            {"description": "buy", "toolName": "buy", "skip": true},
        ],
    });
    assert_eq!(chat.take_effects(), [ChatEffect::Send(expected)]);
}

fn other_approval(view: Value) -> Value {
    json!({"type": "error", "requestId": "r-1", "code": "waiting_for_approval",
        "message": "What now?", "approval": view})
}

#[test]
fn g6_d3_other_kinds_are_answered_over_rest() {
    let budget = json!({
        "approval_id": "p-1", "kind": "budget", "purpose": "The budget is reached",
        "budget": {"scope": "run", "measure": "tokens", "limit": 1000.0, "spent": 990.0, "needed": 50.0},
        "spent_on": [{"what": "step 1", "amount": 990.0}],
    });
    let unknown = json!({
        "approval_id": "p-1", "kind": "unknown_outcome", "purpose": "Did it happen?",
        "call": {"call_id": "c-1", "tool": "buy", "arguments": {"n": 1}}, "why": "it crashed",
    });
    let form = json!({
        "approval_id": "p-1", "kind": "elicitation", "purpose": "A tool asks", "server": "market",
        "message": "Who are you?", "mode": "form",
        "schema": {"properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 30}}},
    });
    let page = json!({
        "approval_id": "p-1", "kind": "elicitation", "purpose": "A tool asks", "server": "market",
        "message": "Sign in", "mode": "url", "url": "https://example.org/in",
    });
    for (view, expected, answers) in [
        (
            &budget,
            "990 of 1,000 tokens spent of the run's budget; 50 tokens more needed",
            vec![
                ("2_000", json!({"decision": "raise", "value": 2000})),
                ("raise 5e3", json!({"decision": "raise", "value": 5000})),
                ("stop", json!({"decision": "stop"})),
            ],
        ),
        (
            &unknown,
            "it crashed",
            vec![
                ("retry", json!({"decision": "retry"})),
                ("done {\"order\": 7}", json!({"decision": "done", "value": {"order": 7}})),
                ("d it is bought", json!({"decision": "done", "value": "it is bought"})),
                ("failed", json!({"decision": "failed"})),
            ],
        ),
        (
            &form,
            "age: integer, default 30",
            vec![
                ("{\"name\": \"ann\"}", json!({"decision": "answer", "value": {"name": "ann"}})),
                ("/no", json!({"decision": "reject"})),
            ],
        ),
        (&page, "https://example.org/in", vec![("y", json!({"decision": "answer"}))]),
    ] {
        for (reply, body) in answers {
            let mut chat = TestChat::running();
            chat.receive(other_approval(view.clone()));
            let shown = chat.take_shown_text();
            assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
            chat.enter("what?", "x");
            assert_eq!(chat.take_effects(), [], "{view}");
            chat.enter(reply, "x");
            let purpose = PostPurpose::Answer("answer-1".into());
            let path = "/agent/approvals/p-1".to_owned();
            assert_eq!(chat.take_effects(), [ChatEffect::Post { purpose, path, body }]);
        }
    }
    let mut unknown = TestChat::running();
    unknown.receive(other_approval(
        json!({"approval_id": "p-1", "kind": "something_new", "purpose": "Hm?"}),
    ));
    assert!(unknown.take_shown_text().contains("/agent/approvals/p-1"));
    // An answer given elsewhere removes the approval.
    let decided = json!({"type": "approval_decided", "approval_id": "p-1", "closed": true,
        "answer": {"decision": "raise", "by": "ann", "surface": "rest"}});
    unknown.receive(native(decided));
    assert_eq!(unknown.take_shown_text().trim(), "answered elsewhere: raise by ann (rest)");
}

#[test]
fn t1_form_is_filled_in_field_by_field() {
    let mut chat = TestChat::running();
    chat.receive(json!({
        "type": "elicitation.request", "requestId": "r-1", "approvalId": "p-1",
        "toolCallId": "c-1", "toolName": "choose_hangar", "server": "market", "mode": "form",
        "message": "Which hangar?", "deadline": null,
        "requestedSchema": {"required": ["hangar"], "properties": {
            "crates": {"type": "integer", "default": 1}, "note": {"type": "string"},
            "hangar": {"type": "string", "enum": ["north", "south"]},
        }},
    }));
    let shown = chat.take_shown_text();
    for words in ["Which hangar?", "hangar: north | south", "choose_hangar of market"] {
        assert!(shown.contains(words), "{words:?} is not in\n{shown}");
    }
    assert_eq!(chat.prompt(), "hangar (north | south) › ");
    for invalid in ["", "west"] {
        chat.enter(invalid, "x");
        assert_eq!(chat.prompt(), "hangar (north | south) › ", "{invalid:?}");
    }
    chat.enter("south", "x");
    assert_eq!(chat.prompt(), "crates (integer) [1] › ");
    chat.enter("many", "x");
    assert!(chat.take_shown_text().contains("enter a number"));
    chat.enter("", "x");
    assert_eq!(chat.prompt(), "note (string, optional) › ");
    chat.enter("", "x");
    let body = json!({"decision": "answer", "value": {"crates": 1, "hangar": "south"}});
    let purpose = PostPurpose::Answer("answer-1".into());
    let path = "/agent/approvals/p-1".to_owned();
    let post = ChatEffect::Post { purpose: purpose.clone(), path, body };
    assert_eq!(chat.take_effects(), [post]);
    // The server rejects the answer: the form starts again.
    let failure = RequestFailure { code: "answer_invalid".into(), detail: "no such hangar".into() };
    chat.machine.handle_post_result(&purpose, Err(failure), &mut chat.effects);
    assert!(chat.take_shown_text().contains("no such hangar"));
    assert_eq!(chat.prompt(), "hangar (north | south) › ");
}

#[test]
fn s6_first_interrupt_cancels_and_second_exits() {
    let mut chat = TestChat::running();
    chat.machine.handle_interrupt(&mut chat.effects);
    let body = json!({"run_id": "run"});
    let path = "/agent/session/s/cancel".to_owned();
    let purpose = PostPurpose::Cancel;
    assert_eq!(chat.take_effects(), [ChatEffect::Post { purpose, path, body }]);
    chat.machine.handle_interrupt(&mut chat.effects);
    assert_eq!(chat.take_effects(), [ChatEffect::Exit(130)]);

    let mut cancelled = TestChat::running();
    cancelled.machine.handle_interrupt(&mut cancelled.effects);
    cancelled.receive(
        json!({"type": "chat.stream.end", "requestId": "r-1", "outcome": "cancelled", "usage": {}}),
    );
    assert!(cancelled.take_shown_text().contains("cancelled"));
    assert_eq!(cancelled.machine.outcome, Some(RunOutcome::Cancelled));
    cancelled.machine.handle_interrupt(&mut cancelled.effects);
    assert_eq!(cancelled.take_effects(), [], "the end of the run resets the count");
    cancelled.enter("/help", "x");
    cancelled.machine.handle_interrupt(&mut cancelled.effects);
    assert_eq!(cancelled.take_effects(), [], "an entered line resets the count");
}

#[test]
fn m3_incomplete_answer_is_marked() {
    for (stop_reason, notice) in [
        (json!("end"), None),
        (json!("a newer one"), None),
        (json!(null), None),
        (json!("length"), Some("Truncated at the token limit")),
        (json!("refusal"), Some("Refused by the model")),
        (json!("content_filter"), Some("Blocked by the provider's content filter")),
        (json!("empty"), Some("The model returned no text")),
    ] {
        let mut chat = TestChat::running();
        chat.receive(json!({
            "type": "chat.stream.end", "requestId": "r-1", "outcome": "completed",
            "stopReason": stop_reason, "usage": {},
        }));
        let shown = chat.take_shown_text();
        let lines: Vec<_> = shown.lines().collect();
        let expected: Vec<_> = notice.into_iter().chain(["0 tokens in, 0 out"]).collect();
        assert_eq!(lines, expected);
    }
}

#[test]
fn m6_cost_of_lost_usage_is_unknown() {
    for (usage, expected) in [
        (
            json!({"inputTokens": 9, "outputTokens": 4, "costUSD": 0.5}),
            "9 tokens in, 4 out, 0.50 USD",
        ),
        // Without a price, no cost is shown.
        (json!({"inputTokens": 9, "outputTokens": 4, "costUSD": null}), "9 tokens in, 4 out"),
        (
            json!({"inputTokens": 9, "outputTokens": 4, "costUSD": null, "estimated": true}),
            "about 9 tokens in, 4 out, cost unknown",
        ),
    ] {
        let mut chat = TestChat::running();
        chat.receive(json!({
            "type": "chat.stream.end", "requestId": "r-1", "outcome": "completed", "usage": usage,
        }));
        assert_eq!(chat.take_shown_text().trim_end(), expected);
    }
}

#[test]
fn s6_interrupt_before_the_run_id_is_known_cancels_later() {
    let mut chat = TestChat::running();
    chat.receive(
        json!({"type": "chat.stream.end", "requestId": "r-1", "outcome": "completed", "usage": {}}),
    );
    chat.enter("another", "r-2");
    chat.effects.clear();
    chat.machine.handle_interrupt(&mut chat.effects);
    assert_eq!(chat.take_effects(), [], "the run id is not known yet");
    let start = |id: &str, run: &str| json!({"type": "chat.stream.start", "requestId": id, "sessionId": "s", "runId": run});
    chat.receive(start("r-2", "run-2"));
    let (path, body) = ("/agent/session/s/cancel".to_owned(), json!({"run_id": "run-2"}));
    let purpose = PostPurpose::Cancel;
    assert_eq!(chat.take_effects(), [ChatEffect::Post { purpose, path, body }]);
    // A repeated start after a reconnect does not cancel again.
    chat.receive(start("r-2", "run-2"));
    assert_eq!(chat.take_effects(), []);
}

#[test]
fn r2_retries_and_progress_are_displayed_with_countdown() {
    let mut chat = TestChat::running();
    assert_eq!(chat.status(), "thinking …");
    chat.receive(call("c-1"));
    chat.receive(native(json!({"type": "tool_call_attempt_started", "call_id": "c-1"})));
    assert_eq!(chat.status(), "○ buy  running …");
    chat.receive(native(json!({"type": "tool_call_progress", "call_id": "c-1", "progress": 1,
        "total": 4, "message": "packing"})));
    assert_eq!(chat.status(), "○ buy  running … 25 % packing");
    chat.receive(native(json!({"type": "tool_call_retrying", "call_id": "c-1", "attempt": 1,
        "reason": "timeout", "until": "2026-01-01T12:00:09.000Z"})));
    assert_eq!(chat.status(), "○ buy  attempt 1 failed, retrying in 9s: timeout");
    assert!(chat.machine.has_countdown());
    chat.receive(
        json!({"type": "tool.result", "requestId": "r-1", "toolCallId": "c-1", "toolName": "buy",
        "isError": true, "result": {"error": "too slow", "reason": "timeout"}}),
    );
    assert_eq!(chat.take_shown_text(), "● buy  amount=5 item=ore\n  ✗ timeout: too slow");
    chat.receive(native(
        json!({"type": "step_retrying", "reason": "429", "until": "2026-01-01T12:00:03.000Z"}),
    ));
    assert_eq!(chat.status(), "retrying the model in 3s: 429");
}

#[test]
fn m3_discarded_text_has_one_discard_effect() {
    let mut chat = TestChat::running();
    let delta = |message: &str, text: &str| json!({"type": "chat.stream.delta", "requestId": "r-1", "messageId": message, "delta": text});
    chat.receive(delta("m-1", "one "));
    let mut discarded = delta("m-1", "\n[The answer was interrupted.]\n");
    discarded["discarded"] = json!(true);
    chat.receive(discarded.clone());
    chat.receive(discarded);
    chat.receive(delta("m-2", "one two"));
    let effects = chat.take_effects();
    assert_eq!(
        effects,
        [
            ChatEffect::Text("one ".into()),
            ChatEffect::DiscardText,
            ChatEffect::Text("one two".into())
        ]
    );
}

#[test]
fn rejected_message_closes_its_request() {
    let mut chat = TestChat { machine: ChatMachine::new(None), effects: Vec::new() };
    chat.enter("hello", "r-1");
    assert!(!chat.machine.is_idle());
    chat.receive(
        json!({"type": "error", "requestId": "r-1", "code": "too_many_runs", "message": "wait"}),
    );
    assert!(chat.machine.is_idle());
    assert_eq!(chat.machine.outcome, Some(RunOutcome::Failed));
    assert!(chat.take_shown_text().contains("! wait"));
}

#[test]
fn lost_connection_is_shown_once_with_countdown() {
    let mut chat = TestChat::running();
    for _ in 0..3 {
        let retry_in = std::time::Duration::from_secs(2);
        chat.machine.handle_disconnect("gone", retry_in, NOW, &mut chat.effects);
    }
    assert_eq!(chat.take_shown_text(), "! connection lost: gone");
    assert!(chat.status().contains("reconnecting in 2s"));
    chat.machine.handle_reconnect(&mut chat.effects);
    assert_eq!(chat.take_shown_text(), "reconnected");
}

#[test]
fn c3_workflow_is_started_by_its_name() {
    let mut chat = TestChat { machine: ChatMachine::new(None), effects: Vec::new() };
    chat.enter("/restock type_id=34 note=\"a b\"", "r-1");
    let line = "/restock note=\"a b\" type_id=34";
    let send = ChatEffect::SendMessage { id: "r-1".into(), content: line.into() };
    assert_eq!(chat.take_effects().last(), Some(&send));
    let frame = chat.machine.message_frame("r-1", line);
    let inputs = json!({"note": "a b", "type_id": "34"});
    assert_eq!(frame["workflow"], json!({"name": "restock", "inputs": inputs}));
}

#[test]
fn chat_commands_are_executed() {
    let mut chat = TestChat { machine: ChatMachine::new(None), effects: Vec::new() };
    chat.enter("/restock now", "x");
    assert!(chat.take_shown_text().contains("/restock: `now`: expected key=value"));
    chat.enter("/ ", "x");
    assert!(chat.take_shown_text().contains("no command after /"));
    chat.enter("/session", "x");
    assert!(chat.take_shown_text().contains("no session yet"));
    chat.enter("  ", "x");
    chat.enter("/cancel", "x");
    assert_eq!(chat.take_shown_text(), "nothing to cancel");
    chat.enter("//literally", "r-1");
    let send = ChatEffect::SendMessage { id: "r-1".into(), content: "/literally".into() };
    assert_eq!(chat.take_effects(), [send]);
    assert_eq!(chat.machine.message_frame("r-1", "/literally").get("workflow"), None);
    chat.enter("/quit", "x");
    assert_eq!(chat.take_effects(), [ChatEffect::Exit(0)]);
}

#[test]
fn x5_server_text_cannot_control_the_terminal() {
    let evil = "\u{1b}[2J\u{9b}1;1H\rforged\u{202e}";
    let mut chat = TestChat::running();
    let mut request = approval_request("c-1", "p-1");
    for name in ["toolName", "description", "why", "risk"] {
        request[name] = json!(evil);
    }
    request["args"] = json!({evil: [evil]});
    chat.receive(request);
    chat.receive(native(json!({"type": "approval_decided", "approval_id": "p-1", "closed": true,
        "steps": [{"call_id": "c-1", "approved": true, "by": evil, "surface": evil}]})));
    chat.receive(
        json!({"type": "tool.result", "requestId": "r-1", "toolCallId": "c-1", "toolName": evil,
        "isError": true, "result": {"error": evil, "reason": evil}}),
    );
    chat.receive(json!({"type": "error", "code": "x", "message": evil}));
    chat.receive(other_approval(
        json!({"approval_id": evil, "kind": "elicitation", "purpose": evil, "message": evil,
        "server": evil, "schema": {"properties": {evil: {"type": evil}}}}),
    ));
    let shown = chat.take_shown_text() + &chat.status() + &chat.prompt();
    assert!(shown.contains("forged"));
    let controls = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
    assert!(!shown.contains(controls), "{shown:?}");
}
