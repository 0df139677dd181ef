//! An experiment as data: every kind of host runs every point.

use crate::scheduler::{CreditSpec, EdfSpec, SchedulerSpec};
use crate::tcp::TcpConfig;
use serde::Deserialize;
use std::ops::RangeInclusive;
use tailbound_dataplane::SnoopConfig;
use tailbound_experiment::{ChartSpec, Curve, Mistakes, Name, Section};
use tailbound_hypervisor::Costs;
use tailbound_hypervisor::netif::{NetifConfig, SLOTS};
use tailbound_units::{Bytes, Nanos};

/// Hosts whose guests receive over TCP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Networks {
    /// Conditions of all hosts.
    pub network: Conditions,
    /// Kinds of hosts.
    pub host: Vec<HostSpec>,
    /// Points.
    pub point: Vec<NetworkPoint>,
    /// Charts.
    #[serde(default)]
    pub chart: Vec<ChartSpec>,
}

/// Conditions of all hosts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Costs of switches.
    #[serde(default)]
    pub costs: Costs,
    /// Period of a busy guest, which computes its share in one piece.
    pub period: Nanos,
    /// Largest additional sleep (uniform).
    pub jitter: Nanos,
    /// Interval at which a driver domain on the guests' core handles their events; 0: immediately.
    #[serde(default)]
    pub hears: Nanos,
    /// Largest pause between transfers or pings (uniform from 0).
    pub pause: Nanos,
    /// Shortest expiry of a guest's timer.
    #[serde(default)]
    pub timer_slop: Nanos,
}

/// A kind of host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Name.
    pub name: Name,
    /// Xen's credit scheduler; or `edf`.
    pub credit: Option<CreditSpec>,
    /// EDF + credit, for guests `driver`, `guest` and `neighbour`.
    pub edf: Option<EdfSpec>,
    /// Network devices.
    #[serde(default)]
    pub netif: NetifConfig,
    /// Early acknowledgement and its limits.
    pub snoop: Option<SnoopConfig>,
    /// Replaces [`Conditions::hears`] for this host.
    pub hears: Option<Nanos>,
    /// Reference for `times`, the relative throughput.
    pub against: Option<Name>,
}

/// Sender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sender {
    /// A machine of its own.
    #[default]
    Bare,
    /// A guest of a host of the same kind, with the receiver's number of neighbours.
    Virtual,
}

/// Version of the TCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Era {
    /// Linux 2.6.18 ([`TcpConfig::PAPER`]).
    #[default]
    Paper,
    /// Linux 2.6.18 with a wide first receive window ([`TcpConfig::PAPER_WIDE`]).
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

/// A point.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPoint {
    /// Stable name: variants are HOST/POINT.
    pub name: Name,
    /// Position on x axes.
    pub x: Option<f64>,
    /// Version of the TCP.
    #[serde(default)]
    pub tcp: Era,
    /// Guests on a core, with the one with connections.
    pub machines: u32,
    /// Load of the others, in percent of a core.
    pub load: u32,
    /// Its own load besides the network, in percent of a core; that of the others.
    pub own_load: Option<u32>,
    /// A core for the driver domain.
    #[serde(default)]
    pub own_core: bool,
    /// Load.
    pub work: Work,
}

/// Load.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Transfers to a guest, a connection each.
    Transfers(TransferSpec),
    /// Pings of a guest, one by one.
    Pings(PingSpec),
    /// Clients of a web server with a database, each on its own host.
    Web(WebSpec),
    /// Four guests of four hosts that compute and exchange messages.
    Messages(Pattern),
}

/// TCP transfers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferSpec {
    /// Length of a transfer.
    pub size: Bytes,
    /// Transfers.
    pub count: u32,
    /// Parallel transfers; 1.
    #[serde(default = "one")]
    pub connections: u32,
    /// Sender.
    #[serde(default)]
    pub sender: Sender,
    /// Receiver.
    #[serde(default)]
    pub receiver: Receiver,
    /// The chart `sequence` shows the transfer of median length.
    #[serde(default)]
    pub trace: bool,
}

/// Receiver of transfers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receiver {
    /// The guest.
    #[default]
    Guest,
    /// The driver domain of its host.
    Driver,
}

/// Pings of a guest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PingSpec {
    /// Pings.
    pub count: u32,
    /// Interval of pings, plus [`Conditions::pause`].
    pub interval: Nanos,
}

/// Each client requests pages one by one over one connection; the server has a database connection
/// for each client.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebSpec {
    /// Clients.
    pub clients: u32,
    /// Measured time, after a warm-up of a tenth of it.
    pub duration: Nanos,
    /// Pages.
    pub page: Vec<PageSpec>,
}

