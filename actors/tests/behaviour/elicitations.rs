//! Running tools that ask people (T1): the question goes out, the answer comes back to the tool.

use crate::{asked, completed_calls, count};
use greenroom_actors::testing::{
    Act, FakeTools, Reply, ScriptedModel, Turn, World, WorldBuilder, eventually,
};
use greenroom_core::{
    approval::{Approval, ApprovalRules, Elicitation, Resolution, Role, Surface, Timing, Wanted},
    policy::Risk,
    session::{ApprovalAnswer, Input, SessionEvent},
};
use serde_json::json;
use std::time::Duration;

fn which_hangar() -> Act {
    let schema = json!({"type": "object", "properties": {"hangar": {"type": "string"}}});
    let message = "Which hangar?".to_owned();
    Act::Ask(Elicitation { message, wanted: Wanted::Form { schema } })
}

fn asking() -> WorldBuilder {
    let model =
        ScriptedModel::saying([Reply::calls([("store", json!({}))]), Reply::text("understood")]);
    let tools =
        FakeTools::none().with("store", Risk::WriteLowRisk, |_| Turn::new().then(which_hangar()));
    World::builder().model(model).tools(tools)
}

fn say(approval: &Approval, resolution: Resolution) -> Input {
    Input::DecideApproval {
        approval_id: approval.approval_id,
        answer: ApprovalAnswer::Resolve { resolution, reason: None },
        for_session: None,
        by: World::user(),
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
        let world = asking().idle_timeout(Duration::ZERO).start().await;
        let session = world.create().await;
        let run = world.submit(session, "a").await;
        let approval = world.wait_for(session, "the question", asked).await;
        let path = format!("/sessions/{session}");
        let waits = || {
            let snapshot = world.runtime.board.snapshot(&path);
            snapshot.and_then(|it| it.waiting).is_some_and(|it| it.for_whom.contains("elicitation"))
        };
        eventually("the board to say whom it waits for", waits).await;
        world.command(session, say(&approval, resolution)).await.expect("it is taken");
        world.run_end(session, run).await;
        assert_eq!(completed_calls(&world.journal.events(session))[0].2, heard);
    }
}

#[actix::test]
async fn g10_a_tool_that_nobody_answers_in_time_is_told_so() {
    let timing = Timing { deadline: Some(Duration::from_millis(300)), ..Timing::default() };
    let world =
        asking().agent(|agent| agent.approvals = ApprovalRules::always(timing)).start().await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the question", asked).await;
    world.run_end(session, run).await;
    let events = world.journal.events(session);
    assert_eq!(completed_calls(&events)[0].2, "Cancelled");
    assert_eq!(count(&events, |event| matches!(event, SessionEvent::ApprovalExpired { .. })), 1);
}

#[actix::test]
async fn d3_t1_a_process_that_dies_meanwhile_leaves_the_outcome_unknown() {
    let world = asking().start().await;
    let session = world.create().await;
    world.submit(session, "a").await;
    let first = world.wait_for(session, "the question", asked).await;
    let world = world.crash_and_restart().await;
    let second = world
        .wait_for(session, "another question", |events| {
            asked(events).filter(|approval| approval.approval_id != first.approval_id)
        })
        .await;
    assert_eq!(second.kind().name(), "unknown_outcome");
    let late = world.command(session, say(&first, Resolution::Reject)).await;
    let refused = late.expect_err("nothing waits for it any more").to_string();
    assert!(refused.contains("cancelled"), "{refused}");
}

#[actix::test]
async fn t1_a_cancelled_run_asks_nobody_any_more() {
    let world = asking().start().await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the question", asked).await;
    world.cancel(session).await.expect("it is cancelled");
    world.run_end(session, run).await;
    let events = world.journal.events(session);
    assert_eq!(count(&events, |event| matches!(event, SessionEvent::ApprovalCancelled { .. })), 1);
}
