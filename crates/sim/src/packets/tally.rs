//! What came of messages, and what happened beside.

use super::attribution::Record;
use super::judged::TenantsOutcome;
use super::tenants::Tenants;
use hdrhistogram::Histogram;
use tailbound_report::empty_histogram;
use tailbound_units::{Bytes, Nanos};

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
    /// Over UDP some are lost.
    pub(super) lost: u64,
    /// How long they took, by [`CLASSES`].
    pub(super) took: [Histogram<u64>; 4],
    /// Each of them.
    pub(super) records: Vec<Record>,
}

impl Tally {
    pub(super) fn new(from: Nanos, to: Nanos) -> Self {
        Self {
            from,
            to,
            begun: 0,
            ended: 0,
            lost: 0,
            took: std::array::from_fn(|_| empty_histogram()),
            records: Vec::new(),
        }
    }

    fn counts(&self, begun: Nanos) -> bool {
        (self.from..self.to).contains(&begun)
    }

    /// A message begins.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.begun += u64::from(self.counts(now));
    }

    /// Whether nothing is to be waited for.
    pub(super) const fn is_whole(&self) -> bool {
        self.begun == self.ended + self.lost
    }

    /// One will never be whole.
    pub(super) fn lose(&mut self, begun: Nanos) {
        self.lost += u64::from(self.counts(begun));
    }

    /// One is whole.
    pub(super) fn end(&mut self, record: Record) {
        if self.counts(record.begun) {
            self.ended += 1;
            let class = UP_TO.partition_point(|most| *most < record.size);
            self.took[class].saturating_record(record.took.max(1));
            self.records.push(record);
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
    /// Those that UDP has lost, of which something was missing 200 ms after they were written.
    pub lost: u64,
    /// What happened beside.
    pub totals: Totals,
    /// Those messages, with where their time went.
    pub(super) records: Vec<Record>,
    /// What came of tenants, if there were any.
    pub(super) tenants: Option<TenantsOutcome>,
    /// The names of talks, which own connections.
    pub(super) talks: Vec<String>,
    /// Whether there are hosts whose guests wait for CPUs.
    pub(super) waits: bool,
    /// Whether some of those acknowledge early.
    pub(super) snoops: bool,
    /// Whether messages may go over UDP.
    pub(super) may_lose: bool,
}

/// A message that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// When it was written; its question, if it was an answer.
    pub begun: Nanos,
    /// The host that sent it,
    pub from: u32,
    /// and the one that it came to.
    pub to: u32,
    /// How long it was.
    pub size: Bytes,
    /// Until its last byte was read.
    pub took: Nanos,
}

impl Outcome {
    /// The messages that count and have come, in the order in which they came.
    pub fn messages(&self) -> impl Iterator<Item = Told> {
        self.records.iter().map(|record| Told {
            begun: record.begun,
            from: record.hosts.0,
            to: record.hosts.1,
            size: Bytes(record.size),
            took: Nanos(record.took),
        })
    }

    /// That of no messages.
    pub(super) fn nothing(tenants: Option<&Tenants>, talks: Vec<String>) -> Self {
        Self {
            took: std::array::from_fn(|_| empty_histogram()),
            begun: 0,
            ended: 0,
            lost: 0,
            totals: Totals::default(),
            records: Vec::new(),
            tenants: tenants.map(TenantsOutcome::nothing),
            talks,
            waits: false,
            snoops: false,
            may_lose: false,
        }
    }

    /// Adds what came of another run.
    pub(super) fn add(&mut self, other: Self) {
        for (took, other) in self.took.iter_mut().zip(&other.took) {
            // Both have the same bounds.
            let _ = took.add(other);
        }
        self.begun += other.begun;
        self.ended += other.ended;
        self.lost += other.lost;
        self.totals.add(&other.totals);
        self.records.extend(other.records);
        if let (Some(tenants), Some(other)) = (&mut self.tenants, &other.tenants) {
            tenants.add(other);
        }
    }
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
    /// Segments that hosts acknowledged before their guests did.
    pub early: u64,
    /// The most bytes that waited at one port of a switch.
    pub peak: u64,
    /// Bytes that hosts have put on their links,
    pub sent: u64,
    /// in this time.
    pub end: Nanos,
    /// The most frames that waited or were on links, of all moments that were looked at (every
    /// millisecond).
    pub flying: u64,
    /// Memory that queues and links had allocated then, in bytes.
    pub memory: u64,
    /// Connections that there was memory for at the end.
    pub connections: u64,
}

impl Totals {
    /// Adds those of another run.
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.dropped += other.dropped;
        self.marked += other.marked;
        self.resent += other.resent;
        self.timeouts += other.timeouts;
        self.early += other.early;
        self.peak = self.peak.max(other.peak);
        self.sent += other.sent;
        self.end += other.end;
        self.flying = self.flying.max(other.flying);
        self.memory += other.memory;
        self.connections += other.connections;
    }
}
