//! The conversation, told what happens and asked what is to be done.

use super::{
    conversation::{Act, Conversation, Failure, Post},
    heard::{Heard, Outcome},
};
use greenroom_core::Timestamp;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_767_268_800_000);

/// A conversation, and what it wanted done so far.
struct Talk {
    conversation: Conversation,
    acts: Vec<Act>,
}

impl Talk {
    /// One whose request `r-1` runs.
    fn running() -> Self {
        let mut talk = Self { conversation: Conversation::new(None), acts: Vec::new() };
        talk.enter("buy it", "r-1");
        talk.hear(json!({
            "type": "chat.stream.start", "requestId": "r-1", "sessionId": "s", "runId": "run",
        }));
        talk.acts.clear();
        talk
    }

    /// One that is asked whether a call may run.
    fn asked() -> Self {
        let mut talk = Self::running();
        talk.hear(call("c-1"));
        talk.hear(question("c-1", "p-1"));
        talk.acts.clear();
        talk
    }

    fn enter(&mut self, line: &str, id: &str) {
        self.conversation.entered(line, id.to_owned(), &mut self.acts);
    }

    fn hear(&mut self, frame: Value) {
        self.conversation.heard(Heard::read(frame), &mut self.acts);
    }

    /// What was to be done since, but for lines to show.
    fn done(&mut self) -> Vec<Act> {
        let acts = std::mem::take(&mut self.acts);
        acts.into_iter().filter(|act| !matches!(act, Act::Show(_) | Act::Break)).collect()
    }

    /// The lines that were to be shown since.
    fn shown(&mut self) -> String {
        let acts = std::mem::take(&mut self.acts);
        let line = |act: &Act| if let Act::Show(line) = act { Some(line.plain()) } else { None };
        acts.iter().filter_map(line).collect::<Vec<_>>().join("\n")
    }

    fn prompt(&self) -> String {
        self.conversation.live(NOW).prompt
    }

