//! Taking configured secrets out of a text that arrives in pieces (E7).
//!
//! A secret may be split over pieces, so what could be the beginning of one is held back until
//! the next piece, or the end, tells.

use std::{borrow::Cow, sync::Arc};

/// What stands in a secret's place.
pub const REDACTED: &str = "[redacted]";

/// Scrubs one text. Memory beyond the pieces: less than the longest secret.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    /// The longest first.
    secrets: Arc<[String]>,
    pending: String,
}

impl Scrubber {
    /// A scrubber of these secrets, longest first ([`longest_first`]).
    pub fn new(secrets: Arc<[String]>) -> Self {
        Self { secrets, pending: String::new() }
    }

    /// Takes the next piece, and gives what is certain by now.
    pub fn push(&mut self, piece: &str) -> String {
        if self.secrets.is_empty() {
            return piece.to_owned();
        }
        self.scrub_piece(piece, true)
    }

    /// The text has ended: gives what was held back, without the secrets in it.
    pub fn finish(&mut self) -> String {
        self.scrub_piece("", false)
    }

    fn scrub_piece(&mut self, piece: &str, more_may_come: bool) -> String {
        let held = std::mem::take(&mut self.pending);
        let text = if held.is_empty() { Cow::Borrowed(piece) } else { Cow::Owned(held + piece) };
        let mut clean = String::with_capacity(text.len());
        let mut rest = &*text;
        while let Some(at) = self.find_candidate(rest) {
            clean.push_str(&rest[..at]);
            rest = &rest[at..];
            // One secret may be the beginning of a longer one: the longer is waited for.
            let begins = |secret: &String| secret.len() > rest.len() && secret.starts_with(rest);
            if more_may_come && self.secrets.iter().any(begins) {
                rest.clone_into(&mut self.pending);
                return clean;
            }
            let (instead, length) = match self.match_secret(rest) {
                Some(length) => (REDACTED, length),
                None => {
                    let first = rest.chars().next().map_or(0, char::len_utf8);
                    (&rest[..first], first)
                }
            };
            clean.push_str(instead);
            rest = &rest[length..];
        }
        clean.push_str(rest);
        clean
    }

    /// Where in `text` the first character is that a secret begins with.
    fn find_candidate(&self, text: &str) -> Option<usize> {
        let begins =
            |byte: u8| self.secrets.iter().any(|secret| secret.as_bytes().first() == Some(&byte));
        text.bytes().position(begins)
    }

    /// The length of the longest secret that `text` begins with.
    fn match_secret(&self, text: &str) -> Option<usize> {
        self.secrets.iter().find(|secret| text.starts_with(secret.as_str())).map(String::len)
    }
}

/// The secrets as [`Scrubber::new`] takes them: without empty ones and repetitions.
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
    fn e7_a_secret_is_found_over_pieces() {
        assert_eq!(scrubbed(&["sk-12345678"], &["my sk-", "1234", "5678 is"]), "my [redacted] is");
        assert_eq!(scrubbed(&["sk-12345678"], &["my sk-", "1234", "99"]), "my sk-123499");
        assert_eq!(scrubbed(&["aab"], &["a", "a", "a", "b"]), "a[redacted]");
        let two = ["hunter2h", "hunter2hunter2"];
        assert_eq!(scrubbed(&two, &["hunter2h", "unter2"]), "[redacted]");
        assert_eq!(scrubbed(&two, &["hunter2h", "unter"]), "[redacted]unter");
        assert_eq!(scrubbed(&["pässwörd"], &["päss", "wörd!"]), "[redacted]!");
    }

    #[test]
    fn what_can_be_no_secret_is_not_held_back() {
        let mut scrubber = Scrubber::new(Arc::new(["secret!!".to_owned()]));
        assert_eq!(scrubber.push("hello s"), "hello ");
        assert_eq!(scrubber.push("o"), "so");
    }

    proptest! {
        #[test]
        fn e7_however_it_is_cut_no_secret_is_left(
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
