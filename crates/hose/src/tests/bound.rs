//! Invariants under all faults of the network and restarts of hosts.

use super::net::{Faults, Net, machine};
use crate::GuestId;
use proptest::prelude::*;
use tailbound_units::{Bytes, Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;

/// Every machine of a net: its host and its guest.
pub(super) fn everyone(net: &Net) -> Vec<(usize, u32)> {
    let hosts = net.hosts.iter().enumerate();
    hosts
        .flat_map(|(host, state)| state.machines.iter().map(move |m| (host, m.guest.0 as u32)))
        .collect()
}

fn holds(net: &Net, everyone: &[(usize, u32)]) {
    for to in everyone {
        let sum = net.sum_to(*to);
        assert!(sum <= B, "{sum} to {to:?} at {}", net.now);
        let leaving = net.leaving_to(*to);
        assert!(leaving <= B, "{leaving} leaves to {to:?} at {}", net.now);
    }
    for from in everyone {
        let open = everyone
            .iter()
            .filter(|to| *to != from)
            .map(|to| net.rate(*from, *to))
            .sum::<u64>();
        assert!(open <= B, "{open} from {from:?} at {}", net.now);
    }
    held_to_no_less(net, everyone);
}

/// Asserts that receivers' hosts limit no sender to less than its own permitted rate. A host that
/// has learnt of no such machine since its start is exempt.
fn held_to_no_less(net: &Net, everyone: &[(usize, u32)]) {
    for from in everyone {
        for to in everyone.iter().filter(|to| to.0 != from.0) {
            let rate = net.rate(*from, *to);
            if let Some(held) = net.held_to(*from, *to) {
                let now = net.now;
                assert!(
                    rate <= held,
                    "{rate} from {from:?} to {to:?}, held to {held} at {now}"
                );
            }
        }
    }
}

/// Changes one random machine or host.
pub(super) fn upset(net: &mut Net, everyone: &[(usize, u32)]) {
    let any = |net: &mut Net| everyone[net.random.below(everyone.len() as u64) as usize];
    let (from, to) = (any(net), any(net));
    match net.random.below(20) {
        0 => net.restart(from.0),
        1 | 2 => net.cut[from.0] = true,
        3..=5 => net.cut.fill(false),
        6..=9 => net.demand(from, to, 0),
        10 | 11 => {
            let rate = net.random.below(B / 2);
            net.demand(from, to, rate);
        }
        12 => {
            let (clock, bytes) = (net.clock(to.0), net.random.below(50_000));
            for place in 0..12 {
                let now = clock - Nanos::from_millis(11 - place).min(clock);
                let state = &mut net.hosts[to.0].state;
                state.sample_drained(now, |guest| {
                    (guest == GuestId(to.1.into())).then_some((Bytes(bytes), true))
                });
            }
        }
        _ if from != to => net.demand(from, to, ALL),
        _ => {}
    }
}

/// The time for which frames leave by departure times of a former rate, on hosts that have them.
const COMMITMENT: Nanos = Nanos::from_millis(10);

fn storm(seed: u64, hosts: usize, faults: Faults) {
    stormy(seed, hosts, faults, 0);
}

/// A storm over hosts, the first `committed` of which enforce rates by departure times.
fn stormy(seed: u64, hosts: usize, faults: Faults, committed: usize) {
    let machines = 2 * hosts as u32;
    let placed = |host| (0..2).map(move |guest| machine(host, guest, Rate(B), machines));
    let machines = (0..hosts).map(|host| placed(host).collect()).collect();
    let mut net = Net::new(machines, faults, seed);
    net.slice = Nanos::from_micros(100);
    for host in 0..committed {
        net.commit(host, COMMITMENT);
    }
    let everyone = everyone(&net);
    for round in 0..80 {
        upset(&mut net, &everyone);
        // Mostly a few intervals, at times longer than a pledge.
        let longest = if round % 40 == 20 { 800 } else { 12 };
        let time = Nanos::from_millis(net.random.below(longest));
        let end = net.now + time;
        net.run_until(end, |net| holds(net, &everyone));
    }

    // When the storm is over, whoever is sent to is sent all it may get.
    net.cut.fill(false);
    net.faults = Faults::NONE;
    for from in &everyone {
        for to in &everyone {
            net.demand(*from, *to, 0);
        }
    }
    let end = net.now + Nanos::from_millis(800);
    net.run_until(end, |net| holds(net, &everyone));
    let to = everyone[0];
    let senders: Vec<_> = everyone.iter().filter(|from| **from != to).collect();
    for from in &senders {
        net.demand(**from, to, ALL);
    }
    let settled = if committed > 0 { 4 * COMMITMENT.0 } else { 0 };
    net.run_for(Nanos::from_millis(5) + Nanos(settled));
    // It takes all that comes.
    let clock = net.clock(to.0);
    let state = &mut net.hosts[to.0].state;
    state.sample_drained(clock, |_| Some((Bytes(0), false)));
    let end = net.now + Nanos::from_millis(10);
    net.run_until(end, |net| holds(net, &everyone));
    for from in &senders {
        let fair = B / senders.len() as u64;
        assert!(net.rate(**from, to).abs_diff(fair) < fair / 1000);
    }
    // And nobody is held to more than that.
    let elsewhere = senders.iter().filter(|from| from.0 != to.0);
    let held = elsewhere.map(|from| net.held_to(**from, to));
    let held = held.map(|rate| rate.expect("everybody was heard"));
    assert!(held.sum::<u64>() <= B);
}

/// Number of storms in a run: `TAILBOUND_STORMS`, or a few by default. The seed of each one is in
/// the message of its failure; `PROPTEST_RNG_SEED` chooses all of them.
fn storms() -> u32 {
    match std::env::var("TAILBOUND_STORMS") {
        Ok(storms) => storms.parse().expect("TAILBOUND_STORMS is a number"),
        Err(_) => 6,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: storms(),
        // Each takes seconds, and one storm is as good as another.
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    })]

    #[test]
    fn rates_to_one_receiver_never_sum_up_above_its_bandwidth(
        seed: u64,
        hosts in 2_usize..5,
        loss in 0_u64..50,
        doubled in 0_u64..50,
        jitter in 0_u64..8_000,
    ) {
        let jitter = Nanos::from_micros(jitter);
        storm(seed, hosts, Faults { loss, doubled, jitter });
    }

    /// The same with departure times on some or all hosts: frames leave by them after a rate has fallen.
    #[test]
    fn frames_with_departure_times_leave_within_the_bandwidth_of_their_receiver(
        seed: u64,
        hosts in 2_usize..5,
        committed in 1_usize..5,
        loss in 0_u64..50,
        jitter in 0_u64..4_000,
    ) {
        let faults = Faults { loss, doubled: 10, jitter: Nanos::from_micros(jitter) };
        stormy(seed, hosts, faults, committed.min(hosts));
    }
}

