//! A sending port: queues by class, marks, and the link.
//!
//! [`crate::net::Port`] tracks backlogs exactly, to compare them with bounds. This one is for many
//! packets: a frame that finds the link free costs one event.

use super::hull::{Bucket, HullPacer};
use super::line::Tier;
use super::packet::Packet;
use super::pool::{Frames, List, Pool};
use crate::net::{Node, Time, Wire};
use serde::Deserialize;
use std::cell::Cell;
use std::cmp::Reverse;
use std::rc::Rc;
use tailbound_units::{Bytes, Nanos, Rate};

/// Phantom queue of a slower link (HULL, NSDI 2012), which marks frames before a real queue grows.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phantom {
    /// Its rate, as a part of the link's.
    pub drain: f64,
    /// Length from which it marks.
    pub mark_at: Bytes,
}

/// State of a phantom queue.
#[derive(Debug, Clone, Copy)]
struct PhantomQueue {
    bytes: f64,
    /// Bytes that leave in a picosecond.
    drain: f64,
    mark_at: f64,
    at: Time,
}

impl PhantomQueue {
    fn new(phantom: &Phantom, rate: Rate) -> Self {
        Self {
            bytes: 0.0,
            drain: phantom.drain * rate.0 as f64 / 8e12,
            mark_at: phantom.mark_at.0 as f64,
            at: Time::ZERO,
        }
    }

    /// Adds a frame. Returns true if it is marked.
    fn take(&mut self, now: Time, size: u16) -> bool {
        let left = now.since(self.at).0 as f64 * self.drain;
        self.at = now;
        self.bytes = (self.bytes - left).max(0.0) + f64::from(size);
        self.bytes > self.mark_at
    }
}

/// A buffer for all ports of a switch, with dynamic thresholds (Choudhury and Hahne, 1998). Not in
/// racks.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Its size.
    pub buffer: Bytes,
    /// Limit of a port's class, as a multiple of the free space.
    pub alpha: f64,
}

/// State of a shared buffer.
#[derive(Debug, Clone)]
pub(super) struct Room {
    shared: Shared,
    used: Rc<Cell<u64>>,
}

impl Room {
    pub(super) fn new(shared: Shared) -> Self {
        Self {
            shared,
            used: Rc::default(),
        }
    }

    /// Returns true if a class with `held` bytes may hold `size` more.
    fn takes(&self, held: u64, size: u64) -> bool {
        let free = self.shared.buffer.0.saturating_sub(self.used.get());
        size <= free && (held + size) as f64 <= self.shared.alpha * free as f64
    }
}

/// Configuration of a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortConfig {
    /// Position on a frame's path.
    pub(super) tier: Tier,
    pub(super) rate: Rate,
    /// Time of a frame's last bit from the link's one end to the next queue.
    pub(super) delay: Nanos,
    /// Classes of strict priority.
    pub(super) classes: usize,
    /// Size of the buffer; the frame on the wire does not count.
    pub(super) buffer: Option<Bytes>,
    /// True if each class has a buffer of its own.
    pub(super) apart: bool,
    /// Queue length of a class from which a new frame is marked.
    pub(super) mark_at: Option<Bytes>,
    pub(super) phantom: Option<Phantom>,
    /// True if the class of a frame is the remaining length of its flow, as in pFabric.
    pub(super) pfabric: bool,
    /// HULL's pacer before the link.
    pub(super) hull: Option<HullPacer>,
}

/// Counters of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PortTally {
    pub(super) sent: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
    pub(super) marked: u64,
    /// Longest queue, in bytes.
    pub(super) peak: u64,
}

/// A class: its queue, and its bytes.
#[derive(Debug)]
struct Queue {
    packets: List,
    bytes: u64,
}

/// Time of an event of a port, and the rank of its frame: simultaneous events are handled in the
/// order in which their frames were sent. Senders that one full port clocks by its departures reach
/// it at equal instants, again and again. By the order of nodes the first of them would always take
/// the room, and the others would lose whole windows.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Time,
    rank: u32,
}

