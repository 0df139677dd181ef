//! The traffic of a tenant across a cut, frame by frame, compared with its curve.
//!
//! Machines send by the pacer's chain of buckets: {`B_i`, S} of each pair, {B, S} and {Bmax, frame}
//! of each sender. A frame has its turn when all three have tokens for it, and is charged to all
//! three when it departs. The order of turns and the senders with frames are random. Frames leave
//! at whole ticks: a bucket with fewer checks passes no more.

use proptest::prelude::*;
use tailbound_netcalc::{Guarantee, Ratio};
use tailbound_units::{Bursts, Bytes, Rate};

const TICK: i128 = 1_000;
const TICKS: usize = 160;
const FRAME: Bytes = Bytes(1_500);
const FRAME_NANOBITS: i128 = 12_000 * 1_000_000_000;

/// In nanobits; a rate of one bit a second is one nanobit a nanosecond.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    holds: i128,
    depth: i128,
}

impl Bucket {
    fn full(depth: Bytes) -> Self {
        let depth = i128::from(depth.0) * 8_000_000_000;
        Self {
            holds: depth,
            depth,
        }
    }

    fn fill(&mut self, rate: u64) {
        self.holds = (self.holds + i128::from(rate) * TICK).min(self.depth);
    }

    fn has_frame(&self) -> bool {
        self.holds >= FRAME_NANOBITS
    }

    fn charge(&mut self) {
        self.holds -= FRAME_NANOBITS;
    }
}

/// A tenant of which `senders` machines are on one side of a link and `receivers` on the other.
#[derive(Debug, Clone)]
struct Tenant {
    guarantee: Guarantee,
    senders: usize,
    receivers: usize,
    /// The share of each machine's bandwidth that each sender is granted, in parts of the greatest
    /// sum of any sender or receiver. Shares on the sender's side come after the receivers. All
    /// periods have the same length.
    parts: Vec<Vec<Vec<u64>>>,
    /// From when on each sender has frames for each machine, without an end.
    since: Vec<Vec<usize>>,
    seed: u64,
}

impl Tenant {
    fn machines(&self) -> usize {
        self.senders + self.receivers
    }

    /// The rates `B_i` at a time: of no sender, and to no receiver, more than B in all.
    fn rates(&self, time: usize) -> Vec<Vec<u64>> {
        let parts = &self.parts[time * self.parts.len() / TICKS];
        let sent = parts.iter().map(|row| row.iter().sum());
        let received = (0..self.machines()).map(|to| parts.iter().map(|row| row[to]).sum());
        let all: u64 = sent.chain(received).max().unwrap_or(0).max(1);
        let bandwidth = self.guarantee.bandwidth.0;
        let rates = |row: &Vec<u64>| row.iter().map(|part| bandwidth * part / all).collect();
        parts.iter().map(rates).collect()
    }

    /// Returns the traffic across the link before each tick, in nanobits.
    fn simulate(&self) -> Vec<i128> {
        let Guarantee {
            bandwidth,
            burst,
            burst_rate,
            ..
        } = self.guarantee;
        let mut average = vec![Bucket::full(burst); self.senders];
        let mut peak = vec![Bucket::full(FRAME); self.senders];
        let mut pairs = vec![vec![Bucket::full(burst); self.machines()]; self.senders];
        let mut random = self.seed;
        let mut crossed = vec![0];
        for time in 0..TICKS {
            let rates = self.rates(time);
            let mut sum = crossed[time];
            for from in 0..self.senders {
                if time > 0 {
                    average[from].fill(bandwidth.0);
                    peak[from].fill(burst_rate.0);
                    for (pair, rate) in pairs[from].iter_mut().zip(&rates[from]) {
                        pair.fill(*rate);
                    }
                }
                loop {
                    let waits = |to: &usize| self.since[from][*to] <= time;
                    let ready: Vec<usize> = (0..self.machines())
                        .filter(|to| waits(to) && pairs[from][*to].has_frame())
                        .collect();
                    if ready.is_empty() || !average[from].has_frame() || !peak[from].has_frame() {
                        break;
                    }
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let to = ready[(random >> 33) as usize % ready.len()];
                    pairs[from][to].charge();
                    average[from].charge();
                    peak[from].charge();
                    sum += if to < self.receivers {
                        FRAME_NANOBITS
                    } else {
                        0
                    };
                }
            }
            crossed.push(sum);
        }
        crossed
    }

