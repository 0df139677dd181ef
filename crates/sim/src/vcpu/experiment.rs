//! An experiment as data: what its TOML file says, checked.
//!
//! Read [`Experiment`] first. Every error names file, line and column.

mod figure;
mod scheduler;
#[cfg(test)]
mod tests;
mod validate;

pub use figure::Figure;
pub(crate) use scheduler::AnyScheduler;
pub use scheduler::{CreditSpec, EdfSpec, SchedulerSpec};
pub(crate) use validate::{Problem, plain, problem, unique};

use serde::Deserialize;
use std::path::Path;
use tailbound_document::Location;
use tailbound_hypervisor::{Costs, DEFAULT_WEIGHT, Load, Task};
use tailbound_report::{ChartAxis, Scale};
use tailbound_units::Nanos;

/// A text that remembers where in the file it stands.
pub type Name = toml::Spanned<String>;

/// An experiment: every scheduler runs every point; what is measured goes into
/// variants, charts and checks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Names the result files.
    pub name: Name,
    /// What it shows, in one line.
    pub title: String,
    /// Paper and section.
    pub source: String,
    /// How long each point is measured, in virtual time.
    pub duration: Nanos,
    /// How long it runs before that. At the start every guest wakes in BOOST,
    /// which says nothing about the long run.
    #[serde(default = "default_warmup")]
    pub warmup: Nanos,
    /// Equal physical CPUs.
    #[serde(default = "one")]
    pub pcpus: u32,
    /// No timer of a guest fires sooner than this after it is set.
    #[serde(default)]
    pub timer_slop: Nanos,
    /// What changing the vCPU of a pCPU costs.
    #[serde(default)]
    pub costs: Costs,
    /// What is compared.
    pub scheduler: Vec<SchedulerSpec>,
    /// The kinds of guests.
    pub guest: Vec<Guest>,
    /// What is varied.
    pub point: Vec<Point>,
    /// Samples to be counted.
    #[serde(default)]
    pub count: Vec<Count>,
    /// What is drawn.
    #[serde(default)]
    pub chart: Vec<ChartSpec>,
    /// What is expected.
    #[serde(default)]
    pub check: Vec<Check>,
}

const fn default_warmup() -> Nanos {
    Nanos::from_secs(1)
}

const fn one() -> u32 {
    1
}

/// A kind of guest: a domain with one vCPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// What points call it.
    pub name: Name,
    /// Its share against the others'.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// The most CPU time it may use, in percent of one pCPU; 0 is no cap.
    #[serde(default)]
    pub cap: u32,
    /// The pCPUs it may run on, counted from 0; none named: all.
    #[serde(default)]
    pub pin: Vec<u32>,
    /// What it does for others.
    #[serde(default)]
    pub task: Task,
    /// What uses its CPU time beside that.
    #[serde(default)]
    pub load: Load,
    /// What a cold cache costs it, if not as much as [`Experiment::costs`] says.
    pub cache_refill: Option<Nanos>,
    /// The series its task's samples go into; none: they are not kept.
    pub series: Option<Name>,
    /// What becomes of them.
    #[serde(default)]
    pub measure: Measure,
    /// The value for the CPU time it had, in percent of one pCPU. With several
    /// guests it is their mean, and `CPU_range` says how far apart they are, in
    /// percent of it.
    pub cpu: Option<Name>,
    /// The value for the work it did: CPU time without [`Experiment::costs`], in
    /// percent of one pCPU, over all guests of the kind.
    pub work: Option<Name>,
}

const fn default_weight() -> u32 {
    DEFAULT_WEIGHT
}

/// What becomes of a guest's samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Each is how long the task says it took.
    #[default]
    Latency,
    /// As a receiver of RTP sees the frames of a sender: the gap between two in
    /// `SERIES_delta`, the jitter of RFC 3550, section 6.4.1, in `SERIES_jitter`.
    Rtp,
}

