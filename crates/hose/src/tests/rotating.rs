//! Rotating aggregators: a random machine of a tenant queries all others. Each answers with a
//! burst. Answers to machines of one host, one after the other, need tokens of one bucket.
//!
//! Hosts exchange rates and pace frames. The network itself delays nothing: an answer that has left
//! after M/Bmax + d is late.

use super::net::{Faults, Net, Random, address, machine};
use super::paced::{Content, Paces, Record};
use crate::Machine;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tailbound_dataplane::pacer::{Home, HostGroups, Place};
use tailbound_dataplane::{self as dataplane, Guarantee, Pacer, PacerConfig};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

const LINK: Rate = Rate::from_mbit(10_000);
const B: Rate = Rate::from_mbit(250);
const BMAX: Rate = Rate::from_mbit(1_000);
/// Frames of a message, and their length on the wire and with their headers.
const FRAMES: u64 = 10;
const FRAME: u64 = 1_538;
const LEN: usize = 1_514;
/// S, and the length of a message.
const S: Bytes = Bytes(FRAMES * FRAME);
/// d, for the queues of the network.
const DELAY: Nanos = Nanos::from_millis(1);
/// N, in hosts of four machines.
const MACHINES: usize = 49;
const A_HOST: usize = 4;
const SEED: u64 = 77;

/// Host and number there of a machine.
fn location(machine: usize) -> (usize, u32) {
    (machine / A_HOST, (machine % A_HOST) as u32)
}

fn machines_of(host: usize) -> std::ops::Range<usize> {
    let first = host * A_HOST;
    first..(first + A_HOST).min(MACHINES)
}

fn pacer(clock: Nanos, host: usize, bursts: Bursts, groups: &Arc<HostGroups>) -> Paces {
    let mut pacer = Pacer::new(&PacerConfig::strict(LINK)).unwrap();
    let guarantee = Guarantee {
        mark: None,
        bursts,
        ..Guarantee::new(B, S, BMAX)
    };
    for machine in machines_of(host) {
        let guest = dataplane::GuestId::first(location(machine).1);
        pacer.set_guest(clock, guest, Some(&guarantee)).unwrap();
        let home = Home {
            host: host as u64,
            machines: MACHINES as u32,
            groups: Arc::clone(groups),
        };
        pacer.set_home(guest, Some(home));
        for other in (0..MACHINES).filter(|other| *other != machine) {
            let (host, number) = location(other);
            let place = Place {
                host: host as u64,
                machine: number.into(),
            };
            pacer.set_place(guest, address(host, number).0, Some(place));
        }
    }
    Paces::new(pacer, LINK)
}

fn net(bursts: Bursts) -> Net {
    let hosts = MACHINES.div_ceil(A_HOST);
    let machines = (0..hosts).map(|host| {
        let machines = machines_of(host).map(|number| {
            let machine = machine(host, location(number).1, B, MACHINES as u32);
            Machine {
                burst: S,
                ..machine
            }
        });
        machines.collect()
    });
    let mut net = Net::new(machines.collect(), Faults::NONE, 3);
    net.slice = Nanos::from_micros(50);
    net.run_for(Nanos::from_millis(10));
    // One rack.
    let groups = (0..hosts).map(|host| (host as u64, vec![0]));
    let groups = Arc::new(groups.collect());
    for host in 0..hosts {
        let clock = net.clock(host);
        net.pace(host, pacer(clock, host, bursts, &groups));
    }
    net
}

/// Answers, and those that were later than promised.
#[derive(Debug, Default, Clone, Copy)]
struct Answers {
    all: u64,
    /// Beyond M/Bmax and d.
    late: u64,
    /// Beyond M/Bmax and a tenth of d.
    later: u64,
}

