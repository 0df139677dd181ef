//! Hosts of both backends in virtual time: frames to one receiver leave within its curve.

use super::map::{FlowLimit, RateMap};
use super::*;
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use tailbound_hose::{ClassesCode, Epoch, HoseConfig, KeyEpoch, Machines, PairKeys, Secret};
use tailbound_units::WireBytes;
use tailbound_units::exact::{BYTE_IN_NANOS, TokenBucket};

const INTERVAL: Nanos = Nanos::from_millis(1);
const STEP: Nanos = Nanos::from_micros(50);
/// The delay of a datagram.
const DELAY: Nanos = Nanos::from_micros(100);
const B: Rate = Rate::from_mbit(100);
const S: Bytes = Bytes(15_380);
const WIRE: u64 = 1_538;
/// The part of an inward burst that each sender has. As much is lent.
const PART: Bytes = Bytes(3 * WIRE);
/// The time at which all hosts start.
const START: Nanos = Nanos::from_secs(100);

/// A bucket in the kernel: `edge/edge.bpf.c` has the same decisions.
#[derive(Debug, Clone, Copy)]
struct Line {
    granted: GrantedRate,
    bucket: TokenBucket<Nanos>,
    charged: u64,
}

impl Line {
    /// Sets a rate from now on, or from the departure of the last frame that waits.
    fn reshape(&mut self, now: Nanos, rate: Rate, burst: Bytes) {
        let last = self.bucket.full_at();
        let last = last.saturating_sub(Nanos(self.bucket.fill_time()));
        let at = last.max(now);
        let fresh = bucket(rate, burst).empty(at);
        self.bucket.reconfigure(&fresh, at, at);
    }
}

fn bucket(rate: Rate, burst: Bytes) -> TokenBucket<Nanos> {
    TokenBucket::new(BYTE_IN_NANOS, rate, WireBytes(burst.0)).expect("a rate")
}

/// The maps, which outlive the process.
#[derive(Debug, Default)]
struct Kernel {
    lines: BTreeMap<FlowKey, Line>,
    until: Nanos,
    pledged: Nanos,
}

impl Kernel {
    /// Returns when a frame leaves; `None` if it is dropped.
    fn send(&mut self, flow: FlowKey, now: Nanos) -> Option<Nanos> {
        let line = self.lines.get_mut(&flow)?;
        let GrantedRate { bucket, alone, .. } = line.granted;
        let is_alone = now > self.until && (now > self.pledged || alone.rate <= bucket.rate);
        let Bucket { rate, burst } = if is_alone { alone } else { bucket };
        if !line.bucket.is(rate, WireBytes(burst.0)) {
            line.reshape(now, rate, burst);
        }
        let charged = line.bucket.charge(now, WireBytes(WIRE));
        if charged.leaves > now + line.granted.horizon {
            line.bucket.refund(charged);
            return None;
        }
        line.charged += WIRE;
        Some(charged.leaves)
    }
}

#[derive(Debug, Clone, Default)]
struct Maps(Rc<RefCell<Kernel>>);

impl RateMap for Maps {
    fn former(&mut self) -> Vec<FlowKey> {
        self.0.borrow().lines.keys().copied().collect()
    }

    fn silence(&mut self, flow: FlowKey) {
        let mut kernel = self.0.borrow_mut();
        let line = kernel.lines.get_mut(&flow).expect("it is there");
        line.granted.bucket = Bucket {
            rate: SLOWEST,
            burst: FRAME,
        };
        line.granted.alone = line.granted.bucket;
    }

    fn set(&mut self, now: Nanos, limit: FlowLimit) -> Result<Bytes, String> {
        let FlowLimit { flow, granted } = limit;
        let Bucket { rate, burst } = granted.bucket;
        let mut kernel = self.0.borrow_mut();
        let line = kernel.lines.entry(flow).or_insert_with(|| Line {
            granted,
            bucket: bucket(rate, burst).empty(now),
            charged: 0,
        });
        line.granted = granted;
        line.reshape(now, rate, burst);
        Ok(Bytes(line.charged))
    }

