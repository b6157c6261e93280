//! Ids in command arguments: complete, or abbreviated to their end or beginning.

use super::UsageError;
use std::str::FromStr;
use uuid::Uuid;

/// Minimum number of hexadecimal digits of an abbreviated id; fewer would soon be ambiguous.
const CHARS_MIN: usize = 6;
/// Maximum number of candidates listed in the error for an ambiguous id.
const LISTED_MAX: usize = 5;

/// An id, or at least 6 characters of its end or beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartialId(String);

impl FromStr for PartialId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim_start_matches('…').to_ascii_lowercase();
        if let Ok(id) = Uuid::try_parse(&text) {
            return Ok(Self(id.to_string()));
        }
        let is_valid = text.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-');
        let digits = text.chars().filter(char::is_ascii_hexdigit).count();
        if !is_valid || text.len() > 36 {
            return Err("an id consists of digits, letters a to f and hyphens".to_owned());
        }
        if digits < CHARS_MIN {
            return Err(format!("give at least {CHARS_MIN} characters of an id"));
        }
        Ok(Self(text))
    }
}

impl PartialId {
    /// Returns the id if it is complete.
    pub(super) fn as_full(&self) -> Option<&str> {
        (self.0.len() == 36).then_some(self.0.as_str())
    }

    /// True if `id` ends or begins with this text.
    pub(super) fn matches(&self, id: &str) -> bool {
        id.ends_with(&self.0) || id.starts_with(&self.0)
    }

    /// Returns the only one of `ids` that matches. `kind` names the entity in the error.
    pub(super) fn resolve(
        &self,
        ids: impl IntoIterator<Item = String>,
        kind: &str,
    ) -> Result<String, UsageError> {
        let mut matching: Vec<_> = ids.into_iter().filter(|id| self.matches(id)).collect();
        let text = &self.0;
        match matching.pop() {
            None => {
                Err(UsageError(format!("no {kind} has an id that ends or begins with `{text}`")))
            }
            Some(id) if matching.is_empty() => Ok(id),
            Some(last) => {
                matching.push(last);
                let count = matching.len();
                matching.truncate(LISTED_MAX);
                let ellipsis = if count > LISTED_MAX { " …" } else { "" };
                let ids = matching.join(" ");
                Err(UsageError(format!(
                    "`{text}` matches {count} ids, give more characters: {ids}{ellipsis}"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "0198c0de-0000-7000-8000-0000000a11ce";
    const SECOND: &str = "0198c0de-0000-7000-8000-00000000b0b5";

    fn resolve(text: &str) -> Result<String, String> {
        let id: PartialId = text.parse()?;
        id.resolve([FIRST, SECOND].map(str::to_owned), "approval")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn unique_end_or_beginning_resolves_to_the_id() {
        assert_eq!(resolve("0a11ce"), Ok(FIRST.to_owned()));
        assert_eq!(resolve("…00A11CE"), Ok(FIRST.to_owned()));
        assert_eq!(resolve("0198c0de-0000-7000-8000-0000000a"), Ok(FIRST.to_owned()));
        assert_eq!(resolve(SECOND), Ok(SECOND.to_owned()));
        assert_eq!(resolve(&SECOND.replace('-', "")), Ok(SECOND.to_owned()));
    }

    #[test]
    fn ambiguous_or_invalid_id_is_rejected() {
        let ambiguous = resolve("0198c0").unwrap_err();
        assert!(ambiguous.contains(FIRST) && ambiguous.contains(SECOND), "{ambiguous}");
        assert!(resolve("ffffff").unwrap_err().contains("no approval"));
        assert!(resolve("a11ce").unwrap_err().contains("at least 6"));
        assert!(resolve("a-1-1-c-e").unwrap_err().contains("at least 6"));
        assert!(resolve("nonsense").is_err());
        assert!("../../admin".parse::<PartialId>().is_err());
    }
}
