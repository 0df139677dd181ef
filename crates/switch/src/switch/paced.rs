//! The way of a frame to a paced uplink: its class by what its guest is
//! guaranteed, a priority tag, the pacer, and what is counted there.

use crate::mac::Mac;
use crate::port::Outgoing;
use std::collections::VecDeque;
use tailbound_dataplane::pacer::{Later, Refused};
use tailbound_dataplane::{
    Class, Frame, Meter, MeterConfig, MeterStats, Paced, Pacer, PacerConfig, Packet,
};
use tailbound_metrics::Histogram;
use tailbound_units::{Bytes, Nanos};

/// How an uplink is paced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pacing {
    /// The wire, and how it is filled.
    pub pacer: PacerConfig,
    /// Takes the high class from those flows of guaranteed guests that send more;
    /// they are paced all the same.
    pub meter: Option<MeterConfig>,
    /// Whether a frame without a VLAN tag gets a priority tag.
    pub priority_tag: bool,
    /// Whether rates are exchanged with other hosts: then what a machine sends to a
    /// destination that has no limit is guaranteed nothing.
    pub hose: bool,
}

/// The way to a paced uplink.
#[derive(Debug)]
pub(super) struct PacedWay {
    config: Pacing,
    meter: Option<Meter>,
    pub(super) pacer: Pacer<Packet>,
    segmented: u64,
    /// When the pacer wants to be asked again, as of the last turn.
    due: Option<Nanos>,
    /// How much later than that it was asked.
    lateness: Histogram,
}

impl PacedWay {
    /// # Errors
    /// The rule that the pacer's configuration breaks.
    pub(super) fn new(config: Pacing) -> Result<Self, Refused> {
        Ok(Self {
            meter: config.meter.as_ref().map(Meter::new),
            pacer: Pacer::new(&config.pacer)?,
            config,
            segmented: 0,
            due: None,
            lateness: Histogram::default(),
        })
    }

    pub(super) fn wire(&self) -> &PacerConfig {
        &self.config.pacer
    }

    /// Gives a frame its class, and its tag. `machine`: its guest is one, so that
    /// rates are exchanged for it.
    ///
    /// A guaranteed guest's frames are high, as long as a meter finds nothing
    /// against it. All others are best effort, and so is what goes to a group:
    /// switches multiply it, and no guarantee counts that. Nor does one count what
    /// goes to a destination that nobody limits: in the hose model a guarantee is
    /// between machines that both have one (Silo 4.1).
    pub(super) fn prepare(&mut self, now: Nanos, frame: &mut Packet, machine: bool) {
        let high = self.is_guaranteed(frame)
            && !Mac(frame.destination_mac()).is_multicast()
            && (!(self.config.hose && machine) || self.is_limited(frame));
        match &mut self.meter {
            Some(meter) if high => meter.tag(now, frame),
            _ if high => frame.set_class(Class::High),
            _ => frame.set_class(Class::BestEffort),
        }
        if self.config.priority_tag {
            frame.add_priority_tag();
        }
        self.segmented += u64::from(frame.segments() > 1);
    }

    fn is_guaranteed(&self, frame: &Packet) -> bool {
        let source = frame.source();
        source.is_some_and(|guest| self.pacer.guarantee(guest).is_some())
    }

    fn is_limited(&self, frame: &Packet) -> bool {
        frame.flow().is_some_and(|flow| self.pacer.is_limited(flow))
    }

    /// Offers a prepared frame to the pacer; gives how long it waits for its
    /// stamp, where it has one.
    pub(super) fn offer(
        &mut self,
        now: Nanos,
        mut frame: Packet,
    ) -> Result<Option<Nanos>, Later<Packet>> {
        let source = frame.source();
        let guaranteed = self.is_guaranteed(&frame);
        if !guaranteed && frame.class() == Class::High {
            // It was held back while its guest's guarantee went.
            frame.set_class(Class::BestEffort);
        }
        self.pacer.enqueue(now, frame)?;
        let stats = source.filter(|_| guaranteed);
        let stats = stats.and_then(|guest| self.pacer.guest_stats(guest));
        Ok(stats.map(|stats| self.config.pacer.link.time_for(stats.wait.into())))
    }

    /// Notes how late the caller is.
    pub(super) fn wake(&mut self, now: Nanos) {
        if let Some(due) = self.due.take()
            && due <= now
        {
            self.lateness.record(now.since(due));
        }
    }

    /// Appends what goes on the wire next.
    pub(super) fn fill(&mut self, now: Nanos, outgoing: &mut VecDeque<Outgoing>) {
        if self.pacer.poll_at().is_some_and(|at| at <= now) {
            let launch = !self.config.pacer.voids;
            let batch = self.pacer.batch(now);
            let clock = batch.clock();
            batch.for_each(|next| {
                outgoing.push_back(match next {
                    Paced::Guaranteed { frame, at, .. } | Paced::BestEffort { frame, at } => {
                        Outgoing::Frame {
                            packet: frame,
                            at: launch.then(|| clock.moment(at)),
                        }
                    }
                    Paced::Void { wire, .. } => Outgoing::Void { wire },
                });
            });
        }
    }

    /// Notes when the pacer wants to be asked again.
    pub(super) fn sleep(&mut self) {
        self.due = self.pacer.poll_at();
    }

    /// Becomes a way of `config`; what waits goes on waiting.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks; nothing has changed then.
    pub(super) fn reconfigure(&mut self, now: Nanos, config: Pacing) -> Result<(), Refused> {
        if self.config.pacer != config.pacer {
            self.pacer.reconfigure(now, &config.pacer)?;
        }
        if self.config.meter != config.meter {
            self.meter = match (self.meter.take(), &config.meter) {
                (Some(mut meter), Some(config)) => {
                    meter.reconfigure(config);
                    Some(meter)
                }
                (_, config) => config.as_ref().map(Meter::new),
            };
        }
        self.config = config;
        Ok(())
    }

    /// Takes out everything that waits, each flow in order: for an uplink that is
    /// paced no longer.
    pub(super) fn take_waiting(&mut self, now: Nanos) -> VecDeque<Packet> {
        let mut waiting = VecDeque::new();
        let mut now = now;
        while let Some(at) = self.pacer.poll_at() {
            now = now.max(at) + self.config.pacer.batch;
            self.pacer.batch(now).for_each(|next| match next {
                Paced::Guaranteed { frame, .. } | Paced::BestEffort { frame, .. } => {
                    waiting.push_back(frame);
                }
                Paced::Void { .. } => {}
            });
        }
        waiting
    }

    /// How long the wire takes for so many full frames.
    pub(super) fn time_for(&self, frames: usize) -> Nanos {
        let PacerConfig { link, frame, .. } = self.config.pacer;
        link.time_for(Bytes(frame.0 * frames as u64))
    }

    /// Frames that were dropped as there was no room for them, or others.
    pub(super) fn drops(&self) -> u64 {
        self.pacer.stats().queue.drops.total()
    }

    pub(super) fn waiting(&self) -> usize {
        self.pacer.waiting() + self.pacer.best_effort().packets
    }

    pub(super) fn meter_stats(&self) -> MeterStats {
        self.meter.as_ref().map(Meter::stats).unwrap_or_default()
    }

    pub(super) fn segmented(&self) -> u64 {
        self.segmented
    }

    pub(super) fn lateness(&self) -> &Histogram {
        &self.lateness
    }
}
