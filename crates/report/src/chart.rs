//! A chart: figures of a run over what was varied, and beside them what the
//! paper says and what was promised.
//!
//! Distributions of one series draw themselves ([`crate::View`]); a chart is for
//! everything else, and its points are in the result file.

use serde::{Deserialize, Deserializer, Serialize};

/// A chart of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Stable name: an interface.
    pub name: String,
    /// What it shows, in one line.
    pub title: String,
    /// What was varied.
    pub x: ChartAxis,
    /// What came of it.
    pub y: ChartAxis,
    /// The lines, those that were measured first.
    pub lines: Vec<Line>,
    /// What a reader must know, such as where the paper's points are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One of the two axes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChartAxis {
    /// What stands on it.
    pub label: String,
    /// The unit of its figures as in [`crate::Value`]: "ns", "%"; may be empty.
    pub unit: String,
    /// How figures are spread over it.
    #[serde(default)]
    pub scale: Scale,
}

impl ChartAxis {
    /// An axis in proportion.
    pub fn linear(label: &str, unit: &str) -> Self {
        Self {
            label: label.into(),
            unit: unit.into(),
            scale: Scale::Linear,
        }
    }

    /// An axis on which every decade has the same room.
    pub fn log(label: &str, unit: &str) -> Self {
        Self {
            scale: Scale::Log,
            ..Self::linear(label, unit)
        }
    }
}

/// How figures are spread over an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// In proportion. The axis begins at zero unless that would hide what there is.
    #[default]
    Linear,
    /// By their logarithm. Points that are not above zero are left out.
    Log,
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What the legend calls it.
    pub name: String,
    /// Where its points come from.
    pub style: LineStyle,
    /// Its points, in order of x.
    pub points: Vec<Point>,
}

impl Line {
    /// A line of points x, y.
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

/// Where the points of a line come from, and so how it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineStyle {
    /// Measured in this run: a line in colour with full marks.
    Measured,
    /// What the paper says: dashed with hollow marks. The first such line has the
    /// colour of the first that was measured, and so on.
    Paper,
    /// An edge of the band in which the measured line before it truly is: thin, in its colour,
    /// without marks, and not in the legend.
    Band,
    /// What was promised: dotted, without colour or marks.
    Bound,
}

/// A point: x, y. A figure that could not be computed is not a number, `null` in
/// the file, and leaves a gap in its line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point(
    /// On the x axis, in its unit.
    #[serde(deserialize_with = "null_is_nan")]
    pub f64,
    /// On the y axis, in its unit.
    #[serde(deserialize_with = "null_is_nan")]
    pub f64,
);

/// Reads a figure that is `null` in the file where it could not be computed.
pub(crate) fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
