//! The uplink of the host.

use super::guest::GuestPort;
use super::state::PortState;
use crate::port::{Outgoing, Port};
use std::io;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{Egress, EgressConfig, Leaving, PacedPipeline, Packet};
use tailbound_metrics::Histogram;
use tailbound_units::Nanos;

/// The uplink of the host.
#[derive(Debug)]
pub(super) struct Uplink {
    pub(super) egress: Egress<Packet>,
    /// The time at which the pacer wanted to be called again, as of the last turn.
    due: Option<Nanos>,
    /// Delay of the calls after that time.
    pub(super) lateness: Histogram,
}

impl Uplink {
    /// # Errors
    /// The rule that its pacer's configuration breaks.
    pub(super) fn new(config: EgressConfig) -> Result<Self, PacerError> {
        Ok(Self {
            egress: Egress::new(config)?,
            due: None,
            lateness: Histogram::default(),
        })
    }

    /// Changes the configuration.
    ///
    /// # Errors
    /// The rule that the configuration of the pacer breaks; nothing has changed then.
    pub(super) fn reconfigure(
        &mut self,
        now: Nanos,
        config: EgressConfig,
    ) -> Result<(), PacerError> {
        let was_paced = self.egress.paced().is_some();
        self.egress.reconfigure(now, config)?;
        if was_paced != self.egress.paced().is_some() {
            self.due = None;
            self.lateness = Histogram::default();
        }
        Ok(())
    }

    /// Records the lateness of the caller for due frames.
    pub(super) fn note_lateness(&mut self, now: Nanos) {
        if let Some(due) = self.due.take()
            && due <= now
        {
            self.lateness.record(now.since(due));
        }
    }

    /// Enqueues frames of `sender`, and makes its port unread if no more frames should come.
    pub(super) fn push(
        &mut self,
        now: Nanos,
        frames: impl IntoIterator<Item = Packet>,
        sender: &mut GuestPort,
    ) {
        match &mut self.egress {
            Egress::Pipeline(pipeline) => {
                for packet in frames {
                    pipeline.push(now, packet);
                }
            }
            Egress::Pacer(paced) => {
                paced.push(now, frames, sender.coverage);
                sender
                    .ingress
                    .set_crowded(!paced.pacer().is_read(sender.id));
            }
        }
    }

    /// Returns the number of frames that the pacer dropped because its queue was full; zero without
    /// a pacer.
    pub(super) fn drops(&self) -> u64 {
        self.egress.paced().map_or(0, PacedPipeline::drops)
    }

    /// Transmits the next frames of a paced wire. Passes each sent frame to `sink`, with its
    /// departure and its place ([`PortState::place`]), and frames to guests of this host to
    /// `local`.
    ///
    /// While the port has not taken the frames before, none is taken from the pacer: then the
    /// wire's virtual clock stands still, and all frames are delayed by as much time.
    pub(super) fn transmit_paced(
        &mut self,
        now: Nanos,
        state: &mut PortState,
        port: &mut dyn Port,
        mut sink: impl FnMut(&Packet, &Leaving, u64),
        local: impl FnMut(Packet, Nanos),
    ) -> io::Result<()> {
        let Egress::Pacer(paced) = &mut self.egress else {
            return Ok(());
        };
        if state.outgoing.is_empty() {
            let wire = |next, leaving| {
                if let Outgoing::Frame { frame, .. } = &next {
                    sink(frame, &leaving, state.place());
                }
                state.outgoing.push_back(next);
            };
            paced.pull(now, wire, local);
        }
        if !state.outgoing.is_empty() {
            state.transmit(now, port)?;
        }
        paced.set_blocked(now, !state.outgoing.is_empty());
        if !state.full {
            self.due = paced.poll_at();
        }
        Ok(())
    }
}
