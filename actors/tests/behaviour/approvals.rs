//! Questions that wait, and whose time is up (G10, G11, D6).

use crate::{asked, completed_calls, count, once};
use greenroom_actors::{
    session::CommandError,
    testing::{
        FakeTools, ManualClock, Reply, ScriptedModel, Turn, World, WorldBuilder, eventually,
    },
};
use greenroom_core::{
    approval::{Approval, ApprovalRules, Role, Surface, Timing},
    call::FailReason,
    policy::Risk,
    session::{ApprovalAnswer, Input, Rejection, Reply as Answer, SessionEvent},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

fn asking() -> WorldBuilder {
    let model =
        ScriptedModel::saying([Reply::calls([("send", json!({}))]), Reply::text("understood")]);
    let tools = FakeTools::none().with("send", Risk::WriteHighRisk, |_| Turn::new().done("sent"));
    World::builder().model(model).tools(tools)
}

fn within(deadline: Option<Duration>) -> ApprovalRules {
    ApprovalRules::always(Timing { deadline, ..Timing::default() })
}

fn approve(approval: &Approval, approved: bool) -> Input {
    Input::DecideApproval {
        approval_id: approval.approval_id,
        answer: ApprovalAnswer::Whole { approved, reason: None },
        for_session: None,
        by: World::user(),
        role: Role::User,
        surface: Surface::Rest,
    }
}

fn is_expiry(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::ToolCallFailed { reason: FailReason::Expired, .. })
}

#[actix::test]
async fn d6_g11_a_waiting_session_leaves_memory_and_comes_back_on_the_decision() {
    let world = asking().idle_timeout(Duration::ZERO).start().await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    let approval: Arc<_> = world.wait_for(session, "the question", asked).await;
    let path = format!("/sessions/{session}");
    eventually("it to leave memory", || world.runtime.board.snapshot(&path).is_none()).await;
    assert_eq!(world.runtime.live_sessions().await, 0);
    let answer = world.command(session, approve(&approval, true)).await;
    assert_eq!(answer.unwrap(), Answer::Decided { closed: true, repeated: false });
    assert!(matches!(world.run_end(session, run).await, SessionEvent::RunCompleted { .. }));
    assert_eq!(completed_calls(&world.journal.events(session))[0].2, "sent");
    // First answer wins; the same again is fine, another is refused with the first.
    let same = world.command(session, approve(&approval, true)).await;
    assert_eq!(same.unwrap(), Answer::Decided { closed: true, repeated: true });
    let other = world.command(session, approve(&approval, false)).await;
    assert!(matches!(
        other,
        Err(CommandError::Rejected(Rejection::AlreadyDecided { first, .. })) if first[0].approved
    ));
}

#[actix::test]
async fn g10_a_deadline_passes_for_a_session_that_left_memory() {
    let deadline = Duration::from_millis(300);
    let world = asking()
        .idle_timeout(Duration::ZERO)
        .agent(|agent| agent.approvals = within(Some(deadline)))
        .start()
        .await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    let approval = world.wait_for(session, "the question", asked).await;
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }));
    let events = world.journal.events(session);
    assert_eq!(count(&events, is_expiry), 1);
    let expired = events.iter().find(|it| matches!(it.event, SessionEvent::ApprovalExpired { .. }));
    assert!(expired.expect("it expired").at >= approval.deadline.unwrap());
    assert!(world.tools.calls().is_empty());
    let late = world.command(session, approve(&approval, true)).await;
    assert!(matches!(late, Err(CommandError::Rejected(Rejection::ApprovalExpired))));
    let desk = || world.runtime.board.snapshot("/desk").unwrap();
    eventually("the desk to forget it", || desk().waiting.is_none()).await;
}

#[actix::test]
async fn g10_a_deadline_passes_while_the_process_is_down() {
    let world = asking().clock(ManualClock::standing()).start().await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the question", asked).await;
    let world = world.crash().start_after(Duration::from_secs(61)).await;
    world.run_end(session, run).await;
    assert_eq!(count(&world.journal.events(session), is_expiry), 1);
    assert!(world.tools.calls().is_empty());
}

#[actix::test]
async fn g10_an_expiry_that_could_not_be_stored_is_repeated() {
    use greenroom_actors::testing::{Fault, Operation};
    let world = asking()
        .idle_timeout(Duration::ZERO)
        .agent(|agent| agent.approvals = within(Some(Duration::from_millis(200))))
        .start()
        .await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the question", asked).await;
    world.journal.fault(Operation::Append, Fault::Unavailable, 1);
    world.journal.fault(Operation::Append, Fault::Panic, 1);
    world.run_end(session, run).await;
    let expired = |event: &SessionEvent| matches!(event, SessionEvent::ApprovalExpired { .. });
    world.wait_for(session, "the expiry", once(1, expired)).await;
    assert_eq!(count(&world.journal.events(session), expired), 1);
}

#[actix::test]
async fn g10_questions_without_a_deadline_wait_for_ever() {
    let world = asking()
        .clock(ManualClock::standing())
        .agent(|agent| agent.approvals = within(None))
        .start()
        .await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    let approval = world.wait_for(session, "the question", asked).await;
    let world = world.crash().start_after(Duration::from_secs(86_400 * 365)).await;
    world.command(session, approve(&approval, true)).await.expect("it still waits");
    world.run_end(session, run).await;
    assert_eq!(world.tools.calls().len(), 1);
}
