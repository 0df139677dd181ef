//! The links of a star and the ports of its switch, as times of a frame's path.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use tailbound_units::{Bytes, Nanos, Rate};

/// Properties of all links and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Links {
    /// Rate of each link, in both directions.
    pub rate: Rate,
    /// Delay from a frame's last bit at one end of a link to its arrival at the other end.
    pub delay: Nanos,
    /// Capacity of a switch port's queue; the frame on the wire does not count.
    pub buffer: Bytes,
}

/// A frame, its length on a wire with all overhead, and its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WireFrame<T> {
    pub(super) size: Bytes,
    pub(super) to: usize,
    pub(super) frame: T,
}

/// Position of a frame on its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Switch,
    Host,
}

/// A sending port.
#[derive(Debug, Clone, Default)]
struct Port {
    free_at: Nanos,
    /// Queued frames: the beginning of each transmission, and its length.
    waiting: VecDeque<(Nanos, Bytes)>,
    bytes: u64,
}

/// All links. A frame is in this structure from its sending to its arrival or loss.
#[derive(Debug)]
pub(super) struct Wires<T> {
    links: Links,
    up: Vec<Nanos>,
    down: Vec<Port>,
    next: BinaryHeap<Reverse<(Nanos, u64)>>,
    frames: BTreeMap<u64, (Place, WireFrame<T>)>,
    count: u64,
    /// Frames that arrived at a full port.
    pub(super) lost: u64,
}

impl<T> Wires<T> {
    pub(super) fn new(hosts: usize, links: Links) -> Self {
        Self {
            links,
            up: vec![Nanos::ZERO; hosts],
            down: vec![Port::default(); hosts],
            next: BinaryHeap::new(),
            frames: BTreeMap::new(),
            count: 0,
            lost: 0,
        }
    }

    /// Sends a frame of a host, behind its earlier frames.
    pub(super) fn send(&mut self, now: Nanos, from: usize, framed: WireFrame<T>) {
        let free_at = &mut self.up[from];
        *free_at = now.max(*free_at) + self.links.rate.time_for(framed.size);
        let at = *free_at + self.links.delay;
        self.put(at, Place::Switch, framed);
    }

    fn put(&mut self, at: Nanos, place: Place, framed: WireFrame<T>) {
        self.count += 1;
        self.next.push(Reverse((at, self.count)));
        self.frames.insert(self.count, (place, framed));
    }

    /// Returns the time of the next event; [`Nanos::MAX`] if there is none.
    pub(super) fn poll_at(&self) -> Nanos {
        self.next.peek().map_or(Nanos::MAX, |first| first.0.0)
    }

    /// Returns the next frame that has arrived at its host by `now`, and its time of arrival.
    pub(super) fn next(&mut self, now: Nanos) -> Option<(Nanos, WireFrame<T>)> {
        while self.poll_at() <= now {
            let Reverse((at, number)) = self.next.pop()?;
            let (place, framed) = self.frames.remove(&number)?;
            match place {
                Place::Switch => self.forward(at, framed),
                Place::Host => return Some((at, framed)),
            }
        }
        None
    }

    /// Forwards a frame that arrives at the switch.
    fn forward(&mut self, at: Nanos, framed: WireFrame<T>) {
        let Links {
            rate,
            delay,
            buffer,
        } = self.links;
        let port = &mut self.down[framed.to];
        while let Some(first) = port.waiting.front()
            && first.0 <= at
        {
            port.bytes -= first.1.0;
            port.waiting.pop_front();
        }
        let begins = port.free_at.max(at);
        if begins > at {
            if port.bytes + framed.size.0 > buffer.0 {
                self.lost += 1;
                return;
            }
            port.bytes += framed.size.0;
            port.waiting.push_back((begins, framed.size));
        }
        port.free_at = begins + rate.time_for(framed.size);
        let at = port.free_at + delay;
        self.put(at, Place::Host, framed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,250 B take 100 us.
    const LINKS: Links = Links {
        rate: Rate::from_mbit(100),
        delay: Nanos::from_micros(30),
        buffer: Bytes(2_500),
    };

    fn framed(to: usize, frame: u32) -> WireFrame<u32> {
        WireFrame {
            size: Bytes(1_250),
            to,
            frame,
        }
    }

    fn come(wires: &mut Wires<u32>) -> Vec<(u64, u32)> {
        let all = std::iter::from_fn(|| wires.next(Nanos::MAX));
        all.map(|(at, it)| (at.0 / 1_000, it.frame)).collect()
    }

    #[test]
    fn a_frame_takes_both_links_and_waits_for_those_before_it() {
        let mut wires = Wires::new(3, LINKS);
        wires.send(Nanos::ZERO, 0, framed(2, 0));
        wires.send(Nanos::ZERO, 0, framed(1, 1));
        wires.send(Nanos::from_micros(50), 1, framed(2, 2));
        assert_eq!(wires.poll_at(), Nanos::from_micros(130));
        // The third is at the switch after 180 us and waits there until 230, when the second comes to
        // another port: both end together, and the one that came to its port first is first.
        assert_eq!(come(&mut wires), [(260, 0), (360, 2), (360, 1)]);
        assert_eq!(wires.poll_at(), Nanos::MAX);
    }

    #[test]
    fn a_full_wire_queue_drops_and_counts_frames() {
        let mut wires = Wires::new(6, LINKS);
        // One is on the wire and two wait, of five at once.
        (0..5).for_each(|from| wires.send(Nanos::ZERO, from, framed(5, from as u32)));
        assert_eq!(come(&mut wires), [(260, 0), (360, 1), (460, 2)]);
        assert_eq!(wires.lost, 2);
    }
}
