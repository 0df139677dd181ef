//! The demand in the user's words: `8 KB within 1 ms at 99.99 %`.

use std::fmt;
use std::str::FromStr;
use tailbound_units::{Bytes, Nanos, ParseError};

/// A part of all messages, in thousand-millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

/// The whole, in the unit of [`Share`].
const WHOLE: u32 = 1_000_000_000;
/// A percent in the unit of [`Share`].
const PERCENT: u32 = WHOLE / 100;

impl Share {
    /// Returns the share as a number from 0 to 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// Reads a percentage such as `99.99`, exactly.
    fn from_percent(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > 7 {
            return None;
        }
        let whole: u32 = whole.parse().ok().filter(|percent| *percent <= 100)?;
        let fraction: u32 = format!("{fraction:0<7}").parse().ok()?;
        Some(Self(whole * PERCENT + fraction)).filter(|share| share.0 <= WHOLE)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:07}", self.0 % PERCENT);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{} %", self.0 / PERCENT),
            fraction => write!(f, "{}.{fraction} %", self.0 / PERCENT),
        }
    }
}

/// A demand on the latency of messages between the machines of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Largest message of the demand, without headers. Larger messages have no deadline, but use
    /// the guarantee as well.
    pub size: Bytes,
    /// Time from the sender's first byte until the receiver has the last one.
    pub within: Nanos,
    /// Part of the messages for which this holds.
    pub share: Share,
}

/// Reason why a text is no question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// A word is missing.
    #[error(
        "{text:?} is no question, `{missing}` is missing: write for example \"8 KB within 1 ms at \
         99.99 %\""
    )]
    Form {
        /// The text.
        text: String,
        /// The missing word.
        missing: &'static str,
    },
    /// The size or the time is wrong.
    #[error(transparent)]
    Quantity(#[from] ParseError),
    /// The size or the time is out of range.
    #[error("{what} of {got} is not between {least} and {most}")]
    Range {
        /// The quantity.
        what: &'static str,
        /// Its value.
        got: String,
        /// The least allowed.
        least: String,
        /// The most allowed.
        most: String,
    },
    /// The percentage is wrong.
    #[error(
        "{0:?} is not a percentage from 50 % to 99.99999 %: 100 % cannot follow from a recording"
    )]
    Share(String),
}

/// Largest size of a question.
const MAX_SIZE: Bytes = Bytes(1_000_000_000);
/// Longest time of a question.
const MAX_TIME: Nanos = Nanos::from_secs(60);

impl Question {
    /// Returns the part of the messages that may be late.
    pub fn late(self) -> f64 {
        f64::from(WHOLE - self.share.0) / f64::from(WHOLE)
    }
}

impl FromStr for Question {
    type Err = QuestionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let missing = |missing| QuestionError::Form {
            text: text.to_owned(),
            missing,
        };
        let (size, rest) = text.split_once("within").ok_or(missing("within"))?;
        let (within, share) = rest.split_once(" at ").ok_or(missing("at"))?;
        let question = Self {
            size: size.parse()?,
            within: within.parse()?,
            share: share_of(share)?,
        };
        check("a size", question.size, Bytes(1), MAX_SIZE)?;
        check("a time", question.within, Nanos(1), MAX_TIME)?;
        Ok(question)
    }
}

fn share_of(text: &str) -> Result<Share, QuestionError> {
    let wrong = || QuestionError::Share(text.trim().to_owned());
    let number = text.trim().strip_suffix('%').ok_or_else(wrong)?;
    let share = Share::from_percent(number.trim()).ok_or_else(wrong)?;
    let allowed = Share(50 * PERCENT)..=Share(WHOLE - PERCENT / 100_000);
    (allowed.contains(&share))
        .then_some(share)
        .ok_or_else(wrong)
}

fn check<T: Copy + PartialOrd + fmt::Display>(
    what: &'static str,
    got: T,
    least: T,
    most: T,
) -> Result<(), QuestionError> {
    if got >= least && got <= most {
        return Ok(());
    }
    Err(QuestionError::Range {
        what,
        got: got.to_string(),
        least: least.to_string(),
        most: most.to_string(),
    })
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} within {} at {}", self.size, self.within, self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_in_the_words_of_a_user() {
        let question: Question = "8 KB within 1 ms at 99.99 %".parse().unwrap();
        assert_eq!(question.size, Bytes(8_000));
        assert_eq!(question.within, Nanos::from_millis(1));
        assert!((question.late() - 1e-4).abs() < 1e-12, "{question:?}");
        assert_eq!(question.to_string(), "8KB within 1ms at 99.99 %");
        let again: Question = question.to_string().parse().unwrap();
        assert_eq!(again, question);
        assert!("1KiB within 500us at 99%".parse::<Question>().is_ok());
    }

    #[test]
    fn a_wrong_question_is_refused_with_a_right_one() {
        for (text, reason) in [
            ("", "`within` is missing"),
            ("8 KB in 1 ms at 99 %", "`within` is missing"),
            ("8 KB within 1 ms", "`at` is missing"),
            ("8 within 1 ms at 99 %", "no unit"),
            ("8 KB within 1 at 99 %", "no unit"),
            ("0 B within 1 ms at 99 %", "a size of 0B"),
            ("8 KB within 5min at 99 %", "a time of 300s"),
            ("8 KB within 1 ms at 99", "\"99\" is not a percentage"),
            ("8 KB within 1 ms at 100 %", "100 % cannot follow"),
            ("8 KB within 1 ms at 99.999999999 %", "is not a percentage"),
            ("8 KB within 1 ms at 9 %", "from 50 %"),
            ("8 KB within 1 ms at -99 %", "is not a percentage"),
        ] {
            let error = text.parse::<Question>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
