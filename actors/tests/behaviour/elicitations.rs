//! Elicitations of running tools (T1): an approval is requested, and its answer is sent to the tool.

use crate::{completed_calls, count_events, last_approval};
use greenroom_actors::testing::{
    FakeTools, ModelReply, ScriptedModel, TestRuntime, TestRuntimeBuilder, ToolAction, ToolScript,
    wait_until,
};
use greenroom_core::{
    approval::{
        Approval, ApprovalDeadlines, DeadlineRule, Elicitation, ElicitationMode, Resolution, Role,
        Surface,
    },
    policy::Risk,
    session::{ApprovalAnswer, Input, SessionEvent},
};
use serde_json::json;
use std::time::Duration;

fn elicit_hangar() -> ToolAction {
    let schema = json!({"type": "object", "properties": {"hangar": {"type": "string"}}});
    let message = "Which hangar?".to_owned();
    ToolAction::Elicit(Elicitation { message, mode: ElicitationMode::Form { schema } })
}

fn runtime_with_elicitation() -> TestRuntimeBuilder {
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([("store", json!({}))]),
        ModelReply::text("understood"),
    ]);
    let tools = FakeTools::new()
        .with_tool("store", Risk::WriteLowRisk, |_| ToolScript::new().with_action(elicit_hangar()));
    TestRuntime::builder().model(model).tools(tools)
}

fn resolve(approval: &Approval, resolution: Resolution) -> Input {
    Input::AnswerApproval {
        approval_id: approval.approval_id,
        answer: ApprovalAnswer::Resolve { resolution, reason: None },
        for_session: None,
        by: TestRuntime::user(),
        role: Role::User,
        surface: Surface::Rest,
    }
}

#[actix::test]
async fn t1_elicitation_answer_is_sent_to_the_tool() {
    for (resolution, expected) in [
        (
            Resolution::Answer(json!({"hangar": "north"})),
            r#"Accepted(Some(Object {"hangar": String("north")}))"#,
        ),
        (Resolution::Reject, "Declined"),
    ] {
        let world = runtime_with_elicitation().idle_timeout(Duration::ZERO).start().await;
        let session = world.create_session().await;
        let run = world.submit(session, "a").await;
        let approval = world.wait_for(session, "the approval", last_approval).await;
        let path = format!("/sessions/{session}");
        let waits = || {
            let snapshot = world.runtime.status_board.snapshot(&path);
            snapshot
                .and_then(|snapshot| snapshot.waiting)
                .is_some_and(|waiting| waiting.awaited.contains("elicitation"))
        };
        wait_until("the status board to show the elicitation", waits).await;
        let answer = resolve(&approval, resolution);
        world.execute(session, answer).await.expect("the answer is accepted");
        world.wait_for_run_end(session, run).await;
        assert_eq!(completed_calls(&world.journal.events(session))[0].2, expected);
    }
}

#[actix::test]
async fn g10_expired_elicitation_is_cancelled_for_the_tool() {
    let timing =
        DeadlineRule { timeout: Some(Duration::from_millis(300)), ..DeadlineRule::default() };
    let world = runtime_with_elicitation()
        .agent(|agent| agent.approval_deadlines = ApprovalDeadlines::uniform(timing))
        .start()
        .await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the approval", last_approval).await;
    world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    assert_eq!(completed_calls(&events)[0].2, "Cancelled");
    assert_eq!(
        count_events(&events, |event| matches!(event, SessionEvent::ApprovalExpired { .. })),
        1
    );
}

#[actix::test]
async fn d3_t1_crash_during_elicitation_leaves_outcome_unknown() {
    let world = runtime_with_elicitation().start().await;
    let session = world.create_session().await;
    world.submit(session, "a").await;
    let first = world.wait_for(session, "the approval", last_approval).await;
    let world = world.crash_and_restart().await;
    let second = world
        .wait_for(session, "another approval", |events| {
            last_approval(events).filter(|approval| approval.approval_id != first.approval_id)
        })
        .await;
    assert_eq!(second.kind().name(), "unknown_outcome");
    let late_answer = world.execute(session, resolve(&first, Resolution::Reject)).await;
    let refused = late_answer.expect_err("the elicitation is closed").to_string();
    assert!(refused.contains("cancelled"), "{refused}");
}

#[actix::test]
async fn t1_cancelled_run_cancels_its_elicitation() {
    let world = runtime_with_elicitation().start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the approval", last_approval).await;
    world.cancel(session).await.expect("the run is cancelled");
    world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    assert_eq!(
        count_events(&events, |event| matches!(event, SessionEvent::ApprovalCancelled { .. })),
        1
    );
}
