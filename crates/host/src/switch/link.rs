//! What the switch knows of one port.

use super::snapshot::{LinkSnapshot, Sojourn};
use crate::guard::Guard;
use crate::histogram::Histogram;
use crate::mac::Mac;
use crate::port::{BURST, Outgoing};
use crate::reason::Reason;
use std::collections::VecDeque;
use tailbound_client::{VmGuarantee, VmName};
use tailbound_dataplane::{Class, GuestId, Packet, Pipeline, PipelineConfig};

/// What a link is to be.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// Its name in logs and metrics: the guest's, or `uplink`.
    pub name: String,
    /// The guest behind it, its MAC and what it may send (`None`: anything);
    /// `None` for the uplink.
    pub guest: Option<(Mac, Option<Guard>)>,
    /// The guest's machine in the placement service, if it has one.
    pub vm: Option<VmName>,
    /// The way of a packet towards this port.
    pub pipeline: PipelineConfig,
}

/// The guest behind a link.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) id: GuestId,
    pub(super) mac: Mac,
    pub(super) guard: Option<Guard>,
    /// Waits of the frames that it sent, wherever they went.
    pub(super) sent: Sojourns,
    /// Waits of the frames that came for it from outside.
    pub(super) received: Sojourns,
}

/// Waits by class.
#[derive(Debug, Clone, Default)]
pub(super) struct Sojourns {
    high: Histogram,
    best_effort: Histogram,
}

impl Sojourns {
    pub(super) fn of(&mut self, class: Class) -> &mut Histogram {
        match class {
            Class::High => &mut self.high,
            Class::BestEffort => &mut self.best_effort,
        }
    }
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    pub(super) received: Traffic,
    pub(super) sent: Traffic,
    drops: [u64; Reason::ALL.len()],
}

impl Counters {
    pub(super) fn drop(&mut self, reason: Reason, count: u64) {
        self.drops[reason.index()] += count;
    }
}

/// What the switch knows of one port.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) guest: Option<Guest>,
    pub(super) vm: Option<VmName>,
    /// What that machine is promised; `None` where the service knows of none.
    pub(super) promise: Option<VmGuarantee>,
    pub(super) pipeline: Pipeline<Packet>,
    /// Frames that left the pipeline and that the port has not taken yet.
    pub(super) held: VecDeque<Outgoing>,
    pub(super) readable: bool,
    pub(super) full: bool,
    pub(super) counters: Counters,
}

impl Link {
    pub(super) fn new(config: LinkConfig, id: impl FnOnce() -> GuestId) -> Self {
        let guest = config.guest.map(|(mac, guard)| Guest {
            id: id(),
            mac,
            guard,
            sent: Sojourns::default(),
            received: Sojourns::default(),
        });
        Self {
            name: config.name,
            guest,
            vm: config.vm,
            promise: None,
            pipeline: Pipeline::new(&config.pipeline),
            held: VecDeque::with_capacity(BURST),
            readable: true,
            full: false,
            counters: Counters::default(),
        }
    }

    /// Whether it is the link that `config` means.
    pub(super) fn is(&self, config: &LinkConfig) -> bool {
        self.name == config.name && self.guest.is_some() == config.guest.is_some()
    }

    pub(super) fn reconfigure(&mut self, now: tailbound_units::Nanos, config: LinkConfig) {
        if let (Some(guest), Some((mac, guard))) = (&mut self.guest, config.guest) {
            guest.mac = mac;
            guest.guard = guard;
        }
        self.vm = config.vm;
        self.pipeline.reconfigure(now, &config.pipeline);
        self.readable = true;
        self.full = false;
    }

    pub(super) fn snapshot(&self, up: bool) -> LinkSnapshot {
        let stats = self.pipeline.stats();
        let backlog = self.pipeline.backlog();
        let by_host = Reason::ALL
            .iter()
            .map(|reason| (reason.label(), self.counters.drops[reason.index()]));
        let by_pipeline = stats.queue.drops.by_reason();
        let mut sojourns = Vec::new();
        if let Some(guest) = &self.guest {
            for (direction, waits) in [("sent", &guest.sent), ("received", &guest.received)] {
                for (class, histogram) in
                    [("high", &waits.high), ("best_effort", &waits.best_effort)]
                {
                    sojourns.push(Sojourn {
                        direction,
                        class,
                        histogram: histogram.clone(),
                    });
                }
            }
        }
        LinkSnapshot {
            name: self.name.clone(),
            vm: self.vm.clone(),
            promise: self.promise.clone(),
            up,
            received: (self.counters.received.packets, self.counters.received.bytes),
            sent: (self.counters.sent.packets, self.counters.sent.bytes),
            drops: by_host
                .chain(by_pipeline)
                .filter(|(_, count)| *count > 0)
                .collect(),
            backlog_packets: backlog.packets + self.held.len(),
            backlog_bytes: backlog.bytes,
            segmented: stats.segmented,
            marked: stats.queue.marked,
            meter: stats.meter,
            sojourns,
        }
    }
}
