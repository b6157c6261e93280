//! Publishes committed events: approvals to the approval desk, every event to metrics and to the
//! event bus.

use super::Session;
use crate::{
    approval_desk::{NotifyPartialAnswer, TrackApproval, UntrackApproval},
    event_bus::Publish,
};
use greenroom_core::session::{EventRecord, SessionEvent};
use std::{sync::Arc, time::Instant};

impl Session {
    pub(super) fn publish(&self, records: &Arc<[EventRecord]>) {
        let session_id = self.state.session_id;
        for record in records.iter() {
            if let SessionEvent::ApprovalRequested { approval } = &record.event {
                let (approval_id, deadline) = (approval.approval_id, approval.deadline_action_at());
                self.desk.send(TrackApproval { approval_id, session_id, deadline });
            } else if let SessionEvent::ApprovalEscalated { approval_id, deadline, .. } =
                &record.event
            {
                let (approval_id, deadline) = (*approval_id, *deadline);
                self.desk.send(TrackApproval { approval_id, session_id, deadline });
            } else if let SessionEvent::ApprovalDecided { approval_id, closed: true, .. }
            | SessionEvent::ApprovalExpired { approval_id }
            | SessionEvent::ApprovalCancelled { approval_id } = &record.event
            {
                self.desk.send(UntrackApproval { approval_id: *approval_id });
            } else if let SessionEvent::ApprovalDecided { closed: false, .. } = &record.event {
                self.desk.send(NotifyPartialAnswer);
            }
        }
        let Some(identity) = &self.state.metadata else { return };
        for record in records.iter() {
            self.deps.meter.record_event(session_id, &identity.agent, record);
        }
        let (agent, records) = (identity.agent.clone(), records.clone());
        self.bus.send(Publish { session_id, agent, records, published_at: Instant::now() });
    }
}
