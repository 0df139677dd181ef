//! A sweep as data: every scheduler runs every point.

use crate::scheduler::SchedulerSpec;
use serde::Deserialize;
use tailbound_experiment::{ChartSpec, Curve, Name};
use tailbound_hypervisor::{Costs, DEFAULT_WEIGHT, Load, Task};
use tailbound_units::Nanos;

/// A sweep: every scheduler runs every point; the measurements become variants, charts and checks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Measured time of each point, in virtual time.
    pub duration: Nanos,
    /// Warm-up before the measurement, since at the start every guest wakes in BOOST; 1 s.
    #[serde(default = "default_warmup")]
    pub warmup: Nanos,
    /// Equal physical CPUs; 1.
    #[serde(default = "one")]
    pub pcpus: u32,
    /// Shortest time between setting a guest's timer and its expiry.
    #[serde(default)]
    pub timer_slop: Nanos,
    /// Costs of changing the vCPU of a pCPU.
    #[serde(default)]
    pub costs: Costs,
    /// Schedulers to compare.
    pub scheduler: Vec<SchedulerSpec>,
    /// The kinds of guests.
    pub guest: Vec<Guest>,
    /// Points: the varied settings.
    pub point: Vec<Point>,
    /// Counts of samples.
    #[serde(default)]
    pub count: Vec<Count>,
    /// Charts of the result.
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
    /// Name in points.
    pub name: Name,
    /// Its weight relative to the others'.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Largest CPU time, in percent of one pCPU; 0 is no cap.
    #[serde(default)]
    pub cap: u32,
    /// Physical CPUs that it may run on, counted from 0; all by default.
    #[serde(default)]
    pub pin: Vec<u32>,
    /// Task that it does for others.
    #[serde(default)]
    pub task: Task,
    /// Load on its CPU besides the task.
    #[serde(default)]
    pub load: Load,
    /// Cost of a cold cache for this guest, if it differs from [`Sweep::costs`].
    pub cache_refill: Option<Nanos>,
    /// Series of its task's samples; without it they are not kept.
    pub series: Option<Name>,
    /// Measurement of the samples.
    #[serde(default)]
    pub measure: Measure,
    /// Value of its CPU time, in percent of one pCPU. With several guests the value is their mean,
    /// and `CPU_range` is their range, in percent of the mean.
    pub cpu: Option<Name>,
    /// Value of its work: CPU time without [`Sweep::costs`], in percent of one pCPU, over all
    /// guests of the kind.
    pub work: Option<Name>,
}

const fn default_weight() -> u32 {
    DEFAULT_WEIGHT
}

/// Measurement of a guest's samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Each sample is the time of the task.
    #[default]
    Latency,
    /// Samples are a sender's frames at a receiver of RTP: the gap between two in `SERIES_delta`,
    /// the jitter of RFC 3550, section 6.4.1, in `SERIES_jitter`.
    Rtp,
}

/// A point: the guests that share the host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Stable name: with several schedulers, variants are called SCHEDULER/POINT.
    pub name: Name,
    /// Position on the x axis of charts.
    pub x: Option<f64>,
    /// Guests, in order: vCPU 0 first. A kind may occur several times.
    pub guests: Vec<Name>,
    /// Schedulers that run the point; all by default.
    #[serde(default)]
    pub schedulers: Vec<Name>,
    /// Measured time, if it differs from that of the others.
    pub duration: Option<Nanos>,
}

/// A count of a series' samples, as a value of each variant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Name of the value.
    pub name: Name,
    /// Name of the series.
    pub series: Name,
    /// Counted ranges: from the first time up to the second, which is excluded.
    pub ranges: Vec<(Nanos, Nanos)>,
    /// Other count; the value is then the share of it in percent.
    pub share_of: Option<Name>,
}

impl Sweep {
    /// Returns the kind of guest of that name.
    pub fn guest(&self, name: &str) -> Option<&Guest> {
        self.guest.iter().find(|guest| guest.name.get_ref() == name)
    }

    /// Returns the runs: schedulers in order, each with its points in order.
    pub fn runs(&self) -> impl Iterator<Item = (&SchedulerSpec, &Point)> {
        let points = |scheduler| {
            let runs = move |point: &&Point| point.is_run_by(scheduler);
            let points = self.point.iter().filter(runs);
            points.map(move |point| (scheduler, point))
        };
        self.scheduler.iter().flat_map(points)
    }

    /// Returns the name of the variant for a run, without the scheduler or the point if there is
    /// only one.
    pub fn variant_name(&self, scheduler: &SchedulerSpec, point: &Point) -> String {
        let (scheduler, point) = (scheduler.name.get_ref(), point.name.get_ref());
        match (self.scheduler.len(), self.point.len()) {
            (1, _) => point.clone(),
            (_, 1) => scheduler.clone(),
            _ => format!("{scheduler}/{point}"),
        }
    }

    /// Returns a line of charts for each scheduler, over the points that have an `x`.
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
    /// Returns the kinds of its guests, in order.
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
    /// Returns the names of its series.
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
