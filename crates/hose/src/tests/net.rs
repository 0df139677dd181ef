//! Hosts, machines and a network between them that loses, delays, doubles and
//! reorders, in virtual time. The hosts run the state that real ones run.

use super::golden::Trace;
use super::paced::Paces;
use crate::{
    Address, Change, ClassesCode, Destination, DropReason, Epoch, FlowKey, GuestId, HoseConfig,
    HoseState, HostId, Incoming, Key, KeyEpoch, Machine, PairKeys, Receiver, ReceiverLimits,
    Secret, SenderId, Station, TimeOfDay, Usage,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tailbound_units::{Bytes, Nanos, Rate};

pub(super) const SECRET: &[u8] = b"a secret that all of the hosts share";
pub(super) const INTERVAL: Nanos = Nanos::from_millis(1);
/// The time of day at the beginning of virtual time.
const DAY: u64 = 1_800_000_000_000_000_000;

/// The key of two hosts of a net in an epoch.
pub(super) fn key_of(epoch: KeyEpoch, one: usize, other: usize) -> Key {
    let secret = Secret::new(SECRET).unwrap();
    secret.pair_key(epoch, &name(one), &name(other))
}

/// The key of two hosts of a net, of the secret that they have themselves.
pub(super) fn key(one: usize, other: usize) -> Key {
    key_of(KeyEpoch::OWN, one, other)
}

/// Pseudo-random numbers (xorshift64*), so that a run can be repeated.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True with `percent` in a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Faults of the network; percentages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    pub(super) loss: u64,
    pub(super) doubled: u64,
    /// Largest additional delay of a datagram.
    pub(super) jitter: Nanos,
}

impl Faults {
    pub(super) const NONE: Self = Self {
        loss: 0,
        doubled: 0,
        jitter: Nanos::ZERO,
    };
}

pub(super) struct Host {
    pub(super) state: HoseState,
    /// Pacer of its guests' packets; without it their traffic is that of `demands`.
    pub(super) paces: Option<Paces>,
    pub(super) machines: Vec<Machine>,
    /// The limits that are set, as the pacer has them.
    pub(super) rates: BTreeMap<FlowKey, u64>,
    /// Lent bytes of inward bursts, as the pacer has them.
    pub(super) lent: BTreeMap<FlowKey, u64>,
    /// Limits on traffic from other hosts: the source and the rate of each sender to a guest.
    pub(super) incoming: BTreeMap<(GuestId, SenderId), (Destination, Rate)>,
    /// Limits on the total traffic to its guests.
    pub(super) receivers: BTreeMap<GuestId, ReceiverLimits>,
    /// Every change of a limit since it was looked at.
    pub(super) changed: Vec<Change>,
    /// Demands of guests: bits a second by destination.
    pub(super) demands: BTreeMap<FlowKey, u64>,
    /// Flows whose demand was set since the last turn.
    fresh: Vec<FlowKey>,
    /// Missing bytes of the buckets that are not full.
    lacks: BTreeMap<FlowKey, Bytes>,
    /// Start of its clock.
    born: Nanos,
    next_sample: Nanos,
    sampled: Nanos,
    /// Error of its time of day, in ns; positive if it is ahead.
    pub(super) clock_error: i64,
    /// Classes of its frames from its next start on.
    pub(super) classes: ClassesCode,
    /// Time for which its frames leave at a former rate.
    pub(super) commitment: Nanos,
    /// Former rates of its flows, with the moments at which they ended.
    former: Vec<(Nanos, FlowKey, u64)>,
    /// The start of its daemon: before, frames leave by the rates of a former one.
    quiet_until: Nanos,
}