    fn remove(&mut self, flows: &[FlowKey]) {
        let mut kernel = self.0.borrow_mut();
        kernel.lines.retain(|flow, _| !flows.contains(flow));
    }

    fn usage(&self, flow: FlowKey, now: Nanos) -> Option<RateUsage> {
        let kernel = self.0.borrow();
        let line = kernel.lines.get(&flow)?;
        Some(RateUsage {
            charged: Bytes(line.charged),
            lacks: Bytes(line.bucket.lacks(now).0),
            burst: Bytes(line.bucket.burst().0),
        })
    }

    fn renew(&mut self, until: Nanos, pledged: Nanos) {
        let mut kernel = self.0.borrow_mut();
        (kernel.until, kernel.pledged) = (until, pledged);
    }
}

/// A host whose pacer schedules each frame when it leaves, as the daemon's.
struct PacedHost {
    state: HoseState,
    inward: Option<KernelInward>,
    buckets: BTreeMap<FlowKey, TokenBucket<Nanos>>,
    taken: u64,
    next_sample: Nanos,
}

enum Backend {
    Kernel(Box<KernelRates<Maps>>),
    Paced(Box<PacedHost>),
}

/// Host 0 has the receiver, all others a sender to it.
struct Host {
    maps: Maps,
    /// `None` while its process is dead.
    backend: Option<Backend>,
    /// True if its guest floods the receiver.
    floods: bool,
}

fn name(host: usize) -> String {
    format!("h{host}")
}

fn mac(host: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, host as u8]
}

fn flow() -> FlowKey {
    FlowKey {
        guest: GuestId(1),
        destination: Destination::Station(Station::new(mac(0)).expect("a station")),
    }
}

/// The machines of the tenant, one on each host.
#[derive(Debug, Clone, Copy)]
struct Tenant {
    hosts: usize,
    /// True with an inward burst.
    is_limited: bool,
}

impl Tenant {
    fn inward(self) -> Option<KernelInward> {
        let inward = KernelInward {
            most: Bytes(2 * PART.0 * (self.hosts as u64 - 1)),
            part: PART,
        };
        self.is_limited.then_some(inward)
    }

    fn guest(self, host: usize) -> KernelGuest {
        KernelGuest {
            ifindex: 1,
            vm: format!("acme/web/{host}"),
            mac: mac(host),
            ips: Vec::new(),
            bandwidth: B,
            burst: S,
            inward: self.inward(),
            tenant_vms: self.hosts as u32,
        }
    }
}

fn state(host: usize, hosts: usize, now: Nanos, commitment: Nanos) -> HoseState {
    let peers = (0..hosts).filter(|peer| *peer != host);
    let config = HoseConfig {
        host: HostId::of(&name(host)),
        classes: ClassesCode::NONE,
        epoch: Epoch::starting(TimeOfDay(now.0)),
        interval: INTERVAL,
        commitment,
        peers: peers.map(|peer| HostId::of(&name(peer))).collect(),
    };
    let mut state = HoseState::new(now, config);
    let secret = Secret::new(&[7; 32]).expect("it is long enough");
    state.set_keys(now, |id| {
        let peer = (0..hosts).find(|peer| HostId::of(&name(*peer)) == id)?;
        let key = secret.pair_key(KeyEpoch::OWN, &name(host), &name(peer));
        Some(Arc::new(PairKeys::own(key)))
    });
    state
}

impl Backend {
    fn kernel(host: usize, tenant: Tenant, now: Nanos, maps: &Maps) -> Self {
        let mut rates = KernelRates::new(now, INTERVAL, maps.clone(), |begins, commitment| {
            state(host, tenant.hosts, begins, commitment)
        });
        rates.set_guests(now, vec![tenant.guest(host)]);
        Self::Kernel(Box::new(rates))
    }

