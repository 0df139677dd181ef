//! Pairs of machines on one host: they take part without datagrams.

use super::net::{Faults, Net, machine};
use proptest::prelude::*;
use tailbound_units::{Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;

/// Returns hosts with these numbers of machines, all of one tenant.
fn net(machines: &[u32], seed: u64) -> Net {
    let all = machines.iter().sum();
    let hosts = machines.iter().enumerate().map(|(host, count)| {
        let guests = 0..*count;
        guests
            .map(|guest| machine(host, guest, Rate(B), all))
            .collect()
    });
    let mut net = Net::new(hosts.collect(), Faults::NONE, seed);
    net.run_for(Nanos::from_millis(10));
    net
}

#[test]
fn a_lone_local_sender_gets_the_full_rate_without_datagrams() {
    let mut net = net(&[2, 1], 3);
    let before = net.datagrams;
    net.demand((0, 0), (0, 1), ALL);
    net.run_for(Nanos::from_millis(2));
    assert_eq!(net.rate((0, 0), (0, 1)), B);
    net.run_for(Nanos::from_millis(50));
    assert_eq!(net.rate((0, 0), (0, 1)), B);
    // A heartbeat or two, and nothing about that pair.
    assert!(net.datagrams - before <= 4);
    net.demand((0, 0), (0, 1), 0);
    net.run_for(Nanos::from_millis(10));
    assert_eq!(net.rate((0, 0), (0, 1)), 0);
}

#[test]
fn a_sender_divides_its_bandwidth_among_receivers_here_and_elsewhere() {
    let mut net = net(&[3, 1], 3);
    for to in [(0, 1), (0, 2), (1, 0)] {
        net.demand((0, 0), to, ALL);
    }
    net.run_for(Nanos::from_millis(10));
    for to in [(0, 1), (0, 2), (1, 0)] {
        assert!(net.rate((0, 0), to).abs_diff(B / 3) <= B / 1000, "{to:?}");
    }
}

#[test]
fn a_local_sender_gets_the_rate_that_a_remote_one_releases() {
    let mut net = net(&[2, 1], 3);
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(5));
    assert_eq!(net.rate((1, 0), (0, 0)), B);
    net.demand((0, 1), (0, 0), ALL);
    net.run_for(Nanos::from_millis(5));
    assert_eq!(net.rate((1, 0), (0, 0)), B / 2);
    assert_eq!(net.rate((0, 1), (0, 0)), B / 2);
    net.demand((1, 0), (0, 0), 0);
    net.run_for(Nanos::from_millis(5));
    assert_eq!(net.rate((0, 1), (0, 0)), B);
}

#[test]
fn a_vm_that_leaves_frees_its_share_for_local_neighbours() {
    let mut net = net(&[3], 3);
    net.demand((0, 1), (0, 0), ALL);
    net.demand((0, 2), (0, 0), ALL);
    net.run_for(Nanos::from_millis(5));
    assert_eq!(net.rate((0, 1), (0, 0)), B / 2);
    let fewer = (0..2).map(|guest| machine(0, guest, Rate(B), 2)).collect();
    net.demand((0, 2), (0, 0), 0);
    net.set_machines(0, fewer);
    net.run_for(Nanos::from_millis(5));
    assert_eq!(net.rate((0, 1), (0, 0)), B);
    assert!(!net.is_limited((0, 2), (0, 0)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn each_of_n_senders_has_an_nth_wherever_it_is(
        seed: u64,
        machines in prop::collection::vec(1_u32..4, 1..4),
    ) {
        let mut net = net(&machines, seed);
        let everyone = super::bound::everyone(&net);
        let (to, senders) = everyone.split_first().expect("there is a machine");
        for from in senders {
            net.demand(*from, *to, ALL);
        }
        let end = net.now + Nanos::from_millis(10);
        net.run_until(end, |net| assert!(net.sum_to(*to) <= B));
        for from in senders {
            let fair = B / senders.len() as u64;
            prop_assert!(net.rate(*from, *to).abs_diff(fair) <= fair / 1000, "{from:?}");
        }
    }
}

/// Prints how long a host takes for a change of its 500 machines in tenants of 10, while each of 20
/// peers has 50 machines of these tenants.
///
/// `cargo test --release -p tailbound-hose --lib other_machines -- --ignored --nocapture`
#[test]
#[ignore = "measures, and judges nothing"]
fn measure_a_change_of_other_machines() {
    const GUESTS: u32 = 500;
    let of = |host: usize, guest: u32, mbit: u64| {
        let mut machine = machine(host, guest, Rate(mbit * 1_000_000), 0);
        machine.name = format!("acme/t{}/{}", guest % 50, host as u32 * GUESTS + guest);
        machine
    };
    let all = |count: u32, mbit| {
        (0..count)
            .map(|guest| of(0, guest, mbit))
            .collect::<Vec<_>>()
    };
    let peers = (1..21).map(|host| (0..50).map(|guest| of(host, guest, 10)).collect());
    let machines = std::iter::once(all(GUESTS, 10)).chain(peers);
    let mut net = Net::new(machines.collect(), Faults::NONE, 1);
    net.slice = Nanos::from_micros(200);
    net.run_for(Nanos::from_millis(900));
    let today = crate::TimeOfDay(1_800_000_000_000_000_000);
    let clock = net.clock(0) + Nanos::from_millis(100);
    let host = &mut net.hosts[0].state;
    let mut settle = |wanted: Vec<_>| {
        let wanted = crate::Machines::from(wanted);
        let mut steps = Vec::new();
        let start = std::time::Instant::now();
        host.set_machines(clock, wanted);
        while steps.is_empty() || host.poll_at() <= Some(clock) {
            let start = if steps.is_empty() {
                start
            } else {
                std::time::Instant::now()
            };
            host.poll_datagrams(clock, today, |_, _| {});
            host.poll_changes().for_each(drop);
            host.poll_incoming(clock).for_each(drop);
            steps.push(start.elapsed());
        }
        steps
    };
    settle(all(GUESTS, 10));
    for (what, before, next) in [
        ("the same", all(GUESTS, 10), all(GUESTS, 10)),
        ("one fewer", all(GUESTS, 10), all(GUESTS - 1, 10)),
        ("one more", all(GUESTS - 1, 10), all(GUESTS, 10)),
        ("other guarantees", all(GUESTS, 10), all(GUESTS, 20)),
    ] {
        // Each step at its best: other programs take the CPU in some.
        let mut best: Vec<std::time::Duration> = Vec::new();
        for _ in 0..7 {
            settle(before.clone());
            let steps = settle(next.clone());
            best.resize(best.len().max(steps.len()), steps[0]);
            for (best, step) in best.iter_mut().zip(&steps) {
                *best = (*best).min(*step);
            }
        }
        let (count, sum) = (best.len(), best.iter().sum::<std::time::Duration>());
        let longest = best.iter().max().expect("there is one");
        eprintln!("measured: {what}: {sum:?} in {count} steps, the longest of {longest:?}");
    }
}
