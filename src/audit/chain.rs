//! The chain: each row's hash covers the row before it, so that a row can't be changed, moved or
//! taken out without every later hash being wrong. Pure.
//!
//! `hash(n) = SHA-256(hash(n - 1) ‖ content(n))`, where `hash(0)` is 32 zero bytes and the content
//! is the row's canonical JSON, its number among it.

use super::AuditEntry;
use greenroom_core::json::{Digest, to_canonical_json};
use serde_json::{Value, json};

/// The last row of the chain: its number, which counts from 1, and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// How many rows there are.
    pub n: u64,
    /// The hash of the last.
    pub hash: Digest,
}

/// A row of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number.
    pub n: u64,
    /// Its hash.
    pub hash: Digest,
    /// Its content: canonical JSON.
    pub content: String,
}

/// What is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// Rows are gone.
    #[error("row {n} is missing; row {found} follows row {}", n - 1)]
    Missing {
        /// The first that is.
        n: u64,
        /// The one that stands there instead.
        found: u64,
    },
    /// A row has another row's content.
    #[error("row {n} was moved here: it says that it is row {claimed}")]
    Moved {
        /// Where it stands.
        n: u64,
        /// Where it belongs, in its own words.
        claimed: Value,
    },
    /// A row is not what it was when it was written, or the hash beside it is not.
    #[error("row {n} was changed: its hash is not that of its content and the row before it")]
    Changed {
        /// The row.
        n: u64,
    },
    /// The newest rows are gone.
    #[error("row {n} is missing: the log ends before it, but it had {expected} rows")]
    Truncated {
        /// The first that is gone.
        n: u64,
        /// How many there were.
        expected: u64,
    },
    /// The log's end is not the one that was noted.
    #[error("row {n} is not the end that was noted")]
    HeadMismatch {
        /// The last row.
        n: u64,
    },
    /// Nothing tells where the log ended.
    #[error("the note of the log's end is missing")]
    HeadMissing,
    /// The row that somebody keeps the hash of is another one.
    #[error("row {n} is not the one that was expected: the log was written anew")]
    AnchorMismatch {
        /// The row.
        n: u64,
    },
}

impl ChainHead {
    /// The head of a log without rows.
    pub fn empty() -> Self {
        Self { n: 0, hash: Digest::from([0; 32]) }
    }

    /// Makes `entry` the next row.
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
    /// The head of the chain that ends with this row.
    pub fn head(&self) -> ChainHead {
        ChainHead { n: self.n, hash: self.hash }
    }
}

/// Checks a chain, row by row from its first.
#[derive(Debug)]
pub struct ChainVerifier {
    head: ChainHead,
    anchor: Option<ChainHead>,
}

impl ChainVerifier {
    /// One that has seen nothing. `anchor` is a row as it was once seen, kept where whoever can
    /// write the database can't.
    pub fn new(anchor: Option<ChainHead>) -> Self {
        Self { head: ChainHead::empty(), anchor }
    }

    /// Checks the next row.
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

    /// Checks the end against the one that is noted beside the rows; tells the head.
    pub fn finish(self, noted: Option<ChainHead>) -> Result<ChainHead, ChainError> {
        let noted = noted.ok_or(ChainError::HeadMissing)?;
        let least = noted.n.max(self.anchor.map_or(0, |anchor| anchor.n));
        if self.head.n < least {
            return Err(ChainError::Truncated { n: self.head.n + 1, expected: least });
        }
        if self.head != noted {
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
        noted: Option<ChainHead>,
        anchor: Option<ChainHead>,
    ) -> Result<ChainHead, ChainError> {
        let mut verifier = ChainVerifier::new(anchor);
        rows.iter().try_for_each(|row| verifier.verify_row(row))?;
        verifier.finish(noted)
    }

    #[test]
    fn x6_a_chain_is_what_is_documented() {
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
    fn x6_whatever_is_done_to_a_chain_shows() {
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
        let no_json = |rows: &mut Vec<AuditRow>| rows[1].content.clear();
        assert_eq!(tampered(no_json), ChainError::Changed { n: 2 });
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
        let cut = |rows: &mut Vec<AuditRow>| rows.truncate(2);
        assert_eq!(tampered(cut), ChainError::Truncated { n: 3, expected: 4 });
        let emptied = |rows: &mut Vec<AuditRow>| rows.clear();
        assert_eq!(tampered(emptied), ChainError::Truncated { n: 1, expected: 4 });
    }

    #[test]
    fn x6_the_end_must_be_the_one_that_was_noted() {
        let (rows, head) = chain();
        let shorter = ChainHead { n: 3, hash: rows[2].hash };
        assert_eq!(verify(&rows, None, None), Err(ChainError::HeadMissing));
        assert_eq!(verify(&rows, Some(shorter), None), Err(ChainError::HeadMismatch { n: 4 }));
        assert_eq!(
            verify(&rows[..3], Some(head), None).unwrap_err().to_string(),
            "row 4 is missing: the log ends before it, but it had 4 rows"
        );
    }

    /// Who can write the database can cut rows and note, or write everything anew: only a hash
    /// kept elsewhere tells.
    #[test]
    fn x6_an_anchor_shows_what_the_chain_alone_cannot() {
        let (rows, head) = chain();
        let shorter = ChainHead { n: 2, hash: rows[1].hash };
        assert_eq!(verify(&rows[..2], Some(shorter), None), Ok(shorter));
        let gone = ChainError::Truncated { n: 3, expected: 4 };
        assert_eq!(verify(&rows[..2], Some(shorter), Some(head)), Err(gone));

        let mut anew = ChainHead::empty();
        let forged = ["a", "b", "x", "d"].map(|reason| anew.append(&entry(reason)));
        assert_eq!(verify(&forged, Some(anew), None), Ok(anew));
        let anchor = ChainHead { n: 3, hash: rows[2].hash };
        assert_eq!(
            verify(&forged, Some(anew), Some(anchor)),
            Err(ChainError::AnchorMismatch { n: 3 })
        );
        assert_eq!(verify(&rows, Some(head), Some(anchor)), Ok(head));
    }
}
