//! The last stage before the wire of an uplink: a queue or a pacer.

use super::{Coverage, PacedPipeline, PacedPipelineConfig, Pipeline, PipelineConfig};
use crate::pacer::PacerError;
use crate::{Backlog, Frame, MeterStats, Pacer, QueueStats, Spare};
use tailbound_units::Nanos;

/// Configuration of the last stage before a wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressConfig {
    /// A queue.
    Pipeline(PipelineConfig),
    /// A pacer.
    Pacer(PacedPipelineConfig),
}

impl EgressConfig {
    /// The pacer's configuration, if it is one.
    pub const fn paced(&self) -> Option<&PacedPipelineConfig> {
        match self {
            Self::Pipeline(_) => None,
            Self::Pacer(config) => Some(config),
        }
    }
}

/// The last stage before a wire.
#[derive(Debug)]
pub enum Egress<F> {
    /// A queue: frames leave when the NIC has room.
    Pipeline(Box<Pipeline<F>>),
    /// A pacer: frames leave at the times of their guarantees.
    Pacer(Box<PacedPipeline<F>>),
}

/// Counters of an egress of either kind since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EgressStats {
    /// Frames that were segmented.
    pub segmented: u64,
    /// The queue's counters; under a pacer, those of best effort.
    pub queue: QueueStats,
    /// The frames that wait in that queue.
    pub backlog: Backlog,
    /// The meter's counters; zero without one.
    pub meter: MeterStats,
}

impl<F: Frame> Egress<F> {
    /// Creates an empty egress.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks.
    pub fn new(config: EgressConfig) -> Result<Self, PacerError> {
        Ok(match config {
            EgressConfig::Pipeline(config) => Self::Pipeline(Box::new(Pipeline::new(&config))),
            EgressConfig::Pacer(config) => Self::Pacer(Box::new(PacedPipeline::new(config)?)),
        })
    }

    /// Changes the configuration. Waiting frames are kept, each flow in order, even if a queue
    /// becomes a pacer or a pacer a queue.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks; the egress is then unchanged.
    pub fn reconfigure(&mut self, now: Nanos, config: EgressConfig) -> Result<(), PacerError> {
        match (&mut *self, config) {
            (Self::Pipeline(pipeline), EgressConfig::Pipeline(config)) => {
                pipeline.reconfigure(now, &config);
            }
            (Self::Pacer(paced), EgressConfig::Pacer(config)) => paced.reconfigure(now, config)?,
            (Self::Pipeline(pipeline), EgressConfig::Pacer(config)) => {
                let mut paced = PacedPipeline::new(config)?;
                // Without a NIC's queue, all frames leave immediately.
                pipeline.reconfigure(now, &PipelineConfig::default());
                while let Some(waiting) = pipeline.pull(now) {
                    paced.push(now, Some(waiting.frame), Coverage::AllDestinations);
                }
                *self = Self::Pacer(Box::new(paced));
            }
            (Self::Pacer(paced), EgressConfig::Pipeline(config)) => {
                let mut pipeline = Pipeline::new(&config);
                for frame in paced.take_waiting(now) {
                    pipeline.push(now, frame);
                }
                *self = Self::Pipeline(Box::new(pipeline));
            }
        }
        Ok(())
    }

    /// The path of a paced wire; `None` for a queue.
    pub const fn paced(&self) -> Option<&PacedPipeline<F>> {
        match self {
            Self::Pipeline(_) => None,
            Self::Pacer(paced) => Some(paced),
        }
    }

    /// The pacer; `None` for a queue.
    pub fn pacer(&self) -> Option<&Pacer<F>> {
        self.paced().map(PacedPipeline::pacer)
    }

    /// The pacer, for changes of guarantees and limits; `None` for a queue.
    pub fn pacer_mut(&mut self) -> Option<&mut Pacer<F>> {
        match self {
            Self::Pipeline(_) => None,
            Self::Pacer(paced) => Some(paced.pacer_mut()),
        }
    }

    /// Divides the meter among this number of guests from now on. The default is one guest.
    pub fn set_guests(&mut self, guests: usize) {
        match self {
            Self::Pipeline(pipeline) => pipeline.set_guests(guests),
            Self::Pacer(paced) => paced.set_guests(guests),
        }
    }

    /// Number of waiting frames.
    pub fn waiting(&self) -> usize {
        match self {
            Self::Pipeline(pipeline) => pipeline.backlog().packets,
            Self::Pacer(paced) => paced.waiting(),
        }
    }

    /// Checks whether no frame waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Pipeline(pipeline) => pipeline.is_empty(),
            Self::Pacer(paced) => paced.waiting() == 0,
        }
    }

    /// Frees some of the memory that was not used since the last call, and returns whether more is
    /// left.
    pub fn give_back(&mut self) -> Spare {
        match self {
            Self::Pipeline(pipeline) => pipeline.give_back(),
            Self::Pacer(paced) => paced.pacer_mut().give_back(),
        }
    }

    /// Time at which a frame may leave, without earlier arrivals; `None` if no frame waits.
    pub fn poll_at(&self) -> Option<Nanos> {
        match self {
            Self::Pipeline(pipeline) => pipeline.poll_at(),
            Self::Pacer(paced) => paced.poll_at(),
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> EgressStats {
        match self {
            Self::Pipeline(pipeline) => pipeline.egress_stats(),
            Self::Pacer(paced) => EgressStats {
                segmented: paced.segmented(),
                queue: paced.pacer().stats().queue,
                backlog: paced.pacer().best_effort(),
                meter: paced.meter_stats(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
