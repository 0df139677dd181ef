//! Hosts whose guests wait for their CPUs: a frame passes the driver domain, the guest's ring and
//! its vCPU ([`XenHost`]), and a message waits until its guest runs.

use super::attribution::Parts;
use super::inside::Inside;
use super::packet::Packet;
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
    /// What settings call it.
    pub name: Name,
    /// Who runs when; the kinds of guests are `driver`, `guest` and `neighbour`.
    pub scheduler: SchedulerSpec,
    /// pCPUs for guests.
    #[serde(default = "one")]
    pub cores: u32,
    /// Whether the driver domain runs on the first of them, and not on one of its own.
    #[serde(default)]
    pub driver_shares: bool,
    /// The most CPU time that a guest may use, in percent of one pCPU; 0 is no cap.
    #[serde(default)]
    pub cap: u32,
    /// What the guests do that do not talk, one each.
    #[serde(default)]
    pub neighbours: Vec<NeighbourSpec>,
    /// What changing the vCPU of a pCPU costs.
    #[serde(default)]
    pub costs: Costs,
    /// No timer of a guest fires sooner than this after it is set.
    #[serde(default)]
    pub timer_slop: Nanos,
    /// The guests' network devices.
    #[serde(default)]
    pub netif: NetifConfig,
    /// Early acknowledgement at the guests' rings, as the data path does it; without it, none.
    pub snoop: Option<SnoopConfig>,
    /// CPU time of the driver domain for a frame, either way.
    #[serde(default = "driver")]
    pub driver: Nanos,
    /// CPU time of a guest for a frame that comes, with its TCP.
    #[serde(default = "guest")]
    pub guest: Nanos,
    /// CPU time of a guest until it writes a message, and for a timer of its TCP.
    #[serde(default = "call")]
    pub call: Nanos,
}

/// A guest that does not talk.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourSpec {
    /// What it does.
    pub load: Load,
    /// The core that it is pinned to, from 0; without it, any.
    pub core: Option<u32>,
}

/// The guests that talk on a host: the core that each is pinned to, if it is.
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

    /// Finds what the scheduler and the neighbours' loads refuse: they say so when they are made.
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

    /// The driver domain, the guests that talk, and the neighbours.
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

/// A message that is to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fresh {
    pub(super) begun: Nanos,
    pub(super) asked: Nanos,
    pub(super) kind: Kind,
    pub(super) size: u64,
    pub(super) before: Parts,
}

/// What a guest does beside receiving.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// It writes a message on a connection.
    Write(u32, Fresh),
    /// Its TCP looks at the timer of a connection.
    Timer(u32),
}

/// What a host hands over.
pub(super) type Handed = Output<Inside, Work>;

struct Machine {
    host: XenHost<Inside, Work>,
    call: Nanos,
}

/// All hosts under Xen, by the number of the host.
pub(super) struct Machines {
    hosts: Vec<Option<Box<Machine>>>,
    due: TournamentQueue,
    /// Whether one of them acknowledges early.
    snoops: bool,
}

impl fmt::Debug for Machines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machines").finish_non_exhaustive()
    }
}

impl Machines {
    /// `specs` has what each host is, and who talks there; without one its frames and
    /// messages take no time there.
    ///
    /// # Errors
    /// What a scheduler refuses.
    pub(super) fn new(
        specs: &[Option<(&MachineSpec, Talkers)>],
        seed: u64,
    ) -> Result<Self, String> {
        let snoops = specs.iter().flatten().any(|it| it.0.snoop.is_some());
        let mut hosts = Vec::new();
        for (number, spec) in (0_u64..).zip(specs) {
            // Each is busy at other times.
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

    /// None: no host takes time.
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

    /// A host that has something to do by now.
    pub(super) fn due(&self, now: Nanos) -> Option<u32> {
        let (at, host) = self.due.first();
        (at <= now.into()).then_some(host.0)
    }

    /// Goes on to `now` with one host, or to what is to be handled first.
    pub(super) fn poll(&mut self, now: Nanos, host: u32) -> Option<Handed> {
        let handed = self.machine(host)?.host.poll(now);
        if handed.is_none() {
            self.look(host);
        }
        handed.map(|(_, output)| output)
    }

    /// A packet has come to a guest's host, which must be at `now`.
    pub(super) fn arrive(&mut self, now: Nanos, (host, guest): (u32, u32), packet: Packet) {
        if let Some(machine) = self.machine(host) {
            machine.host.arrive(now, VcpuId(guest), Inside::new(packet));
            self.look(host);
        }
    }

    /// A guest is to do something; its host must be at now.
    pub(super) fn work(&mut self, (host, guest): (u32, u32), work: Work, cause: Wake) {
        if let Some(machine) = self.machine(host) {
            let call = machine.call;
            machine.host.work(VcpuId(guest), work, call, cause);
            self.look(host);
        }
    }

    /// A guest sends a packet, in the time of what it is doing.
    pub(super) fn send(&mut self, (host, guest): (u32, u32), packet: Packet) {
        if let Some(machine) = self.machine(host) {
            machine.host.send(VcpuId(guest), Inside::new(packet));
            self.look(host);
        }
    }

    /// A guest's end of a connection is open from now on, and offers this window.
    pub(super) fn open(&mut self, (host, guest): (u32, u32), end: OpenEnd) {
        if let Some(machine) = self.machine(host) {
            machine.host.shake(VcpuId(guest), handshake(end));
        }
    }

    /// Whether early acknowledgement may have written into what comes.
    pub(super) const fn snoops(&self) -> bool {
        self.snoops
    }

    /// Segments that hosts acknowledged before their guests did.
    pub(super) fn acknowledged_early(&self) -> u64 {
        let hosts = self.hosts.iter().flatten();
        hosts
            .flat_map(|it| it.host.snooped())
            .map(|it| it.early)
            .sum()
    }

    /// Frames that rings had no room for.
    pub(super) fn dropped(&self) -> u64 {
        let hosts = self.hosts.iter().flatten();
        hosts.map(|it| it.host.dropped()).sum()
    }
}
