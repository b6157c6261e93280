//! The conversation, told what happens and asked what is to be done.

use super::{
    gateway_message::{GatewayMessage, RunOutcome},
    machine::{ChatEffect, ChatMachine, PostPurpose, RequestFailure},
};
use greenroom_core::Timestamp;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_767_268_800_000);

/// A conversation, and what it wanted done so far.
struct TestChat {
    conversation: ChatMachine,
    acts: Vec<ChatEffect>,
}

impl TestChat {
    /// One whose request `r-1` runs.
    fn running() -> Self {
        let mut talk = Self { conversation: ChatMachine::new(None), acts: Vec::new() };
        talk.enter("buy it", "r-1");
        talk.receive(json!({
            "type": "chat.stream.start", "requestId": "r-1", "sessionId": "s", "runId": "run",
        }));
        talk.acts.clear();
        talk
    }

    /// One that is asked whether a call may run.
    fn with_prompt() -> Self {
        let mut talk = Self::running();
        talk.receive(call("c-1"));
        talk.receive(question("c-1", "p-1"));
        talk.acts.clear();
        talk
    }

    fn enter(&mut self, line: &str, id: &str) {
        self.conversation.handle_line(line, id.to_owned(), &mut self.acts);
    }

    fn receive(&mut self, frame: Value) {
        self.conversation.handle_message(GatewayMessage::from_json(frame), &mut self.acts);
    }

    /// What was to be done since, but for lines to show.
    fn take_effects(&mut self) -> Vec<ChatEffect> {
        let acts = std::mem::take(&mut self.acts);
        acts.into_iter()
            .filter(|act| !matches!(act, ChatEffect::Show(_) | ChatEffect::EndText))
            .collect()
    }

    /// The lines that were to be shown since.
    fn take_shown(&mut self) -> String {
        let acts = std::mem::take(&mut self.acts);
        let line = |act: &ChatEffect| {
            if let ChatEffect::Show(line) = act { Some(line.plain_text()) } else { None }
        };
        acts.iter().filter_map(line).collect::<Vec<_>>().join("\n")
    }

    fn prompt(&self) -> String {
        self.conversation.live_area(NOW).prompt
    }

    fn status(&self) -> String {
        let lines = self.conversation.live_area(NOW).lines;
        lines.iter().map(super::styled_line::StyledLine::plain_text).collect::<Vec<_>>().join("\n")
    }
}

fn call(id: &str) -> Value {
    json!({"type": "tool.call", "requestId": "r-1", "toolCallId": id, "toolName": "buy",
        "args": {"item": "ore", "amount": 5}})
}

