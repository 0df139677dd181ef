//! A ring over memory, without sockets: buffers of a driver arrive whole and in order, and no other
//! content of the memory breaks the ring.

use crate::shifting::{LEN, Shifting, Step, put, run};
use proptest::prelude::*;
use std::sync::atomic::Ordering;
use tailbound_dataplane::Pool;
use tailbound_vhost::ring::{Format, Layout, Put, Ring, RingError};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x3000;
const USED: u64 = 0x4000;
const INDIRECT: u64 = 0x6000;
const BUFFERS: u64 = 0x10_000;

fn layout(size: u32, event_index: bool) -> Layout {
    Layout {
        size,
        descriptors: TABLE,
        available: AVAILABLE,
        used: USED,
        event_index,
    }
}

const FORMAT: Format = Format {
    header: 12,
    mergeable: true,
};

/// A driver of a ring with as many entries as a test likes.
struct Driver {
    memory: GuestMemoryMmap,
    size: u16,
    next: u16,
    seen: u16,
    free: Vec<u16>,
    tables: u64,
    bytes: u64,
}

impl Driver {
    fn new(size: u16, start: u16) -> Self {
        let ranges = [(GuestAddress(0), 8 << 20)];
        let memory = GuestMemoryMmap::from_ranges(&ranges).expect("mapped");
        let driver = Self {
            memory,
            size,
            next: start,
            seen: start,
            free: (0..size).collect(),
            tables: INDIRECT,
            bytes: BUFFERS,
        };
        driver.set(USED + 2, start);
        driver.set(AVAILABLE + 2, start);
        driver
    }

    fn set(&self, at: u64, word: u16) {
        let stored = self.memory.store(word, GuestAddress(at), Ordering::SeqCst);
        stored.expect("there");
    }

    fn get(&self, at: u64) -> u16 {
        let word = self.memory.load(GuestAddress(at), Ordering::SeqCst);
        word.expect("there")
    }

    fn describe(&self, at: u64, piece: (u64, u32), flags: u16, next: u16) {
        let write = |value: &[u8], at| {
            self.memory
                .write_slice(value, GuestAddress(at))
                .expect("there");
        };
        write(&piece.0.to_le_bytes(), at);
        write(&piece.1.to_le_bytes(), at + 8);
        write(&flags.to_le_bytes(), at + 12);
        write(&next.to_le_bytes(), at + 14);
    }

    /// Offers a chain of buffers of these lengths; returns their addresses and lengths, or `None`
    /// if too few entries are free.
    fn offer(&mut self, lengths: &[u32], write: bool, indirect: bool) -> Option<Vec<(u64, u32)>> {
        let entries = if indirect { 1 } else { lengths.len() };
        if self.free.len() < entries {
            return None;
        }
        let pieces: Vec<_> = lengths
            .iter()
            .map(|len| {
                let at = self.bytes;
                self.bytes += u64::from(*len);
                (at, *len)
            })
            .collect();
        let entries: Vec<_> = self.free.drain(..entries).collect();
        let last = pieces.len() - 1;
        let direction = if write { 2 } else { 0 };
        for (place, piece) in pieces.iter().enumerate() {
            let next = u16::from(place < last);
            if indirect {
                let at = self.tables + 16 * place as u64;
                self.describe(at, *piece, direction | next, place as u16 + 1);
            } else {
                let at = TABLE + 16 * u64::from(entries[place]);
                let following = entries.get(place + 1).copied().unwrap_or_default();
                self.describe(at, *piece, direction | next, following);
            }
        }
        if indirect {
            let len = 16 * pieces.len() as u32;
            let at = TABLE + 16 * u64::from(entries[0]);
            self.describe(at, (self.tables, len), 4, 0);
            self.tables += u64::from(len);
        }
        let place = AVAILABLE + 4 + 2 * u64::from(self.next % self.size);
        self.set(place, entries[0]);
        self.next = self.next.wrapping_add(1);
        self.set(AVAILABLE + 2, self.next);
        Some(pieces)
    }

