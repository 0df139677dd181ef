//! Hosts whose time of day was wrong, and datagrams of the past that come again.

use super::bound::everyone;
use super::net::{Faults, Net, machine};
use crate::DropReason;
use crate::wire::Envelope;
use proptest::prelude::*;
use std::collections::HashSet;
use tailbound_units::{Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;
const YEAR: i64 = 365 * 24 * 3_600_000_000_000;

/// Hosts with a machine each.
fn net(hosts: usize, faults: Faults, seed: u64) -> Net {
    let machines = (0..hosts).map(|host| vec![machine(host, 0, Rate(B), hosts as u32)]);
    let mut net = Net::new(machines.collect(), faults, seed);
    net.slice = Nanos::from_micros(100);
    net
}

/// Returns whether every host receives datagrams from every other one.
fn all_alive(net: &Net) -> bool {
    let others = net.hosts.len() as u64 - 1;
    (0..net.hosts.len()).all(|host| {
        let stats = net.hosts[host].state.stats(net.clock(host));
        stats.alive == others
    })
}

/// Datagrams of host `of` that host `at` has dropped for this reason.
fn dropped(net: &Net, at: usize, reason: &str) -> u64 {
    let stats = net.hosts[at].state.stats(net.clock(at));
    let mut reasons = stats.dropped.by_reason().into_iter();
    reasons.find(|(name, _)| *name == reason).unwrap().1
}

/// Starts a host once with a wrong clock and then with the right one; returns the time until the
/// others accept its datagrams again.
fn started_wrong(error: i64, others: i64) -> Nanos {
    let mut net = net(3, Faults::NONE, 9);
    for host in [0, 2] {
        net.hosts[host].clock_error = others;
    }
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(20));
    net.hosts[1].clock_error = error;
    net.restart(1);
    net.run_for(Nanos::from_secs(2));
    for host in [0, 1, 2] {
        net.hosts[host].clock_error = 0;
    }
    net.restart(1);
    let start = net.now;
    net.run_for(Nanos::from_millis(5));
    while net.rate((1, 0), (0, 0)) != B || !all_alive(&net) {
        net.run_for(Nanos::from_millis(1));
        assert!(
            net.now.since(start) < Nanos::from_secs(5),
            "{error} {others}"
        );
    }
    net.now.since(start)
}

#[test]
fn one_start_with_a_wrong_clock_does_not_lock_a_host_out() {
    // It went forward, as far as to where the others refuse it and not so far; it went
    // back; and the others went with it.
    for error in [70 * YEAR, YEAR / 10_000, -57 * YEAR] {
        for others in [0, error] {
            let took = started_wrong(error, others);
            assert!(took <= Nanos::from_millis(400), "{took} {error} {others}");
        }
    }
}

#[test]
fn a_host_whose_clock_is_far_ahead_is_refused_and_so_is_not_believed_for_long() {
    let mut net = net(2, Faults::NONE, 9);
    net.run_for(Nanos::from_millis(20));
    net.hosts[1].clock_error = 70 * YEAR;
    net.restart(1);
    net.run_for(Nanos::from_millis(500));
    assert!(dropped(&net, 0, "ahead") > 0);
    // Its own clock refuses nobody.
    assert_eq!(dropped(&net, 1, "ahead"), 0);
}

#[test]
fn a_restarted_host_with_a_corrected_clock_reconnects() {
    for error in [70 * YEAR, YEAR / 10_000] {
        let mut net = net(2, Faults::NONE, 9);
        for host in [0, 1] {
            net.hosts[host].clock_error = error;
            net.restart(host);
        }
        net.run_for(Nanos::from_secs(1));
        assert!(all_alive(&net));
        // Each would refuse the other: for what is far ahead, and for what is old.
        for host in [0, 1] {
            net.hosts[host].clock_error = 0;
        }
        net.restart(0);
        net.run_for(Nanos::from_millis(5));
        assert!(!all_alive(&net));
        net.run_for(Nanos::from_millis(400));
        assert!(all_alive(&net), "{error}");
        net.demand((1, 0), (0, 0), ALL);
        net.run_for(Nanos::from_millis(5));
        assert_eq!(net.rate((1, 0), (0, 0)), B);
    }
}

