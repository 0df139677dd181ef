//! A host whose frames pass the data path's own pipeline to its link ([`Pipeline`]): class,
//! segmentation, limit, queue, and the NIC's own queue.

use super::fifo::Fifo;
use super::line::{Line, Tier};
use super::packet::{FIRST, LAST, Packet};
use super::port::PortTally;
use crate::net::{Node, Time, Wire};
use crate::tcp::{MSS, Segment};
use serde::Deserialize;
use std::sync::Arc;
use tailbound_dataplane::pipeline::{Departure, PipelineConfig};
use tailbound_dataplane::{
    Class, Classes, Connection, Fabric, FlowKey, Frame, GuestId, HashKeys, Mark, MeterConfig,
    NicConfig, Pipeline, QueueConfig, RateLimit,
};
use tailbound_experiment::Section;
use tailbound_units::{Bytes, Rate};

/// The longest packet that TCP sends: the whole segments in 64 KiB.
const LARGEST: u32 = 44 * MSS;
/// Headers of each frame of a packet, as the data path counts: Ethernet, IPv4, TCP with time
/// stamps.
const HEADERS: usize = 14 + 20 + 32;

/// Merges segments that TCP sends at the same instant into packets of up to 64 KiB, if they differ
/// only in their position.
pub(super) fn offload(segments: &mut Vec<Segment>) {
    segments.dedup_by(|next, packet| {
        let together = Segment {
            sequence: packet.sequence,
            len: packet.len,
            ..*next
        };
        let joins = *packet == together
            && next.sequence == packet.end()
            && packet.len.is_multiple_of(MSS)
            && packet.len.min(next.len) > 0
            && packet.len + next.len <= LARGEST;
        if joins {
            packet.len += next.len;
        }
        joins
    });
}

/// Path in each host before its link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineSpec {
    /// Guests merge simultaneous segments into packets of up to 64 KiB.
    pub offload: bool,
    /// Segmentation before the queue, instead of by the NIC.
    pub segment: bool,
    /// Queue; a FIFO of 1,000 packets.
    pub queue: QueueConfig,
    /// Limits of the NIC's queue. Without it the NIC holds one packet.
    pub nic: Option<NicConfig>,
    /// Rate limit of the host. Segmentation is then before the queue.
    pub limit: Option<RateLimit>,
}

impl PipelineSpec {
    pub(super) fn check(&self, section: &mut Section<'_>) {
        if let Some(nic) = &self.nic {
            let mut section = section.table("nic");
            let rates = Rate::from_mbit(1)..=Rate::from_mbit(400_000);
            section.range("rate", nic.rate, rates);
            section.range("overhead", nic.overhead, Bytes(0)..=Bytes(100));
        }
        if let Some(limit) = &self.limit {
            let checked = limit.check().map_err(|error| error.to_string());
            section.hold("limit", checked);
        }
    }
}

/// Sender of a connection, and the receiving host.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Talker {
    /// The guest, from 1.
    pub(super) guest: u32,
    /// The host.
    pub(super) to: u32,
}

/// A packet in the form that the data path requires.
#[derive(Debug)]
struct PipedFrame {
    packet: Packet,
    talker: Talker,
}

impl PipedFrame {
    const fn guest(&self) -> GuestId {
        GuestId::first(self.talker.guest)
    }

    /// Returns true if the packet is longer than a frame.
    const fn is_large(&self) -> bool {
        self.packet.segment.ack.is_some() && self.packet.segment.len > MSS
    }
}

