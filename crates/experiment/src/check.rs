//! What an experiment expects, and whether that can be judged at all.

use crate::figure::check_figure;
use crate::{ChartSpec, Curve, Figure, Mistakes, Name};
use serde::Deserialize;
use tailbound_report::Variant;
use toml::Spanned;

/// The name of the bound that follows from guarantees alone: what is promised.
pub const PROMISED: &str = "promised";
/// The name of the bound that network calculus finds.
pub const COMPUTED: &str = "computed";

/// An expectation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Stable name.
    pub name: Name,
    /// How the figure is computed.
    #[serde(default)]
    pub kind: CheckKind,
    /// Which figure: `SERIES.STATISTIC` or a value; for `distance` the chart.
    pub of: Name,
    /// The variants that are judged. Of several the one that is furthest from what is
    /// expected counts.
    #[serde(default)]
    pub at: Vec<Name>,
    /// The variants that are judged where one of `at` did not run; the first of them
    /// that did.
    #[serde(default)]
    pub instead: Vec<Name>,
    /// The variant to compare with; for `distance` the line of the paper.
    pub from: Option<Name>,
    /// The figure must be this or more,
    pub at_least: Option<Spanned<Figure>>,
    /// and this or less. One of the two, or both.
    pub at_most: Option<Spanned<Figure>>,
    /// The fewest samples in each variant, if that is more than the figure wants by itself: 30 for
    /// a mean, ten above a percentile. With fewer the check is NOT TESTED.
    pub samples: Option<Spanned<u64>>,
    /// The series whose events decide the figure, such as large answers that small ones queue
    /// behind. Many samples in few clusters are worth no more than the clusters: with fewer than 30 of
    /// these events in a variant the check is NOT TESTED.
    pub driven_by: Option<Spanned<String>>,
    /// Where the expectation comes from.
    pub source: String,
    /// Why it is known not to hold: then the verdict does not rest on it, and says so.
    pub misses: Option<String>,
}

/// How a check's figure is computed from `a`, the figure of the variant `from`, and
/// `b`, that of the variant that is judged. What is relative is a part of one: 0.4 is
/// 40 %.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// b alone.
    #[default]
    Value,
    /// b/a: how many times larger it is.
    Ratio,
    /// a/b: how many times lower it is.
    TimesLower,
    /// b - a: by how much it is larger.
    Difference,
    /// 1 - b/a: by which part it went down.
    Reduction,
    /// b/a - 1: by which part it went up.
    Increase,
    /// b over what the guarantees promise for the series: 1 and less keeps it.
    OfPromise,
    /// b over the bound that is computed for the series.
    OfBound,
    /// The largest distance of a chart's measured line from the paper's, over the
    /// points of the latter. Of several measured lines the first counts.
    Distance,
}

impl CheckKind {
    /// Whether a check of this kind needs a `from`.
    const fn compares(self) -> bool {
        !matches!(self, Self::Value | Self::OfPromise | Self::OfBound)
    }

    /// The name of the bound that a check of this kind divides by.
    pub(crate) const fn bound(self) -> Option<&'static str> {
        match self {
            Self::OfPromise => Some(PROMISED),
            Self::OfBound => Some(COMPUTED),
            _ => None,
        }
    }
}

impl Check {
    /// The bounds of the figure.
    pub(crate) fn bounds(&self) -> (f64, f64) {
        let bound = |figure: &Option<Spanned<Figure>>| figure.as_ref().map(|it| it.get_ref().0);
        (
            bound(&self.at_least).unwrap_or(f64::NEG_INFINITY),
            bound(&self.at_most).unwrap_or(f64::INFINITY),
        )
    }

    /// The series whose samples it rests on.
    pub(crate) fn series(&self) -> Option<&str> {
        self.of.get_ref().split_once('.').map(|(series, _)| series)
    }

    /// Whether it compares or judges a variant.
    pub(crate) fn names(&self, variant: &str) -> bool {
        let mut named = self.at.iter().chain(&self.instead).chain(&self.from);
        named.any(|name| name.get_ref() == variant)
    }

    /// Finds what is wrong with it in an experiment of these variants and charts.
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
                "has a `from`, but its kind compares nothing: give it another kind"
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
        if self
            .misses
            .as_ref()
            .is_some_and(|why| why.trim().is_empty())
        {
            mistakes.at(&self.name, "misses for no reason: say why, or leave it out");
        }
        if self.at_least.is_none() && self.at_most.is_none() {
            mistakes.at(&self.name, "needs at_least or at_most, or both");
        }
        let (low, high) = self.bounds();
        if low > high {
            mistakes.at(&self.name, "at_least is more than at_most: nothing is both");
        }
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
                let message = format!("has a point at {}, where nothing is measured", x.0);
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
