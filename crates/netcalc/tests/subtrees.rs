//! The traffic of a tenant across the links of a tree, as a fluid, compared with its curve.
//!
//! Machines on hosts in racks send by the buckets of a pacer that limits bursts by subtree. A sender
//! has {B, S}, a bucket {`B_i`, S} for each receiver, and a bucket {sum of the `B_i`, K·S} for each
//! host and rack without itself. The machines outside of its own host or rack have such a bucket,
//! too, if they are fewer than those inside. The rates `B_i` of all senders to a receiver sum up to
//! at most B at each moment, and change with each phase. With an inward burst the depths of the
//! buckets to a receiver sum up to `S_in`, and move between senders with each phase. Traffic is a fluid that leaves at whole
//! ticks, up to the least of its buckets: a bucket with fewer checks passes no more.
//!
//! `TAILBOUND_CUTS=1000000` sets the number of tenants.

use tailbound_netcalc::hose;
use tailbound_units::{Bursts, Bytes, Rate};

/// Tenants without `TAILBOUND_CUTS`.
const TENANTS: u64 = 10_000;
/// Ticks of a phase, of a nanosecond each.
const MAX_TICKS: u64 = 16;

/// A generator of random numbers (`SplitMix64`), so that a failure names one seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A set of machines, one a bit.
type Set = u64;

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..64).filter(move |machine| set >> machine & 1 == 1)
}

/// In nanobits; a rate of one bit a second is one nanobit a tick.
#[derive(Debug, Clone)]
struct Bucket {
    receivers: Set,
    depth: i64,
    holds: i64,
}

impl Bucket {
    fn full(receivers: Set, depth: i64) -> Self {
        Self {
            receivers,
            depth,
            holds: depth,
        }
    }
}

/// Traffic in one direction of a node's link, and the two lines of its curve.
#[derive(Debug)]
struct Cut {
    senders: Set,
    receivers: Set,
    is_rack: bool,
    is_up: bool,
    /// Traffic of the present tick.
    crossed: i64,
    /// Rates and bursts, and the most traffic above the rate until now.
    lines: Vec<(i64, i64, i64)>,
}

impl Cut {
    fn new(
        senders: Set,
        receivers: Set,
        of: (bool, bool),
        tenant: &Tenant,
        counted: Limits,
    ) -> Self {
        let (many, all) = (senders.count_ones(), (senders | receivers).count_ones());
        let (rate, burst) = (Rate(tenant.bandwidth as u64), Bytes(tenant.burst));
        let Limits { bursts, burst_in } = counted;
        let burst_in = burst_in.map(Bytes);
        let curve = hose(rate, burst, bursts, burst_in, many.into(), all.into()).unwrap();
        let lines = curve.buckets().iter().map(|bucket| {
            let whole = |value: tailbound_netcalc::Ratio| value.ceil() as i64;
            (whole(bucket.rate), whole(bucket.burst), 0)
        });
        Self {
            senders,
            receivers,
            is_rack: of.0,
            is_up: of.1,
            crossed: 0,
            lines: lines.collect(),
        }
    }

    /// Returns whether the receivers limit the curve, and not the bursts of the senders.
    fn is_limited_inwards(&self, tenant: &Tenant) -> bool {
        let (senders, receivers) = (self.senders.count_ones(), self.receivers.count_ones());
        let bursts = tenant.bursts.into_subtree(receivers.into());
        tenant.burst_in.is_some_and(|burst_in| {
            u64::from(receivers) * burst_in < u64::from(senders) * bursts * tenant.burst
        })
    }

    /// Counts the traffic of a tick. Returns whether an interval that ends here has more than the
    /// curve.
    fn end_tick(&mut self) -> bool {
        let mut is_over = false;
        for (rate, burst, above) in &mut self.lines {
            *above = (*above - *rate).max(0) + self.crossed;
            is_over |= *above > *burst;
        }
        is_over
    }

