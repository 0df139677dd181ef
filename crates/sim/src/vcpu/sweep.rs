//! A sweep as data: every scheduler runs every point.

use crate::scheduler::SchedulerSpec;
use serde::Deserialize;
use tailbound_experiment::{ChartSpec, Curve, Name};
use tailbound_hypervisor::{Costs, DEFAULT_WEIGHT, Load, Task};
use tailbound_units::Nanos;

/// Every scheduler runs every point; what is measured goes into variants, charts and
/// checks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
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
    /// What a cold cache costs it, if not as much as [`Sweep::costs`] says.
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
    /// The value for the work it did: CPU time without [`Sweep::costs`], in
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

impl Sweep {
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

    /// A line of charts for each scheduler, over the points that have an `x`.
    pub(crate) fn curves(&self) -> Vec<Curve> {
        let curve = |scheduler: &SchedulerSpec| {
            let runs = self.runs();
            let runs = runs.filter(|(it, _)| it.name.get_ref() == scheduler.name.get_ref());
            let point = |(scheduler, point): (&SchedulerSpec, &Point)| {
                Some((point.x?, self.variant_name(scheduler, point)))
            };
            Curve {
                name: scheduler.name.get_ref().clone(),
                points: runs.filter_map(point).collect(),
            }
        };
        self.scheduler.iter().map(curve).collect()
    }
}

impl Point {
    /// The kinds of its guests, in order.
    pub(crate) fn kinds<'e>(&self, sweep: &'e Sweep) -> Vec<&'e Guest> {
        let names = self.guests.iter();
        names
            .filter_map(|name| sweep.guest(name.get_ref()))
            .collect()
    }

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
