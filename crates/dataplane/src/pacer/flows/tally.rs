//! Search for the flow with the most bytes in a sequence of frames.

use super::super::index::{FrameIndex, LineIndex};
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
    /// The line of its frames; `NONE` if none was in a line.
    line: LineIndex,
    /// The place of its first frame, and the number of flows before it.
    place: FrameIndex,
    order: usize,
}

const UNUSED: Entry = Entry {
    connection: Connection(0),
    bytes: WireBytes::ZERO,
    line: LineIndex::NONE,
    place: FrameIndex::NONE,
    order: 0,
};

/// A flow that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pacer) struct Largest {
    /// The line of its frames except the one that has a departure time; `NONE` without further
    /// frames.
    pub(in crate::pacer) line: LineIndex,
    /// The place of its first frame.
    pub(in crate::pacer) place: FrameIndex,
}

/// Bytes by flow.
#[derive(Debug)]
pub(in crate::pacer) struct Tally {
    entries: Box<[Entry; FLOWS]>,
    known: usize,
}

impl Tally {
    pub(in crate::pacer) fn new() -> Self {
        Self {
            entries: Box::new([UNUSED; FLOWS]),
            known: 0,
        }
    }

    pub(in crate::pacer) fn clear(&mut self) {
        if self.known > 0 {
            self.entries.fill(UNUSED);
            self.known = 0;
        }
    }

    /// Counts a frame of `wire` bytes at a place, which is in a line or has a departure time.
    pub(in crate::pacer) fn add(
        &mut self,
        connection: Connection,
        wire: WireBytes,
        line: LineIndex,
        place: FrameIndex,
    ) {
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
                if entry.line.is_none() {
                    entry.line = line;
                }
                return;
            }
        }
    }

    /// Returns the flow with the most bytes, the first one among equals; never one of `partly`, a
    /// line that was not read to its end.
    pub(in crate::pacer) fn largest(&self, partly: LineIndex) -> Option<Largest> {
        let known = self.entries.iter().filter(|entry| {
            let is_known = entry.bytes > WireBytes::ZERO;
            is_known && (entry.line.is_none() || entry.line != partly)
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
        let line = LineIndex::new(7);
        let frame = |number: u32| FrameIndex::new(number as usize);
        assert_eq!(tally.largest(LineIndex::NONE), None);
        // All begin at one entry; two fit no more.
        for flow in 0..10 {
            for _ in 0..=flow {
                tally.add(Connection(flow), WireBytes(100), line, frame(flow));
            }
        }
        tally.add(Connection(6), WireBytes(100), line, frame(99));
        let largest = Largest {
            line,
            place: frame(6),
        };
        assert_eq!(tally.largest(LineIndex::NONE), Some(largest));
        assert_eq!(tally.largest(line), None, "it was not counted to its end");
        tally.clear();
        tally.add(Connection(1), WireBytes(5), LineIndex::NONE, frame(3));
        let line = LineIndex::new(2);
        tally.add(Connection(1), WireBytes(5), line, frame(4));
        assert_eq!(
            tally.largest(LineIndex::NONE),
            Some(Largest {
                line,
                place: frame(3),
            })
        );
    }
}
