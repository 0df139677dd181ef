//! The result of an experiment: the types of the result file, the file itself as JSON, one HTML
//! page beside it, and text for a terminal.
//!
//! Do not use it to judge a result: `tailbound-experiment` evaluates checks.
//!
//! Read [`Results`] first: it is a whole run. [`page`] shows it as HTML, [`Results::brief`] in
//! eight lines, [`Results::summary`] as tables. [`Stats`] holds one set of samples, [`Comparison`]
//! compares two runs, [`Chart`] has figures over the varied quantity. The format is an interface,
//! described field by field in `docs/reference/reports.md`.

mod brief;
mod canvas;
mod chart;
mod chart_plot;
mod compare;
mod error;
mod files;
mod hlog;
mod html;
mod plot;
mod provenance;
mod results;
mod stats;
mod summary;
mod text;

pub use brief::Bars;
pub use chart::{Chart, ChartAxis, Line, LineStyle, Point, Scale};
pub use chart_plot::chart_svg;
pub use compare::{Comparison, ConditionPair, FigurePair, Run};
pub use error::{HistogramError, ReportError};
pub use files::{RunFiles, write_file};
pub use hlog::IntervalLog;
pub use html::page;
pub use plot::{View, distribution_svg};
pub use provenance::Provenance;
pub use results::{
    Bound, CheckResult, Hit, Outcome, Results, Series, Spread, Value, Variant, Verdict,
};
pub use stats::{Statistic, Stats, empty_histogram};
pub use text::{NOTHING, Paint, Table, human, one_line};

/// The version of the file format. It changes when a field changes its meaning or is removed; a new
/// field does not change it.
pub const SCHEMA: u32 = 1;
