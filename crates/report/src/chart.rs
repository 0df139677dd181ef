//! A chart: figures of a run over the varied quantity, beside the paper's results and the promised
//! values.
//!
//! Distributions of one series have their own pictures ([`crate::View`]); a chart is for everything
//! else, and its points are in the result file.

use serde::{Deserialize, Deserializer, Serialize};

/// A chart of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Stable name: an interface.
    pub name: String,
    /// Title in one line.
    pub title: String,
    /// Varied quantity.
    pub x: ChartAxis,
    /// Figures.
    pub y: ChartAxis,
    /// The lines, measured ones first.
    pub lines: Vec<Line>,
    /// A note for readers, for example the source of the paper's points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One of the two axes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChartAxis {
    /// Label of the axis.
    pub label: String,
    /// Unit of its figures as in [`crate::Value`]: "ns", "%"; may be empty.
    pub unit: String,
    /// Scale of the axis.
    #[serde(default)]
    pub scale: Scale,
}

impl ChartAxis {
    /// Returns a linear axis.
    pub fn linear(label: &str, unit: &str) -> Self {
        Self {
            label: label.into(),
            unit: unit.into(),
            scale: Scale::Linear,
        }
    }

    /// Returns an axis on which every decade has the same length.
    pub fn log(label: &str, unit: &str) -> Self {
        Self {
            scale: Scale::Log,
            ..Self::linear(label, unit)
        }
    }
}

/// Scale of an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Linear. The axis begins at zero unless that would hide the differences.
    #[default]
    Linear,
    /// Logarithmic. Points that are not above zero are left out.
    Log,
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Source of its points.
    pub style: LineStyle,
    /// Its points, in order of x.
    pub points: Vec<Point>,
}

impl Line {
    /// Returns a line of points x, y.
    pub fn new(
        name: impl Into<String>,
        style: LineStyle,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self {
            name: name.into(),
            style,
            points: points.into_iter().map(|(x, y)| Point(x, y)).collect(),
        }
    }
}

/// Source of a line's points, which decides its appearance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineStyle {
    /// Measured in this run: a line in colour with full marks.
    Measured,
    /// Result of the paper: dashed with hollow marks. The first such line has the colour of the
    /// first measured one, and so on.
    Paper,
    /// An edge of the band that contains the true values of the measured line before it: thin, in
    /// its colour, without marks, and not in the legend.
    Band,
    /// Promised value: dotted, without colour or marks.
    Bound,
}

/// A point: x, y. A figure that could not be computed is not a number, `null` in the file, and
/// leaves a gap in its line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point(
    /// On the x axis, in its unit.
    #[serde(deserialize_with = "null_is_nan")]
    pub f64,
    /// On the y axis, in its unit.
    #[serde(deserialize_with = "null_is_nan")]
    pub f64,
);

/// Reads a figure; `null` in the file is a figure that could not be computed.
pub(crate) fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
