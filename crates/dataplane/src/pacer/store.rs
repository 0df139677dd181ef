//! Storage of frames; lines and guests refer to their places.

pub(super) mod by_flow;

use super::index::{FrameIndex, Table};
use crate::queue::{Spare, shrink};
use crate::{Connection, Frame};
use by_flow::FlowTable;
use std::mem;
use tailbound_units::{Bytes, Nanos, Position, WireBytes};

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
    pub(super) next: FrameIndex,
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

/// The entries of all places.
pub(super) type Places<F> = Table<FrameIndex, Waiting<F>>;

/// A slab of frames. Places are reused: no memory is allocated after the slab has reached its
/// maximum size. It shrinks while it is unused.
#[derive(Debug)]
pub(super) struct Store<F> {
    places: Places<F>,
    /// Unused places, linked through `next`.
    free: FrameIndex,
    /// Places from this one on are unused, too, and not linked.
    fresh: usize,
    len: usize,
    /// Queues of lines in which several flows wait.
    pub(super) flows: FlowTable,
}

impl<F> Store<F> {
    pub(super) const fn new() -> Self {
        Self {
            places: Table::new(),
            free: FrameIndex::NONE,
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
    ) -> FrameIndex
    where
        F: Frame,
    {
        let index = self.free;
        let Some(place) = self.places.get_mut(index) else {
            return self.place_in_another(frame, (wire, memory), arrival);
        };
        self.free = place.next;
        self.len += 1;
        place.next = FrameIndex::NONE;
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
    fn place_in_another(
        &mut self,
        frame: F,
        size: (WireBytes, Bytes),
        arrival: Arrival,
    ) -> FrameIndex
    where
        F: Frame,
    {
        self.grow();
        self.place(frame, size, arrival)
    }

    /// Links an unused place, or adds one.
    fn grow(&mut self) {
        self.free = FrameIndex::new(self.fresh);
        match self.places.get_mut(self.free) {
            Some(unused) => unused.next = FrameIndex::NONE,
            None => self.places.entries_mut().push(Waiting {
                frame: None,
                next: FrameIndex::NONE,
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
            self.free = FrameIndex::NONE;
            self.fresh = 0;
            return Spare::InUse;
        }
        self.flows.give_back();
        shrink(self.places.entries_mut())
    }

    /// Returns the entry of a place.
    #[inline(always)]
    pub(super) fn at(&self, index: FrameIndex) -> &Waiting<F> {
        &self.places[index]
    }

    /// Returns the entry of a place for changes.
    #[inline(always)]
    pub(super) fn at_mut(&mut self, index: FrameIndex) -> &mut Waiting<F> {
        &mut self.places[index]
    }

    /// Returns the entries of all places, and the queues by flow, for changes.
    pub(super) fn parts_mut(&mut self) -> (&mut Places<F>, &mut FlowTable) {
        (&mut self.places, &mut self.flows)
    }

    /// The flow of the frame in a place.
    pub(super) fn flow_at(&self, index: FrameIndex) -> Connection
    where
        F: Frame,
    {
        let frame = self.at(index).frame.as_ref();
        frame.map_or_else(Connection::default, Frame::connection)
    }

    /// Frees the place of a frame; the caller must take the frame out before any other call.
    #[inline(always)]
    pub(super) fn vacate(&mut self, index: FrameIndex) -> &mut Waiting<F> {
        let place = &mut self.places[index];
        self.len -= 1;
        place.next = self.free;
        self.free = index;
        place
    }

    /// Takes a frame out and frees its place.
    pub(super) fn take(&mut self, index: FrameIndex) -> Option<F> {
        self.vacate(index).frame.take()
    }
}