    fn status(&self) -> String {
        let lines = self.conversation.live(NOW).lines;
        lines.iter().map(super::line::Line::plain).collect::<Vec<_>>().join("\n")
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

fn word(call: &str, approved: bool, id: &str) -> Act {
    Act::Send(json!({
        "type": "tool.approval.response", "toolCallId": call, "approved": approved, "id": id,
    }))
}

#[test]
fn g14_why_there_is_no_plan_is_told() {
    let mut talk = Talk::running();
    talk.hear(native(json!({"type": "preflight_skipped", "warning": "the model made no plan"})));
    assert!(talk.shown().contains("the model made no plan"));
}

#[test]
fn g8_a_question_is_put_and_answered() {
    let mut talk = Talk::running();
    talk.hear(call("c-1"));
    talk.hear(question("c-1", "p-1"));
    let shown = talk.shown();
    for text in
        ["? buy  medium risk", "  Buys", "    amount  5", "    item    ore", "because level L1"]
    {
        assert!(shown.contains(text), "{text:?} is not in\n{shown}");
    }
    assert_eq!(talk.prompt(), "Run it? y/n/e(dit)/s(ession) (1m left) › ");
    assert_eq!(talk.status(), "○ buy  waits for a word");
    talk.enter("maybe", "x");
    assert!(talk.shown().contains("y: yes"));
    talk.enter(" Y ", "x");
    assert_eq!(talk.done(), [word("c-1", true, "answer-1")]);
    assert_eq!(talk.prompt(), "› ");
    talk.hear(json!({"type": "tool.result", "requestId": "r-1", "toolCallId": "c-1",
        "toolName": "buy", "result": {"order": 7}}));
    assert_eq!(talk.shown(), "● buy  amount=5 item=ore\n  → {\"order\":7}");
}

#[test]
fn g8_g9_every_answer_goes_where_it_has_a_word() {
    let mut no = Talk::asked();
    no.enter("n", "x");
    assert_eq!(no.done(), [word("c-1", false, "answer-1")]);

    let mut session = Talk::asked();
    session.enter("s", "x");
    let Act::Send(frame) = &session.done()[0] else { panic!("it is sent") };
    assert_eq!((&frame["approved"], &frame["sessionApprove"]), (&json!(true), &json!(true)));

    // Why, and what is edited, go to REST.
    let mut why = Talk::asked();
    why.enter("n too dear", "x");
    let body = json!({"steps": [{"call_id": "c-1", "decision": "reject", "reason": "too dear"}]});
    let path = "/agent/approvals/p-1".to_owned();
    let to = Post::Answer("answer-1".to_owned());
    assert_eq!(why.done(), [Act::Post { to: to.clone(), path: path.clone(), body }]);

    let mut edit = Talk::asked();
    edit.enter("e", "x");
    assert_eq!(edit.done(), [Act::Edit(json!({"item": "ore", "amount": 5}))]);
    edit.conversation.edited(Ok(r#"{"item": "ore", "amount": 2}"#), &mut edit.acts);
    let step =
        json!({"call_id": "c-1", "decision": "approve", "arguments": {"item": "ore", "amount": 2}});
    let body = json!({ "steps": [step] });
    assert_eq!(edit.done(), [Act::Post { to, path, body }]);
}

#[test]
fn g8_an_edit_in_place_can_be_given_up_or_be_nonsense() {
    let mut talk = Talk::asked();
    talk.enter("e", "x");
    talk.conversation.edit_in_place();
    assert_eq!(talk.prompt(), "Edit › ");
    talk.enter("{ nonsense", "x");
    assert!(talk.shown().contains("that is not JSON"));
    assert!(talk.prompt().starts_with("Run it?"), "it still waits");
    talk.conversation.edit_in_place();
    talk.conversation.interrupt(&mut talk.acts);
    assert!(talk.prompt().starts_with("Run it?"));
    assert_eq!(talk.done(), [], "neither is an answer, and nothing is cancelled");
}

#[test]
fn g11_what_somebody_else_answers_is_not_asked_any_more() {
    let mut talk = Talk::asked();
    talk.hear(question("c-2", "p-1"));
    let step = |call: &str| json!({"call_id": call, "approved": true, "by": "ann", "surface": "dashboard"});
    let decided = |call: &str| {
        native(
            json!({"type": "approval_decided", "approval_id": "p-1", "steps": [step(call)], "closed": false}),
        )
    };
    talk.hear(decided("c-1"));
    let shown = talk.shown();
    assert!(shown.contains("answered elsewhere: approved by ann (dashboard)"), "{shown}");
    assert!(shown.contains("? buy"), "the next one is put: {shown}");
    talk.hear(decided("c-2"));
    assert_eq!(talk.prompt(), "› ");
    talk.hear(question("c-3", "p-2"));
    talk.acts.clear();
    talk.hear(native(json!({"type": "approval_expired", "approval_id": "p-2"})));
    assert_eq!((talk.shown().trim(), talk.prompt().as_str()), ("nobody answered in time", "› "));
}

#[test]
fn g11_an_answer_that_is_refused_is_asked_for_again_unless_somebody_was_first() {
    let mut talk = Talk::asked();
    talk.enter("s", "x");
    let refused = |code: &str| json!({"type": "error", "requestId": "answer-1", "code": code, "message": "not for this one"});
    talk.hear(refused("invalid_grant"));
    assert!(talk.shown().contains("! not for this one"));
    assert!(talk.prompt().starts_with("Run it?"));
    talk.enter("n why not", "x");
    let failure = Failure { code: "already_decided".into(), detail: "ann was first".into() };
    let to = Post::Answer("answer-2".to_owned());
    talk.conversation.posted(&to, Err(failure), &mut talk.acts);
    assert!(talk.shown().contains("! ann was first"));
    assert_eq!(talk.prompt(), "› ");
}

#[test]
fn g11_a_question_that_comes_again_after_a_cut_is_put_once() {
    let mut talk = Talk::asked();
    talk.hear(question("c-1", "p-1"));
    assert_eq!(talk.shown(), "");
    // An answer that is on its way is one; another may have been lost with the connection.
    talk.enter("y", "x");
    talk.hear(question("c-1", "p-1"));
    assert_eq!(talk.prompt(), "› ");
    talk.conversation.lost("gone", std::time::Duration::from_secs(1), NOW, &mut talk.acts);
    talk.conversation.back(&mut talk.acts);
    talk.hear(question("c-1", "p-1"));
    assert!(talk.prompt().starts_with("Run it?"));
    // What is answered meanwhile goes over the next connection, after what asks again.
    talk.conversation.lost("gone", std::time::Duration::from_secs(1), NOW, &mut talk.acts);
    talk.enter("y", "x");
    talk.conversation.back(&mut talk.acts);
    talk.hear(question("c-1", "p-1"));
    assert_eq!(talk.prompt(), "› ");
}

#[test]
fn g14_a_plan_is_changed_step_by_step() {
    let mut talk = Talk::running();
    talk.hear(json!({
        "type": "preflight.checklist", "requestId": "r-1", "approvalId": "p-1", "deadline": null,
        "steps": [
            {"description": "look", "risk": "low", "needsApproval": false},
            {"description": "buy", "toolName": "buy", "arguments": {"n": 1}, "risk": "high",
                "needsApproval": true},
        ],
        "estimatedCost": {"inputTokens": 100, "outputTokens": 20, "estimatedUSD": null},
        "requiredPermissions": ["trade"], "warnings": ["it is late"],
    }));
    let shown = talk.shown();
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
        assert!(talk.shown().contains("say step N anew"), "{unclear}");
    }
    talk.enter("s 2", "x");
    assert!(talk.shown().contains("2. buy (left out)"));
    talk.enter("e 1", "x");
    assert_eq!(talk.done(), [Act::Prefill("look".to_owned())]);
    assert_eq!(talk.prompt(), "Step 1 › ");
    talk.enter("look twice", "x");
    assert!(talk.shown().contains("1. look twice"));
    talk.enter("y", "x");
    let expected = json!({
        "type": "preflight.approval", "requestId": "r-1", "approved": true, "id": "answer-1",
        "editedSteps": [
            {"description": "look twice"},
            {"description": "buy", "toolName": "buy", "skip": true},
        ],
    });
    assert_eq!(talk.done(), [Act::Send(expected)]);
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
            let mut talk = Talk::running();
            talk.hear(other(view.clone()));
            let shown = talk.shown();
            assert!(shown.contains(shows), "{shows:?} is not in\n{shown}");
            talk.enter("what?", "x");
            assert_eq!(talk.done(), [], "{view}");
            talk.enter(said, "x");
            let (to, path) = (Post::Answer("answer-1".into()), "/agent/approvals/p-1".to_owned());
            assert_eq!(talk.done(), [Act::Post { to, path, body }]);
        }
    }
    let mut unclear = Talk::running();
    unclear.hear(other(json!({"approval_id": "p-1", "kind": "something_new", "purpose": "Hm?"})));
    assert!(unclear.shown().contains("/agent/approvals/p-1"));
    // It is answered elsewhere.
    let decided = json!({"type": "approval_decided", "approval_id": "p-1", "closed": true,
        "answer": {"decision": "raise", "by": "ann", "surface": "rest"}});
    unclear.hear(native(decided));
    assert_eq!(unclear.shown().trim(), "answered elsewhere: raise by ann (rest)");
}

#[test]
fn t1_a_form_is_filled_in_field_by_field() {
    let mut talk = Talk::running();
    talk.hear(json!({
        "type": "elicitation.request", "requestId": "r-1", "approvalId": "p-1",
        "toolCallId": "c-1", "toolName": "choose_hangar", "server": "market", "mode": "form",
        "message": "Which hangar?", "deadline": null,
        "requestedSchema": {"required": ["hangar"], "properties": {
            "crates": {"type": "integer", "default": 1}, "note": {"type": "string"},
            "hangar": {"type": "string", "enum": ["north", "south"]},
        }},
    }));
    let shown = talk.shown();
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
    assert!(talk.shown().contains("a number"), "it says what it takes");
    talk.enter("", "x");
    assert_eq!(talk.prompt(), "note (string, may be left out) › ");
    talk.enter("", "x");
    let body = json!({"decision": "answer", "value": {"crates": 1, "hangar": "south"}});
    let (to, path) = (Post::Answer("answer-1".into()), "/agent/approvals/p-1".to_owned());
    assert_eq!(talk.done(), [Act::Post { to: to.clone(), path, body }]);
    // It was not good enough: it is asked for again, from the start.
    let failure = Failure { code: "answer_invalid".into(), detail: "no such hangar".into() };
    talk.conversation.posted(&to, Err(failure), &mut talk.acts);
    assert!(talk.shown().contains("no such hangar"));
    assert_eq!(talk.prompt(), "hangar (north | south) › ");
}

#[test]
fn s6_interrupting_cancels_and_twice_leaves() {
    let mut talk = Talk::running();
    talk.conversation.interrupt(&mut talk.acts);
    let body = json!({"run_id": "run"});
    let path = "/agent/session/s/cancel".to_owned();
    assert_eq!(talk.done(), [Act::Post { to: Post::Cancel, path, body }]);
    talk.conversation.interrupt(&mut talk.acts);
    assert_eq!(talk.done(), [Act::Leave(130)]);

    let mut calm = Talk::running();
    calm.conversation.interrupt(&mut calm.acts);
    calm.hear(
        json!({"type": "chat.stream.end", "requestId": "r-1", "outcome": "cancelled", "usage": {}}),
    );
    assert!(calm.shown().contains("cancelled"));
    assert_eq!(calm.conversation.outcome, Some(Outcome::Cancelled));
    calm.conversation.interrupt(&mut calm.acts);
    assert_eq!(calm.done(), [], "the run is over: it counts anew");
    calm.enter("/help", "x");
    calm.conversation.interrupt(&mut calm.acts);
    assert_eq!(calm.done(), [], "something was done in between");
}

#[test]
fn s6_interrupting_before_the_server_answers_cancels_once_it_does() {
    let mut talk = Talk::running();
    talk.hear(
        json!({"type": "chat.stream.end", "requestId": "r-1", "outcome": "completed", "usage": {}}),
    );
    talk.enter("another", "r-2");
    talk.acts.clear();
    talk.conversation.interrupt(&mut talk.acts);
    assert_eq!(talk.done(), [], "there is nothing to name yet");
    let start = |id: &str, run: &str| json!({"type": "chat.stream.start", "requestId": id, "sessionId": "s", "runId": run});
    talk.hear(start("r-2", "run-2"));
    let (path, body) = ("/agent/session/s/cancel".to_owned(), json!({"run_id": "run-2"}));
    assert_eq!(talk.done(), [Act::Post { to: Post::Cancel, path, body }]);
    // Told again after a lost connection, it is not cancelled again.
    talk.hear(start("r-2", "run-2"));
    assert_eq!(talk.done(), []);
}

#[test]
fn r2_retries_and_progress_are_seen_and_counted_down() {
    let mut talk = Talk::running();
    assert_eq!(talk.status(), "thinking …");
    talk.hear(call("c-1"));
    talk.hear(native(json!({"type": "tool_call_attempt_started", "call_id": "c-1"})));
    assert_eq!(talk.status(), "○ buy  runs …");
    talk.hear(native(json!({"type": "tool_call_progress", "call_id": "c-1", "progress": 1,
        "total": 4, "message": "packing"})));
    assert_eq!(talk.status(), "○ buy  runs … 25 % packing");
    talk.hear(native(json!({"type": "tool_call_retrying", "call_id": "c-1", "attempt": 1,
        "reason": "timeout", "until": "2026-01-01T12:00:09.000Z"})));
    assert_eq!(talk.status(), "○ buy  attempt 1 failed, again in 9s: timeout");
    assert!(talk.conversation.is_counting());
    talk.hear(
        json!({"type": "tool.result", "requestId": "r-1", "toolCallId": "c-1", "toolName": "buy",
        "isError": true, "result": {"error": "too slow", "reason": "timeout"}}),
    );
    assert_eq!(talk.shown(), "● buy  amount=5 item=ore\n  ✗ timeout: too slow");
    talk.hear(native(
        json!({"type": "step_retrying", "reason": "429", "until": "2026-01-01T12:00:03.000Z"}),
    ));
    assert_eq!(talk.status(), "the model is asked again in 3s: 429");
}

#[test]
fn m3_text_that_does_not_count_is_said_to_be_void() {
    let mut talk = Talk::running();
    let delta = |message: &str, text: &str| json!({"type": "chat.stream.delta", "requestId": "r-1", "messageId": message, "delta": text});
    talk.hear(delta("m-1", "one "));
    let mut void = delta("m-1", "");
    void["discarded"] = json!(true);
    talk.hear(void.clone());
    talk.hear(void);
    talk.hear(delta("m-2", "one two"));
    let told = talk.done();
    assert_eq!(told, [Act::Text("one ".into()), Act::Void, Act::Text("one two".into())]);
}

#[test]
fn a_message_that_is_not_taken_is_over() {
    let mut talk = Talk { conversation: Conversation::new(None), acts: Vec::new() };
    talk.enter("hello", "r-1");
    assert!(!talk.conversation.is_idle());
    talk.hear(
        json!({"type": "error", "requestId": "r-1", "code": "too_many_runs", "message": "wait"}),
    );
    assert!(talk.conversation.is_idle());
    assert_eq!(talk.conversation.outcome, Some(Outcome::Failed));
    assert!(talk.shown().contains("! wait"));
}

#[test]
fn a_lost_connection_is_told_once_and_counted_down() {
    let mut talk = Talk::running();
    for _ in 0..3 {
        let again_in = std::time::Duration::from_secs(2);
        talk.conversation.lost("gone", again_in, NOW, &mut talk.acts);
    }
    assert_eq!(talk.shown(), "! the connection is lost: gone");
    assert!(talk.status().contains("connecting again in 2s"));
    talk.conversation.back(&mut talk.acts);
    assert_eq!(talk.shown(), "connected again");
}

#[test]
fn c3_a_workflow_is_started_by_its_name() {
    let mut talk = Talk { conversation: Conversation::new(None), acts: Vec::new() };
    talk.enter("/restock type_id=34 note=\"a b\"", "r-1");
    let line = "/restock note=\"a b\" type_id=34";
    let chat = Act::Chat { id: "r-1".into(), content: line.into() };
    assert_eq!(talk.done().last(), Some(&chat));
    let frame = talk.conversation.chat("r-1", line);
    let inputs = json!({"note": "a b", "type_id": "34"});
    assert_eq!(frame["workflow"], json!({"name": "restock", "inputs": inputs}));
}

#[test]
fn words_to_the_chat_itself() {
    let mut talk = Talk { conversation: Conversation::new(None), acts: Vec::new() };
    talk.enter("/restock now", "x");
    assert!(talk.shown().contains("/restock: `now` is no input; write key=value"));
    talk.enter("/ ", "x");
    assert!(talk.shown().contains("there is no command /"));
    talk.enter("/session", "x");
    assert!(talk.shown().contains("there is none yet"));
    talk.enter("  ", "x");
    talk.enter("/cancel", "x");
    assert_eq!(talk.shown(), "nothing runs");
    talk.enter("//literally", "r-1");
    let chat = Act::Chat { id: "r-1".into(), content: "/literally".into() };
    assert_eq!(talk.done(), [chat]);
    assert_eq!(talk.conversation.chat("r-1", "/literally").get("workflow"), None);
    talk.enter("/quit", "x");
    assert_eq!(talk.done(), [Act::Leave(0)]);
}

#[test]
fn x5_what_the_server_says_is_shown_and_not_obeyed() {
    let evil = "\u{1b}[2J\u{9b}1;1H\rforged\u{202e}";
    let mut talk = Talk::running();
    let mut asked = question("c-1", "p-1");
    for name in ["toolName", "description", "why", "risk"] {
        asked[name] = json!(evil);
    }
    asked["args"] = json!({evil: [evil]});
    talk.hear(asked);
    talk.hear(native(json!({"type": "approval_decided", "approval_id": "p-1", "closed": true,
        "steps": [{"call_id": "c-1", "approved": true, "by": evil, "surface": evil}]})));
    talk.hear(
        json!({"type": "tool.result", "requestId": "r-1", "toolCallId": "c-1", "toolName": evil,
        "isError": true, "result": {"error": evil, "reason": evil}}),
    );
    talk.hear(json!({"type": "error", "code": "x", "message": evil}));
    talk.hear(other(
        json!({"approval_id": evil, "kind": "elicitation", "purpose": evil, "message": evil,
        "server": evil, "schema": {"properties": {evil: {"type": evil}}}}),
    ));
    let shown = talk.shown() + &talk.status() + &talk.prompt();
    assert!(shown.contains("forged"));
    let controls = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
    assert!(!shown.contains(controls), "{shown:?}");
}
