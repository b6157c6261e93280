//! The hash chain: each row's hash covers the hash of the previous row, so that changing, moving or
//! removing a row invalidates all later hashes. Pure.
//!
//! `hash(n) = SHA-256(hash(n - 1) ‖ content(n))`, where `hash(0)` is 32 zero bytes and the content
//! is the row's canonical JSON, including its number.

use super::AuditEntry;
use greenroom_core::json::{Digest, to_canonical_json};
use serde_json::{Value, json};

/// The last row of a chain: its number, counted from 1, and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// Number of rows.
    pub n: u64,
    /// Hash of the last row.
    pub hash: Digest,
}

/// A row of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// The row's number.
    pub n: u64,
    /// The row's hash.
    pub hash: Digest,
    /// The row's content as canonical JSON.
    pub content: String,
}

/// A defect of a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// Rows are missing.
    #[error("row {n} is missing; row {found} follows row {}", n - 1)]
    Missing {
        /// The first missing row.
        n: u64,
        /// The row found instead.
        found: u64,
    },
    /// A row contains the content of another row.
    #[error("row {n} was moved: its content belongs to row {claimed}")]
    Moved {
        /// The position of the row.
        n: u64,
        /// The number in the row's content.
        claimed: Value,
    },
    /// The content or the hash of a row was changed.
    #[error("row {n} was changed: its hash does not match its content and the previous row")]
    Changed {
        /// The row.
        n: u64,
    },
    /// The newest rows are missing.
    #[error("row {n} is missing: the log ends before it, but had {expected} rows")]
    Truncated {
        /// The first missing row.
        n: u64,
        /// The expected number of rows.
        expected: u64,
    },
    /// The last row does not match the stored head.
    #[error("row {n} does not match the stored head of the log")]
    HeadMismatch {
        /// The last row.
        n: u64,
    },
    /// The stored head is missing.
    #[error("the stored head of the log is missing")]
    HeadMissing,
    /// A row does not match the anchor.
    #[error("row {n} does not match the expected hash: the log was rewritten")]
    AnchorMismatch {
        /// The row.
        n: u64,
    },
}

impl ChainHead {
    /// Returns the head of an empty log.
    pub fn empty() -> Self {
        Self { n: 0, hash: Digest::from([0; 32]) }
    }

    /// Appends `entry` as the next row.
    pub fn append(&mut self, entry: &AuditEntry) -> AuditRow {
        let n = self.n + 1;
        let mut content = json!(entry);
        content["n"] = json!(n);
        let content = to_canonical_json(&content);
        let hash = self.next_hash(&content);
        *self = Self { n, hash };
        AuditRow { n, hash, content }
    }

    fn next_hash(&self, content: &str) -> Digest {
        let mut covered = Vec::with_capacity(32 + content.len());
        covered.extend_from_slice(self.hash.as_bytes());
        covered.extend_from_slice(content.as_bytes());
        Digest::hash_bytes(&covered)
    }
}

impl AuditRow {
    /// Returns the head of the chain that ends with this row.
    pub fn head(&self) -> ChainHead {
        ChainHead { n: self.n, hash: self.hash }
    }
}

/// Verifies a chain row by row, from its first row.
#[derive(Debug)]
pub struct ChainVerifier {
    head: ChainHead,
    anchor: Option<ChainHead>,
}

impl ChainVerifier {
    /// Creates a verifier. `anchor` is a row seen earlier, which must have been kept outside the
    /// reach of those who can write the database.
    pub fn new(anchor: Option<ChainHead>) -> Self {
        Self { head: ChainHead::empty(), anchor }
    }

