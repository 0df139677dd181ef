//! An experiment at the level of flows: what its TOML file says, checked.

use crate::placement::{Class, Network};
use serde::Deserialize;
use tailbound_experiment::{ChartSpec, Curve, Mistakes, Name};
use tailbound_placement::{Guarantee, Policy};
use tailbound_units::Nanos;

/// The most requests of a point, and the most machines of a tenant.
const MOST: u32 = 10_000_000;
/// The most machines, and the most hosts, of a data centre.
const MOST_SLOTS: u64 = 4_000_000;
/// The longest that a job computes on average.
const LONGEST: Nanos = Nanos::from_secs(86_400);

/// Tenants with data to move come to networks under policies, and leave when it is moved.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowsExperiment {
    /// What tenants may be placed in.
    pub network: Vec<Network>,
    /// What tenants ask for, and what they do.
    pub class: Vec<FlowClass>,
    /// What is compared.
    pub point: Vec<FlowPoint>,
    /// What is drawn.
    #[serde(default)]
    pub chart: Vec<ChartSpec>,
}

/// A kind of tenant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowClass {
    /// Names its values.
    pub name: Name,
    /// Its part of all requests, against the other classes' weights.
    #[serde(default = "one")]
    pub weight: u32,
    /// What each machine is promised.
    pub guarantee: Guarantee,
    /// Bandwidth and burst are exponential with these means, instead of always the same.
    #[serde(default)]
    pub varied: bool,
    /// Who sends to whom.
    pub traffic: Traffic,
    /// How long a job computes at least; exponential with this mean.
    pub compute: Nanos,
    /// How long a machine that has its guarantee's bandwidth to itself takes for its data, in
    /// parts of the time that its job computes: with 1 the tenant asks for as much as it needs.
    #[serde(default = "as_long")]
    pub transfer: f64,
}

const fn one() -> u32 {
    1
}

const fn as_long() -> f64 {
    1.0
}

/// Who sends to whom within a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// All machines to one. It receives for as long as [`FlowClass::transfer`] says.
    AllToOne,
    /// Each machine to [`FlowPoint::destinations`] others, drawn at random, which also as many
    /// send to. It sends for as long as [`FlowClass::transfer`] says.
    Permutation,
}

/// Tenants that come to one data centre as a Poisson process.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowPoint {
    /// Stable name: the variant's.
    pub name: Name,
    /// Where it stands on charts.
    pub x: Option<f64>,
    /// Which line of charts it is on.
    #[serde(default)]
    pub line: String,
    /// The name of the network.
    pub network: Name,
    /// How many pods of it.
    pub pods: u32,
    /// By which rules is admitted. Under `locality` flows share links fairly, and those within a
    /// host take no time; under any other policy each machine sends and receives what it is
    /// guaranteed, wherever the others are, and no more.
    pub policy: Policy,
    /// How many machines a tenant asks for on average; exponential, rounded up.
    pub mean_vms: f64,
    /// Nobody asks for more machines.
    #[serde(default = "default_most_vms")]
    pub most_vms: u32,
    /// How many requests come.
    pub requests: u32,
    /// How many of them come before anything is measured.
    pub warmup: u32,
    /// How many percent of the slots would be taken if all were admitted, and no job took longer
    /// than its guarantee lets it. The first tenants come at once, until they ask for so many.
    pub occupancy: u32,
    /// x of Permutation-x: to how many others each machine sends.
    #[serde(default = "default_destinations")]
    pub destinations: f64,
}

const fn default_most_vms() -> u32 {
    1_000
}

const fn default_destinations() -> f64 {
    1.0
}

impl FlowClass {
    /// What it asks for.
    fn request(&self) -> Class {
        Class {
            name: self.name.clone(),
            weight: self.weight,
            guarantee: self.guarantee,
            varied: self.varied,
        }
    }
}

impl FlowsExperiment {
    /// The network of a point.
    pub(super) fn network(&self, point: &FlowPoint) -> Option<&Network> {
        let name = point.network.get_ref();
        self.network.iter().find(|it| it.name.get_ref() == name)
    }

    /// What the classes ask for, in their order.
    pub(super) fn requests(&self) -> Vec<Class> {
        self.class.iter().map(FlowClass::request).collect()
    }

    pub(super) fn class_names(&self) -> Vec<&str> {
        let classes = self.class.iter();
        classes.map(|class| class.name.get_ref().as_str()).collect()
    }

    /// Its points that have an `x`, a line for each name.
    pub(super) fn lines(&self) -> Vec<Curve> {
        let mut curves: Vec<Curve> = Vec::new();
        for point in &self.point {
            let Some(x) = point.x else { continue };
            let at = (x, point.name.get_ref().clone());
            match curves.iter_mut().find(|curve| curve.name == point.line) {
                Some(curve) => curve.points.push(at),
                None => curves.push(Curve {
                    name: point.line.clone(),
                    points: vec![at],
                }),
            }
        }
        curves
    }

    /// Finds what is wrong with it.
    pub(super) fn find_mistakes(&self, mistakes: &mut Mistakes) {
        mistakes.names("network", self.network.iter().map(|it| &it.name));
        mistakes.names("class", self.class.iter().map(|it| &it.name));
        mistakes.names("point", self.point.iter().map(|it| &it.name));
        let mut top = mistakes.top();
        top.count("network", self.network.len(), 1..=1_000);
        top.count("class", self.class.len(), 1..=1_000);
        top.count("point", self.point.len(), 1..=10_000);
        if self.class.iter().all(|class| class.weight == 0) {
            top.at("class", "all classes have weight 0: nobody would come");
        }
        for (index, class) in self.class.iter().enumerate() {
            let mut section = top.item("class", index);
            section.range("compute", class.compute, Nanos(1)..=LONGEST);
            section.range("transfer", class.transfer, 0.0..=1e6);
        }
        for (index, point) in self.point.iter().enumerate() {
            self.check_point(point, index, mistakes);
        }
    }

    fn check_point(&self, point: &FlowPoint, index: usize, mistakes: &mut Mistakes) {
        let mut top = mistakes.top();
        let mut section = top.item("point", index);
        section.range("mean_vms", point.mean_vms, 1.0..=f64::from(MOST));
        section.range("most_vms", point.most_vms, 1..=MOST);
        section.range("requests", point.requests, 1..=MOST);
        section.range("occupancy", point.occupancy, 1..=100);
        section.range("destinations", point.destinations, 0.0..=f64::from(MOST));
        if point.warmup >= point.requests {
            let message = format!(
                "warmup {}: nothing is left to measure of {} requests",
                point.warmup, point.requests
            );
            section.at("warmup", message);
        }
        let slots = self.network(point).map(|network| network.slots(point.pods));
        if slots.is_some_and(|slots| !(1..=MOST_SLOTS).contains(&slots)) {
            let message = format!("has no slots, or more than {MOST_SLOTS}");
            section.at("pods", message);
        }
        let known = self.network.iter().map(|it| it.name.get_ref().as_str());
        mistakes.known("network", &point.network, known);
    }
}
