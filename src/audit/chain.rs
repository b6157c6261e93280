//! The chain: each row's hash covers the row before it, so that a row can't be changed, moved or
//! taken out without every later hash being wrong. Pure.
//!
//! `hash(n) = SHA-256(hash(n - 1) ‖ content(n))`, where `hash(0)` is 32 zero bytes and the content
//! is the row's canonical JSON, its number among it.

use super::Entry;
use greenroom_core::json::{Digest, canonical};
use serde_json::{Value, json};

/// The last row of the chain: its number, which counts from 1, and its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How many rows there are.
    pub n: u64,
    /// The hash of the last.
    pub hash: Digest,
}

/// A row of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Its number.
    pub n: u64,
    /// Its hash.
    pub hash: Digest,
    /// Its content: canonical JSON.
    pub content: String,
}

/// What is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Rows are gone.
    #[error("row {n} is missing; row {found} follows row {}", n - 1)]
    Missing {
        /// The first that is.
        n: u64,
        /// The one that stands there instead.
        found: u64,
    },
    /// A row has another row's content.
    #[error("row {n} was moved here: it says that it is row {says}")]
    Moved {
        /// Where it stands.
        n: u64,
        /// Where it belongs, in its own words.
        says: Value,
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
    OtherEnd {
        /// The last row.
        n: u64,
    },
    /// Nothing tells where the log ended.
    #[error("the note of the log's end is missing")]
    NoHead,
    /// The row that somebody keeps the hash of is another one.
    #[error("row {n} is not the one that was expected: the log was written anew")]
    OtherAnchor {
        /// The row.
        n: u64,
    },
}

impl Head {
    /// The head of a log without rows.
    pub fn empty() -> Self {
        Self { n: 0, hash: Digest::from([0; 32]) }
    }

    /// Makes `entry` the next row.
    pub fn seal(&mut self, entry: &Entry) -> Sealed {
        let n = self.n + 1;
        let mut content = json!(entry);
        content["n"] = json!(n);
        let content = canonical(&content);
        let hash = self.next_hash(&content);
        *self = Self { n, hash };
        Sealed { n, hash, content }
    }

    fn next_hash(&self, content: &str) -> Digest {
        let mut covered = Vec::with_capacity(32 + content.len());
        covered.extend_from_slice(self.hash.as_bytes());
        covered.extend_from_slice(content.as_bytes());
        Digest::of_bytes(&covered)
    }
}

impl Sealed {
    /// The head of the chain that ends with this row.
    pub fn head(&self) -> Head {
        Head { n: self.n, hash: self.hash }
    }
}

/// Checks a chain, row by row from its first.
#[derive(Debug)]
pub struct Verifier {
    head: Head,
    anchor: Option<Head>,
}

impl Verifier {
    /// One that has seen nothing. `anchor` is a row as it was once seen, kept where whoever can
    /// write the database can't.
    pub fn new(anchor: Option<Head>) -> Self {
        Self { head: Head::empty(), anchor }
    }

