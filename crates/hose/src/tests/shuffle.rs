//! All-to-all TCP between machines whose hosts agree on rates: what they get of their
//! guarantees, and what becomes of the rest.
//!
//! Each machine sends one endless stream to each other one on another host, as the lab's
//! experiment `memcached` has it, on links twenty times as fast and with times twenty times
//! as short as there. So each pair of machines carries data of one stream and
//! acknowledgements of another, in one line.

use super::net::{Faults, Net, address, machine};
use super::paced::{Content, Paces, Record};
use super::tcp::{Receiver, Sender, Timing};
use crate::Address;
use std::collections::BTreeMap;
use tailbound_dataplane::{self as dataplane, Guarantee, Pacer, PacerConfig};
use tailbound_units::{Bytes, Nanos, Rate};

/// A host, and a guest of it.
type Place = (usize, u32);

const HOSTS: usize = 4;
const EACH: u32 = 3;
const LINK: Rate = Rate::from_mbit(1000);
const B: Rate = Rate(319_200_000);
/// Linux's times, divided by twenty.
const TIMING: Timing = Timing {
    timeout: Nanos::from_millis(10),
    delay: Nanos::from_millis(2),
};
/// Duration of a host's sleep, and a frame's delay in the network.
const SLICE: Nanos = Nanos::from_micros(40);
/// A segment in its frame, an acknowledgement, and what the wire adds.
const SEGMENT: usize = 1514;
const ACK: usize = 66;
const WIRE: u64 = 24;

/// Traffic of the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Frames without acknowledgements, of which this number always waits.
    Frames(u64),
    /// Streams whose acknowledgements share a line with the data of those that come back.
    Streams,
    /// Streams whose acknowledgements wait for nothing.
    StreamsAlone,
}

/// Limits of each pair of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limits {
    /// Limits that hosts negotiate.
    Agreed,
    /// The same part of B for ever.
    Fixed,
}

#[derive(Debug, Default)]
struct Stream {
    /// Waiting frames, if there are no acknowledgements.
    waiting: u64,
    ends: Option<(Sender, Receiver)>,
}

struct Shuffle {
    net: Net,
    load: Load,
    streams: BTreeMap<(Place, Place), Stream>,
    /// Frames on their way, by when they come.
    flying: BTreeMap<(Nanos, u64), (Place, Record)>,
    count: u64,
    /// Bytes on the wire of all frames.
    carried: u64,
    /// The same of segments that came in order, as far as they are known.
    came: u64,
}

/// Shares of the sum of all guarantees: set as limits, used on the wire, and delivered.
#[derive(Debug)]
struct Shares {
    set: f64,
    carried: f64,
    came: f64,
}

fn place(of: Address) -> Place {
    let low = (of.0 & 0xffff) as usize;
    (low >> 8, (low & 0xff) as u32)
}

fn machines() -> impl Iterator<Item = Place> {
    (0..HOSTS).flat_map(|host| (0..EACH).map(move |guest| (host, guest)))
}

fn pairs() -> impl Iterator<Item = (Place, Place)> {
    let from = machines().flat_map(|from| machines().map(move |to| (from, to)));
    from.filter(|(from, to)| from.0 != to.0)
}

fn pacer(host: usize, limits: Limits) -> Pacer<Record> {
    let mut config = PacerConfig::strict(LINK);
    config.batch = Nanos::from_micros(250);
    let mut pacer = Pacer::new(&config).unwrap();
    // Two frames: with a burst of one, a pair loses the tokens of the time for which its frame waits
    // for {B, S}.
    let mut guarantee = Guarantee::new(B, Bytes(2 * 1538), LINK);
    guarantee.horizon = Nanos::from_micros(500);
    guarantee.mark = Some(Nanos::from_micros(250));
    for guest in 0..EACH {
        let guest = dataplane::GuestId::first(guest);
        pacer
            .set_guest(Nanos::ZERO, guest, Some(&guarantee))
            .unwrap();
    }
    if limits == Limits::Fixed {
        let share = Some(Rate(B.0 / ((HOSTS as u64 - 1) * u64::from(EACH))));
        for (from, to) in pairs().filter(|(from, _)| from.0 == host) {
            let (guest, to) = (dataplane::GuestId::first(from.1), address(to.0, to.1));
            pacer
                .set_destination(Nanos::ZERO, guest, to.0, share)
                .unwrap();
        }
    }
    pacer
}

impl Shuffle {
    fn new(load: Load, limits: Limits) -> Self {
        let all = HOSTS as u32 * EACH;
        let machines = (0..HOSTS).map(|host| {
            let guests = 0..EACH;
            guests.map(|guest| machine(host, guest, B, all)).collect()
        });
        let mut net = Net::new(machines.collect(), Faults::NONE, 7);
        net.slice = SLICE;
        net.takes = SLICE;
        net.run_for(Nanos::from_millis(10));
        for host in 0..HOSTS {
            let mut paces = Paces::new(pacer(host, limits), LINK);
            paces.follows = limits == Limits::Agreed;
            net.pace(host, paces);
        }
        // Buckets fill.
        net.run_for(Nanos::from_millis(20));
        Self {
            net,
            load,
            streams: pairs().map(|pair| (pair, Stream::default())).collect(),
            flying: BTreeMap::new(),
            count: 0,
            carried: 0,
            came: 0,
        }
    }

