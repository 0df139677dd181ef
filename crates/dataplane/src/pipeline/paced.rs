//! A frame's path to a wire on which guests have guarantees.
//!
//! ```text
//! push ► class and tag ► pacer ► pull, when the wire is due
//! ```
//!
//! [`PacedPipeline::push`] assigns classes by the guests' guarantees, adds tags for switches, and
//! passes bursts of frames to the pacer. The pacer accepts every frame, and reports whether the
//! host may read further frames from the guest ([`Pacer::is_read`]).

use super::{Classifier, Outgoing, Promise};
use crate::pacer::{FrameGuarantee, PacerError, WireClock};
use crate::{
    Class, Classes, Fabric, Frame, HashKeys, Mark, MeterConfig, MeterStats, Pacer, PacerConfig,
    WireItem,
};
use std::collections::VecDeque;
use tailbound_units::{Bytes, Nanos, Position};

/// Configuration of a paced path to a wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacedPipelineConfig {
    /// The wire, and how it is filled.
    pub pacer: PacerConfig,
    /// The classes of the fabric.
    pub classes: Classes,
    /// Classifies flows of guests without a guarantee as small or large; of all guests if
    /// guarantees have no class of their own.
    pub meter: Option<MeterConfig>,
    /// True: frames without a VLAN tag get a priority tag.
    pub priority_tag: bool,
}

/// Departure of a frame on a paced wire.
#[derive(Debug, Clone, Copy)]
pub struct Leaving {
    /// Time that the frame waited, up to its batch.
    pub waited: Nanos,
    at: Position,
    clock: WireClock,
}

impl Leaving {
    /// Time at which the frame begins on the wire, on the clock of `now`.
    pub fn begins(&self) -> Nanos {
        self.clock.moment(self.at)
    }
}

impl PacedPipelineConfig {
    /// Creates a configuration with guarantees first, without a meter and without tags.
    pub const fn new(pacer: PacerConfig) -> Self {
        Self {
            pacer,
            classes: Classes::of(Fabric::GuaranteesFirst),
            meter: None,
            priority_tag: false,
        }
    }
}

/// Destinations that a guest's guarantee covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coverage {
    /// All destinations.
    #[default]
    AllDestinations,
    /// Destinations with a limit of their own: in the hose model a guarantee is between VMs that
    /// both have one (Silo 4.1).
    LimitedDestinations,
}

/// A pacer with the classification of frames before it. The module describes it.
#[derive(Debug)]
pub struct PacedPipeline<F> {
    config: PacedPipelineConfig,
    classifier: Classifier,
    pacer: Pacer<F>,
    segmented: u64,
}

impl<F: Frame> PacedPipeline<F> {
    /// Creates an empty path, without guaranteed guests.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks.
    pub fn new(config: PacedPipelineConfig) -> Result<Self, PacerError> {
        Self::with_keys(config, HashKeys::random())
    }

    /// Creates an empty path with given keys for the tables of the meter and of destinations.
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

    /// The pacer, for changes of guarantees and limits.
    pub fn pacer_mut(&mut self) -> &mut Pacer<F> {
        &mut self.pacer
    }

    /// Takes in frames in order, and assigns their classes and tags. Frames to destinations outside
    /// `coverage` are no guaranteed traffic ([`tailbound_classes`]).
    ///
    /// A frame from a guaranteed guest to another guest of this host ([`Frame::is_local`]) is
    /// guaranteed traffic if its destination has a limit: then the output is within the promise to
    /// its receiver.
    pub fn push(&mut self, now: Nanos, frames: impl IntoIterator<Item = F>, coverage: Coverage) {
        let Self {
            config,
            classifier,
            pacer,
            segmented,
        } = self;
        pacer.enqueue_burst(now, frames, |frame, frame_guarantee, delay_class| {
            *segmented += u64::from(frame.segments() > 1);
            if frame.is_local() {
                let class = match frame_guarantee {
                    FrameGuarantee::Limited => Class::Guaranteed,
                    FrameGuarantee::Unlimited | FrameGuarantee::BestEffort => Class::Lowest,
                };
                return frame.set_class(class, config.classes.mark(class));
            }
            let promise = match frame_guarantee {
                FrameGuarantee::BestEffort => Promise::Nothing,
                FrameGuarantee::Unlimited if coverage == Coverage::LimitedDestinations => {
                    Promise::Unannounced
                }
                FrameGuarantee::Unlimited | FrameGuarantee::Limited => Promise::Guarantee,
            };
            classifier.classify(now, frame, promise);
            let mut mark = config.classes.mark(frame.class());
            if let Some(delay_class) = delay_class
                && frame.class() == Class::Guaranteed
            {
                mark = delay_class.mark();
                frame.set_class(Class::Guaranteed, mark);
            }
            if config.priority_tag {
                frame.add_priority_tag(mark);
            }
        });
    }

