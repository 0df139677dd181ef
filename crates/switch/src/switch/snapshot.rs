//! What the switch has counted, as plain data: made on the packet loop's thread, a few
//! guests a turn, and read by the thread that serves metrics.

use super::guest::GuestPort;
use super::limited::LimitSnapshot;
use super::snoop::SnoopSnapshot;
use super::state::PortState;
use super::uplink::Uplink;
use super::{Ports, Switch};
use crate::port::Presence;
use crate::reason::Reason;
use tailbound_dataplane::pacer::GuestStats;
use tailbound_dataplane::{
    Backlog, EgressStats, Guarantee, GuestId, Inward, InwardStats, MeterStats, PacedPipeline,
    Pacer, PacerStats, Packet, ShaperStats,
};
use tailbound_metrics::Histogram;
use tailbound_units::{Bytes, Nanos};

/// Everything that is counted.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The uplink; `None` where there is none.
    pub uplink: Option<UplinkSnapshot>,
    /// The guests, in the order of their ports.
    pub guests: Vec<GuestSnapshot>,
    /// MAC addresses in the forwarding table that were learned: the guests' own are
    /// not.
    pub fdb_entries: usize,
    /// How often guarantees were refused by the pacer.
    pub refusals: u64,
}

impl Snapshot {
    /// All ports in their order.
    pub fn ports(&self) -> impl Iterator<Item = &PortSnapshot> {
        let uplink = self.uplink.iter().map(|uplink| &uplink.port);
        uplink.chain(self.guests.iter().map(|guest| &guest.port))
    }
}

/// What is counted of the uplink.
#[derive(Debug, Clone)]
pub struct UplinkSnapshot {
    /// As of every port.
    pub port: PortSnapshot,
    /// What its pacer has done; `None` where it is not paced.
    pub pacing: Option<UplinkPacing>,
}

/// What is counted of a guest.
#[derive(Debug, Clone)]
pub struct GuestSnapshot {
    /// Its number.
    pub id: GuestId,
    /// As of every port.
    pub port: PortSnapshot,
    /// Its port is not read, as it is drained.
    pub drained: bool,
    /// What is counted of its limit; `None` where it has none.
    pub limit: Option<LimitSnapshot>,
    /// How long its packets waited, by direction and class.
    pub sojourns: Vec<Sojourn>,
    /// What came for it in the guaranteed class, by whether it conformed; `None` where
    /// nobody said what its senders are guaranteed.
    pub inward: Option<InwardStats>,
    /// What the pacer of the uplink does with its frames; `None` where that is not
    /// paced.
    pub pacing: Option<GuestPacing>,
    /// What early acknowledgement does for it; `None` where that is nothing.
    pub snoop: Option<SnoopSnapshot>,
}

/// How it is with a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Link {
    /// Its interface is there, or its guest uses its card.
    Up,
    /// Its card is there, and its guest is on another host or nowhere.
    Away,
    /// Its interface is missing.
    #[default]
    Down,
}

/// What is counted of one port.
#[derive(Debug, Clone, Default)]
pub struct PortSnapshot {
    /// The guest's name, or `uplink`.
    pub name: String,
    /// Whether anything can be sent to it.
    pub link: Link,
    /// Frames and bytes received from the port.
    pub received: (u64, u64),
    /// Frames and bytes sent to the port.
    pub sent: (u64, u64),
    /// Frames dropped, by reason, where there were any: by the port they came
    /// from if they were not let in, by the one they went to otherwise.
    pub drops: Vec<(&'static str, u64)>,
    /// Frames that wait to be sent to the port.
    pub backlog_packets: usize,
    /// Their bytes in the software queue.
    pub backlog_bytes: Bytes,
    /// Packets that were cut on their way to the port.
    pub segmented: u64,
    /// Packets that were marked (ECN) on their way to the port.
    pub marked: u64,
    /// The part of a guest's memory that is charged to this process.
    pub borrowed: Bytes,
    /// What the meter before the port has done.
    pub meter: MeterStats,
}

/// What a pacer has done.
#[derive(Debug, Clone)]
pub struct UplinkPacing {
    /// Its own counters.
    pub stats: PacerStats,
    /// Voids sent to the port, and the bytes of the wire that they took.
    pub voids: (u64, u64),
    /// The most that a frame was handed over after its departure time.
    pub max_lateness: Nanos,
    /// How late it was asked for what is due.
    pub lateness: Histogram,
}

/// What a pacer does with one guest's frames.
#[derive(Debug, Clone, Copy)]
pub struct GuestPacing {
    /// What they are held to; `None`: best effort.
    pub guarantee: Option<Guarantee>,
    /// Another guarantee is wanted, and breaks a rule.
    pub refused: bool,
    /// The pacer's counters.
    pub stats: GuestStats,
    /// How many of its flows are elastic now.
    pub elastic_flows: usize,
    /// Its port is left unread, as its guarantee is what its frames wait for.
    pub unread: bool,
    /// The memory that its frames hold in the pacer.
    pub held: Bytes,
}

/// How long a guest's packets waited.
#[derive(Debug, Clone)]
pub struct Sojourn {
    /// `sent` by the guest, or `received` by it from outside, or from a guest here that is
    /// guaranteed something.
    pub direction: &'static str,
    /// `guaranteed`, `small` or `lowest`.
    pub class: &'static str,
    /// The times.
    pub histogram: Histogram,
}

/// A snapshot of which some guests are copied. It is of no use after a reload.
#[derive(Debug, Default)]
pub struct PartialSnapshot(Vec<GuestSnapshot>);

impl Switch {
    /// Everything that is counted, as of now.
    pub fn snapshot(&mut self, ports: &mut Ports) -> Snapshot {
        let mut partial = PartialSnapshot::default();
        loop {
            if let Some(snapshot) = self.continue_snapshot(ports, &mut partial, usize::MAX) {
                return snapshot;
            }
        }
    }