    /// Returns whether more senders than receivers use all of the burst beside the receivers' rates,
    /// which are rounded down for each pair.
    fn is_reached(&self) -> bool {
        let (_, burst, above) = self.lines[self.lines.len() - 1];
        let pairs = i64::from(self.senders.count_ones() * self.receivers.count_ones());
        self.senders.count_ones() > self.receivers.count_ones()
            && above >= burst - pairs * MAX_TICKS.cast_signed()
    }
}

/// Limits on bursts that a curve counts with.
#[derive(Debug, Clone, Copy)]
struct Limits {
    bursts: Bursts,
    /// `S_in`, in bytes.
    burst_in: Option<u64>,
}

/// A tenant on hosts in racks.
#[derive(Debug)]
struct Tenant {
    bandwidth: i64,
    /// S, in bytes.
    burst: u64,
    bursts: Bursts,
    burst_in: Option<u64>,
    machines: usize,
    /// Machines of each host and of each rack, without those that have none or all.
    hosts: Vec<Set>,
    racks: Vec<Set>,
}

impl Tenant {
    fn random(random: &mut Random) -> Self {
        let (hosts, racks) = (2 + random.below(6), 1 + random.below(3));
        let mut tenant = Self {
            bandwidth: (1 + random.below(8).cast_signed() as i64) * 1_000_000_000,
            burst: 1 + random.below(6) as u64,
            bursts: match random.below(4) {
                0 | 1 => Bursts::ONE,
                2 => Bursts::PerSubtree(2 + random.below(3) as u32),
                _ => Bursts::PerReceiver,
            },
            burst_in: None,
            machines: 0,
            hosts: Vec::new(),
            racks: vec![0; racks],
        };
        for _ in 0..hosts {
            let many = 1 + random.below(4);
            let set = ((1 << many) - 1) << tenant.machines;
            tenant.machines += many;
            tenant.hosts.push(set);
            tenant.racks[random.below(racks)] |= set;
        }
        let all = tenant.all();
        tenant.racks.retain(|rack| *rack != 0 && *rack != all);
        if random.below(2) == 0 {
            let others = tenant.machines as u64 - 1;
            let most = tenant.burst * others;
            tenant.burst_in = Some(tenant.burst + random.next() % (most - tenant.burst + 1));
        }
        tenant
    }

    fn counted(&self) -> Limits {
        Limits {
            bursts: self.bursts,
            burst_in: self.burst_in,
        }
    }

    /// Draws the depths of all buckets to one receiver, in nanobits: S at most, and `S_in` in sum.
    fn depths(&self, receiver: usize, random: &mut Random) -> Vec<i64> {
        let burst = self.burst.cast_signed() * 8_000_000_000;
        let Some(burst_in) = self.burst_in else {
            return vec![burst; self.machines];
        };
        let mut left = burst_in.cast_signed() * 8_000_000_000;
        let mut depths = vec![0; self.machines];
        let first = random.below(self.machines);
        let is_even = random.below(2) == 0;
        let even = left / (self.machines.cast_signed() as i64 - 1);
        for sender in (first..first + self.machines).map(|sender| sender % self.machines) {
            let most = if is_even { even } else { burst };
            if sender != receiver {
                depths[sender] = most.min(burst).min(left);
                left -= depths[sender];
            }
        }
        depths
    }

    fn all(&self) -> Set {
        (1 << self.machines) - 1
    }

    /// Returns hosts and racks, and whether each is a rack.
    fn nodes(&self) -> impl Iterator<Item = (Set, bool)> {
        let hosts = self.hosts.iter().map(|host| (*host, false));
        hosts.chain(self.racks.iter().map(|rack| (*rack, true)))
    }

