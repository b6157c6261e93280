//! Ids as people type them: whole, or the end or beginning of one.

use super::UsageError;
use std::str::FromStr;
use uuid::Uuid;

/// Fewer characters would soon mean several things.
const CHARS_MIN: usize = 6;
/// Ids that are named where several fit.
const NAMED_MAX: usize = 5;

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
        let fits = text.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-');
        let digits = text.chars().filter(char::is_ascii_hexdigit).count();
        if !fits || text.len() > 36 {
            return Err("an id has digits, letters a to f and hyphens".to_owned());
        }
        if digits < CHARS_MIN {
            return Err(format!("give at least {CHARS_MIN} characters of an id"));
        }
        Ok(Self(text))
    }
}

impl PartialId {
    /// The id, if it is whole.
    pub(super) fn as_full(&self) -> Option<&str> {
        (self.0.len() == 36).then_some(self.0.as_str())
    }

    /// Whether it may stand for that id.
    pub(super) fn matches(&self, id: &str) -> bool {
        id.ends_with(&self.0) || id.starts_with(&self.0)
    }

    /// The one id it stands for.
    pub(super) fn resolve(
        &self,
        ids: impl IntoIterator<Item = String>,
        kind: &str,
    ) -> Result<String, UsageError> {
        let mut fitting: Vec<_> = ids.into_iter().filter(|id| self.matches(id)).collect();
        let text = &self.0;
        match fitting.pop() {
            None => {
                Err(UsageError(format!("no {kind} has an id that ends or begins with `{text}`")))
            }
            Some(one) if fitting.is_empty() => Ok(one),
            Some(last) => {
                fitting.push(last);
                let count = fitting.len();
                fitting.truncate(NAMED_MAX);
                let more = if count > NAMED_MAX { " …" } else { "" };
                let ids = fitting.join(" ");
                Err(UsageError(format!("`{text}` fits {count} ids, give more of one: {ids}{more}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0198c0de-0000-7000-8000-0000000a11ce";
    const TWO: &str = "0198c0de-0000-7000-8000-00000000b0b5";

    fn one_of(text: &str) -> Result<String, String> {
        let id: PartialId = text.parse()?;
        id.resolve([ONE, TWO].map(str::to_owned), "question").map_err(|error| error.to_string())
    }

    #[test]
    fn an_end_or_a_beginning_stands_for_the_one_id_that_has_it() {
        assert_eq!(one_of("0a11ce"), Ok(ONE.to_owned()));
        assert_eq!(one_of("…00A11CE"), Ok(ONE.to_owned()));
        assert_eq!(one_of("0198c0de-0000-7000-8000-0000000a"), Ok(ONE.to_owned()));
        assert_eq!(one_of(TWO), Ok(TWO.to_owned()));
        assert_eq!(one_of(&TWO.replace('-', "")), Ok(TWO.to_owned()));
    }

    #[test]
    fn what_is_unclear_is_refused_with_the_choice() {
        let unclear = one_of("0198c0").unwrap_err();
        assert!(unclear.contains(ONE) && unclear.contains(TWO), "{unclear}");
        assert!(one_of("ffffff").unwrap_err().contains("no question"));
        assert!(one_of("a11ce").unwrap_err().contains("at least 6"));
        assert!(one_of("a-1-1-c-e").unwrap_err().contains("at least 6"));
        assert!(one_of("nonsense").is_err());
        assert!("../../admin".parse::<PartialId>().is_err());
    }
}