#[derive(Debug)]
pub(super) struct Port {
    tier: Tier,
    wire: Wire,
    /// End of the frame on the wire.
    free: Moment,
    delay: Time,
    pool: Pool,
    queues: Box<[Queue]>,
    /// Queued bytes of all classes.
    waiting: u64,
    buffer: u64,
    apart: bool,
    /// Buffer of the switch, if its ports share one.
    room: Option<Room>,
    mark_at: u64,
    phantom: Option<PhantomQueue>,
    pfabric: bool,
    hull: Option<Box<Bucket>>,
    /// Frames on the wire and on the link.
    flying: List,
    /// Arrival of the first of these.
    arrives: Moment,
    pub(super) tally: PortTally,
}

impl Port {
    /// Returns a port whose frames are in this pool, with the shared buffer, if any.
    pub(super) fn new(config: &PortConfig, pool: &Pool, room: Option<Room>) -> Self {
        let limit = |bytes: Option<Bytes>| bytes.map_or(u64::MAX, |it| it.0);
        let queue = |_| Queue {
            packets: List::EMPTY,
            bytes: 0,
        };
        Self {
            tier: config.tier,
            wire: Wire::new(config.rate),
            free: Moment {
                at: Time::ZERO,
                rank: 0,
            },
            delay: config.delay.into(),
            pool: pool.clone(),
            queues: (0..config.classes).map(queue).collect(),
            waiting: 0,
            buffer: limit(config.buffer),
            apart: config.apart,
            room,
            mark_at: limit(config.mark_at),
            phantom: config.phantom.map(|it| PhantomQueue::new(&it, config.rate)),
            pfabric: config.pfabric,
            hull: config.hull.map(|it| Box::new(Bucket::new(it, config.rate))),
            flying: List::EMPTY,
            arrives: Moment {
                at: Time::NEVER,
                rank: 0,
            },
            tally: PortTally::default(),
        }
    }

    /// Puts the frame at a place on the wire.
    fn send(&mut self, now: Time, frames: &mut Frames, place: u32) {
        let packet = frames.packet(place);
        self.tally.sent += 1;
        self.tally.bytes += u64::from(packet.size);
        self.free.at = self.wire.send(now, packet.bytes());
        self.free.rank = frames.next_rank();
        let at = self.free.at + self.delay;
        if self.flying.is_empty() {
            self.arrives = Moment {
                at,
                rank: self.free.rank,
            };
        }
        self.flying.push_sent(frames, place, at, self.free.rank);
    }

    /// Puts the next queued frame on the wire: the first of the first class that has one.
    fn send_next(&mut self, now: Time) {
        let pool = Rc::clone(&self.pool.0);
        let frames = &mut *pool.borrow_mut();
        let queue = self.queues.iter_mut().find(|it| !it.packets.is_empty());
        let Some(queue) = queue else { return };
        let place = if self.pfabric {
            // The earliest frame of the flow with the least remaining data.
            let first = queue.packets.least(frames, |it| it.class);
            let flow = first.map(|it| it.to);
            queue.packets.take_least(frames, |it| Some(it.to) != flow)
        } else {
            queue.packets.pop(frames)
        };
        let Some(place) = place else { return };
        let packet = frames.packet(place);
        packet.go_on(now, self.tier);
        let size = u64::from(packet.size);
        queue.bytes -= size;
        self.leave(size);
        self.send(now, frames, place);
    }

    /// Removes `size` bytes from the queue lengths.
    fn leave(&mut self, size: u64) {
        self.waiting -= size;
        if let Some(room) = &self.room {
            room.used.set(room.used.get() - size);
        }
    }

    /// Returns true if a class may hold `size` more bytes.
    fn takes(&self, class: usize, size: u64) -> bool {
        let held = self.queues[class].bytes;
        if let Some(room) = &self.room {
            return room.takes(held, size);
        }
        let held = if self.apart { held } else { self.waiting };
        held + size <= self.buffer
    }

    /// Drops frames of the flows with the most remaining data, until there is room for a frame with
    /// less (pFabric). Returns true if there is room.
    fn make_room(&mut self, frames: &mut Frames, packet: &Packet) -> bool {
        while !self.takes(0, packet.size.into()) {
            let queue = &mut self.queues[0];
            let most = queue.packets.least(frames, |it| Reverse(it.class));
            if most.is_none_or(|most| most.class <= packet.class) {
                return false;
            }
            let place = queue.packets.take_least(frames, |it| Reverse(it.class));
            let Some(place) = place else { return false };
            let size = u64::from(frames.free(place).size);
            queue.bytes -= size;
            self.leave(size);
            self.tally.dropped += 1;
        }
        true
    }