/// Clocks go wrong, hosts restart, and recorded datagrams are replayed. No datagram is accepted
/// twice in one life of its receiver, and seconds after all clocks are right again, all rates are
/// the expected ones.
fn storm(seed: u64, hosts: usize, faults: Faults) {
    let mut net = net(hosts, faults, seed);
    net.tapped = Some(Vec::new());
    let mut taken = HashSet::new();
    let everyone = everyone(&net);
    for round in 0..60_u64 {
        let host = net.random.below(hosts as u64) as usize;
        match net.random.below(6) {
            0 => {
                let errors = [0, 70 * YEAR, -40 * YEAR, 1_000_000_000, -YEAR / 10_000];
                let error = errors[net.random.below(5) as usize];
                // No two lives begin in the same nanosecond.
                net.hosts[host].clock_error = error + net.random.below(100_000).cast_signed();
                net.restart(host);
                taken.retain(|(to, _)| *to != host);
            }
            1 => net.hosts[host].clock_error = 0,
            _ => {
                let (from, to) = (everyone[host], everyone[(host + 1) % hosts]);
                net.demand(from, to, if round % 3 == 0 { 0 } else { ALL });
            }
        }
        let time = net.random.below(120);
        net.run_for(Nanos::from_millis(time));
        replay(&mut net, &mut taken);
    }
    for host in 0..hosts {
        net.hosts[host].clock_error = 0;
    }
    net.faults = Faults::NONE;
    for from in &everyone {
        for to in &everyone {
            net.demand(
                *from,
                *to,
                if *to == everyone[0] && from != to {
                    ALL
                } else {
                    0
                },
            );
        }
    }
    net.run_for(Nanos::from_secs(2));
    assert!(all_alive(&net), "seconds later");
    let fair = B / (hosts as u64 - 1);
    for from in &everyone[1..] {
        assert!(net.rate(*from, everyone[0]).abs_diff(fair) <= fair / 1000);
    }
}

/// Replays some of the recorded datagrams, and records which ones are accepted. A datagram that the
/// network itself delivered counts as accepted if a second copy is refused.
fn replay(net: &mut Net, taken: &mut HashSet<(usize, Vec<u8>)>) {
    let tapped = net.tapped.take().unwrap();
    let some = if tapped.is_empty() { 0 } else { 20 };
    for _ in 0..some {
        let (to, datagram) = &tapped[net.random.below(tapped.len() as u64) as usize];
        let from = Envelope::read(datagram).unwrap().from;
        for _ in 0..2 {
            let result = net.deliver(*to, datagram);
            if result.is_ok() {
                let first = taken.insert((*to, datagram.clone()));
                assert!(first, "{from:?} to {to} twice at {}", net.now);
            } else {
                let stale = Err(DropReason::Duplicate);
                let old = [Err(DropReason::Old), Err(DropReason::Ahead)];
                assert!(result == stale || old.contains(&result), "{result:?}");
            }
        }
    }
    net.tapped = Some(tapped);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 6,
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_datagram_is_accepted_twice_and_right_clocks_restore_rates(
        seed: u64,
        hosts in 2_usize..4,
        loss in 0_u64..40,
        jitter in 0_u64..5_000,
    ) {
        let jitter = Nanos::from_micros(jitter);
        storm(seed, hosts, Faults { loss, doubled: 20, jitter });
    }
}

/// Storms after which each of two hosts refused what the other sent, for good.
#[test]
fn storms_that_left_two_hosts_deaf_to_each_other() {
    for (seed, hosts, loss, jitter) in [
        (1_227_007_894_394_853_706, 2, 28, 4435),
        (5_613_881_582_283_400_415, 3, 12, 669),
        (4_364_176_722_745_743_387, 2, 3, 1383),
        (2_944_031_195_595_163_091, 3, 31, 1462),
        (15_802_155_739_175_887_730, 3, 39, 3835),
    ] {
        let jitter = Nanos::from_micros(jitter);
        storm(
            seed,
            hosts,
            Faults {
                loss,
                doubled: 20,
                jitter,
            },
        );
    }
}