    /// Runs, and returns the achieved shares of the guarantees.
    fn run(&mut self, slices: u64) -> Shares {
        let before = (self.carried, self.came);
        let mut set = 0.0;
        for _ in 0..slices {
            self.step();
            let hosts = self.net.hosts.iter();
            set += hosts.flat_map(|host| host.rates.values()).sum::<u64>() as f64;
        }
        let rates = (B.0 * u64::from(EACH) * HOSTS as u64) as f64;
        let bytes = rates / 8e9 * (SLICE.0 * slices) as f64;
        Shares {
            set: set / slices as f64 / rates,
            carried: (self.carried - before.0) as f64 / bytes,
            came: (self.came - before.1) as f64 / bytes,
        }
    }

    fn step(&mut self) {
        self.net.run_for(SLICE);
        let now = self.net.now;
        for host in 0..HOSTS {
            let born = now - self.net.clock(host);
            let paces = self.net.hosts[host].paces.as_mut().unwrap();
            for (at, record) in std::mem::take(&mut paces.left) {
                self.carried += record.len as u64 + WIRE;
                let from = (host, record.source);
                self.fly(at + born + SLICE, from, record);
            }
        }
        while let Some(first) = self.flying.first_entry()
            && first.key().0 <= now
        {
            let (from, record) = first.remove();
            self.arrive(now, from, &record);
        }
        for (from, to) in pairs() {
            self.send(now, from, to);
        }
    }

    fn fly(&mut self, until: Nanos, from: Place, record: Record) {
        self.count += 1;
        self.flying.insert((until, self.count), (from, record));
    }

    fn arrive(&mut self, now: Nanos, from: Place, record: &Record) {
        let to = place(record.destination);
        let pair = match record.content {
            Content::Ack(_) => (to, from),
            Content::Data(_) | Content::Filler => (from, to),
        };
        let stream = self.streams.get_mut(&pair).unwrap();
        match (record.content, &mut stream.ends) {
            (Content::Data(number), Some((_, receiver))) => {
                let before = receiver.received();
                receiver.handle(now, number);
                self.came += (receiver.received() - before) * (SEGMENT as u64 + WIRE);
            }
            (Content::Ack(ack), Some((sender, _))) => sender.handle(now, ack),
            _ => stream.waiting -= 1,
        }
    }

    /// Sends what there is from one machine to another: data, and acknowledgements of what
    /// came from there.
    fn send(&mut self, now: Nanos, from: Place, to: Place) {
        let record = |len, content| Record {
            len,
            source: from.1,
            destination: address(to.0, to.1),
            content,
        };
        let paces = self.net.hosts[from.0].paces.as_mut().unwrap();
        let stream = self.streams.get_mut(&(from, to)).unwrap();
        if let Load::Frames(most) = self.load {
            while stream.waiting < most {
                stream.waiting += 1;
                paces.give(record(SEGMENT, Content::Filler));
            }
            return;
        }
        // Not all at once.
        let first = (from.0 * 31 + from.1 as usize * 7 + to.0 * 13 + to.1 as usize * 3) % 97;
        if stream.ends.is_none() && now.0 > 30_000_000 + first as u64 * 200_000 {
            stream.ends = Some((Sender::new(TIMING), Receiver::new(TIMING)));
        }
        if let Some((sender, _)) = &mut stream.ends {
            while let Some(number) = sender.poll(now) {
                paces.give(record(SEGMENT, Content::Data(number)));
            }
        }
        let back = self.streams.get_mut(&(to, from)).unwrap();
        let ack = back.ends.as_mut().and_then(|ends| ends.1.poll(now));
        let Some(ack) = ack.map(|ack| record(ACK, Content::Ack(ack))) else {
            return;
        };
        if self.load == Load::Streams {
            paces.give(ack);
        } else {
            self.fly(now + Nanos::from_micros(250), from, ack);
        }
    }
}

fn shares(load: Load, limits: Limits) -> Shares {
    let mut shuffle = Shuffle::new(load, limits);
    shuffle.run(1500);
    let shares = shuffle.run(3000);
    println!(
        "{load:?}, {limits:?}: {:.1} % set, {:.1} % of the wire, {:.1} % by data",
        shares.set * 100.0,
        shares.carried * 100.0,
        shares.came * 100.0
    );
    shares
}

#[test]
fn machines_that_always_have_frames_get_all_that_they_are_guaranteed() {
    for waiting in [2, 20] {
        let shares = shares(Load::Frames(waiting), Limits::Agreed);
        assert!(shares.set > 0.999, "{shares:?}");
        assert!(shares.carried > 0.999, "{shares:?}");
    }
}

#[test]
fn streams_lose_only_the_cost_of_their_acknowledgements() {
    let alone = shares(Load::StreamsAlone, Limits::Agreed);
    assert!(alone.came > 0.995, "{alone:?}");
    // If acknowledgements waited behind the data of the way back, two streams would take turns
    // (Zhang, Shenker, Clark, SIGCOMM 1991, 4), with limits that never change as well.
    let fixed = shares(Load::Streams, Limits::Fixed);
    let agreed = shares(Load::Streams, Limits::Agreed);
    assert!(agreed.set > 0.99, "{agreed:?}");
    assert!(agreed.carried > 0.995, "{agreed:?}");
    assert!(agreed.came > 0.96, "{agreed:?}");
    assert!(
        agreed.carried > fixed.carried - 0.01,
        "{agreed:?} {fixed:?}"
    );
}