    /// Number of frames in the queue or on the link.
    pub(super) fn held(&self) -> u64 {
        let queued = self.queues.iter().map(|it| it.packets.len());
        let paced = self.hull.as_ref().map_or(0, |hull| hull.waiting.len());
        (queued.sum::<usize>() + paced + self.flying.len()) as u64
    }
}

impl Node<Packet> for Port {
    fn poll_at(&self) -> Time {
        let at = if self.waiting > 0 {
            self.arrives.at.min(self.free.at)
        } else {
            self.arrives.at
        };
        match &self.hull {
            Some(hull) => at.min(hull.poll_at()),
            None => at,
        }
    }

    fn rank(&self) -> u32 {
        if self.waiting > 0 && self.free.at < self.arrives.at {
            self.free.rank
        } else {
            self.arrives.rank
        }
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Packet>) {
        self.release(now);
        if self.waiting > 0 && self.free.at <= now {
            self.send_next(now);
        }
        if self.arrives.at > now {
            return;
        }
        let frames = &mut *self.pool.0.borrow_mut();
        while self.arrives.at <= now
            && let Some(place) = self.flying.pop(frames)
        {
            out.push(frames.free(place));
            self.arrives = Moment {
                at: self.flying.arrives_at(frames),
                rank: self.flying.rank(frames),
            };
        }
    }

    fn receive(&mut self, now: Time, mut packet: Packet, _: &mut Vec<Packet>) {
        if let Some(hull) = &mut self.hull
            && packet.take_paced()
        {
            packet.wait(now, self.tier);
            let frames = &mut *self.pool.0.borrow_mut();
            let place = frames.put(packet);
            hull.push(now, frames, place);
        } else {
            self.take(now, packet);
        }
        self.release(now);
    }
}

impl Port {
    /// Moves frames that the pacer releases to the link's queue.
    fn release(&mut self, now: Time) {
        while let Some(hull) = &mut self.hull {
            let mut frames = self.pool.0.borrow_mut();
            let Some(place) = hull.pop(now, &mut frames) else {
                return;
            };
            let mut packet = frames.free(place);
            drop(frames);
            packet.go_on(now, self.tier);
            self.take(now, packet);
        }
    }

