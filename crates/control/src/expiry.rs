//! Times of day: the end of a token's validity, and those of the audit.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toml::value::{Datetime, Offset};

const DAY: i64 = 86_400;

/// The moment from which on a token is not valid, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    /// Seconds since 1970.
    seconds: i64,
}

impl Expiry {
    /// Makes the moment that comes so long after now.
    pub fn after(validity: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let end = now.unwrap_or_default().saturating_add(validity);
        Self {
            seconds: i64::try_from(end.as_secs()).unwrap_or(i64::MAX),
        }
    }

    /// Makes the moment this number of seconds after 1970 began.
    pub fn at(seconds: u64) -> Self {
        Self {
            seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        }
    }

    /// Reads a date and time with an offset (RFC 3339).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Datetime {
            date: Some(date),
            time: Some(time),
            offset: Some(offset),
        } = text.parse().ok()?
        else {
            return None;
        };
        let minutes = match offset {
            Offset::Z => 0,
            Offset::Custom { minutes } => i64::from(minutes),
        };
        let days = days_of(
            i64::from(date.year),
            i64::from(date.month),
            i64::from(date.day),
        );
        let hours = i64::from(time.hour) * 60 + i64::from(time.minute) - minutes;
        let seconds = i64::from(time.second.unwrap_or_default());
        Some(Self {
            seconds: days * DAY + hours * 60 + seconds,
        })
    }

    /// Returns the seconds since 1970; 0 for an earlier moment.
    pub(crate) fn seconds(self) -> u64 {
        u64::try_from(self.seconds).unwrap_or(0)
    }

    /// Returns whether a token with this end is not valid any more.
    pub(crate) fn is_past(self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        i64::try_from(now).unwrap_or(i64::MAX) >= self.seconds
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.seconds.div_euclid(DAY), self.seconds.rem_euclid(DAY));
        let (year, month, day) = date_of(days);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        write!(
            formatter,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

/// Days of 400 years, after which the calendar repeats.
const ERA: i64 = 146_097;
/// Days from the first of March of the year 0 to 1970.
const TO_1970: i64 = 719_468;

/// Returns the days from 1970 to a date, in years that begin with March, so that the leap day is
/// the last one.
const fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - TO_1970
}

/// Returns the year, month and day: the inverse of [`days_of`].
const fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + TO_1970;
    let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let is_next = (month <= 2) as i64;
    (year + era * 400 + is_next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_date_is_read_with_its_offset_and_shown_in_utc() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-30T03:30:05Z", 1_796_009_405),
            ("2026-11-30T04:30:05+01:00", 1_796_009_405),
            ("2024-02-29T23:59:59Z", 1_709_251_199),
        ] {
            assert_eq!(Expiry::parse(text), Some(Expiry { seconds }), "{text}");
        }
        let shown = Expiry::parse("2026-11-30T04:30:05+01:00").unwrap();
        assert_eq!(shown.to_string(), "2026-11-30T03:30:05Z");
        for wrong in ["", "soon", "2026-11-30", "2026-11-30T03:30:05", "03:30:05"] {
            assert_eq!(Expiry::parse(wrong), None, "{wrong}");
        }
        assert!(Expiry { seconds: 1 }.is_past());
        assert!(!Expiry::after(Duration::from_mins(1)).is_past());
    }

    proptest! {
        #[test]
        fn an_expiry_parses_from_its_own_text(seconds in -62_135_596_800_i64..253_402_300_800) {
            let expiry = Expiry { seconds };
            let shown = expiry.to_string();
            prop_assert_eq!(Expiry::parse(&shown), Some(expiry), "{}", shown);
        }
    }
}