    fn paced(host: usize, tenant: Tenant, now: Nanos) -> Self {
        let mut state = state(host, tenant.hosts, now, Nanos::ZERO);
        let guest = tenant.guest(host);
        state.set_machines(now, Machines::from(vec![guest.machine()]));
        Self::Paced(Box::new(PacedHost {
            state,
            inward: guest.inward,
            buckets: BTreeMap::new(),
            taken: 0,
            next_sample: now,
        }))
    }

    fn state(&mut self) -> &mut HoseState {
        match self {
            Self::Kernel(rates) => &mut rates.state,
            Self::Paced(paced) => &mut paced.state,
        }
    }
}

impl PacedHost {
    /// Sends what may leave now, and polls the exchange.
    fn turn(&mut self, now: Nanos, floods: bool, left: &mut Vec<Nanos>) {
        let mut waits = false;
        if let Some(bucket) = self.buckets.get_mut(&flow())
            && floods
        {
            while bucket.holds(now, WireBytes(WIRE)) {
                bucket.charge(now, WireBytes(WIRE));
                self.taken += WIRE;
                left.push(now);
            }
            waits = true;
        }
        if now >= self.next_sample {
            self.next_sample = now + INTERVAL;
            if let Some(bucket) = self.buckets.get(&flow()) {
                let usage = Usage {
                    taken: Bytes(std::mem::take(&mut self.taken)),
                    lacks: Bytes(bucket.lacks(now).0),
                    waiting: waits,
                    queued: if waits && self.inward.is_some() {
                        S
                    } else {
                        Bytes::ZERO
                    },
                };
                if usage != Usage::default() {
                    self.state.handle_usage(now, flow(), usage);
                }
            }
            self.state.handle_sample_end(now);
        }
    }

    fn apply(&mut self, now: Nanos) {
        for change in self.state.poll_changes() {
            let Some(rate) = change.rate else {
                self.buckets.remove(&change.flow);
                continue;
            };
            let lent = |inward: KernelInward| inward.part.saturating_add(change.lent);
            let burst = self.inward.map_or(S, lent);
            let fresh = bucket(rate.max(SLOWEST), burst).empty(now);
            let known = self.buckets.entry(change.flow).or_insert(fresh);
            known.reconfigure(&fresh, now, now);
        }
        self.state.poll_stations().for_each(drop);
        self.state.poll_incoming(now).for_each(drop);
    }
}

struct Net {
    now: Nanos,
    tenant: Tenant,
    hosts: Vec<Host>,
    flying: BTreeMap<(Nanos, u64), (usize, Vec<u8>)>,
    count: u64,
    /// Departures of frames to the receiver, by sender.
    left: Vec<Vec<Nanos>>,
}

impl Net {
    /// A net of hosts with the kernel's departure times, except those that are `paced`.
    fn new(tenant: Tenant, paced: &[usize]) -> Self {
        let hosts = tenant.hosts;
        let host = |host| {
            let maps = Maps::default();
            let backend = if paced.contains(&host) {
                Backend::paced(host, tenant, START)
            } else {
                Backend::kernel(host, tenant, START, &maps)
            };
            Host {
                maps,
                backend: Some(backend),
                floods: false,
            }
        };
        Self {
            now: START,
            tenant,
            hosts: (0..hosts).map(host).collect(),
            flying: BTreeMap::new(),
            count: 0,
            left: vec![Vec::new(); hosts],
        }
    }

    fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            while let Some((at, number)) = self.flying.keys().next().copied()
                && at <= self.now
            {
                let (to, datagram) = self.flying.remove(&(at, number)).expect("it is there");
                if let Some(backend) = &mut self.hosts[to].backend {
                    let today = TimeOfDay(self.now.0);
                    let _ = backend.state().handle_datagram(self.now, today, &datagram);
                }
            }
            for host in 0..self.hosts.len() {
                self.turn(host);
            }
        }
    }

    fn turn(&mut self, index: usize) {
        let (now, today) = (self.now, TimeOfDay(self.now.0));
        let host = &mut self.hosts[index];
        let mut datagrams = Vec::new();
        let send = |to: HostId, datagram: &[u8]| datagrams.push((to, datagram.to_vec()));
        match &mut host.backend {
            Some(Backend::Kernel(rates)) => rates.poll(now, today, send),
            Some(Backend::Paced(paced)) => {
                paced.turn(now, host.floods, &mut self.left[index]);
                paced.apply(now);
                paced.state.poll_datagrams(now, today, send);
                paced.apply(now);
            }
            None => {}
        }
        let is_paced = matches!(host.backend, Some(Backend::Paced(_)));
        if host.floods && !is_paced {
            // 1 Gbit/s.
            for _ in 0..4 {
                let leaves = host.maps.0.borrow_mut().send(flow(), now);
                self.left[index].extend(leaves);
            }
        }
        for (to, datagram) in datagrams {
            let hosts = 0..self.hosts.len();
            let to = hosts.clone().find(|host| HostId::of(&name(*host)) == to);
            self.count += 1;
            let key = (now + DELAY, self.count);
            self.flying.insert(key, (to.expect("a peer"), datagram));
        }
    }

    /// Returns the largest excess of all frames to the receiver over {B, S of each sender}, or {B, `S_in`}, in
    /// bytes. A pair without a grant may send at the least rate.
    fn excess(&self) -> i128 {
        let mut all: Vec<Nanos> = self.left.iter().flatten().copied().collect();
        all.sort_unstable();
        let senders = self.hosts.len() as u64 - 1;
        let rate = u128::from(B.0 + senders * SLOWEST.0);
        // A frame of each sender is charged when the bucket is empty.
        let inward = self.tenant.inward();
        let of_all = inward.map_or(senders * S.0, |inward| inward.most.0);
        let burst = i128::from(of_all + senders * WIRE);
        let (mut waits, mut last, mut most) = (0_i128, START, i128::MIN);
        for at in all {
            let drained = u128::from(at.since(last).0) * rate / 8_000_000_000;
            waits = (waits - drained.cast_signed()).max(0) + i128::from(WIRE);
            last = at;
            most = most.max(waits - burst);
        }
        most
    }

    /// Runs for a time after which only `senders` flood, and expects each of them to have a share of B in its last
    /// 100 ms.
    #[track_caller]
    fn share(&mut self, senders: &[usize], millis: u64, wanted: &RangeInclusive<u64>) {
        const WITHIN: Nanos = Nanos::from_millis(100);
        for (number, host) in self.hosts.iter_mut().enumerate() {
            host.floods = senders.contains(&number);
        }
        self.run(Nanos::from_millis(millis));
        for sender in senders {
            let from = self.now.saturating_sub(WITHIN);
            let left = self.left[*sender].iter();
            let frames = left.filter(|at| **at > from && **at <= self.now).count() as u64;
            let percent = frames * WIRE * 8 * 1_000_000_000 / WITHIN.0 * 100 / B.0;
            assert!(wanted.contains(&percent), "{sender}: {percent} % of B");
        }
    }

    /// Starts the process of a host again, with the maps that it has.
    fn restart(&mut self, host: usize) {
        let maps = &self.hosts[host].maps;
        let backend = Backend::kernel(host, self.tenant, self.now, maps);
        self.hosts[host].backend = Some(backend);
    }
}

/// All of B, and half of it, in percent with what a sample of 100 ms is off.
const WHOLE: RangeInclusive<u64> = 95..=102;
const HALF: RangeInclusive<u64> = 45..=52;