    /// Queues a frame.
    fn take(&mut self, now: Time, mut packet: Packet) {
        if let Some(phantom) = &mut self.phantom
            && phantom.take(now, packet.size)
        {
            self.tally.marked += u64::from(packet.mark());
        }
        let pool = Rc::clone(&self.pool.0);
        let frames = &mut *pool.borrow_mut();
        if self.waiting == 0 && self.free.at <= now {
            let place = frames.put(packet);
            return self.send(now, frames, place);
        }
        let size = u64::from(packet.size);
        let class = usize::from(packet.class).min(self.queues.len() - 1);
        let fits = if self.pfabric {
            self.make_room(frames, &packet)
        } else {
            self.takes(class, size)
        };
        if !fits {
            self.tally.dropped += 1;
            return;
        }
        let queue = &mut self.queues[class];
        if queue.bytes >= self.mark_at {
            self.tally.marked += u64::from(packet.mark());
        }
        queue.bytes += size;
        packet.wait(now, self.tier);
        let place = frames.put(packet);
        queue.packets.push(frames, place, Time::NEVER);
        self.waiting += size;
        if let Some(room) = &self.room {
            room.used.set(room.used.get() + size);
        }
        self.tally.peak = self.tally.peak.max(self.waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::packet::tests::frame;
    use crate::tcp::Ecn;

    const CONFIG: PortConfig = PortConfig {
        tier: Tier::ToHost,
        rate: Rate::from_mbit(1_000),
        delay: Nanos::from_micros(5),
        classes: 2,
        buffer: Some(Bytes(4_500)),
        apart: true,
        mark_at: Some(Bytes(1_500)),
        phantom: None,
        pfabric: false,
        hull: None,
    };

    /// Returns arrivals behind the link, with times; polls exactly on time.
    fn arrivals(port: &mut Port) -> Vec<(u64, u32, bool)> {
        let (mut all, mut out) = (Vec::new(), Vec::new());
        while port.poll_at() < Time::NEVER {
            let now = port.poll_at();
            port.poll(now, &mut out);
            let marked = |it: &Packet| it.segment.ecn == Ecn::Marked;
            all.extend(out.drain(..).map(|it| (now.0 / 1_000, it.to, marked(&it))));
        }
        all
    }

    #[test]
    fn the_first_class_is_sent_next_without_preempting_the_wire() {
        let mut port = Port::new(&CONFIG, &Pool::new(), None);
        for (class, number) in [(1, 0), (1, 1), (1, 2), (0, 3)] {
            port.receive(Time::ZERO, frame(class, number), &mut Vec::new());
        }
        // 12 us each, and 5 on the link. The third finds one frame of its class queued.
        let expected = [
            (17_000, 0, false),
            (29_000, 3, false),
            (41_000, 1, false),
            (53_000, 2, true),
        ];
        assert_eq!(arrivals(&mut port), expected);
        assert_eq!((port.tally.sent, port.tally.marked), (4, 1));
    }

    #[test]
    fn full_buffers_drop_frames_by_class_or_by_port() {
        for (apart, lost) in [(true, 1), (false, 3)] {
            let mut port = Port::new(&PortConfig { apart, ..CONFIG }, &Pool::new(), None);
            for (class, number) in [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (0, 5), (0, 6)] {
                port.receive(Time::ZERO, frame(class, number), &mut Vec::new());
            }
            assert_eq!(port.tally.dropped, lost);
            assert_eq!(port.tally.peak, 4_500 + 3_000 * u64::from(apart));
        }
    }

    /// One of two ports may hold half of 30,000 B if alpha is 1; both together a third each.
    #[test]
    fn ports_share_a_switch_buffer_by_its_free_space() {
        let room = Room::new(Shared {
            buffer: Bytes(30_000),
            alpha: 1.0,
        });
        let pool = Pool::new();
        let mut ports = [0, 1].map(|_| Port::new(&CONFIG, &pool, Some(room.clone())));
        let fill = |port: &mut Port| {
            (0..30).for_each(|number| port.receive(Time::ZERO, frame(1, number), &mut Vec::new()));
            port.waiting
        };
        assert_eq!(fill(&mut ports[0]), 15_000);
        // 15,000 B are free for the other one: it gets half of those.
        assert_eq!(fill(&mut ports[1]), 7_500);
        // The first empties. In turn both get more until neither is below the free space: 9,000 B,
        // except that the second, which has more than a third, keeps it.
        arrivals(&mut ports[0]);
        assert_eq!(room.used.get(), 7_500);
        for _ in 0..20 {
            for port in &mut ports {
                port.receive(Time::ZERO, frame(1, 0), &mut Vec::new());
            }
        }
        assert_eq!(ports.map(|port| port.waiting), [9_000, 12_000]);
    }

    /// pFabric: the flow with the least remaining data is served first, with its earliest frame,
    /// and frames with the most remaining data are dropped.
    #[test]
    fn pfabric_serves_short_flows_and_drops_the_longest() {
        let config = PortConfig {
            classes: 1,
            mark_at: None,
            buffer: Some(Bytes(6_000)),
            pfabric: true,
            ..CONFIG
        };
        let mut port = Port::new(&config, &Pool::new(), None);
        // The first is on the wire. Flow 1 has 50 left, then 20; flow 2 has 30; flow 3 90 and 80.
        for (class, flow) in [
            (99, 9),
            (50, 1),
            (30, 2),
            (90, 3),
            (20, 1),
            (80, 3),
            (95, 4),
        ] {
            port.receive(Time::ZERO, frame(class, flow), &mut Vec::new());
        }
        // 90 made room for 80, and 95 found none.
        assert_eq!(port.tally.dropped, 2);
        let order: Vec<u32> = arrivals(&mut port).iter().map(|it| it.1).collect();
        assert_eq!(order, [9, 1, 1, 2, 3]);
    }
}
