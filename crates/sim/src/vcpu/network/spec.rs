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
    /// Between two transfers, or two pings: 0 to this, evenly.
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
    /// What [`Conditions::hears`] says, if it is something else here.
    pub hears: Option<Nanos>,
    /// The host that how much it gets done is divided by, for the value `times`.
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
    /// Guests on a core, the one that talks included.
    pub machines: u32,
    /// How much of a core each of them computes, in percent,
    pub load: u32,
    /// and how much the one that talks, beside that; as much as the others if nothing is said.
    pub own_load: Option<u32>,
    /// The driver domain has a core of its own.
    #[serde(default)]
    pub own_core: bool,
    /// What is done over the network.
    pub work: Work,
}

/// What is done over the network.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Transfers to a guest, each over a connection of its own.
    Transfers(TransferSpec),
    /// Pings of a guest, one after the other.
    Pings(PingSpec),
    /// Clients of a web server with a database behind it, each a guest of a host of its own.
    Web(WebSpec),
    /// Four guests of four hosts that compute together and pass messages.
    Messages(Pattern),
}

/// Transfers to a guest.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferSpec {
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
    /// Who receives.
    #[serde(default)]
    pub receiver: Receiver,
    /// Whether the transfer of median length goes into the chart `sequence`.
    #[serde(default)]
    pub trace: bool,
}

/// Who receives.
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
    /// How many.
    pub count: u32,
    /// From one to the next, and [`Conditions::pause`] longer at most.
    pub interval: Nanos,
}

/// Clients that ask for the next page as soon as they have one, each over a connection that
/// stays, as does one to the database for each.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebSpec {
    /// How many.
    pub clients: u32,
    /// How long they are counted, behind a tenth of it that is not.
    pub duration: Nanos,
    /// What they ask for.
    pub page: Vec<PageSpec>,
}

/// A page: the server asks the database, answers, and is asked for the images one by one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSpec {
    /// How often it is asked for, against the others.
    pub share: u32,
    /// The length of a request for it or for an image.
    pub request: Bytes,
    /// The server's CPU time for it.
    pub cpu: Nanos,
    /// The length of the query, and of its answer; none: the database is not asked.
    pub query: Option<(Bytes, Bytes)>,
    /// The database's CPU time.
    #[serde(default)]
    pub query_cpu: Nanos,
    /// The length of the page.
    pub html: Bytes,
    /// Images on it,
    pub images: u32,
    /// the length of each,
    pub image: Bytes,
    /// and the server's CPU time for each.
    pub image_cpu: Nanos,
}

/// Who of four guests sends to whom, over connections that stay.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One to all, by a binomial tree; another one each time.
    Broadcast(Repeated),
    /// Each to each: up to 32 KiB all at once, beyond in pairs.
    AllToAll(Repeated),
    /// A system of equations.
    Factorise(Equations),
}

/// Messages of a length, again and again.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// The length of a message.
    pub size: Bytes,
    /// How often all of them are sent; the first tenth is not counted.
    pub count: u32,
}

/// A system of equations, in blocks of columns: in turn each of four factors a block and sends
/// it around a ring, and all work it into theirs.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equations {
    /// How many equations.
    pub order: u32,
    /// Columns of a block.
    pub block: u32,
    /// Operations a nanosecond of CPU time.
    pub speed: f64,
}

const fn one() -> u32 {
    1
}

const SIZES: RangeInclusive<Bytes> = Bytes(1)..=Bytes(1 << 30);
const COUNTS: RangeInclusive<u32> = 1..=1_000_000;

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

    /// The value that says how much gets done, if one does.
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

/// The name of the variant for a run.
pub(super) fn variant_name(host: &HostSpec, point: &NetworkPoint) -> String {
    format!("{}/{}", host.name.get_ref(), point.name.get_ref())
}
