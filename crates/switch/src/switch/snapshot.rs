//! Counters of the switch, as plain data: copied on the packet loop's thread, a few guests per
//! turn, and read by the thread that serves metrics.

use super::guest::GuestPort;
use super::limited::LimitSnapshot;
use super::snoop::SnoopSnapshot;
use super::state::PortState;
use super::table::PortTable;
use super::uplink::Uplink;
use super::{Ports, Switch};
use crate::index::{GuestIndex, PortIndex};
use crate::port::Presence;
use crate::reason::Reason;
use tailbound_dataplane::pacer::GuestStats;
use tailbound_dataplane::{
    Backlog, EgressStats, Guarantee, GuestId, Inward, InwardStats, MeterStats, PacedPipeline,
    Pacer, PacerStats, Packet, ShaperStats,
};
use tailbound_metrics::Histogram;
use tailbound_units::{Bytes, Nanos};

/// All counters.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The uplink; `None` if there is none.
    pub uplink: Option<UplinkSnapshot>,
    /// The guests, in the order of their ports.
    pub guests: Vec<GuestSnapshot>,
    /// The number of learned MAC addresses in the forwarding table, without the guests' own.
    pub fdb_entries: usize,
    /// The number of guarantees that the pacer refused.
    pub refusals: u64,
}

impl Snapshot {
    /// Returns all ports in their order.
    pub fn ports(&self) -> impl Iterator<Item = &PortSnapshot> {
        let uplink = self.uplink.iter().map(|uplink| &uplink.port);
        uplink.chain(self.guests.iter().map(|guest| &guest.port))
    }
}

/// Counters of the uplink.
#[derive(Debug, Clone)]
pub struct UplinkSnapshot {
    /// The counters of every port.
    pub port: PortSnapshot,
    /// The counters of the pacer; `None` if the uplink is not paced.
    pub pacing: Option<UplinkPacing>,
}

/// Counters of a guest.
#[derive(Debug, Clone)]
pub struct GuestSnapshot {
    /// The guest's number.
    pub id: GuestId,
    /// The counters of every port.
    pub port: PortSnapshot,
    /// True if the guest's port is unread because it is drained.
    pub drained: bool,
    /// The counters of the guest's limit; `None` if it has none.
    pub limit: Option<LimitSnapshot>,
    /// Waiting times of the guest's packets, by direction and class.
    pub sojourns: Vec<Sojourn>,
    /// Traffic to the guest in the guaranteed class, by its conformance; `None` if the senders'
    /// guarantees are unknown.
    pub inward: Option<InwardStats>,
    /// The uplink's pacer for the guest's frames; `None` if the uplink is not paced.
    pub pacing: Option<GuestPacing>,
    /// The guest's early acknowledgement; `None` if it is disabled.
    pub snoop: Option<SnoopSnapshot>,
}

/// State of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Link {
    /// The interface is there, or the guest uses its card.
    Up,
    /// The card is there, but its guest is on another host or not running.
    Away,
    /// The interface is missing.
    #[default]
    Down,
}

