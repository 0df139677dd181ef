//! Machines that are reached by Ethernet, with or without named addresses.

use super::net::{Faults, Net, machine, station};
use crate::{Machine, StationChange};
use tailbound_units::{Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;

fn reached(host: usize, guest: u32, machines: u32) -> Machine {
    Machine {
        station: Some(station(host, guest)),
        ..machine(host, guest, Rate(B), machines)
    }
}

fn net() -> Net {
    let machines = (0..3).map(|host| vec![reached(host, 0, 3)]);
    let mut net = Net::new(machines.collect(), Faults::NONE, 7);
    net.run_for(Nanos::from_millis(10));
    net
}

#[test]
fn traffic_by_mac_and_by_ip_address_shares_one_pair_and_receiver() {
    let mut net = net();
    net.demand_by_station((1, 0), (0, 0), ALL);
    net.demand((2, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(10));
    // One by Ethernet, one through a router.
    assert_eq!(net.sum_to((0, 0)), B);
    assert_eq!(net.rate((1, 0), (0, 0)), 0);
    assert_eq!(net.rate((2, 0), (0, 0)), B / 2);
    // The same machine both ways: it gets no more by that.
    net.demand((1, 0), (0, 0), ALL);
    let end = net.now + Nanos::from_millis(10);
    net.run_until(end, |net| assert!(net.sum_to((0, 0)) <= B));
    assert_eq!(net.sum_to((0, 0)), B);
    assert_eq!(net.rate((1, 0), (0, 0)), B / 4);
    assert_eq!(net.rate((2, 0), (0, 0)), B / 2);
}

/// Returns the changes at the first host.
fn changes(net: &mut Net) -> Vec<(u8, u8, bool)> {
    let changes = net.hosts[0].state.poll_stations();
    let mut changes: Vec<_> = changes
        .map(|StationChange { station, announced }| {
            let [.., host, guest] = station.mac();
            (host, guest, announced)
        })
        .collect();
    changes.sort_unstable();
    changes
}

#[test]
fn each_station_is_reported_once_while_any_vm_uses_it() {
    let mut net = net();
    assert_eq!(
        changes(&mut net),
        [(0, 0, true), (1, 0, true), (2, 0, true)]
    );
    // It moves: for a while both hosts announce it.
    net.set_machines(2, vec![reached(2, 0, 3), reached(1, 0, 3)]);
    net.run_for(Nanos::from_millis(10));
    net.set_machines(1, vec![]);
    net.run_for(Nanos::from_millis(10));
    assert_eq!(changes(&mut net), []);
    net.set_machines(2, vec![reached(2, 0, 3), reached(2, 1, 3)]);
    net.set_machines(0, vec![]);
    net.run_for(Nanos::from_millis(10));
    assert_eq!(
        changes(&mut net),
        [(0, 0, false), (1, 0, false), (2, 1, true)]
    );
    assert_eq!(net.hosts[0].state.stations().count(), 2);
}