/// Lets random machines query all others, at `percent` of B in the mean for each machine.
fn ask(bursts: Bursts, percent: u64, time: Nanos) -> Answers {
    let mut net = net(bursts);
    let gap = S.0 as f64 * 8.0 * (MACHINES - 1) as f64
        / (B.0 as f64 * MACHINES as f64 * percent as f64 / 100.0);
    let start = net.now;
    let mut due = 0.0;
    // When the messages that wait were given, by sender and receiver.
    let mut waiting: BTreeMap<(usize, usize), (VecDeque<Nanos>, u64)> = BTreeMap::new();
    let mut answers = Answers::default();
    let mut random = Random(SEED);
    // The last ones leave, too.
    let end = time + Nanos::from_millis(100);
    while net.now.since(start) < end {
        let now = net.now;
        while due * 1e9 <= now.since(start).0 as f64 && now.since(start) < time {
            let uniform = (random.below(1 << 40) + 1) as f64 / (1_u64 << 40) as f64;
            due -= gap * uniform.ln();
            let to = random.below(MACHINES as u64) as usize;
            let (host, number) = location(to);
            for from in (0..MACHINES).filter(|from| *from != to) {
                let (sender, guest) = location(from);
                let paces = net.hosts[sender].paces.as_mut().unwrap();
                for _ in 0..FRAMES {
                    paces.give(Record {
                        len: LEN,
                        source: guest,
                        destination: address(host, number),
                        content: Content::Filler,
                    });
                }
                waiting.entry((from, to)).or_default().0.push_back(now);
            }
        }
        net.run_for(net.slice);
        for host in 0..net.hosts.len() {
            let clock = net.clock(host);
            let now = net.now;
            let paces = net.hosts[host].paces.as_mut().unwrap();
            for (at, frame) in paces.left.drain(..) {
                let from = host * A_HOST + frame.source as usize;
                let to = (0..MACHINES).find(|to| {
                    let (host, number) = location(*to);
                    address(host, number) == frame.destination
                });
                let (given, frames) = waiting.get_mut(&(from, to.unwrap())).unwrap();
                *frames += 1;
                if *frames == FRAMES {
                    *frames = 0;
                    let given = given.pop_front().unwrap();
                    let took = (now + at).saturating_sub(clock + given);
                    let promised = BMAX.time_for(S);
                    answers.all += 1;
                    answers.late += u64::from(took > promised + DELAY);
                    answers.later += u64::from(took > promised + Nanos(DELAY.0 / 10));
                }
            }
        }
    }
    let left = waiting.values().map(|of| of.0.len() as u64);
    let left: u64 = left.sum();
    answers.all += left;
    answers.late += left;
    answers.later += left;
    answers
}

/// Returns the milliseconds for which machines send queries, if `TAILBOUND_ROTATING` sets them.
fn set_time() -> Option<u64> {
    let set = std::env::var("TAILBOUND_ROTATING").ok()?;
    Some(set.parse().expect("milliseconds"))
}

/// Answers with a burst for each receiver, with one a subtree and with two.
fn answers(percent: u64) -> [Answers; 3] {
    [
        ("n", Bursts::PerReceiver),
        ("1", Bursts::ONE),
        ("2", Bursts::PerSubtree(2)),
    ]
    .map(|(name, bursts)| {
        let answers = ask(
            bursts,
            percent,
            Nanos::from_millis(set_time().unwrap_or(100)),
        );
        let share = |part: u64| part as f64 * 100.0 / answers.all as f64;
        println!(
            "load {percent} %, K = {name}: {} answers, {:.1} % late, {:.1} % beyond d/10",
            answers.all,
            share(answers.late),
            share(answers.later)
        );
        answers
    })
}

#[test]
fn two_bursts_a_subtree_are_as_early_as_one_for_each_receiver() {
    let [each, one, two] = answers(10);
    assert_eq!((each.all, each.all), (one.all, two.all));
    assert!(each.late > 0, "{each:?}");
    assert!(two.late <= each.late, "{two:?}, {each:?}");
    // A host's bucket fills at the rates of all its machines.
    assert!(one.late <= 2 * each.late, "{one:?}, {each:?}");
    if set_time().is_some() {
        answers(50);
    }
}