/// Counters of one port.
#[derive(Debug, Clone, Default)]
pub struct PortSnapshot {
    /// The guest's name, or `uplink`.
    pub name: String,
    /// The state of the port.
    pub link: Link,
    /// Frames and bytes received from the port.
    pub received: (u64, u64),
    /// Frames and bytes sent to the port.
    pub sent: (u64, u64),
    /// Frames dropped, by reason; only reasons that occurred. A frame that was not admitted is
    /// counted by the port it came from, others by the port they went to.
    pub drops: Vec<(&'static str, u64)>,
    /// Frames queued for the port.
    pub backlog_packets: usize,
    /// The bytes of these frames in the software queue.
    pub backlog_bytes: Bytes,
    /// Packets that were segmented on their way to the port.
    pub segmented: u64,
    /// Packets that were marked (ECN) on their way to the port.
    pub marked: u64,
    /// The part of a guest's memory that is charged to this process.
    pub borrowed: Bytes,
    /// The counters of the meter in front of the port.
    pub meter: MeterStats,
}

/// Counters of a pacer.
#[derive(Debug, Clone)]
pub struct UplinkPacing {
    /// The pacer's own counters.
    pub stats: PacerStats,
    /// Voids sent to the port, and their bytes on the wire.
    pub voids: (u64, u64),
    /// The longest time by which a frame was handed over after its departure time.
    pub max_lateness: Nanos,
    /// Lateness of the calls for due frames.
    pub lateness: Histogram,
}

/// Counters of a pacer for one guest.
#[derive(Debug, Clone, Copy)]
pub struct GuestPacing {
    /// The guarantee in force; `None`: best effort.
    pub guarantee: Option<Guarantee>,
    /// True if another guarantee is configured, and breaks a rule.
    pub refused: bool,
    /// The pacer's counters.
    pub stats: GuestStats,
    /// The number of the guest's elastic flows at present.
    pub elastic_flows: usize,
    /// True if the guest's port is unread because its frames wait for its guarantee.
    pub unread: bool,
    /// The memory of the guest's frames in the pacer.
    pub held: Bytes,
}

/// Waiting times of a guest's packets.
#[derive(Debug, Clone)]
pub struct Sojourn {
    /// `sent` by the guest, or `received` by it from outside, or from a guaranteed guest here.
    pub direction: &'static str,
    /// `guaranteed`, `small` or `lowest`.
    pub class: &'static str,
    /// The times.
    pub histogram: Histogram,
}

/// A snapshot with the copies of some guests. It is unusable after a reload.
#[derive(Debug, Default)]
pub struct PartialSnapshot(Vec<GuestSnapshot>);

impl Switch {
    /// Returns all counters.
    pub fn snapshot(&mut self, ports: &mut Ports) -> Snapshot {
        let mut partial = PartialSnapshot::default();
        loop {
            if let Some(snapshot) = self.continue_snapshot(ports, &mut partial, usize::MAX) {
                return snapshot;
            }
        }
    }

