//! An experiment as data: what its TOML file says, checked.

use crate::vcpu::experiment::{AxisSpec, Check, CheckKind, Name};
use crate::vcpu::experiment::{ExperimentError, Problem, invalid, plain, problem, unique};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;
use tailbound_placement::{Guarantee, Policy, Uniform, UplinkSpec};
use tailbound_units::Bytes;

use super::recorder;

/// The most requests of a point, and the most machines of a tenant.
const MOST: u32 = 10_000_000;

/// Tenants of some classes come to networks under policies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Names the result files.
    pub name: Name,
    /// What it shows, in one line.
    pub title: String,
    /// Paper and section.
    pub source: String,
    /// After how many refusals one is explained; the explanation is timed. Never
    /// if left out.
    #[serde(default)]
    pub explain_every: Option<u32>,
    /// What tenants may be placed in.
    pub network: Vec<Network>,
    /// What tenants ask for.
    pub class: Vec<Class>,
    /// What is compared.
    pub point: Vec<Point>,
    /// What is drawn.
    #[serde(default)]
    pub chart: Vec<ChartSpec>,
    /// What is expected.
    #[serde(default)]
    pub check: Vec<Check>,
}

/// Equal hosts in equal racks in equal pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// What points call it.
    pub name: Name,
    /// In each pod.
    pub racks: u32,
    /// In each rack.
    pub hosts: u32,
    /// On each host.
    pub slots: u32,
    /// Between a host and its rack.
    pub host_link: UplinkSpec,
    /// Between a rack and its pod.
    pub rack_link: UplinkSpec,
    /// Between a pod and the core.
    pub pod_link: UplinkSpec,
    /// The longest frame, with all that goes over the wire.
    #[serde(default = "default_frame")]
    pub frame: Bytes,
}

const fn default_frame() -> Bytes {
    Bytes(1_538)
}

/// A kind of tenant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Names its values.
    pub name: Name,
    /// Its part of all requests, against the other classes' weights.
    #[serde(default = "one")]
    pub weight: u32,
    /// What each machine is promised.
    pub guarantee: Guarantee,
    /// Bandwidth and burst are exponential with these means, instead of always
    /// the same; the burst rate is never below the bandwidth.
    #[serde(default)]
    pub varied: bool,
}

const fn one() -> u32 {
    1
}

/// Who leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leave {
    /// Tenants chosen at random, whenever more than [`Point::occupancy`] of the
    /// slots are taken. Nothing is measured before they are for the first time.
    #[default]
    Random,
    /// Nobody.
    Never,
}

/// Requests that come to one data centre, one after the other.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Stable name: the variant's.
    pub name: Name,
    /// Where it stands on charts.
    pub x: Option<f64>,
    /// Which network.
    pub network: Name,
    /// How many pods of it.
    pub pods: u32,
    /// By which rules is admitted.
    #[serde(default)]
    pub policy: Policy,
    /// How many machines a tenant asks for on average; exponential, rounded up.
    pub mean_vms: f64,
    /// Nobody asks for more machines.
    #[serde(default = "default_most_vms")]
    pub most_vms: u32,
    /// How many requests are measured.
    pub requests: u32,
    /// Who leaves.
    #[serde(default)]
    pub leave: Leave,
    /// Up to how many percent of the slots are taken.
    #[serde(default = "default_occupancy")]
    pub occupancy: u32,
    /// How many ports a decision may look at, if not as many as always.
    #[serde(default)]
    pub effort: Option<u32>,
}

const fn default_most_vms() -> u32 {
    1_000
}

const fn default_occupancy() -> u32 {
    90
}

/// A chart over the points that have an `x`.
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
    /// The figures, a line each: `SERIES.STATISTIC` or a value.
    pub of: Vec<Name>,
    /// What a reader must know.
    pub note: Option<String>,
}

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        /// The experiments that come with the program, name and text.
        pub const EMBEDDED: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../../../experiments/placement/", $name, ".toml")),
        )),*];
    };
}
embedded!["microbenchmark", "scale", "policies"];