fn question(id: &str, approval_id: &str) -> Value {
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
fn g14_why_there_is_no_plan_is_told() {
    let mut talk = TestChat::running();
    talk.receive(native(json!({"type": "preflight_skipped", "warning": "the model made no plan"})));
    assert!(talk.take_shown().contains("the model made no plan"));
}

#[test]
fn g8_a_question_is_put_and_answered() {
    let mut talk = TestChat::running();
    talk.receive(call("c-1"));
    talk.receive(question("c-1", "p-1"));
    let shown = talk.take_shown();
    for text in
        ["? buy  medium risk", "  Buys", "    amount  5", "    item    ore", "because level L1"]
    {
        assert!(shown.contains(text), "{text:?} is not in\n{shown}");
    }
    assert_eq!(talk.prompt(), "Run it? y/n/e(dit)/s(ession) (1m left) › ");
    assert_eq!(talk.status(), "○ buy  waits for a word");
    talk.enter("maybe", "x");
    assert!(talk.take_shown().contains("y: yes"));
    talk.enter(" Y ", "x");
    assert_eq!(talk.take_effects(), [approval_response("c-1", true, "answer-1")]);
    assert_eq!(talk.prompt(), "› ");
    talk.receive(json!({"type": "tool.result", "requestId": "r-1", "toolCallId": "c-1",
        "toolName": "buy", "result": {"order": 7}}));
    assert_eq!(talk.take_shown(), "● buy  amount=5 item=ore\n  → {\"order\":7}");
}

#[test]
fn g8_g9_every_answer_goes_where_it_has_a_word() {
    let mut no = TestChat::with_prompt();
    no.enter("n", "x");
    assert_eq!(no.take_effects(), [approval_response("c-1", false, "answer-1")]);

    let mut session = TestChat::with_prompt();
    session.enter("s", "x");
    let ChatEffect::Send(frame) = &session.take_effects()[0] else { panic!("it is sent") };
    assert_eq!((&frame["approved"], &frame["sessionApprove"]), (&json!(true), &json!(true)));

    // Why, and what is edited, go to REST.
    let mut why = TestChat::with_prompt();
    why.enter("n too dear", "x");
    let body = json!({"steps": [{"call_id": "c-1", "decision": "reject", "reason": "too dear"}]});
    let path = "/agent/approvals/p-1".to_owned();
    let to = PostPurpose::Answer("answer-1".to_owned());
    assert_eq!(why.take_effects(), [ChatEffect::Post { to: to.clone(), path: path.clone(), body }]);

    let mut edit = TestChat::with_prompt();
    edit.enter("e", "x");
    assert_eq!(edit.take_effects(), [ChatEffect::Edit(json!({"item": "ore", "amount": 5}))]);
    edit.conversation.handle_edit(Ok(r#"{"item": "ore", "amount": 2}"#), &mut edit.acts);
    let step =
        json!({"call_id": "c-1", "decision": "approve", "arguments": {"item": "ore", "amount": 2}});
    let body = json!({ "steps": [step] });
    assert_eq!(edit.take_effects(), [ChatEffect::Post { to, path, body }]);
}

#[test]
fn g8_an_edit_in_place_can_be_given_up_or_be_nonsense() {
    let mut talk = TestChat::with_prompt();
    talk.enter("e", "x");
    talk.conversation.edit_in_place();
    assert_eq!(talk.prompt(), "Edit › ");
    talk.enter("{ nonsense", "x");
    assert!(talk.take_shown().contains("that is not JSON"));
    assert!(talk.prompt().starts_with("Run it?"), "it still waits");
    talk.conversation.edit_in_place();
    talk.conversation.handle_interrupt(&mut talk.acts);
    assert!(talk.prompt().starts_with("Run it?"));
    assert_eq!(talk.take_effects(), [], "neither is an answer, and nothing is cancelled");
}

#[test]
fn g11_what_somebody_else_answers_is_not_asked_any_more() {
    let mut talk = TestChat::with_prompt();
    talk.receive(question("c-2", "p-1"));
    let step = |call: &str| json!({"call_id": call, "approved": true, "by": "ann", "surface": "dashboard"});
    let decided = |call: &str| {
        native(
            json!({"type": "approval_decided", "approval_id": "p-1", "steps": [step(call)], "closed": false}),
        )
    };
    talk.receive(decided("c-1"));
    let shown = talk.take_shown();
    assert!(shown.contains("answered elsewhere: approved by ann (dashboard)"), "{shown}");
    assert!(shown.contains("? buy"), "the next one is put: {shown}");
    talk.receive(decided("c-2"));
    assert_eq!(talk.prompt(), "› ");
    talk.receive(question("c-3", "p-2"));
    talk.acts.clear();
    talk.receive(native(json!({"type": "approval_expired", "approval_id": "p-2"})));
    assert_eq!(
        (talk.take_shown().trim(), talk.prompt().as_str()),
        ("nobody answered in time", "› ")
    );
}

#[test]
fn g11_an_answer_that_is_refused_is_asked_for_again_unless_somebody_was_first() {
    let mut talk = TestChat::with_prompt();
    talk.enter("s", "x");
    let refused = |code: &str| json!({"type": "error", "requestId": "answer-1", "code": code, "message": "not for this one"});
    talk.receive(refused("invalid_grant"));
    assert!(talk.take_shown().contains("! not for this one"));
    assert!(talk.prompt().starts_with("Run it?"));
    talk.enter("n why not", "x");
    let failure = RequestFailure { code: "already_decided".into(), detail: "ann was first".into() };
    let to = PostPurpose::Answer("answer-2".to_owned());
    talk.conversation.handle_post_result(&to, Err(failure), &mut talk.acts);
    assert!(talk.take_shown().contains("! ann was first"));
    assert_eq!(talk.prompt(), "› ");
}

#[test]
fn g11_a_question_that_comes_again_after_a_cut_is_put_once() {
    let mut talk = TestChat::with_prompt();
    talk.receive(question("c-1", "p-1"));
    assert_eq!(talk.take_shown(), "");
    // An answer that is on its way is one; another may have been lost with the connection.
    talk.enter("y", "x");
    talk.receive(question("c-1", "p-1"));
    assert_eq!(talk.prompt(), "› ");
    talk.conversation.handle_disconnect(
        "gone",
        std::time::Duration::from_secs(1),
        NOW,
        &mut talk.acts,
    );
    talk.conversation.handle_reconnect(&mut talk.acts);
    talk.receive(question("c-1", "p-1"));
    assert!(talk.prompt().starts_with("Run it?"));
    // What is answered meanwhile goes over the next connection, after what asks again.
    talk.conversation.handle_disconnect(
        "gone",
        std::time::Duration::from_secs(1),
        NOW,
        &mut talk.acts,
    );
    talk.enter("y", "x");
    talk.conversation.handle_reconnect(&mut talk.acts);
    talk.receive(question("c-1", "p-1"));
    assert_eq!(talk.prompt(), "› ");
}

#[test]
fn g14_a_plan_is_changed_step_by_step() {
    let mut talk = TestChat::running();
    talk.receive(json!({
        "type": "preflight.checklist", "requestId": "r-1", "approvalId": "p-1", "deadline": null,
        "steps": [
            {"description": "look", "risk": "low", "needsApproval": false},
            {"description": "buy", "toolName": "buy", "arguments": {"n": 1}, "risk": "high",
                "needsApproval": true},
        ],
        "estimatedCost": {"inputTokens": 100, "outputTokens": 20, "estimatedUSD": null},
        "requiredPermissions": ["trade"], "warnings": ["it is late"],
    }));
    let shown = talk.take_shown();
    for text in [
        "  1. look  low risk",
        "  2. buy  buy n=1  high risk  needs your word",
        "  About 100 tokens in, 20 out, price unknown",
        "  Needs: trade",
        "  Warning: it is late",
    ] {
        assert!(shown.contains(text), "{text:?} is not in\n{shown}");
    }
    assert_eq!(talk.prompt(), "Carry it out? y/n/e N/s N › ");
    for unclear in ["", "e", "s 3", "e 0", "yes 1"] {
        talk.enter(unclear, "x");
        assert!(talk.take_shown().contains("say step N anew"), "{unclear}");
    }
    talk.enter("s 2", "x");
    assert!(talk.take_shown().contains("2. buy (left out)"));
    talk.enter("e 1", "x");
    assert_eq!(talk.take_effects(), [ChatEffect::Prefill("look".to_owned())]);
    assert_eq!(talk.prompt(), "Step 1 › ");
    talk.enter("look twice", "x");
    assert!(talk.take_shown().contains("1. look twice"));
    talk.enter("y", "x");
    let expected = json!({
        "type": "preflight.approval", "requestId": "r-1", "approved": true, "id": "answer-1",
        "editedSteps": [
            {"description": "look twice"},
            {"description": "buy", "toolName": "buy", "skip": true},
        ],
    });
    assert_eq!(talk.take_effects(), [ChatEffect::Send(expected)]);
}

fn other(view: Value) -> Value {
    json!({"type": "error", "requestId": "r-1", "code": "waiting_for_approval",
        "message": "What now?", "approval": view})
}

#[test]
fn g6_d3_other_questions_are_answered_over_rest() {
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
    let link = json!({
        "approval_id": "p-1", "kind": "elicitation", "purpose": "A tool asks", "server": "market",
        "message": "Sign in", "mode": "url", "url": "https://example.org/in",
    });
    for (view, shows, answers) in [
        (
            &budget,
            "990 of 1000 tokens spent of the run's budget; 50 more needed",
            vec![
                ("2_000", json!({"decision": "raise", "value": 2000.0})),
                ("raise 5e3", json!({"decision": "raise", "value": 5000.0})),
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
        (&link, "https://example.org/in", vec![("y", json!({"decision": "answer"}))]),
    ] {
        for (said, body) in answers {
            let mut talk = TestChat::running();
            talk.receive(other(view.clone()));
            let shown = talk.take_shown();
            assert!(shown.contains(shows), "{shows:?} is not in\n{shown}");
            talk.enter("what?", "x");
            assert_eq!(talk.take_effects(), [], "{view}");
            talk.enter(said, "x");
            let (to, path) =
                (PostPurpose::Answer("answer-1".into()), "/agent/approvals/p-1".to_owned());
            assert_eq!(talk.take_effects(), [ChatEffect::Post { to, path, body }]);
        }
    }
    let mut unclear = TestChat::running();
    unclear
        .receive(other(json!({"approval_id": "p-1", "kind": "something_new", "purpose": "Hm?"})));
    assert!(unclear.take_shown().contains("/agent/approvals/p-1"));
    // It is answered elsewhere.
    let decided = json!({"type": "approval_decided", "approval_id": "p-1", "closed": true,
        "answer": {"decision": "raise", "by": "ann", "surface": "rest"}});
    unclear.receive(native(decided));
    assert_eq!(unclear.take_shown().trim(), "answered elsewhere: raise by ann (rest)");
}

#[test]
fn t1_a_form_is_filled_in_field_by_field() {
    let mut talk = TestChat::running();
    talk.receive(json!({
        "type": "elicitation.request", "requestId": "r-1", "approvalId": "p-1",
        "toolCallId": "c-1", "toolName": "choose_hangar", "server": "market", "mode": "form",
        "message": "Which hangar?", "deadline": null,
        "requestedSchema": {"required": ["hangar"], "properties": {
            "crates": {"type": "integer", "default": 1}, "note": {"type": "string"},
            "hangar": {"type": "string", "enum": ["north", "south"]},
        }},
    }));
    let shown = talk.take_shown();
    for words in ["Which hangar?", "hangar: north | south", "choose_hangar of market"] {
        assert!(shown.contains(words), "{words:?} is not in\n{shown}");
    }
    assert_eq!(talk.prompt(), "hangar (north | south) › ");
    for unclear in ["", "west"] {
        talk.enter(unclear, "x");
        assert_eq!(talk.prompt(), "hangar (north | south) › ", "{unclear:?}");
    }
    talk.enter("south", "x");
    assert_eq!(talk.prompt(), "crates (integer) [1] › ");
    talk.enter("many", "x");
    assert!(talk.take_shown().contains("a number"), "it says what it takes");
    talk.enter("", "x");
    assert_eq!(talk.prompt(), "note (string, may be left out) › ");
    talk.enter("", "x");
    let body = json!({"decision": "answer", "value": {"crates": 1, "hangar": "south"}});
    let (to, path) = (PostPurpose::Answer("answer-1".into()), "/agent/approvals/p-1".to_owned());
    assert_eq!(talk.take_effects(), [ChatEffect::Post { to: to.clone(), path, body }]);
    // It was not good enough: it is asked for again, from the start.
    let failure = RequestFailure { code: "answer_invalid".into(), detail: "no such hangar".into() };
    talk.conversation.handle_post_result(&to, Err(failure), &mut talk.acts);
    assert!(talk.take_shown().contains("no such hangar"));
    assert_eq!(talk.prompt(), "hangar (north | south) › ");
}

#[test]
fn s6_interrupting_cancels_and_twice_leaves() {
    let mut talk = TestChat::running();
    talk.conversation.handle_interrupt(&mut talk.acts);
    let body = json!({"run_id": "run"});
    let path = "/agent/session/s/cancel".to_owned();
    assert_eq!(talk.take_effects(), [ChatEffect::Post { to: PostPurpose::Cancel, path, body }]);
    talk.conversation.handle_interrupt(&mut talk.acts);
    assert_eq!(talk.take_effects(), [ChatEffect::Exit(130)]);

    let mut calm = TestChat::running();
    calm.conversation.handle_interrupt(&mut calm.acts);
    calm.receive(
        json!({"type": "chat.stream.end", "requestId": "r-1", "outcome": "cancelled", "usage": {}}),
    );
    assert!(calm.take_shown().contains("cancelled"));
    assert_eq!(calm.conversation.outcome, Some(RunOutcome::Cancelled));
    calm.conversation.handle_interrupt(&mut calm.acts);
    assert_eq!(calm.take_effects(), [], "the run is over: it counts anew");
    calm.enter("/help", "x");
    calm.conversation.handle_interrupt(&mut calm.acts);
    assert_eq!(calm.take_effects(), [], "something was done in between");
}

#[test]
fn s6_interrupting_before_the_server_answers_cancels_once_it_does() {
    let mut talk = TestChat::running();
    talk.receive(
        json!({"type": "chat.stream.end", "requestId": "r-1", "outcome": "completed", "usage": {}}),
    );
    talk.enter("another", "r-2");
    talk.acts.clear();
    talk.conversation.handle_interrupt(&mut talk.acts);
    assert_eq!(talk.take_effects(), [], "there is nothing to name yet");
    let start = |id: &str, run: &str| json!({"type": "chat.stream.start", "requestId": id, "sessionId": "s", "runId": run});
    talk.receive(start("r-2", "run-2"));
    let (path, body) = ("/agent/session/s/cancel".to_owned(), json!({"run_id": "run-2"}));
    assert_eq!(talk.take_effects(), [ChatEffect::Post { to: PostPurpose::Cancel, path, body }]);
    // Told again after a lost connection, it is not cancelled again.
    talk.receive(start("r-2", "run-2"));
    assert_eq!(talk.take_effects(), []);
}

#[test]
fn r2_retries_and_progress_are_seen_and_counted_down() {
    let mut talk = TestChat::running();
    assert_eq!(talk.status(), "thinking …");
    talk.receive(call("c-1"));
    talk.receive(native(json!({"type": "tool_call_attempt_started", "call_id": "c-1"})));
    assert_eq!(talk.status(), "○ buy  runs …");
    talk.receive(native(json!({"type": "tool_call_progress", "call_id": "c-1", "progress": 1,
        "total": 4, "message": "packing"})));
    assert_eq!(talk.status(), "○ buy  runs … 25 % packing");
    talk.receive(native(json!({"type": "tool_call_retrying", "call_id": "c-1", "attempt": 1,
        "reason": "timeout", "until": "2026-01-01T12:00:09.000Z"})));
    assert_eq!(talk.status(), "○ buy  attempt 1 failed, again in 9s: timeout");
    assert!(talk.conversation.has_countdown());
    talk.receive(
        json!({"type": "tool.result", "requestId": "r-1", "toolCallId": "c-1", "toolName": "buy",
        "isError": true, "result": {"error": "too slow", "reason": "timeout"}}),
    );
    assert_eq!(talk.take_shown(), "● buy  amount=5 item=ore\n  ✗ timeout: too slow");
    talk.receive(native(
        json!({"type": "step_retrying", "reason": "429", "until": "2026-01-01T12:00:03.000Z"}),
    ));
    assert_eq!(talk.status(), "the model is asked again in 3s: 429");
}

#[test]
fn m3_text_that_does_not_count_is_said_to_be_void() {
    let mut talk = TestChat::running();
    let delta = |message: &str, text: &str| json!({"type": "chat.stream.delta", "requestId": "r-1", "messageId": message, "delta": text});
    talk.receive(delta("m-1", "one "));
    let mut void = delta("m-1", "");
    void["discarded"] = json!(true);
    talk.receive(void.clone());
    talk.receive(void);
    talk.receive(delta("m-2", "one two"));
    let told = talk.take_effects();
    assert_eq!(
        told,
        [
            ChatEffect::Text("one ".into()),
            ChatEffect::DiscardText,
            ChatEffect::Text("one two".into())
        ]
    );
}

#[test]
fn a_message_that_is_not_taken_is_over() {
    let mut talk = TestChat { conversation: ChatMachine::new(None), acts: Vec::new() };
    talk.enter("hello", "r-1");
    assert!(!talk.conversation.is_idle());
    talk.receive(
        json!({"type": "error", "requestId": "r-1", "code": "too_many_runs", "message": "wait"}),
    );
    assert!(talk.conversation.is_idle());
    assert_eq!(talk.conversation.outcome, Some(RunOutcome::Failed));
    assert!(talk.take_shown().contains("! wait"));
}

#[test]
fn a_lost_connection_is_told_once_and_counted_down() {
    let mut talk = TestChat::running();
    for _ in 0..3 {
        let again_in = std::time::Duration::from_secs(2);
        talk.conversation.handle_disconnect("gone", again_in, NOW, &mut talk.acts);
    }
    assert_eq!(talk.take_shown(), "! the connection is lost: gone");
    assert!(talk.status().contains("connecting again in 2s"));
    talk.conversation.handle_reconnect(&mut talk.acts);
    assert_eq!(talk.take_shown(), "connected again");
}

#[test]
fn c3_a_workflow_is_started_by_its_name() {
    let mut talk = TestChat { conversation: ChatMachine::new(None), acts: Vec::new() };
    talk.enter("/restock type_id=34 note=\"a b\"", "r-1");
    let line = "/restock note=\"a b\" type_id=34";
    let chat = ChatEffect::SendMessage { id: "r-1".into(), content: line.into() };
    assert_eq!(talk.take_effects().last(), Some(&chat));
    let frame = talk.conversation.message_frame("r-1", line);
    let inputs = json!({"note": "a b", "type_id": "34"});
    assert_eq!(frame["workflow"], json!({"name": "restock", "inputs": inputs}));
}

#[test]
fn words_to_the_chat_itself() {
    let mut talk = TestChat { conversation: ChatMachine::new(None), acts: Vec::new() };
    talk.enter("/restock now", "x");
    assert!(talk.take_shown().contains("/restock: `now`: expected key=value"));
    talk.enter("/ ", "x");
    assert!(talk.take_shown().contains("there is no command /"));
    talk.enter("/session", "x");
    assert!(talk.take_shown().contains("there is none yet"));
    talk.enter("  ", "x");
    talk.enter("/cancel", "x");
    assert_eq!(talk.take_shown(), "nothing runs");
    talk.enter("//literally", "r-1");
    let chat = ChatEffect::SendMessage { id: "r-1".into(), content: "/literally".into() };
    assert_eq!(talk.take_effects(), [chat]);
    assert_eq!(talk.conversation.message_frame("r-1", "/literally").get("workflow"), None);
    talk.enter("/quit", "x");
    assert_eq!(talk.take_effects(), [ChatEffect::Exit(0)]);
}

#[test]
fn x5_what_the_server_says_is_shown_and_not_obeyed() {
    let evil = "\u{1b}[2J\u{9b}1;1H\rforged\u{202e}";
    let mut talk = TestChat::running();
    let mut asked = question("c-1", "p-1");
    for name in ["toolName", "description", "why", "risk"] {
        asked[name] = json!(evil);
    }
    asked["args"] = json!({evil: [evil]});
    talk.receive(asked);
    talk.receive(native(json!({"type": "approval_decided", "approval_id": "p-1", "closed": true,
        "steps": [{"call_id": "c-1", "approved": true, "by": evil, "surface": evil}]})));
    talk.receive(
        json!({"type": "tool.result", "requestId": "r-1", "toolCallId": "c-1", "toolName": evil,
        "isError": true, "result": {"error": evil, "reason": evil}}),
    );
    talk.receive(json!({"type": "error", "code": "x", "message": evil}));
    talk.receive(other(
        json!({"approval_id": evil, "kind": "elicitation", "purpose": evil, "message": evil,
        "server": evil, "schema": {"properties": {evil: {"type": evil}}}}),
    ));
    let shown = talk.take_shown() + &talk.status() + &talk.prompt();
    assert!(shown.contains("forged"));
    let controls = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
    assert!(!shown.contains(controls), "{shown:?}");
}
