//! Compare-and-append: which commits of a group follow the last event of their session (D1). Must
//! not know how they are stored.

use super::{stored_commit::StoredCommit, writer::WriterBackend};
use greenroom_core::ids::{Seq, SessionId};
use std::collections::HashMap;

/// Sessions whose head is remembered between writes; beyond it all are forgotten and read again.
const CACHED_HEADS_MAX: usize = 64 * 1024;

/// What a judgement rests on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadSource {
    /// What is remembered; and a first commit is taken for one, as the table's key refuses a
    /// second.
    Cache,
    /// What is stored alone.
    Database,
}

/// The heads of sessions that were written lately. Sound because one process alone writes; emptied
/// whenever that is in doubt.
#[derive(Debug, Default)]
pub(super) struct HeadCache(HashMap<SessionId, Seq>);

impl HeadCache {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Remembers what a write has changed.
    pub(super) fn update(&mut self, written: HashMap<SessionId, Seq>) {
        self.0.extend(written);
    }

    /// Reads the heads that are needed to [`judge`](Self::judge) these commits.
    pub(super) async fn load_missing(
        &mut self,
        sink: &mut impl WriterBackend,
        commits: &[&StoredCommit],
        trust: HeadSource,
    ) -> sqlx::Result<()> {
        if trust == HeadSource::Database || self.0.len() + commits.len() > CACHED_HEADS_MAX {
            self.clear();
        }
        let is_needed = |commit: &&&StoredCommit| {
            let may_be_first = trust == HeadSource::Cache && commit.expected_head == Seq(0);
            !may_be_first && !self.0.contains_key(&commit.session_id)
        };
        let unknown: Vec<SessionId> =
            commits.iter().filter(is_needed).map(|commit| commit.session_id).collect();
        if !unknown.is_empty() {
            self.0.extend(sink.load_heads(&unknown).await?);
        }
        Ok(())
    }

    /// For each commit whether it follows its session's head, the commits before it counted in;
    /// and what the heads are once those that do are written.
    pub(super) fn validate_commits(
        &self,
        commits: &[&StoredCommit],
    ) -> (Vec<bool>, HashMap<SessionId, Seq>) {
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
