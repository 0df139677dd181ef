//! The frames of all ports, in one memory.
//!
//! Ports are busiest at different times: separate memories would have to hold the sum of their
//! peaks. A [`List`] is a queue in a [`Pool`]; a frame that moves from one list to another keeps
//! its place.

use super::packet::Packet;
use crate::net::Time;
use std::cell::RefCell;
use std::rc::Rc;

/// No place.
const NONE: u32 = u32::MAX;
/// Number of places that are allocated in one step, and never moved.
const CHUNK: usize = 512;

#[derive(Debug)]
struct Slot {
    packet: Packet,
    /// Time of arrival, once the frame was sent.
    at: Time,
    /// Its number in the order of sending, once it was sent.
    rank: u32,
    /// The next place in its list, or the next free one.
    next: u32,
}

/// Frames, by their places.
#[derive(Debug)]
pub(super) struct Frames {
    chunks: Vec<Vec<Slot>>,
    /// The first free place.
    free: u32,
    /// Number of the next frame that is sent; wraps around.
    rank: u32,
}

/// The frames of all ports of a network.
#[derive(Debug, Clone)]
pub(super) struct Pool(pub(super) Rc<RefCell<Frames>>);

/// A queue of frames of a pool.
#[derive(Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: u32,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new(Frames {
            chunks: Vec::new(),
            free: NONE,
            rank: 0,
        })))
    }

    /// Allocated memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        let frames = self.0.borrow();
        let each = frames.chunks.capacity() * size_of::<Vec<Slot>>();
        each + frames.chunks.len() * CHUNK * size_of::<Slot>()
    }
}

