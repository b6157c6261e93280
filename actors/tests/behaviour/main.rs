//! The actors together, on a world in memory: what they promise, and what they do when it breaks.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test asks for one kind of event")]

mod approvals;
mod cancelling;
mod containment;

mod delegating;
mod durability;
mod elicitations;
mod exclusive;
mod flushing;
mod main_line;
mod observing;
mod passivation;
mod purging;
mod subscribing;
mod users;

use greenroom_actors::{
    feed::{FeedItem, FeedKind},
    session::CommandError,
    testing::{World, within_patience},
};
use greenroom_core::{
    approval::Approval,
    ids::{CallId, MessageId, RunId, Seq, SessionId},
    session::{EventRecord, Reply, SessionEvent},
};
use std::sync::Arc;

/// The last question that was asked.
fn asked(events: &[EventRecord]) -> Option<Arc<Approval>> {
    events.iter().rev().find_map(|record| match &record.event {
        SessionEvent::ApprovalRequested { approval } => Some(approval.clone()),
        _other => None,
    })
}

/// The model's complete messages: id, text, and whether they were stopped.
fn messages(events: &[EventRecord]) -> Vec<(MessageId, String, bool)> {
    let message = |record: &EventRecord| match &record.event {
        SessionEvent::MessageCompleted { message_id, text, stopped, .. } => {
            Some((message_id.clone(), text.clone(), *stopped))
        }
        _other => None,
    };
    events.iter().filter_map(message).collect()
}

/// The calls that were completed, in the order of their results.
fn completed_calls(events: &[EventRecord]) -> Vec<(CallId, String, String)> {
    let call = |record: &EventRecord| match &record.event {
        SessionEvent::ToolCallCompleted { call_id, tool, output } => {
            Some((*call_id, tool.clone(), output.text.clone()))
        }
        _other => None,
    };
    events.iter().filter_map(call).collect()
}

/// How many events are like that.
fn count(events: &[EventRecord], is: impl Fn(&SessionEvent) -> bool) -> usize {
    events.iter().filter(|record| is(&record.event)).count()
}

/// Something once there are so many events like that.
fn once(
    times: usize,
    is: impl Fn(&SessionEvent) -> bool,
) -> impl FnMut(&[EventRecord]) -> Option<()> {
    move |events| (count(events, &is) >= times).then_some(())
}

/// Submits `text` as clients do: again while the session is being brought back.
async fn submit_patiently(world: &World, session_id: SessionId, text: &str) -> RunId {
    let taken = async {
        loop {
            match world.command(session_id, World::message(text)).await {
                Ok(Reply::Submitted { run_id, .. }) => return run_id,
                Err(CommandError::Unavailable(_)) => tokio::task::yield_now().await,
                other => panic!("the message was not taken: {other:?}"),
            }
        }
    };
    within_patience("the message to be taken", taken).await
}

/// What a client was told, however the text was cut into pieces.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Event(Seq),
    Text { message_id: MessageId, run_id: RunId, step: u32, text: String },
}

fn told(items: &[FeedItem]) -> Vec<Told> {
    let mut all = Vec::new();
    for item in items {
        match &item.kind {
            FeedKind::Event(record) => all.push(Told::Event(record.seq)),
            FeedKind::Delta { message_id, run_id, step, text } => {
                if let Some(Told::Text { message_id: open, text: so_far, .. }) = all.last_mut()
                    && open == message_id
                {
                    so_far.push_str(text);
                    continue;
                }
                let (message_id, run_id, step) = (message_id.clone(), *run_id, *step);
                all.push(Told::Text { message_id, run_id, step, text: text.to_string() });
            }
            FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => {
                panic!("unexpected: {item:?}")
            }
        }
    }
    all
}

/// Whether the client was told that event.
fn was_told(seq: Seq) -> impl FnMut(&[FeedItem]) -> Option<()> {
    move |items| {
        let is =
            |item: &FeedItem| matches!(&item.kind, FeedKind::Event(record) if record.seq >= seq);
        items.iter().any(is).then_some(())
    }
}