    /// Returns the number of bytes written to the next returned chain.
    fn given_back(&mut self) -> Option<u32> {
        if self.get(USED + 2) == self.seen {
            return None;
        }
        let at = USED + 4 + 8 * u64::from(self.seen % self.size);
        self.seen = self.seen.wrapping_add(1);
        let [_, len]: [u32; 2] = self.memory.read_obj(GuestAddress(at)).expect("there");
        Some(len)
    }

    fn read(&self, pieces: &[(u64, u32)], len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, piece) in pieces {
            let mut part = vec![0; *piece as usize];
            self.memory
                .read_slice(&mut part, GuestAddress(*at))
                .expect("there");
            bytes.extend(part);
        }
        bytes.truncate(len);
        bytes
    }
}

proptest! {
    /// However a driver cuts its frames, they are taken as they are, and in order.
    #[test]
    fn frames_offered_by_a_driver_are_taken_in_order(
        start in any::<u16>(),
        event in any::<bool>(),
        frames in prop::collection::vec(
            (prop::collection::vec(1u32..600, 1..7), any::<bool>()), 1..40),
        bursts in prop::collection::vec(1usize..33, 50),
    ) {
        let mut driver = Driver::new(64, start);
        let mut ring = Ring::start(layout(64, event), &driver.memory).expect("it is right");
        let pool = Pool::new();
        let mut wanted = Vec::new();
        for (place, (lengths, indirect)) in frames.iter().enumerate() {
            if driver.offer(lengths, false, *indirect).is_some() {
                wanted.push((place, lengths.iter().sum::<u32>() as usize));
            }
        }
        let mut got = Vec::new();
        for most in bursts {
            let before = got.len();
            let taken = ring.take(&driver.memory, FORMAT, most, &pool, &mut got).expect("right");
            prop_assert_eq!(taken.chains, got.len() - before);
            prop_assert_eq!(ring.index(), start.wrapping_add(got.len() as u16));
            if taken.chains < most {
                prop_assert!(!ring.wait(&driver.memory).expect("right"));
            }
        }
        prop_assert_eq!(got.len(), wanted.len());
        for ((_, len), got) in wanted.iter().zip(&got) {
            prop_assert_eq!(got.len, len.saturating_sub(12));
            prop_assert_eq!(got.virtio.is_some(), *len >= 12);
            prop_assert_eq!(driver.given_back(), Some(0));
        }
        prop_assert_eq!(driver.given_back(), None);
    }

    /// For every split of a driver's buffers, a frame fills them from the first on, and its chains
    /// are returned immediately; or nothing changes.
    #[test]
    fn a_frame_fills_the_guests_buffers_in_order(
        start in any::<u16>(),
        chains in prop::collection::vec(
            (prop::collection::vec(1u32..3000, 1..5), any::<bool>()), 0..40),
        frames in prop::collection::vec(0usize..9000, 1..20),
    ) {
        let mut driver = Driver::new(64, start);
        let mut ring = Ring::start(layout(64, false), &driver.memory).expect("it is right");
        let mut offered: Vec<_> = chains
            .iter()
            .filter_map(|(lengths, indirect)| driver.offer(lengths, true, *indirect))
            .collect();
        offered.reverse();
        for (mark, len) in frames.into_iter().enumerate() {
            let frame = vec![mark as u8; len];
            let room: usize = offered.iter().flatten().map(|piece| piece.1 as usize).sum();
            let before = ring.index();
            let put = put(&mut ring, &driver.memory, FORMAT, &[9; 10], &frame).expect("right");
            if room < len + 12 {
                prop_assert_eq!((put, ring.index()), (Put::Full, before));
                prop_assert!(!ring.wait_for_room(&driver.memory).expect("right"));
                continue;
            }
            prop_assert_eq!(put, Put::Done);
            let mut bytes = Vec::new();
            let count = ring.index().wrapping_sub(before);
            for _ in 0..count {
                let pieces = offered.pop().expect("offered");
                let written = driver.given_back().expect("given back") as usize;
                bytes.extend(driver.read(&pieces, written));
            }
            prop_assert_eq!(&bytes[..10], &[9; 10]);
            prop_assert_eq!(&bytes[10..12], &count.to_le_bytes());
            prop_assert_eq!(&bytes[12..], &frame[..]);
        }
    }

    /// Random memory that changes while the ring reads it.
    #[test]
    fn no_memory_breaks_a_ring(
        contents in prop::collection::vec(
            prop_oneof![3 => Just(0u8), 2 => 0u8..9, 1 => any::<u8>()], 0..768),
        writes in prop::collection::vec((0u16..768, any::<u8>()), 0..200),
        parts in (0u64..512, 0u64..512, 0u64..512),
        size in 0u32..7,
        event in any::<bool>(),
        steps in prop::collection::vec(any::<(u8, u8)>(), 1..30),
        long in any::<bool>(),
        mergeable in any::<bool>(),
    ) {
        let layout = Layout {
            size: 1 << size,
            descriptors: parts.0 & !15,
            available: parts.1 & !1,
            used: parts.2 & !3,
            event_index: event,
        };
        let format = Format { header: if long { 12 } else { 10 }, mergeable };
        let steps: Vec<_> = steps.into_iter().map(|(step, more)| Step::of(step, more)).collect();
        run(&Shifting::new(&contents, writes), layout, format, &steps);
    }
}

