//! The structs of `packets/tables.h` that user space reads or writes.

use super::measurement::{BUCKETS, Both, Histogram, Measurement, Occupant, Requests};
use super::{Kind, SlowRequest};
use aya::Pod;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use tailbound_units::Nanos;

pub(super) const WAYS: usize = 4;
pub(super) const PLACES: u32 = 4096;
/// The slot of frames that no guest sent.
pub(super) const NO_SLOT: u32 = 0xffff;

/// `struct place`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) ifindex: [u32; WAYS],
    /// A slot, and above that the shift of its sampling.
    pub(super) guest: [u32; WAYS],
}

/// `struct control`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Control {
    pub(super) resumed: u64,
    pub(super) times_all: u64,
}

/// `struct tags`.
pub(super) const STAMPS: usize = 65_536;

/// `struct traffic`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traffic {
    pub(super) frames: [u64; 2],
    pub(super) bytes: [u64; 2],
}

/// `struct drop`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Drop {
    pub(super) slot: u32,
    pub(super) direction: u32,
    pub(super) reason: u64,
}

/// `struct behind`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Behind {
    pub(super) slot: u32,
    pub(super) direction: u32,
    pub(super) occupant: u32,
    pub(super) ifindex: u32,
}

/// `struct delay`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawDelay {
    pub(super) frames: u64,
    pub(super) wait: u64,
}

/// `struct histogram`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawHistogram {
    sum: u64,
    longest: u64,
    counts: [u32; BUCKETS],
}

/// `struct meter`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Meter {
    queue: [RawHistogram; 2],
    host: [RawHistogram; 2],
    ring: RawHistogram,
    requests: [RawHistogram; 2],
    core: [RawHistogram; 2],
    round_trip: [RawHistogram; 2],
    spent: [[u64; 5]; 2],
    begun: [u64; 2],
    segments: [u64; 2],
    retransmitted: [u64; 2],
    closed: [u64; 2],
    closed_time: [u64; 2],
    held: [u64; 2],
    held_time: [u64; 2],
    events_lost: u64,
}

/// `struct key`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Key {
    guest: [[u8; 4]; 4],
    peer: [[u8; 4]; 4],
    guest_port: u16,
    peer_port: u16,
    slot: u32,
}

/// `struct occupant`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawOccupant {
    wait: u64,
    bytes: u64,
    own: u64,
    slot: u32,
    ifindex: u32,
}

/// `struct event`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    kind: u32,
    slot: u32,
    key: Key,
    began: u64,
    times: [u64; 5],
    worst: RawOccupant,
    waited: [u64; 2],
    retransmitted: [u32; 2],
    closed: [u32; 2],
    lost: u32,
    neighbour: u32,
}

// SAFETY: whole numbers alone, without padding.
unsafe impl Pod for Place {}
// SAFETY: as above.
unsafe impl Pod for Control {}
// SAFETY: as above.
unsafe impl Pod for Traffic {}
// SAFETY: as above.
unsafe impl Pod for Drop {}
// SAFETY: as above.
unsafe impl Pod for Behind {}
// SAFETY: as above.
unsafe impl Pod for RawDelay {}
// SAFETY: as above: a histogram has 16 bytes and 128 times 4.
unsafe impl Pod for Meter {}

impl Meter {
    pub(super) const EMPTY: Self = {
        const NONE: RawHistogram = RawHistogram {
            sum: 0,
            longest: 0,
            counts: [0; BUCKETS],
        };
        Self {
            queue: [NONE; 2],
            host: [NONE; 2],
            ring: NONE,
            requests: [NONE; 2],
            core: [NONE; 2],
            round_trip: [NONE; 2],
            spent: [[0; 5]; 2],
            begun: [0; 2],
            segments: [0; 2],
            retransmitted: [0; 2],
            closed: [0; 2],
            closed_time: [0; 2],
            held: [0; 2],
            held_time: [0; 2],
            events_lost: 0,
        }
    };

    fn requests(&self, kind: usize) -> Requests {
        Requests {
            begun: self.begun[kind],
            whole: self.requests[kind].into(),
            core: self.core[kind].into(),
            spent: self.spent[kind].map(Nanos),
        }
    }

    /// Returns a measurement; packets, drops and occupants are in other tables.
    pub(super) fn measurement(&self) -> Measurement {
        let same = |number| number;
        Measurement {
            queue: Both::of(&self.queue, Histogram::from),
            host: Both::of(&self.host, Histogram::from),
            ring: self.ring.into(),
            served: self.requests(0),
            made: self.requests(1),
            round_trip_outer: self.round_trip[0].into(),
            round_trip_guest: self.round_trip[1].into(),
            segments: Both::of(&self.segments, same),
            retransmitted: Both::of(&self.retransmitted, same),
            closed: Both::of(&self.closed, same),
            closed_time: Both::of(&self.closed_time, Nanos),
            held: Both::of(&self.held, same),
            held_time: Both::of(&self.held_time, Nanos),
            events_lost: self.events_lost,
            ..Measurement::default()
        }
    }
}

impl From<RawHistogram> for Histogram {
    fn from(raw: RawHistogram) -> Self {
        Self {
            sum: raw.sum,
            longest: raw.longest,
            counts: raw.counts,
        }
    }
}

impl RawOccupant {
    const fn occupant(&self) -> Occupant {
        occupant(if self.bytes == 0 {
            NO_SLOT + 1
        } else {
            self.slot
        })
    }
}

pub(super) const fn occupant(slot: u32) -> Occupant {
    match slot {
        NO_SLOT => Occupant::Others,
        slot if slot > NO_SLOT => Occupant::OnlyItself,
        slot => Occupant::Guest(slot),
    }
}

fn address(words: [[u8; 4]; 4], port: u16) -> SocketAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(words.as_flattened());
    let address = IpAddr::V6(Ipv6Addr::from(octets));
    SocketAddr::new(address.to_canonical(), port)
}

impl Event {
    /// Reads an event from the ring; `None` if there are too few bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: there are as many bytes, and any bytes are whole numbers.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }
}

impl From<&Event> for SlowRequest {
    fn from(raw: &Event) -> Self {
        let same = |number| number;
        Self {
            kind: if raw.kind == 0 {
                Kind::Served
            } else {
                Kind::Made
            },
            slot: raw.slot,
            guest: address(raw.key.guest, raw.key.guest_port),
            peer: address(raw.key.peer, raw.key.peer_port),
            began: Nanos(raw.began),
            times: raw.times.map(Nanos),
            waited: Both::of(&raw.waited, Nanos),
            longest_wait: Nanos(raw.worst.wait),
            interface: raw.worst.ifindex,
            occupant: raw.worst.occupant(),
            occupant_bytes: raw.worst.bytes,
            own_bytes: raw.worst.own,
            retransmitted: Both::of(&raw.retransmitted, same),
            closed: Both::of(&raw.closed, same),
            lost: raw.lost,
            neighbour: (raw.neighbour < NO_SLOT).then_some(raw.neighbour),
        }
    }
}
