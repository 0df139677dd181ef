//! State of a daemon, as plain data: another thread writes it from a copy of the packet loop's
//! counters.

use crate::control::WatchStatus;
use crate::guarantees::{AuthoredLimit, GuaranteesSnapshot};
use crate::inventory::{Inventory, Item};
use crate::metrics::HostCounts;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use tailbound_dataplane::ShaperConfig;
use tailbound_metrics::Histogram;
use tailbound_switch::{self as switch, GuestSnapshot, Mac, PortSnapshot, Sojourn};
use tailbound_units::{Nanos, Rate};

/// A daemon, its uplink and its guests. Counts begin with the daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// The process ID.
    pub pid: u32,
    /// The running time of the daemon, in nanoseconds.
    pub uptime_ns: u64,
    /// The path of the configuration.
    pub config: PathBuf,
    /// The path of the file of added guests.
    pub added: PathBuf,
    /// The uplink; left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<Port>,
    /// The packet loop; left out by older daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_loop: Option<PacketLoop>,
    /// The guests, in the order of the configuration.
    pub guests: Vec<Guest>,
    /// The placement service as this host knows it; left out without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceStatus>,
    /// The number of reloads that were refused.
    #[serde(default)]
    pub reloads_refused: u64,
}

/// The connection to the placement service, and its guarantees for this host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// True if the stream of guarantees is open.
    pub connected: bool,
    /// The time since the last message; left out before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ns: Option<u64>,
    /// The revision of the guarantees in force; left out before the first ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// True if guarantees are refused, because the topology has other classes than this host.
    pub classes_differ: bool,
    /// The VMs that the service placed here and that no guest represents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_guest: Vec<String>,
    /// The guests whose VMs the service has not placed here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<String>,
}

impl ServiceStatus {
    fn of(watch: WatchStatus, guarantees: &GuaranteesSnapshot) -> Self {
        let service = guarantees.service.as_ref();
        let machines = guarantees.machines.iter();
        let unplaced = machines.filter(|machine| machine.known.is_none());
        let silent = watch.heard.map(|heard| heard.elapsed().as_nanos());
        Self {
            connected: watch.connected,
            silent_ns: silent.map(|silent| u64::try_from(silent).unwrap_or(u64::MAX)),
            revision: service.map(|service| service.revision),
            classes_differ: guarantees.classes_differ,
            without_guest: service.map_or_else(Vec::new, |it| it.without_guest.clone()),
            unplaced: unplaced.map(|machine| machine.guest.clone()).collect(),
        }
    }
}

/// The timeliness of the packet loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketLoop {
    /// True if the loop has a real-time class.
    pub real_time: bool,
    /// The time in nanoseconds for which the clock of a paced uplink stood, as frames were due and
    /// the wire did not get them.
    pub frozen_ns: u64,
}

/// A port, and its traffic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The guest's name, or `uplink`.
    pub name: String,
    /// The port's kind and interface.
    pub port: String,
    /// The state of the port.
    pub link: Link,
    /// The traffic received from the port: a guest has sent it.
    pub received: Count,
    /// The traffic sent to the port.
    pub sent: Count,
    /// Packets dropped, by reason; only reasons that occurred. `pacer` is the number of a guest's
    /// packets that the pacer dropped, `interface` the number that an interface of kind af-packet
    /// has dropped since its creation.
    pub drops: BTreeMap<String, u64>,
    /// The queue in front of the port.
    pub backlog: Count,
}

/// State of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// The interface is there, or the guest uses its card.
    Up,
    /// The guest is on another host, or not running: its card is not in use.
    Away,
    /// The interface is missing.
    #[default]
    Down,
}

impl Link {
    /// Returns the word for the state.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Away => "away",
            Self::Down => "down",
        }
    }
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets; one of 64 KiB counts once.
    pub packets: u64,
    /// Bytes, from the Ethernet header on.
    pub bytes: u64,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// The guest's port.
    #[serde(flatten)]
    pub port: Port,
    /// The source of the guest's configuration.
    pub kept: GuestSource,
    /// The guest's VM in the placement service; left out if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
    /// The guest's MAC address; left out by older daemons.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "mac_or_numbers"
    )]
    pub mac: Option<Mac>,
    /// The guest's first IPv4 address; left out if its configuration has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4Addr>,
    /// True if the guest's port is not read, as it is drained.
    pub drained: bool,
    /// The guarantee in force; left out for best effort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// The guest's rate limits; left out if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limits>,
    /// True if the guest's configured guarantee is refused because it breaks a rule.
    pub guarantee_refused: bool,
    /// Memory of the guest's frames in the pacer, in bytes.
    pub paced_bytes: u64,
    /// Waiting times of packets in software queues.
    pub waits: Vec<Waits>,
}

