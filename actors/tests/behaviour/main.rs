//! Tests of the actors together, with an in-memory journal, scripted models and fake tools.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test matches one kind of event")]

mod approvals;
mod cancelling;
mod containment;

mod delegation;
mod durability;
mod elicitations;
mod exclusive;
mod flushing;
mod message_flow;
mod passivation;
mod purging;
mod queue;
mod status_board;
mod subscribers;
mod users;

use greenroom_actors::{
    feed::{FeedItem, FeedKind},
    session::CommandError,
    testing::{TestRuntime, with_timeout},
};
use greenroom_core::{
    approval::Approval,
    ids::{CallId, MessageId, RunId, Seq, SessionId},
    session::{EventRecord, Reply, SessionEvent},
};
use std::sync::Arc;

/// Returns the latest requested approval.
fn last_approval(events: &[EventRecord]) -> Option<Arc<Approval>> {
    events.iter().rev().find_map(|record| match &record.event {
        SessionEvent::ApprovalRequested { approval } => Some(approval.clone()),
        _other => None,
    })
}

/// Returns the model's complete messages: id, text, and true if the message was stopped.
fn completed_messages(events: &[EventRecord]) -> Vec<(MessageId, String, bool)> {
    let message = |record: &EventRecord| match &record.event {
        SessionEvent::MessageCompleted { message_id, text, stopped, .. } => {
            Some((message_id.clone(), text.clone(), *stopped))
        }
        _other => None,
    };
    events.iter().filter_map(message).collect()
}

/// Returns the completed calls, in the order of their results.
fn completed_calls(events: &[EventRecord]) -> Vec<(CallId, String, String)> {
    let call = |record: &EventRecord| match &record.event {
        SessionEvent::ToolCallCompleted { call_id, tool, output } => {
            Some((*call_id, tool.clone(), output.text.clone()))
        }
        _other => None,
    };
    events.iter().filter_map(call).collect()
}

/// Returns the number of events that match.
fn count_events(events: &[EventRecord], matches: impl Fn(&SessionEvent) -> bool) -> usize {
    events.iter().filter(|record| matches(&record.event)).count()
}

/// Returns `Some` once at least `count` events match.
fn at_least(
    count: usize,
    matches: impl Fn(&SessionEvent) -> bool,
) -> impl FnMut(&[EventRecord]) -> Option<()> {
    move |events| (count_events(events, &matches) >= count).then_some(())
}

/// Submits `text` like a client: repeats the request while the session is being rehydrated.
async fn submit_with_retry(world: &TestRuntime, session_id: SessionId, text: &str) -> RunId {
    let accepted = async {
        loop {
            match world.execute(session_id, TestRuntime::submit_input(text)).await {
                Ok(Reply::Submitted { run_id, .. } | Reply::Repeated { run_id, .. }) => {
                    return run_id;
                }
                Err(CommandError::Unavailable(_)) => tokio::task::yield_now().await,
                other => panic!("the message was not accepted: {other:?}"),
            }
        }
    };
    with_timeout("the message to be accepted", accepted).await
}

/// An item that a client received. Consecutive pieces of text are joined.
#[derive(Clone, Debug, PartialEq)]
enum ReceivedItem {
    Event(Seq),
    Text { message_id: MessageId, run_id: RunId, step: u32, text: String },
}

fn received_items(items: &[FeedItem]) -> Vec<ReceivedItem> {
    let mut all = Vec::new();
    for item in items {
        match &item.kind {
            FeedKind::Event(record) => all.push(ReceivedItem::Event(record.seq)),
            FeedKind::Delta { message_id, run_id, step, text } => {
                if let Some(ReceivedItem::Text { message_id: open, text: so_far, .. }) =
                    all.last_mut()
                    && open == message_id
                {
                    so_far.push_str(text);
                    continue;
                }
                let (message_id, run_id, step) = (message_id.clone(), *run_id, *step);
                all.push(ReceivedItem::Text { message_id, run_id, step, text: text.to_string() });
            }
            FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => {
                panic!("unexpected: {item:?}")
            }
        }
    }
    all
}

/// Returns `Some` once the client has received the event `seq`, or a later one.
fn received_event(seq: Seq) -> impl FnMut(&[FeedItem]) -> Option<()> {
    move |items| {
        let matches =
            |item: &FeedItem| matches!(&item.kind, FeedKind::Event(record) if record.seq >= seq);
        items.iter().any(matches).then_some(())
    }
}
