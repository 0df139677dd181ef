//! Decimal numbers with a unit, read exactly.

/// The reason why a text is not a quantity. The message contains the text and a correct example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no number at the start.
    #[error("{text:?} does not start with a number: write for example {example:?}")]
    Number {
        /// The text.
        text: String,
        /// A correct text.
        example: &'static str,
    },
    /// The unit is missing or unknown.
    #[error("{text:?} has {}: use one of {known}{}", unit_words(.unit), meant_words(.meant))]
    Unit {
        /// The text.
        text: String,
        /// The word in the place of the unit.
        unit: String,
        /// The known units, as they are printed.
        known: String,
        /// Possible meanings, each as a correct text.
        meant: Vec<String>,
    },
    /// The value has a fraction of the smallest unit.
    #[error("{text:?} is not a whole number of {smallest}")]
    Fraction {
        /// The text.
        text: String,
        /// The smallest unit, in words.
        smallest: &'static str,
    },
    /// The value does not fit in 64 bits.
    #[error("{text:?} is more than {max}, the largest value there is")]
    TooLarge {
        /// The text.
        text: String,
        /// The largest value, with its unit.
        max: String,
    },
}

fn unit_words(unit: &str) -> String {
    if unit.is_empty() {
        "no unit".to_owned()
    } else {
        format!("the unknown unit {unit:?}")
    }
}

fn meant_words(meant: &[String]) -> String {
    if meant.is_empty() {
        String::new()
    } else {
        format!("; did you mean {}?", meant.join(" or "))
    }
}

/// The text form of a quantity.
pub(crate) struct Form {
    /// Unit names and the number of smallest units in each, largest first. These names are printed.
    pub(crate) units: &'static [(&'static str, u64)],
    /// Spellings of other programs for these units, if unambiguous.
    pub(crate) spellings: &'static [(&'static str, u64)],
    /// Further spellings, in any case.
    pub(crate) any_case: &'static [(&'static str, u64)],
    /// Ambiguous spellings, which are refused. Each has its possible meanings: the factor to
    /// another unit, and that unit.
    pub(crate) doubtful: &'static [(&'static str, &'static [(u64, &'static str)])],
    pub(crate) smallest: &'static str,
    pub(crate) example: &'static str,
}

impl Form {
    /// Reads `number unit`, white space between them allowed. `0` needs no unit.
    pub(crate) fn parse(&self, text: &str) -> Result<u64, ParseError> {
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim();
        let bad_number = || ParseError::Number {
            text: text.to_owned(),
            example: self.example,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || (number.ends_with('.')) {
            return Err(bad_number());
        }
        let digits = |part: &str| part.chars().filter(|c| *c != '_').collect::<String>();
        let (whole, fraction) = (digits(whole), digits(fraction));
        if whole.is_empty() {
            return Err(bad_number());
        }
        let too_large = || ParseError::TooLarge {
            text: text.to_owned(),
            max: self.print(u64::MAX),
        };
        let scale = match self.scale(unit) {
            Some(scale) => scale,
            None if unit.is_empty() && whole.bytes().all(|b| b == b'0') && fraction.is_empty() => {
                return Ok(0);
            }
            None => {
                return Err(ParseError::Unit {
                    text: text.to_owned(),
                    unit: unit.to_owned(),
                    known: self.known(),
                    meant: self.meant(number, unit),
                });
            }
        };
        let whole: u64 = whole.parse().map_err(|_| too_large())?;
        let whole = whole.checked_mul(scale).ok_or_else(too_large)?;
        whole
            .checked_add(self.fraction(text, &fraction, scale)?)
            .ok_or_else(too_large)
    }

    /// `0.fraction` of `scale`, in the smallest unit; refused unless whole.
    fn fraction(&self, text: &str, fraction: &str, scale: u64) -> Result<u64, ParseError> {
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() {
            return Ok(0);
        }
        let not_whole = || ParseError::Fraction {
            text: text.to_owned(),
            smallest: self.smallest,
        };
        // A fraction with more digits than this cannot be whole in any unit.
        let power = u32::try_from(fraction.len()).map_err(|_| not_whole())?;
        let denominator = 10u128.checked_pow(power).ok_or_else(not_whole)?;
        let numerator: u128 = fraction.parse().map_err(|_| not_whole())?;
        let scaled = numerator
            .checked_mul(u128::from(scale))
            .ok_or_else(not_whole)?;
        if scaled % denominator != 0 {
            return Err(not_whole());
        }
        // A fraction of a 64-bit scale is below it.
        Ok((scaled / denominator) as u64)
    }

    /// The number of smallest units in a unit, for each of its spellings.
    fn scale(&self, unit: &str) -> Option<u64> {
        let mut exact = self.units.iter().chain(self.spellings);
        let mut any_case = self.any_case.iter();
        exact
            .find(|(name, _)| *name == unit)
            .or_else(|| any_case.find(|(name, _)| name.eq_ignore_ascii_case(unit)))
            .map(|(_, scale)| *scale)
    }

    /// The possible meanings of a number with an ambiguous unit.
    fn meant(&self, number: &str, unit: &str) -> Vec<String> {
        let doubtful = self.doubtful.iter().find(|(name, _)| *name == unit);
        let meanings = doubtful.map_or(&[][..], |(_, meanings)| meanings);
        let texts = meanings.iter().filter_map(|(factor, unit)| match factor {
            1 => Some(format!("{number}{unit}")),
            // A fraction is left to its writer.
            factor => {
                let number: u64 = number.parse().ok()?;
                Some(format!("{}{unit}", number.checked_mul(*factor)?))
            }
        });
        texts.collect()
    }

    fn known(&self) -> String {
        let names: Vec<_> = self.units.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }

    /// Prints `value` in the largest unit in which it needs at most three digits after the point,
    /// so that the output parses to the same value.
    pub(crate) fn print(&self, value: u64) -> String {
        for (name, scale) in self.units {
            if value < *scale {
                continue;
            }
            let (whole, rest) = (value / scale, value % scale);
            let thousandths = u128::from(rest) * 1000;
            if thousandths.is_multiple_of(u128::from(*scale)) {
                let digits = format!("{:03}", thousandths / u128::from(*scale));
                let digits = digits.trim_end_matches('0');
                return if digits.is_empty() {
                    format!("{whole}{name}")
                } else {
                    format!("{whole}.{digits}{name}")
                };
            }
        }
        let smallest = self.units.last().map_or("", |(name, _)| name);
        format!("{value}{smallest}")
    }
}

/// Implements `FromStr`, `Display` and serde for a newtype over `u64`.
macro_rules! quantity {
    ($name:ident, $form:expr) => {
        impl std::str::FromStr for $name {
            type Err = $crate::ParseError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $form.parse(text).map(Self)
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&$form.print(self.0))
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer
                    .deserialize_str($crate::parse::Text(&$form))
                    .map(Self)
            }
        }
    };
}

/// Reads a quantity from a document; the error of another type shows an example.
pub(crate) struct Text<'f>(pub(crate) &'f Form);

impl serde::de::Visitor<'_> for Text<'_> {
    type Value = u64;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "a text with a unit, such as {:?}",
            self.0.example
        )
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        self.0.parse(text).map_err(E::custom)
    }
}
pub(crate) use quantity;