/// Two senders begin and end, and the receiver's host is silent for a time.
fn a_day(paced: &[usize], is_limited: bool) -> Net {
    let tenant = Tenant {
        hosts: 3,
        is_limited,
    };
    let mut net = Net::new(tenant, paced);
    net.share(&[], 900, &WHOLE);
    net.share(&[1], 200, &WHOLE);
    net.share(&[1, 2], 200, &HALF);
    net.share(&[2], 200, &WHOLE);
    // The receiver's host is silent: each sender has its static share at last.
    let receiver = net.hosts[0].backend.take();
    net.share(&[1, 2], 1_000, &HALF);
    net.hosts[0].backend = receiver;
    net.share(&[2], 900, &WHOLE);
    // Both have full buckets.
    net.share(&[], 900, &WHOLE);
    net.share(&[1, 2], 200, &HALF);
    net
}

#[test]
fn no_frame_of_adopted_hosts_is_above_the_curve_of_the_receiver() {
    for is_limited in [false, true] {
        let mut net = a_day(&[], is_limited);
        // A process with the whole grant dies, and the kernel goes on with the static share.
        net.hosts[2].backend = None;
        net.share(&[1, 2], 1_000, &HALF);
        net.restart(2);
        net.share(&[2], 1_500, &WHOLE);
        assert!(net.excess() <= 0, "{} B above the curve", net.excess());
    }
}

/// The depth of the bucket of a sender on an adopted host, in bytes.
fn depth(net: &Net, host: usize) -> Bytes {
    let kernel = net.hosts[host].maps.0.borrow();
    kernel.lines[&flow()].granted.bucket.burst
}

#[test]
fn a_lone_sender_borrows_all_that_is_lent_and_returns_it_when_it_is_idle() {
    let tenant = Tenant {
        hosts: 3,
        is_limited: true,
    };
    let mut net = Net::new(tenant, &[]);
    net.share(&[], 900, &WHOLE);
    assert_eq!(depth(&net, 1), PART);
    net.share(&[1], 200, &WHOLE);
    assert_eq!(depth(&net, 1), Bytes(3 * PART.0));
    net.share(&[], 200, &WHOLE);
    assert_eq!(depth(&net, 1), PART);
    // The loan of one of two senders is not lent to the other.
    net.share(&[1, 2], 200, &HALF);
    let both = depth(&net, 1).0 + depth(&net, 2).0;
    let most = tenant.inward().expect("a limit").most.0;
    assert!(both > 2 * PART.0 && both <= most, "{both}");
    assert!(net.excess() <= 0, "{} B above the curve", net.excess());
}

#[test]
fn no_frame_of_hosts_of_both_backends_is_above_the_curve_of_the_receiver() {
    for (paced, is_limited) in [[0, 1], [0, 2], [1, 2]]
        .into_iter()
        .flat_map(|it| [(it, false), (it, true)])
    {
        let net = a_day(&paced, is_limited);
        assert!(net.excess() <= 0, "{paced:?}: {} B", net.excess());
    }
}

#[test]
fn a_former_process_is_forgotten_with_its_destinations() {
    let maps = Maps::default();
    let elsewhere = FlowKey {
        guest: GuestId(1),
        destination: Destination::Station(Station::new(mac(9)).expect("a station")),
    };
    let granted = GrantedRate {
        bucket: Bucket { rate: B, burst: S },
        alone: Bucket { rate: B, burst: S },
        horizon: INTERVAL,
    };
    for flow in [flow(), elsewhere] {
        let limit = FlowLimit { flow, granted };
        maps.clone().set(START, limit).expect("room");
    }
    let tenant = Tenant {
        hosts: 2,
        is_limited: false,
    };
    let mut net = Net::new(tenant, &[]);
    net.hosts[1].maps = maps.clone();
    net.restart(1);
    let rates = |maps: &Maps| {
        let kernel = maps.0.borrow();
        let lines = kernel.lines.values();
        lines
            .map(|line| line.granted.bucket.rate)
            .collect::<Vec<_>>()
    };
    assert_eq!(rates(&maps), [SLOWEST; 2], "at once");
    net.run(Nanos::from_millis(2_000));
    let kernel = maps.0.borrow();
    let known: Vec<_> = kernel.lines.keys().copied().collect();
    assert_eq!(known, [flow()]);
}
