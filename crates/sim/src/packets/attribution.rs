//! Where the time of messages went.
//!
//! A message is whole when the last of its bytes is there. [`Parts`] is the way of the segment that
//! brought those: how long they waited to be sent, for the window or behind other messages of the
//! connection; how long for being sent again; in which queues the segment waited; and what wires
//! and links took. Together that is what the message took. Where guests wait for CPUs, parts of it are
//! what they did, and the driver domain.

use super::line::{TIERS, Tier};
use super::packet::Packet;
use tailbound_report::{Value, Variant};
use tailbound_units::Nanos;

/// How many parts there are.
pub(super) const PARTS: usize = SENDER_VCPU + 3;

/// Their names, those of [`Tier`]s first.
pub(super) const NAMES: [&str; PARTS] = [
    "host_queue",
    "edge_up",
    "aggregation_up",
    "core_down",
    "to_edge",
    "to_host",
    "wire",
    "window",
    "resending",
    "sender_vcpu",
    "ring",
    "receiver_vcpu",
];

const WIRE: usize = TIERS;
const WINDOW: usize = TIERS + 1;
const RESENDING: usize = TIERS + 2;
/// From here on they are what guests and driver domains take.
pub(super) const SENDER_VCPU: usize = TIERS + 3;
const RING: usize = TIERS + 4;
const RECEIVER_VCPU: usize = TIERS + 5;

/// Parts of a message's time, in nanoseconds, in the order of [`NAMES`]. None is longer than 4.29 s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parts(pub(super) [u32; PARTS]);

/// When what happened to the bytes that were the last to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// Their guest was to write them,
    pub(super) asked: Nanos,
    /// did,
    pub(super) written: Nanos,
    /// and sent them for the first time, if that is known;
    pub(super) first_sent: Nanos,
    /// they came.
    pub(super) came: Nanos,
    /// How long the connection stood still before they were sent, for want of an acknowledgement.
    pub(super) stalled: Nanos,
    /// How long they were in the host that they came to.
    pub(super) stay: Stay,
}

/// How long a packet was in the host that it came to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stay {
    /// Until it stood in the guest's ring,
    pub(super) ring: Nanos,
    /// and from then until the guest took it.
    pub(super) vcpu: Nanos,
}

impl Parts {
    /// Adds the way of a message by the packet that made it whole.
    pub(super) fn add(&mut self, way: &Way, packet: &Packet) {
        let flight = (way.came.0 as u32).wrapping_sub(packet.sent);
        let sent = way.came.since(Nanos(flight.into()));
        let first = way.first_sent.min(sent);
        let waited = first.since(way.written);
        let stalled = way.stalled.min(waited);
        let mut queued = 0;
        for (part, waited) in self.0.iter_mut().zip(packet.waited) {
            *part = part.saturating_add(waited);
            queued += waited;
        }
        let mut put = |part: usize, nanos: u64| {
            let nanos = u32::try_from(nanos).unwrap_or(u32::MAX);
            self.0[part] = self.0[part].saturating_add(nanos);
        };
        let stay = way.stay.ring.0 + way.stay.vcpu.0;
        put(
            WIRE,
            u64::from(flight.saturating_sub(queued)).saturating_sub(stay),
        );
        put(SENDER_VCPU, way.written.since(way.asked).0);
        put(RING, way.stay.ring.0);
        put(RECEIVER_VCPU, way.stay.vcpu.0);
        put(WINDOW, waited.since(stalled).0);
        put(RESENDING, sent.since(first).0 + stalled.0);
    }
}

/// A message that has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// Whose it was.
    pub(super) owner: u32,
    /// From which host to which,
    pub(super) hosts: (u32, u32),
    /// when it was written, its question if there was one,
    pub(super) begun: Nanos,
    /// and how long it was.
    pub(super) size: u64,
    /// Whether a timeout happened on its connection meanwhile.
    pub(super) timed_out: bool,
    pub(super) took: u64,
    pub(super) parts: Parts,
}

/// The mean of each part over the slowest of messages, in nanoseconds: this many in 10,000 of them,
/// one at least.
pub(super) fn of_slowest(records: &mut [Record], part: usize) -> [f64; PARTS] {
    let count = (records.len() * part / 10_000).max(1).min(records.len());
    let mut sums = [0.0; PARTS];
    if count == 0 {
        return sums;
    }
    let last = records.len() - count;
    records.select_nth_unstable_by_key(last, |it| it.took);
    for record in &records[last..] {
        for (sum, part) in sums.iter_mut().zip(record.parts.0) {
            *sum += f64::from(part);
        }
    }
    sums.map(|sum| sum / count as f64)
}

/// Where the time of the slowest of messages went.
pub(super) fn put_parts(variant: &mut Variant, whose: &str, records: &mut [Record], named: usize) {
    for (slowest, of) in [("slowest_1_percent", 100), ("slowest_0_1_percent", 10)] {
        let parts = of_slowest(records, of);
        for (name, part) in NAMES.iter().zip(parts).take(named) {
            let value = Value::new("ns", part);
            let name = format!("{whose}{slowest}_{name}");
            variant.values.insert(name, value);
        }
    }
}

const _: () = assert!(Tier::ToHost as usize + 1 == TIERS);
