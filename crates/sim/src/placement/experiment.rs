//! An experiment of the placement simulator: what its TOML file says, checked.

use serde::Deserialize;
use tailbound_experiment::{ChartSpec, Curve, Mistakes, Name};
use tailbound_placement::{Guarantee, Policy, Uniform, UplinkSpec};
use tailbound_units::Bytes;

/// The most requests of a point, and the most machines of a tenant.
const MOST: u32 = 10_000_000;
/// The most hosts of a data centre.
const MOST_HOSTS: u64 = 2_000_000;

/// Tenants of some classes come to networks under policies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementExperiment {
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
    /// The name of the network.
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

impl PlacementExperiment {
    /// The network of a point.
    pub(super) fn network(&self, point: &Point) -> Option<&Network> {
        let name = point.network.get_ref();
        self.network.iter().find(|it| it.name.get_ref() == name)
    }

    /// The points that have an `x`, as the one line of charts.
    pub(super) fn curve(&self) -> Curve {
        let point = |point: &Point| Some((point.x?, point.name.get_ref().clone()));
        Curve {
            name: String::new(),
            points: self.point.iter().filter_map(point).collect(),
        }
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
        top.range(
            "explain_every",
            self.explain_every.unwrap_or(1),
            1..=u32::MAX,
        );
        if self.class.iter().all(|class| class.weight == 0) {
            top.at("class", "all classes have weight 0: nobody would come");
        }
        for (index, point) in self.point.iter().enumerate() {
            let mut top = mistakes.top();
            let mut section = top.item("point", index);
            section.range("mean_vms", point.mean_vms, 1.0..=f64::from(MOST));
            section.range("requests", point.requests, 1..=MOST);
            section.range("most_vms", point.most_vms, 1..=MOST);
            section.range("occupancy", point.occupancy, 1..=100);
            // The rest is said when it is built; here only that it can be.
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
    /// How many hosts so many pods of it have.
    fn hosts(&self, pods: u32) -> u64 {
        let each = [pods, self.racks, self.hosts].map(u64::from);
        each.into_iter().fold(1, u64::saturating_mul)
    }

    /// How many slots so many pods of it have.
    pub(crate) fn slots(&self, pods: u32) -> u64 {
        self.hosts(pods).saturating_mul(u64::from(self.slots))
    }

    /// So many pods of it.
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