/// A MAC address as text, or as the six numbers of schema 1: the daemon of the other host may
/// be an older one.
fn mac_or_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mac>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum MacForm {
        Text(Mac),
        Numbers([u8; 6]),
    }
    Ok(match MacForm::deserialize(deserializer)? {
        MacForm::Text(mac) => Some(mac),
        MacForm::Numbers(numbers) => Some(Mac(numbers)).filter(|_| numbers != [0; 6]),
    })
}

/// Source of a guest's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestSource {
    /// The configuration's file.
    File,
    /// The guest was added over the control socket.
    Socket,
}

/// The guarantee of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantee {
    /// The bandwidth in bits per second.
    pub bandwidth_bit_s: u64,
    /// The burst in bytes.
    pub burst_bytes: u64,
    /// The rate of the burst in bits per second.
    pub burst_rate_bit_s: u64,
    /// The author of the guarantee.
    pub by: GuaranteedBy,
}

/// The limits of a guest, of Ethernet frames without FCS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The limit of the traffic that the guest sends; left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<Limit>,
    /// The limit of the traffic to the guest; left out if there is none.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub inward: Option<Limit>,
}

/// A limit of one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// `bucket`, `smooth-window` or `credit`.
    pub kind: String,
    /// The rate in bits per second.
    pub rate_bit_s: u64,
    /// The author of the limit.
    pub by: GuaranteedBy,
}

impl Limits {
    fn of(authored: &AuthoredLimit) -> Self {
        let limit = |kind: &str, rate: Rate, by_service: bool| Limit {
            kind: kind.to_owned(),
            rate_bit_s: rate.0,
            by: GuaranteedBy::of(by_service),
        };
        let out = authored.limit.out.as_ref().map(|out| {
            let kind = match out {
                ShaperConfig::Bucket(_) => "bucket",
                ShaperConfig::SmoothWindow(_) => "smooth-window",
                ShaperConfig::Credit(_) => "credit",
            };
            limit(kind, out.rate(), authored.is_out_by_service)
        });
        let inward = authored.limit.inward;
        let by_service = authored.is_in_by_service;
        Self {
            out,
            inward: inward.map(|inward| limit("bucket", inward.rate, by_service)),
        }
    }
}

impl GuaranteedBy {
    const fn of(by_service: bool) -> Self {
        if by_service {
            Self::Service
        } else {
            Self::Configuration
        }
    }
}

/// The author of a guarantee or a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuaranteedBy {
    /// The guest's section.
    Configuration,
    /// The placement service.
    Service,
}

/// Waiting times of packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// `sent` by the guest, or `received` by it.
    pub direction: String,
    /// `guaranteed`, `small` or `lowest`.
    pub class: String,
    /// The number of packets by waiting time; only buckets with packets.
    pub buckets: Vec<Bucket>,
}

/// Number of packets that waited longer than the bucket before, and at most this long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Upper bound in nanoseconds; left out for the last bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to_ns: Option<u64>,
    /// The number of packets.
    pub count: u64,
}

/// All data to show at one moment.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) uptime: Nanos,
    pub(crate) counts: HostCounts,
    /// The connection to the placement service, if the host has one.
    pub(crate) watch: Option<WatchStatus>,
}

