//! Charts of an experiment: figures of its variants over the varied quantity.

use crate::figure::check_figure;
use crate::{Figure, Mistakes, Name, figure_of};
use serde::Deserialize;
use tailbound_report::{Chart, ChartAxis, Line, LineStyle, Scale, Variant};

/// A chart over the varied quantity.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartSpec {
    /// Stable name.
    pub name: Name,
    /// Title, one line.
    pub title: String,
    /// Axis of the varied quantity.
    pub x: AxisSpec,
    /// Axis of the figures.
    pub y: AxisSpec,
    /// Figures (`SERIES.STATISTIC` or a value), each a line for each [`Curve`].
    pub of: Vec<Name>,
    /// The paper's results.
    #[serde(default)]
    pub paper: Vec<KnownLine>,
    /// Promised values.
    #[serde(default)]
    pub bound: Vec<KnownLine>,
    /// Note.
    pub note: Option<String>,
}

/// Share of a series' samples up to x.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CdfSpec {
    /// Stable name.
    pub name: Name,
    /// Title, one line.
    pub title: String,
    /// Axis of the samples; the unit is the series' by default.
    pub x: AxisSpec,
    /// Series.
    pub of: Name,
    /// Variants, a line each.
    pub at: Vec<Name>,
    /// The paper's results.
    #[serde(default)]
    pub paper: Vec<KnownLine>,
    /// Note.
    pub note: Option<String>,
}

/// Axis of a chart.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisSpec {
    /// Label.
    pub label: String,
    /// Unit of the figures; times are in `ns`.
    #[serde(default)]
    pub unit: String,
    /// Scale.
    #[serde(default)]
    pub scale: Scale,
}

/// A line of known points.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownLine {
    /// Name in the legend.
    pub name: Name,
    /// x and y; a time as text.
    pub points: Vec<(Figure, Figure)>,
}

/// Variants that differ in the varied quantity only: a line of a chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Curve {
    /// Name in the legend if there are several curves. A curve without a name has the name of its
    /// figure.
    pub name: String,
    /// Position of each variant on the x axis, and the variant's name.
    pub points: Vec<(f64, String)>,
}

impl ChartSpec {
    /// Adds the mistakes of the chart, in an experiment of these curves and variants.
    pub(crate) fn check(&self, curves: &[Curve], variants: &[Variant], mistakes: &mut Mistakes) {
        if self.of.is_empty() {
            mistakes.at(&self.name, "shows nothing: name figures in `of`");
        }
        for of in &self.of {
            check_figure(of, &[], variants, mistakes);
        }
        if curves.iter().all(|curve| curve.points.is_empty()) {
            mistakes.at(
                &self.name,
                "shows nothing: no variant has a place on the x axis",
            );
        }
    }

    /// Draws the chart from the variants that ran.
    pub(crate) fn draw(&self, curves: &[Curve], variants: &[Variant]) -> Chart {
        let mut lines = Vec::new();
        for of in &self.of {
            for curve in curves {
                let name = match (curves.len(), self.of.len()) {
                    _ if curve.name.is_empty() => of.get_ref().clone(),
                    (1, 1) => "measured".to_owned(),
                    (_, 1) => curve.name.clone(),
                    (1, _) => of.get_ref().clone(),
                    _ => format!("{} {}", curve.name, of.get_ref()),
                };
                let points = measured(curve, of.get_ref(), variants);
                if !points.is_empty() {
                    lines.push(Line::new(name, LineStyle::Measured, points));
                }
            }
        }
        lines.extend(self.paper.iter().map(|line| line.draw(LineStyle::Paper)));
        lines.extend(self.bound.iter().map(|line| line.draw(LineStyle::Bound)));
        Chart {
            name: self.name.get_ref().clone(),
            title: self.title.clone(),
            x: self.x.axis(),
            y: self.y.axis(),
            lines,
            note: self.note.clone(),
        }
    }
}

impl CdfSpec {
    /// Adds the mistakes of the chart, in an experiment of these variants.
    pub(crate) fn check(&self, variants: &[Variant], mistakes: &mut Mistakes) {
        if self.at.is_empty() {
            mistakes.at(&self.name, "shows nothing: name variants in `at`");
        }
        let series = variants.iter().flat_map(|variant| variant.series.keys());
        mistakes.known("series", &self.of, series.map(String::as_str));
        for name in &self.at {
            let known = variants.iter().map(|variant| variant.name.as_str());
            mistakes.known("variant", name, known);
        }
    }

    /// Draws the chart from the variants that ran: each at every percentile of its samples.
    pub(crate) fn draw(&self, variants: &[Variant]) -> Chart {
        let mut lines = Vec::new();
        for name in &self.at {
            let mut variants = variants.iter();
            let variant = variants.find(|variant| variant.name == *name.get_ref());
            let series = variant.and_then(|variant| variant.series.get(self.of.get_ref()));
            let samples = series.and_then(|series| series.stats.histogram().ok());
            let Some(samples) = samples.filter(|samples| !samples.is_empty()) else {
                continue;
            };
            let point = |percent: u32| {
                let share = f64::from(percent);
                (samples.value_at_quantile(share / 100.0) as f64, share)
            };
            lines.push(Line::new(
                name.get_ref(),
                LineStyle::Measured,
                (0..=100).map(point),
            ));
        }
        lines.extend(self.paper.iter().map(|line| line.draw(LineStyle::Paper)));
        Chart {
            name: self.name.get_ref().clone(),
            title: self.title.clone(),
            x: self.x.axis(),
            y: ChartAxis::linear("share of the samples", "%"),
            lines,
            note: self.note.clone(),
        }
    }
}

/// Returns a figure of the variants of a curve; a missing figure leaves a gap.
fn measured(curve: &Curve, of: &str, variants: &[Variant]) -> Vec<(f64, f64)> {
    let point = |(x, name): &(f64, String)| {
        let variant = variants.iter().find(|variant| variant.name == *name)?;
        let figure = figure_of(variant, of).map_or(f64::NAN, |figure| figure.value);
        Some((*x, figure))
    };
    curve.points.iter().filter_map(point).collect()
}

impl AxisSpec {
    fn axis(&self) -> ChartAxis {
        ChartAxis {
            label: self.label.clone(),
            unit: self.unit.clone(),
            scale: self.scale,
        }
    }
}

impl KnownLine {
    fn draw(&self, style: LineStyle) -> Line {
        let points = self.points.iter().map(|(x, y)| (x.0, y.0));
        Line::new(self.name.get_ref(), style, points)
    }
}
