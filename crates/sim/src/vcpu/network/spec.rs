//! An experiment as data: every kind of host runs every point.

use crate::tcp::TcpConfig;
use crate::vcpu::sweep::{CreditSpec, EdfSpec, SchedulerSpec};
use serde::Deserialize;
use tailbound_dataplane::SnoopConfig;
use tailbound_experiment::{ChartSpec, Curve, Mistakes, Name};
use tailbound_hypervisor::Costs;
use tailbound_hypervisor::netif::{NetifConfig, SLOTS};
use tailbound_units::{Bytes, Nanos};

/// Hosts whose guests are sent to over TCP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Networks {
    /// What all have in common.
    pub network: Conditions,
    /// What is compared.
    pub host: Vec<HostSpec>,
    /// What is varied.
    pub point: Vec<NetworkPoint>,
    /// What is drawn.
    #[serde(default)]
    pub chart: Vec<ChartSpec>,
}

/// What all hosts have in common.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// What changing the vCPU of a pCPU costs.
    #[serde(default)]
    pub costs: Costs,
    /// A guest that is not idle computes its share of so long at once, and sleeps the rest.
    pub period: Nanos,
    /// How much longer it sleeps at most, evenly.
    pub jitter: Nanos,
    /// A driver domain hears of what its guests send at the next multiple of this; at once if
    /// it is 0. It runs on the core of its guests, and the scheduler lets it preempt them.
    #[serde(default)]
    pub hears: Nanos,
    /// Between two transfers: 0 to this, evenly.
    pub pause: Nanos,
    /// No timer of a guest fires sooner than this after it is set.
    #[serde(default)]
    pub timer_slop: Nanos,
}

/// A kind of host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// What variants and legends call it.
    pub name: Name,
    /// Xen's credit scheduler; or
    pub credit: Option<CreditSpec>,
    /// EDF + credit, for the kinds of guests `driver`, `guest` and `neighbour`.
    pub edf: Option<EdfSpec>,
    /// Its network devices.
    #[serde(default)]
    pub netif: NetifConfig,
    /// Early acknowledgement, and how far the host answers for its guests.
    pub snoop: Option<SnoopConfig>,
    /// The host that its throughput is divided by, for the value `times`.
    pub against: Option<Name>,
}

/// Who sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// A machine of its own.
    #[default]
    Bare,
    /// A guest of a host of the same kind, with as many neighbours as the receiver.
    Virtual,
}

/// Whose TCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Era {
    /// Linux 2.6.18 ([`TcpConfig::PAPER`]).
    #[default]
    Paper,
    /// The same with a wide first receive window ([`TcpConfig::PAPER_WIDE`]).
    PaperWide,
    /// Linux since 2.6.39 ([`TcpConfig::TODAY`]).
    Today,
}

impl Era {
    pub(super) const fn tcp(self) -> TcpConfig {
        match self {
            Self::Paper => TcpConfig::PAPER,
            Self::PaperWide => TcpConfig::PAPER_WIDE,
            Self::Today => TcpConfig::TODAY,
        }
    }
}

/// One setting of what is varied.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPoint {
    /// Stable name: variants are called HOST/POINT.
    pub name: Name,
    /// Where it stands on charts.
    pub x: Option<f64>,
    /// Whose TCP.
    #[serde(default)]
    pub tcp: Era,
    /// Guests on the receiver's core, the receiver included.
    pub machines: u32,
    /// How much of a core each of them computes, in percent.
    pub load: u32,
    /// The length of a transfer.
    pub size: Bytes,
    /// How many transfers.
    pub count: u32,
    /// How many at once.
    #[serde(default = "one")]
    pub connections: u32,
    /// Who sends.
    #[serde(default)]
    pub sender: Sender,
    /// The driver domain has a core of its own.
    #[serde(default)]
    pub own_core: bool,
}

const fn one() -> u32 {
    1
}

impl Networks {
    /// What runs: hosts in order, each with its points in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&HostSpec, &NetworkPoint)> {
        let points = |host| self.point.iter().map(move |point| (host, point));
        self.host.iter().flat_map(points)
    }

    /// A line of charts for each host, over the points that have an `x`.
    pub(crate) fn curves(&self) -> Vec<Curve> {
        let curve = |host: &HostSpec| {
            let place = |point: &NetworkPoint| Some((point.x?, variant_name(host, point)));
            Curve {
                name: host.name.get_ref().clone(),
                points: self.point.iter().filter_map(place).collect(),
            }
        };
        self.host.iter().map(curve).collect()
    }

    /// Finds what is wrong with it.
    pub(crate) fn check(&self, mistakes: &mut Mistakes) {
        mistakes.names("host", self.host.iter().map(|host| &host.name));
        mistakes.names("point", self.point.iter().map(|point| &point.name));
        let mut top = mistakes.top();
        top.count("host", self.host.len(), 1..=20);
        top.count("point", self.point.len(), 1..=1_000);
        let conditions = &self.network;
        let mut section = top.table("network");
        let second = Nanos::from_secs(1);
        section.range("period", conditions.period, Nanos::from_millis(1)..=second);
        section.range("hears", conditions.hears, Nanos::ZERO..=second);
        section.range("pause", conditions.pause, Nanos::ZERO..=second);
        section.range("jitter", conditions.jitter, Nanos::ZERO..=second);
        for (index, point) in self.point.iter().enumerate() {
            let mut section = top.item("point", index);
            section.range("machines", point.machines, 1..=32);
            section.range("load", point.load, 0..=99);
            section.range("size", point.size, Bytes(1)..=Bytes(1 << 30));
            section.range("count", point.count, 1..=1_000_000);
            section.range("connections", point.connections, 1..=1_000);
        }
        for (index, host) in self.host.iter().enumerate() {
            let mut section = top.item("host", index);
            let NetifConfig {
                least_target,
                reserved,
                ..
            } = host.netif;
            if let Some(mistake) = host.snoop.and_then(|it| it.mistake()) {
                section.at("snoop", mistake);
            }
            section.range("netif", least_target, NetifConfig::TARGETS);
            section.range("netif", reserved, 1..=SLOTS / 4);
            if 2 * reserved > least_target {
                let message = "reserves more than half of its slots, and so would stop for good: \
                               write a least_target of twice `reserved` or more";
                section.at("netif", message);
            }
        }
        for host in &self.host {
            if let Some(against) = &host.against {
                let names = self.host.iter().map(|host| host.name.get_ref().as_str());
                mistakes.known("host", against, names);
            }
        }
    }
}

impl HostSpec {
    pub(super) fn scheduler(&self) -> SchedulerSpec {
        SchedulerSpec {
            name: self.name.clone(),
            credit: self.credit.clone(),
            edf: self.edf.clone(),
            credit2: None,
            rtds: None,
        }
    }
}

/// The name of the variant for a run.
pub(super) fn variant_name(host: &HostSpec, point: &NetworkPoint) -> String {
    format!("{}/{}", host.name.get_ref(), point.name.get_ref())
}