pub(super) struct Net {
    pub(super) now: Nanos,
    /// Duration of a host's sleep.
    pub(super) slice: Nanos,
    pub(super) hosts: Vec<Host>,
    pub(super) faults: Faults,
    /// Smallest delay of a datagram.
    pub(super) takes: Nanos,
    pub(super) random: Random,
    /// Hosts without connection to the others.
    pub(super) cut: Vec<bool>,
    /// On their way: when, which of them, to whom.
    flying: BTreeMap<(Nanos, u64), (usize, Vec<u8>)>,
    count: u64,
    /// All datagrams so far, if they are recorded.
    pub(super) tapped: Option<Vec<(usize, Vec<u8>)>>,
    pub(super) datagrams: u64,
    /// All outputs of hosts, if they are recorded.
    pub(super) trace: Option<Trace>,
}

pub(super) fn address(host: usize, guest: u32) -> Address {
    Address(0xffff_0a00_0000 + ((host as u128) << 8) + u128::from(guest))
}

/// Returns the flow of a guest to another.
fn flow(from: (usize, u32), to: (usize, u32)) -> FlowKey {
    FlowKey {
        guest: GuestId(from.1.into()),
        destination: Destination::Address(address(to.0, to.1)),
    }
}

/// The station of a machine that has one.
pub(super) fn station(host: usize, guest: u32) -> Station {
    Station::new([2, 0, 0, 0, host as u8, guest as u8]).unwrap()
}

fn name(host: usize) -> String {
    format!("host-{host}")
}

/// Guest `guest` of host `host`, one of `machines` of the tenant.
pub(super) fn machine(host: usize, guest: u32, bandwidth: Rate, machines: u32) -> Machine {
    Machine {
        guest: GuestId(guest.into()),
        name: format!("acme/web/{}", host * 100 + guest as usize),
        station: None,
        addresses: vec![address(host, guest)],
        bandwidth,
        // No more than a frame, so that buckets are full at once.
        burst: Bytes(1538),
        inward: None,
        tenant_machines: machines,
    }
}

impl Net {
    /// Makes a host for each of `machines`; all start at the same time.
    pub(super) fn new(machines: Vec<Vec<Machine>>, faults: Faults, seed: u64) -> Self {
        let mut random = Random(seed | 1);
        let count = machines.len();
        let hosts = machines.into_iter().enumerate();
        let hosts = hosts
            .map(|(index, machines)| {
                let born = Nanos(random.below(1_000_000));
                let classes = ClassesCode::NONE;
                Host::new(index, count, machines, born, Nanos::ZERO, 0, classes)
            })
            .collect();
        Self {
            now: Nanos::from_millis(1),
            slice: Nanos::from_micros(20),
            hosts,
            faults,
            takes: Nanos::from_micros(100),
            random,
            cut: vec![false; count],
            flying: BTreeMap::new(),
            count: 0,
            tapped: None,
            datagrams: 0,
            trace: None,
        }
    }

    /// The daemon of a host dies and starts again, with clocks of its own; its
    /// guests' limits are those of the new one.
    pub(super) fn restart(&mut self, index: usize) {
        let count = self.hosts.len();
        let old = &mut self.hosts[index];
        let machines = std::mem::take(&mut old.machines);
        let demands = std::mem::take(&mut old.demands);
        let (clock_error, classes) = (old.clock_error, old.classes);
        let commitment = old.commitment;
        let mut former = std::mem::take(&mut old.former);
        former.extend(
            old.rates
                .iter()
                .map(|(flow, rate)| (self.now, *flow, *rate)),
        );
        let (now, born) = (self.now, self.random.below(self.now.0));
        let born = Nanos(now.0 - born);
        let mut host = Host::new(index, count, machines, born, now, clock_error, classes);
        if commitment > Nanos::ZERO {
            // The daemon begins when no frame leaves by rates of the former one.
            host.quiet_until = now + commitment;
            host.begin(index, count, host.quiet_until, commitment);
        }
        host.former = former;
        host.demands = demands;
        self.hosts[index] = host;
    }

    /// Lets a host enforce rates by departure times, which frames get up to `commitment` ahead.
    pub(super) fn commit(&mut self, index: usize, commitment: Nanos) {
        self.hosts[index].commitment = commitment;
        self.restart(index);
    }