/// A rate is confirmed, returned and pledged only when no frame leaves by a higher one.
#[test]
fn another_sender_gets_a_rate_when_no_frame_leaves_by_it() {
    let mut net = three();
    net.commit(1, COMMITMENT);
    net.run_for(Nanos::from_millis(800));
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(30));
    assert_eq!(net.rate((1, 0), (0, 0)), B);
    net.demand((2, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(8));
    assert_eq!(net.rate((1, 0), (0, 0)), B / 2);
    assert_eq!(
        net.rate((2, 0), (0, 0)),
        0,
        "frames leave by the former rate"
    );
    net.run_for(Nanos::from_millis(22));
    assert_eq!(net.rate((2, 0), (0, 0)), B / 2);
    // A sender that stops returns its grant.
    net.demand((1, 0), (0, 0), 0);
    net.run_for(Nanos::from_millis(8));
    assert_eq!(
        net.rate((2, 0), (0, 0)),
        B / 2,
        "frames leave by the former rate"
    );
    net.run_for(Nanos::from_millis(32));
    assert_eq!(net.rate((2, 0), (0, 0)), B);
}

/// Three hosts with a machine each, all sending to the first.
fn three() -> Net {
    let machines = (0..3).map(|host| vec![machine(host, 0, Rate(B), 3)]);
    let mut net = Net::new(machines.collect(), Faults::NONE, 7);
    net.run_for(Nanos::from_millis(10));
    net
}

