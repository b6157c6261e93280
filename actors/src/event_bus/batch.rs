//! A session's items that are held back for a flush interval and then sent together (E5). Free of
//! I/O: the bus supplies the items and the time.
//!
//! Text and the events of calls that do not fail may wait, also those of child sessions. Every other
//! item is sent immediately, after the waiting ones: approvals, failures, denials, and the events of
//! messages, steps and runs. The order of events is therefore preserved, and with it every cursor.

use super::{BusMessage, TextDelta};
use crate::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use greenroom_core::{
    ids::{MessageId, RunId},
    session::SessionEvent,
};
use std::sync::Arc;

/// The waiting items of one session, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    items: Vec<BatchItem>,
    bytes: usize,
}

#[derive(Debug)]
enum BatchItem {
    /// Text of one message, without gaps.
    Text { run_id: RunId, step: u32, message_id: MessageId, offset: usize, text: String },
    /// A commit that contains only events that may wait.
    Commit(BusMessage),
}

impl Batch {
    /// Adds an item. Returns the items to send now, in order.
    pub(super) fn push(&mut self, message: BusMessage) -> Vec<BusMessage> {
        match message {
            BusMessage::Delta(delta) => self.push_text(&delta),
            BusMessage::Committed { ref records, .. } => {
                if !records.iter().all(|record| may_wait(&record.event)) {
                    return self.drain_with(message);
                }
                self.items.push(BatchItem::Commit(message));
            }
            BusMessage::Draining | BusMessage::Purged => return self.drain_with(message),
        }
        let is_full = self.bytes >= BATCH_BYTES_MAX || self.items.len() >= BATCH_ITEMS_MAX;
        if is_full { self.drain() } else { Vec::new() }
    }

    /// Removes and returns all waiting items, in order.
    pub(super) fn drain(&mut self) -> Vec<BusMessage> {
        self.bytes = 0;
        self.items.drain(..).map(BusMessage::from).collect()
    }

    /// True if no item waits.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn drain_with(&mut self, message: BusMessage) -> Vec<BusMessage> {
        let mut messages = self.drain();
        messages.push(message);
        messages
    }

    fn push_text(&mut self, delta: &TextDelta) {
        self.bytes += delta.text.len();
        if let Some(BatchItem::Text { message_id, offset, text, .. }) = self.items.last_mut()
            && *message_id == delta.message_id
            && *offset + text.len() == delta.offset
        {
            return text.push_str(&delta.text);
        }
        self.items.push(BatchItem::Text {
            run_id: delta.run_id,
            step: delta.step,
            message_id: delta.message_id.clone(),
            offset: delta.offset,
            text: delta.text.to_string(),
        });
    }
}

impl From<BatchItem> for BusMessage {
    fn from(item: BatchItem) -> Self {
        match item {
            BatchItem::Commit(message) => message,
            BatchItem::Text { run_id, step, message_id, offset, text } => {
                let text = text.into();
                Self::Delta(Arc::new(TextDelta { run_id, step, message_id, offset, text }))
            }
        }
    }
}

