//! Compare-and-append: decides which commits of a group follow the last event of their session
//! (D1). Must not know how commits are stored.

use super::{stored_commit::StoredCommit, writer::WriterBackend};
use greenroom_core::ids::{Seq, SessionId};
use std::collections::HashMap;

/// Maximum number of cached heads. Beyond it, the cache is cleared.
const CACHED_HEADS_MAX: usize = 64 * 1024;

/// The source of the heads that commits are validated with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadSource {
    /// The cached heads. A commit at the start of a log is accepted without loading the head,
    /// because the table's key rejects a second one.
    Cache,
    /// Only the stored heads.
    Database,
}

/// The heads of recently written sessions. Relies on this process being the only writer; cleared
/// whenever that is in doubt.
#[derive(Debug, Default)]
pub(super) struct HeadCache(HashMap<SessionId, Seq>);

impl HeadCache {
    /// Removes all heads.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Stores the heads changed by a write.
    pub(super) fn update(&mut self, written: HashMap<SessionId, Seq>) {
        self.0.extend(written);
    }

    /// Loads the heads needed to [validate](Self::validate_commits) these commits.
    pub(super) async fn load_missing(
        &mut self,
        backend: &mut impl WriterBackend,
        commits: &[&StoredCommit],
        source: HeadSource,
    ) -> sqlx::Result<()> {
        if source == HeadSource::Database || self.0.len() + commits.len() > CACHED_HEADS_MAX {
            self.clear();
        }
        let is_needed = |commit: &&&StoredCommit| {
            let may_be_first = source == HeadSource::Cache && commit.expected_head == Seq(0);
            !may_be_first && !self.0.contains_key(&commit.session_id)
        };
        let missing: Vec<SessionId> =
            commits.iter().filter(is_needed).map(|commit| commit.session_id).collect();
        if !missing.is_empty() {
            self.0.extend(backend.load_heads(&missing).await?);
        }
        Ok(())
    }

    /// Returns for each commit if it follows its session's head, counting the valid commits before
    /// it, and the heads after the valid commits.
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
