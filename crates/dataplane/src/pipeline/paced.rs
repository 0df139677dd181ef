//! A frame's way to a wire on which guests keep to guarantees.
//!
//! ```text
//! push ► class and tag ► pacer ► pull, when the wire is due
//! ```
//!
//! [`PacedPipeline::push`] gives frames their class by what their guest is guaranteed,
//! and a tag that tells switches so, and hands them to the pacer, a burst at once. That takes
//! every frame, and says whether its guest's next ones should come ([`Pacer::is_read`]).

use super::{Classifier, Outgoing, Promise};
use crate::pacer::{PacerError, Standing, WireClock};
use crate::{
    Class, Classes, Fabric, Frame, HashKeys, Mark, MeterConfig, MeterStats, Paced, Pacer,
    PacerConfig,
};
use std::collections::VecDeque;
use tailbound_units::{Bytes, Nanos, Position};

/// What a paced way to a wire consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacedPipelineConfig {
    /// The wire, and how it is filled.
    pub pacer: PacerConfig,
    /// The classes of the fabric.
    pub classes: Classes,
    /// Tells small flows from others, of guests without a guarantee; where guarantees
    /// have no class of their own, of all.
    pub meter: Option<MeterConfig>,
    /// Whether a frame without a VLAN tag gets a priority tag.
    pub priority_tag: bool,
}

/// When a frame leaves for a paced wire.
#[derive(Debug, Clone, Copy)]
pub struct Leaving {
    /// How long it waited, up to the batch that it is in.
    pub waited: Nanos,
    at: Position,
    clock: WireClock,
}

impl Leaving {
    /// The moment at which it begins on the wire, on the clock of `now`.
    pub fn begins(&self) -> Nanos {
        self.clock.moment(self.at)
    }
}

impl PacedPipelineConfig {
    /// A pacer on a fabric with guarantees first, without a meter and without tags.
    pub const fn new(pacer: PacerConfig) -> Self {
        Self {
            pacer,
            classes: Classes::of(Fabric::GuaranteesFirst),
            meter: None,
            priority_tag: false,
        }
    }
}

/// To which destinations a guest's guarantee extends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coverage {
    /// To all of them.
    #[default]
    AllDestinations,
    /// To those that have a limit of their own: in the hose model a guarantee is
    /// between machines that both have one (Silo 4.1).
    LimitedDestinations,
}

/// A pacer, and what decides about a frame before it. See the module.
#[derive(Debug)]
pub struct PacedPipeline<F> {
    config: PacedPipelineConfig,
    classifier: Classifier,
    pacer: Pacer<F>,
    segmented: u64,
}

impl<F: Frame> PacedPipeline<F> {
    /// An empty one, without guaranteed guests.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks.
    pub fn new(config: PacedPipelineConfig) -> Result<Self, PacerError> {
        Self::with_keys(config, HashKeys::random())
    }

    /// The same with given keys for the meter's table and that of destinations.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks.
    pub fn with_keys(config: PacedPipelineConfig, keys: HashKeys) -> Result<Self, PacerError> {
        let pacer = Pacer::with_keys(&config.pacer, keys)?;
        Ok(Self {
            classifier: Classifier::new(Some(config.classes), config.meter.as_ref(), keys),
            pacer,
            config,
            segmented: 0,
        })
    }

    /// The wire, and how it is filled.
    pub fn wire(&self) -> &PacerConfig {
        &self.config.pacer
    }

    /// The pacer.
    pub fn pacer(&self) -> &Pacer<F> {
        &self.pacer
    }

    /// The pacer, for whoever sets guarantees and limits.
    pub fn pacer_mut(&mut self) -> &mut Pacer<F> {
        &mut self.pacer
    }

    /// Takes frames in, in order, with their classes and tags: what `coverage` leaves out is
    /// no guaranteed traffic ([`tailbound_classes`]).
    ///
    /// A frame that goes to another guest of this host ([`Frame::is_local`]), of a guest that is
    /// guaranteed something, is guaranteed traffic where its destination has a limit: then
    /// what comes out is within what its receiver was promised to be sent.
    pub fn push(&mut self, now: Nanos, frames: impl IntoIterator<Item = F>, coverage: Coverage) {
        let Self {
            config,
            classifier,
            pacer,
            segmented,
        } = self;
        pacer.enqueue_burst(now, frames, |frame, standing| {
            *segmented += u64::from(frame.segments() > 1);
            if frame.is_local() {
                let class = match standing {
                    Standing::Limited => Class::Guaranteed,
                    Standing::Unlimited | Standing::BestEffort => Class::Lowest,
                };
                return frame.set_class(class, config.classes.mark(class));
            }
            let promise = match standing {
                Standing::BestEffort => Promise::Nothing,
                Standing::Unlimited if coverage == Coverage::LimitedDestinations => {
                    Promise::Unannounced
                }
                Standing::Unlimited | Standing::Limited => Promise::Guarantee,
            };
            classifier.classify(now, frame, promise);
            if config.priority_tag {
                frame.add_priority_tag(config.classes.mark(frame.class()));
            }
        });
    }