    /// Copies the counters of at most `guests` more guests. Once all guests are copied, returns
    /// everything. The counters of one port belong to one moment.
    pub fn continue_snapshot(
        &mut self,
        ports: &mut Ports,
        partial: &mut PartialSnapshot,
        guests: usize,
    ) -> Option<Snapshot> {
        let copied = &mut partial.0;
        copied.reserve_exact(self.parts.table.guest_count().saturating_sub(copied.len()));
        let end = self
            .parts
            .table
            .guest_count()
            .min(copied.len().saturating_add(guests));
        for guest in (copied.len()..end).map(GuestIndex::new) {
            let port = self.parts.table.port_at(guest);
            let link = count_overruns(&mut self.parts.table, port, ports);
            let paced = self.parts.transmitter.paced();
            let state = &self.parts.table[port];
            copied.push(self.parts.table[guest].snapshot(self.parts.now, state, link, paced));
        }
        if end < self.parts.table.guest_count() {
            return None;
        }
        let port = self.parts.table.uplink();
        let link = port.map(|port| count_overruns(&mut self.parts.table, port, ports));
        let uplink = self
            .parts
            .transmitter
            .uplink()
            .zip(self.parts.table.uplink_state())
            .zip(link);
        Some(Snapshot {
            uplink: uplink.map(|((uplink, state), link)| uplink.snapshot(state, link)),
            guests: std::mem::take(copied),
            fdb_entries: self.parts.forwarding.entries(),
            refusals: self.parts.refusals,
        })
    }
}

/// Updates the number of frames that a port lost before they were received, and the part of its
/// guest's memory; returns the state of the port.
fn count_overruns(table: &mut PortTable, index: PortIndex, ports: &mut Ports) -> Link {
    let Some(port) = &mut ports[index.0] else {
        return Link::Down;
    };
    let overruns = port.take_overruns();
    table[index].counters.drop(Reason::Overrun, overruns);
    table[index].borrowed = port.borrowed();
    match port.presence() {
        Presence::Here(_) => Link::Up,
        Presence::Away => Link::Away,
    }
}

impl PortState {
    /// Returns the counters of a port behind an egress with `stats`, in which `waiting` frames are
    /// queued; `by_pacer` are its pacer's own drops.
    fn snapshot(
        &self,
        link: Link,
        stats: EgressStats,
        waiting: usize,
        by_pacer: &[(&'static str, u64)],
    ) -> PortSnapshot {
        let by_queue = stats.queue.drops.by_reason();
        let drops = self.counters.drops().chain(by_queue);
        PortSnapshot {
            name: self.name.clone(),
            link,
            received: (self.counters.received.packets, self.counters.received.bytes),
            sent: (self.counters.sent.packets, self.counters.sent.bytes),
            drops: drops
                .chain(by_pacer.iter().copied())
                .filter(|(_, count)| *count > 0)
                .collect(),
            backlog_packets: waiting + self.outbound.frames.len(),
            backlog_bytes: stats.backlog.bytes,
            segmented: stats.segmented,
            marked: stats.queue.marked + stats.queue.marked_scalable,
            meter: stats.meter,
            borrowed: Bytes(self.borrowed),
        }
    }
}

impl Uplink {
    fn snapshot(&self, state: &PortState, link: Link) -> UplinkSnapshot {
        let pacing = self.egress().paced().map(|paced| {
            let pacer = paced.pacer().stats();
            UplinkPacing {
                stats: pacer,
                voids: (state.counters.voids.packets, state.counters.voids.bytes),
                max_lateness: paced.wire().link.time_for(pacer.max_lateness.into()),
                lateness: self.lateness().clone(),
            }
        });
        let by_pacer = pacing.as_ref().map(|pacing| pacing.stats.drops.by_reason());
        let by_pacer = by_pacer.as_ref().map_or(&[][..], |drops| drops);
        UplinkSnapshot {
            port: state.snapshot(
                link,
                self.egress().stats(),
                self.egress().waiting(),
                by_pacer,
            ),
            pacing,
        }
    }
}

impl GuestPort {
    /// Returns the counters of the guest; `uplink` is the pacer of its frames, if there is one.
    fn snapshot(
        &self,
        now: Nanos,
        state: &PortState,
        link: Link,
        uplink: Option<&PacedPipeline<Packet>>,
    ) -> GuestSnapshot {
        let sojourns = [
            ("sent", &self.waits.sent),
            ("received", &self.waits.received),
        ];
        let sojourns = sojourns.into_iter().flat_map(|(direction, waits)| {
            waits.by_class().map(move |(class, histogram)| Sojourn {
                direction,
                class: class.word(),
                histogram: histogram.clone(),
            })
        });
        let egress = self.pipeline.egress_stats();
        let waiting = egress.backlog.packets;
        GuestSnapshot {
            id: self.id,
            port: state.snapshot(link, egress, waiting, &[]),
            drained: self.ingress.is_drained(),
            limit: self.limit_snapshot(now, uplink.map(PacedPipeline::pacer)),
            sojourns: sojourns.collect(),
            inward: self.inward.as_ref().map(Inward::stats),
            pacing: uplink.map(|uplink| self.pacing(uplink)),
            snoop: self.snoop_snapshot(),
        }
    }

    /// Returns the counters of the guest's limit, if it has one.
    fn limit_snapshot(&self, now: Nanos, pacer: Option<&Pacer<Packet>>) -> Option<LimitSnapshot> {
        if let Some(limited) = &self.limit.shaper {
            return Some(limited.snapshot(now, self.ingress.is_limited()));
        }
        let cap = pacer?.cap(self.id)?;
        Some(LimitSnapshot {
            rate: cap.limit.rate,
            stats: ShaperStats {
                sent: cap.sent,
                ..ShaperStats::default()
            },
            backlog: Backlog {
                memory: cap.held,
                ..Backlog::default()
            },
            window: None,
            unread: false,
            waits: Histogram::default(),
        })
    }

    fn pacing(&self, uplink: &PacedPipeline<Packet>) -> GuestPacing {
        let stats = uplink.pacer().guest_stats(self.id).unwrap_or_default();
        GuestPacing {
            guarantee: uplink.pacer().guarantee(self.id).copied(),
            refused: self.promise.refusal.is_some(),
            stats,
            elastic_flows: uplink.pacer().elastic_flows(self.id),
            unread: self.ingress.is_crowded(),
            held: uplink.pacer().memory_of(self.id),
        }
    }
}
