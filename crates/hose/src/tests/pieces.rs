//! Other machines come into force in pieces, each of which looks at few.

use super::bound::everyone;
use super::net::{Faults, Net, machine};
use crate::Machine;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tailbound_units::{Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;

/// Machines on the first host, and on each of the others; machines of a tenant on a host.
const HERE: u32 = 100;
const ELSEWHERE: u32 = 20;
const TENANT: u32 = 5;

/// Machine `guest` of a host, of one of many tenants.
fn of(host: usize, guest: u32, bandwidth: u64) -> Machine {
    let tenants = if host == 0 { HERE } else { ELSEWHERE } / TENANT;
    let mut machine = machine(host, guest, Rate(bandwidth), 0);
    machine.name = format!("acme/t{}/{}", guest % tenants, host as u32 * HERE + guest);
    machine
}

fn here(guests: impl Iterator<Item = u32>, bandwidth: u64) -> Vec<Machine> {
    guests.map(|guest| of(0, guest, bandwidth)).collect()
}

/// A host of many machines among seven of fewer, which know each other.
fn many() -> Net {
    let others = (1..8).map(|host| (0..ELSEWHERE).map(|guest| of(host, guest, B)).collect());
    let machines = std::iter::once(here(0..HERE, B)).chain(others);
    let mut net = Net::new(machines.collect(), Faults::NONE, 1);
    net.slice = Nanos::from_micros(500);
    net.run_for(Nanos::from_millis(60));
    net
}

/// The work of a piece is bounded by its number of items. The bound depends on the largest number
/// of pairs of a machine: four here in either direction, and five on each of seven hosts.
#[test]
fn the_work_of_a_piece_is_bounded_for_any_number_of_changes() {
    let mut net = many();
    let pairs = (HERE * (TENANT - 1) + ELSEWHERE * 7 * TENANT) as usize;
    assert_eq!(net.hosts[0].rates.len(), pairs);
    for (what, next, least) in [
        ("the same", here(0..HERE, B), 100),
        ("one fewer", here(1..HERE, B), 100 + 4 * 7),
        ("one more", here(0..HERE, B), 100 + 5 * 7),
        ("other guarantees", here(0..HERE, B / 2), 100 * 9),
        ("none", Vec::new(), 100),
        ("all", here(0..HERE, B), 100 * 9),
    ] {
        let piece = net.hosts[0].state.piece;
        net.hosts[0].state.piece = 0;
        net.set_machines(0, next);
        net.hosts[0].state.piece = piece;
        let begun = net.clock(0);
        let (mut all, mut pieces) = (0, 0);
        while net.hosts[0].state.is_changing() {
            let looked_at = net.piece(0);
            let at = net.hosts[0].state.poll_at();
            let is_due = !net.hosts[0].state.is_changing() || at >= Some(begun);
            assert!(is_due, "{what}: the next piece is due since {at:?}");
            assert!(looked_at <= piece + 50, "{what}: {looked_at} at once");
            all += looked_at;
            pieces += 1;
        }
        assert!(all >= least, "{what}: {all} in all");
        assert!(pieces >= all / (piece + 50), "{what}: {pieces} pieces");
    }
    assert_eq!(net.hosts[0].rates.len(), pairs);
}

/// A list of 100 machines for seven hosts: 50 KB, of which no poll sends more than 16 KB
/// and what one host gets.
#[test]
fn bytes_per_poll_are_bounded_for_any_length_of_the_vm_list() {
    let mut net = many();
    let before = net.datagrams;
    net.set_machines(0, here(0..HERE, B / 2));
    let mut polls = 0;
    let mut told = 0;
    let end = net.now + Nanos::from_millis(20);
    while net.now < end {
        let sent = net.poll(0);
        let cost: usize = sent.iter().map(|len| len + 512).sum();
        assert!(cost <= 16 * 1024 + 4 * (1400 + 512), "{cost} at once");
        told += sent.iter().sum::<usize>();
        polls += 1;
        if net.hosts[0].state.poll_at() > Some(net.clock(0)) {
            net.now += Nanos::from_micros(250);
        }
    }
    assert!(told > 50_000, "{told} in {polls}");
    // Nobody has heard that: it is told again, and then known.
    net.run_for(Nanos::from_millis(30));
    assert!(net.datagrams > before);
    let share = net.hosts[1].state.view.peers[crate::ids::PeerIndex(0)].machines();
    assert!(
        share
            .values()
            .all(|machine| machine.bandwidth == Rate(B / 2))
    );
}

/// A tenant's machines on three hosts.
fn placed(mask: u16) -> Vec<Vec<Machine>> {
    let guests = (0..3).map(|host| (0..4).filter(move |guest| mask >> (4 * host + guest) & 1 > 0));
    let machines = guests.enumerate().map(|(host, guests)| {
        guests
            .map(|guest| machine(host, guest, Rate(B), 12))
            .collect()
    });
    machines.collect()
}

/// The rates that hosts come to, who change to these machines one after the other.
fn rates(masks: &[u16], piece: usize, seed: u64) -> Vec<BTreeMap<crate::FlowKey, u64>> {
    let mut net = Net::new(placed(0xfff), Faults::NONE, seed);
    net.slice = Nanos::from_micros(100);
    let all = everyone(&net);
    for host in &mut net.hosts {
        host.state.piece = piece;
    }
    let bounded = |net: &Net| {
        for to in &all {
            assert!(net.sum_to(*to) <= B, "{} to {to:?}", net.sum_to(*to));
        }
    };
    net.demand((1, 0), (0, 0), ALL);
    net.demand((0, 1), (0, 0), ALL);
    for mask in masks {
        for (host, machines) in placed(*mask).into_iter().enumerate() {
            net.set_machines(host, machines);
            let time = Nanos::from_micros(net.random.below(3000));
            net.run_until(net.now + time, bounded);
        }
    }
    net.run_until(net.now + Nanos::from_millis(60), bounded);
    for host in &net.hosts {
        assert!(!host.state.is_changing());
    }
    net.hosts.into_iter().map(|host| host.rates).collect()
}

/// The grants of a removed machine are available to others within a round trip, even if its host
/// has nothing else to send.
#[test]
fn grants_of_a_removed_vm_are_free_within_a_round_trip() {
    let mut net = Net::new(placed(0xfff), Faults::NONE, 1);
    net.slice = Nanos::from_micros(100);
    net.demand((1, 0), (0, 0), ALL);
    net.demand((0, 1), (0, 0), ALL);
    net.run_for(Nanos::from_millis(40));
    assert_eq!(net.rate((0, 1), (0, 0)), B / 2);
    net.set_machines(1, placed(0xfff)[1][1..].to_vec());
    net.run_for(Nanos::from_millis(5));
    // Of the twelve eleven are known, and the one that is not may send unasked.
    assert_eq!(net.rate((0, 1), (0, 0)), B / 11 * 10 + 10);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn lists_in_pieces_of_any_size_yield_the_same_rates(
        masks in prop::collection::vec(0_u16..0x1000, 1..5),
        piece in 1_usize..8,
        seed: u64,
    ) {
        prop_assert_eq!(rates(&masks, piece, seed), rates(&masks, usize::MAX, seed));
    }
}
