//! Search for the flow with the most bytes in a sequence of frames.

use super::super::store::NIL;
use crate::Connection;
use tailbound_units::WireBytes;

/// Number of counted flows: a power of two, for the upper bits of a hash.
const FLOWS: usize = 256;

/// Number of entries that are probed for a flow. A flow without a free entry is not counted: it is
/// one of very many.
const PROBES: usize = 8;

/// One flow's bytes.
#[derive(Debug, Clone, Copy)]
struct Entry {
    connection: Connection,
    /// Zero in an unused entry.
    bytes: WireBytes,
    /// The line of its frames; [`NIL`] if none was in a line.
    line: u32,
    /// The place of its first frame, and the number of flows before it.
    place: u32,
    order: usize,
}

const UNUSED: Entry = Entry {
    connection: Connection(0),
    bytes: WireBytes::ZERO,
    line: NIL,
    place: NIL,
    order: 0,
};

/// A flow that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Largest {
    /// The line of its frames except the one that has a departure time; [`NIL`] without further
    /// frames.
    pub(super) line: u32,
    /// The place of its first frame.
    pub(super) place: u32,
}

/// Bytes by flow.
#[derive(Debug)]
pub(super) struct Tally {
    entries: Box<[Entry; FLOWS]>,
    known: usize,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            entries: Box::new([UNUSED; FLOWS]),
            known: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        if self.known > 0 {
            self.entries.fill(UNUSED);
            self.known = 0;
        }
    }

    /// Counts a frame of `wire` bytes at a place, which is in a line or has a departure time.
    pub(super) fn add(&mut self, connection: Connection, wire: WireBytes, line: u32, place: u32) {
        // The hash's upper bits, which are evenly distributed.
        let first = connection.0 as usize >> (32 - FLOWS.ilog2());
        for probe in 0..PROBES {
            let entry = &mut self.entries[(first + probe) % FLOWS];
            if entry.bytes == WireBytes::ZERO {
                *entry = Entry {
                    connection,
                    bytes: wire,
                    line,
                    place,
                    order: self.known,
                };
                self.known += 1;
                return;
            }
            if entry.connection == connection {
                entry.bytes += wire;
                if entry.line == NIL {
                    entry.line = line;
                }
                return;
            }
        }
    }

    /// Returns the flow with the most bytes, the first one among equals; never one of `partly`, a
    /// line that was not read to its end.
    pub(super) fn largest(&self, partly: u32) -> Option<Largest> {
        let known = self.entries.iter().filter(|entry| {
            let is_known = entry.bytes > WireBytes::ZERO;
            is_known && (entry.line == NIL || entry.line != partly)
        });
        let most = known.max_by_key(|entry| (entry.bytes, FLOWS - entry.order))?;
        Some(Largest {
            line: most.line,
            place: most.place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flow_with_the_most_bytes_is_found_and_the_first_of_equal_ones() {
        let mut tally = Tally::new();
        assert_eq!(tally.largest(NIL), None);
        // All begin at one entry; two fit no more.
        for flow in 0..10 {
            for _ in 0..=flow {
                tally.add(Connection(flow), WireBytes(100), 7, flow);
            }
        }
        tally.add(Connection(6), WireBytes(100), 7, 99);
        let largest = Largest { line: 7, place: 6 };
        assert_eq!(tally.largest(NIL), Some(largest));
        assert_eq!(tally.largest(7), None, "it was not counted to its end");
        tally.clear();
        tally.add(Connection(1), WireBytes(5), NIL, 3);
        tally.add(Connection(1), WireBytes(5), 2, 4);
        assert_eq!(tally.largest(NIL), Some(Largest { line: 2, place: 3 }));
    }
}