    /// Passes on the frames to guests of this host that waited when their guest's guarantee ended,
    /// as best effort. Call it after every call that ends a guarantee, so that later frames do not
    /// overtake them.
    pub fn drain_freed(&mut self, mut sink: impl FnMut(F)) {
        let lowest = self.config.classes.mark(Class::Lowest);
        self.pacer
            .drain_freed(|frame| sink(unguaranteed(frame, lowest)));
    }

    /// Passes the next frames for the wire to `wire` and those for guests of this host to `local`,
    /// each in order; none before their time. Each frame comes with its waiting time; one for the
    /// wire also with the time at which it begins there.
    ///
    /// Frames have a launch time if there are no voids between them.
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
                WireItem::Guaranteed {
                    frame, at, sojourn, ..
                } => (frame, at, sojourn),
                WireItem::BestEffort { frame, at, sojourn } => {
                    (unguaranteed(frame, lowest), at, sojourn)
                }
                WireItem::Elastic {
                    mut frame,
                    at,
                    sojourn,
                } => {
                    frame.set_class(Class::Lowest, lowest);
                    (frame, at, sojourn)
                }
                WireItem::Local { frame, sojourn, .. } => return local(frame, sojourn),
                WireItem::Void { wire: length, at } => {
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

    /// Time at which the next [`PacedPipeline::pull`] passes on a frame; `None` if no frame waits.
    pub fn poll_at(&self) -> Option<Nanos> {
        self.pacer.poll_at()
    }

    /// Changes the configuration; waiting frames are kept.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks; the path is then unchanged.
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

    /// Takes out all frames that wait for the wire, each flow in order and none of them guaranteed,
    /// for a wire that is no longer paced. Frames to guests of this host are lost, unless their
    /// senders' guarantees ended before ([`Self::drain_freed`]).
    pub(super) fn take_waiting(&mut self, mut now: Nanos) -> VecDeque<F> {
        let mut waiting = VecDeque::new();
        let lowest = self.config.classes.mark(Class::Lowest);
        while let Some(at) = self.pacer.poll_at() {
            now = now.max(at) + self.config.pacer.batch;
            self.pacer.batch(now).for_each(|next| match next {
                WireItem::Guaranteed { frame, .. }
                | WireItem::BestEffort { frame, .. }
                | WireItem::Elastic { frame, .. } => {
                    waiting.push_back(unguaranteed(frame, lowest));
                }
                WireItem::Void { .. } | WireItem::Local { .. } => {}
            });
        }
        debug_assert_eq!(self.waiting(), 0, "a frame that waits has its time");
        waiting
    }

    /// Divides the meter among this number of guests from now on. The default is one guest.
    pub fn set_guests(&mut self, guests: usize) {
        self.classifier.set_guests(guests);
    }

    /// Time that the wire takes for this number of full frames.
    pub fn time_for(&self, frames: usize) -> Nanos {
        let PacerConfig { link, frame, .. } = self.config.pacer;
        link.time_for(Bytes(frame.0 * frames as u64))
    }

    /// Number of frames that were dropped for lack of room.
    #[inline]
    pub fn drops(&self) -> u64 {
        self.pacer.stats().queue.drops.total()
    }

    /// Number of waiting frames.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.pacer.waiting() + self.pacer.best_effort().packets
    }

    /// The meter's counters; zero without one.
    pub fn meter_stats(&self) -> MeterStats {
        self.classifier.stats()
    }

    /// Number of packets that were segmented.
    pub fn segmented(&self) -> u64 {
        self.segmented
    }
}

/// Returns a frame that is no longer under its guest's guarantee, in the lowest class if it was
/// guaranteed.
#[inline]
fn unguaranteed<F: Frame>(mut frame: F, lowest: Mark) -> F {
    if frame.class() == Class::Guaranteed {
        frame.set_class(Class::Lowest, lowest);
    }
    frame
}
