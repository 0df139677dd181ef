//! Inward bursts: hosts that exchange rates and pace real packets, under all faults of the network
//! and restarts of hosts. No receiver is ever sent more than `S_in` beyond its bandwidth.

use super::net::{Faults, INTERVAL, Net, address, machine};
use super::paced::{Content, Paces, Record};
use crate::{Destination, FlowKey, GuestId, Machine};
use proptest::prelude::*;
use tailbound_dataplane::{self as dataplane, Guarantee, Pacer, PacerConfig};
use tailbound_units::{Bytes, Nanos, Rate};

const HOSTS: usize = 5;
const LINK: Rate = Rate::from_mbit(1_000);
const B: Rate = Rate::from_mbit(100);
/// A frame on the wire, and its length with its header.
const FRAME: u64 = 1_538;
const LEN: usize = 1_514;
/// S.
const BURST: Bytes = Bytes(10 * FRAME);
/// The part of each other machine, and all of them.
const CREDIT: Bytes = Bytes(3 * FRAME);
const BURST_IN: u64 = CREDIT.0 * (HOSTS as u64 - 1);
/// Rounded rates and positions, in bytes.
const ROUNDED: u64 = 16;

/// A pacer whose guest has a part of each receiver's inward burst, or none.
fn pacer(clock: Nanos, credit: Option<Bytes>) -> Paces {
    let mut pacer = Pacer::new(&PacerConfig::strict(LINK)).unwrap();
    let guarantee = Guarantee {
        mark: None,
        credit,
        ..Guarantee::new(B, BURST, LINK)
    };
    let guest = dataplane::GuestId::first(0);
    pacer.set_guest(clock, guest, Some(&guarantee)).unwrap();
    Paces::new(pacer, LINK)
}

fn net(seed: u64, faults: Faults, credit: Option<Bytes>) -> Net {
    let machines = (0..HOSTS).map(|host| {
        let machine = machine(host, 0, B, HOSTS as u32);
        vec![Machine {
            burst: BURST,
            ..machine
        }]
    });
    let mut net = Net::new(machines.collect(), Faults::NONE, seed);
    net.slice = Nanos::from_micros(50);
    // All hosts learn of all machines.
    net.run_for(Nanos::from_millis(10));
    for host in 0..HOSTS {
        let clock = net.clock(host);
        net.pace(host, pacer(clock, credit));
    }
    net.run_for(Nanos::from_millis(60));
    net.faults = faults;
    net
}

/// Queues frames to a receiver, if the sender's host knows where it is.
fn send(net: &mut Net, from: usize, to: usize, frames: u64) {
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
struct Excess {
    /// Frames with the time of the network: not yet counted.
    sent: Vec<(Nanos, usize)>,
    above: [u64; HOSTS],
    at: [Nanos; HOSTS],
    most: u64,
}

impl Excess {
    fn new() -> Self {
        Self {
            sent: Vec::new(),
            above: [0; HOSTS],
            at: [Nanos::ZERO; HOSTS],
            most: 0,
        }
    }

    /// Takes the frames that have left a host.
    fn take(&mut self, net: &mut Net, host: usize) {
        let ahead = net.clock(host);
        let now = net.now;
        if let Some(paces) = &mut net.hosts[host].paces {
            for (at, frame) in paces.left.drain(..) {
                let to = (0..HOSTS).find(|to| address(*to, 0) == frame.destination);
                self.sent.push((now + at - ahead, to.expect("one of them")));
            }
        }
    }

    /// Counts all frames that were taken.
    fn count(&mut self) {
        self.sent.sort_unstable();
        for (at, to) in self.sent.drain(..) {
            let since = at.since(self.at[to]);
            let above = self.above[to].saturating_sub(B.bytes_in(since).0);
            (self.above[to], self.at[to]) = (above + FRAME, at);
            self.most = self.most.max(self.above[to]);
        }
    }
}

/// Runs a storm, and returns the most that a receiver was sent beyond B.
fn storm(seed: u64, faults: Faults, credit: Option<Bytes>) -> u64 {
    let mut net = net(seed, faults, credit);
    let mut excess = Excess::new();
    for round in 0..80 {
        let host = net.random.below(HOSTS as u64) as usize;
        let to = net.random.below(HOSTS as u64) as usize;
        match net.random.below(20) {
            0 | 1 => {
                excess.take(&mut net, host);
                net.restart(host);
                let clock = net.clock(host);
                net.pace(host, pacer(clock, credit));
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
        let longest = if round % 40 == 20 { 800 } else { 8 };
        let time = Nanos(net.random.below(longest * INTERVAL.0));
        net.run_for(time);
        for host in 0..HOSTS {
            excess.take(&mut net, host);
        }
    }
    excess.count();
    excess.most
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
        let most = storm(seed, faults, Some(CREDIT));
        prop_assert!(most <= BURST_IN + ROUNDED, "{} of {}", most, BURST_IN);
    }
}

#[test]
fn receivers_without_an_inward_burst_are_sent_more() {
    let most = storm(1, Faults::NONE, None);
    assert!(most > BURST_IN + ROUNDED, "{most}");
}

#[test]
fn a_message_up_to_the_part_waits_for_nobody_and_all_of_it_comes_at_once() {
    let mut net = net(7, Faults::NONE, Some(CREDIT));
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
    assert!(excess.most > BURST_IN * 9 / 10, "{}", excess.most);
}

#[test]
fn a_message_beyond_the_part_waits_for_one_exchange() {
    let mut net = net(9, Faults::NONE, Some(CREDIT));
    send(&mut net, 1, 0, 10);
    let rest = B.time_for(Bytes(7 * FRAME));
    net.run_for(rest + Nanos::from_millis(2));
    let left = net.hosts[1].paces.as_ref().map(|paces| paces.left.len());
    assert_eq!(left, Some(10));
}
