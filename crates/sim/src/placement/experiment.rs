//! The experiment file (TOML) of the placement simulator, and its checks.

use serde::Deserialize;
use tailbound_experiment::{ChartSpec, Curve, Mistakes, Name};
use tailbound_placement::{Guarantee, Policy, Uniform, UplinkSpec};
use tailbound_units::Bytes;

/// Largest number of requests of a point, and largest number of machines of a tenant.
const MAX_REQUESTS: u32 = 10_000_000;
/// Largest number of hosts of a data centre.
const MOST_HOSTS: u64 = 2_000_000;

/// Tenants of some classes that arrive at networks under policies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementExperiment {
    /// Refusals per measured explanation; none.
    #[serde(default)]
    pub explain_every: Option<u32>,
    /// Networks.
    pub network: Vec<Network>,
    /// Classes of tenants.
    pub class: Vec<Class>,
    /// Points.
    pub point: Vec<Point>,
    /// Charts.
    #[serde(default)]
    pub chart: Vec<ChartSpec>,
}

/// Equal hosts, racks and pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Name in points.
    pub name: Name,
    /// Racks per pod.
    pub racks: u32,
    /// Hosts per rack.
    pub hosts: u32,
    /// Slots per host.
    pub slots: u32,
    /// Link from host to rack.
    pub host_link: UplinkSpec,
    /// Link from rack to pod.
    pub rack_link: UplinkSpec,
    /// Link from pod to core.
    pub pod_link: UplinkSpec,
    /// Longest frame on the wire; 1,538 B.
    #[serde(default = "default_frame")]
    pub frame: Bytes,
}

const fn default_frame() -> Bytes {
    Bytes(1_538)
}

/// A class of tenants.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Name of its values.
    pub name: Name,
    /// Relative part of requests.
    #[serde(default = "one")]
    pub weight: u32,
    /// Guarantee of each VM.
    pub guarantee: Guarantee,
    /// Bandwidth and burst are exponential with these means; the burst rate is never below the
    /// bandwidth.
    #[serde(default)]
    pub varied: bool,
}

const fn one() -> u32 {
    1
}

/// Departures of tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leave {
    /// Tenants chosen at random, whenever more than [`Point::occupancy`] of the slots are taken.
    /// The measurement begins when this happens first.
    #[default]
    Random,
    /// No departures.
    Never,
}

/// Requests to a data centre.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Name of the variant.
    pub name: Name,
    /// Position on x axes.
    pub x: Option<f64>,
    /// Network.
    pub network: Name,
    /// Pods.
    pub pods: u32,
    /// Admission policy.
    #[serde(default)]
    pub policy: Policy,
    /// Mean VMs of a request; exponential, rounded up.
    pub mean_vms: f64,
    /// Most VMs of a request; 1,000.
    #[serde(default = "default_most_vms")]
    pub most_vms: u32,
    /// Measured requests.
    pub requests: u32,
    /// Inward burst of each VM, in bursts; not limited.
    #[serde(default)]
    pub inward_bursts: Option<u32>,
    /// Departures of tenants.
    #[serde(default)]
    pub leave: Leave,
    /// Largest percentage of taken slots; 90.
    #[serde(default = "default_occupancy")]
    pub occupancy: u32,
    /// Most checked ports per decision, if not the default.
    #[serde(default)]
    pub effort: Option<u32>,
}

const fn default_most_vms() -> u32 {
    1_000
}

const fn default_occupancy() -> u32 {
    90
}

impl PlacementExperiment {
    /// Returns the network of a point.
    pub(super) fn network(&self, point: &Point) -> Option<&Network> {
        let name = point.network.get_ref();
        self.network.iter().find(|it| it.name.get_ref() == name)
    }

    /// Returns the points that have an `x`, as the one line of charts.
    pub(super) fn curve(&self) -> Curve {
        let point = |point: &Point| Some((point.x?, point.name.get_ref().clone()));
        Curve {
            name: String::new(),
            points: self.point.iter().filter_map(point).collect(),
        }
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
        top.range(
            "explain_every",
            self.explain_every.unwrap_or(1),
            1..=u32::MAX,
        );
        if self.class.iter().all(|class| class.weight == 0) {
            top.at("class", "all classes have weight 0: no tenant would arrive");
        }
        for (index, point) in self.point.iter().enumerate() {
            let mut top = mistakes.top();
            let mut section = top.item("point", index);
            section.range("mean_vms", point.mean_vms, 1.0..=f64::from(MAX_REQUESTS));
            section.range("requests", point.requests, 1..=MAX_REQUESTS);
            section.range("most_vms", point.most_vms, 1..=MAX_REQUESTS);
            section.range("occupancy", point.occupancy, 1..=100);
            // Other errors are reported when the network is built; here only that it can be built.
            let hosts = self.network(point).map(|network| network.hosts(point.pods));
            if hosts.is_some_and(|hosts| !(1..=MOST_HOSTS).contains(&hosts)) {
                section.at("pods", format!("has no hosts, or more than {MOST_HOSTS}"));
            }
            let known = self.network.iter().map(|it| it.name.get_ref().as_str());
            mistakes.known("network", &point.network, known);
        }
    }
}

impl Network {
    /// Number of hosts in `pods` pods of the network.
    fn hosts(&self, pods: u32) -> u64 {
        let each = [pods, self.racks, self.hosts].map(u64::from);
        each.into_iter().fold(1, u64::saturating_mul)
    }

    /// Number of slots in `pods` pods of the network.
    pub(crate) fn slots(&self, pods: u32) -> u64 {
        self.hosts(pods).saturating_mul(u64::from(self.slots))
    }

    /// Returns `pods` pods of the network.
    pub(crate) fn uniform(&self, pods: u32) -> Uniform {
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
