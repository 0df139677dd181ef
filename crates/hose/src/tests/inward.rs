//! Inward bursts: hosts that exchange rates and pace real packets, under all faults of the network
//! and restarts of hosts. No receiver is ever sent more than `S_in` beyond its bandwidth.

use super::net::{Faults, INTERVAL, Net, address, machine};
use super::paced::{Content, Paces, Record};
use crate::{Destination, FlowKey, GuestId, InwardBurst, Machine};
use proptest::prelude::*;
use tailbound_dataplane::{self as dataplane, Guarantee, Pacer, PacerConfig};
use tailbound_units::{Bytes, Nanos, Rate};

pub(super) const HOSTS: usize = 5;
pub(super) const LINK: Rate = Rate::from_mbit(1_000);
pub(super) const B: Rate = Rate::from_mbit(100);
/// A frame on the wire, and its length with its header.
const FRAME: u64 = 1_538;
const LEN: usize = 1_514;
/// S.
pub(super) const BURST: Bytes = Bytes(10 * FRAME);
/// The part that each other machine always has, and all that they have together: half of it is lent.
const PART: Bytes = Bytes(3 * FRAME);
pub(super) const BURST_IN: u64 = 2 * PART.0 * (HOSTS as u64 - 1);
const INWARD: InwardBurst = InwardBurst {
    most: Bytes(BURST_IN),
    part: PART,
};
/// Rounded rates and positions, in bytes.
pub(super) const ROUNDED: u64 = 16;

/// A pacer whose guest has a part of each receiver's inward burst, or none.
pub(super) fn pacer(clock: Nanos, inward: Option<InwardBurst>) -> Paces {
    let mut pacer = Pacer::new(&PacerConfig::strict(LINK)).unwrap();
    let guarantee = Guarantee {
        mark: None,
        credit: inward.map(|inward| inward.part),
        ..Guarantee::new(B, BURST, LINK)
    };
    let guest = dataplane::GuestId::first(0);
    pacer.set_guest(clock, guest, Some(&guarantee)).unwrap();
    Paces::new(pacer, LINK)
}

fn net(seed: u64, faults: Faults, inward: Option<InwardBurst>) -> Net {
    let machines = (0..HOSTS).map(|host| {
        let machine = machine(host, 0, B, HOSTS as u32);
        vec![Machine {
            burst: BURST,
            inward,
            ..machine
        }]
    });
    let mut net = Net::new(machines.collect(), Faults::NONE, seed);
    net.slice = Nanos::from_micros(50);
    // All hosts learn of all machines.
    net.run_for(Nanos::from_millis(10));
    for host in 0..HOSTS {
        let clock = net.clock(host);
        net.pace(host, pacer(clock, inward));
    }
    // Buckets and pools fill.
    net.run_for(Nanos::from_millis(260));
    net.faults = faults;
    net
}

/// The most that is lent of a receiver's inward burst now.
pub(super) fn lent(net: &Net) -> u64 {
    let to = |to| Destination::Address(address(to, 0));
    let lent = (0..HOSTS).map(|receiver| {
        let hosts = net.hosts.iter().flat_map(|host| &host.lent);
        let lent = hosts.filter(|(flow, _)| flow.destination == to(receiver));
        lent.map(|(_, bytes)| bytes).sum()
    });
    lent.max().unwrap_or(0)
}

/// Queues frames to a receiver, if the sender's host knows where it is.
pub(super) fn send(net: &mut Net, from: usize, to: usize, frames: u64) {
    let flow = FlowKey {
        guest: GuestId(0),
        destination: Destination::Address(address(to, 0)),
    };
    let host = &mut net.hosts[from];
    if let Some(paces) = host
        .paces
        .as_mut()
        .filter(|_| host.rates.contains_key(&flow))
    {
        for _ in 0..frames {
            paces.give(Record {
                len: LEN,
                source: 0,
                destination: address(to, 0),
                content: Content::Filler,
            });
        }
    }
}

/// Bytes that each receiver was sent beyond B.
pub(super) struct Excess {
    /// Frames with the time of the network: not yet counted.
    sent: Vec<(Nanos, usize)>,
    above: [u64; HOSTS],
    at: [Nanos; HOSTS],
    /// Times until which a receiver may be sent 2B.
    double_until: [Nanos; HOSTS],
    pub(super) most: u64,
}

impl Excess {
    pub(super) fn new() -> Self {
        Self {
            sent: Vec::new(),
            above: [0; HOSTS],
            at: [Nanos::ZERO; HOSTS],
            double_until: [Nanos::ZERO; HOSTS],
            most: 0,
        }
    }

    /// Takes the frames that have left a host.
    pub(super) fn take(&mut self, net: &mut Net, host: usize) {
        let ahead = net.clock(host);
        let now = net.now;
        if let Some(paces) = &mut net.hosts[host].paces {
            for (at, frame) in paces.left.drain(..) {
                let to = (0..HOSTS).find(|to| address(*to, 0) == frame.destination);
                self.sent.push((now + at - ahead, to.expect("one of them")));
            }
        }
    }

