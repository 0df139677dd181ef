//! Comparison of two runs.

use crate::results::{Results, Series, Variant, Verdict};
use crate::stats::Statistic;
use crate::text::{NOTHING, Paint, Table, human, one_line, plain, ratio};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Common and different parts of two runs. Serialized, this is the output of `tailbound report
/// compare --output json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The first run.
    pub a: Run,
    /// The second run.
    pub b: Run,
    /// Conditions that differ: read these before any ratio.
    pub conditions: Vec<ConditionPair>,
    /// Figures that both runs have, in the order of the first.
    pub figures: Vec<FigurePair>,
    /// Variants, series and values that only the first run has, as "VARIANT" or "VARIANT/NAME
    /// (UNIT)".
    pub only_a: Vec<String>,
    /// Variants, series and values that only the second run has.
    pub only_b: Vec<String>,
}

/// Identification of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// The caller's name of the run: its file.
    pub label: String,
    /// The experiment.
    pub experiment: String,
    /// Its outcome.
    pub verdict: Verdict,
}

/// A condition in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConditionPair {
    /// Its name.
    pub name: String,
    /// Value in the first run, if present.
    pub a: Option<serde_json::Value>,
    /// Value in the second run, if present.
    pub b: Option<serde_json::Value>,
}

/// A figure in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FigurePair {
    /// The variant.
    pub variant: String,
    /// The series or the value.
    pub name: String,
    /// The statistic of a series; `None` for a value.
    pub statistic: Option<&'static str>,
    /// The unit of both; empty for a count.
    pub unit: String,
    /// In the first run; `None` if it could not be computed.
    pub a: Option<f64>,
    /// In the second run; `None` if it could not be computed.
    pub b: Option<f64>,
    /// `b / a`; `None` if `a` is zero or if a figure is missing.
    pub ratio: Option<f64>,
}

impl Comparison {
    /// Compares two runs. The labels are their names in tables.
    pub fn new((a_label, a): (&str, &Results), (b_label, b): (&str, &Results)) -> Self {
        let run = |label: &str, results: &Results| Run {
            label: label.into(),
            experiment: results.experiment.clone(),
            verdict: results.verdict,
        };
        Self {
            a: run(a_label, a),
            b: run(b_label, b),
            conditions: different_conditions(a, b),
            figures: figures(a, b),
            only_a: only_in(a, b),
            only_b: only_in(b, a),
        }
    }

    /// Returns the comparison as text: different conditions first, then the parts that only one run
    /// has, then a table for each series and the values.
    pub fn text(&self, colour: bool) -> String {
        let paint = Paint(colour);
        let mut out = String::new();
        for (name, run) in [("A", &self.a), ("B", &self.b)] {
            // Writing to a String does not fail.
            let _ = writeln!(
                out,
                "{name}  {}  {}  {}",
                run.verdict,
                one_line(&run.experiment),
                one_line(&run.label)
            );
        }
        out.push('\n');
        if self.conditions.is_empty() {
            out += "The conditions are the same.\n";
        } else {
            let mut table = Table::new(&["different condition", "A", "B"], &[1, 2]);
            let shown = |value: &Option<_>| value.as_ref().map_or_else(|| NOTHING.into(), plain);
            for pair in &self.conditions {
                table.row([pair.name.clone(), shown(&pair.a), shown(&pair.b)]);
            }
            out += &table.render(paint);
        }
        for (name, only) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !only.is_empty() {
                let _ = writeln!(out, "\nOnly in {name}: {}", one_line(&only.join(", ")));
            }
        }
        for table in self.tables() {
            out.push('\n');
            out += &table.render(paint);
        }
        out
    }

    /// Returns one table for each series, with rows A, B and B/A for each variant, and one for the
    /// values.
    fn tables(&self) -> Vec<Table> {
        let of_series = |pair: &&FigurePair| pair.statistic.is_some();
        let names: BTreeSet<&str> = self
            .figures
            .iter()
            .filter(of_series)
            .map(|pair| pair.name.as_str())
            .collect();
        let mut tables: Vec<Table> = names
            .into_iter()
            .map(|name| self.series_table(name))
            .collect();
        let mut values = Table::new(&["value", "variant", "A", "B", "B/A"], &[1]);
        let mut any = false;
        for pair in self.figures.iter().filter(|pair| pair.statistic.is_none()) {
            any = true;
            let shown = |value: Option<f64>| human(value.unwrap_or(f64::NAN), &pair.unit);
            values.row([
                pair.name.clone(),
                pair.variant.clone(),
                shown(pair.a),
                shown(pair.b),
                ratio(pair.ratio),
            ]);
        }
        if any {
            tables.push(values);
        }
        tables
    }

    fn series_table(&self, name: &str) -> Table {
        let head: Vec<&str> = [name, "run"]
            .into_iter()
            .chain(Statistic::ALL.map(Statistic::label))
            .collect();
        let mut table = Table::new(&head, &[1]);
        let pairs: Vec<&FigurePair> = self
            .figures
            .iter()
            .filter(|pair| pair.name == name && pair.statistic.is_some())
            .collect();
        for of_variant in pairs.chunks(Statistic::ALL.len()) {
            let shown = |value: Option<f64>, pair: &FigurePair| {
                human(value.unwrap_or(f64::NAN), &pair.unit)
            };
            let line = |name: &str, run: &str, cell: &dyn Fn(&FigurePair) -> String| {
                [name.to_owned(), run.to_owned()]
                    .into_iter()
                    .chain(of_variant.iter().map(|pair| cell(pair)))
                    .collect::<Vec<_>>()
            };
            table.row(line(&of_variant[0].variant, "A", &|pair| {
                shown(pair.a, pair)
            }));
            table.row(line("", "B", &|pair| shown(pair.b, pair)));
            table.row(line("", "B/A", &|pair| ratio(pair.ratio)));
        }
        table
    }
}

fn different_conditions(a: &Results, b: &Results) -> Vec<ConditionPair> {
    let with_seed = |results: &Results| {
        let mut conditions = results.conditions.clone();
        conditions.insert("seed".into(), results.seed.into());
        conditions
    };
    let (of_a, of_b) = (with_seed(a), with_seed(b));
    let names: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    names
        .into_iter()
        .filter(|name| of_a.get(*name) != of_b.get(*name))
        .map(|name| ConditionPair {
            name: name.clone(),
            a: of_a.get(name).cloned(),
            b: of_b.get(name).cloned(),
        })
        .collect()
}

fn figures(a: &Results, b: &Results) -> Vec<FigurePair> {
    let mut figures = Vec::new();
    for in_a in &a.variants {
        let Some(in_b) = b.variant(&in_a.name) else {
            continue;
        };
        for (name, series) in &in_a.series {
            if let Some(other) = same_series(in_b, name, series) {
                figures.extend(series_pairs(&in_a.name, name, series, other));
            }
        }
        for (name, value) in &in_a.values {
            if let Some(other) = in_b
                .values
                .get(name)
                .filter(|other| other.unit == value.unit)
            {
                let (a, b) = (Some(value.value), Some(other.value));
                figures.push(pair(&in_a.name, name, None, &value.unit, a, b));
            }
        }
    }
    figures
}

/// Returns the series of that name, if its unit is the same: different units have no ratio.
fn same_series<'a>(variant: &'a Variant, name: &str, series: &Series) -> Option<&'a Series> {
    let other = variant.series.get(name)?;
    (other.unit == series.unit).then_some(other)
}

fn series_pairs<'a>(
    variant: &'a str,
    name: &'a str,
    a: &'a Series,
    b: &'a Series,
) -> impl Iterator<Item = FigurePair> + 'a {
    Statistic::ALL.into_iter().map(move |statistic| {
        let unit = match statistic {
            Statistic::Count => "",
            _ => a.unit.as_str(),
        };
        // Too few samples have no percentile; without samples only the count is a figure.
        let of = |series: &Series| {
            let there = statistic.is_carried_by(series.stats.count);
            there.then(|| series.stats.get(statistic) as f64)
        };
        pair(variant, name, Some(statistic.key()), unit, of(a), of(b))
    })
}

fn pair(
    variant: &str,
    name: &str,
    statistic: Option<&'static str>,
    unit: &str,
    a: Option<f64>,
    b: Option<f64>,
) -> FigurePair {
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    let (a, b) = (finite(a), finite(b));
    let ratio = a.zip(b).map(|(a, b)| b / a);
    FigurePair {
        variant: variant.into(),
        name: name.into(),
        statistic,
        unit: unit.into(),
        a,
        b,
        ratio: finite(ratio),
    }
}

/// Returns the names in `a` that `b` lacks, or has in another unit.
fn only_in(a: &Results, b: &Results) -> Vec<String> {
    let mut only = Vec::new();
    for in_a in &a.variants {
        let Some(in_b) = b.variant(&in_a.name) else {
            only.push(in_a.name.clone());
            continue;
        };
        let series = in_a
            .series
            .iter()
            .filter(|(name, series)| same_series(in_b, name, series).is_none())
            .map(|(name, series)| (name, &series.unit));
        let values = in_a
            .values
            .iter()
            .filter(|(name, value)| in_b.values.get(*name).is_none_or(|v| v.unit != value.unit))
            .map(|(name, value)| (name, &value.unit));
        for (name, unit) in series.chain(values) {
            only.push(format!("{}/{name} ({unit})", in_a.name));
        }
    }
    only
}
