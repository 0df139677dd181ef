//! What stands before the wire of an uplink: a queue, or a pacer.

use super::{Coverage, PacedPipeline, PacedPipelineConfig, Pipeline, PipelineConfig};
use crate::pacer::PacerError;
use crate::{Backlog, Frame, MeterStats, Pacer, QueueStats, Spare};
use tailbound_units::Nanos;

/// What is to stand before a wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressConfig {
    /// A queue.
    Pipeline(PipelineConfig),
    /// A pacer.
    Pacer(PacedPipelineConfig),
}

impl EgressConfig {
    /// The pacer's configuration, where it is one.
    pub const fn paced(&self) -> Option<&PacedPipelineConfig> {
        match self {
            Self::Pipeline(_) => None,
            Self::Pacer(config) => Some(config),
        }
    }
}

/// What stands before a wire.
#[derive(Debug)]
pub enum Egress<F> {
    /// A queue: frames leave when the NIC has room.
    Pipeline(Box<Pipeline<F>>),
    /// A pacer: frames leave when their guarantees say so.
    Pacer(Box<PacedPipeline<F>>),
}

/// What an egress has done so far, whichever it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EgressStats {
    /// Frames that were segmented.
    pub segmented: u64,
    /// The queue's counters; under a pacer, those of best effort.
    pub queue: QueueStats,
    /// What waits in that queue.
    pub backlog: Backlog,
    /// The meter's counters; zero without one.
    pub meter: MeterStats,
}

impl<F: Frame> Egress<F> {
    /// An empty one.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks.
    pub fn new(config: EgressConfig) -> Result<Self, PacerError> {
        Ok(match config {
            EgressConfig::Pipeline(config) => Self::Pipeline(Box::new(Pipeline::new(&config))),
            EgressConfig::Pacer(config) => Self::Pacer(Box::new(PacedPipeline::new(config)?)),
        })
    }

    /// Becomes one of `config`. What waits goes on waiting, each flow in order, also
    /// where a queue becomes a pacer or a pacer a queue.
    ///
    /// # Errors
    /// The rule that the pacer's configuration breaks; then nothing has changed.
    pub fn reconfigure(&mut self, now: Nanos, config: EgressConfig) -> Result<(), PacerError> {
        match (&mut *self, config) {
            (Self::Pipeline(pipeline), EgressConfig::Pipeline(config)) => {
                pipeline.reconfigure(now, &config);
            }
            (Self::Pacer(paced), EgressConfig::Pacer(config)) => paced.reconfigure(now, config)?,
            (Self::Pipeline(pipeline), EgressConfig::Pacer(config)) => {
                let mut paced = PacedPipeline::new(config)?;
                // Without a NIC's queue, everything leaves at once.
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

    /// The way of a paced wire; `None` where it is not paced.
    pub const fn paced(&self) -> Option<&PacedPipeline<F>> {
        match self {
            Self::Pipeline(_) => None,
            Self::Pacer(paced) => Some(paced),
        }
    }

    /// The pacer; `None` where the wire is not paced.
    pub fn pacer(&self) -> Option<&Pacer<F>> {
        self.paced().map(PacedPipeline::pacer)
    }

    /// The pacer, for whoever sets guarantees and limits; `None` where the wire is not
    /// paced.
    pub fn pacer_mut(&mut self) -> Option<&mut Pacer<F>> {
        match self {
            Self::Pipeline(_) => None,
            Self::Pacer(paced) => Some(paced.pacer_mut()),
        }
    }

    /// Shares the meter among so many guests from now on; among one until it is told.
    pub fn set_guests(&mut self, guests: usize) {
        match self {
            Self::Pipeline(pipeline) => pipeline.set_guests(guests),
            Self::Pacer(paced) => paced.set_guests(guests),
        }
    }

    /// How many frames wait.
    pub fn waiting(&self) -> usize {
        match self {
            Self::Pipeline(pipeline) => pipeline.backlog().packets,
            Self::Pacer(paced) => paced.waiting(),
        }
    }

    /// Frees some of the memory that nothing has waited in since it was called last, and
    /// says what is left of it.
    pub fn give_back(&mut self) -> Spare {
        match self {
            Self::Pipeline(pipeline) => pipeline.give_back(),
            Self::Pacer(paced) => paced.pacer_mut().give_back(),
        }
    }

    /// When a frame may leave, unless something comes before; `None` where nothing
    /// waits.
    pub fn poll_at(&self) -> Option<Nanos> {
        match self {
            Self::Pipeline(pipeline) => pipeline.poll_at(),
            Self::Pacer(paced) => paced.poll_at(),
        }
    }

    /// What it has done so far.
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