/// Returns true if the event, or the event of a child session that it mirrors, may wait for the end
/// of the flush interval.
fn may_wait(event: &SessionEvent) -> bool {
    use SessionEvent as E;
    match event.source_event() {
        E::ToolCallStarted { .. }
        | E::ToolCallAllowed { .. }
        | E::ToolCallAttemptStarted { .. }
        | E::ToolCallProgress { .. }
        | E::ToolCallRetrying { .. }
        | E::ToolCallCompleted { .. }
        | E::LateResult { .. }
        | E::BudgetReserved { .. } => true,
        E::ToolCallFailed { .. }
        | E::AuthorizationDenied { .. }
        | E::ApprovalRequested { .. }
        | E::ApprovalDecided { .. }
        | E::ApprovalExpired { .. }
        | E::ApprovalCancelled { .. }
        | E::ApprovalEscalated { .. }
        | E::PreflightApproved { .. }
        | E::PreflightSkipped { .. }
        | E::BudgetReached { .. }
        | E::BudgetRaised { .. }
        | E::GrantAdded { .. }
        | E::GrantRevoked { .. }
        | E::SessionCreated { .. }
        | E::SessionForked { .. }
        | E::SessionSettingsChanged { .. }
        | E::SessionClosed { .. }
        | E::MessageQueued { .. }
        | E::QueuedMessageChanged { .. }
        | E::QueuedMessageWithdrawn { .. }
        | E::MessageAccepted { .. }
        | E::MessageStarted { .. }
        | E::MessageCompleted { .. }
        | E::MessageDiscarded { .. }
        | E::RunStarted { .. }
        | E::RunCompleted { .. }
        | E::RunFailed { .. }
        | E::RunCancelled { .. }
        | E::StepStarted { .. }
        | E::StepCompleted { .. }
        | E::StepRetrying { .. }
        | E::StepModelFallback { .. }
        | E::ContextCompacted { .. }
        | E::ContextCompactionFailed { .. }
        | E::FeedbackGiven { .. }
        | E::ChildEvent { .. }
        | E::ChildGone { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use greenroom_core::{
        Timestamp,
        call::{CallFailureReason, ToolOutput},
        ids::{AgentName, ApprovalId, AttemptId, CallId, Seq, SessionId, UserId},
        json::Digest,
        message::Arguments,
        policy::Risk,
        session::EventRecord,
        usage::ModelUsage,
    };
    use serde_json::json;
    use uuid::Uuid;

    fn text(message: &str, offset: usize, text: &str) -> BusMessage {
        let message_id = MessageId::parse(message).unwrap();
        let (run_id, text) = (RunId(Uuid::nil()), text.into());
        BusMessage::Delta(Arc::new(TextDelta { run_id, step: 1, message_id, offset, text }))
    }

    fn committed(events: impl IntoIterator<Item = (u64, SessionEvent)>) -> BusMessage {
        let records = events.into_iter().map(|(seq, event)| EventRecord {
            seq: Seq(seq),
            at: Timestamp(0),
            run_id: None,
            step: None,
            event,
        });
        BusMessage::Committed {
            session_id: SessionId(Uuid::nil()),
            agent: AgentName::parse("a").unwrap(),
            records: records.collect(),
        }
    }

    fn progress(seq: u64) -> (u64, SessionEvent) {
        let (call_id, tool) = (CallId(Uuid::nil()), "t".to_owned());
        let (total, message) = (None, None);
        (seq, SessionEvent::ToolCallProgress { call_id, tool, progress: 0.5, total, message })
    }

    fn call_started(seq: u64) -> (u64, SessionEvent) {
        let event = SessionEvent::ToolCallStarted {
            call_id: CallId(Uuid::nil()),
            provider_id: "p".to_owned(),
            tool: "t".to_owned(),
            server: None,
            digest: Digest::hash_json(&json!({})),
            arguments: Arc::new(Arguments::Json(json!({}))),
            risk: Risk::ReadOnly,
            parallel: true,
            repeatable: true,
        };
        (seq, event)
    }

    fn attempt_started(seq: u64) -> (u64, SessionEvent) {
        let (call_id, attempt_id) = (CallId(Uuid::nil()), AttemptId(Uuid::nil()));
        let (attempt, child) = (1, None);
        (seq, SessionEvent::ToolCallAttemptStarted { call_id, attempt_id, attempt, child })
    }

    fn completed(seq: u64) -> (u64, SessionEvent) {
        let (call_id, tool) = (CallId(Uuid::nil()), "t".to_owned());
        (seq, SessionEvent::ToolCallCompleted { call_id, tool, output: ToolOutput::default() })
    }

    fn failed(seq: u64) -> (u64, SessionEvent) {
        let event = SessionEvent::ToolCallFailed {
            call_id: CallId(Uuid::nil()),
            tool: "t".to_owned(),
            reason: CallFailureReason::Error,
            error: "no".to_owned(),
            retries_exhausted: false,
            attempts: 1,
            maybe_ran: false,
        };
        (seq, event)
    }

    fn denied(seq: u64) -> (u64, SessionEvent) {
        let event = SessionEvent::AuthorizationDenied {
            call_id: CallId(Uuid::nil()),
            tool: "t".to_owned(),
            reason: "no".to_owned(),
            required_level: None,
        };
        (seq, event)
    }

    fn approval_expired(seq: u64) -> (u64, SessionEvent) {
        (seq, SessionEvent::ApprovalExpired { approval_id: ApprovalId(Uuid::nil()) })
    }

    fn run_completed(seq: u64) -> (u64, SessionEvent) {
        let (message_id, usage) = (MessageId::parse("m").unwrap(), ModelUsage::default());
        (seq, SessionEvent::RunCompleted { message_id, usage, stop_reason: None })
    }

    /// The mirror of a child's event.
    fn mirrored((seq, event): (u64, SessionEvent)) -> (u64, SessionEvent) {
        let at = Timestamp(0);
        let record = EventRecord { seq: Seq(seq), at, run_id: None, step: None, event };
        let event = SessionEvent::ChildEvent {
            session_id: SessionId(Uuid::nil()),
            agent: AgentName::parse("child").unwrap(),
            call_id: CallId(Uuid::nil()),
            event: Arc::new(record),
        };
        (seq, event)
    }

    fn closed(seq: u64) -> (u64, SessionEvent) {
        (seq, SessionEvent::SessionClosed { by: UserId::parse("u").unwrap() })
    }

    /// Formats text as `m@3:abc` and events as `#7,8`.
    fn format_items(messages: &[BusMessage]) -> Vec<String> {
        let format_item = |message: &BusMessage| match message {
            BusMessage::Delta(delta) => {
                format!("{}@{}:{}", delta.message_id, delta.offset, delta.text)
            }
            BusMessage::Committed { records, .. } => {
                let seqs: Vec<_> = records.iter().map(|record| record.seq.to_string()).collect();
                format!("#{}", seqs.join(","))
            }
            BusMessage::Draining => "draining".to_owned(),
            BusMessage::Purged => "purged".to_owned(),
        };
        messages.iter().map(format_item).collect()
    }

    #[test]
    fn e5_batched_text_and_progress_flush_in_order_before_other_events() {
        let mut batch = Batch::default();
        for message in [
            text("m", 0, "ab"),
            text("m", 2, "c"),
            committed([progress(7)]),
            text("m", 3, "é"),
            text("m", 5, "!"),
            committed([progress(8), progress(9)]),
        ] {
            assert!(batch.push(message).is_empty());
        }
        let out = batch.push(committed([progress(10), closed(11)]));
        assert_eq!(format_items(&out), ["m@0:abc", "#7", "m@3:é!", "#8,9", "#10,11"]);
        assert!(batch.is_empty());
        assert!(batch.push(text("m", 6, "x")).is_empty());
        assert_eq!(format_items(&batch.push(BusMessage::Draining)), ["m@6:x", "draining"]);
    }

    #[test]
    fn e5_events_of_calls_are_batched_and_decisions_and_ends_are_not() {
        let mut batch = Batch::default();
        for events in [
            vec![call_started(1), call_started(2)],
            vec![attempt_started(3)],
            vec![progress(4), completed(5)],
            vec![mirrored(call_started(6)), mirrored(mirrored(completed(7)))],
        ] {
            assert!(batch.push(committed(events)).is_empty());
        }
        let out = batch.push(committed([approval_expired(8)]));
        assert_eq!(format_items(&out), ["#1,2", "#3", "#4,5", "#6,7", "#8"]);
        for event in [failed, denied, approval_expired, run_completed, closed] {
            for event in [event(10), mirrored(event(10))] {
                assert!(batch.push(committed([completed(9)])).is_empty());
                assert_eq!(format_items(&batch.push(committed([event]))), ["#9", "#10"]);
            }
        }
        // A commit waits only if all its events may wait.
        let out = batch.push(committed([completed(11), run_completed(12)]));
        assert_eq!(format_items(&out), ["#11,12"]);
    }

    /// 60 calls of one step, of which 8 run at a time, and the end of their run.
    #[test]
    fn e5_sixty_calls_are_sent_in_one_write() {
        let mut batch = Batch::default();
        let mut writes = Vec::new();
        let mut push = |events: Vec<(u64, SessionEvent)>| {
            let out = batch.push(committed(events));
            writes.extend((!out.is_empty()).then_some(out));
        };
        push((1..=60).map(call_started).chain((61..=68).map(attempt_started)).collect());
        for number in 0..60 {
            push(vec![completed(69 + 2 * number), attempt_started(70 + 2 * number)]);
        }
        push(vec![run_completed(189)]);
        assert_eq!(writes.len(), 1);
        let seqs = format_items(&writes.concat()).join(",").replace('#', "");
        assert_eq!(seqs, (1..=189).map(|seq| seq.to_string()).collect::<Vec<_>>().join(","));
    }

    #[test]
    fn e5_texts_of_two_messages_and_texts_with_a_gap_are_not_merged() {
        let mut batch = Batch::default();
        for message in [text("m", 0, "a"), text("n", 1, "b"), text("n", 3, "c"), text("n", 4, "d")]
        {
            assert!(batch.push(message).is_empty());
        }
        assert_eq!(format_items(&batch.drain()), ["m@0:a", "n@1:b", "n@3:cd"]);
    }

    #[test]
    fn e5_batch_flushes_at_its_limits() {
        let mut batch = Batch::default();
        let piece = "x".repeat(1000);
        let mut pieces = 0;
        let out = loop {
            let out = batch.push(text("m", pieces * 1000, &piece));
            pieces += 1;
            if !out.is_empty() {
                break out;
            }
        };
        assert_eq!(pieces, BATCH_BYTES_MAX.div_ceil(1000));
        assert_eq!(out.len(), 1, "the texts are merged");
        let mut count = 0;
        for seq in 1.. {
            let out = batch.push(committed([progress(seq)]));
            count += 1;
            if !out.is_empty() {
                assert_eq!(out.len(), count);
                break;
            }
        }
        assert_eq!(count, BATCH_ITEMS_MAX);
    }
}
