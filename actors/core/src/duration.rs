//! Durations in configuration: `"200ms"`, `"30s"`, `"5m"`, `"2h"`, `"1d"`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr, time::Duration};

/// Units and their length in milliseconds, longest first.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Longest valid duration: a hundred years.
const MILLISECONDS_MAX: u64 = 36_525 * 86_400_000;

/// A duration in configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigDuration(pub Duration);

/// A duration in configuration that may also be `"none"`, which means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationLimit(pub Option<Duration>);

/// The text is not a valid duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write a whole number and ms, s, m, h or d, such as \"30s\"")]
pub struct InvalidDuration(String);

impl FromStr for ConfigDuration {
    type Err = InvalidDuration;
    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let invalid = || InvalidDuration(crate::text::truncate(text, 64).to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let (_, factor) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        let milliseconds = number.parse().ok().and_then(|number: u64| number.checked_mul(factor));
        milliseconds
            .filter(|milliseconds| *milliseconds <= MILLISECONDS_MAX)
            .map(|milliseconds| Self(Duration::from_millis(milliseconds)))
            .ok_or_else(invalid)
    }
}

impl FromStr for DurationLimit {
    type Err = InvalidDuration;
    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        if text == "none" {
            Ok(Self(None))
        } else {
            ConfigDuration::from_str(text).map(|ConfigDuration(span)| Self(Some(span)))
        }
    }
}

impl fmt::Display for ConfigDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        let is_multiple = |factor: u64| milliseconds.is_multiple_of(u128::from(factor));
        let fitting =
            UNITS.into_iter().find(|(_, factor)| milliseconds > 0 && is_multiple(*factor));
        let (unit, factor) = fitting.unwrap_or(("ms", 1));
        write!(f, "{}{unit}", milliseconds / u128::from(factor))
    }
}

impl fmt::Display for DurationLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(span) => ConfigDuration(span).fmt(f),
            None => f.write_str("none"),
        }
    }
}

macro_rules! impl_serde_as_text {
    ($($name:ident),+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

impl_serde_as_text!(ConfigDuration, DurationLimit);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_round_trips() {
        let cases =
            [("0ms", 0), ("200ms", 200), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000)];
        for (text, milliseconds) in cases {
            let span: ConfigDuration = text.parse().unwrap();
            assert_eq!(span.0, Duration::from_millis(milliseconds));
            assert_eq!(span.to_string(), text);
        }
        assert_eq!("60s".parse::<ConfigDuration>().unwrap().to_string(), "1m");
        assert_eq!("none".parse(), Ok(DurationLimit(None)));
        assert_eq!("1d".parse(), Ok(DurationLimit(Some(Duration::from_secs(86_400)))));
    }

    #[test]
    fn invalid_duration_is_rejected() {
        let wrong = ["", "30", "s", "-1s", "1.5s", "30 s", "30S", "none ", "99999999999999999999s"];
        for text in wrong.into_iter().chain(["999999999d"]) {
            assert!(text.parse::<DurationLimit>().is_err(), "{text}");
        }
        assert!("none".parse::<ConfigDuration>().is_err());
    }
}
