//! Queued messages that are listed, changed and withdrawn (S10): the users' actions and their
//! invariants.

use crate::{
    rng::SeededRng,
    session_simulation::{SessionSimulation, user},
    users::random_user,
};
use greenroom_core::{
    ids::{MessageId, RunId},
    json::Digest,
    session::{
        EventRecord, Input, QueuedMessageChange, QueuedMessageStatus, Rejection, Reply,
        SessionEvent,
    },
};
use std::{collections::BTreeMap, sync::Arc};

/// The queued messages and what happened to them, derived from the log.
#[derive(Default)]
pub(crate) struct QueueTracker {
    waiting: BTreeMap<MessageId, WaitingMessage>,
    updates: BTreeMap<MessageId, QueueUpdate>,
}

struct WaitingMessage {
    text: Arc<str>,
    own_run_id: RunId,
}

/// The latest update of a queued message.
#[derive(Clone, Copy)]
pub(crate) struct QueueUpdate {
    pub(crate) status: QueuedMessageStatus,
    /// The run of the update, if a user changed or withdrew the message.
    pub(crate) run_id: Option<RunId>,
    /// Digest of the latest change.
    pub(crate) digest: Option<Digest>,
}

impl QueueTracker {
    pub(crate) fn update_of(&self, message_id: &MessageId) -> Option<QueueUpdate> {
        self.updates.get(message_id).copied()
    }

    fn is_waiting(&self, message_id: &MessageId) -> bool {
        self.waiting.contains_key(message_id)
    }

    pub(crate) fn check_event(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::MessageQueued { message_id, text, steers, .. } = &record.event {
            let own_run_id = steers.map(|steering| steering.own_run_id).or(record.run_id);
            let own_run_id = own_run_id.expect("a queued message has its run");
            let waiting = WaitingMessage { text: text.clone(), own_run_id };
            assert!(self.waiting.insert(message_id.clone(), waiting).is_none(), "queued twice");
        } else if let E::QueuedMessageChanged { message_id, text, digest, .. } = &record.event {
            let waiting = self.waiting.get_mut(message_id).expect("S10: only a queued message");
            waiting.text = text.clone();
            self.record(message_id, QueuedMessageStatus::Changed, record.run_id, Some(*digest));
        } else if let E::QueuedMessageWithdrawn { message_id, .. } = &record.event {
            assert!(self.waiting.remove(message_id).is_some(), "S10: only a queued message");
            self.record(message_id, QueuedMessageStatus::Withdrawn, record.run_id, None);
        } else if let E::RunCancelled { .. } = &record.event {
            let is_ended = |waiting: &WaitingMessage| Some(waiting.own_run_id) == record.run_id;
            let ended = self.waiting.iter().find(|(_, waiting)| is_ended(waiting));
            if let Some(message_id) = ended.map(|(message_id, _)| message_id.clone()) {
                self.waiting.remove(&message_id);
                self.record(&message_id, QueuedMessageStatus::Cancelled, None, None);
            }
        } else if let E::MessageAccepted { message_id, text, .. } = &record.event {
            let waiting = self.waiting.remove(message_id);
            assert!(waiting.is_none_or(|waiting| waiting.text == *text), "S10: not the new text");
            let status = self.updates.get(message_id).map(|update| update.status);
            let is_removed = status.is_some_and(|status| status != QueuedMessageStatus::Changed);
            assert!(!is_removed, "S10: the message had left the queue");
        }
    }

    fn record(
        &mut self,
        message_id: &MessageId,
        status: QueuedMessageStatus,
        run_id: Option<RunId>,
        digest: Option<Digest>,
    ) {
        let before = self.update_of(message_id);
        let run_id = run_id.or(before.and_then(|update| update.run_id));
        let digest = digest.or(before.and_then(|update| update.digest));
        self.updates.insert(message_id.clone(), QueueUpdate { status, run_id, digest });
    }
}

