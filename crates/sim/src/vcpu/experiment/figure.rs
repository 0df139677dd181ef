//! A number or a time.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use tailbound_units::Nanos;

/// A figure in the unit of what it is compared with. In TOML a number, or a time
/// as text (`"10ms"`), which counts in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure(pub f64);

struct NumberOrTime;

impl Visitor<'_> for NumberOrTime {
    type Value = Figure;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, or a time such as \"10ms\"")
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Figure, E> {
        if value.is_finite() {
            Ok(Figure(value))
        } else {
            Err(E::custom("not a number; write one"))
        }
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Figure, E> {
        Ok(Figure(value as f64))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Figure, E> {
        let time: Nanos = text.parse().map_err(E::custom)?;
        Ok(Figure(time.as_nanos() as f64))
    }
}

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrTime)
    }
}