/// The text of an experiment: one that comes with the program by its name, else
/// a file. The second of the pair names it in messages.
///
/// # Errors
/// There is neither.
pub fn source_text(name_or_path: &str) -> Result<(String, String), ExperimentError> {
    if let Some((name, text)) = EMBEDDED.iter().find(|(name, _)| *name == name_or_path) {
        let file = format!("experiments/placement/{name}.toml");
        return Ok(((*text).to_owned(), file));
    }
    let path = Path::new(name_or_path);
    let is_path = name_or_path.contains('/') || path.extension().is_some();
    if !is_path && !path.exists() {
        let known: Vec<_> = EMBEDDED.iter().map(|(name, _)| *name).collect();
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

/// Reads and checks an experiment: its title and its source.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub fn describe(text: &str, file: &str) -> Result<(String, String), ExperimentError> {
    let experiment = Experiment::parse(text, file)?;
    Ok((experiment.title, experiment.source))
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

    /// The network of a point.
    pub(super) fn network(&self, point: &Point) -> Option<&Network> {
        let name = point.network.get_ref();
        self.network.iter().find(|it| it.name.get_ref() == name)
    }

    fn validate(&self) -> Result<(), Problem> {
        plain(&self.name)?;
        for (what, none) in [
            ("[[network]]", self.network.is_empty()),
            ("[[class]]", self.class.is_empty()),
            ("[[point]]", self.point.is_empty()),
        ] {
            if none {
                let message = format!("has no {what}: write at least one");
                return Err(problem(&self.name, message));
            }
        }
        if self.explain_every == Some(0) {
            let message = "explain_every 0: choose 1 or more, or leave it out";
            return Err(problem(&self.name, message));
        }
        let mut seen = BTreeSet::new();
        for network in &self.network {
            plain(&network.name)?;
            unique(&mut seen, &network.name, "network")?;
        }
        let mut seen = BTreeSet::new();
        for class in &self.class {
            plain(&class.name)?;
            unique(&mut seen, &class.name, "class")?;
        }
        if self.class.iter().all(|class| class.weight == 0) {
            let message = "all classes have weight 0: nobody would come";
            return Err(problem(&self.name, message));
        }
        let mut seen = BTreeSet::new();
        for point in &self.point {
            plain(&point.name)?;
            unique(&mut seen, &point.name, "point")?;
            self.check_point(point)?;
        }
        self.check_charts()?;
        let mut seen = BTreeSet::new();
        for check in &self.check {
            plain(&check.name)?;
            unique(&mut seen, &check.name, "check")?;
            self.check_check(check)?;
        }
        Ok(())
    }

    fn check_point(&self, point: &Point) -> Result<(), Problem> {
        let wrong = |message: String| Err(problem(&point.name, message));
        let Some(network) = self.network(point) else {
            let name = point.network.get_ref();
            return Err(problem(
                &point.network,
                format!("there is no network {name:?}"),
            ));
        };
        if !(1.0..=f64::from(MOST)).contains(&point.mean_vms) {
            return wrong(format!("mean_vms {}: choose 1 to {MOST}", point.mean_vms));
        }
        for (what, got, most) in [
            ("requests", point.requests, MOST),
            ("most_vms", point.most_vms, MOST),
            ("occupancy", point.occupancy, 100),
        ] {
            if got == 0 || got > most {
                return wrong(format!("{what} {got}: choose 1 to {most}"));
            }
        }
        // The rest is said when it is built; here only that it can be.
        let uniform = network.uniform(point.pods);
        let hosts = [uniform.pods, uniform.racks, uniform.hosts]
            .into_iter()
            .try_fold(1_u64, |all, each| all.checked_mul(u64::from(each)));
        if !hosts.is_some_and(|hosts| (1..=2_000_000).contains(&hosts)) {
            return wrong("has no hosts, or more than 2000000".to_owned());
        }
        Ok(())
    }

    fn check_charts(&self) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for chart in &self.chart {
            plain(&chart.name)?;
            unique(&mut seen, &chart.name, "chart")?;
            if chart.of.is_empty() {
                return Err(problem(&chart.name, "shows nothing: name figures in `of`"));
            }
            for figure in &chart.of {
                self.check_figure(figure)?;
            }
        }
        Ok(())
    }

    fn check_check(&self, check: &Check) -> Result<(), Problem> {
        if check.at_least.is_none() && check.at_most.is_none() {
            return Err(problem(&check.name, "needs at_least or at_most, or both"));
        }
        if check.kind == CheckKind::Distance {
            return Err(problem(&check.name, "there are no lines of papers here"));
        }
        if check.from.is_some() != (check.kind != CheckKind::Value) {
            let message = "needs a `from` to compare with; a plain value needs none";
            return Err(problem(&check.name, message));
        }
        self.check_figure(&check.of)?;
        if check.at.is_empty() {
            return Err(problem(&check.name, "judges no point: name some in `at`"));
        }
        let points: Vec<_> = self.point.iter().map(|it| it.name.get_ref()).collect();
        for at in check.at.iter().chain(&check.from) {
            if !points.contains(&at.get_ref()) {
                let message = format!("there is no point {:?}", at.get_ref());
                return Err(problem(at, message));
            }
        }
        Ok(())
    }

    fn check_figure(&self, figure: &Name) -> Result<(), Problem> {
        let classes: Vec<_> = self.class.iter().map(|it| it.name.get_ref()).collect();
        recorder::check_figure(figure.get_ref(), &classes)
            .map_err(|message| problem(figure, message))
    }
}

impl Network {
    /// So many pods of it.
    pub(super) fn uniform(&self, pods: u32) -> Uniform {
        Uniform {
            pods,
            racks: self.racks,
            hosts: self.hosts,
            slots: self.slots,
            host_link: self.host_link.clone(),
            rack_link: self.rack_link.clone(),
            pod_link: self.pod_link.clone(),
            frame: self.frame,
        }
    }
}