#[test]
fn a_ring_that_is_not_in_memory_or_not_aligned_does_not_start() {
    let memory = Shifting::new(&[], []);
    let start = |change: fn(&mut Layout)| {
        let mut layout = layout(64, false);
        change(&mut layout);
        Ring::start(layout, &memory).expect_err("wrong")
    };
    assert_eq!(start(|layout| layout.size = 0), RingError::Size(0));
    assert_eq!(start(|layout| layout.size = 48), RingError::Size(48));
    assert_eq!(
        start(|layout| layout.size = 65_536),
        RingError::Size(65_536)
    );
    let end = "table of descriptors";
    assert_eq!(
        start(|layout| layout.descriptors = 8),
        RingError::Place(end)
    );
    assert_eq!(
        start(|layout| layout.descriptors = (LEN - 512) as u64),
        RingError::Place(end)
    );
    assert_eq!(
        start(|layout| layout.available = u64::MAX - 1),
        RingError::Place("available part")
    );
    assert_eq!(
        start(|layout| layout.used = 2),
        RingError::Place("used part")
    );
}

#[test]
fn buffers_of_a_byte_cost_no_more_than_a_frame_is_worth() {
    let mut driver = Driver::new(256, 0);
    let mut ring = Ring::start(layout(256, false), &driver.memory).expect("it is right");
    while driver.offer(&[1], true, false).is_some() {}
    let long = put(
        &mut ring,
        &driver.memory,
        FORMAT,
        &[0; 10],
        &vec![1; 60_000],
    );
    assert_eq!(long, Ok(Put::TooLong));
    assert_eq!(ring.index(), 0);
    let short = put(&mut ring, &driver.memory, FORMAT, &[0; 10], &[1; 200]);
    assert_eq!((short, ring.index()), (Ok(Put::Done), 212));
}

