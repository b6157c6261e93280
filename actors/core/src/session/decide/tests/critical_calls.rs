//! Critical calls: who may approve them, and what an edit requires (G12).

use super::{
    delegation::{child_tasks, create_child, delegate, delegate_call, with_delegates},
    *,
};
use crate::{
    authors::Authors,
    policy::CriticalRule,
    preflight::{ChecklistStepEdit, SUBMIT_PLAN_TOOL},
    session::{QueuedMessageChange, SessionEvent},
};

const FOUR_EYES: CriticalRule = CriticalRule { min_role: None, four_eyes: true };
const BOTH: CriticalRule = CriticalRule { min_role: Some(Role::Approver), four_eyes: true };

/// Returns the message of `submit_with`, written by `author`.
fn submit_as(author: &str, message_id: &str, on_busy: OnBusy) -> Input {
    let mut input = submit_with(message_id, message_id, on_busy);
    if let Input::SubmitMessage { message, .. } = &mut input {
        message.authors = user(author).into();
    }
    input
}

/// Returns a session of `ann` under the rule, in which `mia` sent the message and the model proposed
/// one critical call.
fn with_critical_call(critical: CriticalRule) -> SessionHarness {
    let mut harness = SessionHarness::new().with_rules(|rules| rules.critical = critical);
    harness.apply(submit_as("mia", "u1", OnBusy::Queue)).unwrap();
    harness.propose(&[ScriptedCall::Valid("crit", json!({"n": 1}))]);
    harness
}

fn as_role(input: Input, new_role: Role) -> Input {
    let Input::AnswerApproval { approval_id, answer, for_session, by, surface, role: _ } = input
    else {
        panic!("{input:?}")
    };
    Input::AnswerApproval { approval_id, answer, for_session, by, surface, role: new_role }
}

impl SessionHarness {
    fn approve_as(&self, approval: &str, user_name: &str, role: Role) -> Input {
        as_role(self.overall_answer(approval, true, user_name), role)
    }

    fn edit_as(&self, approval: &str, arguments: Value, user_name: &str) -> Input {
        let (call_id, arguments) = (self.call("c1"), Some(arguments));
        let step = PlanStepAnswer { call_id, approved: true, reason: None, arguments };
        let answer = self.answer(approval, ApprovalAnswer::Steps(vec![step]), user_name);
        as_role(answer, Role::Approver)
    }
}

const APPROVED_BY_BOB: &str = "
    approval_decided p1 +c1 by bob closed @r1.1
    tool_call_allowed c1 by bob p1 @r1.1
    tool_call_attempt_started c1 a2 #1 @r1.1
    > start_tool c1 a2 crit
    = decided closed
";

#[test]
fn g12_owner_author_and_lower_role_may_not_approve() {
    let refused = |rest: &str| format!("! `crit` is critical: approval requires {rest}");
    let owner = refused("a user other than the session's owner");
    let author = refused("a user other than an author of the run's messages");
    let role = refused("the role `approver`");
    for (rule, name, answerer_role, expected) in [
        (FOUR_EYES, "ann", Role::User, owner.as_str()),
        (FOUR_EYES, "ann", Role::Approver, &owner),
        (FOUR_EYES, "ann", Role::Admin, &owner),
        (FOUR_EYES, "mia", Role::Admin, &author),
        (FOUR_EYES, "bob", Role::User, APPROVED_BY_BOB),
        (BOTH, "bob", Role::User, &role),
        (BOTH, "mia", Role::User, &role),
        (BOTH, "mia", Role::Approver, &author),
        (BOTH, "bob", Role::Approver, APPROVED_BY_BOB),
        (CriticalRule::default(), "bob", Role::User, APPROVED_BY_BOB),
    ] {
        let mut harness = with_critical_call(rule);
        harness.check(harness.approve_as("p1", name, answerer_role), expected);
        let is_open = !harness.state.active.approvals.is_empty();
        assert_eq!(is_open, expected != APPROVED_BY_BOB, "a refused answer decides nothing");
    }
}

#[test]
fn g12_owner_may_reject_and_approve_other_steps() {
    let mut harness = SessionHarness::new().with_rules(|rules| rules.critical = BOTH);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&scripted_calls(["crit", "high"]));
    harness.check(
        harness.step_answers("p1", &[("c2", true)], "ann"),
        "
        approval_decided p1 +c2 by ann @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        = decided
    ",
    );
    harness.check(
        harness.step_answers("p1", &[("c1", false)], "ann"),
        "
        approval_decided p1 -c1 by ann closed @r1.1
        tool_call_failed c1 Rejected (a human rejected this call) @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 high
        = decided closed
    ",
    );
}

