//! Attribution of messages' times to queues, windows, retransmission, wires and CPUs.
//!
//! A message is complete when its last bytes are read. [`Parts`] is the path of the segment that
//! delivered these bytes: the time until they were sent, for the window or behind other messages of
//! the connection; the time for retransmission; the time of the segment in each queue; and the time
//! on wires and links. The sum is the time of the message. If guests wait for CPUs, the times of
//! vCPUs and of the driver domain are parts, too.

use super::line::{TIERS, Tier};
use super::packet::Packet;
use tailbound_report::{Value, Variant};
use tailbound_units::Nanos;

/// Number of parts.
pub(super) const PARTS: usize = SENDER_VCPU + 3;

/// Names of the parts, those of [`Tier`]s first.
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
/// First part of the time that guests and driver domains take.
pub(super) const SENDER_VCPU: usize = TIERS + 3;
const RING: usize = TIERS + 4;
const RECEIVER_VCPU: usize = TIERS + 5;

/// Parts of a message's time, in nanoseconds, in the order of [`NAMES`]. None is longer than 4.29
/// s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parts(pub(super) [u32; PARTS]);

/// Times of the bytes that arrived last.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketTimes {
    /// Time at which the guest was due to write them.
    pub(super) asked: Nanos,
    /// Time at which the guest wrote them.
    pub(super) written: Nanos,
    /// Time of their first transmission, if known.
    pub(super) first_sent: Nanos,
    /// Time at which they were read.
    pub(super) came: Nanos,
    /// Time for which the connection stalled before they were sent, because an acknowledgement was
    /// missing.
    pub(super) stalled: Nanos,
    /// Time in the receiving host.
    pub(super) stay: Stay,
}

/// Time of a packet in the receiving host.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stay {
    /// Time until the packet was in the guest's ring.
    pub(super) ring: Nanos,
    /// Time from then until the guest read it.
    pub(super) vcpu: Nanos,
}

impl Parts {
    /// Adds the path of a message by the packet that completed it.
    pub(super) fn add(&mut self, times: &PacketTimes, packet: &Packet) {
        let flight = (times.came.0 as u32).wrapping_sub(packet.sent);
        let sent = times.came.since(Nanos(flight.into()));
        let first = times.first_sent.min(sent);
        let waited = first.since(times.written);
        let stalled = times.stalled.min(waited);
        let mut queued = 0;
        for (part, waited) in self.0.iter_mut().zip(packet.waited) {
            *part = part.saturating_add(waited);
            queued += waited;
        }
        let mut put = |part: usize, nanos: u64| {
            let nanos = u32::try_from(nanos).unwrap_or(u32::MAX);
            self.0[part] = self.0[part].saturating_add(nanos);
        };
        let stay = times.stay.ring.0 + times.stay.vcpu.0;
        put(
            WIRE,
            u64::from(flight.saturating_sub(queued)).saturating_sub(stay),
        );
        put(SENDER_VCPU, times.written.since(times.asked).0);
        put(RING, times.stay.ring.0);
        put(RECEIVER_VCPU, times.stay.vcpu.0);
        put(WINDOW, waited.since(stalled).0);
        put(RESENDING, sent.since(first).0 + stalled.0);
    }
}

/// A message that was received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// Owner: a tenant or a talk.
    pub(super) owner: u32,
    /// Sending and receiving host.
    pub(super) hosts: (u32, u32),
    /// Time at which the message was written; for an answer, its question.
    pub(super) begun: Nanos,
    /// Length, in bytes.
    pub(super) size: u64,
    /// True if a timeout happened on its connection meanwhile.
    pub(super) timed_out: bool,
    pub(super) took: u64,
    pub(super) parts: Parts,
}

/// Returns the mean of each part over the slowest messages, in nanoseconds: this many in 10,000 of
/// them, one at least.
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

/// Adds the parts of the slowest messages to the figures of a variant.
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