    /// Returns both directions of every link, with the curve of `counted` bursts.
    fn cuts(&self, counted: Limits) -> Vec<Cut> {
        let both = |(inside, is_rack): (Set, bool)| {
            let outside = self.all() & !inside;
            [
                Cut::new(inside, outside, (is_rack, true), self, counted),
                Cut::new(outside, inside, (is_rack, false), self, counted),
            ]
        };
        self.nodes().flat_map(both).collect()
    }

    /// Returns the full buckets of a sender: of all its traffic, of each receiver, and of subtrees.
    fn buckets(&self, sender: usize) -> Vec<Bucket> {
        let burst = self.burst.cast_signed() * 8_000_000_000;
        let receivers = (0..self.machines).map(|receiver| Bucket::full(1 << receiver, burst));
        let receivers = std::iter::once(Bucket::full(self.all(), burst)).chain(receivers);
        let Bursts::PerSubtree(most) = self.bursts else {
            return receivers.collect();
        };
        let shared = self.nodes().filter_map(|(inside, _)| {
            let outside = self.all() & !inside;
            let is_inside = inside >> sender & 1 == 1;
            let is_smaller = outside.count_ones() < inside.count_ones();
            let set = if is_inside { outside } else { inside };
            (!is_inside || is_smaller).then(|| Bucket::full(set, i64::from(most) * burst))
        });
        receivers.chain(shared).collect()
    }

    /// Draws the receivers for which each sender has traffic.
    fn wants(&self, random: &mut Random) -> Vec<Set> {
        let (all, kind) = (self.all(), random.below(6));
        let nodes: Vec<Set> = self.nodes().map(|node| node.0).collect();
        let node = nodes[random.below(nodes.len())];
        let turn = random.below(self.machines);
        let crosses_only = random.below(2) == 0;
        let of = |sender: usize, drawn: u64| match kind {
            0 => all,
            1 | 2 if crosses_only && (node >> sender & 1 == 1) == (kind == 1) => 0,
            1 => node,
            2 => all & !node,
            3 => 1 << ((sender + turn) % self.machines),
            4 => drawn & all,
            _ => node & drawn,
        };
        let senders = 0..self.machines;
        let wants = senders.map(|sender| of(sender, random.next()) & !(1 << sender));
        wants.collect()
    }

    /// Draws the rates of all pairs: of no sender, and to no receiver, more than B in all.
    fn rates(&self, wants: &[Set], random: &mut Random) -> Vec<Vec<i64>> {
        let kind = random.below(4);
        let mut parts = vec![vec![0_i64; self.machines]; self.machines];
        for (sender, row) in parts.iter_mut().enumerate() {
            for (receiver, part) in row.iter_mut().enumerate() {
                let is_wanted = wants[sender] >> receiver & 1 == 1;
                *part = match kind {
                    _ if receiver == sender => 0,
                    0 | 1 => i64::from(is_wanted),
                    2 if is_wanted => random.below(9).cast_signed() as i64,
                    2 => 0,
                    _ => random.below(3).cast_signed() as i64,
                };
            }
        }
        let sent: Vec<i64> = parts.iter().map(|row| row.iter().sum()).collect();
        let received: Vec<i64> = (0..self.machines)
            .map(|to| parts.iter().map(|row| row[to]).sum())
            .collect();
        let most = sent.iter().chain(&received).max().copied().unwrap_or(1);
        for (sender, row) in parts.iter_mut().enumerate() {
            for (receiver, part) in row.iter_mut().enumerate() {
                // By the greatest sum of all, or by that of this sender and this receiver.
                let sum = if kind == 1 {
                    sent[sender].max(received[receiver])
                } else {
                    most
                };
                *part = self.bandwidth * *part / sum.max(1);
            }
        }
        parts
    }
}

/// A machine that sends.
struct Sender {
    bandwidth: i64,
    number: usize,
    /// {B, S} first.
    buckets: Vec<Bucket>,
    rates: Vec<i64>,
    /// The buckets of each receiver.
    paths: Vec<Vec<usize>>,
}