impl Frame for PipedFrame {
    fn len(&self) -> usize {
        self.packet.len()
    }
    fn source(&self) -> Option<GuestId> {
        Some(self.guest())
    }
    fn flow(&self) -> Option<FlowKey> {
        Some(FlowKey {
            source: self.guest(),
            destination: self.talker.to.into(),
        })
    }
    fn connection(&self) -> Connection {
        Connection(self.packet.to.wrapping_mul(0x9e37_79b9))
    }
    fn class(&self) -> Class {
        if self.packet.class == FIRST {
            Class::Small
        } else {
            Class::Lowest
        }
    }
    fn set_class(&mut self, class: Class, _: Mark) {
        self.packet.class = if class == Class::Lowest { LAST } else { FIRST };
    }
    fn mark_congestion(&mut self) -> bool {
        self.packet.mark()
    }
    fn segments(&self) -> usize {
        if self.is_large() {
            self.packet.segment.len.div_ceil(MSS) as usize
        } else {
            1
        }
    }
    fn wire_len(&self) -> usize {
        self.len() + (self.segments() - 1) * HEADERS
    }
    fn segment(self, mut sink: impl FnMut(Self)) {
        let Segment { sequence, len, .. } = self.packet.segment;
        if !self.is_large() {
            return sink(self);
        }
        for from in (0..len).step_by(MSS as usize) {
            let packet = self.packet.part(Segment {
                sequence: sequence + u64::from(from),
                len: MSS.min(len - from),
                ..self.packet.segment
            });
            sink(Self {
                packet,
                talker: self.talker,
            });
        }
    }
}

/// A host, its pipeline, and its link.
#[derive(Debug)]
pub(super) struct PipedHost {
    pipeline: Pipeline<PipedFrame>,
    /// Senders, by the second position of paths in the routes.
    talkers: Arc<[Talker]>,
    wire: Wire,
    /// End of the last frame on the wire.
    free_at: Time,
    delay: Time,
    /// Frames on the wire and on the link, with their arrival times.
    flying: Fifo<(Time, Packet)>,
    now: Time,
    tally: PortTally,
}

impl PipedHost {
    pub(super) fn new(
        line: Line,
        spec: &PipelineSpec,
        meter: Option<MeterConfig>,
        talkers: Arc<[Talker]>,
    ) -> Self {
        let config = PipelineConfig {
            classes: meter.map(|_| Classes::of(Fabric::SmallFlowsFirst)),
            meter,
            segment: spec.segment,
            queue: spec.queue.clone(),
            nic: spec.nic,
            limit: spec.limit,
        };
        Self {
            pipeline: Pipeline::with_keys(&config, HashKeys::FIXED),
            talkers,
            wire: Wire::new(line.rate),
            free_at: Time::ZERO,
            delay: line.delay.into(),
            flying: Fifo::new(),
            now: Time::ZERO,
            tally: PortTally::default(),
        }
    }

    /// Counters of the host.
    pub(super) fn tally(&self) -> PortTally {
        let queue = self.pipeline.stats().queue;
        PortTally {
            dropped: queue.drops.total(),
            marked: queue.marked,
            ..self.tally
        }
    }

    /// Number of queued packets and of frames on the link.
    pub(super) fn held(&self) -> u64 {
        (self.pipeline.backlog().packets + self.flying.len()) as u64
    }

    /// Memory of the link and of queued packets, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.pipeline.backlog().packets * size_of::<PipedFrame>() + self.flying.memory()
    }

    /// True if the NIC accepts a packet; with `nic`, the pipeline itself checks that.
    fn is_ready(&self) -> bool {
        self.pipeline.config().nic.is_some() || self.free_at <= self.now
    }

    /// Passes packets to the NIC as long as it accepts them.
    fn pull(&mut self) {
        while self.is_ready()
            && let Some(Departure { frame, .. }) = self.pipeline.pull(self.now.floor())
        {
            frame.segment(|PipedFrame { mut packet, .. }| {
                let begins = self.free_at.max(self.now);
                packet.go_on(begins, Tier::Host);
                self.free_at = self.wire.send(begins, packet.bytes());
                self.flying.push((self.free_at + self.delay, packet));
                self.tally.sent += 1;
                self.tally.bytes += u64::from(packet.size);
            });
        }
    }
}

impl Node<Packet> for PipedHost {
    fn poll_at(&self) -> Time {
        let arrives = self.flying.front().map_or(Time::NEVER, |first| first.0);
        let next = self.pipeline.poll_at().map_or(Time::NEVER, |at| {
            // The pipeline's clock is in nanoseconds.
            let at = Time::from(at).max(self.now);
            if self.pipeline.config().nic.is_some() {
                at
            } else {
                at.max(self.free_at)
            }
        });
        arrives.min(next)
    }

    fn poll(&mut self, now: Time, out: &mut Vec<Packet>) {
        self.now = now;
        self.pull();
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
        let talker = self.talkers[packet.next as usize];
        self.pipeline
            .push(now.floor(), PipedFrame { packet, talker });
        self.pull();
    }
}