    /// Returns the largest excess over the curve within any interval, in nanobits. A negative value
    /// is the smallest margin.
    fn excess(&self) -> i128 {
        let curve = self
            .guarantee
            .across(self.senders as u64, self.machines() as u64, FRAME)
            .unwrap();
        let crossed = self.simulate();
        let over = |length: usize| {
            let most = curve
                .at(Ratio::whole(length as i128 * TICK))
                .unwrap()
                .ceil();
            let came =
                (length + 1..crossed.len()).map(|end| crossed[end] - crossed[end - length - 1]);
            came.max().unwrap_or(0) - most
        };
        (0..TICKS).map(over).max().unwrap()
    }
}

fn tenants() -> impl Strategy<Value = Tenant> {
    let guarantee = (5..80_u64, 1..6_u64, 1..9_u64).prop_map(|(bandwidth, burst, times)| {
        let bandwidth = bandwidth * 100_000_000;
        Guarantee {
            bandwidth: Rate(bandwidth),
            burst: Bytes(burst * FRAME.0),
            burst_rate: Rate(bandwidth * times),
            bursts: Bursts::PerReceiver,
            burst_in: None,
        }
    });
    (guarantee, 1..9_usize, 1..4_usize).prop_flat_map(|(guarantee, senders, receivers)| {
        let machines = senders + receivers;
        let matrix = |each| prop::collection::vec(prop::collection::vec(each, machines), senders);
        let parts = prop::collection::vec(matrix(prop_oneof![Just(4), 0..9_u64]), 1..3);
        let since = prop::collection::vec(
            prop::collection::vec(
                prop_oneof![8 => Just(0), 1 => 0..TICKS, 1 => Just(TICKS)],
                machines,
            ),
            senders,
        );
        let drawn = (parts, since, any::<bool>(), any::<u64>());
        drawn.prop_map(move |(mut parts, mut since, is_beside, seed)| {
            if !is_beside {
                // Nobody sends to the machines on its own side.
                for row in parts.iter_mut().flatten() {
                    row[receivers..].fill(0);
                }
                for row in &mut since {
                    row[receivers..].fill(TICKS);
                }
            }
            Tenant {
                guarantee,
                senders,
                receivers,
                parts,
                since,
                seed,
            }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn traffic_across_a_cut_stays_within_its_curve(tenant in tenants()) {
        let excess = tenant.excess();
        prop_assert!(excess <= 0, "{excess} nanobits more");
    }
}

/// All senders have frames for all receivers, and for no other machine, from the start.
fn shuffle(senders: usize, receivers: usize) -> Tenant {
    let machines = senders + receivers;
    let across = |to: usize| to < receivers;
    Tenant {
        guarantee: Guarantee {
            bandwidth: Rate(1_000_000_000),
            burst: Bytes(3 * FRAME.0),
            burst_rate: Rate(12_000_000_000),
            bursts: Bursts::PerReceiver,
            burst_in: None,
        },
        senders,
        receivers,
        parts: vec![vec![
            (0..machines).map(|to| u64::from(across(to))).collect();
            senders
        ]],
        since: vec![
            (0..machines)
                .map(|to| if across(to) { 0 } else { TICKS })
                .collect();
            senders
        ],
        seed: 1,
    }
}

#[test]
fn machines_that_send_to_several_use_the_burst_of_each_pair() {
    let tenant = shuffle(6, 2);
    let crossed = tenant.simulate();
    let curve = tenant.guarantee.across(6, 8, FRAME).unwrap();
    let last = Ratio::whole((TICKS as i128 - 1) * TICK);
    let left = curve.at(last).unwrap().ceil() - crossed[TICKS];
    // A frame of each pair that is not whole.
    assert!((0..=12 * FRAME_NANOBITS).contains(&left), "{left}");
    // Silo's curve: 2 B t + 6 S.
    let silo = |time: usize| 2 * 1_000_000_000 * time as i128 * TICK + 6 * 3 * FRAME_NANOBITS;
    let over = (0..TICKS).map(|time| crossed[time + 1] - silo(time)).max();
    assert!(over > Some(10 * FRAME_NANOBITS), "{over:?}");
}
