//! What an experiment found: the types of the result file, the file itself as
//! JSON, one HTML page beside it, and text for a terminal.
//!
//! Read [`Results`] first: it is the whole of a run and knows every way to show
//! itself. [`Stats`] holds one set of samples, [`Comparison`] two runs side by
//! side, [`Chart`] figures over what was varied. The format is an interface, described field by field in
//! `docs/results.md`.

mod chart;
mod compare;
mod error;
mod html;
mod plot;
mod results;
mod stats;
mod summary;
mod text;

pub use chart::{Chart, ChartAxis, Line, LineStyle, Point, Scale};
pub use compare::{Comparison, ConditionPair, FigurePair, Run};
pub use error::{HistogramError, ReportError};
pub use plot::View;
pub use results::{
    Bound, CheckResult, Hit, Results, SCHEMA, Series, Spread, Value, Variant, Verdict, Written,
};
pub use stats::{Statistic, Stats, empty_histogram};
pub use text::{NOTHING, Paint, Table, human, one_line};
