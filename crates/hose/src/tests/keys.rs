//! Keys that are renewed while hosts speak.

use super::net::{Faults, Net, key_of, machine};
use crate::wire::{Envelope, Malformed};
use crate::{DropReason, HostId, KeyEpoch};
use proptest::prelude::*;
use tailbound_units::{Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;

/// Hosts with a machine each, and keys of these epochs.
fn net(hosts: usize, epochs: &[u32], seed: u64) -> Net {
    let machines = (0..hosts).map(|host| vec![machine(host, 0, Rate(B), hosts as u32)]);
    let mut net = Net::new(machines.collect(), Faults::NONE, seed);
    net.slice = Nanos::from_micros(100);
    for host in 0..hosts {
        net.set_keys(host, epochs);
    }
    net
}

/// Datagrams that any host has dropped.
fn dropped(net: &Net) -> u64 {
    let hosts = 0..net.hosts.len();
    let counts = hosts.map(|host| {
        let stats = net.hosts[host].state.stats(net.clock(host));
        let counts = stats.dropped.by_reason();
        counts.iter().map(|(_, count)| count).sum::<u64>()
    });
    counts.sum()
}

/// The key that a host has signed its last datagram to another with.
fn last_key(net: &Net, from: usize, to: usize) -> KeyEpoch {
    let from = HostId::of(&format!("host-{from}"));
    let sent = net.tapped.as_ref().expect("they are kept");
    let mut sent = sent.iter().rev();
    let last = sent.find_map(|(at, datagram)| {
        let envelope = Envelope::read(datagram).expect("it is a datagram");
        (*at == to && envelope.from == from).then_some(envelope.key)
    });
    last.expect("there is one")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Each host learns of its next keys at a moment of its own.
    #[test]
    fn keys_are_renewed_under_traffic_and_no_datagram_is_lost(
        seed: u64,
        late in prop::collection::vec(prop::collection::vec(0_u64..150, 3), 3),
    ) {
        let mut net = net(3, &[4, 5], seed);
        net.demand((1, 0), (0, 0), ALL);
        net.run_for(Nanos::from_millis(250));
        let unlucky = dropped(&net);
        // Of two that have not heard of each other yet.
        prop_assert_eq!(unlucky, 0);
        for (round, late) in late.into_iter().enumerate() {
            let epoch = 6 + round as u32;
            net.tapped = Some(Vec::new());
            let mut order: Vec<_> = late.into_iter().enumerate().collect();
            order.sort_by_key(|(_, late)| *late);
            let start = net.now;
            for (host, late) in order {
                let due = start + Nanos::from_millis(late);
                net.run_for(due.saturating_sub(net.now));
                net.set_keys(host, &[epoch - 1, epoch]);
                prop_assert_eq!(net.rate((1, 0), (0, 0)), B);
            }
            // Pairs that are idle say so ten times a second.
            net.run_for(Nanos::from_millis(250));
            prop_assert_eq!(dropped(&net), 0);
            prop_assert_eq!(net.rate((1, 0), (0, 0)), B);
            for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
                prop_assert_eq!(last_key(&net, from, to), KeyEpoch(epoch));
            }
        }
    }
}

#[test]
fn hosts_one_key_epoch_apart_still_communicate() {
    let mut net = net(3, &[5, 6], 7);
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(50));
    assert_eq!(net.rate((1, 0), (0, 0)), B);
    // It was away for an epoch, and its keys are those of then.
    net.restart(1);
    net.set_keys(1, &[4, 5]);
    net.run_for(Nanos::from_secs(1));
    assert_eq!(net.rate((1, 0), (0, 0)), B);
    net.tapped = Some(Vec::new());
    net.run_for(Nanos::from_millis(10));
    assert_eq!(last_key(&net, 0, 1), KeyEpoch(5));
    // Two epochs behind there is none that both have.
    net.restart(1);
    net.set_keys(1, &[3, 4]);
    net.run_for(Nanos::from_secs(1));
    assert!(net.rate((1, 0), (0, 0)) <= B / 2);
    net.set_keys(1, &[5, 6]);
    net.run_for(Nanos::from_secs(1));
    assert_eq!(net.rate((1, 0), (0, 0)), B);
}

#[test]
fn keys_of_one_host_forge_no_message_between_two_others() {
    let mut net = net(3, &[5, 6], 7);
    net.tapped = Some(Vec::new());
    net.run_for(Nanos::from_millis(20));
    let sent = net.tapped.take().expect("they are kept");
    let from_2 = sent.iter().rev().find(|(to, datagram)| {
        let from = Envelope::read(datagram).expect("it is a datagram").from;
        *to == 0 && from == HostId::of("host-2")
    });
    let (_, heard) = from_2.expect("it has spoken");
    let body = &heard[..heard.len() - 32];
    // Host 1 signs what host 2 said to host 0, with all that it has, by either epoch.
    for epoch in [5, 6] {
        for (one, other) in [(1, 0), (1, 2)] {
            let mut forged = body.to_vec();
            // Later than all that was said.
            forged[52..60].copy_from_slice(&u64::MAX.to_be_bytes());
            forged[20..24].copy_from_slice(&u32::to_be_bytes(epoch));
            key_of(KeyEpoch(epoch), one, other).seal(&mut forged);
            let wrong = Err(DropReason::Malformed(Malformed::Mac));
            assert_eq!(net.deliver(0, &forged), wrong);
        }
    }
    // A key that is over opens nothing any more, nor does one that is to come.
    for epoch in [0, 4, 7] {
        let mut forged = body.to_vec();
        forged[20..24].copy_from_slice(&u32::to_be_bytes(epoch));
        key_of(KeyEpoch(epoch), 2, 0).seal(&mut forged);
        assert_eq!(net.deliver(0, &forged), Err(DropReason::NoKey));
    }
}