#[test]
fn g12_edited_critical_call_needs_another_user() {
    let mut harness = with_critical_call(FOUR_EYES);
    harness.check(
        harness.edit_as("p1", json!({"n": 5}), "carl"),
        "
        approval_decided p1 +c1 by carl closed @r1.1
        approval_requested p2 (Execute 1 tool) c1 critical within Some(60) @r1.1
        = decided closed
    ",
    );
    let step = harness.state.active.approvals[0].approval.steps()[0].clone();
    assert_eq!(step.arguments, json!({"n": 5}));
    assert!(step.why.ends_with("; the arguments were edited by carl"), "{}", step.why);
    let editor = "! `crit` is critical: approval requires a user other than an editor of the \
                  call or its plan";
    harness.check(harness.approve_as("p2", "carl", Role::Admin), editor);
    // A further edit counts as well, and an editor may edit again.
    harness.apply(harness.edit_as("p2", json!({"n": 6}), "dora")).unwrap();
    harness.apply(harness.edit_as("p3", json!({"n": 7}), "carl")).unwrap();
    for name in ["carl", "dora"] {
        harness.check(harness.approve_as("p4", name, Role::Approver), editor);
    }
    harness.check(
        harness.approve_as("p4", "bob", Role::Approver),
        r#"
        approval_decided p4 +c1 by bob closed @r1.1
        tool_call_allowed c1 by bob p4 as {"n":7} @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 crit
        = decided closed
    "#,
    );
}

#[test]
fn g12_owner_and_author_may_not_edit() {
    for (name, party) in
        [("ann", "the session's owner"), ("mia", "an author of the run's messages")]
    {
        let mut harness = with_critical_call(FOUR_EYES);
        let refused = format!("! `crit` is critical: approval requires a user other than {party}");
        harness.check(harness.edit_as("p1", json!({"n": 5}), name), &refused);
    }
}

#[test]
fn g12_edit_runs_at_once_without_four_eyes() {
    let needs_role = CriticalRule { min_role: Some(Role::Approver), four_eyes: false };
    let mut harness = with_critical_call(needs_role);
    let decision = harness.apply(harness.edit_as("p1", json!({"n": 5}), "ann")).unwrap();
    let [crate::session::Effect::StartTool { arguments, .. }] = &decision.effects[..] else {
        panic!("{:?}", decision.effects);
    };
    assert_eq!(arguments.to_value(), json!({"n": 5}));
}

#[test]
fn g12_steering_or_changing_a_message_makes_an_author() {
    let mut harness = SessionHarness::new().with_rules(|rules| rules.critical = FOUR_EYES);
    harness.apply(submit_as("mia", "u1", OnBusy::Queue)).unwrap();
    harness.apply(submit_as("ann", "u2", OnBusy::Queue)).unwrap();
    harness.apply(submit_as("sue", "u3", OnBusy::Steer)).unwrap();
    let change = QueuedMessageChange {
        text: "u2 changed".into(),
        digest: Digest::hash_bytes(b"c"),
        preflight: None,
    };
    let message_id = MessageId::parse("u2").unwrap();
    let by = user("pat");
    harness.apply(Input::ChangeQueuedMessage { message_id, change, by }).unwrap();
    harness.propose(&scripted_calls(["read"]));
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.propose(&scripted_calls(["crit"]));
    let author =
        "! `crit` is critical: approval requires a user other than an author of the run's messages";
    // The first run was begun by `mia` and steered by `sue`; `pat` wrote nothing of it.
    for name in ["mia", "sue"] {
        harness.check(harness.approve_as("p1", name, Role::Admin), author);
    }
    harness.apply(harness.approve_as("p1", "pat", Role::Admin)).unwrap();
    harness.apply(harness.tool_finishes("c2", completed())).unwrap();
    harness.apply(harness.model_answers("done")).unwrap();
    // The second run has the author of the message and the user who changed it.
    harness.propose(&scripted_calls(["crit"]));
    harness.check(harness.approve_as("p2", "pat", Role::Admin), author);
    harness.apply(harness.approve_as("p2", "mia", Role::Admin)).unwrap();
    let mut accepted = Vec::new();
    for record in &harness.log {
        if let SessionEvent::MessageAccepted { message_id, authors, .. } = &record.event {
            accepted.push((message_id.as_str(), authors.clone()));
        }
    }
    let mut changed = Authors::from(user("ann"));
    changed.add(&user("pat"));
    let expected = [("u1", user("mia").into()), ("u3", user("sue").into()), ("u2", changed)];
    assert_eq!(accepted, expected);
}

#[test]
fn g12_run_without_recorded_author_needs_an_approver_without_the_role_admin() {
    let recorded = with_critical_call(FOUR_EYES);
    let forget_authors = |record: &EventRecord| {
        let mut stored = serde_json::to_value(record).unwrap();
        stored["payload"].as_object_mut().unwrap().remove("authors");
        serde_json::from_value::<EventRecord>(stored).unwrap()
    };
    let mut harness = recorded;
    harness.log = harness.log.iter().map(forget_authors).collect();
    harness.state = SessionState::replay(harness.state.session_id, &harness.log);
    harness.check(
        harness.approve_as("p1", "mia", Role::Admin),
        "! `crit` is critical: approval requires a user who is neither the session's owner nor an \
         administrator, because the author of the run's message is not recorded",
    );
    harness.check(
        harness.approve_as("p1", "ann", Role::Approver),
        "! `crit` is critical: approval requires a user other than the session's owner",
    );
    harness.check(harness.approve_as("p1", "bob", Role::Approver), APPROVED_BY_BOB);
}

