//! Comparison of hosts' outputs with records of an earlier version: datagrams byte for byte, rates,
//! and the times of polls.
//!
//! `TAILBOUND_GOLDEN=write` writes the records anew, which only a change of the
//! protocol may need.

use super::bound::{everyone, upset};
use super::net::{Faults, Net, key, machine};
use crate::wire::{AnnouncedMachine, Entry, Envelope, Header, Message, Writer};
use crate::{
    Address, Change, ClassesCode, Destination, Epoch, HostId, KeyEpoch, MachineId, PairId,
    Revision, SequenceNumber, Station,
};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::Path;
use tailbound_units::{Bytes, Nanos, Rate};

const B: u64 = 1_000_000_000;
const ALL: u64 = u64::MAX;

/// All that came out of the hosts of a net: as text, and as a digest of it.
#[derive(Default)]
pub(super) struct Trace {
    text: String,
    digest: Sha256,
    /// Datagrams and rates in the digest.
    count: (u64, u64),
}

impl Trace {
    pub(super) fn datagram(&mut self, now: Nanos, from: usize, to: usize, datagram: &[u8]) {
        self.count.0 += 1;
        self.digest.update(now.0.to_be_bytes());
        self.digest.update([from as u8, to as u8]);
        self.digest.update(datagram);
        let envelope = Envelope::read(datagram).unwrap();
        let body = envelope.open(&key(from, to)).unwrap();
        let Message { header, entries } = Message::parse(body).unwrap();
        let text = &mut self.text;
        write!(text, "{} {from}>{to} {:?}", now.0 / 1000, header.sequence.0).unwrap();
        for entry in entries {
            match entry {
                Entry::Machine(machine) => write!(text, " machine {}", machine.name),
                Entry::Request {
                    pair: PairId { sender, receiver },
                    demand,
                    confirms,
                    wanted: Bytes::ZERO,
                } => write!(
                    text,
                    " request {}>{} {} seen {}",
                    sender.0, receiver.0, demand.0, confirms.0
                ),
                Entry::Grant {
                    pair: PairId { sender, receiver },
                    rate,
                    lent: Bytes::ZERO,
                } => write!(text, " grant {}>{} {}", sender.0, receiver.0, rate.0),
                _ => panic!("no machine has an inward burst"),
            }
            .unwrap();
        }
        // The MAC stands for every byte.
        let mac = &datagram[datagram.len() - 4..];
        writeln!(text, " mac {}", hex(mac)).unwrap();
    }

    pub(super) fn rate(&mut self, now: Nanos, host: usize, change: &Change) {
        self.count.1 += 1;
        let rate = change.rate.map(|rate| rate.0);
        let to = match change.flow.destination {
            Destination::Station(station) => hex(&station.mac()),
            Destination::Address(address) => format!("{:x}", address.0),
        };
        let guest = change.flow.guest.0;
        let line = format!("{} {host} guest {guest} to {to}: {rate:?}\n", now.0 / 1000);
        self.digest.update(line.as_bytes());
        self.text += &line;
    }