impl Frames {
    fn slot(&self, place: u32) -> &Slot {
        &self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    fn slot_mut(&mut self, place: u32) -> &mut Slot {
        &mut self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    /// Adds a frame, in no list; returns its place.
    pub(super) fn put(&mut self, packet: Packet) -> u32 {
        let slot = Slot {
            packet,
            at: Time::NEVER,
            rank: 0,
            next: NONE,
        };
        if self.free != NONE {
            let place = self.free;
            let old = std::mem::replace(self.slot_mut(place), slot);
            self.free = old.next;
            return place;
        }
        if self.chunks.last().is_none_or(|it| it.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let last = self.chunks.len() - 1;
        self.chunks[last].push(slot);
        (last * CHUNK + self.chunks[last].len() - 1) as u32
    }

    /// Removes and returns a frame that is in no list.
    pub(super) fn free(&mut self, place: u32) -> Packet {
        let free = self.free;
        self.free = place;
        let it = self.slot_mut(place);
        it.next = free;
        it.packet
    }

    /// Counts a frame that is sent; returns its rank ([`crate::net::Node::rank`]).
    pub(super) const fn next_rank(&mut self) -> u32 {
        self.rank = self.rank.wrapping_add(1);
        self.rank
    }

    /// Returns the frame at a place.
    pub(super) fn packet(&mut self, place: u32) -> &mut Packet {
        &mut self.slot_mut(place).packet
    }
}

impl List {
    pub(super) const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
        len: 0,
    };

    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Length of the first frame on a wire, in bytes; 0 if the list is empty.
    pub(super) fn first_size(&self, frames: &Frames) -> f64 {
        if self.is_empty() {
            return 0.0;
        }
        f64::from(frames.slot(self.first).packet.size)
    }

    /// Arrival time of the first frame; [`Time::NEVER`] if the list is empty.
    pub(super) fn arrives_at(&self, frames: &Frames) -> Time {
        if self.is_empty() {
            return Time::NEVER;
        }
        frames.slot(self.first).at
    }

    /// Rank of the first frame; 0 if the list is empty.
    pub(super) fn rank(&self, frames: &Frames) -> u32 {
        if self.is_empty() {
            return 0;
        }
        frames.slot(self.first).rank
    }

    /// Appends the frame at a place, which is in no list, with its rank.
    pub(super) fn push_sent(&mut self, frames: &mut Frames, place: u32, at: Time, rank: u32) {
        self.push(frames, place, at);
        frames.slot_mut(place).rank = rank;
    }

    /// Appends the frame at a place, which is in no list.
    pub(super) fn push(&mut self, frames: &mut Frames, place: u32, at: Time) {
        if self.is_empty() {
            self.first = place;
        } else {
            frames.slot_mut(self.last).next = place;
        }
        frames.slot_mut(place).at = at;
        self.last = place;
        self.len += 1;
    }

    /// Removes the first frame.
    pub(super) fn pop(&mut self, frames: &mut Frames) -> Option<u32> {
        self.take(frames, NONE)
    }

    /// Removes the frame after a place, or the first.
    fn take(&mut self, frames: &mut Frames, before: u32) -> Option<u32> {
        let place = if before == NONE {
            self.first
        } else {
            frames.slot(before).next
        };
        if place == NONE {
            return None;
        }
        let next = std::mem::replace(&mut frames.slot_mut(place).next, NONE);
        if before == NONE {
            self.first = next;
        } else {
            frames.slot_mut(before).next = next;
        }
        if next == NONE {
            self.last = before;
        }
        self.len -= 1;
        Some(place)
    }

    /// Removes the smallest frame by an order, and the earliest of equals.
    pub(super) fn take_least<K: Ord>(
        &mut self,
        frames: &mut Frames,
        order: impl Fn(&Packet) -> K,
    ) -> Option<u32> {
        let mut least: Option<(K, u32)> = None;
        let (mut before, mut place) = (NONE, self.first);
        while place != NONE {
            let it = frames.slot(place);
            let key = order(&it.packet);
            if least.as_ref().is_none_or(|least| key < least.0) {
                least = Some((key, before));
            }
            (before, place) = (place, it.next);
        }
        let (_, before) = least?;
        self.take(frames, before)
    }

    /// Returns the smallest frame by an order, and the earliest of equals.
    pub(super) fn least<'f, K: Ord>(
        &self,
        frames: &'f Frames,
        order: impl Fn(&Packet) -> K,
    ) -> Option<&'f Packet> {
        let mut place = self.first;
        let all = std::iter::from_fn(|| {
            let it = (place != NONE).then(|| frames.slot(place))?;
            place = it.next;
            Some(&it.packet)
        });
        all.min_by_key(|it| order(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::packet::tests::frame;

    fn numbers(list: &mut List, frames: &mut Frames) -> Vec<u32> {
        let all = std::iter::from_fn(|| {
            let place = list.pop(frames)?;
            Some(frames.free(place).to)
        });
        all.collect()
    }

    #[test]
    fn the_pool_reuses_freed_frames_and_keeps_list_order() {
        let pool = Pool::new();
        let frames = &mut *pool.0.borrow_mut();
        let (mut one, mut other) = (List::EMPTY, List::EMPTY);
        for number in 0..1_000 {
            let place = frames.put(frame(0, number));
            one.push(frames, place, Time::NEVER);
        }
        // Half is moved to another list, in its order.
        for _ in 0..500 {
            let place = one.pop(frames).unwrap();
            other.push(frames, place, Time(7));
        }
        assert_eq!((one.len(), other.len()), (500, 500));
        assert_eq!(other.arrives_at(frames), Time(7));
        assert_eq!(numbers(&mut other, frames), (0..500).collect::<Vec<_>>());
        for number in 1_000..1_500 {
            let place = frames.put(frame(0, number));
            other.push(frames, place, Time::NEVER);
        }
        assert_eq!(frames.chunks.len(), 2, "as many as 1,000 need");
        assert_eq!(numbers(&mut one, frames), (500..1_000).collect::<Vec<_>>());
        assert_eq!(
            numbers(&mut other, frames),
            (1_000..1_500).collect::<Vec<_>>()
        );
    }

    #[test]
    fn take_least_removes_the_least_frame_anywhere_in_the_list() {
        let pool = Pool::new();
        let frames = &mut *pool.0.borrow_mut();
        let mut list = List::EMPTY;
        for (class, number) in [(5, 0), (2, 1), (9, 2), (2, 3), (9, 4)] {
            let place = frames.put(frame(class, number));
            list.push(frames, place, Time::NEVER);
        }
        let least = list.least(frames, |it| it.class).map(|it| it.to);
        assert_eq!(least, Some(1));
        let mut taken = Vec::new();
        for _ in 0..2 {
            let place = list.take_least(frames, |it| it.class).unwrap();
            taken.push(frames.free(place).to);
        }
        assert_eq!(taken, [1, 3]);
        // The last one is removed, and another is appended.
        let place = list
            .take_least(frames, |it| std::cmp::Reverse(it.to))
            .unwrap();
        assert_eq!(frames.free(place).to, 4);
        let place = frames.put(frame(1, 5));
        list.push(frames, place, Time::NEVER);
        assert_eq!(numbers(&mut list, frames), [0, 2, 5]);
    }
}
