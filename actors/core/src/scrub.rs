//! Removes configured secrets from a text that arrives in pieces (E7).
//!
//! A secret may be split across pieces. The scrubber therefore holds back the end of a piece that may
//! be the start of a secret until the next piece or the end of the text decides.

use std::{borrow::Cow, sync::Arc};

/// Replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// Scrubs one text. Between pieces it holds fewer bytes than the longest secret has.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    /// Longest first.
    secrets: Arc<[String]>,
    pending: String,
}

impl Scrubber {
    /// Creates a scrubber for `secrets`, which must come from [`prepare_secrets`].
    pub fn new(secrets: Arc<[String]>) -> Self {
        Self { secrets, pending: String::new() }
    }

    /// Adds the next piece and returns the text that can no longer be part of a secret.
    pub fn push(&mut self, piece: &str) -> String {
        if self.secrets.is_empty() {
            return piece.to_owned();
        }
        self.scrub_piece(piece, true)
    }

    /// Ends the text and returns the scrubbed rest that was held back.
    pub fn finish(&mut self) -> String {
        self.scrub_piece("", false)
    }

    fn scrub_piece(&mut self, piece: &str, may_continue: bool) -> String {
        let pending = std::mem::take(&mut self.pending);
        let text =
            if pending.is_empty() { Cow::Borrowed(piece) } else { Cow::Owned(pending + piece) };
        let mut clean = String::with_capacity(text.len());
        let mut rest = &*text;
        while let Some(start) = self.find_candidate(rest) {
            clean.push_str(&rest[..start]);
            rest = &rest[start..];
            // If a secret is the start of a longer one, waits for the longer one.
            let is_prefix = |secret: &String| secret.len() > rest.len() && secret.starts_with(rest);
            if may_continue && self.secrets.iter().any(is_prefix) {
                rest.clone_into(&mut self.pending);
                return clean;
            }
            let (replacement, length) = match self.match_secret(rest) {
                Some(length) => (REDACTED, length),
                None => {
                    let first = rest.chars().next().map_or(0, char::len_utf8);
                    (&rest[..first], first)
                }
            };
            clean.push_str(replacement);
            rest = &rest[length..];
        }
        clean.push_str(rest);
        clean
    }

    /// Returns the position of the first byte in `text` that a secret starts with.
    fn find_candidate(&self, text: &str) -> Option<usize> {
        let starts_secret =
            |byte: u8| self.secrets.iter().any(|secret| secret.as_bytes().first() == Some(&byte));
        text.bytes().position(starts_secret)
    }

    /// Returns the length of the longest secret that `text` starts with.
    fn match_secret(&self, text: &str) -> Option<usize> {
        self.secrets.iter().find(|secret| text.starts_with(secret.as_str())).map(String::len)
    }
}

/// Returns `secrets` in the form that [`Scrubber::new`] requires: longest first, without empty
/// strings and duplicates.
pub fn prepare_secrets(secrets: impl IntoIterator<Item = String>) -> Arc<[String]> {
    let mut secrets: Vec<_> = secrets.into_iter().filter(|secret| !secret.is_empty()).collect();
    secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    secrets.dedup();
    secrets.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scrubbed(secrets: &[&str], pieces: &[&str]) -> String {
        let secrets = prepare_secrets(secrets.iter().map(|&secret| secret.to_owned()));
        let mut scrubber = Scrubber::new(secrets);
        let mut text: String = pieces.iter().map(|piece| scrubber.push(piece)).collect();
        text.push_str(&scrubber.finish());
        text
    }

    #[test]
    fn e7_secret_split_across_pieces_is_redacted() {
        assert_eq!(scrubbed(&["sk-12345678"], &["my sk-", "1234", "5678 is"]), "my [redacted] is");
        assert_eq!(scrubbed(&["sk-12345678"], &["my sk-", "1234", "99"]), "my sk-123499");
        assert_eq!(scrubbed(&["aab"], &["a", "a", "a", "b"]), "a[redacted]");
        let two = ["hunter2h", "hunter2hunter2"];
        assert_eq!(scrubbed(&two, &["hunter2h", "unter2"]), "[redacted]");
        assert_eq!(scrubbed(&two, &["hunter2h", "unter"]), "[redacted]unter");
        assert_eq!(scrubbed(&["pässwörd"], &["päss", "wörd!"]), "[redacted]!");
    }

    #[test]
    fn text_that_cannot_be_a_secret_is_not_held_back() {
        let mut scrubber = Scrubber::new(Arc::new(["secret!!".to_owned()]));
        assert_eq!(scrubber.push("hello s"), "hello ");
        assert_eq!(scrubber.push("o"), "so");
    }

    proptest! {
        #[test]
        fn e7_secret_is_redacted_for_every_split(
            before in "[abs]{0,6}", after in "[abs]{0,6}", cuts in prop::collection::vec(0usize..20, 0..5)
        ) {
            let text = format!("{before}sabsab{after}");
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            let clean = scrubbed(&["sabsab"], &pieces);
            prop_assert!(!clean.contains("sabsab"), "{clean}");
            prop_assert!(clean.contains(REDACTED));
        }
    }
}