    pub(super) fn run_for(&mut self, time: Nanos) {
        self.run_until(self.now + time, |_| {});
    }

    /// Runs until `end`; `look` is called at every moment at which anything may change.
    pub(super) fn run_until(&mut self, end: Nanos, mut look: impl FnMut(&Self)) {
        while self.now < end {
            for index in 0..self.hosts.len() {
                self.turn(index);
            }
            look(self);
            self.now += self.slice;
            while let Some((at, number)) = self.flying.keys().next().copied()
                && at <= self.now
            {
                let (to, datagram) = self.flying.remove(&(at, number)).expect("it is there");
                if self.cut[to] {
                    continue;
                }
                let _ = self.deliver(to, &datagram);
            }
        }
    }

    /// Has a datagram arrive.
    pub(super) fn deliver(&mut self, to: usize, datagram: &[u8]) -> Result<(), DropReason> {
        let host = &mut self.hosts[to];
        if self.now < host.quiet_until {
            return Ok(());
        }
        let clock = Nanos(self.now.0 - host.born.0);
        let today = today(self.now, host.clock_error);
        let taken = host.state.handle_datagram(clock, today, datagram);
        host.take_changes(clock);
        self.trace_changes(to);
        taken
    }

    fn turn(&mut self, index: usize) {
        let now = self.now;
        let host = &mut self.hosts[index];
        let since = now.saturating_sub(host.commitment);
        host.former.retain(|(ended, ..)| *ended > since);
        if now < host.quiet_until {
            return;
        }
        let clock = Nanos(self.now.0 - host.born.0);
        host.use_destinations(clock);
        let mut sent = Vec::new();
        let today = today(self.now, host.clock_error);
        host.state.poll_datagrams(clock, today, |to, datagram| {
            sent.push((to, datagram.to_vec()));
        });
        host.take_changes(clock);
        host.take_incoming(clock);
        let poll_at = host.state.poll_at();
        self.trace_changes(index);
        if let Some(trace) = &mut self.trace {
            trace.poll_at(poll_at);
        }
        for (to, datagram) in sent {
            let to = (0..self.hosts.len())
                .find(|other| HostId::of(&name(*other)) == to)
                .expect("all peers are here");
            self.datagrams += 1;
            if let Some(tapped) = &mut self.tapped {
                tapped.push((to, datagram.clone()));
            }
            if let Some(trace) = &mut self.trace {
                trace.datagram(self.now, index, to, &datagram);
            }
            if self.cut[index] || self.random.chance(self.faults.loss) {
                continue;
            }
            let copies = 1 + u64::from(self.random.chance(self.faults.doubled));
            for _ in 0..copies {
                let jitter = self.random.below(self.faults.jitter.0 + 1);
                let at = self.now + self.takes + Nanos(jitter);
                self.count += 1;
                self.flying.insert((at, self.count), (to, datagram.clone()));
            }
        }
    }

    /// Sets the keys of a host: the keys of these epochs.
    pub(super) fn set_keys(&mut self, index: usize, epochs: &[u32]) {
        let (clock, count) = (self.clock(index), self.hosts.len());
        self.hosts[index].state.set_keys(clock, |host| {
            let other = (0..count).find(|other| HostId::of(&name(*other)) == host)?;
            let epochs = epochs.iter().map(|epoch| KeyEpoch(*epoch));
            let keys = epochs.map(|epoch| (epoch, key_of(epoch, index, other)));
            PairKeys::latest_of(keys).map(Arc::new)
        });
    }

    /// Returns the time on a host's clock.
    pub(super) fn clock(&self, index: usize) -> Nanos {
        self.now - self.hosts[index].born
    }

    fn trace_changes(&mut self, index: usize) {
        let changed = std::mem::take(&mut self.hosts[index].changed);
        if let Some(trace) = &mut self.trace {
            for change in &changed {
                trace.rate(self.now, index, change);
            }
        }
    }