impl View {
    /// Returns the state to show.
    pub(super) fn show(&self) -> HostStatus {
        let Self {
            uptime,
            counts,
            watch,
        } = self;
        let inventory = &counts.inventory;
        let guarantees = counts.guarantees.snapshot();
        let service = watch.map(|watch| ServiceStatus::of(watch, &guarantees));
        let machines = guarantees.machines.iter();
        let by_service = machines.filter(|machine| machine.known.is_some());
        let by_service: HashSet<_> = by_service.map(|machine| machine.guest.as_str()).collect();
        let limits = counts.guarantees.limits_by_name();
        let uplink = counts
            .snapshot
            .uplink
            .as_ref()
            .map(|uplink| Port::of(&uplink.port, inventory));
        let guests = counts.snapshot.guests.iter().filter_map(|guest| {
            let name = guest.port.name.as_str();
            let item = inventory.guest(name)?;
            let by = GuaranteedBy::of(by_service.contains(name));
            let limit = limits.get(name).map(Limits::of);
            let terms = Terms { by, limit };
            Some(Guest::of(guest, item, terms, inventory))
        });
        let pacing = counts.snapshot.uplink.as_ref();
        let pacing = pacing.and_then(|uplink| uplink.pacing.as_ref());
        let packet_loop = PacketLoop {
            real_time: counts.class.is_real_time,
            frozen_ns: pacing.map_or(0, |pacing| pacing.stats.frozen.0),
        };
        HostStatus {
            pid: std::process::id(),
            uptime_ns: uptime.0,
            config: inventory.config().to_owned(),
            added: inventory.added().to_owned(),
            uplink,
            packet_loop: Some(packet_loop),
            guests: guests.collect(),
            service,
            reloads_refused: counts.reloads_refused,
        }
    }
}

impl Port {
    fn of(counted: &PortSnapshot, inventory: &Inventory) -> Self {
        let count = |(packets, bytes)| Count { packets, bytes };
        let mut drops = BTreeMap::new();
        for (reason, count) in &counted.drops {
            *drops.entry((*reason).to_owned()).or_default() += count;
        }
        let by_interface = inventory.dropped_by_interface(&counted.name);
        if let Some(count) = by_interface.filter(|count| *count > 0) {
            drops.insert("interface".to_owned(), count);
        }
        let port = inventory.port(&counted.name);
        Self {
            name: counted.name.clone(),
            port: port.map_or_else(String::new, ToString::to_string),
            link: match counted.link {
                switch::Link::Up => Link::Up,
                switch::Link::Away => Link::Away,
                switch::Link::Down => Link::Down,
            },
            received: count(counted.received),
            sent: count(counted.sent),
            drops,
            backlog: count((counted.backlog_packets as u64, counted.backlog_bytes.0)),
        }
    }

    /// Returns the number of dropped packets, for all reasons.
    pub fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }
}

/// The terms of a guest's traffic: the author of its guarantee, and its limits.
struct Terms {
    by: GuaranteedBy,
    limit: Option<Limits>,
}

impl Guest {
    fn of(counted: &GuestSnapshot, item: &Item, terms: Terms, inventory: &Inventory) -> Self {
        let Terms { by, limit } = terms;
        let pacing = counted.pacing.as_ref();
        let guarantee = pacing.and_then(|pacing| pacing.guarantee);
        let mut port = Port::of(&counted.port, inventory);
        if let Some(dropped) = pacing.map(|pacing| pacing.stats.dropped)
            && dropped > 0
        {
            port.drops.insert("pacer".to_owned(), dropped);
        }
        Self {
            port,
            kept: if item.is_added {
                GuestSource::Socket
            } else {
                GuestSource::File
            },
            vm: item.vm.clone(),
            mac: Some(Mac(item.mac)),
            ipv4: item.ipv4(),
            drained: counted.drained,
            guarantee: guarantee.map(|guarantee| Guarantee {
                bandwidth_bit_s: guarantee.bandwidth.0,
                burst_bytes: guarantee.burst.0,
                burst_rate_bit_s: guarantee.burst_rate.0,
                by,
            }),
            limit,
            guarantee_refused: pacing.is_some_and(|pacing| pacing.refused),
            paced_bytes: pacing.map_or(0, |pacing| pacing.held.0),
            waits: counted.sojourns.iter().map(Waits::of).collect(),
        }
    }
}

impl Waits {
    fn of(sojourn: &Sojourn) -> Self {
        let counts = sojourn.histogram.counts().iter().enumerate();
        let counts = counts.filter(|(_, count)| **count > 0);
        Self {
            direction: sojourn.direction.to_owned(),
            class: sojourn.class.to_owned(),
            buckets: counts
                .map(|(index, count)| Bucket {
                    up_to_ns: (index < Histogram::BUCKETS)
                        .then(|| (Histogram::bound(index) * 1e9) as u64),
                    count: *count,
                })
                .collect(),
        }
    }
}