    /// Checks the next row.
    pub fn check(&mut self, row: &Sealed) -> Result<(), Broken> {
        let n = self.head.n + 1;
        if row.n != n {
            return Err(Broken::Missing { n, found: row.n });
        }
        let content: Value = serde_json::from_str(&row.content).unwrap_or_default();
        if content["n"].is_u64() && content["n"] != n {
            return Err(Broken::Moved { n, says: content["n"].clone() });
        }
        if self.head.next_hash(&row.content) != row.hash {
            return Err(Broken::Changed { n });
        }
        self.head = Head { n, hash: row.hash };
        match self.anchor {
            Some(anchor) if anchor.n == n && anchor.hash != row.hash => {
                Err(Broken::OtherAnchor { n })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks the end against the one that is noted beside the rows; tells the head.
    pub fn finish(self, noted: Option<Head>) -> Result<Head, Broken> {
        let noted = noted.ok_or(Broken::NoHead)?;
        let least = noted.n.max(self.anchor.map_or(0, |anchor| anchor.n));
        if self.head.n < least {
            return Err(Broken::Truncated { n: self.head.n + 1, expected: least });
        }
        if self.head != noted {
            return Err(Broken::OtherEnd { n: self.head.n });
        }
        Ok(self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Action, Outcome};
    use greenroom_core::Timestamp;

    fn entry(reason: &str) -> Entry {
        let entry = Entry::new(Timestamp(0), Action::KeyCreated, Outcome::Done, None);
        Entry { reason: Some(reason.to_owned()), ..entry }
    }

    fn chain() -> (Vec<Sealed>, Head) {
        let mut head = Head::empty();
        let rows = ["a", "b", "c", "d"].map(|reason| head.seal(&entry(reason)));
        (rows.into(), head)
    }

    fn verify(rows: &[Sealed], noted: Option<Head>, anchor: Option<Head>) -> Result<Head, Broken> {
        let mut verifier = Verifier::new(anchor);
        rows.iter().try_for_each(|row| verifier.check(row))?;
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
        assert_eq!(rows[0].hash, Digest::of_bytes(&first));
        let second = [rows[0].hash.as_bytes(), rows[1].content.as_bytes()].concat();
        assert_eq!(rows[1].hash, Digest::of_bytes(&second));
        assert_eq!(verify(&rows, Some(head), None), Ok(head));
        assert_eq!(verify(&[], Some(Head::empty()), None), Ok(Head::empty()));
    }

    #[test]
    fn x6_whatever_is_done_to_a_chain_shows() {
        let (rows, head) = chain();
        let tampered = |change: fn(&mut Vec<Sealed>)| {
            let mut rows = rows.clone();
            change(&mut rows);
            verify(&rows, Some(head), None).unwrap_err()
        };
        let changed = |rows: &mut Vec<Sealed>| {
            rows[1].content = rows[1].content.replace("\"b\"", "\"B\"");
        };
        assert_eq!(tampered(changed), Broken::Changed { n: 2 });
        let no_json = |rows: &mut Vec<Sealed>| rows[1].content.clear();
        assert_eq!(tampered(no_json), Broken::Changed { n: 2 });
        let rehashed = |rows: &mut Vec<Sealed>| {
            rows[1].content = rows[1].content.replace("\"b\"", "\"B\"");
            let before = Head { n: 1, hash: rows[0].hash };
            rows[1].hash = before.next_hash(&rows[1].content);
        };
        assert_eq!(tampered(rehashed), Broken::Changed { n: 3 });
        let removed = |rows: &mut Vec<Sealed>| drop(rows.remove(1));
        assert_eq!(tampered(removed), Broken::Missing { n: 2, found: 3 });
        let first_removed = |rows: &mut Vec<Sealed>| drop(rows.remove(0));
        assert_eq!(tampered(first_removed), Broken::Missing { n: 1, found: 2 });
        let swapped = |rows: &mut Vec<Sealed>| {
            rows.swap(1, 2);
            (rows[1].n, rows[2].n) = (2, 3);
        };
        assert_eq!(tampered(swapped), Broken::Moved { n: 2, says: json!(3) });
        let renumbered = |rows: &mut Vec<Sealed>| {
            rows.remove(1);
            (rows[1].n, rows[2].n) = (2, 3);
        };
        assert_eq!(tampered(renumbered), Broken::Moved { n: 2, says: json!(3) });
        let cut = |rows: &mut Vec<Sealed>| rows.truncate(2);
        assert_eq!(tampered(cut), Broken::Truncated { n: 3, expected: 4 });
        let emptied = |rows: &mut Vec<Sealed>| rows.clear();
        assert_eq!(tampered(emptied), Broken::Truncated { n: 1, expected: 4 });
    }

    #[test]
    fn x6_the_end_must_be_the_one_that_was_noted() {
        let (rows, head) = chain();
        let shorter = Head { n: 3, hash: rows[2].hash };
        assert_eq!(verify(&rows, None, None), Err(Broken::NoHead));
        assert_eq!(verify(&rows, Some(shorter), None), Err(Broken::OtherEnd { n: 4 }));
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
        let shorter = Head { n: 2, hash: rows[1].hash };
        assert_eq!(verify(&rows[..2], Some(shorter), None), Ok(shorter));
        let gone = Broken::Truncated { n: 3, expected: 4 };
        assert_eq!(verify(&rows[..2], Some(shorter), Some(head)), Err(gone));

        let mut anew = Head::empty();
        let forged = ["a", "b", "x", "d"].map(|reason| anew.seal(&entry(reason)));
        assert_eq!(verify(&forged, Some(anew), None), Ok(anew));
        let anchor = Head { n: 3, hash: rows[2].hash };
        assert_eq!(verify(&forged, Some(anew), Some(anchor)), Err(Broken::OtherAnchor { n: 3 }));
        assert_eq!(verify(&rows, Some(head), Some(anchor)), Ok(head));
    }
}
