//! A port that sends: queues by class, marks, and the link behind.
//!
//! [`crate::net::Port`] keeps backlogs exactly, to compare them with bounds. This one is for
//! many packets: a frame that finds the link free costs one event.

use super::fifo::Fifo;
use super::line::Tier;
use super::packet::Packet;
use crate::net::{Node, Time, Wire};
use serde::Deserialize;
use tailbound_units::{Bytes, Nanos, Rate};

/// A queue that is not there, which a slower link would have (HULL: Alizadeh et al., NSDI 2012):
/// a frame that would find so much in it is marked before there is a real queue.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phantom {
    /// Its link's rate, as a part of the real one.
    pub drain: f64,
    /// From what on it marks.
    pub mark_at: Bytes,
}

/// A phantom queue as it is.
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

    /// A frame comes. Returns whether it is marked.
    fn take(&mut self, now: Time, size: u16) -> bool {
        let left = now.since(self.at).0 as f64 * self.drain;
        self.at = now;
        self.bytes = (self.bytes - left).max(0.0) + f64::from(size);
        self.bytes > self.mark_at
    }
}

/// What a port is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortConfig {
    /// Where it stands on a frame's way.
    pub(super) tier: Tier,
    pub(super) rate: Rate,
    /// From the last bit on one end of the link until the frame is at the next queue.
    pub(super) delay: Nanos,
    /// Classes of strict priority.
    pub(super) classes: usize,
    /// What may wait here; the frame on the wire does not count.
    pub(super) buffer: Option<Bytes>,
    /// Whether each class has a buffer of its own.
    pub(super) apart: bool,
    /// A frame that finds so much in its class waiting, or more, is marked.
    pub(super) mark_at: Option<Bytes>,
    pub(super) phantom: Option<Phantom>,
}

/// What happened at a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PortTally {
    pub(super) sent: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
    pub(super) marked: u64,
    /// The most that waited.
    pub(super) peak: u64,
}

/// A class: what waits, and its bytes.
#[derive(Debug, Clone)]
struct Queue {
    packets: Fifo<Packet>,
    bytes: u64,
}

impl Queue {
    const EMPTY: Self = Self {
        packets: Fifo::new(),
        bytes: 0,
    };
}

#[derive(Debug, Clone)]
pub(super) struct Port {
    tier: Tier,
    wire: Wire,
    /// When the frame on the wire ends.
    free_at: Time,
    delay: Time,
    queues: Box<[Queue]>,
    /// What waits in all classes.
    waiting: u64,
    buffer: u64,
    apart: bool,
    mark_at: u64,
    phantom: Option<PhantomQueue>,
    /// On the wire and on the link, and when each arrives.
    flying: Fifo<(Time, Packet)>,
    pub(super) tally: PortTally,
}

impl Port {
    pub(super) fn new(config: &PortConfig) -> Self {
        let limit = |bytes: Option<Bytes>| bytes.map_or(u64::MAX, |it| it.0);
        Self {
            tier: config.tier,
            wire: Wire::new(config.rate),
            free_at: Time::ZERO,
            delay: config.delay.into(),
            queues: vec![Queue::EMPTY; config.classes].into(),
            waiting: 0,
            buffer: limit(config.buffer),
            apart: config.apart,
            mark_at: limit(config.mark_at),
            phantom: config.phantom.map(|it| PhantomQueue::new(&it, config.rate)),
            flying: Fifo::new(),
            tally: PortTally::default(),
        }
    }

    fn send(&mut self, now: Time, packet: Packet) {
        self.free_at = self.wire.send(now, packet.bytes());
        self.flying.push((self.free_at + self.delay, packet));
        self.tally.sent += 1;
        self.tally.bytes += u64::from(packet.size);
    }

    /// Frames that wait or are on the link.
    pub(super) fn held(&self) -> u64 {
        let queued = self.queues.iter().map(|it| it.packets.len());
        (queued.sum::<usize>() + self.flying.len()) as u64
    }