impl Sender {
    fn new(tenant: &Tenant, number: usize) -> Self {
        let buckets = tenant.buckets(number);
        let path = |receiver| {
            let buckets = buckets.iter().enumerate();
            let path = buckets.filter(|(_, bucket)| bucket.receivers >> receiver & 1 == 1);
            path.map(|(index, _)| index).collect()
        };
        Self {
            bandwidth: tenant.bandwidth,
            number,
            rates: vec![0; buckets.len()],
            paths: (0..tenant.machines).map(path).collect(),
            buckets,
        }
    }

    /// The bucket of one receiver.
    fn pair(&mut self, receiver: usize) -> &mut Bucket {
        &mut self.buckets[1 + receiver]
    }

    /// Sets the rates for each receiver.
    fn set_rates(&mut self, of_pairs: &[i64]) {
        self.rates[0] = self.bandwidth;
        for (rate, bucket) in self.rates.iter_mut().zip(&self.buckets).skip(1) {
            *rate = members(bucket.receivers)
                .map(|receiver| of_pairs[receiver])
                .sum();
        }
    }

    /// Sends for a tick to one receiver after the other, until a bucket is empty.
    fn send(&mut self, wants: Set, first: usize, cuts: &mut [Cut]) {
        for (bucket, rate) in self.buckets.iter_mut().zip(&self.rates) {
            bucket.holds = (bucket.holds + rate).min(bucket.depth);
        }
        let machines = self.paths.len();
        for turn in first..first + machines {
            let receiver = if turn < machines {
                turn
            } else {
                turn - machines
            };
            if wants >> receiver & 1 == 0 {
                continue;
            }
            let path = &self.paths[receiver];
            let least = path.iter().map(|index| self.buckets[*index].holds).min();
            let sent = least.unwrap_or(0);
            if sent == 0 {
                continue;
            }
            for index in path {
                self.buckets[*index].holds -= sent;
            }
            for cut in &mut *cuts {
                if cut.senders >> self.number & cut.receivers >> receiver & 1 == 1 {
                    cut.crossed += sent;
                }
            }
        }
    }
}

/// Sets the depths of the buckets of all pairs at the start, when they are full.
fn divide(tenant: &Tenant, senders: &mut [Sender], random: &mut Random) {
    for receiver in 0..tenant.machines {
        let depths = tenant.depths(receiver, random);
        for (sender, depth) in senders.iter_mut().zip(depths) {
            *sender.pair(receiver) = Bucket::full(1 << receiver, depth);
        }
    }
}

/// Moves depth between the buckets to each receiver, with as many tokens, towards other depths.
fn lend(tenant: &Tenant, senders: &mut [Sender], random: &mut Random) {
    for receiver in 0..tenant.machines {
        let wanted = tenant.depths(receiver, random);
        let mut pool = 0;
        for (sender, wanted) in senders.iter_mut().zip(&wanted) {
            let bucket = sender.pair(receiver);
            let back = (bucket.depth - wanted).clamp(0, bucket.holds);
            bucket.depth -= back;
            bucket.holds -= back;
            pool += back;
        }
        for (sender, wanted) in senders.iter_mut().zip(&wanted) {
            let bucket = sender.pair(receiver);
            let lent = (wanted - bucket.depth).clamp(0, pool);
            bucket.depth += lent;
            bucket.holds += lent;
            pool -= lent;
        }
    }
}

/// Counts of a tenant's simulation.
#[derive(Debug, Default)]
struct Outcome {
    cuts: u64,
    over: u64,
    /// True if traffic still reached a curve with bursts by subtree after half of the longest phase: at
    /// the link of a host or a rack, down or up.
    reached: [[bool; 2]; 2],
    /// The same of curves in which the receivers limit the bursts.
    reached_in: [[bool; 2]; 2],
}

