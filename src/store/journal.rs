//! The port [`Journal`], over the writer and the readers.

use super::{Store, open_sessions::Known, read, records::Change, stored::Encoded, writer::Request};
use crate::audit;
use async_trait::async_trait;
use greenroom_actors::ports::{
    ApprovalQuery, Commit, Journal, JournalError, Purge, SessionCounts, SessionQuery,
};
use greenroom_core::{
    Timestamp,
    budget::{Measure, Spent},
    ids::{ApprovalId, Seq, SessionId, UserId},
    policy::Settings,
    session::{ApprovalRow, EventRecord, SessionRow},
    time::Day,
};
use std::collections::BTreeMap;

#[async_trait]
impl Journal for Store {
    async fn append(&self, commit: Commit) -> Result<(), JournalError> {
        let encode = || Encoded::of(&commit).map(Request::Append).map_err(JournalError::Corrupt);
        self.writer.ask(encode).await
    }

    async fn purge(&self, purge: Purge) -> Result<(), JournalError> {
        let change = Change::Purge(purge.session_id, purge.expected_head);
        let entry = audit::row_of_purge(&purge);
        self.writer.ask(|| Ok(Request::Record { change, entry })).await
    }

    async fn read(
        &self,
        session_id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        match self.writer.recent().events(session_id, after, limit) {
            Some(events) => Ok(events),
            None => read::events(&self.readers, session_id, after, limit).await,
        }
    }

    async fn head(&self, session_id: SessionId) -> Result<Seq, JournalError> {
        match self.writer.recent().head(session_id) {
            Some(head) => Ok(head),
            None => read::head(&self.readers, session_id).await,
        }
    }

    async fn session(&self, session_id: SessionId) -> Result<Option<SessionRow>, JournalError> {
        match self.writer.recent().row(session_id) {
            Some(row) => Ok(Some((*row).clone())),
            None => read::session(&self.readers, session_id).await,
        }
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, JournalError> {
        read::sessions(&self.readers, query).await
    }

    async fn unfinished_sessions(&self) -> Result<Vec<SessionId>, JournalError> {
        read::unfinished_sessions(&self.readers).await
    }

    async fn session_counts(&self, owner: &UserId) -> Result<SessionCounts, JournalError> {
        let open = self.writer.open_sessions();
        let mut known = open.count(owner);
        if known == Known::Nothing {
            // The writer reads them, so that no commit falls between.
            self.writer.ask(|| Ok(Request::LearnOpen(owner.clone()))).await?;
            known = open.count(owner);
        }
        match known {
            Known::Counts(counts) => Ok(counts),
            // Forgotten at once, as when a write fails.
            Known::TooMany | Known::Nothing => read::session_counts(&self.readers, owner).await,
        }
    }

    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<ApprovalRow>, JournalError> {
        read::approval(&self.readers, approval_id).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRow>, JournalError> {
        read::approvals(&self.readers, query).await
    }

    async fn pending_deadlines(
        &self,
    ) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
        read::pending_deadlines(&self.readers).await
    }

    async fn settings(&self, user: &UserId) -> Result<Option<Settings>, JournalError> {
        read::settings(&self.readers, user).await
    }

    async fn put_settings(&self, user: &UserId, settings: &Settings) -> Result<(), JournalError> {
        let encode = || {
            let content = serde_json::to_string(settings)
                .map_err(|error| JournalError::Corrupt(format!("settings of {user}: {error}")))?;
            Ok(Request::PutSettings { user: user.to_string(), content })
        };
        self.writer.ask(encode).await
    }

    async fn spent(
        &self,
        user: &UserId,
        today: Day,
    ) -> Result<BTreeMap<Measure, Spent>, JournalError> {
        read::spent(&self.readers, user, today).await
    }

    async fn check(&self) -> Result<(), JournalError> {
        read::check(&self.readers).await?;
        self.writer.ask(|| Ok(Request::Check)).await
    }
}
