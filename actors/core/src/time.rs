//! Timestamps of the log and the wire formats. This module reads no clock.

use chrono::{DateTime, Datelike, SecondsFormat, Timelike, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, time::Duration};
use utoipa::ToSchema;

/// Milliseconds since the Unix epoch (UTC). Serialised as RFC 3339 with milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The last instant that RFC 3339 can represent: the end of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// Returns `self + duration`, at most [`Self::MAX`]: a later instant could not be parsed again.
    pub fn saturating_add(self, duration: Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis)).min(Self::MAX)
    }

    /// Returns the time from `now` until this instant; zero if it has passed.
    pub fn saturating_duration_since(self, now: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(now.0)).unwrap_or(0))
    }

    /// Passes the RFC 3339 text to `use_text`. Formats the digits itself, because every frame and
    /// every stored event has a timestamp and chrono allocates a `String` for each.
    fn with_text<T>(self, use_text: impl FnOnce(&str) -> T) -> T {
        let instant = DateTime::<Utc>::from_timestamp_millis(self.0).unwrap_or_default();
        let (date, time) = (instant.date_naive(), instant.time());
        let year = date.year();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        for (end, digits, number) in [
            (4, 4, year.unsigned_abs()),
            (7, 2, date.month()),
            (10, 2, date.day()),
            (13, 2, time.hour()),
            (16, 2, time.minute()),
            (19, 2, time.second()),
            (23, 3, instant.timestamp_subsec_millis()),
        ] {
            let mut number = number;
            for digit in text[end - digits..end].iter_mut().rev() {
                *digit += (number % 10) as u8;
                number /= 10;
            }
        }
        match std::str::from_utf8(&text) {
            Ok(text) if (0..10_000).contains(&year) => use_text(text),
            _ => use_text(&instant.to_rfc3339_opts(SecondsFormat::Millis, true)),
        }
    }

    /// Returns the calendar day (UTC).
    pub fn day(self) -> Day {
        Day(i32::try_from(self.0.div_euclid(86_400_000)).unwrap_or(i32::MAX))
    }
}

/// A calendar day (UTC), counted from 1970-01-01.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Day(pub i32);

impl Day {
    /// Returns the first day of this day's month.
    pub fn first_of_month(self) -> Self {
        let midnight = DateTime::<Utc>::from_timestamp(i64::from(self.0) * 86_400, 0);
        let days_into_month = midnight.map_or(0, |midnight| midnight.day0());
        Self(self.0 - i32::try_from(days_into_month).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_text(|text| serializer.serialize_str(text))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        DateTime::parse_from_rfc3339(&text)
            .map(|instant| Self(instant.timestamp_millis()))
            .map_err(|_| serde::de::Error::custom("expected an RFC 3339 date and time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timestamp_round_trips_up_to_maximum() {
        for duration in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
            let instant = Timestamp(1_790_000_000_123).saturating_add(duration);
            let text = serde_json::to_string(&instant).unwrap();
            assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), instant, "{text}");
        }
        assert_eq!(Timestamp(0).saturating_add(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999Z");
    }

    proptest! {
        #[test]
        fn timestamp_is_formatted_like_chrono(
            millis in prop_oneof![any::<i64>(), -100_000_000_000_000..300_000_000_000_000i64],
        ) {
            let instant = DateTime::<Utc>::from_timestamp_millis(millis).unwrap_or_default();
            let expected = instant.to_rfc3339_opts(SecondsFormat::Millis, true);
            prop_assert_eq!(Timestamp(millis).to_string(), expected);
        }
    }
}
