//! A host that paces: frames of its machines pass the data path's own pipeline ([`PacedPipeline`]),
//! and frames that the pacer does not accept yet wait in the machine's ring.

use super::fifo::Fifo;
use super::line::{Line, Tier};
use super::packet::Packet;
use super::port::PortTally;
use super::priorities::Priorities;
use crate::net::{Node, Time, Wire};
use std::sync::Arc;
use tailbound_dataplane::pacer::{Home, MAX_RATIO, PacerError, Place};
use tailbound_dataplane::{
    Class, Classes, Coverage, Fabric, FlowKey, Frame, Guarantee, GuestId, HashKeys, Mark, Outgoing,
    PacedPipeline, PacedPipelineConfig, PacerConfig,
};
use tailbound_hose::Usage;
use tailbound_units::{Bytes, Nanos, Rate};

/// Sender of the packets to an end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    /// Slot of its machine on its host.
    pub(super) slot: u32,
    /// Address of the receiving machine.
    pub(super) destination: u128,
    /// True if that machine is on the same host.
    pub(super) is_local: bool,
}

/// The classes of the fabric.
const CLASSES: Classes = Classes::of(Fabric::GuaranteesFirst);

/// A packet in the form that the data path requires.
#[derive(Debug, Clone, Copy)]
struct PacedFrame {
    packet: Packet,
    sender: Sender,
}

impl Frame for PacedFrame {
    fn len(&self) -> usize {
        self.packet.len()
    }
    fn source(&self) -> Option<GuestId> {
        Some(GuestId::first(self.sender.slot))
    }
    fn flow(&self) -> Option<FlowKey> {
        Some(FlowKey {
            source: GuestId::first(self.sender.slot),
            destination: self.sender.destination,
        })
    }
    fn class(&self) -> Class {
        if self.packet.class == CLASSES.mark(Class::Lowest).pcp {
            Class::Lowest
        } else {
            Class::Guaranteed
        }
    }
    fn set_class(&mut self, _: Class, mark: Mark) {
        self.packet.class = mark.pcp;
    }
    fn mark_congestion(&mut self) -> bool {
        self.packet.mark()
    }
    fn is_local(&self) -> bool {
        self.sender.is_local
    }
}

/// A host with guests, its pacer, and its link.
#[derive(Debug)]
pub(super) struct PacedHost {
    pipeline: PacedPipeline<PacedFrame>,
    /// Senders, by the receiving ends of connections.
    senders: Arc<[Sender]>,
    /// Queues of switches.
    priorities: Arc<Priorities>,
    /// Packets of each guest that the pacer has not accepted.
    rings: Vec<Fifo<PacedFrame>>,
    read_again: Vec<GuestId>,
    wire: Wire,
    /// End of the last frame on the wire.
    free_at: Time,
    delay: Time,
    /// Frames on the wire and on the link, with their arrival times.
    flying: Fifo<(Time, Packet)>,
    now: Time,
    pub(super) tally: PortTally,
}

impl PacedHost {
    /// Returns a host whose guests have these guarantees, if any, by slots. No frame is sent before
    /// `now`.
    ///
    /// # Errors
    /// The rule that the link or a guarantee breaks.
    pub(super) fn new(
        line: Line,
        is_work_conserving: bool,
        guests: &[Option<Guarantee>],
        senders: Arc<[Sender]>,
        priorities: Arc<Priorities>,
    ) -> Result<Self, PacerError> {
        let pacer = PacerConfig {
            // Frames keep the pacer's departure times.
            voids: false,
            work_conserving: is_work_conserving,
            ..PacerConfig::new(line.rate)
        };
        let config = PacedPipelineConfig {
            classes: CLASSES,
            ..PacedPipelineConfig::new(pacer)
        };
        let mut pipeline = PacedPipeline::with_keys(config, HashKeys::FIXED)?;
        for (slot, guarantee) in (0..).zip(guests) {
            let id = GuestId::first(slot);
            let pacer = pipeline.pacer_mut();
            pacer.set_guest(Nanos::ZERO, id, guarantee.as_ref())?;
        }
        Ok(Self {
            pipeline,
            senders,
            priorities,
            rings: vec![Fifo::new(); guests.len()],
            read_again: Vec::new(),
            wire: Wire::new(line.rate),
            free_at: Time::ZERO,
            delay: line.delay.into(),
            flying: Fifo::new(),
            now: Time::ZERO,
            tally: PortTally::default(),
        })
    }

    /// Number of frames that were dropped here.
    pub(super) fn drops(&self) -> u64 {
        let drops = self.pipeline.pacer().stats().drops.by_reason();
        drops.iter().map(|drops| drops.1).sum::<u64>() + self.pipeline.drops()
    }

    /// Largest delay of a frame after its departure time.
    pub(super) fn latest(&self) -> Nanos {
        let stats = self.pipeline.pacer().stats();
        let link = self.pipeline.wire().link;
        link.time_for(stats.max_lateness.into())
    }

    /// Sets the place of a guest, if its bursts are limited by subtree.
    pub(super) fn set_home(&mut self, guest: GuestId, home: Home) {
        let pacer = self.pipeline.pacer_mut();
        let guarantee = pacer.guarantee(guest);
        if guarantee.is_some_and(|it| it.bursts.is_per_subtree()) {
            pacer.set_home(guest, Some(home));
        }
    }