#[test]
fn g12_every_answer_to_unknown_outcome_of_critical_call_is_subject_to_the_rule() {
    let resolutions = [Resolution::Retry, Resolution::Done(json!("it did")), Resolution::Failed];
    for resolution in resolutions {
        let mut harness = with_critical_call(FOUR_EYES);
        harness.apply(harness.edit_as("p1", json!({"n": 5}), "carl")).unwrap();
        harness.apply(harness.approve_as("p2", "bob", Role::Approver)).unwrap();
        harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
        for name in ["ann", "mia", "carl"] {
            let answer = harness.resolve("p3", resolution.clone(), name);
            let refused = harness.apply(as_role(answer, Role::Admin)).unwrap_err();
            assert!(matches!(refused, Rejection::FourEyes { .. }), "{name}: {refused}");
        }
        let answer = harness.resolve("p3", resolution, "bob");
        harness.apply(as_role(answer, Role::Approver)).unwrap();
    }
}

/// Returns the input in which the model submits a plan of one critical step.
fn submit_critical_plan(harness: &SessionHarness) -> Input {
    let step = json!({"description": "Pay", "tool": "crit", "arguments": {"n": 1}});
    harness.model_calls(&[ScriptedCall::Valid(SUBMIT_PLAN_TOOL, json!({"steps": [step]}))])
}

#[test]
fn g12_preflight_plan_does_not_cover_critical_calls() {
    for (rule, edited_by_carl) in
        [(CriticalRule::default(), false), (FOUR_EYES, false), (FOUR_EYES, true)]
    {
        let mut harness = SessionHarness::new().with_rules(|rules| rules.critical = rule);
        let mut message = submit("u1");
        if let Input::SubmitMessage { message, .. } = &mut message {
            message.preflight = Some(true);
        }
        harness.apply(message).unwrap();
        harness.apply(submit_critical_plan(&harness)).unwrap();
        let number = if edited_by_carl { 9 } else { 1 };
        let arguments = Some(json!({"n": number})).filter(|_| edited_by_carl);
        let edit = ChecklistStepEdit { position: 1, arguments, ..ChecklistStepEdit::default() };
        harness.apply(harness.resolve("p1", Resolution::Approve(vec![edit]), "carl")).unwrap();
        harness.propose(&[ScriptedCall::Valid("crit", json!({"n": number}))]);
        let needs_own_approval = !harness.state.active.approvals.is_empty();
        assert_eq!(needs_own_approval, rule.requires_approval());
        if needs_own_approval {
            // The approver of a plan may approve its critical calls, unless they edited the plan.
            let result = harness.apply(harness.approve_as("p2", "carl", Role::Approver));
            assert_eq!(result.is_ok(), !edited_by_carl, "{result:?}");
        }
    }
}

#[test]
fn g12_child_inherits_the_authors_of_its_parents_run() {
    let harness = SessionHarness::new().with_rules(|rules| rules.critical = FOUR_EYES);
    let mut harness = with_delegates(harness);
    // The call needs approval, so that `carl` can edit its task.
    let delegate = Tool { risk: Risk::WriteHighRisk, ..delegate(&["researcher"]) };
    harness.rules.delegate = Some(Arc::new(delegate));
    harness.apply(submit_as("mia", "u1", OnBusy::Queue)).unwrap();
    harness.propose(&[delegate_call("researcher", "Pay 1")]);
    let edited = json!({"agent": "researcher", "task": "Pay 1000"});
    let decision = harness.apply(harness.edit_as("p1", edited, "carl")).unwrap();
    let mut child = create_child(&child_tasks(&decision).remove(0));
    child.rules.critical = FOUR_EYES;
    child.propose(&scripted_calls(["crit"]));
    for (name, party) in [
        ("ann", "the session's owner"),
        ("mia", "an author of the run's messages"),
        ("carl", "an author of the run's messages"),
    ] {
        let refused = format!("! `crit` is critical: approval requires a user other than {party}");
        child.check(child.approve_as("p1", name, Role::Admin), &refused);
    }
    child.check(child.approve_as("p1", "bob", Role::User), APPROVED_BY_BOB);
}

#[test]
fn g12_rule_set_after_the_approval_applies_before_the_start() {
    let propose = |rule| {
        let mut harness = SessionHarness::new().with_rules(|rules| rules.critical = rule);
        harness.apply(submit("u1")).unwrap();
        harness.propose(&scripted_calls(["low", "crit"]));
        harness
    };
    // The owner approved the critical call before the rule was set, while another call ran.
    let mut harness = propose(CriticalRule::default());
    harness.apply(harness.approve_as("p1", "ann", Role::User)).unwrap();
    harness.rules.critical = FOUR_EYES;
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        approval_requested p2 (Execute 1 tool) c2 critical within Some(60) @r1.1
    ",
    );
    // An approval that meets the rule stays valid.
    let mut harness = propose(FOUR_EYES);
    harness.apply(harness.approve_as("p1", "bob", Role::Approver)).unwrap();
    harness.rules.critical = BOTH;
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 crit
    ",
    );
}
