//! The experiment file (TOML) of a flow-level simulation, and its checks.

use crate::placement::{Class, Network};
use serde::Deserialize;
use tailbound_experiment::{ChartSpec, Curve, Mistakes, Name};
use tailbound_placement::{Guarantee, Policy};
use tailbound_units::Nanos;

/// Largest number of requests of a point, and largest number of machines of a tenant.
const MAX_REQUESTS: u32 = 10_000_000;
/// Largest number of machines, and of hosts, of a data centre.
const MOST_SLOTS: u64 = 4_000_000;
/// Longest mean computing time of a job.
const MAX_COMPUTING_TIME: Nanos = Nanos::from_secs(86_400);

/// Tenants with data to transfer that arrive at networks under policies, and leave after the
/// transfer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowsExperiment {
    /// Networks.
    pub network: Vec<Network>,
    /// Classes of tenants.
    pub class: Vec<FlowClass>,
    /// Points.
    pub point: Vec<FlowPoint>,
    /// Charts.
    #[serde(default)]
    pub chart: Vec<ChartSpec>,
}

/// A class of tenants.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowClass {
    /// Name of its values.
    pub name: Name,
    /// Relative part of requests.
    #[serde(default = "one")]
    pub weight: u32,
    /// Guarantee of each VM.
    pub guarantee: Guarantee,
    /// Bandwidth and burst are exponential with these means.
    #[serde(default)]
    pub varied: bool,
    /// Pairs of VMs that exchange data.
    pub traffic: Traffic,
    /// Shortest computing time of a job; its mean (exponential).
    pub compute: Nanos,
    /// Transfer time of a VM at its guaranteed bandwidth, as a multiple of its computing time.
    #[serde(default = "as_long")]
    pub transfer: f64,
}

const fn one() -> u32 {
    1
}

const fn as_long() -> f64 {
    1.0
}

/// Pairs of machines of a tenant that exchange data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// All machines to one. It receives for the time of [`FlowClass::transfer`].
    AllToOne,
    /// Each machine to [`FlowPoint::destinations`] others, drawn at random, each of which also
    /// receives from this number. It sends for the time of [`FlowClass::transfer`].
    Permutation,
}

/// Tenants that arrive at a data centre as a Poisson process.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowPoint {
    /// Name of the variant.
    pub name: Name,
    /// Position on x axes.
    pub x: Option<f64>,
    /// Line on charts.
    #[serde(default)]
    pub line: String,
    /// Network.
    pub network: Name,
    /// Pods.
    pub pods: u32,
    /// Admission policy. Under `locality` flows share links fairly; otherwise each VM sends and
    /// receives exactly its guaranteed rate.
    pub policy: Policy,
    /// Mean VMs of a request; exponential, rounded up.
    pub mean_vms: f64,
    /// Most VMs of a request; 1,000.
    #[serde(default = "default_most_vms")]
    pub most_vms: u32,
    /// Requests.
    pub requests: u32,
    /// Requests before the measurement.
    pub warmup: u32,
    /// Percentage of slots taken if all requests were admitted and jobs took the time of their
    /// guarantee. Tenants up to this percentage arrive together.
    pub occupancy: u32,
    /// VMs that each VM sends to (x of Permutation-x); 1.
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
    /// Returns the class of requests.
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
    /// Returns the network of a point.
    pub(super) fn network(&self, point: &FlowPoint) -> Option<&Network> {
        let name = point.network.get_ref();
        self.network.iter().find(|it| it.name.get_ref() == name)
    }

    /// Returns the classes' requests, in their order.
    pub(super) fn requests(&self) -> Vec<Class> {
        self.class.iter().map(FlowClass::request).collect()
    }

    pub(super) fn class_names(&self) -> Vec<&str> {
        let classes = self.class.iter();
        classes.map(|class| class.name.get_ref().as_str()).collect()
    }

    /// Returns the points that have an `x`, a line for each name.
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

    /// Checks the experiment.
    pub(super) fn find_mistakes(&self, mistakes: &mut Mistakes) {
        mistakes.names("network", self.network.iter().map(|it| &it.name));
        mistakes.names("class", self.class.iter().map(|it| &it.name));
        mistakes.names("point", self.point.iter().map(|it| &it.name));
        let mut top = mistakes.top();
        top.count("network", self.network.len(), 1..=1_000);
        top.count("class", self.class.len(), 1..=1_000);
        top.count("point", self.point.len(), 1..=10_000);
        if self.class.iter().all(|class| class.weight == 0) {
            top.at("class", "all classes have weight 0: no tenant would arrive");
        }
        for (index, class) in self.class.iter().enumerate() {
            let mut section = top.item("class", index);
            section.range("compute", class.compute, Nanos(1)..=MAX_COMPUTING_TIME);
            section.range("transfer", class.transfer, 0.0..=1e6);
        }
        for (index, point) in self.point.iter().enumerate() {
            self.check_point(point, index, mistakes);
        }
    }

    fn check_point(&self, point: &FlowPoint, index: usize, mistakes: &mut Mistakes) {
        let mut top = mistakes.top();
        let mut section = top.item("point", index);
        section.range("mean_vms", point.mean_vms, 1.0..=f64::from(MAX_REQUESTS));
        section.range("most_vms", point.most_vms, 1..=MAX_REQUESTS);
        section.range("requests", point.requests, 1..=MAX_REQUESTS);
        section.range("occupancy", point.occupancy, 1..=100);
        section.range(
            "destinations",
            point.destinations,
            0.0..=f64::from(MAX_REQUESTS),
        );
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
