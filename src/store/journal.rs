//! Implements the port [`Journal`] with the writer, the caches and the read pool.

use super::{
    Store, admin_records::AuditedChange, open_session_cache::CachedCounts, queries, requests,
    stored_commit::StoredCommit, writer::WriteRequest,
};
use crate::audit;
use async_trait::async_trait;
use greenroom_actors::ports::{
    ApprovalQuery, Commit, Journal, JournalError, PurgeRequest, RequestRow, SessionCounts,
    SessionQuery,
};
use greenroom_core::{
    Timestamp,
    budget::{BudgetMeasure, SpendingTotals},
    ids::{ApprovalId, CallId, MessageId, Seq, SessionId, UserId},
    policy::Settings,
    session::{ApprovalRow, EventRecord, SessionRow},
    time::Day,
};
use std::collections::BTreeMap;

#[async_trait]
impl Journal for Store {
    async fn append(&self, commit: Commit) -> Result<(), JournalError> {
        let encode = || {
            StoredCommit::from_commit(&commit, &self.digest_key)
                .map(WriteRequest::Append)
                .map_err(JournalError::Corrupt)
        };
        self.writer.submit(encode).await
    }

    async fn purge(&self, request: PurgeRequest) -> Result<(), JournalError> {
        let change = AuditedChange::Purge(request.session_id, request.expected_head);
        let entry = audit::entry_for_purge(&request);
        self.writer.submit(|| Ok(WriteRequest::StoreChange { change, entry })).await
    }

    async fn load_events(
        &self,
        session_id: SessionId,
        after_seq: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        match self.writer.log_tails().events(session_id, after_seq, limit) {
            Some(events) => Ok(events),
            None => queries::load_events(&self.read_pool, session_id, after_seq, limit).await,
        }
    }

    async fn load_head(&self, session_id: SessionId) -> Result<Seq, JournalError> {
        match self.writer.log_tails().head(session_id) {
            Some(head) => Ok(head),
            None => queries::load_head(&self.read_pool, session_id).await,
        }
    }

    async fn load_session(
        &self,
        session_id: SessionId,
    ) -> Result<Option<SessionRow>, JournalError> {
        match self.writer.log_tails().session_row(session_id) {
            Some(row) => Ok(Some((*row).clone())),
            None => queries::load_session(&self.read_pool, session_id).await,
        }
    }

    async fn list_sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, JournalError> {
        queries::list_sessions(&self.read_pool, query).await
    }

    async fn list_unfinished_sessions(&self) -> Result<Vec<SessionId>, JournalError> {
        queries::list_unfinished_sessions(&self.read_pool).await
    }

    async fn count_sessions(&self, owner: &UserId) -> Result<SessionCounts, JournalError> {
        let open_sessions = self.writer.open_sessions();
        let mut counts = open_sessions.count(owner);
        if counts == CachedCounts::Missing {
            // The writer loads the sessions, so that no commit is missed in between.
            self.writer.submit(|| Ok(WriteRequest::LoadOpenSessions(owner.clone()))).await?;
            counts = open_sessions.count(owner);
        }
        match counts {
            CachedCounts::Counts(counts) => Ok(counts),
            // The cache may have been cleared again, for example after a failed write.
            CachedCounts::TooMany | CachedCounts::Missing => {
                queries::count_sessions(&self.read_pool, owner).await
            }
        }
    }

    async fn load_approval(
        &self,
        approval_id: ApprovalId,
    ) -> Result<Option<ApprovalRow>, JournalError> {
        queries::load_approval(&self.read_pool, approval_id).await
    }

    async fn list_approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRow>, JournalError> {
        queries::list_approvals(&self.read_pool, query).await
    }

    async fn list_approvals_of_call(
        &self,
        call_id: CallId,
    ) -> Result<Vec<ApprovalRow>, JournalError> {
        queries::list_approvals_of_call(&self.read_pool, call_id).await
    }

    async fn store_request(
        &self,
        row: &RequestRow,
        valid_since: Timestamp,
    ) -> Result<(), JournalError> {
        self.writer
            .submit(|| Ok(WriteRequest::StoreRequest { row: row.clone(), valid_since }))
            .await
    }

    async fn find_request(
        &self,
        user: &UserId,
        request_id: &MessageId,
        valid_since: Timestamp,
    ) -> Result<Option<RequestRow>, JournalError> {
        requests::find_request(&self.read_pool, user, request_id, valid_since).await
    }

    async fn list_pending_deadlines(
        &self,
    ) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
        queries::list_pending_deadlines(&self.read_pool).await
    }

    async fn load_settings(&self, user: &UserId) -> Result<Option<Settings>, JournalError> {
        queries::load_settings(&self.read_pool, user).await
    }

    async fn store_settings(&self, user: &UserId, settings: &Settings) -> Result<(), JournalError> {
        let encode = || {
            let content = serde_json::to_string(settings)
                .map_err(|error| JournalError::Corrupt(format!("settings of {user}: {error}")))?;
            Ok(WriteRequest::StoreSettings { user: user.to_string(), content })
        };
        self.writer.submit(encode).await
    }

    async fn load_spending(
        &self,
        user: &UserId,
        today: Day,
    ) -> Result<BTreeMap<BudgetMeasure, SpendingTotals>, JournalError> {
        queries::load_spending(&self.read_pool, user, today).await
    }

    async fn check_health(&self) -> Result<(), JournalError> {
        queries::check_health(&self.read_pool).await?;
        self.writer.submit(|| Ok(WriteRequest::Heartbeat)).await
    }
}
