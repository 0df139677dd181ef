//! Hosts whose guests wait for their CPUs: a frame passes the driver domain, the guest's ring and
//! its vCPU ([`XenHost`]), and a message waits until its guest runs.

use super::attribution::Parts;
use super::inside::Inside;
use super::packet::{GuestSeat, Packet};
use super::sizes::Kind;
use super::snooped::{OpenEnd, handshake, snoop};
use crate::net::{NodeId, Time, TournamentQueue};
use crate::scheduler::SchedulerSpec;
use crate::xen_host::{Cpus, Output, Seat, Steps, XenHost};
use serde::Deserialize;
use std::fmt;
use tailbound_dataplane::SnoopConfig;
use tailbound_experiment::{Name, Section};
use tailbound_hypervisor::netif::NetifConfig;
use tailbound_hypervisor::{
    Costs, DEFAULT_WEIGHT, Domain, Load, PcpuId, PcpuSet, Simulation, SimulationConfig, VcpuId,
    Wake, Workload,
};
use tailbound_units::Nanos;

/// A kind of host under Xen.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Name in settings.
    pub name: Name,
    /// CPU scheduler, for guests `driver`, `guest` and `neighbour`.
    pub scheduler: SchedulerSpec,
    /// Physical CPUs for guests; 1.
    #[serde(default = "one")]
    pub cores: u32,
    /// The driver domain runs on the first of them, instead of its own.
    #[serde(default)]
    pub driver_shares: bool,
    /// Largest CPU time of a guest, in percent of one pCPU; 0: no cap.
    #[serde(default)]
    pub cap: u32,
    /// Guests without messages.
    #[serde(default)]
    pub neighbours: Vec<NeighbourSpec>,
    /// Costs of switches.
    #[serde(default)]
    pub costs: Costs,
    /// Shortest expiry of a guest's timer.
    #[serde(default)]
    pub timer_slop: Nanos,
    /// Network devices.
    #[serde(default)]
    pub netif: NetifConfig,
    /// Early acknowledgement at the guests' rings; none.
    pub snoop: Option<SnoopConfig>,
    /// CPU time of the driver domain per frame, either way.
    #[serde(default = "driver")]
    pub driver: Nanos,
    /// CPU time of a guest per received frame, with TCP.
    #[serde(default = "guest")]
    pub guest: Nanos,
    /// CPU time of a guest per written message, and per timer of TCP; 2 us.
    #[serde(default = "call")]
    pub call: Nanos,
}

/// A guest without messages.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourSpec {
    /// Its load.
    pub load: Load,
    /// Pinned to this core, from 0; any.
    pub core: Option<u32>,
}

/// Guests of a host with messages: the core that each is pinned to, if any.
pub(super) type Talkers = Vec<Option<u32>>;

const fn one() -> u32 {
    1
}
const fn driver() -> Nanos {
    Steps::PAPER.driver
}
const fn guest() -> Nanos {
    Steps::PAPER.guest
}
const fn call() -> Nanos {
    Nanos::from_micros(2)
}

impl MachineSpec {
    pub(super) fn check(&self, guests: &Talkers, section: &mut Section<'_>) {
        section.range("cores", self.cores, 1..=PcpuSet::CAPACITY - 1);
        section.count("neighbours", self.neighbours.len(), 0..=32);
        let times = Nanos(100)..=Nanos::from_millis(10);
        for (key, time) in [
            ("driver", self.driver),
            ("guest", self.guest),
            ("call", self.call),
        ] {
            section.range(key, time, times.clone());
        }
        if let Some(mistake) = self.snoop.and_then(|it| it.mistake()) {
            section.at("snoop", mistake);
        }
        section.hold("scheduler", self.try_it(guests));
    }

    /// Builds a host once, because the scheduler and the neighbours' loads check themselves when
    /// they are created.
    fn try_it(&self, guests: &Talkers) -> Result<(), String> {
        let seats = self.seats(guests);
        let loads = self.neighbours.iter().map(|it| Workload::load(it.load));
        let mut workloads = vec![Workload::default(); seats.len() - self.neighbours.len()];
        workloads.extend(loads);
        let machine = self.cpus(0).machine(&seats)?;
        let tried = Simulation::new(machine, &workloads, SimulationConfig::default());
        tried.map(drop).map_err(|error| error.to_string())
    }

    fn cpus(&self, seed: u64) -> Cpus<'_> {
        Cpus {
            pcpus: self.cores + u32::from(!self.driver_shares),
            scheduler: &self.scheduler,
            costs: self.costs,
            config: SimulationConfig {
                seed,
                timer_slop: self.timer_slop,
            },
        }
    }

    /// Returns the driver domain, the guests with messages, and the neighbours.
    fn seats(&self, guests: &Talkers) -> Vec<Seat> {
        let own = PcpuId(if self.driver_shares { 0 } else { self.cores });
        let seat = |kind, core: Option<u32>| Seat {
            kind,
            domain: Domain {
                weight: DEFAULT_WEIGHT,
                cap: self.cap,
            },
            core: match core {
                Some(core) => PcpuSet::first(self.cores).and(&[PcpuId(core)].into_iter().collect()),
                None => PcpuSet::first(self.cores),
            },
        };
        let mut seats = vec![Seat {
            kind: "driver",
            domain: Domain::default(),
            core: [own].into_iter().collect(),
        }];
        seats.extend(guests.iter().map(|core| seat("guest", *core)));
        let neighbours = self.neighbours.iter();
        seats.extend(neighbours.map(|it| seat("neighbour", it.core)));
        seats
    }

    fn build(&self, guests: &Talkers, seed: u64) -> Result<Machine, String> {
        let mut all = self.cpus(seed).guests(&self.seats(guests))?;
        for (vcpu, neighbour) in (1 + guests.len()..).zip(&self.neighbours) {
            all.start_load(VcpuId(vcpu as u32), neighbour.load);
        }
        let steps = Steps {
            driver: self.driver,
            guest: self.guest,
            ..Steps::PAPER
        };
        Ok(Machine {
            host: XenHost::new(all, self.netif, steps, || self.snoop.map(snoop)),
            call: self.call,
        })
    }
}

