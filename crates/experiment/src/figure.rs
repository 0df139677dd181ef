//! Figures of checks and charts.

use crate::{Mistakes, Name};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use tailbound_report::{Statistic, Value, Variant};
use tailbound_units::Nanos;

/// A figure in the unit of the value that it is compared with. In TOML a number, or a time as text
/// (`"10ms"`), which counts in nanoseconds.
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

/// Returns the figure `of` of a variant: `SERIES.STATISTIC` or the name of a value; `None` if the
/// variant lacks the figure, or if it could not be computed.
pub fn figure_of(variant: &Variant, of: &str) -> Option<Value> {
    let Some((series, statistic)) = of.split_once('.') else {
        let value = variant.values.get(of).filter(|it| it.value.is_finite())?;
        return Some(Value::new(&value.unit, value.value));
    };
    let series = variant.series.get(series)?;
    let figure = |statistic| series.stats.get(statistic) as f64;
    match Statistic::of_key(statistic)? {
        Statistic::Count => Some(Value::new("", figure(Statistic::Count))),
        statistic if series.stats.count > 0 => Some(Value::new(&series.unit, figure(statistic))),
        _ => None,
    }
}

/// Checks that each of the `named` variants has the figure `of`; `all` are the existing variants,
/// for the list of known words.
pub(crate) fn check_figure(
    of: &Name,
    named: &[&Variant],
    all: &[Variant],
    mistakes: &mut Mistakes,
) {
    let (what, word) = match of.get_ref().split_once('.') {
        Some((series, statistic)) => {
            let keys = Statistic::ALL.map(Statistic::key);
            mistakes.known_word("statistic", statistic, of, keys);
            ("series", series)
        }
        None => ("value", of.get_ref().as_str()),
    };
    let has = |variant: &Variant| match what {
        "series" => variant.series.contains_key(word),
        _ => variant.values.contains_key(word),
    };
    let of_variant = |variant: &'_ Variant| -> Vec<String> {
        match what {
            "series" => variant.series.keys().cloned().collect(),
            _ => variant.values.keys().cloned().collect(),
        }
    };
    let known: Vec<String> = all.iter().flat_map(of_variant).collect();
    if !mistakes.known_word(what, word, of, known.iter().map(String::as_str)) {
        return;
    }
    for variant in named.iter().filter(|variant| !has(variant)) {
        let message = format!("variant {:?} has no {what} {word:?}", variant.name);
        mistakes.at(of, message);
    }
}
