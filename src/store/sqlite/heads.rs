//! Compare-and-append: which commits of a group follow the last event of their session (D1). Must
//! not know how they are stored.

use super::batch::Encoded;
use greenroom_core::ids::{Seq, SessionId};
use serde_json::json;
use sqlx::{Row, SqliteConnection};
use std::collections::HashMap;
use uuid::Uuid;

/// Sessions whose head is remembered between writes; beyond it all are forgotten and read again.
const REMEMBERED_MAX: usize = 64 * 1024;

/// The last event of each of these sessions, whose ids are in the second value, one after another.
const SELECT_HEADS: &str = "
    SELECT substr(?2, value, 16),
           (SELECT last_seq FROM commits WHERE session_id = substr(?2, value, 16)
            ORDER BY first_seq DESC LIMIT 1)
    FROM json_each(?1)";

/// What a judgement rests on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// What is remembered; and a first commit is taken for one, as the table's key refuses a
    /// second.
    Remembered,
    /// What is stored alone.
    Stored,
}

/// The heads of sessions that were written lately. Sound because one process alone writes; emptied
/// whenever that is in doubt.
#[derive(Debug, Default)]
pub(super) struct Heads(HashMap<SessionId, Seq>);

impl Heads {
    /// Forgets all.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Remembers what a write has changed.
    pub(super) fn remember(&mut self, written: HashMap<SessionId, Seq>) {
        self.0.extend(written);
    }

    /// Reads the heads that are needed to [`judge`](Self::judge) these commits.
    pub(super) async fn learn(
        &mut self,
        connection: &mut SqliteConnection,
        commits: &[&Encoded],
        trust: Trust,
    ) -> sqlx::Result<()> {
        if trust == Trust::Stored || self.0.len() + commits.len() > REMEMBERED_MAX {
            self.forget();
        }
        let mut ids = Vec::new();
        let mut starts = Vec::new();
        for commit in commits {
            let is_needed = trust == Trust::Stored || commit.expected_head != Seq(0);
            if is_needed && !self.0.contains_key(&commit.session_id) {
                // SQL counts from 1.
                starts.push(ids.len() + 1);
                ids.extend_from_slice(commit.session_id.0.as_bytes());
            }
        }
        if starts.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(SELECT_HEADS).bind(json!(starts).to_string()).bind(ids);
        for row in query.fetch_all(connection).await? {
            let id = Uuid::from_slice(row.try_get(0)?)
                .map_err(|error| sqlx::Error::Decode(error.into()))?;
            let head: Option<i64> = row.try_get(1)?;
            self.0.insert(SessionId(id), Seq(head.unwrap_or(0).unsigned_abs()));
        }
        Ok(())
    }

    /// For each commit whether it follows its session's head, the commits before it counted in;
    /// and what the heads are once those that do are written.
    pub(super) fn judge(&self, commits: &[&Encoded]) -> (Vec<bool>, HashMap<SessionId, Seq>) {
        let mut written = HashMap::new();
        let mut verdicts = Vec::with_capacity(commits.len());
        for commit in commits {
            let head = written.get(&commit.session_id).or_else(|| self.0.get(&commit.session_id));
            let follows = head.copied().unwrap_or_default() == commit.expected_head;
            if follows {
                written.insert(commit.session_id, commit.last_seq);
            }
            verdicts.push(follows);
        }
        (verdicts, written)
    }
}
