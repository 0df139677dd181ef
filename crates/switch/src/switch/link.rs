//! What the switch knows of one port.

use super::paced::{PacedWay, Pacing};
use super::snapshot::{GuestPacing, LinkSnapshot, Sojourn, UplinkPacing};
use crate::guard::Guard;
use crate::mac::Mac;
use crate::port::{BURST, Outgoing, Port, Received};
use crate::reason::Reason;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use tailbound_api::{VmGuarantee, VmName};
use tailbound_dataplane::pacer::Refused;
use tailbound_dataplane::{Class, Guarantee, GuestId, Packet, Pipeline, PipelineConfig};
use tailbound_metrics::Histogram;
use tailbound_units::Nanos;

/// What a link is to be.
#[derive(Debug, Clone, Default)]
pub struct LinkConfig {
    /// Its name in logs and metrics: the guest's, or `uplink`.
    pub name: String,
    /// The guest behind it, its MAC and what it may send (`None`: anything);
    /// `None` for the uplink.
    pub guest: Option<(Mac, Option<Guard>)>,
    /// The guest's machine in the placement service, if it has one.
    pub vm: Option<VmName>,
    /// The guest's IP addresses, for those who limit what goes to them.
    pub ips: Vec<IpAddr>,
    /// What the guest is guaranteed on a paced uplink, unless the placement
    /// service knows its machine.
    pub guarantee: Option<Guarantee>,
    /// The way of a packet towards this port.
    pub pipeline: PipelineConfig,
    /// The way instead where the port is a paced uplink.
    pub pacing: Option<Pacing>,
}

/// The way of a frame to a port.
#[derive(Debug)]
pub(super) enum Way {
    Queued(Box<Pipeline<Packet>>),
    Paced(Box<PacedWay>),
}

/// What a way is to be.
#[derive(Debug)]
pub(super) struct WayConfig {
    pipeline: PipelineConfig,
    pub(super) pacing: Option<Pacing>,
}

impl From<LinkConfig> for WayConfig {
    fn from(config: LinkConfig) -> Self {
        Self {
            pipeline: config.pipeline,
            pacing: config.pacing,
        }
    }
}

impl Way {
    fn new(config: WayConfig) -> Result<Self, Refused> {
        Ok(match config.pacing {
            Some(pacing) => Self::Paced(Box::new(PacedWay::new(pacing)?)),
            None => Self::Queued(Box::new(Pipeline::new(&config.pipeline))),
        })
    }

    /// Becomes the way that `config` means. What waits goes on waiting, each flow
    /// in order, also where the kind of way changes.
    ///
    /// # Errors
    /// The rule that the pacing breaks; then nothing has changed.
    pub(super) fn reconfigure(&mut self, now: Nanos, config: WayConfig) -> Result<(), Refused> {
        match (&mut *self, config.pacing) {
            (Self::Queued(pipeline), None) => pipeline.reconfigure(now, &config.pipeline),
            (Self::Paced(paced), Some(pacing)) => paced.reconfigure(now, pacing)?,
            (Self::Queued(pipeline), Some(pacing)) => {
                let mut paced = PacedWay::new(pacing)?;
                pipeline.reconfigure(now, &PipelineConfig::default());
                while let Some(mut waiting) = pipeline.pull(now) {
                    // Nobody has a guarantee yet, so nothing is given back.
                    paced.prepare(now, &mut waiting.frame, false);
                    let _ = paced.offer(now, waiting.frame);
                }
                *self = Self::Paced(Box::new(paced));
            }
            (Self::Paced(paced), None) => {
                let mut pipeline = Pipeline::new(&config.pipeline);
                for frame in paced.take_waiting(now) {
                    pipeline.push(now, frame);
                }
                *self = Self::Queued(Box::new(pipeline));
            }
        }
        Ok(())
    }

    /// How many frames wait.
    pub(super) fn waiting(&self) -> usize {
        match self {
            Self::Queued(pipeline) => pipeline.backlog().packets,
            Self::Paced(paced) => paced.waiting(),
        }
    }

    /// When a frame may leave, unless something comes before.
    pub(super) fn poll_at(&self) -> Option<Nanos> {
        match self {
            Self::Queued(pipeline) => pipeline.poll_at(),
            Self::Paced(paced) => paced.pacer.poll_at(),
        }
    }
}

/// The guest behind a link.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) id: GuestId,
    pub(super) mac: Mac,
    pub(super) guard: Option<Guard>,
    pub(super) ips: Vec<IpAddr>,
    /// What the configuration guarantees.
    pub(super) guarantee: Option<Guarantee>,
    /// The terms that the pacer refused last, and why, as long as they are wanted.
    pub(super) refused: Option<(Refused, Guarantee)>,
    /// Frames that the pacer gave back, in order. While there are any the guest's
    /// port is not read, so that they are a burst at most.
    pub(super) stalled: VecDeque<Packet>,
    /// Frames of its last burst were dropped, for want of room or as they may not be
    /// sent: its port is not read, so that the next ones stay where they cost little.
    pub(super) paused: bool,
    /// When frames are offered again, or the port is read.
    pub(super) retry_at: Nanos,
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
    pub(super) voids: Traffic,
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
    pub(super) way: Way,
    /// What was received from the port and not looked at yet: a burst at most.
    pub(super) unread: VecDeque<Received>,
    /// What left the way and the port has not taken yet.
    pub(super) held: VecDeque<Outgoing>,
    pub(super) readable: bool,
    pub(super) full: bool,
    pub(super) counters: Counters,
}