/// One setting of what is varied: the guests that share the host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Stable name: with several schedulers, variants are called SCHEDULER/POINT.
    pub name: Name,
    /// Where it stands on charts.
    pub x: Option<f64>,
    /// The guests, in order: vCPU 0 first. A kind may come several times.
    pub guests: Vec<Name>,
    /// Only these schedulers run it; none named: all.
    #[serde(default)]
    pub schedulers: Vec<Name>,
    /// How long, if not as long as the others.
    pub duration: Option<Nanos>,
}

/// Samples of a series to be counted, as a value of each variant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// The name of the value.
    pub name: Name,
    /// Of which series.
    pub series: Name,
    /// Samples from the first up to but without the second are counted.
    pub ranges: Vec<(Nanos, Nanos)>,
    /// The value is the share in percent of what this other count has.
    pub share_of: Option<Name>,
}

/// A chart over the points.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChartSpec {
    /// Stable name.
    pub name: Name,
    /// What it shows, in one line.
    pub title: String,
    /// The axis of [`Point::x`].
    pub x: AxisSpec,
    /// The axis of the figures.
    pub y: AxisSpec,
    /// The figures, each a line a scheduler: `SERIES.STATISTIC` or a value.
    pub of: Vec<Name>,
    /// What the paper says.
    #[serde(default)]
    pub paper: Vec<PaperLine>,
    /// What is promised.
    #[serde(default)]
    pub bound: Vec<PaperLine>,
    /// What a reader must know.
    pub note: Option<String>,
}

/// An axis of a chart.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisSpec {
    /// What stands on it.
    pub label: String,
    /// The unit of its figures; times are in `ns`.
    #[serde(default)]
    pub unit: String,
    /// How figures are spread over it.
    #[serde(default)]
    pub scale: Scale,
}

impl From<&AxisSpec> for ChartAxis {
    fn from(spec: &AxisSpec) -> Self {
        Self {
            label: spec.label.clone(),
            unit: spec.unit.clone(),
            scale: spec.scale,
        }
    }
}

/// A line of a chart that is known beforehand.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperLine {
    /// What the legend calls it.
    pub name: Name,
    /// x and y; a time as text.
    pub points: Vec<(Figure, Figure)>,
}

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
    /// The variants that are judged. Of several the one furthest from what is
    /// expected counts.
    #[serde(default)]
    pub at: At,
    /// The variant to compare with; for `distance` the line of the paper.
    pub from: Option<Name>,
    /// The figure must be this or more,
    pub at_least: Option<Figure>,
    /// and this or less.
    pub at_most: Option<Figure>,
    /// What the paper says, and where.
    pub source: String,
}

/// The variants a check judges.
pub type At = Vec<Name>;

/// How a check's figure is computed from `a`, the figure of the variant `from`,
/// and `b`, that of the variant it is `at`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// b alone.
    #[default]
    Value,
    /// b/a: how many times larger it is.
    Ratio,
    /// b - a: by how much it is larger.
    Difference,
    /// 1 - b/a: by how many percent it went down.
    Reduction,
    /// The largest distance of a chart's measured line from the paper's, over
    /// the points of the latter. Of several schedulers the first counts.
    Distance,
}

/// Why an experiment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Something in it is wrong.
    #[error("{file}:{place}: {message}")]
    Invalid {
        /// The file.
        file: String,
        /// Where.
        place: Location,
        /// What is wrong; what would be right.
        message: String,
    },
    /// There is no such experiment.
    #[error("there is no experiment {name:?}; name a file, or one of {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
}

impl ExperimentError {
    /// What the TOML parser says, at its place.
    pub(crate) fn from_toml(text: &str, file: &str, error: &toml::de::Error) -> Self {
        let problem = Problem {
            offset: error.span().map_or(0, |span| span.start),
            message: error.message().replacen(", expected", "; expected", 1),
        };
        invalid(text, file, problem)
    }
}

