//! Faults at random times: partitions of one or both directions, pauses, crashes, and jumps of clocks.

use crate::cluster::{Cluster, MEMBERS, REPLICAS};
use crate::network::{Network, Node};
use rand::seq::IndexedRandom as _;
use rand::{Rng, RngExt as _};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Lengths of a fault, and of the quiet time after it, in milliseconds.
const SHORT_MS: std::ops::Range<u64> = 200..1500;
/// Shortest and greatest length of one fault in four: beyond the age that guarantees may have.
const LONG_MS: [u64; 2] = [3000, 25_000];
const QUIET_MS: std::ops::Range<u64> = 200..1000;

/// A kind of fault. At any time at most one process or way is bad, so that a good replica exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A member of etcd reaches no other member.
    MemberAlone,
    /// The frames of one member to another vanish.
    MembersOneWay,
    /// A replica's frames to all members vanish, or all members' frames to it.
    StoreOneWay,
    /// A replica and all others, members too, do not reach each other.
    ReplicaAlone,
    /// The frames of one replica to another vanish.
    ReplicasOneWay,
    /// The frames of the clients to a replica vanish, or its answers.
    ClientsOneWay,
    /// A process stops and goes on later.
    Pause,
    /// A process is killed and started.
    Crash,
    /// The clock of a replica jumps, and back.
    Clock,
}

impl Fault {
    const ALL: [Self; 9] = [
        Self::MemberAlone,
        Self::MembersOneWay,
        Self::StoreOneWay,
        Self::ReplicaAlone,
        Self::ReplicasOneWay,
        Self::ClientsOneWay,
        Self::Pause,
        Self::Crash,
        Self::Clock,
    ];
}

/// Does faults for a time, heals all, and returns a line with the number of each.
pub(crate) fn during(
    time: Duration,
    network: &Network,
    cluster: &mut Cluster,
    random: &mut impl Rng,
) -> String {
    let mut counts: BTreeMap<Fault, usize> = BTreeMap::new();
    let end = Instant::now() + time;
    // Each kind comes before one comes again.
    let mut turn = Vec::new();
    while Instant::now() < end {
        if turn.is_empty() {
            turn = Fault::ALL.to_vec();
            turn.retain(|fault| *fault != Fault::Clock || Cluster::has_clocks());
        }
        let fault = turn.swap_remove(random.random_range(0..turn.len()));
        let lengths = if random.random_ratio(1, 4) {
            // In a short run the other faults have their turn.
            LONG_MS[0]..LONG_MS[1].min(time.as_millis() as u64 / 3)
        } else {
            SHORT_MS
        };
        let length = Duration::from_millis(random.random_range(lengths));
        once(fault, length, network, cluster, random);
        network.heal();
        *counts.entry(fault).or_default() += 1;
        sleep(Duration::from_millis(random.random_range(QUIET_MS)));
    }
    format!("{counts:?}")
}

fn once(
    fault: Fault,
    length: Duration,
    network: &Network,
    cluster: &mut Cluster,
    random: &mut impl Rng,
) {
    let (member, others) = choice(&MEMBERS, random);
    let (replica, replicas) = choice(&REPLICAS, random);
    match fault {
        Fault::MemberAlone => cut(network, &[member], &others, Ways::Both),
        Fault::MembersOneWay => network.cut(member, others[0]),
        Fault::StoreOneWay => cut(network, &[replica], &MEMBERS, Ways::One(random.random())),
        Fault::ReplicaAlone => {
            let all = [&MEMBERS[..], &replicas, &[Node::CLIENTS]].concat();
            cut(network, &[replica], &all, Ways::Both);
        }
        Fault::ReplicasOneWay => network.cut(replica, replicas[0]),
        Fault::ClientsOneWay => {
            cut(
                network,
                &[replica],
                &[Node::CLIENTS],
                Ways::One(random.random()),
            );
        }
        Fault::Pause => {
            let node = if random.random() { replica } else { member };
            cluster.signal(node, "-STOP");
            sleep(length);
            return cluster.signal(node, "-CONT");
        }
        Fault::Crash => {
            let node = if random.random() { replica } else { member };
            return cluster.restart(node);
        }
        Fault::Clock => {
            let seconds = random.random_range(-100_000..100_000);
            cluster.set_clock(replica, seconds);
            sleep(length);
            return cluster.set_clock(replica, 0);
        }
    }
    sleep(length);
}

/// The directions that are cut.
#[derive(Clone, Copy)]
enum Ways {
    Both,
    /// From the first nodes to the second ones, or back.
    One(bool),
}

fn cut(network: &Network, ones: &[Node], others: &[Node], ways: Ways) {
    for one in ones {
        for other in others {
            if matches!(ways, Ways::Both | Ways::One(true)) {
                network.cut(*one, *other);
            }
            if matches!(ways, Ways::Both | Ways::One(false)) {
                network.cut(*other, *one);
            }
        }
    }
}

/// One of the nodes, and the others.
fn choice(nodes: &[Node], random: &mut impl Rng) -> (Node, Vec<Node>) {
    let one = *nodes.choose(random).unwrap();
    let others = nodes.iter().copied().filter(|node| *node != one);
    (one, others.collect())
}
