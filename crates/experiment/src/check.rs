//! Checks of an experiment: expectations, and their validation before a run.

use crate::figure::check_figure;
use crate::{ChartSpec, Citation, Curve, Figure, Miss, Mistakes, Name};
use serde::Deserialize;
use tailbound_report::Variant;
use toml::Spanned;

/// The name of the promised bound, which follows from guarantees alone.
pub const PROMISED: &str = "promised";
/// The name of the bound that network calculus computes.
pub const COMPUTED: &str = "computed";

/// An expectation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Stable name.
    pub name: Name,
    /// Computation.
    #[serde(default)]
    pub kind: CheckKind,
    /// Figure (`SERIES.STATISTIC` or a value); for `distance` the chart.
    pub of: Name,
    /// Judged variants; the one farthest from the expected range counts.
    #[serde(default)]
    pub at: Vec<Name>,
    /// Replacements for variants of `at` that did not run; the first that ran counts.
    #[serde(default)]
    pub instead: Vec<Name>,
    /// Variant to compare with; for `distance` the paper's line.
    pub from: Option<Name>,
    /// Lower limit of the figure.
    pub at_least: Option<Spanned<Figure>>,
    /// Upper limit. One limit is required.
    pub at_most: Option<Spanned<Figure>>,
    /// Fewest samples per variant, if above the statistic's minimum. With fewer the check is NOT
    /// TESTED.
    pub samples: Option<Spanned<u64>>,
    /// Series whose events decide the figure; fewer than 30 are NOT TESTED.
    pub driven_by: Option<Spanned<String>>,
    /// Source. A figure of the paper requires both limits, which enclose it.
    pub source: Citation,
    /// Known miss: the verdict does not count it while the figure is in the known range.
    pub misses: Option<Miss>,
}

/// Computation of a check's figure from `a`, the figure of the variant `from`, and `b`, the figure
/// of the judged variant. Relative figures are fractions: 0.4 is 40 %.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// b alone.
    #[default]
    Value,
    /// b/a, the factor by which b is larger.
    Ratio,
    /// a/b, the factor by which b is lower.
    TimesLower,
    /// b - a, the difference.
    Difference,
    /// 1 - b/a, the relative reduction.
    Reduction,
    /// b/a - 1, the relative increase.
    Increase,
    /// b relative to the promised bound of the series: at most 1 keeps the promise.
    OfPromise,
    /// b relative to the computed bound of the series.
    OfBound,
    /// The largest distance of a chart's measured line from the paper's line, over the points of
    /// the latter. If there are several measured lines, the first counts.
    Distance,
}

impl CheckKind {
    /// Returns whether a check of this kind needs a `from`.
    const fn compares(self) -> bool {
        !matches!(self, Self::Value | Self::OfPromise | Self::OfBound)
    }

    /// Returns the name of the bound that a check of this kind divides by.
    pub(crate) const fn bound(self) -> Option<&'static str> {
        match self {
            Self::OfPromise => Some(PROMISED),
            Self::OfBound => Some(COMPUTED),
            _ => None,
        }
    }
}

impl Check {
    /// Returns the bounds of the figure.
    pub(crate) fn bounds(&self) -> (f64, f64) {
        let bound = |figure: &Option<Spanned<Figure>>| figure.as_ref().map(|it| it.get_ref().0);
        (
            bound(&self.at_least).unwrap_or(f64::NEG_INFINITY),
            bound(&self.at_most).unwrap_or(f64::INFINITY),
        )
    }

    /// Returns the series of the figure's samples.
    pub(crate) fn series(&self) -> Option<&str> {
        self.of.get_ref().split_once('.').map(|(series, _)| series)
    }

    /// Returns whether the check compares or judges a variant.
    pub(crate) fn names(&self, variant: &str) -> bool {
        let mut named = self.at.iter().chain(&self.instead).chain(&self.from);
        named.any(|name| name.get_ref() == variant)
    }

    /// Adds the mistakes of the check, in an experiment of these variants and charts.
    pub(crate) fn check(
        &self,
        variants: &[Variant],
        (charts, curves): (&[ChartSpec], &[Curve]),
        mistakes: &mut Mistakes,
    ) {
        self.check_bounds(mistakes);
        if let Some(samples) = self.samples.as_ref().filter(|_| self.series().is_none()) {
            let of = self.of.get_ref();
            let message =
                format!("samples: {of} is a single value; leave it out, or name a series");
            mistakes.at_span(samples.span(), message);
        }
        if let Some(driver) = &self.driven_by {
            let series = variants.iter().flat_map(|variant| variant.series.keys());
            mistakes.known("series", driver, series.map(String::as_str));
        }
        if self.kind.compares() != self.from.is_some() {
            let message = if self.kind.compares() {
                "needs a `from` to compare with"
            } else {
                "has a `from`, but its kind compares nothing: use another kind"
            };
            return mistakes.at(&self.name, message);
        }
        if self.kind == CheckKind::Distance {
            return self.check_distance(charts, curves, mistakes);
        }
        if self.at.is_empty() {
            mistakes.at(&self.name, "judges no variant: name some in `at`");
        }
        let mut named = Vec::new();
        for name in self.at.iter().chain(&self.instead).chain(&self.from) {
            let known = variants.iter().map(|variant| variant.name.as_str());
            if mistakes.known("variant", name, known) {
                let mut variants = variants.iter();
                named.extend(variants.find(|variant| variant.name == *name.get_ref()));
            }
        }
        check_figure(&self.of, &named, variants, mistakes);
        if let Some(bound) = self.kind.bound() {
            self.check_bound(bound, &named, mistakes);
        }
    }

