//! The number of bursts that a sender may have under way into one part of a network.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// The word for [`Bursts::PerReceiver`] in files, requests and arguments.
const PER_RECEIVER: &str = "per-receiver";
/// The largest K: with more receivers below one switch, each has a burst of its own.
const MAX: u32 = 1_000_000;

/// K, the number of bursts S that a machine may send without a pause into one subtree of the
/// network: into one host, one rack or one pod, or out of its own.
///
/// Text and documents have the number, or `per-receiver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bursts {
    /// One burst for each receiver, however many are in a subtree.
    PerReceiver,
    /// This many bursts for each subtree; at least 1. A receiver still gets at most one.
    PerSubtree(u32),
}

impl Bursts {
    /// One burst for each subtree.
    pub const ONE: Self = Self::PerSubtree(1);

    /// Returns whether a subtree has a limit of its own.
    pub const fn is_per_subtree(self) -> bool {
        matches!(self, Self::PerSubtree(_))
    }

    /// Returns the number of bursts of one sender into a subtree with `receivers` machines.
    pub const fn into_subtree(self, receivers: u64) -> u64 {
        match self {
            Self::PerSubtree(most) if (most as u64) < receivers => most as u64,
            Self::PerSubtree(_) | Self::PerReceiver => receivers,
        }
    }
}

/// Reason why a text is no number of bursts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no number of bursts: write a number from 1 to {MAX}, or {PER_RECEIVER:?}")]
pub struct BurstsError {
    text: String,
}

impl FromStr for Bursts {
    type Err = BurstsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == PER_RECEIVER {
            return Ok(Self::PerReceiver);
        }
        let number = text.parse().ok().filter(|number| is_valid(*number));
        let number = number.ok_or_else(|| BurstsError {
            text: text.to_owned(),
        })?;
        Ok(Self::PerSubtree(number as u32))
    }
}

const fn is_valid(number: u64) -> bool {
    number >= 1 && number <= MAX as u64
}

impl fmt::Display for Bursts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerReceiver => formatter.pad(PER_RECEIVER),
            Self::PerSubtree(number) => number.fmt(formatter),
        }
    }
}

impl Serialize for Bursts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::PerReceiver => serializer.serialize_str(PER_RECEIVER),
            Self::PerSubtree(number) => serializer.serialize_u32(*number),
        }
    }
}

impl<'de> Deserialize<'de> for Bursts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrWord)
    }
}

struct NumberOrWord;

impl de::Visitor<'_> for NumberOrWord {
    type Value = Bursts;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a number from 1 to {MAX}, or {PER_RECEIVER:?}")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Bursts, E> {
        if !is_valid(number) {
            return Err(E::invalid_value(de::Unexpected::Unsigned(number), &self));
        }
        Ok(Bursts::PerSubtree(number as u32))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Bursts, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Bursts, E> {
        if text != PER_RECEIVER {
            return Err(E::invalid_value(de::Unexpected::Str(text), &self));
        }
        Ok(Bursts::PerReceiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        bursts: Bursts,
    }

    #[test]
    fn bursts_round_trip_as_a_number_or_per_receiver() {
        for (text, bursts) in [
            ("1", Bursts::ONE),
            ("1000000", Bursts::PerSubtree(1_000_000)),
            ("per-receiver", Bursts::PerReceiver),
        ] {
            assert_eq!(text.parse(), Ok(bursts));
            assert_eq!(bursts.to_string(), text);
            let written = toml::to_string(&File { bursts }).unwrap();
            assert_eq!(toml::from_str(&written), Ok(File { bursts }));
        }
        for text in ["0", "-1", "1000001", "each", "1.5", ""] {
            let error = text.parse::<Bursts>().unwrap_err().to_string();
            assert!(error.ends_with("a number from 1 to 1000000, or \"per-receiver\""));
            assert!(toml::from_str::<File>(&format!("bursts = {text}")).is_err());
            let quoted = toml::from_str::<File>(&format!("bursts = {text:?}"));
            assert!(quoted.is_err(), "a number is no text");
        }
    }

    #[test]
    fn a_subtree_has_no_more_bursts_than_receivers() {
        let counts = |bursts: Bursts| [1, 2, 5].map(|receivers| bursts.into_subtree(receivers));
        assert_eq!(counts(Bursts::PerReceiver), [1, 2, 5]);
        assert_eq!(counts(Bursts::ONE), [1, 1, 1]);
        assert_eq!(counts(Bursts::PerSubtree(3)), [1, 2, 3]);
    }
}