    /// Permits 2B to a receiver until `end`. The frames until now are counted.
    pub(super) fn double_until(&mut self, to: usize, end: Nanos) {
        self.double_until[to] = end;
    }

    /// Counts all frames that were taken.
    pub(super) fn count(&mut self) {
        self.sent.sort_unstable();
        for (at, to) in self.sent.drain(..) {
            let since = at.since(self.at[to]);
            let twice = at.min(self.double_until[to]).saturating_sub(self.at[to]);
            let allowed = B.bytes_in(since).0 + B.bytes_in(twice).0;
            let above = self.above[to].saturating_sub(allowed);
            (self.above[to], self.at[to]) = (above + FRAME, at);
            self.most = self.most.max(self.above[to]);
        }
    }
}

/// Most bytes of any receiver in a storm.
#[derive(Debug, Clone, Copy)]
struct Worst {
    /// Bytes that it was sent beyond B.
    sent: u64,
    /// Lent bytes at one moment.
    lent: u64,
}

fn storm(seed: u64, faults: Faults, inward: Option<InwardBurst>) -> Worst {
    let mut net = net(seed, faults, inward);
    let mut excess = Excess::new();
    let mut most = 0;
    for round in 0..80 {
        let host = net.random.below(HOSTS as u64) as usize;
        let to = net.random.below(HOSTS as u64) as usize;
        match net.random.below(20) {
            0 | 1 => {
                excess.take(&mut net, host);
                net.restart(host);
                let clock = net.clock(host);
                net.pace(host, pacer(clock, inward));
            }
            2 => net.cut[host] = true,
            3..=5 => net.cut.fill(false),
            kind => {
                let frames = 1 + net.random.below(14);
                let all = kind > 10;
                for from in (0..HOSTS).filter(|from| *from != to && (all || *from == host)) {
                    send(&mut net, from, to, frames);
                }
            }
        }
        let longest = match round % 40 {
            20 => 800,
            10 | 30 => 60,
            _ => 8,
        };
        let end = net.now + Nanos(net.random.below(longest * INTERVAL.0));
        net.run_until(end, |net| most = lent(net).max(most));
        for host in 0..HOSTS {
            excess.take(&mut net, host);
        }
    }
    excess.count();
    Worst {
        sent: excess.most,
        lent: most,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn no_receiver_is_sent_more_than_the_inward_burst_beyond_its_bandwidth(
        seed in 1_u64..,
        loss in 0_u64..40,
        doubled in 0_u64..20,
        jitter in 0_u64..4_000,
    ) {
        let jitter = Nanos::from_micros(jitter);
        let faults = Faults { loss, doubled, jitter };
        let most = storm(seed, faults, Some(INWARD));
        prop_assert!(most.sent <= BURST_IN + ROUNDED, "{:?} of {}", most, BURST_IN);
        // With the parts of the four others it is all.
        prop_assert!(most.lent <= BURST_IN / 2, "{:?} of {}", most, BURST_IN);
    }
}

#[test]
fn receivers_without_an_inward_burst_are_sent_more() {
    let most = storm(1, Faults::NONE, None);
    assert!(most.sent > BURST_IN + ROUNDED, "{most:?}");
}

#[test]
fn all_of_the_pool_is_lent_in_a_storm() {
    let most = storm(1, Faults::NONE, Some(INWARD));
    assert_eq!(most.lent, BURST_IN / 2);
}

/// Sends a message, and returns the time until its last frame has left.
fn time(net: &mut Net, from: usize, to: usize, frames: u64) -> Nanos {
    for host in 0..HOSTS {
        net.hosts[host].paces.as_mut().unwrap().left.clear();
    }
    let clock = net.clock(from);
    send(net, from, to, frames);
    net.run_for(Nanos::from_millis(8));
    let left = &net.hosts[from].paces.as_ref().unwrap().left;
    assert_eq!(left.len() as u64, frames);
    left.last().expect("a frame").0.since(clock)
}

/// Times of messages between random machines, in order.
fn times(inward: Option<InwardBurst>, frames: u64) -> Vec<Nanos> {
    let mut net = net(5, Faults::NONE, inward);
    let mut times: Vec<_> = (0..200)
        .map(|_| {
            let from = net.random.below(HOSTS as u64) as usize;
            let others = net.random.below(HOSTS as u64 - 1) as usize;
            let to = (from + 1 + others) % HOSTS;
            let pause = Nanos::from_micros(5_000 + net.random.below(75_000));
            net.run_for(pause);
            time(&mut net, from, to, frames)
        })
        .collect();
    times.sort_unstable();
    times
}

#[test]
fn messages_up_to_the_part_are_as_fast_and_longer_ones_take_at_most_a_millisecond_more() {
    for (frames, most) in [(3, 0), (4, 1_000), (10, 1_000)] {
        let (plain, limited) = (times(None, frames), times(Some(INWARD), frames));
        let at = |times: &[Nanos], percent: usize| times[(times.len() * percent / 100).min(199)];
        for percent in [50, 99, 100] {
            let (plain, limited) = (at(&plain, percent), at(&limited, percent));
            println!("{frames} frames, p{percent}: {plain} without, {limited} with");
            assert!(
                limited.since(plain) <= Nanos::from_micros(most),
                "{frames} frames at p{percent}: {limited} above {plain}"
            );
        }
    }
}

#[test]
fn messages_up_to_the_inward_part_leave_without_waiting() {
    let mut net = net(7, Faults::NONE, Some(INWARD));
    let mut excess = Excess::new();
    for from in 1..HOSTS {
        send(&mut net, from, 0, 3);
    }
    net.run_for(Nanos::from_micros(300));
    for host in 0..HOSTS {
        excess.take(&mut net, host);
    }
    assert_eq!(excess.sent.len(), 3 * (HOSTS - 1));
    excess.count();
    assert!(excess.most > BURST_IN * 9 / 20, "{}", excess.most);
}

#[test]
fn a_lone_senders_loan_expires_and_is_lent_to_others() {
    let mut net = net(9, Faults::NONE, Some(INWARD));
    // Three frames, an exchange, seven frames at the link's rate.
    let first = time(&mut net, 1, 0, 10);
    assert!(first > Nanos::from_micros(200), "{first}");
    net.run_for(Nanos::from_millis(20));
    let second = time(&mut net, 1, 0, 10);
    assert!(second < Nanos::from_micros(200), "{second}");
    assert_eq!(lent(&net), 7 * FRAME);
    net.run_for(Nanos::from_millis(70));
    assert_eq!(lent(&net), 0);
    // All twelve frames of the pool, at once.
    for from in [2, 3] {
        send(&mut net, from, 0, 9);
    }
    net.run_for(Nanos::from_millis(1));
    for from in [2, 3] {
        let left = &net.hosts[from].paces.as_ref().unwrap().left;
        assert_eq!(left.len(), 9, "from {from}");
    }
    assert_eq!(lent(&net), 12 * FRAME);
}

/// Senders that go on within their parts keep no loan of an earlier message from others.
#[test]
fn an_active_senders_unused_loan_is_lent_to_others() {
    let mut net = net(9, Faults::NONE, Some(INWARD));
    for from in [1, 2] {
        send(&mut net, from, 0, 9);
    }
    net.run_for(Nanos::from_millis(2));
    assert_eq!(lent(&net), 12 * FRAME, "all of the pool");
    let early = time(&mut net, 3, 0, 10);
    // A frame each millisecond: an eighth of B.
    for _ in 0..80 {
        for from in [1, 2] {
            send(&mut net, from, 0, 1);
        }
        net.run_for(Nanos::from_millis(1));
    }
    assert_eq!(lent(&net), 0);
    let late = time(&mut net, 3, 0, 10);
    println!("the last seven frames at the rate: {early}; lent: {late}");
    // Ten frames take 0.12 ms, and an exchange.
    assert!(
        late < Nanos::from_micros(400) && early > late,
        "{early}, {late}"
    );
}

#[test]
fn a_host_that_started_again_lends_when_its_pool_is_paid() {
    let mut net = net(9, Faults::NONE, Some(INWARD));
    let first = time(&mut net, 1, 0, 10);
    net.restart(0);
    let clock = net.clock(0);
    net.pace(0, pacer(clock, Some(INWARD)));
    net.run_for(Nanos::from_millis(2));
    assert_eq!(lent(&net), 0, "its loans are void");
    // Twelve frames at 100 Mbit/s take 1.5 ms.
    net.run_for(Nanos::from_millis(250));
    let again = time(&mut net, 1, 0, 10);
    assert!(again <= first + Nanos::from_micros(200), "{again}");
}

#[test]
fn bytes_borrowed_before_a_restart_stay_within_the_inward_burst() {
    let mut net = net(3, Faults::NONE, Some(INWARD));
    let mut excess = Excess::new();
    for from in [1, 2] {
        send(&mut net, from, 0, 9);
    }
    net.run_for(Nanos::from_micros(500));
    assert_eq!(lent(&net), 12 * FRAME, "all of the pool");
    for host in [1, 2] {
        excess.take(&mut net, host);
        net.restart(host);
    }
    net.run_for(Nanos::from_micros(300));
    for from in [3, 4] {
        send(&mut net, from, 0, 9);
    }
    net.run_for(Nanos::from_millis(3));
    for host in 0..HOSTS {
        excess.take(&mut net, host);
    }
    excess.count();
    let most = excess.most;
    assert!(most <= BURST_IN + ROUNDED, "{most} of {BURST_IN}");
}