    /// Hands over the frames to guests of this host that waited when their guest's
    /// guarantee ended, as what is not guaranteed any more: to be called after whatever
    /// ends one, so that what comes next does not overtake them.
    pub fn drain_freed(&mut self, mut sink: impl FnMut(F)) {
        let lowest = self.config.classes.mark(Class::Lowest);
        self.pacer
            .drain_freed(|frame| sink(unguaranteed(frame, lowest)));
    }

    /// Hands over to `wire` what goes on the wire next, and to `local` what goes to guests
    /// of this host, each in order; nothing where it is not due. With each frame comes
    /// how long it waited; with what goes on the wire, when it begins there, too.
    ///
    /// Frames have a launch time where there are no voids between them.
    pub fn pull(
        &mut self,
        now: Nanos,
        mut wire: impl FnMut(Outgoing<F>, Leaving),
        mut local: impl FnMut(F, Nanos),
    ) {
        if self.pacer.poll_at().is_none_or(|at| at > now) {
            return;
        }
        let launch = !self.config.pacer.voids;
        let lowest = self.config.classes.mark(Class::Lowest);
        let batch = self.pacer.batch(now);
        let clock = batch.clock();
        batch.for_each(|next| {
            let (frame, at, waited) = match next {
                Paced::Guaranteed {
                    frame, at, sojourn, ..
                } => (frame, at, sojourn),
                Paced::BestEffort { frame, at, sojourn } => {
                    (unguaranteed(frame, lowest), at, sojourn)
                }
                Paced::Elastic {
                    mut frame,
                    at,
                    sojourn,
                } => {
                    frame.set_class(Class::Lowest, lowest);
                    (frame, at, sojourn)
                }
                Paced::Local { frame, sojourn, .. } => return local(frame, sojourn),
                Paced::Void { wire: length, at } => {
                    let leaving = Leaving {
                        waited: Nanos::ZERO,
                        at,
                        clock,
                    };
                    return wire(Outgoing::Void { wire: length }, leaving);
                }
            };
            let launch_at = launch.then(|| clock.moment(at));
            let leaving = Leaving { waited, at, clock };
            wire(Outgoing::Frame { frame, launch_at }, leaving);
        });
    }

    /// The same as [`Pacer::set_blocked`].
    #[inline]
    pub fn set_blocked(&mut self, now: Nanos, is_blocked: bool) {
        self.pacer.set_blocked(now, is_blocked);
    }

    /// When the next [`PacedPipeline::pull`] hands something over; `None` where
    /// nothing waits.
    pub fn poll_at(&self) -> Option<Nanos> {
        self.pacer.poll_at()
    }

    /// Becomes one of `config`; what waits goes on waiting.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks; nothing has changed then.
    pub fn reconfigure(
        &mut self,
        now: Nanos,
        config: PacedPipelineConfig,
    ) -> Result<(), PacerError> {
        if self.config.pacer != config.pacer {
            self.pacer.reconfigure(now, &config.pacer)?;
        }
        let meter = config.meter.as_ref();
        self.classifier.reconfigure(Some(config.classes), meter);
        self.config = config;
        Ok(())
    }

    /// Takes out everything that waits for the wire, each flow in order and nothing of it
    /// guaranteed: for a wire that is paced no longer. What goes to guests of this host is
    /// lost, unless their senders' guarantees have ended before ([`Self::drain_freed`]).
    pub(super) fn take_waiting(&mut self, mut now: Nanos) -> VecDeque<F> {
        let mut waiting = VecDeque::new();
        let lowest = self.config.classes.mark(Class::Lowest);
        while let Some(at) = self.pacer.poll_at() {
            now = now.max(at) + self.config.pacer.batch;
            self.pacer.batch(now).for_each(|next| match next {
                Paced::Guaranteed { frame, .. }
                | Paced::BestEffort { frame, .. }
                | Paced::Elastic { frame, .. } => {
                    waiting.push_back(unguaranteed(frame, lowest));
                }
                Paced::Void { .. } | Paced::Local { .. } => {}
            });
        }
        debug_assert_eq!(self.waiting(), 0, "a frame that waits has its time");
        waiting
    }

    /// Shares the meter among so many guests from now on; among one until it is told.
    pub fn set_guests(&mut self, guests: usize) {
        self.classifier.set_guests(guests);
    }

    /// How long the wire takes for so many full frames.
    pub fn time_for(&self, frames: usize) -> Nanos {
        let PacerConfig { link, frame, .. } = self.config.pacer;
        link.time_for(Bytes(frame.0 * frames as u64))
    }

    /// How many frames were dropped as there was no room for them, or others.
    pub fn drops(&self) -> u64 {
        self.pacer.stats().queue.drops.total()
    }

    /// How many frames wait.
    pub fn waiting(&self) -> usize {
        self.pacer.waiting() + self.pacer.best_effort().packets
    }

    /// The meter's counters; zero without one.
    pub fn meter_stats(&self) -> MeterStats {
        self.classifier.stats()
    }

    /// How many frames were to be segmented.
    pub fn segmented(&self) -> u64 {
        self.segmented
    }
}

/// A frame that nothing holds to a guarantee any more, or no longer its guest's: in the
/// lowest class if it was guaranteed.
#[inline]
fn unguaranteed<F: Frame>(mut frame: F, lowest: Mark) -> F {
    if frame.class() == Class::Guaranteed {
        frame.set_class(Class::Lowest, lowest);
    }
    frame
}