    /// Returns the rate that a guest may send to another; 0 if it is not limited.
    pub(super) fn rate(&self, from: (usize, u32), to: (usize, u32)) -> u64 {
        let key = flow(from, to);
        let rate = self.hosts[from.0].rates.get(&key);
        rate.copied().unwrap_or(0)
    }

    pub(super) fn is_limited(&self, from: (usize, u32), to: (usize, u32)) -> bool {
        let key = flow(from, to);
        self.hosts[from.0].rates.contains_key(&key)
    }

    /// Sets what a guest has to send to another; 0 for nothing.
    pub(super) fn demand(&mut self, from: (usize, u32), to: (usize, u32), rate: u64) {
        let key = flow(from, to);
        let demands = &mut self.hosts[from.0].demands;
        if rate == 0 {
            demands.remove(&key);
        } else {
            demands.insert(key, rate);
            self.hosts[from.0].fresh.push(key);
        }
    }

    /// Sets what a guest has to send to another by Ethernet; 0 for nothing.
    pub(super) fn demand_by_station(&mut self, from: (usize, u32), to: (usize, u32), rate: u64) {
        let destination = Destination::Station(station(to.0, to.1));
        let guest = GuestId(from.1.into());
        let demands = &mut self.hosts[from.0].demands;
        demands.insert(FlowKey { guest, destination }, rate);
    }

    /// Returns the sum of the permitted rates to a guest.
    pub(super) fn sum_to(&self, to: (usize, u32)) -> u64 {
        let address = Destination::Address(address(to.0, to.1));
        let station = Destination::Station(station(to.0, to.1));
        let hosts = self.hosts.iter().flat_map(|host| &host.rates);
        hosts
            .filter(|(flow, _)| [address, station].contains(&flow.destination))
            .map(|(_, rate)| rate)
            .sum()
    }

    /// Returns the sum of the rates at which frames to a guest may leave now.
    pub(super) fn leaving_to(&self, to: (usize, u32)) -> u64 {
        let destination = Destination::Address(address(to.0, to.1));
        let highest = self.hosts.iter().flat_map(|host| {
            let present = host.rates.iter().map(|(flow, rate)| (*flow, *rate));
            let former = host.former.iter().map(|(_, flow, rate)| (*flow, *rate));
            let mut highest = BTreeMap::new();
            for (flow, rate) in present.chain(former) {
                if flow.destination == destination {
                    let known: &mut u64 = highest.entry(flow).or_default();
                    *known = rate.max(*known);
                }
            }
            highest.into_values()
        });
        highest.sum()
    }

    /// Returns the limit that a receiver's host enforces on a sending guest; `None` if it
    /// does not know the guest.
    pub(super) fn held_to(&self, from: (usize, u32), to: (usize, u32)) -> Option<u64> {
        let to_guest = GuestId(to.1.into());
        let address = Destination::Address(address(from.0, from.1));
        let senders = self.hosts[to.0].incoming.iter();
        let mut rates = senders
            .filter(|((guest, _), (source, _))| *guest == to_guest && *source == address)
            .map(|(_, (_, rate))| rate.0);
        rates.next()
    }

    /// Sends the packets of a host's guests through a pacer, which has its limits.
    pub(super) fn pace(&mut self, index: usize, mut paces: Paces) {
        let host = &mut self.hosts[index];
        let clock = Nanos(self.now.0 - host.born.0);
        for (flow, rate) in &host.rates {
            let rate = Some(Rate(*rate));
            let receiver = Receiver {
                host: HostId(0),
                machine: 0,
                destinations: 1,
            };
            let change = Change {
                flow: *flow,
                rate,
                lent: Bytes::ZERO,
                share: Rate::ZERO,
                receiver,
            };
            paces.set(clock, change);
        }
        host.paces = Some(paces);
    }

    pub(super) fn set_machines(&mut self, index: usize, machines: Vec<Machine>) {
        let host = &mut self.hosts[index];
        let clock = Nanos(self.now.0 - host.born.0);
        host.state.set_machines(clock, machines.clone());
        host.machines = machines;
    }
}