    fn check_bounds(&self, mistakes: &mut Mistakes) {
        if self.at_least.is_none() && self.at_most.is_none() {
            mistakes.at(&self.name, "needs at_least or at_most, or both");
        }
        let (low, high) = self.bounds();
        if low > high {
            mistakes.at(&self.name, "at_least is more than at_most: nothing is both");
        }
        self.check_miss(mistakes);
        self.check_paper(mistakes);
        let bounds = [("at_least", &self.at_least), ("at_most", &self.at_most)];
        for (key, bound) in bounds {
            let Some(bound) = bound else { continue };
            let figure = bound.get_ref().0;
            if self.kind == CheckKind::Reduction && figure > 1.0 {
                let message = format!(
                    "{key} {figure}: a reduction is a fraction, 1 at most; write {} for {figure} %",
                    figure / 100.0
                );
                mistakes.at_span(bound.span(), message);
            }
        }
    }

    /// Adds the mistakes of the known miss: no cause, or a range that is none or misses nothing.
    fn check_miss(&self, mistakes: &mut Mistakes) {
        let Some(Miss { known, cause }) = &self.misses else {
            return;
        };
        if cause.trim().is_empty() {
            mistakes.at(
                &self.name,
                "misses without a cause: write one, or leave the key out",
            );
        }
        let (low, high) = self.bounds();
        let [from, to] = known.map(|figure| figure.0);
        if from > to {
            mistakes.at(&self.name, "known = [a, b]: a is more than b");
        } else if low <= from && to <= high {
            mistakes.at(
                &self.name,
                "the known range is within the limits: leave misses out",
            );
        }
    }

    /// Adds the mistakes of a paper's figure: a limit is missing, or excludes the figure.
    fn check_paper(&self, mistakes: &mut Mistakes) {
        let Some(paper) = self.source.paper else {
            return;
        };
        if self.at_least.is_none() || self.at_most.is_none() {
            mistakes.at(
                &self.name,
                "has the paper's figure, so it needs at_least and at_most",
            );
        }
        let ((low, high), [from, to]) = (self.bounds(), paper.range());
        if from > to {
            mistakes.at(&self.name, "paper = [a, b]: a is more than b");
        } else if from < low || high < to {
            mistakes.at(&self.name, "the paper's figure is outside the limits");
        }
    }

    fn check_distance(&self, charts: &[ChartSpec], curves: &[Curve], mistakes: &mut Mistakes) {
        let names = charts.iter().map(|chart| chart.name.get_ref().as_str());
        if !mistakes.known("chart", &self.of, names) {
            return;
        }
        let mut charts = charts.iter();
        let chart = charts.find(|chart| chart.name.get_ref() == self.of.get_ref());
        let lines = chart.map_or(&[][..], |chart| &chart.paper);
        let names = lines.iter().map(|line| line.name.get_ref().as_str());
        let Some(from) = &self.from else { return };
        if !mistakes.known("line of the paper", from, names) {
            return;
        }
        let paper = lines
            .iter()
            .filter(|line| line.name.get_ref() == from.get_ref());
        let is_measured = |x: f64| {
            let mut measured = curves.iter().flat_map(|curve| &curve.points);
            measured.any(|(at, _)| at.total_cmp(&x).is_eq())
        };
        for (x, _) in paper.flat_map(|line| &line.points) {
            if !is_measured(x.0) {
                let message = format!("has a point at {}, outside the measured range", x.0);
                mistakes.at(from, message);
            }
        }
    }

    fn check_bound(&self, name: &str, named: &[&Variant], mistakes: &mut Mistakes) {
        let series = self.series().unwrap_or_default();
        for variant in named {
            let mut bounds = variant.bounds.get(series).into_iter().flatten();
            if !bounds.any(|bound| bound.name == name) {
                let message = format!("variant {:?} has nothing {name} for it", variant.name);
                mistakes.at(&self.of, message);
            }
        }
    }
}