#[test]
fn a_lone_sender_gets_all() {
    let mut net = three();
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(3));
    assert_eq!(net.rate((1, 0), (0, 0)), B);
    assert_eq!(net.rate((2, 0), (0, 0)), 0);
}

#[test]
fn spare_bandwidth_goes_to_backlogged_senders_or_is_split() {
    let mut net = three();
    net.demand((1, 0), (0, 0), B / 10);
    net.demand((2, 0), (0, 0), B / 10);
    net.run_for(Nanos::from_millis(5));
    // An eighth each, and half of the rest.
    assert_eq!(net.rate((1, 0), (0, 0)) / 1_000_000, 500);
    assert_eq!(net.rate((2, 0), (0, 0)) / 1_000_000, 500);
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(5));
    assert_eq!(net.rate((1, 0), (0, 0)) / 1_000_000, 875);
    assert_eq!(net.rate((2, 0), (0, 0)) / 1_000_000, 125);
}

#[test]
fn a_sender_gives_its_ungranted_bandwidth_to_other_receivers() {
    // 1 sends to 0 and 2; 2 sends to 0 as well: 0 gives both a half, and 1 sends
    // what is left of its own to 2.
    let mut net = three();
    net.demand((1, 0), (0, 0), ALL);
    net.demand((2, 0), (0, 0), ALL);
    net.demand((1, 0), (2, 0), ALL);
    net.run_for(Nanos::from_millis(10));
    assert_eq!(net.rate((1, 0), (0, 0)), B / 2);
    assert_eq!(net.rate((2, 0), (0, 0)), B / 2);
    assert_eq!(net.rate((1, 0), (2, 0)), B / 2);
}

#[test]
fn on_silence_a_sender_falls_back_to_the_static_share() {
    let mut net = three();
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(5));
    net.cut[0] = true;
    // The lease of 20 intervals is over.
    net.run_for(Nanos::from_millis(22));
    assert_eq!(net.rate((1, 0), (0, 0)), B / 2);
    assert_eq!(net.hosts[1].state.stats(Nanos(net.now.0)).fallbacks, 1);
    // A pair that was idle may use its share once the pledge is over.
    net.demand((2, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(5));
    assert_eq!(net.rate((2, 0), (0, 0)), 0);
    net.run_for(Nanos::from_millis(800));
    assert_eq!(net.rate((2, 0), (0, 0)), B / 2);
    assert_eq!(net.rate((1, 0), (0, 0)), B / 2);
    // Then all is as before, and as soon as it is heard again.
    net.demand((2, 0), (0, 0), 0);
    net.cut[0] = false;
    net.run_for(Nanos::from_millis(300));
    assert_eq!(net.rate((1, 0), (0, 0)), B);
}

#[test]
fn a_rate_returned_with_grants_in_flight_is_granted_only_once() {
    // Datagrams take several intervals: grants of one rate are on their way while
    // a sender gives back the ones before and finds a use for them again. Then it
    // is cut off, before it hears that its rate is another's now.
    for (idle, busy) in (2..8).flat_map(|idle| (1..8).map(move |busy| (idle, busy))) {
        let mut net = three();
        net.takes = Nanos::from_millis(3);
        let everyone = everyone(&net);
        net.demand((1, 0), (0, 0), ALL);
        net.run_for(Nanos::from_millis(30));
        net.demand((1, 0), (0, 0), 0);
        net.run_for(Nanos::from_millis(idle));
        net.demand((1, 0), (0, 0), ALL);
        net.demand((2, 0), (0, 0), ALL);
        net.run_for(Nanos::from_millis(busy));
        net.cut[1] = true;
        let end = net.now + Nanos::from_millis(20);
        net.run_until(end, |net| holds(net, &everyone));
    }
}

#[test]
fn a_backlogged_sender_gets_more_when_its_own_bandwidth_rises() {
    let mut net = three();
    net.set_machines(1, vec![machine(1, 0, Rate(B / 4), 3)]);
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(5));
    assert_eq!(net.rate((1, 0), (0, 0)), B / 4);
    net.set_machines(1, vec![machine(1, 0, Rate(B), 3)]);
    net.run_for(Nanos::from_millis(5));
    assert_eq!(net.rate((1, 0), (0, 0)), B);
}