impl SessionSimulation {
    /// S10: a message is changed while it waits, and a change that arrives later is rejected.
    pub(crate) fn change_queued_message(&mut self, chance: &mut SeededRng) {
        let Some(message_id) = self.pick_submitted_message(chance) else { return };
        let text = format!("changed {}", chance.tricky_text());
        let digest = Digest::hash_bytes(text.as_bytes());
        let preflight = *chance.pick(&[None, Some(true), Some(false)]);
        let change = QueuedMessageChange { text: text.into(), digest, preflight };
        let was_waiting = self.invariants.queue.is_waiting(&message_id);
        let update = self.invariants.queue.update_of(&message_id);
        let (id, by) = (message_id.clone(), random_user(chance));
        let result = self.apply_input(Input::ChangeQueuedMessage { message_id: id, change, by });
        match result {
            Ok(decision) => {
                let Reply::QueueUpdated { repeated, .. } = decision.reply else {
                    panic!("{decision:?}");
                };
                assert_eq!(decision.events.is_empty(), repeated);
                assert!(was_waiting || repeated, "S10: changed after its delivery");
                assert!(decision.effects.is_empty());
            }
            Err(Rejection::MessageStarted { .. }) => {
                assert!(!was_waiting);
                let changed = [None, Some(QueuedMessageStatus::Changed)];
                assert!(changed.contains(&update.map(|update| update.status)));
            }
            Err(rejection) => assert_removed(&rejection, update),
        }
    }

    /// S10: a message is withdrawn while it waits; a repeated withdrawal has no further effect.
    pub(crate) fn withdraw_queued_message(&mut self, chance: &mut SeededRng) {
        let Some(message_id) = self.pick_submitted_message(chance) else { return };
        let was_waiting = self.invariants.queue.is_waiting(&message_id);
        let update = self.invariants.queue.update_of(&message_id);
        let withdraw = |message_id| Input::WithdrawQueuedMessage { message_id, by: user("ann") };
        let status = update.map(|update| update.status);
        match self.apply_input(withdraw(message_id.clone())) {
            Ok(decision) => {
                let was_withdrawn = status == Some(QueuedMessageStatus::Withdrawn);
                assert_eq!(decision.events.is_empty(), was_withdrawn);
                assert!(was_waiting != was_withdrawn && decision.effects.is_empty());
                if !self.is_decision_lost() {
                    let again = self.apply_input(withdraw(message_id)).expect("it is withdrawn");
                    assert!(again.events.is_empty(), "S10: withdrawn twice");
                }
            }
            Err(Rejection::MessageStarted { .. }) => assert!(!was_waiting),
            Err(rejection) => {
                assert_eq!(status, Some(QueuedMessageStatus::Cancelled));
                assert_removed(&rejection, update);
            }
        }
    }

    /// Returns a submitted message, most often one that waits.
    fn pick_submitted_message(&self, chance: &mut SeededRng) -> Option<MessageId> {
        let waiting: Vec<_> = self.invariants.queue.waiting.keys().cloned().collect();
        if !waiting.is_empty() && !chance.one_in(4) {
            return Some(chance.pick(&waiting).clone());
        }
        (!self.submitted.is_empty()).then(|| chance.pick(&self.submitted).0.clone())
    }
}

/// Asserts that the rejection states how the message left the queue.
fn assert_removed(rejection: &Rejection, update: Option<QueueUpdate>) {
    let status = update.map(|update| update.status);
    let is_withdrawn = matches!(rejection, Rejection::MessageWithdrawn { .. });
    let is_cancelled = matches!(rejection, Rejection::MessageCancelled { .. });
    assert!(is_withdrawn || is_cancelled, "{rejection}");
    assert_eq!(status == Some(QueuedMessageStatus::Withdrawn), is_withdrawn);
    assert_eq!(status == Some(QueuedMessageStatus::Cancelled), is_cancelled);
}