/// Steps of a host.
impl Net {
    /// Runs a piece of a host's pending work. Returns the number of processed items.
    pub(super) fn piece(&mut self, index: usize) -> usize {
        let clock = self.clock(index);
        let host = &mut self.hosts[index];
        let looked_at = host.state.go_on(clock);
        host.take_changes(clock);
        looked_at
    }

    /// Polls a host once, and loses what it sends. Returns what that costs.
    pub(super) fn poll(&mut self, index: usize) -> Vec<usize> {
        let clock = self.clock(index);
        let host = &mut self.hosts[index];
        let mut sent = Vec::new();
        let today = today(self.now, host.clock_error);
        host.state
            .poll_datagrams(clock, today, |_, datagram| sent.push(datagram.len()));
        host.take_changes(clock);
        host.take_incoming(clock);
        sent
    }
}

/// Returns the time on a clock that is ahead by `error` ns.
fn today(now: Nanos, error: i64) -> TimeOfDay {
    TimeOfDay((DAY + now.0).saturating_add_signed(error))
}

impl Host {
    fn new(
        index: usize,
        count: usize,
        machines: Vec<Machine>,
        born: Nanos,
        now: Nanos,
        clock_error: i64,
        classes: ClassesCode,
    ) -> Self {
        let others = (0..count).filter(|other| *other != index);
        let config = HoseConfig {
            host: HostId::of(&name(index)),
            classes,
            epoch: Epoch::starting(today(now, clock_error)),
            interval: INTERVAL,
            commitment: Nanos::ZERO,
            peers: others.map(|other| HostId::of(&name(other))).collect(),
        };
        let clock = now.saturating_sub(born);
        let mut state = HoseState::new(clock, config);
        state.set_keys(clock, |host| {
            let other = (0..count).find(|other| HostId::of(&name(*other)) == host)?;
            Some(Arc::new(PairKeys::own(key(index, other))))
        });
        state.set_machines(clock, machines.clone());
        Self {
            state,
            paces: None,
            machines,
            rates: BTreeMap::new(),
            lent: BTreeMap::new(),
            incoming: BTreeMap::new(),
            receivers: BTreeMap::new(),
            changed: Vec::new(),
            demands: BTreeMap::new(),
            fresh: Vec::new(),
            lacks: BTreeMap::new(),
            born,
            next_sample: clock,
            sampled: clock,
            clock_error,
            classes,
            commitment: Nanos::ZERO,
            former: Vec::new(),
            quiet_until: Nanos::ZERO,
        }
    }

    /// Starts the state of a host anew at `now`, with departure times.
    fn begin(&mut self, index: usize, count: usize, now: Nanos, commitment: Nanos) {
        self.commitment = commitment;
        let clock = now - self.born;
        let others = (0..count).filter(|other| *other != index);
        let config = HoseConfig {
            host: HostId::of(&name(index)),
            classes: self.classes,
            epoch: Epoch::starting(today(now, self.clock_error)),
            interval: INTERVAL,
            commitment,
            peers: others.map(|other| HostId::of(&name(other))).collect(),
        };
        self.state = HoseState::new(clock, config);
        self.state.set_keys(clock, |host| {
            let other = (0..count).find(|other| HostId::of(&name(*other)) == host)?;
            Some(Arc::new(PairKeys::own(key(index, other))))
        });
        self.state.set_machines(clock, self.machines.clone());
        self.next_sample = clock;
        self.sampled = clock;
    }

