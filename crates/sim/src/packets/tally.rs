//! Outcome of a run: times of messages, and counters.

use super::attribution::Record;
use super::judged::TenantsOutcome;
use super::tenants::Tenants;
use hdrhistogram::Histogram;
use tailbound_report::empty_histogram;
use tailbound_units::{Bytes, Nanos};

/// Longest messages of each class, in bytes; the last class is unlimited.
pub(super) const UP_TO: [u64; 3] = [10_000, 100_000, 10_000_000];
/// Names of the classes.
pub(super) const CLASSES: [&str; 4] = ["to_10KB", "to_100KB", "to_10MB", "longer"];
/// Messages that were received.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    /// Messages that begin in this interval count.
    from: Nanos,
    to: Nanos,
    pub(super) begun: u64,
    pub(super) ended: u64,
    /// Number of messages that were lost over UDP.
    pub(super) lost: u64,
    /// Times of messages, by [`CLASSES`].
    pub(super) took: [Histogram<u64>; 4],
    /// All messages that count.
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

    /// Records the begin of a message.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.begun += u64::from(self.counts(now));
    }

    /// True if no message is incomplete.
    pub(super) const fn is_whole(&self) -> bool {
        self.begun == self.ended + self.lost
    }

    /// Records a message that will never be complete.
    pub(super) fn lose(&mut self, begun: Nanos) {
        self.lost += u64::from(self.counts(begun));
    }

    /// Records a complete message.
    pub(super) fn end(&mut self, record: Record) {
        if self.counts(record.begun) {
            self.ended += 1;
            let class = UP_TO.partition_point(|most| *most < record.size);
            self.took[class].saturating_record(record.took.max(1));
            self.records.push(record);
        }
    }
}

/// Outcome of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Times of messages, by length: up to 10 KB, 100 KB, 10 MB, and longer.
    pub took: [Histogram<u64>; 4],
    /// Number of messages that began while messages counted.
    pub begun: u64,
    /// Number of these that were received before the end.
    pub ended: u64,
    /// Number of messages that were lost over UDP: incomplete 200 ms after they were written.
    pub lost: u64,
    /// Counters of the whole run.
    pub totals: Totals,
    /// The received messages, with the parts of their time.
    pub(super) records: Vec<Record>,
    /// Outcome of tenants, if there were any.
    pub(super) tenants: Option<TenantsOutcome>,
    /// Names of talks, which own connections.
    pub(super) talks: Vec<String>,
    /// True if some hosts have guests that wait for CPUs.
    pub(super) waits: bool,
    /// True if some of these hosts acknowledge early.
    pub(super) snoops: bool,
    /// True if messages may use UDP.
    pub(super) may_lose: bool,
}

/// A message that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Time at which it was written; for an answer, its question.
    pub begun: Nanos,
    /// The sending host.
    pub from: u32,
    /// The receiving host.
    pub to: u32,
    /// Length of the message.
    pub size: Bytes,
    /// Time until its last byte was read.
    pub took: Nanos,
}

impl Outcome {
    /// Iterates over the received messages that count, in the order of their completion.
    pub fn messages(&self) -> impl Iterator<Item = ReceivedMessage> {
        self.records.iter().map(|record| ReceivedMessage {
            begun: record.begun,
            from: record.hosts.0,
            to: record.hosts.1,
            size: Bytes(record.size),
            took: Nanos(record.took),
        })
    }

    /// Returns an outcome without messages.
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

    /// Adds the outcome of another run.
    pub(super) fn add(&mut self, other: Self) {
        for (took, other) in self.took.iter_mut().zip(&other.took) {
            // Both histograms have the same bounds.
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

/// Counters of a whole run, its warm-up and its end included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of frames that were transmitted over a link.
    pub packets: u64,
    /// Number of frames that were dropped because a buffer was full.
    pub dropped: u64,
    /// Number of frames that were marked.
    pub marked: u64,
    /// Number of segments that were retransmitted.
    pub resent: u64,
    /// Number of timeouts.
    pub timeouts: u64,
    /// Number of segments that hosts acknowledged before their guests did.
    pub early: u64,
    /// Longest queue at a port of a switch, in bytes.
    pub peak: u64,
    /// Number of bytes that hosts put on their links.
    pub sent: u64,
    /// Duration of the run.
    pub end: Nanos,
    /// Largest number of frames in queues or on links, sampled every millisecond.
    pub flying: u64,
    /// Memory that queues and links had allocated at that time, in bytes.
    pub memory: u64,
    /// Number of connections that had memory at the end.
    pub connections: u64,
}

impl Totals {
    /// Adds the counters of another run.
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
