//! What came of messages, and what happened beside.

use hdrhistogram::Histogram;
use tailbound_report::empty_histogram;
use tailbound_units::Nanos;

/// Up to how many bytes the messages of each class are; the last class has no end.
pub(super) const UP_TO: [u64; 3] = [10_000, 100_000, 10_000_000];
/// The names of the classes.
pub(super) const CLASSES: [&str; 4] = ["to_10KB", "to_100KB", "to_10MB", "longer"];
/// Messages that have come.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    /// Those that begin in between count.
    from: Nanos,
    to: Nanos,
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// How long they took, by [`CLASSES`].
    pub(super) took: [Histogram<u64>; 4],
}

impl Tally {
    pub(super) fn new(from: Nanos, to: Nanos) -> Self {
        Self {
            from,
            to,
            begun: 0,
            ended: 0,
            took: std::array::from_fn(|_| empty_histogram()),
        }
    }

    fn counts(&self, begun: Nanos) -> bool {
        (self.from..self.to).contains(&begun)
    }

    /// A message begins.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.begun += u64::from(self.counts(now));
    }

    /// One that began then is whole.
    pub(super) fn end(&mut self, now: Nanos, begun: Nanos, size: u64) {
        if self.counts(begun) {
            self.ended += 1;
            let class = UP_TO.partition_point(|most| *most < size);
            self.took[class].saturating_record(now.since(begun).0.max(1));
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How long messages took, by length: up to 10 KB, 100 KB, 10 MB, and longer.
    pub took: [Histogram<u64>; 4],
    /// Messages that began while they counted,
    pub begun: u64,
    /// and those of them that came before the end.
    pub ended: u64,
    /// What happened beside.
    pub totals: Totals,
}

/// Counts of a whole run, its beginning and its end included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames whose transmission over a link ended.
    pub packets: u64,
    /// Frames that were lost for want of room.
    pub dropped: u64,
    /// Frames that were marked.
    pub marked: u64,
    /// Segments that were sent again,
    pub resent: u64,
    /// and timeouts.
    pub timeouts: u64,
    /// The most bytes that waited at one port of a switch.
    pub peak: u64,
    /// Bytes that hosts have put on their links,
    pub sent: u64,
    /// until this moment.
    pub end: Nanos,
    /// The most frames that waited or were on links, of all moments that were looked at (every
    /// millisecond).
    pub flying: u64,
    /// Memory of queues and links, as it is allocated at the end, in bytes.
    pub memory: u64,
}