impl Link {
    /// # Errors
    /// The rule that its pacing breaks.
    pub(super) fn new(config: LinkConfig, id: impl FnOnce() -> GuestId) -> Result<Self, Refused> {
        let guarantee = config.guarantee;
        let guest = config.guest.clone().map(|(mac, guard)| Guest {
            id: id(),
            mac,
            guard,
            ips: config.ips.clone(),
            guarantee,
            refused: None,
            stalled: VecDeque::new(),
            paused: false,
            retry_at: Nanos::ZERO,
            sent: Sojourns::default(),
            received: Sojourns::default(),
        });
        Ok(Self {
            name: config.name.clone(),
            guest,
            vm: config.vm.clone(),
            promise: None,
            way: Way::new(config.into())?,
            unread: VecDeque::with_capacity(BURST),
            held: VecDeque::with_capacity(BURST),
            readable: true,
            full: false,
            counters: Counters::default(),
        })
    }

    /// Whether it is the link that `config` means.
    pub(super) fn is(&self, config: &LinkConfig) -> bool {
        self.name == config.name && self.guest.is_some() == config.guest.is_some()
    }

    /// Takes over all of `config` but the way.
    pub(super) fn reconfigure(&mut self, config: &LinkConfig) {
        if let (Some(guest), Some((mac, guard))) = (&mut self.guest, config.guest.clone()) {
            guest.mac = mac;
            guest.guard = guard;
            guest.ips.clone_from(&config.ips);
            guest.guarantee = config.guarantee;
        }
        self.vm.clone_from(&config.vm);
        self.readable = true;
        self.full = false;
    }

    pub(super) fn paced(&self) -> Option<&PacedWay> {
        match &self.way {
            Way::Queued(_) => None,
            Way::Paced(paced) => Some(paced),
        }
    }

    pub(super) fn paced_mut(&mut self) -> Option<&mut PacedWay> {
        match &mut self.way {
            Way::Queued(_) => None,
            Way::Paced(paced) => Some(paced),
        }
    }

    /// Offers the port what is held; returns whether it is full.
    pub(super) fn offer_held(&mut self, now: Nanos, port: &mut dyn Port) -> io::Result<bool> {
        let sent = port.transmit(now, &mut self.held)?;
        self.counters.sent.packets += sent.packets;
        self.counters.sent.bytes += sent.bytes;
        self.counters.voids.packets += sent.voids;
        self.counters.voids.bytes += sent.void_bytes;
        for (reason, count) in sent.losses() {
            self.counters.drop(reason, count);
        }
        self.full = sent.full;
        Ok(sent.full)
    }

    /// Transmits what goes on the wire of a paced uplink next.
    ///
    /// Nothing is taken from the pacer while the port has not taken what was
    /// before: then the wire's clock stops, and all is later by as much.
    pub(super) fn transmit_paced(&mut self, now: Nanos, port: &mut dyn Port) -> io::Result<()> {
        if self.held.is_empty()
            && let Way::Paced(paced) = &mut self.way
        {
            paced.fill(now, &mut self.held);
        }
        if !self.held.is_empty() {
            self.offer_held(now, port)?;
        }
        if let Way::Paced(paced) = &mut self.way
            && !self.full
        {
            paced.sleep();
        }
        Ok(())
    }

    /// The port is not to be read, as its guest has to wait for a paced uplink.
    pub(super) fn is_stalled(&self) -> bool {
        let guest = self.guest.as_ref();
        guest.is_some_and(|guest| guest.paused || !guest.stalled.is_empty())
    }

    /// What is counted, as of now; `uplink` is the paced one, if there is any.
    pub(super) fn snapshot(&self, up: bool, uplink: Option<&PacedWay>) -> LinkSnapshot {
        let (segmented, queue, meter, backlog_bytes) = match &self.way {
            Way::Queued(pipeline) => {
                let stats = pipeline.stats();
                let backlog = pipeline.backlog();
                (stats.segmented, stats.queue, stats.meter, backlog.bytes)
            }
            Way::Paced(paced) => {
                let queue = paced.pacer.stats().queue;
                let backlog = paced.pacer.best_effort();
                let meter = paced.meter_stats();
                (paced.segmented(), queue, meter, backlog.bytes)
            }
        };
        let pacing = self.paced().map(|paced| self.uplink_pacing(paced));
        let by_pacer = pacing
            .as_ref()
            .map(|pacing| pacing.stats.drops.by_reason())
            .into_iter()
            .flatten();
        let by_host = Reason::ALL
            .iter()
            .map(|reason| (reason.label(), self.counters.drops[reason.index()]));
        let by_pipeline = queue.drops.by_reason();
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
                .chain(by_pacer)
                .filter(|(_, count)| *count > 0)
                .collect(),
            backlog_packets: self.way.waiting() + self.held.len(),
            backlog_bytes,
            segmented,
            marked: queue.marked,
            meter,
            sojourns,
            pacing,
            guarantee: uplink.and_then(|uplink| self.guest_pacing(uplink)),
        }
    }

    fn uplink_pacing(&self, paced: &PacedWay) -> UplinkPacing {
        UplinkPacing {
            stats: paced.pacer.stats(),
            voids: (self.counters.voids.packets, self.counters.voids.bytes),
            latest: paced
                .wire()
                .link
                .time_for(paced.pacer.stats().latest.into()),
            lateness: paced.lateness().clone(),
        }
    }

    fn guest_pacing(&self, uplink: &PacedWay) -> Option<GuestPacing> {
        let guest = self.guest.as_ref()?;
        let stats = uplink.pacer.guest_stats(guest.id).unwrap_or_default();
        Some(GuestPacing {
            terms: uplink.pacer.guarantee(guest.id).copied(),
            refused: guest.refused.is_some(),
            stats,
            wait: uplink.wire().link.time_for(stats.wait.into()),
            stalled: guest.stalled.len(),
        })
    }
}
