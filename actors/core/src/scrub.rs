//! Taking configured secrets out of a text that arrives in pieces (E7).
//!
//! A secret may be split over pieces, so what could be the beginning of one is held back until
//! the next piece, or the end, tells.

use std::sync::Arc;

/// What stands in a secret's place.
pub const REDACTED: &str = "[redacted]";

/// Scrubs one text. Memory beyond the pieces: less than the longest secret.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    secrets: Arc<[String]>,
    held: String,
}

impl Scrubber {
    /// A scrubber of these secrets; empty ones are none.
    pub fn new(secrets: Arc<[String]>) -> Self {
        Self { secrets, held: String::new() }
    }

    /// Takes the next piece, and gives what is certain by now.
    pub fn push(&mut self, piece: &str) -> String {
        if self.secrets.is_empty() {
            return piece.to_owned();
        }
        self.held.push_str(piece);
        let mut clean = String::new();
        while let Some((at, length)) = self.first_secret() {
            clean.push_str(&self.held[..at]);
            clean.push_str(REDACTED);
            self.held.drain(..at + length);
        }
        let certain = self.held.len() - self.longest_beginning();
        clean.extend(self.held.drain(..certain));
        clean
    }

    /// The text has ended: gives what was held back.
    pub fn end(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Where the first secret is, the longest of those that begin there.
    fn first_secret(&self) -> Option<(usize, usize)> {
        let found = self.secrets.iter().filter(|secret| !secret.is_empty());
        let found =
            found.filter_map(|secret| Some((self.held.find(secret.as_str())?, secret.len())));
        found.min_by_key(|(at, length)| (*at, std::cmp::Reverse(*length)))
    }

    /// Bytes at the end that are the beginning of a secret.
    fn longest_beginning(&self) -> usize {
        let held = &self.held;
        let of = |secret: &String| {
            let longest = secret.len().saturating_sub(1).min(held.len());
            let begins = |length: &usize| {
                secret.is_char_boundary(*length) && held.ends_with(&secret[..*length])
            };
            (1..=longest).rev().find(begins).unwrap_or(0)
        };
        self.secrets.iter().map(of).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scrubbed(secrets: &[&str], pieces: &[&str]) -> String {
        let secrets: Vec<String> = secrets.iter().map(|&secret| secret.to_owned()).collect();
        let mut scrubber = Scrubber::new(secrets.into());
        let mut text: String = pieces.iter().map(|piece| scrubber.push(piece)).collect();
        text.push_str(&scrubber.end());
        text
    }

    #[test]
    fn e7_a_secret_is_found_over_pieces() {
        assert_eq!(scrubbed(&["sk-12345678"], &["my sk-", "1234", "5678 is"]), "my [redacted] is");
        assert_eq!(scrubbed(&["sk-12345678"], &["my sk-", "1234", "99"]), "my sk-123499");
        assert_eq!(scrubbed(&["aab"], &["a", "a", "a", "b"]), "a[redacted]");
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
