//! A run as text for a terminal.

use crate::results::{Results, Series, Variant, Verdict};
use crate::stats::{Statistic, Stats};
use crate::text::{NOTHING, Paint, Table, human, one_line};
use std::collections::BTreeSet;
use std::fmt::Write as _;

impl Verdict {
    /// Returns its word in its colour.
    pub(crate) fn painted(self, paint: Paint) -> String {
        let word = self.to_string();
        match self {
            Self::Pass => paint.good(&word),
            Self::Fail => paint.bad(&word),
            Self::Noisy | Self::NotTested => paint.doubtful(&word),
        }
    }
}

impl Results {
    /// Returns the run as text: the verdict and its reason, the checks, a table for each series,
    /// the values. `colour` adds ANSI colours.
    pub fn summary(&self, colour: bool) -> String {
        let paint = Paint(colour);
        let mut out = String::new();
        let verdict = self.verdict.painted(paint);
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "{verdict}  {}: {}",
            one_line(&self.experiment),
            one_line(&self.verdict_reason)
        );
        if let Some(made) = &self.made {
            let _ = writeln!(out, "made  {}", one_line(&made.words()));
        }
        let mut blocks = Vec::new();
        if !self.checks.is_empty() {
            blocks.push(self.checks_table().render(paint));
        }
        for name in self.series_names() {
            blocks.push(self.series_table(name).render(paint));
            if let Some(table) = self.noise_table(name) {
                blocks.push(table.render(paint));
            }
            if self.has_bounds(name) {
                blocks.push(self.bounds_table(name).render(paint));
            }
        }
        if !self.value_names().is_empty() {
            blocks.push(self.values_table().render(paint));
        }
        for block in blocks {
            out.push('\n');
            out += &block;
        }
        out
    }

    fn checks_table(&self) -> Table {
        let mut table = Table::new(&["check", "want", "got", "result", "source"], &[1, 3, 4]);
        let mut said = BTreeSet::new();
        for check in &self.checks {
            let got = check
                .got
                .map_or_else(|| NOTHING.into(), |got| human(got, ""));
            let source = match check.remark() {
                Some(note) if !said.insert(note) => format!("{} (as above)", check.source),
                Some(note) => format!("{} ({note})", check.source),
                None => check.source.clone(),
            };
            let outcome = check.outcome().to_string();
            table.row([&check.name, &check.want, &got, &outcome, &source]);
        }
        table
    }

    fn series_table(&self, name: &str) -> Table {
        let head: Vec<&str> = [name]
            .into_iter()
            .chain(Statistic::ALL.map(Statistic::label))
            .chain(["unanswered", "unexplained"])
            .collect();
        let mut table = Table::new(&head, &[]);
        for variant in &self.variants {
            let Some(series) = variant.series.get(name) else {
                table.remark(&variant.name, &missing(variant));
                continue;
            };
            table.row(
                [variant.name.clone()]
                    .into_iter()
                    .chain(figures(&series.stats, &series.unit))
                    .chain([
                        series.unanswered.to_string(),
                        series.unexplained.to_string(),
                    ]),
            );
            let Some(spread) = &series.spread else {
                continue;
            };
            for (label, end) in [("  least", 0), ("  greatest", 1)] {
                let cell = |statistic: Statistic| match spread.get(statistic.key()) {
                    Some(ends) => figure(ends[end], statistic, &series.unit),
                    None => NOTHING.into(),
                };
                table.row(
                    [label.to_owned()]
                        .into_iter()
                        .chain(Statistic::ALL.map(cell)),
                );
            }
        }
        table
    }

    /// Returns the same series with the disturbed samples; `None` if there are none.
    fn noise_table(&self, name: &str) -> Option<Table> {
        let hit: Vec<(&Variant, &Series)> = self
            .variants
            .iter()
            .filter_map(|variant| Some((variant, variant.series.get(name)?)))
            .filter(|(_, series)| series.hit.total() > 0)
            .collect();
        if hit.is_empty() {
            return None;
        }
        let title = format!("{name}, disturbed included");
        let head: Vec<&str> = [title.as_str()]
            .into_iter()
            .chain(Statistic::ALL.map(Statistic::label))
            .chain(["disturbed: ours", "hypervisor"])
            .collect();
        let mut table = Table::new(&head, &[]);
        for (variant, series) in hit {
            table.row(
                [variant.name.clone()]
                    .into_iter()
                    .chain(figures(&series.all, &series.unit))
                    .chain([series.hit.ours.to_string(), series.hit.stolen.to_string()]),
            );
        }
        Some(table)
    }

    /// Returns the bounds of a series, and the share of samples above them.
    fn bounds_table(&self, name: &str) -> Table {
        let title = format!("{name}, bounds");
        let mut table = Table::new(&[&title, "bound", "at", "p99.9", "samples above"], &[1]);
        for row in self.bound_rows(name) {
            table.row(row);
        }
        table
    }

    /// Returns a row of text for each bound of a series: variant, bound, its figure, the 99.9th
    /// percentile beside it, and the share of samples above.
    pub(crate) fn bound_rows(&self, name: &str) -> Vec<[String; 5]> {
        let mut rows = Vec::new();
        for variant in &self.variants {
            let bounds = variant.bounds.get(name).into_iter().flatten();
            for bound in bounds {
                let series = variant.series.get(name);
                let unit = series.map_or("ns", |series| series.unit.as_str());
                let tail = series.map_or_else(
                    || NOTHING.into(),
                    |series| carried(&series.stats, Statistic::P999, unit),
                );
                let above = series.and_then(|series| series.stats.share_above(bound.value));
                rows.push([
                    variant.name.clone(),
                    bound.name.clone(),
                    human(bound.value as f64, unit),
                    tail,
                    above.map_or_else(|| NOTHING.into(), |share| human(share * 100.0, "%")),
                ]);
            }
        }
        rows
    }

    fn values_table(&self) -> Table {
        let names = self.value_names();
        let head: Vec<&str> = ["value"].into_iter().chain(names.iter().copied()).collect();
        let mut table = Table::new(&head, &[]);
        for variant in &self.variants {
            if variant.values.is_empty() {
                table.remark(&variant.name, &missing(variant));
                continue;
            }
            let cell = |name: &&str| {
                variant
                    .values
                    .get(*name)
                    .map_or_else(|| NOTHING.into(), |value| human(value.value, &value.unit))
            };
            table.row(
                [variant.name.clone()]
                    .into_iter()
                    .chain(names.iter().map(cell)),
            );
        }
        table
    }
}

/// Returns the text of a table for a variant without figures.
pub(crate) fn missing(variant: &Variant) -> String {
    match &variant.unavailable {
        Some(why) => format!("not available: {why}"),
        None => NOTHING.into(),
    }
}

/// Returns the figures of `stats` in the order of [`Statistic::ALL`].
pub(crate) fn figures(stats: &Stats, unit: &str) -> [String; 7] {
    Statistic::ALL.map(|statistic| carried(stats, statistic, unit))
}

/// Returns one figure with its unit, or [`NOTHING`] if there are too few samples for it.
pub(crate) fn carried(stats: &Stats, statistic: Statistic, unit: &str) -> String {
    if statistic.is_carried_by(stats.count) {
        figure(stats.get(statistic), statistic, unit)
    } else {
        NOTHING.into()
    }
}

/// Returns one figure with its unit; a count has none.
pub(crate) fn figure(value: u64, statistic: Statistic, unit: &str) -> String {
    match statistic {
        Statistic::Count => value.to_string(),
        _ => human(value as f64, unit),
    }
}
