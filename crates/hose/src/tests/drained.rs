//! Receivers that do not take what they are sent.

use super::net::{Faults, INTERVAL, Net, machine};
use crate::GuestId;
use tailbound_units::{Bytes, Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;

/// Machines 0 and 1 of the first host each have a sender on the second one.
fn net() -> Net {
    let machines = (0..2).map(|host| (0..2).map(move |guest| machine(host, guest, Rate(B), 4)));
    let mut net = Net::new(machines.map(Iterator::collect).collect(), Faults::NONE, 7);
    net.run_for(Nanos::from_millis(10));
    net.demand((1, 0), (0, 0), ALL);
    net.demand((1, 1), (0, 1), ALL);
    net.run_for(Nanos::from_millis(5));
    assert_eq!([net.rate((1, 0), (0, 0)), net.rate((1, 1), (0, 1))], [B, B]);
    net
}

/// Guest 0 of the first host takes this much in an interval.
fn drain(net: &mut Net, intervals: u64, bytes: u64, waiting: bool) {
    for _ in 0..intervals {
        let clock = net.clock(0);
        let state = &mut net.hosts[0].state;
        state.sample_drained(clock, |guest| {
            (guest == GuestId(0)).then_some((Bytes(bytes), waiting))
        });
        net.run_for(INTERVAL);
        assert!(net.sum_to((0, 0)) <= B);
    }
}

#[test]
fn a_slow_guest_slows_its_own_senders_only() {
    let mut net = net();
    // 200 Mbit/s.
    drain(&mut net, 15, 25_000, true);
    let slow = net.rate((1, 0), (0, 0));
    assert!(slow.abs_diff(B / 5) <= B / 100, "{slow}");
    assert_eq!(net.rate((1, 1), (0, 1)), B);
    drain(&mut net, 15, 0, true);
    assert_eq!(net.rate((1, 0), (0, 0)), B / 100);
    assert_eq!(net.rate((1, 1), (0, 1)), B);
    // It takes more again.
    drain(&mut net, 24, 1000, false);
    let rising = net.rate((1, 0), (0, 0));
    assert!((B / 12..B / 9).contains(&rising), "{rising}");
    drain(&mut net, 30, 1000, false);
    assert_eq!(net.rate((1, 0), (0, 0)), B);
}

#[test]
fn a_new_sender_shares_the_drain_rate_of_a_slow_guest() {
    let mut net = net();
    drain(&mut net, 15, 25_000, true);
    net.demand((1, 1), (0, 0), ALL);
    net.demand((0, 1), (0, 0), ALL);
    drain(&mut net, 10, 25_000, true);
    for from in [(1, 0), (1, 1), (0, 1)] {
        let rate = net.rate(from, (0, 0));
        assert!(rate.abs_diff(B / 15) <= B / 500, "{rate} from {from:?}");
    }
}