    pub(super) fn poll_at(&mut self, poll_at: Option<Nanos>) {
        let at = poll_at.map_or(u64::MAX, |at| at.0);
        self.digest.update(at.to_be_bytes());
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Compares with the record `name`, and shows the first line that is another.
fn compare(name: &str, found: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    let path = folder.join(name);
    if std::env::var_os("TAILBOUND_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap();
    let mut lines = found.lines();
    for (number, wanted) in wanted.lines().enumerate() {
        let number = number + 1;
        assert_eq!(lines.next(), Some(wanted), "{name}:{number}");
    }
    assert_eq!(lines.next(), None, "{name} has an end");
}

#[test]
fn golden_datagram() {
    let header = Header {
        from: HostId::of("host-a"),
        to: HostId::of("host-b"),
        key: KeyEpoch::OWN,
        latest_key: KeyEpoch(20_780),
        classes: ClassesCode(0x2122_2324_2526_2728),
        epoch: Epoch(0x0102_0304_0506_0708),
        sequence: SequenceNumber(4711),
        time: Nanos(123_456_789_012),
        echo_epoch: Epoch(0x1112_1314_1516_1718),
        echo_time: Nanos(987_654_321),
        revision: Revision(3),
        known: Revision(2),
        machines: 1,
        pledge: true,
    };
    let mut writer = Writer::default();
    writer.start(&header);
    for entry in [
        Entry::Machine(AnnouncedMachine {
            id: MachineId(17),
            station: Station::new([2, 0, 0, 0, 0, 9]),
            name: "acme/web/4".to_owned(),
            bandwidth: Rate(B),
            share: Rate(B / 3),
            addresses: vec![Address(0xffff_0a00_0001), Address(0xfd00 << 112 | 9)],
        }),
        Entry::Request {
            pair: PairId {
                sender: MachineId(17),
                receiver: MachineId(5),
            },
            demand: Rate(123_456_789),
            confirms: SequenceNumber(42),
            wanted: Bytes::ZERO,
        },
        Entry::Grant {
            pair: PairId {
                sender: MachineId(6),
                receiver: MachineId(17),
            },
            rate: Rate(333_333_333),
            lent: Bytes::ZERO,
        },
    ] {
        assert!(writer.push(&entry));
    }
    let datagram = writer.finish(&key(0, 1));
    let lines: Vec<_> = datagram.chunks(16).map(hex).collect();
    compare("datagram.txt", &(lines.join("\n") + "\n"));
}

/// Three hosts: two machines of a tenant on the first, one of them with two
/// addresses, one on each other, and a tenant of its own on the last two.
fn small() -> Net {
    let of_other = |host, guest| {
        let mut machine = machine(host, guest, Rate(B / 10), 2);
        machine.name = format!("other/db/{host}");
        machine
    };
    let mut machines: Vec<Vec<_>> = (0..3)
        .map(|host| vec![machine(host, 0, Rate(B), 4)])
        .collect();
    machines[0].push(machine(0, 1, Rate(B / 2), 4));
    machines[0][1].addresses.push(Address(0xfd00 << 112 | 1));
    machines[1].push(of_other(1, 7));
    machines[2].push(of_other(2, 7));
    let faults = Faults {
        loss: 4,
        doubled: 4,
        jitter: Nanos::from_micros(300),
    };
    let mut net = Net::new(machines, faults, 11);
    net.trace = Some(Trace::default());
    net
}

/// The counters of all hosts.
fn stats(net: &mut Net, title: &str) {
    let mut lines = format!("-- {title}\n");
    for (index, host) in net.hosts.iter().enumerate() {
        let stats = host.state.stats(net.now);
        let dropped: u64 = stats.dropped.by_reason().iter().map(|(_, n)| n).sum();
        writeln!(
            lines,
            "-- {index}: {} in {} out {dropped} dropped {} unknown {} no room {} fallbacks \
             {} silences {} restarts {} of {} alive {} pairs {} open {} granted",
            stats.received,
            stats.sent,
            stats.unknown,
            stats.no_room,
            stats.fallbacks,
            stats.silences,
            stats.restarts,
            stats.alive,
            stats.peers,
            stats.pairs,
            stats.open,
            stats.granted
        )
        .unwrap();
    }
    net.trace.as_mut().unwrap().text += &lines;
}

#[test]
fn golden_trace() {
    let mut net = small();
    let step = |net: &mut Net, millis, title| {
        net.run_for(Nanos::from_millis(millis));
        stats(net, title);
    };
    step(&mut net, 6, "hosts have found each other");
    net.demand((1, 0), (0, 0), ALL);
    net.demand((1, 7), (2, 7), ALL);
    step(&mut net, 6, "lone senders");
    net.demand((2, 0), (0, 0), ALL);
    net.demand((2, 0), (0, 1), B / 20);
    net.demand((0, 1), (2, 0), ALL);
    step(&mut net, 10, "several senders, and back");
    net.demand((1, 0), (0, 0), B / 8);
    step(&mut net, 6, "another demand");
    let mut fewer = net.hosts[0].machines.clone();
    fewer[0].bandwidth = Rate(B / 2);
    net.set_machines(0, fewer);
    step(&mut net, 6, "another guarantee");
    let mut moved = net.hosts[0].machines.clone();
    let moving = moved.pop().unwrap();
    net.set_machines(0, moved);
    net.demand((0, 1), (2, 0), 0);
    let mut more = net.hosts[1].machines.clone();
    more.push(moving);
    net.set_machines(1, more);
    step(&mut net, 8, "a machine that moved");
    net.restart(0);
    step(&mut net, 8, "a host that started again");
    net.cut[0] = true;
    step(&mut net, 30, "a host that is silent for a lease");
    net.cut[0] = false;
    step(&mut net, 120, "it is heard again");
    net.demand((1, 0), (0, 0), 0);
    net.demand((2, 0), (0, 0), 0);
    net.demand((2, 0), (0, 1), 0);
    net.demand((1, 7), (2, 7), 0);
    step(&mut net, 250, "nothing is in use");
    compare("trace.txt", &net.trace.unwrap().text);
}

/// Longer and worse, of which only digests are kept.
#[test]
fn golden_storms() {
    let mut lines = String::new();
    for (seed, hosts) in [(1, 2), (2, 3), (3, 4), (4, 3)] {
        let count = 2 * hosts as u32;
        let placed = |host| (0..2).map(move |guest| machine(host, guest, Rate(B), count));
        let machines = (0..hosts).map(|host| placed(host).collect()).collect();
        let faults = Faults {
            loss: 10 * seed,
            doubled: 20,
            jitter: Nanos::from_millis(2 * (seed - 1)),
        };
        let mut net = Net::new(machines, faults, seed);
        net.slice = Nanos::from_micros(100);
        net.trace = Some(Trace::default());
        let everyone = everyone(&net);
        for round in 0..40 {
            upset(&mut net, &everyone);
            let longest = if round % 40 == 20 { 800 } else { 12 };
            let time = net.random.below(longest);
            net.run_for(Nanos::from_millis(time));
            let trace = net.trace.as_mut().unwrap();
            trace.text.clear();
            let digest = trace.digest.clone().finalize();
            writeln!(
                lines,
                "{seed} {round} {:?} {}",
                trace.count,
                hex(&digest[..8])
            )
            .unwrap();
        }
    }
    compare("storms.txt", &lines);
}
