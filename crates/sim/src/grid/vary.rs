//! Varied keys of an experiment, and the replacement of their values.

use serde::Deserialize;
use std::ops::Range as Span;
use tailbound_experiment::Name;
use toml::{Spanned, Table, Value};

/// Largest number of values of a key.
const MAX_VALUES: usize = 100_000;

/// A varied key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Vary {
    /// Path of the key, with dots. In a list of tables it selects all (`point.occupancy`), or one
    /// by name (`point.silo-75.occupancy`).
    pub(super) key: Name,
    /// Values.
    #[serde(default)]
    values: Vec<Spanned<Value>>,
    /// Numbers instead of `values`.
    range: Option<Spanned<Range>>,
}

/// Numbers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    /// First number.
    from: f64,
    /// Upper limit.
    to: f64,
    /// Step.
    step: f64,
    /// Unit after each number: `KB`.
    unit: Option<String>,
}

impl Vary {
    /// Returns a contradiction in the table and its position.
    pub(super) fn mistake(&self) -> Option<(Span<usize>, String)> {
        let key = self.key.get_ref();
        let at_key = |why: String| Some((self.key.span(), why));
        match &self.range {
            Some(_) if !self.values.is_empty() => {
                at_key(format!("{key} has values and a range; leave one out"))
            }
            None if self.values.is_empty() => at_key(format!(
                "{key} has no values; write `values = [...]`, or a range"
            )),
            Some(range) if !range.get_ref().is_right() => Some((
                range.span(),
                format!("{key}: this is no range; forwards, in up to {MAX_VALUES} steps"),
            )),
            _ => None,
        }
    }

    /// Number of values.
    pub(super) fn count(&self) -> usize {
        let range = self.range.as_ref();
        range.map_or(self.values.len(), |range| range.get_ref().count())
    }

    /// Returns all values, and their positions.
    pub(super) fn all(&self) -> impl Iterator<Item = (Value, Span<usize>)> {
        (0..self.count()).map(|place| match &self.range {
            Some(range) => (range.get_ref().value(place), range.span()),
            None => (
                self.values[place].get_ref().clone(),
                self.values[place].span(),
            ),
        })
    }
}

impl Range {
    fn is_right(&self) -> bool {
        let finite = [self.from, self.to, self.step]
            .into_iter()
            .all(f64::is_finite);
        finite && self.step > 0.0 && self.to >= self.from && self.steps() < MAX_VALUES as f64
    }

    /// Number of steps; rounding does not lose the last one.
    fn steps(&self) -> f64 {
        ((self.to - self.from) / self.step + 1e-9).floor()
    }

    fn count(&self) -> usize {
        self.steps() as usize + 1
    }

    /// Returns a value of the range; an integer if all of the range is in integers.
    fn value(&self, step: usize) -> Value {
        let value = self.from + self.step * step as f64;
        // 0.30000000000000004 is 0.3.
        let value = (value * 1e9).round() / 1e9;
        let is_whole = |it: f64| it.fract().abs() < f64::EPSILON;
        match &self.unit {
            Some(unit) => Value::String(format!("{value}{unit}")),
            None if is_whole(self.from) && is_whole(self.step) => Value::Integer(value as i64),
            None => Value::Float(value),
        }
    }
}

/// Returns a value as people write it.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Replaces values in the text of an experiment, with keys as in a [`Scenario`].
///
/// [`Scenario`]: super::Scenario
///
/// # Errors
/// The text is no TOML, or a key does not exist.
pub fn changed<'v>(
    text: &str,
    values: impl IntoIterator<Item = (&'v String, &'v Value)>,
) -> Result<String, String> {
    let mut table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| error.to_string())?;
    for (path, value) in values {
        put(&mut table, path, value)?;
    }
    Ok(table.to_string())
}

/// Sets the value at `path`, keys separated by dots. In a list of tables, the path selects all or
/// the one whose name is the next key.
///
/// # Errors
/// The path does not exist.
pub(super) fn put(table: &mut Table, path: &str, value: &Value) -> Result<(), String> {
    let keys: Vec<&str> = path.split('.').collect();
    put_in(table, &keys, value)
}

fn put_in(table: &mut Table, keys: &[&str], value: &Value) -> Result<(), String> {
    let Some((key, rest)) = keys.split_first() else {
        return Err("it names no value".to_owned());
    };
    if rest.is_empty() {
        table.insert((*key).to_owned(), value.clone());
        return Ok(());
    }
    match table.get_mut(*key) {
        Some(Value::Table(inner)) => put_in(inner, rest, value),
        Some(Value::Array(items)) => put_in_items(key, items, rest, value),
        _ => Err(format!("the experiment has no table `{key}`")),
    }
}

fn put_in_items(
    list: &str,
    items: &mut [Value],
    keys: &[&str],
    value: &Value,
) -> Result<(), String> {
    let mut tables: Vec<&mut Table> = items.iter_mut().filter_map(Value::as_table_mut).collect();
    let is_named = |table: &Table| table.get("name").and_then(Value::as_str) == Some(keys[0]);
    let (keys, named) = match keys {
        [_, rest @ ..] if !rest.is_empty() && tables.iter().any(|table| is_named(table)) => {
            (rest, true)
        }
        _ => (keys, false),
    };
    tables.retain(|table| !named || is_named(table));
    if tables.is_empty() {
        return Err(format!("the experiment has no tables `[[{list}]]`"));
    }
    for table in tables {
        put_in(table, keys, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, path: &str, value: i64) -> Result<Table, String> {
        let values = [(&path.to_owned(), &Value::Integer(value))];
        changed(text, values).map(|text| text.parse().unwrap())
    }

    #[test]
    fn a_varied_value_applies_to_all_list_items_or_the_named_one() {
        let text = "a.b = 1\n[[p]]\nname = \"x\"\nv = 1\n[[p]]\nname = \"y\"\n";
        let all = with(text, "p.v", 2).unwrap();
        let values = |table: &Table| -> Vec<Option<i64>> {
            let items = table["p"].as_array().unwrap().iter();
            items
                .map(|item| item.get("v").and_then(Value::as_integer))
                .collect()
        };
        assert_eq!(values(&all), [Some(2), Some(2)]);
        assert_eq!(values(&with(text, "p.y.v", 2).unwrap()), [Some(1), Some(2)]);
        assert_eq!(
            with(text, "a.b", 2).unwrap()["a"]["b"].as_integer(),
            Some(2)
        );
        for path in ["q.v", "a.c.d", "p.z.v"] {
            assert!(with(text, path, 2).is_err(), "{path}");
        }
    }
}