pub(crate) fn invalid(text: &str, file: &str, problem: Problem) -> ExperimentError {
    ExperimentError::Invalid {
        file: file.to_owned(),
        place: Location::of(text, problem.offset),
        message: problem.message,
    }
}

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        /// The experiments that come with the program, name and text.
        pub const EMBEDDED: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../../../experiments/sim/", $name, ".toml")),
        )),*];
    };
}
embedded![
    "bobtail-fig4",
    "bobtail-fig5",
    "bobtail-fig8",
    "bobtail-fig9",
    "small-is-better-table3",
    "qos-fig12-13",
    "qos-fig14-15",
    "qos-deadlines",
    "qos-fig16",
    "vsnoop-fig1",
    "schedulers",
];

/// The text of an experiment: one that comes with the program by its name, else
/// a file. The second of the pair names it in messages.
///
/// # Errors
/// There is neither.
pub fn source_text(name_or_path: &str) -> Result<(String, String), ExperimentError> {
    find_text(EMBEDDED, "experiments/sim", name_or_path)
}

/// The same for any experiments, which are in `folder`.
pub(crate) fn find_text(
    embedded: &[(&str, &str)],
    folder: &str,
    name_or_path: &str,
) -> Result<(String, String), ExperimentError> {
    if let Some((name, text)) = embedded.iter().find(|(name, _)| *name == name_or_path) {
        return Ok(((*text).to_owned(), format!("{folder}/{name}.toml")));
    }
    let path = Path::new(name_or_path);
    let is_path = name_or_path.contains('/') || path.extension().is_some();
    if !is_path && !path.exists() {
        let known: Vec<_> = embedded.iter().map(|(name, _)| *name).collect();
        return Err(ExperimentError::Unknown {
            name: name_or_path.to_owned(),
            known: known.join(", "),
        });
    }
    let text = std::fs::read_to_string(path).map_err(|source| ExperimentError::Read {
        path: name_or_path.to_owned(),
        source,
    })?;
    Ok((text, name_or_path.to_owned()))
}

impl Experiment {
    /// Reads and checks an experiment. `file` is for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, file: &str) -> Result<Self, ExperimentError> {
        let experiment: Self =
            toml::from_str(text).map_err(|error| ExperimentError::from_toml(text, file, &error))?;
        experiment
            .validate()
            .map_err(|problem| invalid(text, file, problem))?;
        Ok(experiment)
    }

    /// The kind of guest of that name.
    pub fn guest(&self, name: &str) -> Option<&Guest> {
        self.guest.iter().find(|guest| guest.name.get_ref() == name)
    }

    /// What runs: schedulers in order, each with its points in order.
    pub fn runs(&self) -> impl Iterator<Item = (&SchedulerSpec, &Point)> {
        let points = |scheduler| {
            let runs = move |point: &&Point| point.is_run_by(scheduler);
            let points = self.point.iter().filter(runs);
            points.map(move |point| (scheduler, point))
        };
        self.scheduler.iter().flat_map(points)
    }

    /// The name of the variant for a run. What there is only one of goes
    /// without saying.
    pub fn variant_name(&self, scheduler: &SchedulerSpec, point: &Point) -> String {
        let (scheduler, point) = (scheduler.name.get_ref(), point.name.get_ref());
        match (self.scheduler.len(), self.point.len()) {
            (1, _) => point.clone(),
            (_, 1) => scheduler.clone(),
            _ => format!("{scheduler}/{point}"),
        }
    }
}

impl Point {
    fn is_run_by(&self, scheduler: &SchedulerSpec) -> bool {
        let named = |name: &Name| name.get_ref() == scheduler.name.get_ref();
        self.schedulers.is_empty() || self.schedulers.iter().any(named)
    }
}

impl Guest {
    /// The series it fills.
    pub(crate) fn series_names(&self) -> Vec<String> {
        let Some(series) = &self.series else {
            return Vec::new();
        };
        match self.measure {
            Measure::Latency => vec![series.get_ref().clone()],
            Measure::Rtp => ["delta", "jitter"]
                .map(|what| format!("{}_{what}", series.get_ref()))
                .into(),
        }
    }
}