/// A look at a descriptor without bytes would be free for who offers it: none is looked past.
#[test]
fn a_descriptor_of_no_bytes_breaks_its_ring_wherever_it_stands() {
    let pool = Pool::new();
    for indirect in [false, true] {
        for empty in [0, 1, 255] {
            let mut lengths = vec![1; 256];
            lengths[empty] = 0;
            let mut driver = Driver::new(256, 0);
            let mut ring = Ring::start(layout(256, false), &driver.memory).expect("it is right");
            driver.offer(&lengths, false, indirect).expect("room");
            let mut got = Vec::new();
            let taken = ring.take(&driver.memory, FORMAT, 32, &pool, &mut got);
            assert_eq!(taken, Err(RingError::Empty), "at {empty}");
            assert!(got.is_empty());
            let mut driver = Driver::new(256, 0);
            let mut ring = Ring::start(layout(256, false), &driver.memory).expect("it is right");
            driver.offer(&lengths, true, indirect).expect("room");
            let put = put(&mut ring, &driver.memory, FORMAT, &[0; 10], &[1; 1400]);
            assert_eq!(put, Err(RingError::Empty), "at {empty}");
        }
    }
}

#[test]
fn a_burst_of_long_chains_ends_early_and_its_descriptors_are_counted() {
    const PIECES: usize = 510;
    let mut driver = Driver::new(64, 0);
    let mut ring = Ring::start(layout(64, false), &driver.memory).expect("it is right");
    let mut lengths = vec![1; PIECES];
    lengths[PIECES - 1] = 72;
    for _ in 0..20 {
        driver.offer(&lengths, false, true).expect("room");
    }
    let pool = Pool::new();
    let mut got = Vec::new();
    let mut chains = 0;
    while chains < 20 {
        let taken = ring.take(&driver.memory, FORMAT, 32, &pool, &mut got);
        let taken = taken.expect("right");
        assert_eq!(taken.pieces, PIECES * taken.chains);
        assert!((1..=3).contains(&taken.chains), "{} chains", taken.chains);
        chains += taken.chains;
    }
    assert_eq!(got.len(), 20);
    // What Linux sends is not cut short: its largest packets fill a burst by their bytes.
    let mut driver = Driver::new(64, 0);
    let mut ring = Ring::start(layout(64, false), &driver.memory).expect("it is right");
    for _ in 0..32 {
        driver.offer(&[60; 19], false, true).expect("room");
    }
    let taken = ring.take(&driver.memory, FORMAT, 32, &pool, &mut got);
    assert_eq!(taken.expect("right").chains, 32);
}

#[test]
fn a_ring_into_which_no_frame_fits_is_broken_after_256_of_them() {
    let mut driver = Driver::new(512, 0);
    let mut ring = Ring::start(layout(512, false), &driver.memory).expect("it is right");
    while driver.offer(&[1], true, false).is_some() {}
    let mut offer = |len: usize| put(&mut ring, &driver.memory, FORMAT, &[0; 10], &vec![1; len]);
    for _ in 0..255 {
        assert_eq!(offer(600), Ok(Put::TooLong));
        // These are longer than any driver has to have room for.
        assert_eq!(offer(9000), Ok(Put::TooLong));
    }
    // One that fits shows that the driver means it.
    assert_eq!(offer(100), Ok(Put::Done));
    for _ in 0..255 {
        assert_eq!(offer(600), Ok(Put::TooLong));
    }
    assert_eq!(offer(600), Err(RingError::Short));
}

#[test]
fn a_ring_resumes_at_its_used_index() {
    let mut driver = Driver::new(8, 65_533);
    let pool = Pool::new();
    let mut got = Vec::new();
    for round in 0..20 {
        // Another device each time.
        let mut ring = Ring::start(layout(8, true), &driver.memory).expect("it is right");
        driver.free = (0..8).collect();
        for _ in 0..3 {
            driver.offer(&[72], false, false).expect("room");
        }
        let most = 1 + round % 4;
        ring.take(&driver.memory, FORMAT, most, &pool, &mut got)
            .expect("right");
        let mut rest = Ring::start(layout(8, true), &driver.memory).expect("it is right");
        rest.take(&driver.memory, FORMAT, 8, &pool, &mut got)
            .expect("right");
        assert_eq!(got.len(), 3 * (round + 1));
    }
}