/// A page: a query to the database, then images one by one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSpec {
    /// Relative frequency.
    pub share: u32,
    /// Length of a request for the page or an image.
    pub request: Bytes,
    /// CPU time of the server.
    pub cpu: Nanos,
    /// Lengths of query and answer; no query.
    pub query: Option<(Bytes, Bytes)>,
    /// CPU time of the database.
    #[serde(default)]
    pub query_cpu: Nanos,
    /// Length of the page.
    pub html: Bytes,
    /// Image
    pub images: u32,
    /// Length of each image.
    pub image: Bytes,
    /// CPU time of the server per image.
    pub image_cpu: Nanos,
}

/// Messages among four guests, over persistent connections.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One to all, along a binomial tree, with changing roots.
    Broadcast(Repeated),
    /// Each to each, up to 32 KiB together, beyond in pairs.
    AllToAll(Repeated),
    /// A system of equations.
    Factorise(Equations),
}

/// Messages of a fixed length, repeatedly.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// Length of a message.
    pub size: Bytes,
    /// Repetitions; the first tenth does not count.
    pub count: u32,
}

/// Blocks of columns: in turn each guest factors a block and sends it around a ring, and all apply
/// it to theirs.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equations {
    /// Equations.
    pub order: u32,
    /// Columns of a block.
    pub block: u32,
    /// Operations per nanosecond of CPU time.
    pub speed: f64,
}

const fn one() -> u32 {
    1
}

const SIZES: RangeInclusive<Bytes> = Bytes(1)..=Bytes(1 << 30);
const COUNTS: RangeInclusive<u32> = 1..=1_000_000;

impl Networks {
    /// Returns the runs: hosts in order, each with its points in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (&HostSpec, &NetworkPoint)> {
        let points = |host| self.point.iter().map(move |point| (host, point));
        self.host.iter().flat_map(points)
    }

    /// Returns a line of charts for each host, over the points that have an `x`.
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

    /// Checks the experiment.
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
            section.range("own_load", point.own_load.unwrap_or(0), 0..=99);
            point.work.check(&mut section.table("work"));
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

impl Work {
    fn check(&self, section: &mut Section<'_>) {
        let times = Nanos::from_millis(1)..=Nanos::from_secs(100_000);
        match self {
            Self::Transfers(transfers) => {
                let mut section = section.table("transfers");
                section.range("size", transfers.size, SIZES);
                section.range("count", transfers.count, COUNTS);
                section.range("connections", transfers.connections, 1..=1_000);
            }
            Self::Pings(pings) => {
                let mut section = section.table("pings");
                section.range("count", pings.count, COUNTS);
                section.range("interval", pings.interval, times);
            }
            Self::Web(web) => web.check(&mut section.table("web")),
            Self::Messages(pattern) => pattern.check(&mut section.table("messages")),
        }
    }

    /// Name of the value for the throughput, if there is one.
    pub(super) const fn merit(&self) -> Option<&'static str> {
        match self {
            Self::Transfers(_) => Some("median"),
            Self::Pings(_) => None,
            Self::Web(_) => Some("pages"),
            Self::Messages(_) => Some("rounds"),
        }
    }
}

impl WebSpec {
    fn check(&self, section: &mut Section<'_>) {
        section.range("clients", self.clients, 1..=10_000);
        let times = Nanos::from_millis(100)..=Nanos::from_secs(10_000);
        section.range("duration", self.duration, times);
        section.count("page", self.page.len(), 1..=100);
        for (index, page) in self.page.iter().enumerate() {
            let mut section = section.item("page", index);
            section.range("share", page.share, 1..=1_000_000);
            section.range("request", page.request, SIZES);
            section.range("html", page.html, SIZES);
            section.range("image", page.image, SIZES);
            section.range("images", page.images, 0..=1_000);
            if let Some((query, rows)) = page.query {
                section.range("query", query, SIZES);
                section.range("query", rows, SIZES);
            }
        }
    }
}

impl Pattern {
    fn check(self, section: &mut Section<'_>) {
        let repeated = |mut section: Section<'_>, repeated: Repeated| {
            section.range("size", repeated.size, SIZES);
            section.range("count", repeated.count, 2..=1_000_000);
        };
        match self {
            Self::Broadcast(it) => repeated(section.table("broadcast"), it),
            Self::AllToAll(it) => repeated(section.table("all-to-all"), it),
            Self::Factorise(it) => {
                let mut section = section.table("factorise");
                section.range("order", it.order, 2..=20_000);
                section.range("block", it.block, 1..=it.order.max(2) / 2);
                section.range("speed", it.speed, 0.001..=1_000.0);
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

/// Returns the name of the variant for a run.
pub(super) fn variant_name(host: &HostSpec, point: &NetworkPoint) -> String {
    format!("{}/{}", host.name.get_ref(), point.name.get_ref())
}
