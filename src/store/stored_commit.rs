//! The stored form of a commit, which is the same in every database. Must not know SQL, nor decide
//! if a commit may be appended.

use super::codec;
use crate::{audit, redaction::DigestKey};
use greenroom_actors::ports::Commit;
use greenroom_core::{
    budget::SpendingUpdate,
    ids::{ApprovalId, Seq, SessionId},
    session::{ApprovalRow, ApprovalState, EventRecord, SessionRow, SessionStatus},
};
use std::sync::Arc;

/// A commit in its stored form.
#[derive(Debug)]
pub(super) struct StoredCommit {
    pub(super) session_id: SessionId,
    pub(super) expected_head: Seq,
    pub(super) last_seq: Seq,
    pub(super) at: i64,
    pub(super) events: String,
    /// The committed events and the resulting row, for the caches.
    pub(super) records: Arc<[EventRecord]>,
    pub(super) session_row: Option<Arc<SessionRow>>,
    pub(super) session: Option<StoredSession>,
    pub(super) approvals: Vec<StoredApproval>,
    pub(super) spending_update: Option<SpendingUpdate>,
    pub(super) audit: Vec<audit::AuditEntry>,
}

/// The stored form of a session's row.
#[derive(Debug)]
pub(super) struct StoredSession {
    pub(super) content: String,
    pub(super) owner: String,
    /// The parent session.
    pub(super) parent: Option<String>,
    pub(super) status: &'static str,
}

/// The stored form of an approval's row.
#[derive(Debug)]
pub(super) struct StoredApproval {
    pub(super) id: ApprovalId,
    pub(super) content: String,
    pub(super) owner: String,
    pub(super) state: &'static str,
    pub(super) deadline: Option<i64>,
}

impl StoredCommit {
    /// Encodes `commit`; the digests in its audit entries are keyed with `digest_key`. Returns the
    /// reason if the commit is invalid.
    pub(super) fn from_commit(commit: &Commit, digest_key: &DigestKey) -> Result<Self, String> {
        let session_id = commit.session_id;
        let invalid = |reason: &str| format!("invalid commit of session {session_id}: {reason}");
        let last = commit.records.last().ok_or_else(|| invalid("no events"))?;
        let first = commit.expected_head.0.checked_add(1).map(Seq);
        let is_contiguous = |first| codec::are_contiguous(&commit.records, first, last.seq);
        if !first.is_some_and(is_contiguous) || i64::try_from(last.seq.0).is_err() {
            let reason = format!("the events are not numbered from {} + 1", commit.expected_head);
            return Err(invalid(&reason));
        }
        let projection = &commit.projection;
        let approvals = &projection.approvals;
        if projection.session.as_ref().is_some_and(|row| row.session_id != session_id)
            || approvals.iter().any(|row| row.session_id != session_id)
        {
            return Err(invalid("it changes rows of another session"));
        }
        let encode_error = |reason: serde_json::Error| invalid(&reason.to_string());
        Ok(Self {
            session_id,
            expected_head: commit.expected_head,
            last_seq: last.seq,
            at: last.at.0,
            events: codec::encode(&commit.records)
                .map_err(|reason| invalid(&reason.to_string()))?,
            records: commit.records.clone(),
            session_row: projection.session.clone().map(Arc::new),
            session: projection
                .session
                .as_ref()
                .map(StoredSession::from_row)
                .transpose()
                .map_err(encode_error)?,
            approvals: approvals
                .iter()
                .map(StoredApproval::from_row)
                .collect::<Result<_, _>>()
                .map_err(encode_error)?,
            spending_update: projection.spending_update.clone(),
            audit: audit::entries_for_commit(session_id, &commit.records, approvals, digest_key),
        })
    }

    /// Returns the approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        let session = self.session.as_ref().map_or(0, |row| row.content.len());
        let approvals: usize = self.approvals.iter().map(|row| row.content.len()).sum();
        self.events.len() + session + approvals
    }
}

impl StoredSession {
    fn from_row(row: &SessionRow) -> serde_json::Result<Self> {
        let content = serde_json::to_string(row)?;
        let parent = row.parent.as_ref().map(|parent| parent.session_id.to_string());
        Ok(Self { content, owner: row.owner.to_string(), parent, status: status_name(row.status) })
    }
}

impl StoredApproval {
    fn from_row(row: &ApprovalRow) -> serde_json::Result<Self> {
        Ok(Self {
            id: row.approval.approval_id,
            content: serde_json::to_string(row)?,
            owner: row.owner.to_string(),
            state: state_name(row.state),
            deadline: row.deadline_action_at().map(|deadline| deadline.0),
        })
    }
}

/// Returns the value of the `state` column.
pub(super) fn state_name(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Pending => "pending",
        ApprovalState::Decided => "decided",
        ApprovalState::Expired => "expired",
        ApprovalState::Cancelled => "cancelled",
    }
}

/// Parses the value of the `status` column. The database allows no other values; an unknown one is
/// treated as `running`.
pub(super) fn parse_status(name: &str) -> SessionStatus {
    use SessionStatus::{Closed, Idle, Running, Waiting};
    [Idle, Running, Waiting, Closed]
        .into_iter()
        .find(|status| status_name(*status) == name)
        .unwrap_or(Running)
}

fn status_name(status: SessionStatus) -> &'static str {
    match status {
        SessionStatus::Idle => "idle",
        SessionStatus::Running => "running",
        SessionStatus::Waiting => "waiting",
        SessionStatus::Closed => "closed",
    }
}
