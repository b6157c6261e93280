//! Running tools that ask people (T1): the question goes out, the answer comes back to the tool.

use crate::{completed_calls, count_events, last_approval};
use greenroom_actors::testing::{
    FakeTools, ModelReply, ScriptedModel, TestRuntime, TestRuntimeBuilder, ToolAction, ToolScript,
    eventually,
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
        .with_tool("store", Risk::WriteLowRisk, |_| ToolScript::new().then(elicit_hangar()));
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
async fn t1_what_a_person_answers_comes_back_to_the_tool() {
    for (resolution, heard) in [
        (
            Resolution::Answer(json!({"hangar": "north"})),
            r#"Accepted(Some(Object {"hangar": String("north")}))"#,
        ),
        (Resolution::Reject, "Declined"),
    ] {
        let world = runtime_with_elicitation().idle_timeout(Duration::ZERO).start().await;
        let session = world.create_session().await;
        let run = world.submit(session, "a").await;
        let approval = world.wait_for(session, "the question", last_approval).await;
        let path = format!("/sessions/{session}");
        let waits = || {
            let snapshot = world.runtime.status_board.snapshot(&path);
            snapshot.and_then(|it| it.waiting).is_some_and(|it| it.for_whom.contains("elicitation"))
        };
        eventually("the board to say whom it waits for", waits).await;
        world.execute(session, resolve(&approval, resolution)).await.expect("it is taken");
        world.wait_for_run_end(session, run).await;
        assert_eq!(completed_calls(&world.journal.events(session))[0].2, heard);
    }
}

#[actix::test]
async fn g10_a_tool_that_nobody_answers_in_time_is_told_so() {
    let timing =
        DeadlineRule { timeout: Some(Duration::from_millis(300)), ..DeadlineRule::default() };
    let world = runtime_with_elicitation()
        .agent(|agent| agent.approval_deadlines = ApprovalDeadlines::uniform(timing))
        .start()
        .await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the question", last_approval).await;
    world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    assert_eq!(completed_calls(&events)[0].2, "Cancelled");
    assert_eq!(
        count_events(&events, |event| matches!(event, SessionEvent::ApprovalExpired { .. })),
        1
    );
}

#[actix::test]
async fn d3_t1_a_process_that_dies_meanwhile_leaves_the_outcome_unknown() {
    let world = runtime_with_elicitation().start().await;
    let session = world.create_session().await;
    world.submit(session, "a").await;
    let first = world.wait_for(session, "the question", last_approval).await;
    let world = world.crash_and_restart().await;
    let second = world
        .wait_for(session, "another question", |events| {
            last_approval(events).filter(|approval| approval.approval_id != first.approval_id)
        })
        .await;
    assert_eq!(second.kind().name(), "unknown_outcome");
    let late = world.execute(session, resolve(&first, Resolution::Reject)).await;
    let refused = late.expect_err("nothing waits for it any more").to_string();
    assert!(refused.contains("cancelled"), "{refused}");
}

#[actix::test]
async fn t1_a_cancelled_run_asks_nobody_any_more() {
    let world = runtime_with_elicitation().start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the question", last_approval).await;
    world.cancel(session).await.expect("it is cancelled");
    world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    assert_eq!(
        count_events(&events, |event| matches!(event, SessionEvent::ApprovalCancelled { .. })),
        1
    );
}
