//! Approvals that wait for an answer or expire (G10, G11, D6).

use crate::{at_least, completed_calls, count_events, last_approval};
use greenroom_actors::{
    session::CommandError,
    testing::{
        FakeTools, ManualClock, ModelReply, ScriptedModel, TestRuntime, TestRuntimeBuilder,
        ToolScript, wait_until,
    },
};
use greenroom_core::{
    approval::{Approval, ApprovalDeadlines, DeadlineRule, Role, Surface},
    call::CallFailureReason,
    policy::Risk,
    session::{ApprovalAnswer, Input, Rejection, Reply, SessionEvent},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

fn runtime_with_approval() -> TestRuntimeBuilder {
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([("send", json!({}))]),
        ModelReply::text("understood"),
    ]);
    let tools = FakeTools::new()
        .with_tool("send", Risk::WriteHighRisk, |_| ToolScript::new().finished("sent"));
    TestRuntime::builder().model(model).tools(tools)
}

fn rules_with_deadline(deadline: Option<Duration>) -> ApprovalDeadlines {
    ApprovalDeadlines::uniform(DeadlineRule { timeout: deadline, ..DeadlineRule::default() })
}

fn approve(approval: &Approval, approved: bool) -> Input {
    Input::AnswerApproval {
        approval_id: approval.approval_id,
        answer: ApprovalAnswer::Overall { approved, reason: None },
        for_session: None,
        by: TestRuntime::user(),
        role: Role::User,
        surface: Surface::Rest,
    }
}

fn is_expiry(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::ToolCallFailed { reason: CallFailureReason::Expired, .. })
}

#[actix::test]
async fn d6_g11_session_waiting_for_approval_is_passivated_and_resumes_on_answer() {
    let world = runtime_with_approval().idle_timeout(Duration::ZERO).start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let approval: Arc<_> = world.wait_for(session, "the approval", last_approval).await;
    let path = format!("/sessions/{session}");
    let is_passivated = || world.runtime.status_board.snapshot(&path).is_none();
    wait_until("the session to be passivated", is_passivated).await;
    assert_eq!(world.runtime.live_session_count().await, 0);
    let answer = world.execute(session, approve(&approval, true)).await;
    assert_eq!(answer.unwrap(), Reply::Answered { closed: true, repeated: false });
    assert!(matches!(
        world.wait_for_run_end(session, run).await,
        SessionEvent::RunCompleted { .. }
    ));
    assert_eq!(completed_calls(&world.journal.events(session))[0].2, "sent");
    // The first answer applies; a repetition succeeds, a different answer gets the first decision.
    let same = world.execute(session, approve(&approval, true)).await;
    assert_eq!(same.unwrap(), Reply::Answered { closed: true, repeated: true });
    let other = world.execute(session, approve(&approval, false)).await;
    assert!(matches!(
        other,
        Err(CommandError::Rejected(Rejection::AlreadyDecided { decisions, .. })) if decisions[0].approved
    ));
}

#[actix::test]
async fn g10_passivated_session_expires_approval_at_deadline() {
    let deadline = Duration::from_millis(300);
    let world = runtime_with_approval()
        .idle_timeout(Duration::ZERO)
        .agent(|agent| agent.approval_deadlines = rules_with_deadline(Some(deadline)))
        .start()
        .await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let approval = world.wait_for(session, "the approval", last_approval).await;
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }));
    let events = world.journal.events(session);
    assert_eq!(count_events(&events, is_expiry), 1);
    let is_expired = |event: &SessionEvent| matches!(event, SessionEvent::ApprovalExpired { .. });
    let expired = events.iter().find(|record| is_expired(&record.event));
    assert!(expired.expect("the approval expired").at >= approval.deadline.unwrap());
    assert!(world.tools.recorded_calls().is_empty());
    let late_answer = world.execute(session, approve(&approval, true)).await;
    assert!(matches!(late_answer, Err(CommandError::Rejected(Rejection::ApprovalExpired))));
    let desk = || world.runtime.status_board.snapshot("/desk").unwrap();
    wait_until("the approval to be removed", || desk().waiting.is_none()).await;
}

#[actix::test]
async fn g10_approval_expires_while_the_process_is_down() {
    let world = runtime_with_approval().clock(ManualClock::paused()).start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the approval", last_approval).await;
    let world = world.crash().start_after(Duration::from_secs(61)).await;
    world.wait_for_run_end(session, run).await;
    assert_eq!(count_events(&world.journal.events(session), is_expiry), 1);
    assert!(world.tools.recorded_calls().is_empty());
}

#[actix::test]
async fn g10_expiry_that_could_not_be_stored_is_repeated() {
    use greenroom_actors::testing::{JournalFault, JournalOperation};
    let world = runtime_with_approval()
        .idle_timeout(Duration::ZERO)
        .agent(|agent| {
            agent.approval_deadlines = rules_with_deadline(Some(Duration::from_millis(200)))
        })
        .start()
        .await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.wait_for(session, "the approval", last_approval).await;
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Unavailable, 1);
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Panic, 1);
    world.wait_for_run_end(session, run).await;
    let expired = |event: &SessionEvent| matches!(event, SessionEvent::ApprovalExpired { .. });
    world.wait_for(session, "the expiry", at_least(1, expired)).await;
    assert_eq!(count_events(&world.journal.events(session), expired), 1);
}

#[actix::test]
async fn g10_approval_without_deadline_never_expires() {
    let world = runtime_with_approval()
        .clock(ManualClock::paused())
        .agent(|agent| agent.approval_deadlines = rules_with_deadline(None))
        .start()
        .await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let approval = world.wait_for(session, "the approval", last_approval).await;
    let world = world.crash().start_after(Duration::from_secs(86_400 * 365)).await;
    world.execute(session, approve(&approval, true)).await.expect("the approval is open");
    world.wait_for_run_end(session, run).await;
    assert_eq!(world.tools.recorded_calls().len(), 1);
}