    /// Sets the place of a destination of a guest whose bursts are limited by subtree.
    pub(super) fn set_place(&mut self, guest: GuestId, destination: u128, place: Option<Place>) {
        let pacer = self.pipeline.pacer_mut();
        let guarantee = pacer.guarantee(guest);
        if guarantee.is_some_and(|it| it.bursts.is_per_subtree()) {
            pacer.set_place(guest, destination, place);
        }
    }

    /// Limits the rate of one of its guests to an address, as closely as its pacer can count.
    ///
    /// # Errors
    /// The rule that the limit breaks.
    pub(super) fn set_destination(
        &mut self,
        now: Nanos,
        guest: GuestId,
        destination: u128,
        rate: Option<Rate>,
    ) -> Result<(), PacerError> {
        let pacer = self.pipeline.pacer_mut();
        let nearest = match pacer.set_destination(now, guest, destination, rate) {
            Err(PacerError::TooSlow { link, .. }) => Rate(link.0.div_ceil(MAX_RATIO)),
            Err(PacerError::AboveLink { link, .. }) => link,
            other => return other,
        };
        pacer.set_destination(now, guest, destination, Some(nearest))
    }

    /// Lends one of its guests bytes of the inward burst of an address.
    pub(super) fn lend(&mut self, now: Nanos, guest: GuestId, destination: u128, lent: Bytes) {
        let pacer = self.pipeline.pacer_mut();
        pacer.lend(now, guest, destination, lent);
    }

    /// Reports the usage of addresses with a limit since the last call.
    pub(super) fn destinations_used(
        &mut self,
        now: Nanos,
        mut sink: impl FnMut(GuestId, u128, Usage),
    ) {
        let pacer = self.pipeline.pacer_mut();
        pacer.destinations_used(now, |used| {
            let FlowKey {
                source,
                destination,
            } = used.flow;
            let usage = Usage {
                taken: used.taken.into(),
                lacks: used.lacks.into(),
                waiting: used.backlogged,
                queued: used.queued.into(),
            };
            sink(source, destination, usage);
        });
    }

    /// Reports the addresses to which frames began to wait for a limit since the last call, with
    /// their bytes.
    pub(super) fn flows_that_wait(&mut self, mut sink: impl FnMut(GuestId, u128, Bytes)) {
        for waiting in self.pipeline.pacer_mut().flows_that_wait() {
            let FlowKey {
                source,
                destination,
            } = waiting.flow;
            sink(source, destination, waiting.queued.into());
        }
    }

    /// Number of frames in rings, in queues or on the link.
    pub(super) fn held(&self) -> u64 {
        let rings = self.rings.iter().map(Fifo::len).sum::<usize>();
        (rings + self.pipeline.waiting() + self.flying.len()) as u64
    }

    /// Memory of rings and link, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.rings.iter().map(Fifo::memory).sum::<usize>() + self.flying.memory()
    }

    /// Reads a guest's ring into the pacer, up to the pacer's limit.
    fn read(&mut self, id: GuestId) {
        let now = self.now.floor();
        while self.pipeline.pacer().is_read(id)
            && let Some(sent) = self.rings[id.slot()].pop()
        {
            self.pipeline.push(now, [sent], Coverage::AllDestinations);
        }
    }

    /// Puts the pacer's frames on the wire, at their departure times.
    fn pull(&mut self, out: &mut Vec<Packet>) {
        let Self {
            pipeline,
            priorities,
            wire,
            free_at,
            delay,
            flying,
            now,
            tally,
            ..
        } = self;
        let on_the_wire = |outgoing: Outgoing<PacedFrame>, _| {
            let Outgoing::Frame { frame, launch_at } = outgoing else {
                return;
            };
            let mut packet = frame.packet;
            packet.class = priorities.queue(packet.class);
            let begins = launch_at.map_or(*now, Time::from).max(*free_at);
            packet.go_on(begins, Tier::Host);
            *free_at = wire.send(begins, packet.bytes());
            flying.push((*free_at + *delay, packet));
            tally.sent += 1;
            tally.bytes += u64::from(packet.size);
        };
        pipeline.pull(now.floor(), on_the_wire, |mut sent, _| {
            sent.packet.class = priorities.queue(sent.packet.class);
            sent.packet.go_on(*now, Tier::Host);
            out.push(sent.packet);
        });
    }
}

impl Node<Packet> for PacedHost {
    fn poll_at(&self) -> Time {
        let arrives = self.flying.front().map_or(Time::NEVER, |first| first.0);
        let paced = self.pipeline.poll_at();
        // The pacer's clock is in nanoseconds.
        let paced = paced.map_or(Time::NEVER, |at| Time::from(at).max(self.now));
        arrives.min(paced)
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Packet>) {
        self.now = now;
        self.pull(out);
        let mut again = std::mem::take(&mut self.read_again);
        let pacer = self.pipeline.pacer_mut();
        pacer.drain_read_again(|id| again.push(id));
        for id in again.drain(..) {
            self.read(id);
        }
        self.read_again = again;
        while let Some((at, packet)) = self.flying.front()
            && *at <= now
        {
            out.push(*packet);
            self.flying.pop();
        }
    }

    fn receive(&mut self, now: Time, mut packet: Packet, _: &mut Vec<Packet>) {
        self.now = now;
        packet.wait(now, Tier::Host);
        let sender = self.senders[packet.to as usize];
        let id = GuestId::first(sender.slot);
        self.rings[id.slot()].push(PacedFrame { packet, sender });
        self.read(id);
    }
}