    /// Verifies the next row.
    pub fn verify_row(&mut self, row: &AuditRow) -> Result<(), ChainError> {
        let n = self.head.n + 1;
        if row.n != n {
            return Err(ChainError::Missing { n, found: row.n });
        }
        let content: Value = serde_json::from_str(&row.content).unwrap_or_default();
        if content["n"].is_u64() && content["n"] != n {
            return Err(ChainError::Moved { n, claimed: content["n"].clone() });
        }
        if self.head.next_hash(&row.content) != row.hash {
            return Err(ChainError::Changed { n });
        }
        self.head = ChainHead { n, hash: row.hash };
        match self.anchor {
            Some(anchor) if anchor.n == n && anchor.hash != row.hash => {
                Err(ChainError::AnchorMismatch { n })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Verifies the end of the chain against the head that is stored beside the rows. Returns the
    /// head.
    pub fn finish(self, stored_head: Option<ChainHead>) -> Result<ChainHead, ChainError> {
        let stored_head = stored_head.ok_or(ChainError::HeadMissing)?;
        let expected = stored_head.n.max(self.anchor.map_or(0, |anchor| anchor.n));
        if self.head.n < expected {
            return Err(ChainError::Truncated { n: self.head.n + 1, expected });
        }
        if self.head != stored_head {
            return Err(ChainError::HeadMismatch { n: self.head.n });
        }
        Ok(self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditAction, AuditOutcome};
    use greenroom_core::Timestamp;

    fn entry(reason: &str) -> AuditEntry {
        let entry =
            AuditEntry::new(Timestamp(0), AuditAction::KeyCreated, AuditOutcome::Done, None);
        AuditEntry { reason: Some(reason.to_owned()), ..entry }
    }

    fn chain() -> (Vec<AuditRow>, ChainHead) {
        let mut head = ChainHead::empty();
        let rows = ["a", "b", "c", "d"].map(|reason| head.append(&entry(reason)));
        (rows.into(), head)
    }

    fn verify(
        rows: &[AuditRow],
        stored_head: Option<ChainHead>,
        anchor: Option<ChainHead>,
    ) -> Result<ChainHead, ChainError> {
        let mut verifier = ChainVerifier::new(anchor);
        rows.iter().try_for_each(|row| verifier.verify_row(row))?;
        verifier.finish(stored_head)
    }

    #[test]
    fn x6_chain_has_the_documented_form() {
        let (rows, head) = chain();
        assert_eq!(
            rows[0].content,
            r#"{"action":"key_created","at":"1970-01-01T00:00:00.000Z","n":1,"outcome":"done","reason":"a"}"#
        );
        let first = [&[0; 32], rows[0].content.as_bytes()].concat();
        assert_eq!(rows[0].hash, Digest::hash_bytes(&first));
        let second = [rows[0].hash.as_bytes(), rows[1].content.as_bytes()].concat();
        assert_eq!(rows[1].hash, Digest::hash_bytes(&second));
        assert_eq!(verify(&rows, Some(head), None), Ok(head));
        assert_eq!(verify(&[], Some(ChainHead::empty()), None), Ok(ChainHead::empty()));
    }

    #[test]
    fn x6_tampering_is_detected() {
        let (rows, head) = chain();
        let tampered = |change: fn(&mut Vec<AuditRow>)| {
            let mut rows = rows.clone();
            change(&mut rows);
            verify(&rows, Some(head), None).unwrap_err()
        };
        let changed = |rows: &mut Vec<AuditRow>| {
            rows[1].content = rows[1].content.replace("\"b\"", "\"B\"");
        };
        assert_eq!(tampered(changed), ChainError::Changed { n: 2 });
        let not_json = |rows: &mut Vec<AuditRow>| rows[1].content.clear();
        assert_eq!(tampered(not_json), ChainError::Changed { n: 2 });
        let rehashed = |rows: &mut Vec<AuditRow>| {
            rows[1].content = rows[1].content.replace("\"b\"", "\"B\"");
            let before = ChainHead { n: 1, hash: rows[0].hash };
            rows[1].hash = before.next_hash(&rows[1].content);
        };
        assert_eq!(tampered(rehashed), ChainError::Changed { n: 3 });
        let removed = |rows: &mut Vec<AuditRow>| drop(rows.remove(1));
        assert_eq!(tampered(removed), ChainError::Missing { n: 2, found: 3 });
        let first_removed = |rows: &mut Vec<AuditRow>| drop(rows.remove(0));
        assert_eq!(tampered(first_removed), ChainError::Missing { n: 1, found: 2 });
        let swapped = |rows: &mut Vec<AuditRow>| {
            rows.swap(1, 2);
            (rows[1].n, rows[2].n) = (2, 3);
        };
        assert_eq!(tampered(swapped), ChainError::Moved { n: 2, claimed: json!(3) });
        let renumbered = |rows: &mut Vec<AuditRow>| {
            rows.remove(1);
            (rows[1].n, rows[2].n) = (2, 3);
        };
        assert_eq!(tampered(renumbered), ChainError::Moved { n: 2, claimed: json!(3) });
        let truncated = |rows: &mut Vec<AuditRow>| rows.truncate(2);
        assert_eq!(tampered(truncated), ChainError::Truncated { n: 3, expected: 4 });
        let emptied = |rows: &mut Vec<AuditRow>| rows.clear();
        assert_eq!(tampered(emptied), ChainError::Truncated { n: 1, expected: 4 });
    }

    #[test]
    fn x6_end_must_match_the_stored_head() {
        let (rows, head) = chain();
        let shorter = ChainHead { n: 3, hash: rows[2].hash };
        assert_eq!(verify(&rows, None, None), Err(ChainError::HeadMissing));
        assert_eq!(verify(&rows, Some(shorter), None), Err(ChainError::HeadMismatch { n: 4 }));
        assert_eq!(
            verify(&rows[..3], Some(head), None).unwrap_err().to_string(),
            "row 4 is missing: the log ends before it, but had 4 rows"
        );
    }

    /// A writer of the database can truncate rows and head, or rewrite the log; only a hash that is
    /// kept elsewhere reveals it.
    #[test]
    fn x6_anchor_reveals_truncation_and_rewriting() {
        let (rows, head) = chain();
        let shorter = ChainHead { n: 2, hash: rows[1].hash };
        assert_eq!(verify(&rows[..2], Some(shorter), None), Ok(shorter));
        let truncated = ChainError::Truncated { n: 3, expected: 4 };
        assert_eq!(verify(&rows[..2], Some(shorter), Some(head)), Err(truncated));

        let mut forged_head = ChainHead::empty();
        let forged = ["a", "b", "x", "d"].map(|reason| forged_head.append(&entry(reason)));
        assert_eq!(verify(&forged, Some(forged_head), None), Ok(forged_head));
        let anchor = ChainHead { n: 3, hash: rows[2].hash };
        assert_eq!(
            verify(&forged, Some(forged_head), Some(anchor)),
            Err(ChainError::AnchorMismatch { n: 3 })
        );
        assert_eq!(verify(&rows, Some(head), Some(anchor)), Ok(head));
    }
}