    /// Sends the guests' traffic at the permitted rates, and reports the usage as a daemon does.
    fn use_destinations(&mut self, clock: Nanos) {
        if let Some(paces) = &mut self.paces {
            paces.turn(clock);
            paces.flows_that_wait(|flow, queued| {
                self.state.handle_waiting(clock, flow, queued);
            });
            if clock >= self.next_sample {
                self.next_sample = clock + INTERVAL;
                paces.used(clock, |flow, usage| {
                    self.state.handle_usage(clock, flow, usage);
                });
                self.state.handle_sample_end(clock);
            }
            return;
        }
        for flow in std::mem::take(&mut self.fresh) {
            let rate = self.rates.get(&flow).copied().unwrap_or(u64::MAX);
            if self.demands.get(&flow).is_some_and(|demand| *demand > rate) {
                self.state.handle_waiting(clock, flow, Bytes::ZERO);
            }
        }
        if clock < self.next_sample || self.demands.is_empty() && !self.state.has_open_pairs() {
            return;
        }
        let elapsed = clock.since(self.sampled);
        let unfilled = std::mem::take(&mut self.lacks);
        for (flow, demand) in self.demands.clone() {
            let rate = self.rates.get(&flow).copied();
            let rate = rate.unwrap_or(u64::MAX);
            let taken = Rate(rate.min(demand)).bytes_in(elapsed.min(INTERVAL));
            let lacked = unfilled.get(&flow).copied().unwrap_or_default();
            let usage = Usage {
                taken,
                lacks: self.fill(flow, lacked + taken, elapsed),
                waiting: demand > rate,
                queued: Bytes::ZERO,
            };
            self.state.handle_usage(clock, flow, usage);
        }
        for (flow, lacked) in unfilled {
            if !self.demands.contains_key(&flow) {
                let lacks = self.fill(flow, lacked, elapsed);
                let usage = Usage {
                    lacks,
                    ..Usage::default()
                };
                self.state.handle_usage(clock, flow, usage);
            }
        }
        self.state.handle_sample_end(clock);
        self.sampled = clock;
        self.next_sample = clock + INTERVAL;
    }

    /// Fills the bucket of a flow, which lacks `lacks`. Returns the rest.
    fn fill(&mut self, flow: FlowKey, lacks: Bytes, elapsed: Nanos) -> Bytes {
        let machine = self.machines.iter().find(|it| it.guest == flow.guest);
        let burst = machine.map_or(Bytes::ZERO, |machine| machine.burst);
        let rate = self.rates.get(&flow).copied().unwrap_or_default();
        let lacks = lacks
            .saturating_sub(Rate(rate).bytes_in(elapsed))
            .min(burst);
        if lacks > Bytes::ZERO {
            self.lacks.insert(flow, lacks);
        }
        lacks
    }

    fn take_incoming(&mut self, clock: Nanos) {
        for change in self.state.poll_incoming(clock) {
            match change {
                Incoming::Receiver { guest, limits } => {
                    self.receivers.insert(guest, limits);
                }
                Incoming::Closed { guest } => {
                    self.receivers.remove(&guest);
                    self.incoming.retain(|(to, _), _| *to != guest);
                }
                Incoming::Sender {
                    guest,
                    sender,
                    sources,
                } => {
                    assert!(self.receivers.contains_key(&guest), "it is told first");
                    self.incoming
                        .insert((guest, sender), (sources[0], Rate::ZERO));
                }
                Incoming::Rate {
                    guest,
                    sender,
                    rate,
                } => {
                    // None where a test has two machines of one guest, and one closed.
                    if let Some(known) = self.incoming.get_mut(&(guest, sender)) {
                        known.1 = rate;
                    }
                }
                Incoming::Gone { guest, sender } => {
                    self.incoming.remove(&(guest, sender));
                }
            }
        }
    }

    fn take_changes(&mut self, clock: Nanos) {
        for change in self.state.poll_changes() {
            self.changed.push(change);
            let Change {
                flow, rate, lent, ..
            } = change;
            self.lent.insert(flow, lent.0);
            if let Some(paces) = &mut self.paces {
                paces.set(clock, change);
            }
            let before = match rate {
                Some(rate) => self.rates.insert(flow, rate.0),
                None => self.rates.remove(&flow),
            };
            if let Some(before) = before
                && self.commitment > Nanos::ZERO
            {
                self.former.push((clock + self.born, flow, before));
            }
        }
    }
}
