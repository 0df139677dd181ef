//! Hosts whose frames have other classes than those of their fabric.

use super::net::{Faults, Net, machine};
use crate::{ClassesCode, HostId};
use tailbound_units::{Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;

/// Three hosts of these classes, of which the last two have all the first can take to send
/// it.
fn net(classes: [u64; 3]) -> Net {
    let machines = (0..3).map(|host| vec![machine(host, 0, Rate(B), 3)]);
    let mut net = Net::new(machines.collect(), Faults::NONE, 5);
    for (host, classes) in classes.into_iter().enumerate() {
        net.hosts[host].classes = ClassesCode(classes);
        net.restart(host);
    }
    net.demand((1, 0), (0, 0), ALL);
    net.demand((2, 0), (0, 0), ALL);
    net.run_for(Nanos::from_millis(200));
    net
}

/// Returns the hosts whose datagrams another host refuses.
fn refused(net: &Net, host: usize) -> Vec<HostId> {
    let peers = net.hosts[host].state.view.peers.iter();
    let refused = peers.filter(|peer| peer.is_refused);
    refused.map(|peer| peer.id).collect()
}

#[test]
fn a_host_of_other_classes_is_not_heard_until_it_has_the_same() {
    let mut net = net([3, 3, 3]);
    assert_eq!(net.rate((2, 0), (0, 0)), B / 2);
    net.hosts[2].classes = ClassesCode(4);
    net.restart(2);
    net.run_for(Nanos::from_secs(1));
    // As if it were silent: its static share is left to it.
    assert_eq!(net.rate((1, 0), (0, 0)), B / 2);
    assert!(!net.is_limited((2, 0), (0, 0)), "it knows of nobody");
    assert_eq!(refused(&net, 0), [HostId::of("host-2")]);
    assert_eq!(refused(&net, 1), [HostId::of("host-2")]);
    assert_eq!(refused(&net, 2).len(), 2);
    let stats = net.hosts[0].state.stats(net.clock(0));
    assert_eq!((stats.other_classes, stats.alive), (1, 1));
    assert!(
        stats
            .dropped
            .by_reason()
            .contains(&("classes", refusals(&net)))
    );

    net.hosts[2].classes = ClassesCode(3);
    net.restart(2);
    net.run_for(Nanos::from_millis(300));
    for host in 0..3 {
        assert_eq!(refused(&net, host), []);
    }
    assert_eq!(net.sum_to((0, 0)), B);
    assert_eq!(net.rate((2, 0), (0, 0)), B / 2);
}

/// Datagrams that host 0 did not take for their classes.
fn refusals(net: &Net) -> u64 {
    let stats = net.hosts[0].state.stats(net.clock(0));
    let reasons = stats.dropped.by_reason();
    let of = reasons.iter().find(|(reason, _)| *reason == "classes");
    let (_, count) = of.expect("it is a reason");
    assert!(*count > 0);
    *count
}

#[test]
fn a_host_without_classes_refuses_no_peer() {
    let net = net([0, 3, 4]);
    assert_eq!(refused(&net, 0), []);
    assert_eq!(refused(&net, 1), [HostId::of("host-2")]);
    assert_eq!(net.sum_to((0, 0)), B);
}
