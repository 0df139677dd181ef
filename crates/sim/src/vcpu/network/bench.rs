//! Construction of hosts, and their measurements.

use super::frame::Frame;
use super::net::{Net, Station, TalkingHost};
use super::spec::{HostSpec, NetworkPoint, Networks};
use crate::xen_host::{Cpus, Early, Seat, Steps};
use std::collections::BTreeMap;
use tailbound_dataplane::Snoop;
use tailbound_hypervisor::{Domain, Load, PcpuId, SimulationConfig, VcpuId};
use tailbound_report::{Series, Value, Variant};
use tailbound_units::Nanos;

/// Limit of a load's duration, in virtual time.
pub(super) const LIMIT: Nanos = Nanos::from_secs(1_000_000);
/// The guest with connections, behind the driver domain.
pub(super) const TALKER: VcpuId = VcpuId(1);

/// Measurements of a point.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) values: BTreeMap<String, Value>,
    pub(super) series: BTreeMap<String, Series>,
    /// Progress of a sender: time in nanoseconds and bytes.
    pub(super) sequence: Vec<(f64, f64)>,
}

/// Inputs of a run: the kind of hosts, the point and the seed.
pub(super) struct Bench<'b> {
    pub(super) networks: &'b Networks,
    pub(super) host: &'b HostSpec,
    pub(super) point: &'b NetworkPoint,
    pub(super) seed: u64,
}

impl Bench<'_> {
    /// Returns a network of `hosts` hosts of the kind, with these stations.
    pub(super) fn net(&self, hosts: u64, stations: Vec<Station>) -> Result<Net, String> {
        let hosts: Result<Vec<TalkingHost>, String> = (0..hosts).map(|at| self.host(at)).collect();
        Ok(Net::new(self.point.tcp.tcp(), hosts?, stations))
    }

    /// Returns the host with this number; each has its own load pattern.
    pub(super) fn host(&self, number: u64) -> Result<TalkingHost, String> {
        let (host, point) = (self.host, self.point);
        let conditions = &self.networks.network;
        let seat = |index: u32| Seat {
            kind: match index {
                0 => "driver",
                1 => "guest",
                _ => "neighbour",
            },
            domain: Domain::default(),
            core: [PcpuId(u32::from(point.own_core && index > 0))]
                .into_iter()
                .collect(),
        };
        let seats: Vec<Seat> = (0..=point.machines).map(seat).collect();
        let cpus = Cpus {
            pcpus: 1 + u32::from(point.own_core),
            scheduler: &host.scheduler(),
            costs: conditions.costs,
            config: SimulationConfig {
                seed: self.seed ^ (number * 0x5eed),
                timer_slop: conditions.timer_slop,
            },
        };
        let mut guests = cpus.guests(&seats)?;
        for guest in (1..=point.machines).map(VcpuId) {
            let load = match point.own_load {
                Some(own) if guest == TALKER => own,
                _ => point.load,
            };
            let work = Nanos(conditions.period.0 * u64::from(load) / 100);
            if load > 0 {
                let load = Load::Bursts {
                    work,
                    sleep: conditions.period - work,
                    jitter: conditions.jitter,
                };
                guests.start_load(guest, load);
            }
        }
        let steps = Steps {
            hears: host.hears.unwrap_or(conditions.hears),
            ..Steps::PAPER
        };
        let early = || {
            let snoop = host.snoop.map(|config| Snoop::new(config, ()));
            snoop.map(|it| -> Box<dyn Early<Frame>> { Box::new(it) })
        };
        Ok(TalkingHost::new(guests, host.netif, steps, early))
    }
}

impl Figures {
    /// Returns single values: name, figure and unit of each.
    pub(super) fn of<const N: usize>(values: [(&str, f64, &str); N]) -> Self {
        Self {
            values: Variant::of_values("", values).values,
            ..Self::default()
        }
    }
}

/// Counters of the hosts.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) dropped: u64,
    pub(super) early: u64,
    pub(super) withheld: u64,
    pub(super) resets: u64,
}

impl Counts {
    pub(super) fn of(net: &Net) -> Self {
        let mut counts = Self {
            resets: net.resets(),
            ..Self::default()
        };
        for host in net.hosts() {
            counts.dropped += host.dropped();
            for stats in host.snooped() {
                counts.early += stats.early;
                counts.withheld += stats.withheld;
            }
        }
        counts
    }
}
