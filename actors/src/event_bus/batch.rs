//! What is held back for the length of a flush interval, so that it leaves together (E5). Pure: the
//! bus brings the items and the time.
//!
//! Text and the progress of tools may wait; everything else leaves at once, and what waited leaves
//! before it. So the order is that of what happened, and with it every cursor.

use super::{BusMessage, TextDelta};
use crate::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use greenroom_core::{
    ids::{MessageId, RunId},
    session::SessionEvent,
};
use std::sync::Arc;

/// What waits, of one session, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    items: Vec<BatchItem>,
    bytes: usize,
}

#[derive(Debug)]
enum BatchItem {
    /// Text of one message, without gaps.
    Text { run_id: RunId, step: u32, message_id: MessageId, offset: usize, text: String },
    /// A commit of nothing but progress.
    Progress(BusMessage),
}

impl Batch {
    /// Takes an item in; what must leave now comes back, in order.
    pub(super) fn push(&mut self, live: BusMessage) -> Vec<BusMessage> {
        match live {
            BusMessage::Delta(delta) => self.push_text(&delta),
            BusMessage::Committed { ref records, .. } => {
                let waits = |record: &_| is_progress(record);
                if !records.iter().all(waits) {
                    return self.drain_with(live);
                }
                self.items.push(BatchItem::Progress(live));
            }
            BusMessage::Draining | BusMessage::Purged => return self.drain_with(live),
        }
        let is_full = self.bytes >= BATCH_BYTES_MAX || self.items.len() >= BATCH_ITEMS_MAX;
        if is_full { self.drain() } else { Vec::new() }
    }

    /// All that waits, in order.
    pub(super) fn drain(&mut self) -> Vec<BusMessage> {
        self.bytes = 0;
        self.items.drain(..).map(BusMessage::from).collect()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn drain_with(&mut self, live: BusMessage) -> Vec<BusMessage> {
        let mut all = self.drain();
        all.push(live);
        all
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
    fn from(held: BatchItem) -> Self {
        match held {
            BatchItem::Progress(live) => live,
            BatchItem::Text { run_id, step, message_id, offset, text } => {
                let text = text.into();
                Self::Delta(Arc::new(TextDelta { run_id, step, message_id, offset, text }))
            }
        }
    }
}

fn is_progress(record: &greenroom_core::session::EventRecord) -> bool {
    matches!(record.event, SessionEvent::ToolCallProgress { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use greenroom_core::{
        Timestamp,
        ids::{AgentName, CallId, Seq, SessionId, UserId},
        session::EventRecord,
    };
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

    fn closed(seq: u64) -> (u64, SessionEvent) {
        (seq, SessionEvent::SessionClosed { by: UserId::parse("u").unwrap() })
    }

    /// `m@3:abc` for text, `#7,8` for events.
    fn format_items(lives: &[BusMessage]) -> Vec<String> {
        let one = |live: &BusMessage| match live {
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
        lives.iter().map(one).collect()
    }

    #[test]
    fn e5_batched_text_and_progress_flush_in_order_before_other_events() {
        let mut batch = Batch::default();
        for live in [
            text("m", 0, "ab"),
            text("m", 2, "c"),
            committed([progress(7)]),
            text("m", 3, "é"),
            text("m", 5, "!"),
            committed([progress(8), progress(9)]),
        ] {
            assert!(batch.push(live).is_empty());
        }
        let out = batch.push(committed([progress(10), closed(11)]));
        assert_eq!(format_items(&out), ["m@0:abc", "#7", "m@3:é!", "#8,9", "#10,11"]);
        assert!(batch.is_empty());
        assert!(batch.push(text("m", 6, "x")).is_empty());
        assert_eq!(format_items(&batch.push(BusMessage::Draining)), ["m@6:x", "draining"]);
    }

    #[test]
    fn e5_texts_of_two_messages_and_texts_with_a_gap_stay_apart() {
        let mut batch = Batch::default();
        for live in [text("m", 0, "a"), text("n", 1, "b"), text("n", 3, "c"), text("n", 4, "d")] {
            assert!(batch.push(live).is_empty());
        }
        assert_eq!(format_items(&batch.drain()), ["m@0:a", "n@1:b", "n@3:cd"]);
    }

    #[test]
    fn e5_no_more_waits_than_the_limits_allow() {
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
        assert_eq!(out.len(), 1, "it is one text");
        let mut held = 0;
        for seq in 1.. {
            let out = batch.push(committed([progress(seq)]));
            held += 1;
            if !out.is_empty() {
                assert_eq!(out.len(), held);
                break;
            }
        }
        assert_eq!(held, BATCH_ITEMS_MAX);
    }
}
