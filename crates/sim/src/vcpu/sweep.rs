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
    /// Measured time per point, in virtual time.
    pub duration: Nanos,
    /// Warm-up; 1 s.
    #[serde(default = "default_warmup")]
    pub warmup: Nanos,
    /// Equal physical CPUs; 1.
    #[serde(default = "one")]
    pub pcpus: u32,
    /// Shortest expiry of a guest's timer.
    #[serde(default)]
    pub timer_slop: Nanos,
    /// Costs of switches.
    #[serde(default)]
    pub costs: Costs,
    /// Schedulers.
    pub scheduler: Vec<SchedulerSpec>,
    /// Kinds of guests.
    pub guest: Vec<Guest>,
    /// Points.
    pub point: Vec<Point>,
    /// Counts of samples.
    #[serde(default)]
    pub count: Vec<Count>,
    /// Charts.
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
    /// Relative weight.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Largest CPU time, in percent of one pCPU; 0: no cap.
    #[serde(default)]
    pub cap: u32,
    /// Physical CPUs, from 0; all.
    #[serde(default)]
    pub pin: Vec<u32>,
    /// Task for others.
    #[serde(default)]
    pub task: Task,
    /// Load besides the task.
    #[serde(default)]
    pub load: Load,
    /// Cost of a cold cache, if not that of [`Sweep::costs`].
    pub cache_refill: Option<Nanos>,
    /// Series of its task's samples; not kept without it.
    pub series: Option<Name>,
    /// Measurement.
    #[serde(default)]
    pub measure: Measure,
    /// Value of its CPU time, in percent of one pCPU; of several guests the mean. `CPU_range` is
    /// the range, in percent of the mean.
    pub cpu: Option<Name>,
    /// Value of its work: CPU time without [`Sweep::costs`], in percent of one pCPU, over all its
    /// guests.
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

/// A point: guests on the host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Stable name; variants of several schedulers are SCHEDULER/POINT.
    pub name: Name,
    /// Position on x axes.
    pub x: Option<f64>,
    /// Guests, from vCPU 0 on. A kind may occur several times.
    pub guests: Vec<Name>,
    /// Schedulers; all.
    #[serde(default)]
    pub schedulers: Vec<Name>,
    /// Measured time, if other than the common one.
    pub duration: Option<Nanos>,
}

/// A count of a series' samples, as a value of each variant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Value.
    pub name: Name,
    /// Series.
    pub series: Name,
    /// Counted ranges: from the first time up to before the second.
    pub ranges: Vec<(Nanos, Nanos)>,
    /// Other count, of which the value is a percentage.
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