/// Simulates a tenant, and compares each cut with the curve of `counted` bursts; its own by default.
fn attack(seed: u64, counted: Option<Limits>) -> Outcome {
    let mut random = Random(seed);
    let tenant = Tenant::random(&mut random);
    let mut cuts = tenant.cuts(counted.unwrap_or(tenant.counted()));
    let mut is_over = vec![false; cuts.len()];
    let mut outcome = Outcome::default();
    let mut senders: Vec<_> = (0..tenant.machines)
        .map(|sender| Sender::new(&tenant, sender))
        .collect();
    divide(&tenant, &mut senders, &mut random);
    let mut ticks = 0;
    for _ in 0..=random.below(8) {
        let wants = tenant.wants(&mut random);
        let rates = tenant.rates(&wants, &mut random);
        for (sender, rates) in senders.iter_mut().zip(&rates) {
            sender.set_rates(rates);
        }
        if tenant.burst_in.is_some() && random.below(2) == 0 {
            lend(&tenant, &mut senders, &mut random);
        }
        for _ in 0..=random.next() % MAX_TICKS {
            for cut in &mut cuts {
                cut.crossed = 0;
            }
            for (sender, wants) in senders.iter_mut().zip(&wants) {
                sender.send(*wants, random.below(tenant.machines), &mut cuts);
            }
            ticks += 1;
            for (index, cut) in cuts.iter_mut().enumerate() {
                is_over[index] |= cut.end_tick();
                let counts = tenant.bursts.is_per_subtree() && ticks == MAX_TICKS / 2;
                let reached = if cut.is_limited_inwards(&tenant) {
                    &mut outcome.reached_in
                } else {
                    &mut outcome.reached
                };
                let reached = &mut reached[usize::from(cut.is_rack)];
                reached[usize::from(cut.is_up)] |= counts && cut.is_reached();
            }
        }
    }
    outcome.cuts = cuts.len() as u64;
    outcome.over = is_over.iter().filter(|over| **over).count() as u64;
    outcome
}

fn attacks(tenants: u64, counted: Option<Limits>) -> Outcome {
    let first = std::env::var("PROPTEST_RNG_SEED").map_or(1, |text| text.parse().unwrap());
    let mut all = Outcome::default();
    for number in 0..tenants {
        let seed = Random(first).next() ^ number;
        let one = attack(seed, counted);
        assert!(counted.is_some() || one.over == 0, "seed {seed}: {one:?}");
        all.cuts += one.cuts;
        all.over += one.over;
        let both = [
            (&mut all.reached, one.reached),
            (&mut all.reached_in, one.reached_in),
        ];
        for (all, one) in both {
            for (all, one) in all.iter_mut().flatten().zip(one.iter().flatten()) {
                *all |= *one;
            }
        }
    }
    all
}

#[test]
fn no_more_crosses_a_link_than_the_curve_of_k_bursts_and_as_much_does() {
    let tenants = std::env::var("TAILBOUND_CUTS").map_or(TENANTS, |text| text.parse().unwrap());
    let all = attacks(tenants, None);
    assert_eq!(all.over, 0);
    assert_eq!(all.reached, [[true; 2]; 2], "at hosts and racks, both ways");
    assert_eq!(all.reached_in, [[true; 2]; 2], "with an inward burst");
    println!("{} cuts of {tenants} tenants", all.cuts);
}

#[test]
fn machines_with_a_burst_for_each_receiver_send_more_than_one_burst() {
    let counted = Limits {
        bursts: Bursts::ONE,
        burst_in: None,
    };
    let all = attacks(TENANTS / 10, Some(counted));
    assert!(all.over > 0, "{all:?}");
}

#[test]
fn machines_without_an_inward_burst_exceed_its_curve() {
    let counted = Limits {
        bursts: Bursts::PerReceiver,
        burst_in: Some(6),
    };
    let all = attacks(TENANTS / 10, Some(counted));
    assert!(all.over > 0, "{all:?}");
}
