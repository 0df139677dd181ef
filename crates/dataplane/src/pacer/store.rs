//! Storage of frames; lines and guests refer to their places.

pub(super) mod by_flow;

use crate::queue::{Spare, shrink};
use crate::{Connection, Frame};
use by_flow::FlowTable;
use std::mem;
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

/// No place.
pub(super) const NIL: u32 = u32::MAX;

/// Arrival of a frame: its time, and the first byte of the wire at which it may be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) enqueued: Nanos,
    pub(super) at: Position,
}

/// A waiting frame, with values that are read often.
#[derive(Debug)]
pub(super) struct Waiting<F> {
    /// `None` in an unused place.
    pub(super) frame: Option<F>,
    /// The frame behind it in its line, or the next unused place.
    pub(super) next: u32,
    /// Length on the wire.
    pub(super) wire: WireBytes,
    /// Memory of the host, its place here included.
    pub(super) memory: Bytes,
    /// Time of arrival, and the first byte of the wire at which it may be sent.
    pub(super) enqueued: Nanos,
    pub(super) arrival: Position,
    /// True if the frame goes to a guest of this host.
    pub(super) is_local: bool,
}

/// A slab of frames. Places are reused: no memory is allocated after the slab has reached its
/// maximum size. It shrinks while it is unused.
#[derive(Debug)]
pub(super) struct Store<F> {
    places: Vec<Waiting<F>>,
    /// Unused places, linked through `next`.
    free: u32,
    /// Places from this one on are unused, too, and not linked.
    fresh: u32,
    len: usize,
    /// Queues of lines in which several flows wait.
    pub(super) flows: FlowTable,
}

impl<F> Store<F> {
    pub(super) const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: NIL,
            fresh: 0,
            len: 0,
            flows: FlowTable::new(),
        }
    }

    /// Memory of a place.
    pub(super) const PLACE: Bytes = Bytes(mem::size_of::<Waiting<F>>() as u64);

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Puts a frame of this length and memory into a place, and returns the place.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        frame: F,
        (wire, memory): (WireBytes, Bytes),
        arrival: Arrival,
    ) -> u32
    where
        F: Frame,
    {
        let index = self.free;
        let Some(place) = self.places.get_mut(index as usize) else {
            return self.place_in_another(frame, (wire, memory), arrival);
        };
        self.free = place.next;
        self.len += 1;
        place.next = NIL;
        place.wire = wire;
        place.memory = memory;
        place.enqueued = arrival.enqueued;
        place.arrival = arrival.at;
        place.is_local = frame.is_local();
        debug_assert!(place.frame.is_none(), "a place is one frame's");
        // The place is empty, so that no frame must be dropped.
        mem::forget(place.frame.replace(frame));
        index
    }

    /// Does the same if no unused place is linked.
    #[inline(never)]
    fn place_in_another(&mut self, frame: F, size: (WireBytes, Bytes), arrival: Arrival) -> u32
    where
        F: Frame,
    {
        self.grow();
        self.place(frame, size, arrival)
    }

    /// Links an unused place, or adds one.
    fn grow(&mut self) {
        self.free = self.fresh;
        match self.places.get_mut(self.fresh as usize) {
            Some(unused) => unused.next = NIL,
            None => self.places.push(Waiting {
                frame: None,
                next: NIL,
                wire: WireBytes::ZERO,
                memory: Bytes(0),
                enqueued: Nanos::ZERO,
                arrival: Position::ZERO,
                is_local: false,
            }),
        }
        self.fresh += 1;
    }

    /// Frees some places, if none was used since the last call.
    pub(super) fn give_back(&mut self) -> Spare {
        if self.len > 0 {
            return Spare::InUse;
        }
        if self.fresh > 0 {
            self.free = NIL;
            self.fresh = 0;
            return Spare::InUse;
        }
        self.flows.give_back();
        shrink(&mut self.places)
    }

    /// Returns the entry of a place.
    #[inline(always)]
    pub(super) fn at(&self, index: u32) -> &Waiting<F> {
        &self.places[index as usize]
    }

    /// Returns the entry of a place for changes.
    #[inline(always)]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Waiting<F> {
        &mut self.places[index as usize]
    }

    /// Returns the entries of all places, and the queues by flow, for changes.
    pub(super) fn parts_mut(&mut self) -> (&mut [Waiting<F>], &mut FlowTable) {
        (&mut self.places, &mut self.flows)
    }

    /// The flow of the frame in a place.
    pub(super) fn flow_at(&self, index: u32) -> Connection
    where
        F: Frame,
    {
        let frame = self.at(index).frame.as_ref();
        frame.map_or_else(Connection::default, Frame::connection)
    }

    /// Frees the place of a frame; the caller must take the frame out before any other call.
    #[inline(always)]
    pub(super) fn vacate(&mut self, index: u32) -> &mut Waiting<F> {
        let place = &mut self.places[index as usize];
        self.len -= 1;
        place.next = self.free;
        self.free = index;
        place
    }

    /// Takes a frame out and frees its place.
    pub(super) fn take(&mut self, index: u32) -> Option<F> {
        self.vacate(index).frame.take()
    }
}