    /// Copies what is counted of at most so many more guests. Once those of all are
    /// copied, returns everything. What is counted of one port is of one moment.
    pub fn continue_snapshot(
        &mut self,
        ports: &mut Ports,
        partial: &mut PartialSnapshot,
        guests: usize,
    ) -> Option<Snapshot> {
        let first = self.first_guest();
        let copied = &mut partial.0;
        copied.reserve_exact(self.guests.len().saturating_sub(copied.len()));
        let end = self.guests.len().min(copied.len().saturating_add(guests));
        for guest in copied.len()..end {
            let link = self.count_overruns(first + guest, ports);
            let paced = self.uplink.as_ref();
            let paced = paced.and_then(|uplink| uplink.egress.paced());
            let state = &self.states[first + guest];
            copied.push(self.guests[guest].snapshot(self.now, state, link, paced));
        }
        if end < self.guests.len() {
            return None;
        }
        let link = self.uplink.is_some().then(|| self.count_overruns(0, ports));
        let uplink = self.uplink.as_ref().zip(link);
        Some(Snapshot {
            uplink: uplink.map(|(uplink, link)| uplink.snapshot(&self.states[0], link)),
            guests: std::mem::take(copied),
            fdb_entries: self.forwarding.entries(),
            refusals: self.refusals,
        })
    }

    /// Counts the frames that a port lost before they were received, and what it has of its
    /// guest's memory; returns how it is with it.
    fn count_overruns(&mut self, index: usize, ports: &mut Ports) -> Link {
        let Some(port) = &mut ports[index] else {
            return Link::Down;
        };
        let overruns = port.take_overruns();
        self.states[index].counters.drop(Reason::Overrun, overruns);
        self.states[index].borrowed = port.borrowed();
        match port.presence() {
            Presence::Here(_) => Link::Up,
            Presence::Away => Link::Away,
        }
    }
}

impl PortState {
    /// What is counted of a port behind an egress that did `stats`, where so many
    /// frames wait; `by_pacer` are its pacer's own drops.
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
            backlog_packets: waiting + self.outgoing.len(),
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
        let pacing = self.egress.paced().map(|paced| {
            let pacer = paced.pacer().stats();
            UplinkPacing {
                stats: pacer,
                voids: (state.counters.voids.packets, state.counters.voids.bytes),
                max_lateness: paced.wire().link.time_for(pacer.max_lateness.into()),
                lateness: self.lateness.clone(),
            }
        });
        let by_pacer = pacing.as_ref().map(|pacing| pacing.stats.drops.by_reason());
        let by_pacer = by_pacer.as_ref().map_or(&[][..], |drops| drops);
        UplinkSnapshot {
            port: state.snapshot(link, self.egress.stats(), self.egress.waiting(), by_pacer),
            pacing,
        }
    }
}

impl GuestPort {
    /// What is counted of the guest; `uplink` is what paces its frames, if anything
    /// does.
    fn snapshot(
        &self,
        now: Nanos,
        state: &PortState,
        link: Link,
        uplink: Option<&PacedPipeline<Packet>>,
    ) -> GuestSnapshot {
        let sojourns = [("sent", &self.sent), ("received", &self.received)];
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

    /// What is counted of its limit, where it has one.
    fn limit_snapshot(&self, now: Nanos, pacer: Option<&Pacer<Packet>>) -> Option<LimitSnapshot> {
        if let Some(limited) = &self.limited {
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
            refused: self.refusal.is_some(),
            stats,
            elastic_flows: uplink.pacer().elastic_flows(self.id),
            unread: self.ingress.is_crowded(),
            held: uplink.pacer().memory_of(self.id),
        }
    }
}
