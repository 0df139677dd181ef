//! The uplink of the host.

use super::batch::GuestBatch;
use super::guest::GuestPort;
use super::state::PortState;
use super::table::PortTable;
use crate::index::PortIndex;
use crate::port::{Outgoing, Port};
use std::io;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{Departure, Egress, EgressConfig, Frame, Leaving, PacedPipeline, Packet};
use tailbound_metrics::Histogram;
use tailbound_units::Nanos;

/// The uplink of the host.
#[derive(Debug)]
pub(super) struct Uplink {
    egress: Egress<Packet>,
    /// Frames of one guest that are not in the egress yet. The batch is empty at the end of a turn.
    batch: GuestBatch,
    /// The time at which the pacer wanted to be called again, as of the last turn.
    due: Option<Nanos>,
    /// Delay of the calls after that time.
    lateness: Histogram,
}

impl Uplink {
    /// # Errors
    /// The rule that its pacer's configuration breaks.
    pub(super) fn new(config: EgressConfig) -> Result<Self, PacerError> {
        Ok(Self {
            egress: Egress::new(config)?,
            batch: GuestBatch::default(),
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

    /// Returns the queues and limits in front of the port. They lack the frames of a batch.
    pub(super) const fn egress(&self) -> &Egress<Packet> {
        &self.egress
    }

    /// Returns the queues and limits in front of the port.
    pub(super) const fn egress_mut(&mut self) -> &mut Egress<Packet> {
        &mut self.egress
    }

    /// Returns the delay of the calls for due frames.
    pub(super) const fn lateness(&self) -> &Histogram {
        &self.lateness
    }

    /// Returns true if the pacer wanted to be called again, as of the last turn.
    pub(super) const fn is_awaited(&self) -> bool {
        self.due.is_some()
    }

    /// Records the lateness of the caller for due frames.
    pub(super) fn note_lateness(&mut self, now: Nanos) {
        if let Some(due) = self.due.take()
            && due <= now
        {
            self.lateness.record(now.since(due));
        }
    }

    /// Enqueues a guest's frame: adds it to the batch of its frames. The batch is flushed
    /// immediately if it may make the guest's port unread, so that nothing is received and forwarded
    /// in between. Others need not flush it: [`Self::drops`] and the transmission do so first.
    pub(super) fn enqueue(
        &mut self,
        now: Nanos,
        from: PortIndex,
        packet: Packet,
        table: &mut PortTable,
    ) {
        if self.batch.from() != Some(from) {
            self.flush(now, table);
            // A single frame needs no batch. Frames that a limit or early acknowledgement adds are
            // no part of a received burst.
            if !table[from].has_received()
                && table.source(from).is_direct()
                && let Some(sender) = table.guest_mut(from)
            {
                return push(&mut self.egress, now, Some(packet), sender);
            }
        }
        let is_cut = packet.segments() > 1;
        let source = packet.source();
        self.batch.add(from, packet);
        let pacer = self.egress.pacer();
        if is_cut || !source.is_some_and(|id| self.batch.has_room(id, pacer)) {
            self.flush(now, table);
        }
    }

    /// Moves the batch to the egress, and updates whether its guest's port is read.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "in most cases there is no batch")]
    pub(super) fn flush(&mut self, now: Nanos, table: &mut PortTable) {
        if let Some(from) = self.batch.from() {
            self.flush_from(now, from, table);
        }
    }

    #[inline(never)]
    fn flush_from(&mut self, now: Nanos, from: PortIndex, table: &mut PortTable) {
        let sender = table.guest_mut(from);
        debug_assert!(sender.is_some(), "frames for the uplink are of guests");
        let frames = self.batch.drain();
        if let Some(sender) = sender {
            push(&mut self.egress, now, frames, sender);
        }
    }

    /// Returns true if no frame waits.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.batch.from().is_none() && self.egress.is_empty()
    }

    /// Returns the next frame of an uplink that is not paced.
    pub(super) fn pull(&mut self, now: Nanos) -> Option<Departure<Packet>> {
        match &mut self.egress {
            Egress::Pipeline(pipeline) => pipeline.pull(now),
            Egress::Pacer(_) => None,
        }
    }

    /// Enqueues a frame of a guest that has no port any more.
    pub(super) fn push_last(&mut self, now: Nanos, packet: Packet, sender: &mut GuestPort) {
        push(&mut self.egress, now, Some(packet), sender);
    }

    /// Returns the number of frames that the pacer dropped because its queue was full; zero without
    /// a pacer.
    #[inline]
    pub(super) fn drops(&mut self, now: Nanos, table: &mut PortTable) -> u64 {
        self.flush(now, table);
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
        if state.outbound.frames.is_empty() {
            let wire = |next, leaving| {
                if let Outgoing::Frame { frame, .. } = &next {
                    sink(frame, &leaving, state.place());
                }
                state.outbound.frames.push_back(next);
            };
            paced.pull(now, wire, local);
        }
        if !state.outbound.frames.is_empty() {
            state.transmit(now, port)?;
        }
        paced.set_blocked(now, !state.outbound.frames.is_empty());
        if !state.outbound.full {
            self.due = paced.poll_at();
        }
        Ok(())
    }
}

/// Enqueues frames of `sender`, and makes its port unread if no more frames should come.
fn push(
    egress: &mut Egress<Packet>,
    now: Nanos,
    frames: impl IntoIterator<Item = Packet>,
    sender: &mut GuestPort,
) {
    match egress {
        Egress::Pipeline(pipeline) => {
            for packet in frames {
                pipeline.push(now, packet);
            }
        }
        Egress::Pacer(paced) => {
            paced.push(now, frames, sender.promise.coverage);
            let is_read = paced.pacer().is_read(sender.id);
            sender.ingress.set_crowded(!is_read);
        }
    }
}