#[test]
fn a_machine_that_one_of_two_hosts_drops_is_on_the_other() {
    // While it moves, both announce it, and the old host last. That changes no
    // tenant's size, so the new host has no reason to announce it again.
    let machines = (0..3).map(|host| vec![machine(host, 0, Rate(B), 9)]);
    let mut net = Net::new(machines.collect(), Faults::NONE, 7);
    net.run_for(Nanos::from_millis(10));
    let (own, moving) = (machine(1, 1, Rate(B), 9), machine(1, 0, Rate(B), 9));
    net.set_machines(2, vec![moving.clone()]);
    net.run_for(Nanos::from_millis(10));
    net.set_machines(1, vec![moving, own.clone()]);
    net.run_for(Nanos::from_millis(10));
    net.set_machines(1, vec![own]);
    net.run_for(Nanos::from_millis(10));
    assert!(net.is_limited((0, 0), (1, 0)));
    net.demand((0, 0), (1, 0), ALL);
    net.run_for(Nanos::from_millis(5));
    // Of the other eight, six may be anywhere and use B/8 each.
    assert_eq!(net.rate((0, 0), (1, 0)), B / 4);
}

#[test]
fn a_host_that_starts_again_is_taken_up_at_once() {
    let mut net = three();
    net.demand((1, 0), (0, 0), ALL);
    net.demand((2, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(5));
    for host in [0, 1] {
        net.restart(host);
        let everyone = everyone(&net);
        let end = net.now + Nanos::from_millis(8);
        net.run_until(end, |net| holds(net, &everyone));
        assert_eq!(net.rate((1, 0), (0, 0)), B / 2, "after {host}'s restart");
        assert_eq!(net.rate((2, 0), (0, 0)), B / 2, "after {host}'s restart");
    }
}

/// The limit on a machine's senders follows their permitted rates. It rises immediately, and falls
/// when the higher rate cannot be in use any more.
#[test]
fn receivers_hold_senders_to_their_permitted_rates() {
    let mut net = three();
    net.run_for(Nanos::from_millis(50));
    let held = |net: &Net, from| net.held_to((from, 0), (0, 0)).expect("it was heard");
    let limits = net.hosts[0].receivers[&GuestId(0)];
    assert_eq!((limits.bandwidth, limits.senders), (Rate(B), 2));
    assert_eq!(
        [held(&net, 1), held(&net, 2)],
        [0, 0],
        "idle pairs hold nothing"
    );
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(10));
    assert_eq!([held(&net, 1), held(&net, 2)], [B, 0]);
    net.demand((2, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(10));
    assert_eq!([held(&net, 1), held(&net, 2)], [B / 2, B / 2]);
    // Cut off, each may use its share unasked when its host's pledge is over.
    net.demand((1, 0), (0, 0), 0);
    net.run_for(Nanos::from_millis(60));
    assert_eq!([held(&net, 1), held(&net, 2)], [0, B]);
    net.cut.fill(true);
    net.run_for(Nanos::from_millis(700));
    assert_eq!([held(&net, 1), held(&net, 2)], [B / 2, B / 2]);
    // A machine that goes is nobody any more.
    net.cut.fill(false);
    net.set_machines(1, Vec::new());
    net.run_for(Nanos::from_millis(200));
    assert_eq!(net.held_to((1, 0), (0, 0)), None);
    net.set_machines(0, Vec::new());
    net.run_for(Nanos::from_millis(10));
    assert!(net.hosts[0].receivers.is_empty() && net.hosts[0].incoming.is_empty());
}

#[test]
fn idle_hosts_send_a_heartbeat_and_nothing_else() {
    let mut net = three();
    net.demand((1, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(20));
    net.demand((1, 0), (0, 0), 0);
    net.run_for(Nanos::from_millis(300));
    let before = net.datagrams;
    net.run_for(Nanos::from_secs(1));
    // Three hosts, two peers each, ten heartbeats.
    assert_eq!(net.datagrams - before, 60);
}