    /// Memory of what is on its way here, in bytes.
    pub(super) fn memory(&self) -> usize {
        let queued = self.queues.iter().map(|it| it.packets.memory());
        queued.sum::<usize>() + self.flying.memory()
    }
}

impl Node<Packet> for Port {
    fn poll_at(&self) -> Time {
        let arrives = self.flying.front().map_or(Time::NEVER, |first| first.0);
        if self.waiting > 0 {
            arrives.min(self.free_at)
        } else {
            arrives
        }
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Packet>) {
        if self.waiting > 0 && self.free_at <= now {
            let first = self.queues.iter_mut().find(|it| !it.packets.is_empty());
            if let Some(queue) = first
                && let Some(mut packet) = queue.packets.pop()
            {
                queue.bytes -= u64::from(packet.size);
                self.waiting -= u64::from(packet.size);
                packet.go_on(now, self.tier);
                self.send(now, packet);
            }
        }
        while let Some((at, packet)) = self.flying.front()
            && *at <= now
        {
            out.push(*packet);
            self.flying.pop();
        }
    }

    fn receive(&mut self, now: Time, mut packet: Packet, _: &mut Vec<Packet>) {
        if let Some(phantom) = &mut self.phantom
            && phantom.take(now, packet.size)
        {
            self.tally.marked += u64::from(packet.mark());
        }
        if self.waiting == 0 && self.free_at <= now {
            return self.send(now, packet);
        }
        let size = u64::from(packet.size);
        let class = usize::from(packet.class).min(self.queues.len() - 1);
        let queue = &mut self.queues[class];
        let held = if self.apart {
            queue.bytes
        } else {
            self.waiting
        };
        if held + size > self.buffer {
            self.tally.dropped += 1;
            return;
        }
        if queue.bytes >= self.mark_at {
            self.tally.marked += u64::from(packet.mark());
        }
        queue.bytes += size;
        packet.wait(now, self.tier);
        queue.packets.push(packet);
        self.waiting += size;
        self.tally.peak = self.tally.peak.max(self.waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Connection, Ecn, TcpConfig};

    fn packet(class: u8, number: u32) -> Packet {
        let mut out = Vec::new();
        let mut connection = Connection::established(TcpConfig::RACK, Nanos::from_micros(100));
        connection.write(Nanos::ZERO, 1_410, &mut out);
        let mut segment = out[0];
        segment.ecn = Ecn::Able;
        Packet {
            size: 1_500,
            class,
            ..Packet::new(Nanos::ZERO, segment, number, 0)
        }
    }

    const CONFIG: PortConfig = PortConfig {
        tier: Tier::ToHost,
        rate: Rate::from_mbit(1_000),
        delay: Nanos::from_micros(5),
        classes: 2,
        buffer: Some(Bytes(4_500)),
        apart: true,
        mark_at: Some(Bytes(1_500)),
        phantom: None,
    };

    /// What arrives behind the link, when: each poll at its time.
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
    fn the_first_class_goes_before_the_second_and_not_before_what_is_on_the_wire() {
        let mut port = Port::new(&CONFIG);
        for (class, number) in [(1, 0), (1, 1), (1, 2), (0, 3)] {
            port.receive(Time::ZERO, packet(class, number), &mut Vec::new());
        }
        // 12 us each, and 5 on the link. The third finds one of its class waiting.
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
    fn what_does_not_fit_is_lost_by_class_or_by_port() {
        for (apart, lost) in [(true, 1), (false, 3)] {
            let mut port = Port::new(&PortConfig { apart, ..CONFIG });
            for (class, number) in [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (0, 5), (0, 6)] {
                port.receive(Time::ZERO, packet(class, number), &mut Vec::new());
            }
            assert_eq!(port.tally.dropped, lost);
            assert_eq!(port.tally.peak, 4_500 + 3_000 * u64::from(apart));
        }
    }
}