/// A message to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fresh {
    pub(super) begun: Nanos,
    pub(super) asked: Nanos,
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) before: Parts,
}

/// Work of a guest besides receiving.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// Writing of a message to a connection.
    Write(u32, Fresh),
    /// Timer of a connection in its TCP.
    Timer(u32),
}

/// Output of a host.
pub(super) type Handed = Output<Inside, Work>;

struct Machine {
    host: XenHost<Inside, Work>,
    call: Nanos,
}

/// All hosts under Xen, by the number of the host.
pub(super) struct Machines {
    hosts: Vec<Option<Box<Machine>>>,
    due: TournamentQueue,
    /// True if at least one of them acknowledges early.
    snoops: bool,
}

impl fmt::Debug for Machines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machines").finish_non_exhaustive()
    }
}

impl Machines {
    /// Creates the hosts. `specs` has the kind of each host and its guests; on a host without one,
    /// frames and messages take no time.
    ///
    /// # Errors
    /// Reason for which a scheduler refuses the configuration.
    pub(super) fn new(
        specs: &[Option<(&MachineSpec, Talkers)>],
        seed: u64,
    ) -> Result<Self, String> {
        let snoops = specs.iter().flatten().any(|it| it.0.snoop.is_some());
        let mut hosts = Vec::new();
        for (number, spec) in (0_u64..).zip(specs) {
            // Each host has its own load pattern.
            let seed = seed ^ number.wrapping_mul(0x5eed);
            let host = spec.as_ref().map(|(spec, guests)| spec.build(guests, seed));
            hosts.push(host.transpose()?.map(Box::new));
        }
        let mut all = Self {
            due: TournamentQueue::new(hosts.len().max(1)),
            hosts,
            snoops,
        };
        (0..specs.len()).for_each(|number| all.look(number as u32));
        Ok(all)
    }

    /// Returns no hosts: frames and messages take no time in them.
    pub(super) fn nowhere() -> Self {
        Self {
            hosts: Vec::new(),
            due: TournamentQueue::new(1),
            snoops: false,
        }
    }

    fn machine(&mut self, host: u32) -> Option<&mut Machine> {
        self.hosts.get_mut(host as usize)?.as_deref_mut()
    }

    pub(super) fn has(&self, host: u32) -> bool {
        self.hosts.get(host as usize).is_some_and(Option::is_some)
    }

    fn look(&mut self, host: u32) {
        if let Some(machine) = self.machine(host) {
            let at = machine.host.poll_at();
            self.due.set(NodeId(host), at.into());
        }
    }

    pub(super) fn poll_at(&self) -> Time {
        self.due.first().0
    }

    /// Returns a host that has an event by now.
    pub(super) fn due(&self, now: Nanos) -> Option<u32> {
        let (at, host) = self.due.first();
        (at <= now.into()).then_some(host.0)
    }

    /// Advances one host to `now`, or to its next output.
    pub(super) fn poll(&mut self, now: Nanos, host: u32) -> Option<Handed> {
        let handed = self.machine(host)?.host.poll(now);
        if handed.is_none() {
            self.look(host);
        }
        handed.map(|(_, output)| output)
    }

    /// Delivers a packet to a guest's host, which must be at `now`.
    pub(super) fn arrive(&mut self, now: Nanos, seat: GuestSeat, packet: Packet) {
        if let Some(machine) = self.machine(seat.host) {
            machine
                .host
                .arrive(now, VcpuId(seat.guest), Inside::new(packet));
            self.look(seat.host);
        }
    }

    /// Adds work for a guest; its host must be at `now`.
    pub(super) fn work(&mut self, seat: GuestSeat, work: Work, cause: Wake) {
        if let Some(machine) = self.machine(seat.host) {
            let call = machine.call;
            machine.host.work(VcpuId(seat.guest), work, call, cause);
            self.look(seat.host);
        }
    }

    /// Sends a packet of a guest, in the time of its current work.
    pub(super) fn send(&mut self, seat: GuestSeat, packet: Packet) {
        if let Some(machine) = self.machine(seat.host) {
            machine.host.send(VcpuId(seat.guest), Inside::new(packet));
            self.look(seat.host);
        }
    }

    /// Opens a guest's end of a connection, with this window.
    pub(super) fn open(&mut self, seat: GuestSeat, end: OpenEnd) {
        if let Some(machine) = self.machine(seat.host) {
            machine.host.shake(VcpuId(seat.guest), handshake(end));
        }
    }

    /// True if early acknowledgement may have changed received segments.
    pub(super) const fn snoops(&self) -> bool {
        self.snoops
    }

    /// Number of segments that hosts acknowledged before their guests did.
    pub(super) fn acknowledged_early(&self) -> u64 {
        let hosts = self.hosts.iter().flatten();
        hosts
            .flat_map(|it| it.host.snooped())
            .map(|it| it.early)
            .sum()
    }

    /// Number of frames that were dropped because a ring was full.
    pub(super) fn dropped(&self) -> u64 {
        let hosts = self.hosts.iter().flatten();
        hosts.map(|it| it.host.dropped()).sum()
    }
}
